"""Emulate low-precision training of any PyTorch model, bit for bit (extra ``torch``).

Typical use::

    import mxnum.torch as mxt

    emulation = mxt.emulate(model, "mxfp8_e4m3")
    ...  # train as usual
    mxt.restore(model)
"""

from mxnum import errors

if (_version := errors.package("torch", "torch").__version__) < (2, 4):
    raise ImportError(f"mxnum.torch needs torch 2.4 or later, not {_version}: pip install --upgrade torch")

from mxnum.torch.attention import attention
from mxnum.torch.centering import center_output_weights
from mxnum.torch.coverage import Coverage
from mxnum.torch.emulate import Emulation, emulate, restore, set_recipe
from mxnum.torch.functions import (
    dequantize,
    fake_quantize,
    layer_norm,
    linear,
    matmul,
    quantize,
    rms_norm,
)
from mxnum.torch.modules import register
from mxnum.torch.operands import rounding_by
from mxnum.torch.scaled_mm import scaled_mm
from mxnum.torch.watch import Watch, watch

__all__ = [
    "Coverage",
    "Emulation",
    "Watch",
    "attention",
    "center_output_weights",
    "dequantize",
    "emulate",
    "fake_quantize",
    "layer_norm",
    "linear",
    "matmul",
    "quantize",
    "register",
    "restore",
    "rms_norm",
    "rounding_by",
    "scaled_mm",
    "set_recipe",
    "watch",
]

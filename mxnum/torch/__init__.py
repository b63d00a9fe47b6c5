"""Low-precision training of any PyTorch model, emulated with the right bits (extra ``torch``).

import mxnum.torch as mxt
emulation = mxt.emulate(model, "mxfp8_e4m3")      # train as usual
mxt.restore(model)
"""

from mxnum import errors

errors.package("torch", "torch")

from mxnum.torch.attention import attention  # noqa: E402
from mxnum.torch.emulate import Emulation, emulate, restore, set_recipe  # noqa: E402
from mxnum.torch.functions import (  # noqa: E402
    dequantize,
    fake_quantize,
    layer_norm,
    linear,
    matmul,
    quantize,
    rms_norm,
)
from mxnum.torch.operands import rounding_by  # noqa: E402
from mxnum.torch.watch import Watch, watch  # noqa: E402

__all__ = [
    "Emulation",
    "Watch",
    "attention",
    "dequantize",
    "emulate",
    "fake_quantize",
    "layer_norm",
    "linear",
    "matmul",
    "quantize",
    "restore",
    "rms_norm",
    "rounding_by",
    "set_recipe",
    "watch",
]

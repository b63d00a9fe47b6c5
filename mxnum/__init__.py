"""mxnum computes block-scaled number formats bit for bit: OCP MX, NVFP4 and similar formats.

    import mxnum as mx
    q = mx.quantize(x, "mxfp8_e4m3")
    q.codes, q.scales, q.dequantize()

Importing this package loads numpy and no other package. numba is loaded by the first call that
needs compiled code.
"""

from mxnum import analysis, formats, units
from mxnum.array import MXArray
from mxnum.formats import ElementFormat, MXFormat, ScaleFormat
from mxnum.linear import LinearGradients, linear_backward, linear_forward
from mxnum.modes import Accumulate, FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule
from mxnum.ops import decode, dequantize, encode, fake_quantize, fake_quantizer, quantize, shared_scale
from mxnum.products import dot, matmul, mma
from mxnum.recipe import Operand, Recipe
from mxnum.rotations import hadamard

__version__ = "0.2.0"

__all__ = [
    "Accumulate",
    "ElementFormat",
    "FloatScaleRule",
    "LinearGradients",
    "MXArray",
    "MXFormat",
    "Nonfinite",
    "OffsetRange",
    "Operand",
    "Overflow",
    "Recipe",
    "Rounding",
    "ScaleFormat",
    "ScaleRule",
    "__version__",
    "analysis",
    "decode",
    "dequantize",
    "dot",
    "encode",
    "fake_quantize",
    "fake_quantizer",
    "formats",
    "hadamard",
    "linear_backward",
    "linear_forward",
    "matmul",
    "mma",
    "quantize",
    "shared_scale",
    "units",
]

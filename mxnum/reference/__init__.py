"""The meaning of MX, written to be read: exact rationals, one step at a time, no bit tricks.

Tests check everything that this library computes against this package, so it shares nothing with
the fast code but the description of the formats. A number is an `Exact`: a sign and a rational
magnitude, or an infinity, or a NaN. All results come from four operations on such numbers: the
exact product, quotient and sum, and one rounding into a format. Speed does not matter here.

`numbers` has these operations. `blocks` quantizes arrays and decodes them; `float_scales` has
scales that are floats. `products` sums, `matrix_units` sums as GPUs do, `hadamard` transforms, and
`random` computes the words of stochastic rounding.
"""

from mxnum.reference.blocks import Quantized, dequantize, fake_quantize, quantize
from mxnum.reference.hadamard import hadamard
from mxnum.reference.matrix_units import unit_dot
from mxnum.reference.numbers import Exact, decode, decode_exact, encode, shared_scale
from mxnum.reference.products import Blocked, dot, matmul
from mxnum.reference.random import random_words

__all__ = [
    "Blocked",
    "Exact",
    "Quantized",
    "decode",
    "decode_exact",
    "dequantize",
    "dot",
    "encode",
    "fake_quantize",
    "hadamard",
    "matmul",
    "quantize",
    "random_words",
    "shared_scale",
    "unit_dot",
]

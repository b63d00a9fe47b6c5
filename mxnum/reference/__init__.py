"""The meaning of MX formats, in code that is written to be read: exact fractions, step by step.

Tests compare all results of the library with the results of this package. The reference and the
fast code share only the description of the formats, so the comparisons find mistakes in the fast
code. A number is an `Exact`: a sign and a rational magnitude, an infinity or a NaN. All results
come from four operations on exact numbers: the exact product, the exact quotient, the exact sum,
and one rounding to a format. The speed of the reference does not matter.

The module `numbers` computes products, sums and roundings. `blocks` quantizes and decodes arrays,
and `float_scales` computes scales that are floats and divides by them. `products` computes dot
products, `matrix_units` computes dot products as GPUs do, `hadamard` transforms blocks, and
`random` computes the random words of stochastic rounding.
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

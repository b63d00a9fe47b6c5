"""Tests that the oracle equals a third implementation, which uses mpmath's nint, floor and ceil."""

from __future__ import annotations

import math

import mpmath
import pytest

from mxnum import formats, reference
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import numpy_dtype
from tests import samples

#: For each element: mantissa bits, emin and max, copied again from the standard's tables.
FORMATS = {
    "e4m3": (3, -6, 448), "e5m2": (2, -14, 57344), "e3m2": (2, -2, 28), "e2m3": (3, 0, 7.5), "e2m1": (1, 0, 6),
    "int8": (6, 0, 127 / 64), "int4": (2, 0, 7 / 4),
}  # fmt: skip

NEAREST = {
    "rne": lambda n: mpmath.nint(n),
    "rna": lambda n: mpmath.sign(n) * mpmath.floor(abs(n) + 0.5),
    "rtz": lambda n: mpmath.sign(n) * mpmath.floor(abs(n)),
    "rtp": mpmath.ceil,
    "rtn": mpmath.floor,
}


@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("name", FORMATS)
def test_the_value_of_the_code_is_the_rounded_value(name, rounding):
    m, emin, largest = FORMATS[name]
    source = FLOATS["float64"]
    element = formats.element(name)
    for scale in (1, 127, 200):
        bits = samples.boundary_patterns(source, element, scale)
        rng = samples.generator("mpmath", name, rounding, scale)
        bits = rng.choice(bits, 250)
        values = [v for v in samples.as_floats(source, bits) if math.isfinite(v) and abs(v) < 1e300]
        with mpmath.workprec(400):
            for x in values:
                y = mpmath.ldexp(mpmath.mpf(x), 127 - scale)
                exponent = emin if y == 0 else max(emin, mpmath.frexp(y)[1] - 1)
                quantum = mpmath.ldexp(1, int(exponent) - m)
                want = NEAREST[rounding](y / quantum) * quantum
                want = max(-largest, min(largest, want))
                got = reference.decode_exact(reference.encode(x, name, rounding=rounding, scale=scale), name)
                assert mpmath.mpf(got.number.numerator) / got.number.denominator == want, (x, scale)


def test_decoding_multiplies_exactly():
    target = FLOATS["float64"]
    for scale in (0, 100, 254):
        for code in range(256):
            value = reference.decode_exact(code, "e5m2")
            if value.kind == "finite":
                bits = reference.decode(code, "e5m2", scale=scale)
                got = mpmath.mpf(float(samples.np.uint64(bits).view(numpy_dtype(target))))
                assert got == mpmath.ldexp(mpmath.mpf(value.number.numerator) / value.number.denominator, scale - 127)

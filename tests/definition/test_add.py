"""Tests that rounding the sum with a sticky bit equals rounding the exact sum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.definition.add import make_add, sum_width
from mxnum.definition.pack import make_pack
from mxnum.definition.unpack import FINITE, INFINITE, NAN, make_unpack
from mxnum.formats import FLOATS
from mxnum.modes import Overflow, Rounding
from tests import samples

FLOAT32 = FLOATS["float32"]
WIDTH = 24
unpack, add = make_unpack(FLOAT32, WIDTH), make_add(WIDTH)

patterns = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from(samples.special_patterns(FLOAT32).tolist()),
)


@given(patterns, patterns, st.integers(-30, 30), st.sampled_from([r for r in Rounding if r != Rounding.SR]))
def test_one_rounding_of_the_sum_is_correct_in_every_mode(a, b, distance, rounding):
    # Give half of the pairs similar exponents, so that both numbers matter.
    if distance > 0 and (a >> 23) & 0xFF not in (0, 255):
        field = min(max(((a >> 23) & 0xFF) + distance - 15, 0), 254)
        b = (b & ~(0xFF << 23)) | (field << 23)
    x, y = samples.as_floats(FLOAT32, np.array([a, b], np.int32))
    if not (math.isfinite(x) and math.isfinite(y)):
        return
    for target in ("float32", "bfloat16", "float16"):
        pack = make_pack(FLOATS[target], rounding, Overflow.IEEE, sum_width(WIDTH), 32)
        got = pack(*add(*unpack(a), *unpack(b)), 0) & ((1 << FLOATS[target].bits) - 1)
        exact = Fraction(x) + Fraction(y)
        if exact:
            want = reference.encode(exact, target, rounding=rounding, overflow="ieee")
            assert got == want, f"{a:#x} + {b:#x} -> {target} {rounding}: got {got:#x}, want {want:#x}"
        else:
            both_negative = math.copysign(1, x) == math.copysign(1, y) == -1
            assert got == (1 << (FLOATS[target].bits - 1) if both_negative else 0)


def test_infinities_and_nans():
    inf, minus_inf, nan, one = 0x7F800000, -0x800000, 0x7FC00000, 0x3F800000
    kinds = {
        (inf, one): (INFINITE, 0), (one, minus_inf): (INFINITE, 1), (inf, inf): (INFINITE, 0),
        (minus_inf, minus_inf): (INFINITE, 1), (inf, minus_inf): (NAN, None), (minus_inf, inf): (NAN, None),
        (nan, one): (NAN, None), (inf, nan): (NAN, None), (one, one): (FINITE, 0),
    }  # fmt: skip
    for (a, b), (kind, sign) in kinds.items():
        got = add(*unpack(a), *unpack(b))
        assert got[3] == kind, (hex(a), hex(b))
        if sign is not None:
            assert got[0] == sign


def test_cancellation_is_exact():
    a, b = 0x3F800001, -0x40800000  # a is the next float32 number above 1, and b is -1
    sign, exponent, significand, kind = add(*unpack(a), *unpack(b))
    assert (sign, exponent, significand, kind) == (0, -23, 1 << sum_width(WIDTH), FINITE)

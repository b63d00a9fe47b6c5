"""Tests of the exact accumulator against Python integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.engine.products import exact
from mxnum.engine.products.terms import INFINITY, NOT_A_NUMBER, NUMBER, ZERO

significands = st.integers(-(1 << 53) + 1, (1 << 53) - 1)
products = st.lists(st.tuples(significands, significands, st.integers(0, 300)), max_size=12)


def total(limbs):
    return sum(int(limb) << (32 * i) for i, limb in enumerate(limbs))


@given(products, st.integers(-400, 100), st.booleans())
def test_sums_are_exact_and_rounded_once(terms, lowest, cancel):
    if cancel:
        terms = [*terms, *((-a, b, power) for a, b, power in terms[1:])]
    limbs = np.zeros(exact.limbs_for(lowest, lowest + 300), np.int64)
    for a, b, power in terms:
        exact.add_product(limbs, a, b, power)
    want = sum(a * b << power for a, b, power in terms)
    assert total(limbs) == want
    exact.carry(limbs)
    assert total(limbs) == want
    assert all(0 <= limb < 1 << 32 for limb in limbs[:-1].tolist())
    got = exact.rounded(limbs, lowest) & 0xFFFFFFFF
    value = Fraction(want) * Fraction(2) ** lowest
    assert got == (reference.encode(value, "float32", overflow="ieee") if want else 0)
    assert not limbs.any()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("gap", [1, 17, 18, 19, 20, 25, 26, 31, 32, 33, 63, 64, 65, 200])
def test_a_distant_bit_breaks_a_tie(gap, sign):
    # 1 + 2**-24 is a tie between float32 numbers. A much smaller addend breaks the tie.
    for below in (1, -1, 0):
        limbs = np.zeros(exact.limbs_for(0, 400), np.int64)
        exact.add_product(limbs, sign, 1, 300)
        exact.add_product(limbs, sign, 1, 276)
        exact.add_product(limbs, sign * below, 1, 276 - gap)
        got = exact.rounded(limbs, -300) & 0x7FFFFFFF
        assert got == 0x3F800000 + (below > 0)


def test_limbs_hold_many_products_between_carries():
    """Check that limbs, the 64-bit words of a sum, do not overflow between two carries."""
    limbs = np.zeros(exact.limbs_for(0, 0), np.int64)
    for _ in range(1000):
        exact.add_product(limbs, (1 << 53) - 1, (1 << 53) - 1, 31)
    assert max(abs(int(limb)) for limb in limbs) < 1000 << 36
    assert exact.CARRY_EVERY << 36 < 1 << 63


def test_states_of_nonfinite_products():
    number, zero, infinity, nan = NUMBER, ZERO, INFINITY, NOT_A_NUMBER
    table = {
        (number, number): 0, (zero, number): 0, (infinity, number): exact.PLUS, (infinity, number + 1): exact.MINUS,
        (infinity + 1, infinity + 1): exact.PLUS, (infinity, zero): exact.INVALID, (zero + 1, infinity): exact.INVALID,
        (nan, zero): exact.INVALID, (number, nan + 1): exact.INVALID, (infinity, nan): exact.INVALID,
    }  # fmt: skip
    for (a, b), state in table.items():
        for x, y in ((a, b), (b, a)):
            assert exact.state_of(np.array([0, x, 0]), np.array([0, y, 0]), 0, 3) == state
    both = np.array([infinity, infinity + 1]), np.array([number, number])
    assert exact.state_of(*both, 0, 2) == exact.INVALID
    assert exact.state_of(*both, 1, 2) == exact.MINUS
    assert [exact.special_float32(s) for s in (1, 2, 3)] == [0x7F800000, 0xFF800000, 0x7FC00000]

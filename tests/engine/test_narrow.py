"""Narrowing float64 by integers; `proofs/theorems/narrowing.py` proves that no code depends on it."""

from __future__ import annotations

import numpy as np

from mxnum.engine import magic, narrow
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples


def bits_of(value):
    return int(np.float32(value).view(np.int32))


def wide_bits_of(value):
    return int(np.float64(value).view(np.int64))


def test_numbers_of_float32_stay():
    for value in (0.0, 1.0, -1.5, 2.0**-126, -(2.0**127)):
        assert narrow.to_odd(wide_bits_of(value)) == bits_of(value)
        assert narrow.leading_part(wide_bits_of(value)) == bits_of(value)


def test_what_is_lost_shows_in_the_last_bit():
    one = bits_of(1.0)
    assert narrow.to_odd(wide_bits_of(1.0 + 2.0**-52)) == one + 1
    assert narrow.to_odd(wide_bits_of(1.0 + 1.5 * 2.0**-23)) == one + 1
    assert narrow.to_odd(wide_bits_of(1.0 + 2.5 * 2.0**-23)) == one + 3
    assert narrow.leading_part(wide_bits_of(1.0 + 2.5 * 2.0**-23)) == one + 2


def test_what_float32_has_not():
    least, largest = 0x00800000, 0x7F7FFFFF
    assert [narrow.to_odd(wide_bits_of(x)) for x in (5e-324, 1e-300, 1e300)] == [least, least, largest]
    assert [narrow.leading_part(wide_bits_of(x)) for x in (5e-324, -1e-300, 1e300)] == [0, -(1 << 31), largest]
    assert narrow.to_odd(wide_bits_of(-np.inf)) == largest - (1 << 31)


def test_the_rest_is_what_the_leading_part_leaves():
    e = magic.constants(ELEMENTS["e4m3"])
    for x in samples.random_patterns(FLOATS["float64"], 500, "narrow").tolist():
        value = abs(float(np.int64(x).view(np.float64)))
        if not 2.0**-20 < value < 2.0**20:
            continue
        leading = narrow.leading_part(x)
        kept = abs(float(np.int32(leading).view(np.float32)))
        quantum = 2.0 ** (max(int(np.floor(np.log2(value))), -6) - 3)
        assert narrow.rest(x, leading, 127, e) == int((value - kept) / quantum * 2**30)
    assert narrow.rest(wide_bits_of(1.0 + 2.0**-24), bits_of(1.0), 127, e) == 1 << 9

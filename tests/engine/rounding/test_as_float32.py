"""Tests of narrowing float64 to float32.

`proofs/theorems/narrowing.py` proves that narrowing changes no code.
"""

from __future__ import annotations

import numpy as np

import mxnum as mx
from mxnum.engine.rounding import as_float32, float_additions
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples


def bits_of(value):
    return int(np.float32(value).view(np.int32))


def wide_bits_of(value):
    return int(np.float64(value).view(np.int64))


def test_numbers_of_float32_stay():
    for value in (0.0, 1.0, -1.5, 2.0**-126, -(2.0**127)):
        assert as_float32.to_odd(wide_bits_of(value)) == bits_of(value)
        assert as_float32.leading_part(wide_bits_of(value)) == bits_of(value)


def test_what_is_lost_shows_in_the_last_bit():
    one = bits_of(1.0)
    assert as_float32.to_odd(wide_bits_of(1.0 + 2.0**-52)) == one + 1
    assert as_float32.to_odd(wide_bits_of(1.0 + 1.5 * 2.0**-23)) == one + 1
    assert as_float32.to_odd(wide_bits_of(1.0 + 2.5 * 2.0**-23)) == one + 3
    assert as_float32.leading_part(wide_bits_of(1.0 + 2.5 * 2.0**-23)) == one + 2


def test_what_float32_has_not():
    least, largest = 0x00800000, 0x7F7FFFFF
    assert [as_float32.to_odd(wide_bits_of(x)) for x in (5e-324, 1e-300, 1e300)] == [least, least, largest]
    assert [as_float32.leading_part(wide_bits_of(x)) for x in (5e-324, -1e-300, 1e300)] == [
        0,
        -(1 << 31),
        largest,
    ]
    assert as_float32.to_odd(wide_bits_of(-np.inf)) == largest - (1 << 31)


def test_a_conversion_does_the_same():
    least, large = wide_bits_of(2.0**-126), wide_bits_of(2.0**128)
    edges = [edge + step for edge in (0, least, large) for step in range(-(3 << 28), 3 << 28, (1 << 28) - 1)]
    patterns = [*edges, *samples.random_patterns(FLOATS["float64"], 2000, "conversion").tolist()]
    patterns += [0, least, large, wide_bits_of(5e-324), wide_bits_of(1.5e-45), wide_bits_of(np.inf)]
    for magnitude in (bits & 0x7FFFFFFFFFFFFFFF for bits in patterns):
        if magnitude <= FLOATS["float64"].max_code + 1:
            for x in (magnitude, magnitude - (1 << 63)):
                assert as_float32.to_odd_by_conversion(x) == as_float32.to_odd(x)
    x = np.array(patterns, np.int64)
    finite = x[np.isfinite(x.view(np.float64))]
    samples.assert_same("arrays", finite, as_float32.to_odd_by_conversion(finite), as_float32.to_odd(finite))


def test_rows_and_columns_narrow_alike():
    x = samples.generator("narrowed").standard_normal((5, 2 * 4096 + 7)) * 2.0**-3
    x[1, 40], x[2, 4097], x[3, :40], x[4, 100] = np.nan, 1e300, 1e-310, -1e-44
    for options in ({}, {"rounding": "rtp", "block_size": 16}, {"rounding": "rto", "scale_rule": "rceil"}):
        got = mx.quantize(x, "mxfp6_e2m3", **options)
        columns = mx.quantize(np.ascontiguousarray(x.T), "mxfp6_e2m3", axis=0, **options)
        samples.assert_same(f"{options}", None, got.codes, columns.T.codes)
        samples.assert_same(f"{options}", None, got.scales, columns.T.scales)


def test_the_rest_is_what_the_leading_part_leaves():
    e = float_additions.constants(ELEMENTS["e4m3"])
    for x in samples.random_patterns(FLOATS["float64"], 500, "narrow").tolist():
        value = abs(float(np.int64(x).view(np.float64)))
        if not 2.0**-20 < value < 2.0**20:
            continue
        leading = as_float32.leading_part(x)
        kept = abs(float(np.int32(leading).view(np.float32)))
        quantum = 2.0 ** (max(int(np.floor(np.log2(value))), -6) - 3)
        assert as_float32.rest(x, leading, 127, e) == int((value - kept) / quantum * 2**30)
    assert as_float32.rest(wide_bits_of(1.0 + 2.0**-24), bits_of(1.0), 127, e) == 1 << 9

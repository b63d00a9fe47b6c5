"""Tests of the float32 formulas that subtract and add offsets.

tests/engine/quantizing/test_transforms.py tests the loops that use these formulas.
"""

from __future__ import annotations

import numpy as np

from mxnum.definition.offset import OFFSET, make_decode_offset, make_difference
from mxnum.engine.loops import offsets
from mxnum.engine.rounding import as_float32, float_additions, offset_additions
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples


def finite_offsets(count):
    bits = samples.generator("offsets").integers(0, 1 << 16, count)
    return np.where((bits & 0x7FFF) > OFFSET.max_code, bits & 0x83FF, bits)


def test_a_difference_is_that_of_the_definition():
    middles = finite_offsets(1 << 16)
    for name in ("float32", "bfloat16", "float16"):
        source = FLOATS[name]
        x = samples.generator("differences", name).integers(-1 << (source.bits - 1), 1 << (source.bits - 1), 1 << 16)
        with np.errstate(invalid="ignore"):
            got = offset_additions.make_fast_difference(source)(x, as_float32.make_widen(OFFSET)(middles))
        want = make_difference(source)(x, middles)
        is_nan = (want & 0x7FFFFFFF) > 0x7F800000
        samples.assert_same(name, None, got[~is_nan].astype(np.int32), want[~is_nan].astype(np.int32))
        samples.assert_same(name, None, np.sign(got[is_nan]), np.sign(want[is_nan]))


def test_a_sum_is_that_of_the_definition():
    middles = finite_offsets(1 << 16)
    for name, element in ELEMENTS.items():
        rng = samples.generator("sums", name)
        least, greatest = float_additions.decoding_domain(element)
        codes, scales = rng.integers(0, 1 << element.bits, 1 << 16), rng.integers(least, greatest + 1, 1 << 16)
        with np.errstate(invalid="ignore"):
            value = float_additions.value_of_code(codes, scales, float_additions.constants(element))
            got = offset_additions.fast_sum(value, as_float32.make_widen(OFFSET)(middles))
        want = make_decode_offset(element, FLOATS["float32"])(codes, scales, middles)
        samples.assert_same(name, None, got.astype(np.int32), want.astype(np.int32))


def test_what_may_be_added():
    element, zero = ELEMENTS["e2m1"], np.zeros(2, np.uint16)
    assert offsets.may_add(np.array([127, 255], np.uint8), zero, element)
    assert not offsets.may_add(np.array([127, 0], np.uint8), zero, element)
    assert not offsets.may_add(np.array([127, 127], np.uint8), np.array([0, 0x7C00], np.uint16), element)

"""Tests of the choice of a fast formulation, and of its constants."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mxnum.engine.rounding import as_float32, float_additions, formulation
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.memory.dtypes import numpy_dtype, signed_bits
from mxnum.modes import Overflow, Rounding, ScaleRule
from tests import samples

FLOAT32, E4M3 = FLOATS["float32"], ELEMENTS["e4m3"]
USUAL = Rounding.RNE, Overflow.SATURATE, ScaleRule.FLOOR


def test_one_function_serves_all_elements():
    functions = {
        formulation.fast_quantizing(FLOAT32, element, *USUAL, None).function
        for name, element in ELEMENTS.items()
        if name != "e3m0"
    }
    assert len(functions) == 1


def test_numbers_come_back_as_they_were_given():
    fast = formulation.fast_quantizing(FLOAT32, E4M3, Rounding.RTP, Overflow.IEEE, ScaleRule.RCEIL, None)
    limits, constants = formulation.numbers_given(fast.numbers)
    assert constants == float_additions.constants(E4M3, Rounding.RTP, Overflow.IEEE, ScaleRule.RCEIL)
    assert limits == float_additions.domain(E4M3, Rounding.RTP)
    assert fast.numbers.dtype == np.int32


def test_what_has_no_fast_formulation():
    user = dataclasses.replace(E4M3, mantissa_bits=4)
    assert formulation.fast_quantizing(FLOAT32, user, *USUAL, None) is None
    assert formulation.fast_decoding(FLOATS["bfloat16"], FLOAT32) is None
    assert formulation.quantizing_anywhere(FLOAT32, user, *USUAL[:2], None) is None
    assert formulation.quantizing_anywhere(FLOATS["float64"], E4M3, *USUAL[:2], None) is None
    assert formulation.quantizing_anywhere(FLOAT32, E4M3, *USUAL[:2], FLOATS["bfloat16"]) is None
    assert formulation.decoding_anywhere(E4M3, FLOATS["float16"]) is None


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("rounding", ["rne", "rtp", "rto", "sr"])
def test_values_are_those_of_the_definition(source, rounding):
    """Check values in the input's type, at the smallest, a middle and the largest allowed scale."""
    source, modes = FLOATS[source], (Rounding(rounding), Overflow.IEEE)
    fast = formulation.fast_quantizing(source, E4M3, *modes, ScaleRule.FLOOR, source)
    limits, constants = formulation.numbers_given(fast.numbers)
    want = formulation.requantizing(source, E4M3, *modes, source).function
    widen = as_float32.make_widen(source)
    for scale in (limits.least_scale, 127, limits.greatest_scale):
        patterns = [samples.boundary_patterns(source, E4M3, scale), samples.random_patterns(source, 100, scale)]
        for x in np.concatenate(patterns).tolist():
            magnitude = x & ((1 << (source.bits - 1)) - 1)
            if magnitude > source.max_code or (widen(magnitude) & 0x7FFFFFFF) > limits.greatest_x:
                continue
            for random in (0, 12345 << 13, (1 << 30) - 1) if rounding == "sr" else (0,):
                got = fast.function(x, scale, random, constants)
                assert (got - want(x, scale, random, constants)) & ((1 << source.bits) - 1) == 0, (
                    hex(x),
                    scale,
                    random,
                )


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "float64"])
def test_random_bits_decide_where_the_definition_says(source):
    """Check the largest random integer that rounds toward zero, and the next larger integer."""
    source, modes = FLOATS[source], (Rounding.SR, Overflow.SATURATE)
    fast = formulation.fast_quantizing(source, E4M3, *modes, ScaleRule.FLOOR, None)
    _, constants = formulation.numbers_given(fast.numbers)
    defined = formulation.quantizing(source, E4M3, *modes)

    def want(x, random):
        return defined.function(x, 127, random, formulation.numbers_given(defined.numbers))

    numbers = samples.generator("thresholds", source.name).standard_normal(40).astype(numpy_dtype(source))
    for x in signed_bits(numbers).tolist():
        last, first = 0, (1 << 30) - 1
        while first - last > 1:
            middle = (last + first) // 2
            last, first = (middle, first) if want(x, middle) == want(x, 0) else (last, middle)
        for random in (last, first):
            assert (fast.function(x, 127, random, constants) - want(x, random)) & 0xFF == 0, (hex(x), random)


def test_the_definition_knows_its_word():
    assert formulation.quantizing(FLOAT32, E4M3, Rounding.RNE, Overflow.SATURATE).in_lanes
    assert not formulation.quantizing(FLOATS["float64"], E4M3, Rounding.RNE, Overflow.SATURATE).in_lanes
    assert not formulation.decoding(E4M3, FLOATS["float64"]).in_lanes

"""Which formulation is chosen, and the numbers it is given."""

from __future__ import annotations

import numpy as np

from mxnum.engine import formulation, magic
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule

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
    assert constants == magic.constants(E4M3, Rounding.RTP, Overflow.IEEE, ScaleRule.RCEIL)
    assert limits == magic.domain(E4M3, Rounding.RTP)
    assert fast.numbers.dtype == np.int32


def test_what_has_no_fast_formulation():
    assert formulation.fast_quantizing(FLOATS["float64"], E4M3, *USUAL, None) is None
    assert formulation.fast_decoding(FLOATS["bfloat16"], FLOAT32) is None


def test_the_definition_knows_its_word():
    assert formulation.quantizing(FLOAT32, E4M3, Rounding.RNE, Overflow.SATURATE).in_lanes
    assert not formulation.quantizing(FLOATS["float64"], E4M3, Rounding.RNE, Overflow.SATURATE).in_lanes
    assert not formulation.decoding(E4M3, FLOATS["float64"]).in_lanes

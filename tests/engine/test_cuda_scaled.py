"""Tests that run the GPU's rounding formulas on Python integers.

proofs/theorems/scaled.py proves these formulas.
"""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.definition.convert import make_encode
from mxnum.engine.cuda import scaled
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding
from tests.samples import boundary_patterns

FLOAT32 = FLOATS["float32"]


def test_powers_of_two_are_exact():
    for scale in range(255):
        for bits, exponent in ((scaled.up(scale), scale - 127), (scaled.down(scale), 127 - scale)):
            assert float(np.int32(bits).view(np.float32)) == 2.0**exponent


@pytest.mark.parametrize("source", scaled.SOURCES)
def test_widening_keeps_every_finite_number(source):
    fmt = FLOATS[source]
    widen = scaled.make_widen(fmt)
    step = 1 if fmt.bits == 16 else 7919 << 8
    for magnitude in range(0, fmt.max_code + 1, step):
        for bits in (magnitude, magnitude - (1 << (fmt.bits - 1))):
            sign, rest = widen(bits)
            assert np.int32(rest).view(np.float32) == fmt.value(magnitude)
            assert (sign != 0) == (bits < 0)


@pytest.mark.parametrize("name", scaled.ELEMENTS)
def test_codes_are_right_where_two_neighbours_meet(name):
    element = ELEMENTS[name]
    code = scaled.make_code(FLOAT32, element)
    encode = make_encode(FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    for scale in (0, 1, 90, 127, 200, 254):
        for x in boundary_patterns(FLOAT32, element, scale).tolist():
            if (x & 0x7FFFFFFF) <= FLOAT32.max_code:
                assert code(x, scaled.down(scale)) == encode(x, scale, 0), (hex(x), scale)


def test_covered_elements_and_sources():
    assert "e3m0" not in scaled.ELEMENTS
    assert scaled.covers_scale(FLOAT32, ELEMENTS["e2m1"])
    assert not scaled.covers_scale(FLOAT32, ELEMENTS["int8"])
    assert not scaled.covers_scale(FLOATS["float64"], ELEMENTS["e2m1"])
    assert not scaled.covers_scale(FLOAT32, ElementFormat("e2m1", 2, 1, 5))

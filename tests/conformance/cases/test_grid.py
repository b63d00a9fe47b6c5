from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.conformance.cases import grid
from mxnum.formats import ELEMENTS, FLOATS


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS)
def test_every_boundary_of_rounding_is_a_point(element):
    """Check that every rounding threshold of the reference (found by bisection) is a grid point."""
    points = {Fraction(p) for p in grid.points(element).tolist()}
    values = [Fraction(v) for v in grid.magnitudes(element).tolist()]
    for low, high in pairwise(values):
        middle = (low + high) / 2
        assert {low, high, middle} <= points
        below, above = (reference.encode(middle + Fraction(s, 10**12), element) for s in (-1, 1))
        assert below != above


@pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS)
@pytest.mark.parametrize("rule", mx.ScaleRule)
def test_thresholds_of_scale_rules(element, rule):
    at = grid.threshold(element, rule)
    codes = [
        reference.shared_scale([Fraction(f)], element, scale_rule=rule)
        for f in (1.0, np.nextafter(at, 0), at, np.nextafter(at, 3), 1.9999999999)
        if 1 <= f < 2
    ]
    expected = 1 if rule not in ("floor", "floor_plus_one") and not (rule == "rceil" and at >= 2) else 0
    assert max(codes) - min(codes) == expected


def test_numbers_are_classified_by_their_rounding():
    e = ELEMENTS["e4m3"]
    cases = {
        0.0: "zero", 448.0: "representable", 449.0: "beyond the largest", 17.0: "tie", 17.5: "ordinary",
        1e-4: "subnormal result", np.inf: "infinity", np.nan: "NaN", 2.0**-10: "tie",
    }  # fmt: skip
    found = grid.places(np.array(list(cases)), e)
    assert [grid.PLACES[i] for i in found] == list(cases.values())


@pytest.mark.parametrize("name", FLOATS)
def test_special_patterns_are_what_they_are_called(name):
    source = FLOATS[name]
    bits = grid.special_patterns(source)
    magnitude = grid.as_magnitudes(bits, source)
    assert np.isnan(magnitude).sum() == 8
    assert np.isinf(magnitude).sum() == 2
    assert (magnitude == 0).sum() == 2
    assert (magnitude == float(source.max)).sum() == 2
    assert len(np.unique(grid.special_patterns(source, nan=False))) == len(grid.special_patterns(source, nan=False))


def test_neighbours_stay_finite():
    source = FLOATS["float16"]
    around = grid.with_neighbours(np.array([0, source.max_code], np.uint16), source)
    assert sorted(around & 0x7FFF) == sorted([0, 1, source.max_code - 1, source.max_code] * 2)


def test_simple_numbers_come_first():
    listed = sorted(np.array([3.0, 0.0, 1.0, -1.0, 7.9999995, 4.0, 0.1, np.inf], np.float32), key=grid.simplicity)
    assert [float(v) for v in listed[:4]] == [0.0, 1.0, -1.0, 4.0]
    assert listed[-1] == np.inf

"""Tests that the derived piecewise quantizer equals the exact reference and the kernels."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.analysis.piecewise import PiecewiseQuantizer, second_moment
from mxnum.formats import ELEMENTS
from mxnum.modes import Rounding

DETERMINISTIC = [mode for mode in Rounding if mode != "sr"]


def probes(quantizer):
    """Return 0, each breakpoint, a point inside each piece, and points beyond both ends."""
    points = quantizer.breakpoints
    inside = [(a + b) / 2 for a, b in itertools.pairwise(points)]
    return sorted({*points, *inside, points[0] - 1, points[-1] + 1, Fraction(0)})


@pytest.mark.parametrize("rounding", DETERMINISTIC)
@pytest.mark.parametrize("element", ELEMENTS)
def test_equals_the_reference_at_and_between_all_breakpoints(element, rounding):
    quantizer = PiecewiseQuantizer.of(element, rounding)
    for x in probes(quantizer):
        code = reference.encode(x, element, rounding=rounding)
        assert quantizer.mean(x) == reference.decode_exact(code, element).number, x
        assert second_moment(quantizer, x) == quantizer.mean(x) ** 2


@pytest.mark.parametrize("element", ELEMENTS)
def test_stochastic_rounding_has_the_number_as_mean_and_the_neighbours_as_outcomes(element):
    quantizer = PiecewiseQuantizer.of(element, "sr")
    top = Fraction(ELEMENTS[element].max)
    for x in probes(quantizer):
        assert quantizer.mean(x) == max(-top, min(top, x))
        low, high = (
            reference.decode_exact(reference.encode(x, element, rounding=mode), element).number
            for mode in ("rtn", "rtp")
        )
        spread = (x - low) * (high - x) if abs(x) < top else 0
        assert second_moment(quantizer, x) - quantizer.mean(x) ** 2 == spread


@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_equals_the_kernels_on_random_numbers(rounding):
    x = np.random.default_rng(1).normal(size=2000) * np.exp2(np.linspace(-8, 10, 2000))
    for element in ("e4m3", "e2m1", "e3m0", "int4"):
        quantizer = PiecewiseQuantizer.of(element, rounding)
        want = mx.decode(mx.encode(x, element, rounding=rounding), element, dtype="float64")
        assert [float(quantizer.mean(Fraction(v))) for v in x] == want.tolist()


@pytest.mark.parametrize("rounding", Rounding)
def test_levels_ascend_and_neighbouring_pieces_differ(rounding):
    quantizer = PiecewiseQuantizer.of("e2m1", rounding)
    assert list(quantizer.breakpoints) == sorted(set(quantizer.breakpoints))
    assert len(quantizer.lower) == len(quantizer.upper) == len(quantizer.breakpoints) + 1
    assert list(quantizer.lower) == sorted(quantizer.lower)
    assert (quantizer.lower[-1], quantizer.upper[0]) == (6, -6)


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match="did you mean 'rne'"):
        PiecewiseQuantizer.of("e4m3", "rnee")

"""Tests that `by_hand`, which explains single numbers, equals the definition's functions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mxnum.definition import by_hand
from mxnum.definition.convert import make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.formats import FLOATS, element
from mxnum.modes import Overflow, Rounding, ScaleRule
from tests import samples

SOURCE = FLOATS["float32"]


@pytest.mark.parametrize("target", samples.ELEMENTS)
def test_codes(target):
    rng = samples.generator("by hand", target)
    fmt = element(target)
    for rounding, overflow, scale in product(Rounding, Overflow, (127, 3, 200)):
        bits = samples.boundary_patterns(SOURCE, fmt, scale)
        bits = np.concatenate([rng.choice(bits, 60), samples.special_patterns(SOURCE)])
        random = rng.integers(0, 1 << 30, bits.size)
        random[::3], random[1::3] = 0, (1 << 30) - 1
        got = make_encode(SOURCE, fmt, rounding, overflow)(bits.astype(np.int64), np.int64(scale), random)
        want = [
            by_hand.encode(x, fmt, rounding, overflow, scale - 127, int(r))
            for x, r in zip(samples.as_floats(SOURCE, bits), random, strict=True)
        ]
        samples.assert_same(f"{target} {rounding} {overflow} {scale}", bits, got, want)


@pytest.mark.parametrize("target", samples.ELEMENTS)
@pytest.mark.parametrize("rule", ScaleRule)
def test_scales(target, rule):
    fmt, rng = element(target), samples.generator("by hand", target, rule)
    exponents = rng.integers(0, 255, 300) << 23
    fractions = rng.choice([0, 1, (1 << 23) - 1, 3 << 21, (3 << 21) - 1, (15 << 19) - 1, 15 << 19, 7 << 20], 300)
    bits = np.concatenate([exponents | fractions, rng.integers(0, SOURCE.max_code, 100), [0, 1, SOURCE.max_code]])
    got = make_shared_scale(SOURCE, fmt, rule)(bits)
    want = [by_hand.scale_exponent(x, fmt, rule) + 127 for x in samples.as_floats(SOURCE, bits.astype(np.int32))]
    samples.assert_same(f"{target} {rule}", bits, got, want)

"""Tests that bounds on mean truncated sums agree with exact fractions and with kernels."""

from __future__ import annotations

import warnings
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum import units
from mxnum.lab.theory.truncated_sums import E4M3_BINADE, mean_sum
from mxnum.reference.matrix_units import fused_sum, part, rounded
from mxnum.reference.numbers import Exact

SMALL = units.MatrixUnit("small", ("e4m3",), k=(2,), terms=2, fraction_bits=4, result_bits=4)


@cache
def after(unit, steps, values):
    """Return the exact probability of each running sum after `steps` steps.

    Each step adds two products of values that are drawn from `values` with equal probabilities.
    """
    if steps == 0:
        return {Fraction(0): Fraction(1)}
    products = Counter(Fraction(a) * Fraction(b) for a in values for b in values)
    pairs = Counter()
    for p, q in product(products, repeat=2):
        pairs[min(p, q), max(p, q)] += products[p] * products[q]
    chances = Counter()
    for total, chance in after(unit, steps - 1, values).items():
        addend = part(Exact("finite", False, total), -126)
        for (p, q), count in pairs.items():
            terms = [(addend.significand, addend.exponent), (p, 0), (q, 0)]
            found = rounded(fused_sum(terms, unit.fraction_bits), unit)
            chances[found.magnitude] += chance * count / len(values) ** 4
    assert sum(chances.values()) == 1
    return chances


def mean_by_fractions(unit, k, values):
    """Return the mean of the running sum, from the exact probabilities of all sums."""
    return sum(total * chance for total, chance in after(unit, k // 2, values).items())


@pytest.mark.parametrize("values", [(1.0, 1.5), (1.125, 1.5, 1.875)])
@pytest.mark.parametrize("k", [2, 8, 20])
@pytest.mark.parametrize("bits", [3, 4, 6])
def test_the_bounds_hold_the_mean_by_fractions(values, k, bits):
    unit = SMALL.but(fraction_bits=bits, result_bits=bits)
    found = mean_sum(unit, k, values)
    exact = mean_by_fractions(unit, k, values)
    assert Fraction(found.low) <= exact <= Fraction(found.high)
    assert found.high - found.low < 1e-8 * found.exact


@pytest.mark.parametrize("unit", ["hopper_fp8", "hopper_fp8_promoted", "ada_fp8"])
def test_the_mean_of_the_kernels_lies_within_the_bounds(unit):
    rng = np.random.default_rng(7)
    for k in (128, 512, 4096):
        a, b = (rng.choice(E4M3_BINADE, (400, k)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", units.EvidenceWarning)
            results = mx.matmul(a[:, None], b[..., None], accumulate=unit).astype(np.float64).ravel()
        # Compare mean errors (result minus exact sum), because they have less noise than mean
        # results.
        errors = results - (a.astype(np.float64) * b.astype(np.float64)).sum(1)
        bar, bounds = 5 * errors.std() / np.sqrt(len(errors)), mean_sum(unit, k)
        assert bounds.low - bounds.exact - bar <= errors.mean() <= bounds.high - bounds.exact + bar
        # Bounds for a unit with one bit less or one bit more do not contain the mean error.
        for bits in (12, 14):
            other = units.get(unit).but(name="other", fraction_bits=bits, result_bits=bits)
            wrong = mean_sum(other, k)
            assert not wrong.low - wrong.exact - bar <= errors.mean() <= wrong.high - wrong.exact + bar


def test_a_bit_less_more_than_doubles_the_loss_and_promotion_bounds_it():
    row = units.get("hopper_fp8")
    lost = [mean_sum(row.but(name=f"{b} bits", fraction_bits=b, result_bits=b), 1024).shrinking[0] for b in (12, 13)]
    assert 2 < lost[0] / lost[1] < 3
    promoted = [mean_sum("hopper_fp8_promoted", k).shrinking for k in (128, 8192)]
    assert promoted[0] == pytest.approx(promoted[1], rel=1e-6)
    assert mean_sum("hopper_fp8", 128).shrinking == pytest.approx(promoted[0], rel=1e-3)


def test_a_sum_of_positive_numbers_stops_growing():
    """Check that sums stop growing at 2^15, where the unit begins to drop products below 4."""
    early, late = mean_sum("hopper_fp8", 1 << 16), mean_sum("hopper_fp8", 1 << 17)
    assert 1 << 15 <= early.low <= early.high < (1 << 15) + 128
    assert late.low == pytest.approx(early.low, rel=1e-6)
    assert late.exact == 2 * early.exact


def test_wrong_arguments():
    with pytest.raises(ValueError, match="'unit' must be a unit that truncates terms and results equally, not 'black"):
        mean_sum("blackwell_fp8", 32)
    with pytest.raises(ValueError, match="'k' must be a positive multiple of 128, not 32"):
        mean_sum("hopper_fp8_promoted", 32)
    with pytest.raises(ValueError, match="'values' must be numbers from 1 to below 2"):
        mean_sum("hopper_fp8", 32, (1.0, 2.0))

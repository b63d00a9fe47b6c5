"""Tests that `compare_laws` finds known differences, and seldom finds one between equal laws."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.theory import ScalingLaw, compare_laws, fit_scaling_law, loss_table

N, D = (a.ravel() for a in np.meshgrid(np.geomspace(2e7, 1e9, 6), np.geomspace(3e8, 2e10, 6)))
LAW = ScalingLaw(0.3 * 1.4e8**0.45, 0.4 * 2.4e9**0.4, 1.1, 0.45, 0.4)


def fit(law, noise, rows=slice(None)):
    table = loss_table(N[rows], D[rows], (law(N, D) * np.exp(noise))[rows])
    return fit_scaling_law(table, starts=[LAW.as_parameters])


def noise(seed, size=0.004):
    return size * np.random.default_rng(seed).standard_normal(N.size)


def test_equal_laws_are_seldom_told_apart():
    found = [compare_laws(fit(LAW, noise(s)), fit(LAW, noise(s + 50)), draws=60, seed=s) for s in range(8)]
    assert sum(each.told_apart for each in found) <= 1
    assert all(each.shared_cells == 36 for each in found)


def test_distance_of_a_higher_law_is_measured():
    higher = ScalingLaw(1.01 * LAW.A, 1.01 * LAW.B, 1.01 * LAW.E, LAW.alpha, LAW.beta)
    shared = noise(1)  # noise common to both tables cancels in each cell
    found = compare_laws(fit(LAW, shared), fit(higher, shared + noise(2, 5e-4)), draws=100)
    assert found.told_apart
    assert found.distance == pytest.approx(np.log(1.01), rel=0.1)
    assert found.distance <= found.at_most < 0.013
    difference, (low, high) = found.differences["alpha"]
    assert low < 0 < high
    assert low < difference < high


def test_the_parameter_that_differs_is_found():
    steeper = ScalingLaw(LAW.A * 1.4e8**0.15, LAW.B, LAW.E, LAW.alpha + 0.15, LAW.beta)
    found = compare_laws(fit(LAW, noise(1, 1e-3)), fit(steeper, noise(2, 1e-3)), draws=100)
    assert found.told_apart
    difference, (low, high) = found.differences["alpha"]
    assert difference == pytest.approx(0.15, abs=0.03)
    assert low > 0
    assert high < 0.3
    reverse = compare_laws(fit(steeper, noise(2, 1e-3)), fit(LAW, noise(1, 1e-3)), draws=100)
    assert reverse.differences["alpha"][0] == pytest.approx(-difference)
    assert reverse.distance == pytest.approx(found.distance)


def test_tables_are_compared_at_shared_sizes():
    few, many = N < 4e8, N > 3e7
    found = compare_laws(fit(LAW, noise(1, 1e-3), few), fit(LAW, noise(2, 1e-3), many), draws=30)
    assert found.shared_cells == int((few & many).sum())
    assert not found.told_apart
    small = fit(LAW, noise(1), N < 2e8)
    large = fit_scaling_law(N * 1e3, D * 1e3, LAW(N, D))
    with pytest.raises(ValueError, match="must overlap 'first' in the ranges"):
        compare_laws(small, large)
    with pytest.raises(ValueError, match="'draws' must be at least 1"):
        compare_laws(small, small, draws=0)
    # p is at least 1 / (1 + draws), so with too few draws no difference could be significant.
    with pytest.raises(ValueError, match=r"'draws' must be above 19 for the level 0\.95, not 18"):
        compare_laws(small, small, draws=18)
    with pytest.raises(ValueError, match="'level' must be between 0 and 1, not 2"):
        compare_laws(small, small, level=2)

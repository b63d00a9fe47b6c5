"""Tests of the stability limit of an eigenmode, and of the model in which Adam stops a rise."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.theory import arrest, inverse_participation, mode_limit, stability_limit


def test_inverse_participation():
    rng = np.random.default_rng(1)
    modes = rng.standard_normal((3, 50))
    unit = modes / np.linalg.norm(modes, axis=-1, keepdims=True)
    assert inverse_participation(modes) == pytest.approx((unit**4).sum(axis=-1))
    assert inverse_participation(7 * modes[0]) == pytest.approx(inverse_participation(modes[0]))
    assert inverse_participation(np.ones(40)) == pytest.approx(1 / 40)


def growth(mode, deviation, rate, momentum, steps=10, copies=200_000):
    """Return the factor by which the mean square of x along the mode grows in each step.

    The curvature along the mode is 1. The simulation updates every element of x, not only the
    component along the mode.
    """
    rng, mode = np.random.default_rng(3), mode / np.linalg.norm(mode)
    x, m = np.tile(mode, (copies, 1)), np.zeros((copies, len(mode)))
    squares = []
    for _ in range(steps):
        along = x @ mode
        squares.append(float(np.square(along).mean()))
        gradient = along[:, None] * mode * (1 + deviation * rng.standard_normal(x.shape))
        m = momentum * m + (1 - momentum) * gradient
        x = x - rate * m
    half = steps // 2
    return (squares[-1] / squares[half - 1]) ** (1 / (steps - half))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("mode", [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 1.0, 0.5]])
def test_the_limit_is_where_the_mean_square_begins_to_grow(mode, momentum):
    mode, deviation = np.array(mode), 0.6
    limit = mode_limit(0, deviation, inverse_participation(mode), momentum=momentum)
    assert growth(mode, deviation, 0.9 * limit, momentum) < 1 < growth(mode, deviation, 1.1 * limit, momentum)


def test_noise_that_many_elements_share_does_not_lower_the_limit():
    assert mode_limit(0, 1, 1, momentum=0.9) == stability_limit(0, 1, momentum=0.9)
    assert mode_limit(0, 1, 1e-6, momentum=0.9) == pytest.approx(38, rel=1e-4)
    with pytest.raises(ValueError, match=r"Argument 'participation' must be above 0 and at most 1, not 0\."):
        mode_limit(0, 1, 0)


def test_a_rise_arrests_itself():
    # Ten per cent above the stability limit, each step would multiply x by more than 1.1. If Adam
    # did not stop the rise, x would exceed 1e100.
    for beta2 in (0.95, 0.999):
        found = arrest(beta2, sharpening=3e-3)
        assert 5 < found.lowest <= found.height <= found.highest < 1000


def test_only_a_mode_that_goes_on_sharpening_rises_higher_under_a_slow_second_moment():
    bounded = arrest(0.9995, sharpening=3e-3).height / arrest(0.95, sharpening=3e-3).height
    going_on = arrest(0.9995, sharpening=3e-3, ceiling=50).height / arrest(0.95, sharpening=3e-3, ceiling=50).height
    assert bounded < 3 < going_on


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 0.9}, {"start": 0.0}, {"ceiling": 0.9}, {"beta2": 1.0},
        # Regression: invalid values led to a division by zero, a negative number of steps, or the
        # median of no numbers.
        {"sharpening": 0}, {"sharpening": -1e-3}, {"sharpening": 1.0}, {"copies": 0}, {"after": -1},
    ],
)  # fmt: skip
def test_arguments_of_arrest(changes):
    with pytest.raises(ValueError, match=f"Argument '{next(iter(changes))}' must be"):
        arrest(**({"beta2": 0.99} | changes))

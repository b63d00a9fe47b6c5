from __future__ import annotations

import numpy as np
import pytest

from mxnum.conformance.stochastic.statistics import (
    _correlation,
    comparisons,
    echoes,
    groups,
    likeness,
    same_answers,
    smallest_correlation,
)

LEVEL = 1e-4 / 3


def signs(rng, shape, share=0.5):
    return np.where(rng.random(shape) < share, 1, -1).astype(np.int8)


def level_of(length):
    return LEVEL / comparisons(length)


def test_independent_draws_cause_few_false_alarms():
    """Check that tests at level 0.2 raise a false alarm for at most 20 % of independent draws."""
    rng = np.random.default_rng(1)
    level = 0.2 / comparisons(512)
    alarms = 0
    for _ in range(200):
        halves, quarters = signs(rng, (2, 512)), signs(rng, (2, 512), 0.25)
        alarms += bool(echoes(halves, quarters, level))
    assert alarms <= 0.2 * 200


def test_a_bias_is_not_dependence():
    rng = np.random.default_rng(2)
    for share in (0, 0.2, 0.7, 1):
        assert echoes(signs(rng, (2, 20000), share), signs(rng, (2, 20000), share), level_of(20000)) == []


def test_sums_at_all_distances_are_the_definition():
    rng = np.random.default_rng(3)
    a, b = rng.integers(-1, 2, (2, 300))
    want = [int((a[: 300 - d] * b[d:]).sum()) for d in range(150)]
    assert _correlation(a.astype(float), b.astype(float), 150).tolist() == want


def test_a_planted_correlation_is_seen_with_the_power_said():
    rng = np.random.default_rng(4)
    length, level = 2000, level_of(2000)
    rho = smallest_correlation(length // 2, 0.99, level)
    assert 0.1 < rho < 0.5
    seen = 0
    for _ in range(100):
        half = signs(rng, length)
        # Some draws copy the draw that is 1000 elements earlier.
        again = rng.random(length - 1000) < rho
        half[1000:] = np.where(again, half[:-1000], half[1000:])
        found = echoes([half, signs(rng, length)], [], level)
        seen += any(echo.distance == 1000 and not echo.calls for echo in found)
    assert seen >= 97


def test_draws_of_two_calls():
    rng = np.random.default_rng(5)
    stream = signs(rng, 5000)
    found = echoes([stream[:4000], stream[1000:]], [], level_of(4000))
    assert (found[0].distance, found[0].calls, found[0].share) == (1000, -1, 1)
    assert "1000 elements further on in the previous call round in the same direction in 100% of 3000 pairs" in found[
        0
    ].text(0)
    found = echoes([stream[1000:], stream[:4000]], [], level_of(4000))
    assert (found[0].distance, found[0].calls) == (1000, 1)
    assert "(1 block) in the next call" in found[0].text(1000)


def test_undecided_draws_are_left_out():
    rng = np.random.default_rng(6)
    half = signs(rng, (500, 8))
    half[:, 1] = half[:, 0]
    half[:, 5] = 0
    found = echoes([half.ravel(), signs(rng, 4000)], [], level_of(4000))
    assert (found[0].distance, found[0].calls) == (1, 0)
    assert found[0].pairs == 3999 - 2 * 500


@pytest.mark.parametrize("size", [2, 4, 32])
def test_groups(size):
    rng = np.random.default_rng(7)
    half = np.repeat(signs(rng, 4096 // size), size)
    assert groups(half, 0) == size
    half[5] *= -1
    assert groups(half, 0) == 1
    assert groups(np.ones(4096, np.int8), 0) == 1


def test_equal_calls_are_reported():
    rng = np.random.default_rng(8)
    calls, names = signs(rng, (4, 100)), ["a", "b", "c", "d"]
    assert same_answers(calls, names) == []
    assert same_answers(calls[[0, 0, 0, 0]], names) == ["All answers are the same (a to d)."]
    assert same_answers(calls[[0, 1, 0, 2]], names) == [
        "The calls gave only 3 different answers: a, c give the same bits."
    ]
    alike = np.repeat(calls[:, :1] * [[1], [1], [1], [1]], 100, axis=1) * [[1], [-1], [1], [1]]
    assert "one random word for all" in same_answers(alike, names)[0]
    assert same_answers(np.ones((4, 100), np.int8), names) == []


def test_calls_with_a_common_part_are_reported():
    rng = np.random.default_rng(9)
    calls = signs(rng, (3, 4000))
    assert likeness(calls, "abc", LEVEL) == []
    calls[2, :1000] = calls[0, :1000]
    assert [text[:7] for text in likeness(calls, "abc", LEVEL)] == ["a and c"]

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from mxnum.conformance.bits import Generator
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic.chances import (
    EVEN,
    NEAREST,
    TRUNCATED,
    UP,
    Levels,
    Shares,
    chances,
    explanations,
    problems,
)
from mxnum.conformance.stochastic.statistics import draws_for

TASK = make_task("encode", "mxfp4_e2m1")


@cache
def cases():
    return chances(TASK, Generator(0), 1 / 32)


def drawn(p, draws, seed):
    rng = np.random.default_rng(seed)
    return Shares(cases(), np.full(len(cases()), draws), rng.binomial(draws, p))


def probabilities(bits=None, kind=TRUNCATED):
    return np.array([chance.probability(bits, kind) for chance in cases()])


def test_right_shares_cause_few_false_alarms():
    """Check that right probabilities cause false alarms in at most 20 % of the runs."""
    levels = Levels.of(0.1, len(cases()))
    runs = 400
    alarms = sum(bool(problems(TASK, drawn(probabilities(), 500, seed), None, levels)) for seed in range(runs))
    assert alarms <= 0.2 * runs + 3 * (runs * 0.2 * 0.8) ** 0.5
    assert alarms > 0  # if there were no alarms, the level would have no effect


@pytest.mark.parametrize("sign", [1, -1])
def test_planted_bias_is_found_with_the_promised_power(sign):
    """Check that a bias of 1/32 in one case is found in 99 of 100 runs."""
    levels = Levels.of(1e-4 / 3, len(cases()))
    draws = draws_for(1 / 32, 0.99, levels.case)
    p = probabilities()
    place = int(np.argmin(abs(p - 0.5)))
    truth = p.copy()
    truth[place] += sign / 32
    seen = 0
    for seed in range(200):
        shares = drawn(truth, draws, seed)
        seen += place in [i for i, _ in shares.contradicted(p, levels.case)]
    assert seen >= 194


def test_common_bias_is_found_although_no_single_case_shows_it():
    levels = Levels.of(1e-4 / 3, len(cases()))
    p = probabilities()
    shares = drawn(np.clip(p + 1 / 256, 0, 1) * (p > 1e-6), 14000, 1)
    assert set(shares.biases(p, levels.group)) >= {"All cases"}
    assert problems(TASK, shares, None, levels)[0].startswith("All cases round away from zero too often: by 0.003")
    said = shares.guarantees(None, len(cases()), levels, 1 / 32, 0.99)
    assert "a bias of 1/32 in any of 47 cases" in said[0]


@pytest.mark.parametrize("kind", [TRUNCATED, NEAREST, EVEN, UP])
@pytest.mark.parametrize("bits", [1, 4])
def test_random_bits_are_recognized(bits, kind):
    levels = Levels.of(1e-4 / 3, len(cases()))
    shares = drawn(probabilities(bits, kind), 14000, 3)
    bits_text = f"{bits} random bit{'s' * (bits > 1)}, the fraction {kind}"
    assert bits_text in explanations(shares, None, levels)
    assert problems(TASK, shares, None, levels)
    assert shares.fits(probabilities(bits, kind), levels)


def test_known_mistakes_are_explained_and_others_are_not():
    levels = Levels.of(1e-4 / 3, len(cases()))
    p, negative = probabilities(8), np.array([chance.value < 0 for chance in cases()])
    assert explanations(drawn(1 - p, 14000, 4), 8, levels) == ["1 - p, the fraction measured from the wrong neighbour"]
    halved = np.where(negative, p / 2, p)
    assert explanations(drawn(halved, 14000, 4), 8, levels) == []
    assert explanations(drawn(p / 2, 14000, 4), 8, levels) == ["half the fraction"]

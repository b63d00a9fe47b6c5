"""Tests of excursions, on hand-made losses and against a definition that examines every step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mxnum.lab.studies.excursions import (
    BACK,
    FORGOTTEN,
    RISE,
    WINDOW,
    Course,
    Excursion,
    Outcome,
    excursions,
    final_loss,
)

CALM = [1.0] * 10 + [0.02] * 300


def naive(losses):
    """Return the excursions that the definition finds if it is applied to one step at a time."""
    bases = [losses[0]]
    for end in range(1, len(losses)):
        bases.append(min(bases[-1], np.median(losses[max(0, end - WINDOW) : end])))
    found, start, base, step = [], None, losses[0], 0
    while step < len(losses):
        if start is None:
            if losses[step] > RISE * bases[step] and losses[step] > FORGOTTEN * losses[0]:
                start, base = step, bases[step]
        elif losses[step] <= BACK * base and len(losses) - step >= WINDOW:
            window = losses[step : step + WINDOW]
            if sum(loss <= BACK * base for loss in window) >= WINDOW / 2:
                found.append((start, step))
                start = None
                # The step that ends an excursion is examined again, but cannot start another one.
                continue
        step += 1
    return found + ([(start, None)] if start is not None else [])


@pytest.mark.parametrize("seed", range(12))
def test_as_the_definition_says_step_by_step(seed):
    rng = np.random.default_rng(seed)
    level = np.exp(np.cumsum(rng.normal(0, 0.02, 700)))
    losses = 0.02 * level * np.exp(rng.normal(0, 0.2, 700))
    losses[0] = 1.0
    for _ in range(rng.integers(1, 5)):
        at, length = rng.integers(20, 650), rng.integers(1, 150)
        losses[at : at + length] *= 10 ** rng.uniform(1, 3) * np.exp(-np.arange(len(losses[at : at + length])) / 40)
    assert [(e.start, e.end) for e in excursions(losses)] == naive(losses.tolist())


def test_peak_length_and_area():
    (one,) = excursions(CALM + [2.0] * 7 + [0.02] * WINDOW)
    assert (one.start, one.end, one.peak, one.base) == (310, 317, 2.0, 0.02)
    assert one.area == pytest.approx(7 * math.log10(100))


def test_excursion_below_its_threshold_may_still_be_open():
    (one,) = excursions(CALM + [2.0] * 7 + [0.3] * 200)
    assert (one.start, one.end, one.under) == (310, None, 317)
    (one,) = excursions(CALM + [2.0] * 7 + [0.3] * 200 + [0.02] * WINDOW)
    assert (one.end, one.under) == (517, 317)


def test_a_single_loss_counts_and_a_small_rise_does_not():
    after = [0.02] * WINDOW
    assert len(excursions([*CALM, 0.41, *after])) == 1
    assert excursions([*CALM, 0.39, *after]) == []


def test_a_hundredfold_rise_far_below_the_untrained_loss_is_none():
    # Without layer norm the loss can fall to 1e-4 of the loss before training. A rise from 1e-4 is
    # an excursion only if it reaches a tenth of the loss before training.
    calm = [1.0] * 10 + [1e-4] * 300
    assert excursions([*calm, 0.05, *[1e-4] * WINDOW]) == []
    assert len(excursions([*calm, 0.11, *[1e-4] * WINDOW])) == 1


def test_a_dip_does_not_end_an_excursion():
    bumpy = [2.0] * 20 + [0.02] * 20 + [2.0] * 100
    (one,) = excursions(CALM + bumpy + [0.02] * WINDOW)
    assert (one.start, one.end) == (310, 310 + len(bumpy))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_a_runaway(bad):
    for losses in ([*CALM, bad] + [0.02] * 200, [1.0, bad, bad], [bad] * 5):
        found = excursions(losses)
        assert any(math.isinf(e.peak) for e in found), losses[:3]
        assert Course(1, len(losses), 10**6, tuple(found)).outcome is Outcome.RUNAWAY


def test_outcomes():
    def course(*spans, steps=200, horizon=100):
        return Course(1, steps, horizon, tuple(Excursion(a, b, 0.1, 5.0, 1.0) for a, b in spans))

    assert course().outcome is Outcome.NONE
    assert course((99, 150)).outcome is Outcome.RECOVERED
    # Step 100 is the horizon, so the excursion starts too late to count.
    assert course((100, None)).outcome is Outcome.NONE
    assert course((99, None)).outcome is Outcome.RUNAWAY
    assert course((20, 40), (99, None)).away == 99
    assert course((99, None), steps=199).outcome is Outcome.OPEN
    assert course((99, 200), steps=400).outcome is Outcome.RECOVERED
    # An excursion that ends after step 2 * horizon is a runaway.
    assert course((99, 201), steps=400).outcome is Outcome.RUNAWAY
    assert course((50, 60), (150, None)).outcome is Outcome.RECOVERED
    assert course((50, 60)).first == 50
    assert course((50, 60)).peak == pytest.approx(50)


def test_a_run_ends_high_above_the_line_of_its_last_excursion():
    def course(final, start=5):
        return Course(1, 100, 50, (Excursion(start, None, 0.1, 5.0, 1.0),), final)

    assert course(2.1).ends_high  # the limit is 20 times the base
    assert not course(1.9).ends_high
    assert course(None).ends_high
    assert not course(2.1, start=60).ends_high  # excursions after the horizon do not count


def test_degraded_needs_two_quiet_runs():
    def course(final, spans=()):
        return Course(1, 100, 100, tuple(Excursion(*s, 0.1, 5.0, 1.0) for s in spans), final)

    assert course(0.4).degraded(course(0.04)) is True
    assert course(0.05).degraded(course(0.04)) is False
    assert course(0.4, [(3, 5)]).degraded(course(0.04)) is None
    assert course(0.4).degraded(course(0.04, [(3, 5)])) is None
    assert course(None).degraded(course(0.04)) is None


def test_final_loss():
    assert final_loss([9.0] * 50 + [1.0] * WINDOW) == 1
    assert final_loss([math.nan] * 3) is None
    assert excursions([]) == []

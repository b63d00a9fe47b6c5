"""Tests of the timing of benchmarks, with a fake clock that only the timed functions advance."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from benchmarks import timing


class FakeClock:
    """A fake clock in nanoseconds; with `drift` all functions become slower as time passes."""

    def __init__(self, drift=0.0):
        self.now = 0
        self.drift = drift
        self.calls = []

    def function(self, name, cost):
        """Return a function that advances the fake clock by `cost`."""

        def run():
            self.calls.append(name)
            self.now += round(cost * (1 + self.drift * self.now / 1e9))

        return run


@pytest.fixture
def clock(monkeypatch):
    fake = FakeClock()
    monkeypatch.setattr(timing, "perf_counter_ns", lambda: fake.now)
    return fake


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 20])
def test_spread_is_what_numpy_computes(count):
    values = np.random.default_rng(count).random(count).tolist()
    found = timing.spread(values)
    expected = np.quantile(values, [0.5, 0.25, 0.75])
    assert (found.median, found.low, found.high) == pytest.approx(tuple(expected))
    assert found.repetitions == count


def test_spread_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one number"):
        timing.spread([])


@pytest.mark.parametrize("cost", [1_000, 2_000_000, 90_000_000])
@pytest.mark.parametrize("times", [0.25, 1, 3, 800])
def test_the_ratio_is_the_ratio_of_costs(clock, cost, times):
    found = timing.ratios(
        clock.function("base", cost), clock.function("case", cost * times), rounds=4, seconds=1e9, least=2
    )
    assert found == pytest.approx([times] * 4)


def test_a_machine_that_slows_down_does_not_change_the_median(clock):
    clock.drift = 0.5
    base, case = clock.function("base", 5_000_000), clock.function("case", 10_000_000)
    found = timing.spread(timing.ratios(base, case, rounds=20, seconds=1e9))
    assert found.median == pytest.approx(2, rel=0.02)
    separately = clock.now
    for run in [base] * 20 + [case] * 20:
        run()
    assert clock.now > separately * 1.5  # with drift, all functions become slower as time passes


def test_the_functions_take_turns_and_each_goes_first_half_of_the_time(clock):
    cost = 2 * timing.LONGEST_BASELINE_NS
    timing.ratios(clock.function("base", cost), clock.function("case", cost), rounds=4, seconds=1e9)
    assert clock.calls[4:] == ["base", "case", "case", "base", "base", "case", "case", "base"]


def test_short_functions_are_called_once_untimed_before_each_timing(clock):
    base, case = clock.function("base", 2_000_000), clock.function("case", 3_000_000)
    timing.ratios(base, case, rounds=2, seconds=1e9)
    assert clock.calls[4:] == ["base", "base", "case", "case", "case", "case", "base", "base"]


def test_a_short_function_is_timed_over_many_calls(clock):
    timing.ratios(clock.function("base", 1_000), clock.function("case", 10_000), rounds=1, seconds=1e9, least=1)
    assert clock.calls.count("case") >= timing.SHORTEST_NS / 10_000
    assert clock.calls.count("base") >= timing.SHORTEST_NS / 1_000


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 3), (0.5, 5), (100.0, 21)])
def test_rounds_end_when_the_time_is_up(clock, seconds, rounds):
    base, case = clock.function("base", 50_000_000), clock.function("case", 50_000_000)
    assert len(timing.ratios(base, case, rounds=21, seconds=seconds, least=3)) == rounds


def test_garbage_collection_is_off_while_timing_and_on_after_errors():
    seen = []

    def fails():
        seen.append(gc.isenabled())
        if not gc.isenabled():
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        timing.ratios(lambda: None, fails, rounds=3, seconds=1)
    assert seen[-1] is False
    assert gc.isenabled()

"""Tests that statistics equal brute-force permutations, scipy, and calculations by hand."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest

from mxnum.lab.studies.statistics import (
    Arm,
    compare,
    hazard_ratio,
    holm,
    kaplan_meier,
    mean_interval,
    power,
    rank_correlation,
    sign_flip,
    wilson,
)

stats = pytest.importorskip("scipy.stats", reason="the extra 'experiments' is not installed")


def arm(first, horizon=100, seeds=None):
    return Arm.of("a", first, [horizon] * len(first), horizon, range(len(first)) if seeds is None else seeds)


@pytest.mark.parametrize("seed", range(10))
def test_sign_flip_is_the_share_of_all_choices_of_signs(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, rng.integers(1, 11)) * 0.5  # some values are equal, and some are zero
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((-1, 1), repeat=len(values))
    ]
    assert sign_flip(values.tolist()) == np.mean(np.array(sums) >= abs(values.sum()) - 1e-9)


def test_sign_flip_is_scipys_permutation_test():
    values = np.random.default_rng(1).normal(0.4, 1, 12)
    theirs = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip(values.tolist()) == pytest.approx(theirs.pvalue, rel=1e-12)


def test_no_p_is_below_what_the_seeds_can_give():
    assert sign_flip([1.0] * 24) == 2.0**-23
    assert sign_flip([1.0] * 40) == 2.0**-39
    assert sign_flip([0.0] * 5) == 1
    with pytest.raises(ValueError, match=r"Argument 'values' must be at most 44 numbers"):
        sign_flip([1.0] * 45)


def log_rank_statistic(times, horizon=100):
    """Return the log-rank statistic: observed minus expected number of events in the first arm."""
    total = 0.0
    for a, b in zip(*times, strict=True):
        for time in sorted({t for t in (*a, *b) if t < horizon}):
            risk = [sum(min(t, horizon) >= time for t in arm) for arm in (a, b)]
            events = [sum(t == time for t in arm) for arm in (a, b)]
            total += events[0] - sum(events) * risk[0] / sum(risk)
    return total


# The third case has few distinct times, and therefore ties.
@pytest.mark.parametrize(("seed", "longest"), [(3, 120), (4, 400), (5, 12)])
def test_compare_is_the_log_rank_test_by_permutation(seed, longest):
    conditions, seeds = 3, 5
    times = np.random.default_rng(seed).integers(1, longest, (2, conditions, seeds))

    def first(t):
        return [int(x) if x < 100 else None for x in t]

    found = compare([(arm(first(times[0, c])), arm(first(times[1, c]))) for c in range(conditions)])
    by_exchange = []
    for flips in product((False, True), repeat=seeds):
        swapped = times.copy()
        for index, flip in enumerate(flips):
            if flip:
                swapped[:, :, index] = times[::-1, :, index]
        by_exchange.append(abs(log_rank_statistic(swapped)))
    assert found.p == np.mean(np.array(by_exchange) >= abs(log_rank_statistic(times)) - 1e-9)
    assert found.score == pytest.approx(log_rank_statistic(times))


def test_the_statistic_is_that_of_scipys_log_rank_test():
    rng = np.random.default_rng(8)
    times, events = rng.integers(1, 90, (2, 30)), rng.random((2, 30)) < 0.7
    arms = [
        Arm("x", tuple(map(int, t)), tuple(map(bool, e)), tuple(range(30))) for t, e in zip(times, events, strict=True)
    ]
    theirs = stats.logrank(*(stats.CensoredData(t[e], right=t[~e]) for t, e in zip(times, events, strict=True)))
    variance = 0.0
    for time in sorted({int(t) for t, e in zip(times.ravel(), events.ravel(), strict=True) if e}):
        risk = [(t >= time).sum() for t in times]
        n, d = sum(risk), sum(((t == time) & e).sum() for t, e in zip(times, events, strict=True))
        variance += d * (n - d) * risk[0] * risk[1] / (n**2 * (n - 1)) if n > 1 else 0
    assert compare([tuple(arms)]).score / math.sqrt(variance) == pytest.approx(theirs.statistic)


def test_which_run_of_a_pair_comes_first():
    # The six pairs: a's event comes before b's event; a's event comes after b ended; both events
    # come at the same step; neither has an event; a's event comes at b's last step; a's event comes
    # after b ended.
    a = Arm("a", (10, 50, 30, 100, 60, 80), (True, True, True, False, True, True), tuple(range(6)))
    b = Arm("b", (20, 40, 30, 100, 60, 70), (True, False, True, False, False, False), tuple(range(6)))
    found = compare([(a, b)])
    assert found.comes_sooner
    assert (found.sooner, found.later, found.seeds) == (2, 0, 6)
    assert compare([(b, a)]).later == 2
    assert compare([(arm([None] * 4), arm([None] * 4))]).p is None


def test_only_seeds_of_both_arms_are_compared():
    found = compare([(arm([1, 2, 3], seeds=(1, 2, 3)), arm([9, 9, 9], seeds=(2, 3, 4)))])
    assert (found.sooner, found.seeds, found.p) == (2, 2, 0.5)


def test_coxs_ratio_is_where_scipys_log_rank_statistic_vanishes():
    # At the maximum of the partial likelihood the score is 0. At a hazard ratio of 1 the score is
    # the log-rank statistic.
    rng = np.random.default_rng(5)
    times = [rng.exponential(scale, 40) for scale in (1.0, 2.0)]
    arms = [Arm("x", tuple(t.tolist()), (True,) * 40, tuple(range(40))) for t in times]
    ratio, low, high = hazard_ratio([tuple(arms)])
    assert low < ratio < high
    assert 1.2 < ratio < 5
    theirs = stats.logrank(*(stats.CensoredData(t) for t in times))
    assert (theirs.pvalue < 0.05) == (low > 1)
    back = hazard_ratio([(arms[1], arms[0])])
    assert back == pytest.approx((1 / ratio, 1 / high, 1 / low))


def test_coxs_ratio_by_hand():
    # Arm a has events at times 1 and 3, arm b at 2. At time 1, 2 runs of a and 1 run of b are at
    # risk; at time 2, 1 run of each. If r is the logarithm of a's hazard divided by b's, the log
    # likelihood is r - log(2 e^r + 1) - log(e^r + 1).
    from scipy.optimize import minimize_scalar

    from mxnum.lab.studies.statistics import _cox

    a, b = Arm("a", (1, 3), (True, True), (0, 1)), Arm("b", (2,), (True,), (0,))
    best = minimize_scalar(lambda r: -(r - math.log(2 * math.exp(r) + 1) - math.log(math.exp(r) + 1)))
    assert _cox([(a, b)]) == pytest.approx(best.x, abs=1e-4)


def test_no_ratio_without_events_in_both():
    assert hazard_ratio([(arm([1, 2, 3]), arm([None] * 3))]) is None
    assert hazard_ratio([(arm([1, 2]), arm([2, 1]))]) is None


def test_holm_is_scipys_step_down():
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert holm(p) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({}) == {}


def test_wilson():
    assert wilson(0, 8) == pytest.approx((0, 0.324), abs=1e-3)
    with pytest.raises(ValueError, match=r"Argument 'events' must be between 0 and runs=3, not 4\."):
        wilson(4, 3)


def test_mean_interval_is_scipys():
    values = [1.0, 2.0, 4.0, 4.5]
    mean, low, high = mean_interval(values)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((2.875, theirs.low, theirs.high))
    assert mean_interval([1.0, 1.0]) is None


def test_rank_correlation_is_scipys_with_the_p_of_all_permutations():
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 1.0, 4.0, 3.0, 6.0, 6.0]
    found = rank_correlation((i, a, b) for i, (a, b) in enumerate(zip(x, y, strict=True)))
    assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic)
    every = [abs(stats.spearmanr(x, order).statistic) for order in permutations(y)]
    assert found.p == np.mean(np.array(every) >= found.rho - 1e-9)


def test_rank_correlation_of_many_points_and_of_arms_given_twice():
    rng = np.random.default_rng(2)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    points = [(i, a, b) for i, (a, b) in enumerate(zip(x, y, strict=True))]
    once = rank_correlation(points)
    assert once == rank_correlation(points + points[:10])
    assert once.points == 30
    assert once.p == pytest.approx(stats.spearmanr(x, y).pvalue, abs=2e-3)
    assert rank_correlation(points[:3]) is None
    assert rank_correlation([(i, 1.0, float(i)) for i in range(5)]) is None


def test_power_draws_pairs_with_replacement():
    early = Arm("a", tuple(range(10, 22)), (True,) * 12, tuple(range(12)))
    never = Arm("b", (100,) * 12, (False,) * 12, tuple(range(12)))
    assert power((early, never), 16, 0.01, draws=20) == 1.0
    assert power((never, early), 16, 0.01, draws=20) == 0.0  # The first arm has no events.
    assert power((early, never), 6, 0.01, draws=20) == 0.0  # Six pairs cannot give p below 1 / 32.
    mixed = Arm("a", tuple(range(10, 16)) + (100,) * 6, (True,) * 6 + (False,) * 6, tuple(range(12)))
    assert 0 < power((mixed, never), 12, 0.01, draws=200) < 1


#: The textbook example of the log-rank test: for how many weeks leukaemia patients stayed in
#: remission (Freireich et al. 1963).
TREATED = [6, 6, 6, 7, 10, 13, 16, 22, 23] + [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
TREATED_EVENTS = [True] * 9 + [False] * 12
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
A = Arm("6-MP", tuple(TREATED), tuple(TREATED_EVENTS))
B = Arm("placebo", tuple(PLACEBO), (True,) * 21)


def test_kaplan_meier_of_the_textbook_example():
    times, survival, low, high = kaplan_meier(A)
    at = dict(zip(times.tolist(), survival.tolist(), strict=True))
    assert at[6] == pytest.approx(0.857, abs=5e-4)
    assert at[10] == pytest.approx(0.753, abs=5e-4)
    assert at[23] == pytest.approx(0.448, abs=5e-4)
    assert np.all(low[:-1] <= survival[:-1])
    assert np.all(survival[:-1] <= high[:-1])
    assert A.median_time() == 23
    assert B.median_time() == 8


def test_without_events_there_is_no_median():
    assert Arm("a", (9, 9), (False, False)).median_time() is None


def test_the_median_of_any_number_of_runs_of_which_half_have_an_event():
    """Check the median time to an event if exactly half of the runs have an event."""
    for runs in range(2, 61, 2):
        half = runs // 2
        times = (*range(100, 100 + half), *[1000] * half)
        assert Arm("a", times, tuple(time < 1000 for time in times)).median_time() == 100 + half - 1, runs


def test_events_after_the_horizon_are_censored():
    arm = Arm.of("a", [10, None, 70], [30, 100, 90], horizon=50)
    assert arm.times == (10, 50, 50)
    assert arm.diverged == (True, False, False)


def test_arms_by_seed_and_without_one():
    arm = Arm.of("a", [10, None], [30, 100], seeds=[4, 7])
    assert arm.by_seed() == {4: (10, True), 7: (100, False)}
    assert arm.without(4) == Arm("a", (100,), (False,), (7,))


def test_the_p_of_a_rank_correlation_has_two_sides():
    for count in (8, 9, 12):
        falling = rank_correlation((i, float(i), -float(i)) for i in range(count))
        rising = rank_correlation((i, float(i), float(i)) for i in range(count))
        assert (falling.rho, rising.rho) == pytest.approx((-1.0, 1.0))
        assert falling.p == rising.p < 1e-3

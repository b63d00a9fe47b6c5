import math

import numpy as np
import pytest

from mxnum.experiments.survival import Arm, fisher, kaplan_meier, log_rank, mean_interval, peto, pooled, wilson

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")

#: Freireich et al. 1963, remission of leukaemia in weeks: the textbook example of the log-rank test.
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


def test_log_rank_and_peto_of_the_textbook_example():
    chi_squared = 16.79  # published
    assert log_rank(A, B) == pytest.approx(math.erfc(math.sqrt(chi_squared / 2)), rel=0.02)
    ratio, low, high = peto(A, B)
    # O = 9, E = 19.25, V = 6.257: published
    assert ratio == pytest.approx(math.exp((9 - 19.25) / 6.257), rel=2e-3)
    assert low < ratio < high < 1
    assert peto(B, A)[0] == pytest.approx(1 / ratio)


def test_fisher_by_hand():
    # 6 of 6 against 0 of 6: the two extreme tables of 924
    ours = fisher(Arm("a", (1,) * 6, (True,) * 6), Arm("b", (9,) * 6, (False,) * 6))
    assert ours == pytest.approx(2 / math.comb(12, 6))


def test_without_events_nothing_is_claimed():
    a, b = Arm("a", (9, 9), (False, False)), Arm("b", (9, 9), (False, False))
    assert log_rank(a, b) is None
    assert peto(a, b) is None
    assert a.median_time() is None
    assert fisher(a, b) == 1
    assert peto(Arm("a", (3, 9), (True, False)), b) is None


def test_events_after_the_horizon_are_censored():
    arm = Arm.of("a", [10, None, 70], [30, 100, 90], horizon=50)
    assert arm.times == (10, 50, 50)
    assert arm.diverged == (True, False, False)


def test_wilson():
    low, high = wilson(0, 8)
    assert low == 0
    assert high == pytest.approx(0.324, abs=1e-3)
    with pytest.raises(ValueError, match=r"Argument 'events' must be between 0 and runs=3, not 4\."):
        wilson(4, 3)


def test_mean_interval_by_hand():
    # t with 2 degrees of freedom: 4.3027 at 97.5 %
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert high - mean == mean - low == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert mean_interval([1.0, 1.0]) is None


def test_pooled_arms():
    a, b = Arm("a", (3, 4), (True, False)), Arm("b", (5,), (True,))
    both = pooled([a, b])
    assert (both.times, both.diverged) == ((3, 4, 5), (True, False, True))
    assert pooled([]).runs == 0

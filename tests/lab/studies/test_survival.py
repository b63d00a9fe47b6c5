import numpy as np
import pytest

from mxnum.lab.studies.statistics import Arm, kaplan_meier

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


def test_without_events_there_is_no_median():
    assert Arm("a", (9, 9), (False, False)).median_time() is None


def test_the_median_of_any_number_of_runs_of_which_half_have_an_event():
    """Of 24 runs the product of the shares is 0.5000000000000001 after twelve: there was no median, or a later one."""
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

"""Tests of the counts of runs whose loss stays above each threshold, on made-up runs."""

from __future__ import annotations

from mxnum.lab.studies import report, thresholds


def run(curve, final, start=None):
    excursion = {"start": start, "end": None, "base": 0.5, "peak": 9.0, "area": 1.0}
    return {"steps": 400, "curve": curve, "final_loss": final, "excursions": [] if start is None else [excursion]}


def table(*runs):
    assert all(len(each["curve"]) == report.CURVE_POINTS for each in runs)
    return {"arms": {"a": {"experiment": {"steps": 400}, "runs": list(runs)}}}


def test_each_threshold_has_its_own_count():
    calm = run([0.1] * 40, 0.1)
    # After the jump, the loss of `low` falls to 2.8 times the base, and ends at 6 times the base.
    low = run([0.5] * 10 + [50.0, 1.4] + [3.0] * 28, 3.0, start=100)
    high = run([0.5] * 10 + [50.0] * 30, None, start=100)
    made = table(calm, low, high)
    assert thresholds.least_after(made, "a") == [2.8, 100.0]
    (ever,) = thresholds.rows(made, ["a"], ever=True)
    assert ever == ("a", "2 of 3", "2", "1", "1", "1", "1", "1", "1", "1")
    (end,) = thresholds.rows(made, ["a"], ever=False)
    assert end == ("a", "2 of 3", "2", "2", "2", "2", "2", "1", "1", "1")
    assert len(thresholds.HEADINGS) == len(ever)


def test_bin_that_began_before_the_jump_is_ignored():
    assert thresholds.least_after(table(run([0.5] * 40, 0.5, start=395)), "a") == [float("inf")]

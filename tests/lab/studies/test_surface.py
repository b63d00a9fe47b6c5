"""Tests that a plane fitted to the highest losses recovers known slopes."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.studies.excursions import WINDOW, highest
from mxnum.lab.studies.surface import markdown, slopes

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def table(height, seeds=4, steps=10):
    arms = {}
    for beta2 in (0.95, 0.99, 0.999):
        for rate in (0.01, 0.1):
            runs = [
                {"seed": s, "highest": height(s, 1 - beta2, rate), "excursions": [], "steps": steps, "final_loss": 1.0}
                for s in range(seeds)
            ]
            experiment = {"betas": [0.9, beta2], "rate": rate, "steps": steps}
            arms[f"FP32, betas [0.9, {beta2}], rate {rate:g}"] = {"experiment": experiment, "runs": runs}
    return {"arms": arms}


def test_exponents_of_a_plane():
    made = table(lambda seed, slow, rate: 3 * (1 + seed) * slow ** (-0.5 - 0.01 * seed) * rate**2)
    (by_beta, low, high), (by_rate, *_) = slopes(made, "FP32")
    assert by_beta == pytest.approx(-0.515)
    assert low < by_beta < high
    assert by_rate == pytest.approx(2)
    assert slopes(made, "LN E2M1") is None
    assert slopes(table(lambda *_: 1.0, seeds=2), "FP32") is None
    column = {name: arm for name, arm in made["arms"].items() if "0.95" in name}
    assert slopes({"arms": column}, "FP32") is None  # all runs have the same beta2


def test_the_table_says_what_is_missing_or_not_finite():
    made = table(lambda seed, slow, rate: None if rate == 0.1 and slow > 0.02 else 7.0)
    del made["arms"]["FP32, betas [0.9, 0.99], rate 0.1"]
    lines = markdown(made, "FP32").splitlines()
    assert lines[2:] == [
        "| 0.95 | 7 (0 of 4) | not finite (0 of 4) |", "| 0.99 | 7 (0 of 4) | not run |",
        "| 0.999 | 7 (0 of 4) | 7 (0 of 4) |",
    ]  # fmt: skip


def test_the_height_is_in_units_of_the_least_running_median_before():
    losses = [1.0] * WINDOW + [0.1] * WINDOW + [3.0, 0.1]
    assert highest(losses) == pytest.approx(30)
    assert highest([1.0, 0.5]) == 1
    assert highest([1.0, np.nan]) == np.inf

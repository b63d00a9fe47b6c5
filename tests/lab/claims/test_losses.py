"""Tests of the published losses that mxnum stores: their number, single losses, and groups."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from mxnum.lab.claims import losses


def test_there_are_1234_runs_in_17_arms():
    counts = Counter(run.arm for run in losses.runs())
    assert (sum(counts.values()), len(counts)) == (1234, 17)
    assert counts["bf16_bf16"] == counts["fp8_e4m3_bfloat16"] == counts["fp8_e5m2_fp8_e4m3"] == 80
    assert counts["fp8_e5m2_bfloat16"] == 118
    states = Counter(run.state for run in losses.runs())
    assert states == {"finished": 1215, "crashed": 17, "running": 2}


def test_single_values():
    first = losses.runs()[0]
    assert first.cell == (192268160, 3963879424)
    assert first.final == 0.7684688568115234  # the published loss, as float32
    assert (first.label, first.state, math.isnan(first.training)) == ("fp32", "finished", True)


def test_every_run_has_about_one_of_the_budgets():
    for run in losses.runs():
        assert 6 * run.parameters * run.tokens == pytest.approx(run.budget, rel=0.03)


def test_a_run_without_losses_is_not_astray():
    without = [run for run in losses.runs() if math.isnan(run.final)]
    assert len(without) == 3
    assert not any(run.astray for run in without)
    assert sum(run.astray for run in losses.arm("fp8_e5m2_fp8_e4m3")) == 30


def test_losses_are_on_a_grid_but_for_bf16():
    for run in losses.runs():
        if run.arm != "fp8_e4m3_bfloat16" and not math.isnan(run.final):
            steps = run.final / losses.GRID
            assert (abs(steps - round(steps)) < 1e-4) == (run.arm != losses.BF16)


def test_tables_and_gaps():
    table = losses.table("fp8_e4m3_fp8_e4m3", keep=lambda run: run.finished)
    assert len(table) == 49
    cells = losses.by_cell("fp8_e5m2_bfloat16", "least")
    assert max(map(len, cells.values())) == 2  # some cells of the published table were run twice
    twice = next(cell for cell, found in cells.items() if len(found) == 2 and cell in losses.gaps("fp8_e5m2_bfloat16"))
    bf16 = {run.cell: run.least for run in losses.arm(losses.BF16)}
    assert losses.gaps("fp8_e5m2_bfloat16")[twice] == pytest.approx(np.mean(cells[twice]) - bf16[twice])
    assert set(losses.gaps(losses.BF16).values()) == {0.0}

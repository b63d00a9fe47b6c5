"""Tests of the statements about runs of the MLP, with made-up results."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.claims import (
    mlp_runs,
)
from tests.lab.claims.made_up import followed, mlp

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def test_losses_are_averaged_over_the_last_bins():
    table = {"arms": {"a": {"runs": [{"seed": 3, "curve": [5.0] * 32 + [1.0, 4.0] * 4}, {"seed": 4, "curve": [None]}]}}}
    assert mlp_runs.final_logs(table, "a") == {3: pytest.approx(np.log(2))}


N = 12


CALM, LOST, BACK = [None] * N, [(100 + i, None) for i in range(N)], [(100 + i, 200) for i in range(N)]


def test_no_runaway_is_a_no_only_where_enough_runs_were_watched(tmp_path):
    # With 0 runaways among 24, 12, 11 or 6 runs, the upper 95 % confidence limit of the share of
    # runaways is 14, 24, 26 or 39 %. The verdict is "no" if this limit is below 25 %.
    for runs, is_no in ((24, True), (12, True), (11, False), (6, False)):
        arms = {"FP32": followed(CALM[:runs]), "LN E2M1": followed([*CALM, *CALM][:runs])}
        table = mlp(tmp_path, "recovery", arms, horizon=500).json("recovery.json")
        assert mlp_runs.none_away(table, "LN E2M1")[0] is is_no
    lost = mlp(tmp_path, "recovery", {"FP32": followed(CALM), "E2M1": followed(LOST[:1] + CALM[1:])}, horizon=500)
    assert not mlp_runs.none_away(lost.json("recovery.json"), "E2M1")[0]


@pytest.mark.parametrize(("shift", "holds"), [(-250, True), (0, False), (None, None)])
def test_the_hazard_of_e4m3_is_decided_by_its_limits(shift, holds):
    rng = np.random.default_rng(1)
    arms = {}
    for rate in (0.1, 0.2, 0.3):
        times = rng.integers(300, 900, 24)
        for kind, by in (("FP32", 0), ("E4M3", shift)):
            first = [None] * 24 if by is None else [int(t) + by for t in times + rng.integers(-40, 40, 24)]
            spans = [None if t is None else (t, t + 5) for t in first]
            arms[f"{kind}, rate {rate}"] = {"experiment": {"rate": rate, "steps": 1000}, "runs": followed(spans)}
    assert mlp_runs.hazard_of_e4m3({"arms": arms}).holds is holds

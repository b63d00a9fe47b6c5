from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mxnum.experiments import report, storage, studies, sweep
from mxnum.experiments.config import Experiment, experiment_from

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def table(**arms):
    """A collected study with the given first divergences."""
    experiment = {"steps": 100, "width": 64, "layers": 4, "batch": 256, "optimizer": "adam", "rate": 0.01}
    made = {}
    for name, first in arms.items():
        runs = [{"diverged": f, "steps": 100 if f is None else f + 20, "curve": [1.0, None]} for f in first]
        made[name] = {"experiment": experiment, "runs": runs}
    return {"study": "s", "question": "q?", "control": "a", "arms": made, "environment": {"numpy": "2"}}


def test_rows_and_conclusions():
    t = table(a=[None] * 6, b=[10, 20, 30, 40, 50, 60], c=[None] * 6, d=[50] + [None] * 5)
    rows = {row[0]: row[1:] for row in report.rows(t)}
    assert rows["a"] == ("0 of 6", "-", "", "", "")
    assert rows["b"][:2] == ("6 of 6", "30")
    assert float(rows["b"][3]) == pytest.approx(2 / math.comb(12, 6), abs=5e-5)
    assert rows["b"][4] == "-"  # Peto needs events in both arms
    assert report.rows(t, "d")[1][5] != "-"
    lines = report.conclusions(t)
    assert lines[0].startswith("b: diverges sooner (6 of 6 against 0 of 6")
    assert lines[1].startswith("c: nothing diverged in either arm")
    assert lines[2].startswith("d: no difference shown")
    assert "| b | 6 of 6 | 30 |" in report.page(t)


def test_runs_that_went_on_after_a_divergence():
    t = table(a=[None], b=[10, 20, 30, 79])
    for run, steps, last in zip(t["arms"]["b"]["runs"], (100, 100, 50, 99), (50.0, 101.0, 0.0, 0.0), strict=True):
        run |= {"steps": steps, "least_loss": 1.0, "last_loss": last}
    assert report.recovered(t, "b") == (1, 2)  # the last two ended with their divergence
    assert report.recovered(t, "a") == (0, 0)
    assert report.markdown(t).endswith(
        "Of the diverged runs, trained on, these had recovered at the horizon: b 1 of 2."
    )


def test_figures():
    matplotlib = pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    matplotlib.use("Agg")
    t = table(a=[None] * 3, b=[10, 20, 30])
    axes = report.survival_figure(t)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a (0/3)", "b (3/3)"]
    assert len(report.loss_figure(t, ["a", "b"]).lines) == 6
    matplotlib.pyplot.close("all")


def test_runs_on_disk_become_a_table(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    tiny = Experiment(width=32, layers=1, batch=32, steps=50)
    study = studies.Study("tiny", "?", {"FP32": tiny, "wild": tiny.but(rate=50.0), "absent": tiny}, 2, "FP32", 20)
    arms = {name: study.arms[name] for name in ("FP32", "wild")}
    for task in sweep.tasks_for(arms, range(2), tmp_path / study.setting, measure_every=20):
        sweep.run_task(task)
    said = []
    made = report.write(study, tmp_path, tmp_path / "results", said.append)
    assert list(made["arms"]) == ["FP32", "wild"]
    run = made["arms"]["FP32"]["runs"][1]
    assert run["seed"] == 1
    assert len(run["curve"]) == 40
    assert run["measured_at"] == [0, 20, 40]
    assert len(run["measured"]["zeta"]) == 3
    assert made["arms"]["wild"]["runs"][0]["diverged"] is not None
    assert (tmp_path / "results" / "tiny.md").read_text() == said[0]
    with pytest.raises(ValueError, match="has no run of the study 'quick'"):
        report.collect(studies.get("quick"), tmp_path)
    changed = replace(study, arms={"FP32": tiny.but(rate=0.5)})
    with pytest.raises(ValueError, match="has another configuration than arm 'FP32'"):
        report.collect(changed, tmp_path)


RESULTS = Path(__file__).parents[2] / "docs" / "results"
#: The kernels of OpenBLAS that made the stored results: others add in another order.
KERNELS = "SkylakeX"
FIRST_BIN = """
import json, sys
import numpy as np
from mxnum.experiments import storage, train
from mxnum.experiments.config import experiment_from
experiment, steps, seed = json.loads(sys.argv[1])
(run,) = train(experiment_from(experiment).but(steps=steps), (seed,))
print(json.dumps([storage.environment()["blas"], float(f"{np.median(run.losses):.4g}")]))
"""


@pytest.mark.parametrize(
    ("name", "arm"),
    [("small", "FP32"), ("small", "LN E2M1"), ("small", "E4M3"), ("mechanism", "LN error, random sign")],
)
def test_stored_results_come_from_this_code(name, arm):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    stored, here = storage.read_json(RESULTS / f"{name}.json"), storage.environment()
    for key in ("numpy", "processor"):
        if stored["environment"][key] != here[key]:
            pytest.skip(f"stored results were made with {key} {stored['environment'][key]}, here it is {here[key]}")
    one, made = stored["arms"][arm]["runs"][0], stored["arms"][arm]["experiment"]
    assert experiment_from(made) == studies.get(name).arms[arm]
    given = json.dumps([made, one["steps"] // report.CURVE_POINTS, one["seed"]])
    done = subprocess.run(
        [sys.executable, "-c", FIRST_BIN, given],
        capture_output=True, text=True, check=True, env={**os.environ, "OPENBLAS_CORETYPE": KERNELS},
    )  # fmt: skip
    blas, median = json.loads(done.stdout)
    if not blas.endswith(KERNELS):
        pytest.skip(f"stored results were made with OpenBLAS's kernels for {KERNELS}, here they are {blas}")
    assert median == one["curve"][0]

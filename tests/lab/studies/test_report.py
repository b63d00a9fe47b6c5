from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment
from mxnum.lab.studies import interventions, report, studies, sweep
from mxnum.lab.studies.excursions import Outcome

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


def table(**arms):
    """Return the table of a study in the old form: each run ends 20 steps after its first rise."""
    experiment = {"steps": 100, "width": 64, "layers": 4, "batch": 256, "optimizer": "adam", "rate": 0.01}
    made = {}
    for name, first in arms.items():
        runs = [
            {"seed": seed, "diverged": f, "steps": 100 if f is None else f + 20, "curve": [1.0, None], "last_loss": 1.0}
            for seed, f in enumerate(first)
        ]
        made[name] = {"experiment": experiment, "runs": runs}
    return {"study": "s", "question": "q?", "control": "a", "arms": made, "environment": {"numpy": "2"}}


def followed(horizon=50, **arms):
    """Return the table of a study whose runs continue to step 100.

    Each run is a pair: a list of its excursions (start, end, peak), and its final loss.
    """
    made = table(**{name: [None] * len(runs) for name, runs in arms.items()}) | {"horizon": horizon}
    for name, runs in arms.items():
        for run, (spans, final) in zip(made["arms"][name]["runs"], runs, strict=True):
            excursions = [{"start": a, "end": b, "base": 0.1, "peak": peak, "area": 1.0} for a, b, peak in spans]
            run |= {"excursions": excursions, "final_loss": final}
    return made


def test_rows_and_conclusions_of_runs_that_ended_at_a_rise():
    t = table(a=[None] * 12, b=[10 + i for i in range(12)], c=[None] * 12, d=[50] + [None] * 11)
    rows = {row[0]: dict(zip(report.HEADINGS, row, strict=True)) for row in report.rows(t)}
    assert rows["b"]["excursion"] == "12 of 12"
    assert (rows["b"]["recovered"], rows["b"]["runaway"], rows["b"]["open"]) == ("0", "0", "12")
    assert rows["b"]["exact p"] == f"{2 / 2**12:.4f}"  # the smallest p-value that twelve seeds can give
    assert rows["b"]["p after Holm"] == f"{3 * 2 / 2**12:.4f}"
    assert (rows["a"]["excursion"], rows["a"]["exact p"]) == ("0 of 12", "")
    lines = report.conclusions(t)
    assert lines[0].startswith("b: excursions come sooner (12 of 12 runs against 0 of 12 of 'a'")
    assert lines[1].startswith("c: no pair of runs differs")
    assert lines[2].startswith("d: no difference shown")
    assert "whether the loss would have come back is not known" in report.page(t)
    assert not report.is_followed(t)


def test_excursions_that_came_back_are_told_from_runaways():
    calm, spike, late = ([], 0.1), ([(10, 30, 5.0), (40, 45, 9.0)], 0.1), ([(60, None, 5.0)], 4.0)
    away, blown, high = ([(20, None, 7.0)], 6.0), ([(20, None, None)], None), ([], 0.3)
    t = followed(a=[calm] * 6, b=[spike, away, blown, late, high, calm])
    row = dict(zip(report.HEADINGS, report.rows(t)[1], strict=True))
    assert [row[k] for k in ("excursion", "recovered", "runaway", "open")] == ["3 of 6", "1", "2", "0"]
    assert row["degraded"] == "1 of 2"  # A run with an excursion after the horizon does not count as quiet.
    assert row["median peak"] == "90"  # The median of 90, 70 and infinity is 90.
    assert report.arm_of(t, "b", event="away").times == (50, 20, 20, 50, 50, 50)
    assert report.arm_of(t, "b").times == (10, 20, 20, 50, 50, 50)
    assert report.is_followed(t)
    still = followed(horizon=80, a=[calm], b=[([(70, None, 5.0)], 4.0)])
    assert dict(zip(report.HEADINGS, report.rows(still)[1], strict=True))["open"] == "1"


def test_outcomes_returns_and_endings_of_an_arm():
    spike, away = ([(10, 30, 5.0), (40, 45, 9.0)], 0.2), ([(20, None, 7.0)], 0.8)
    t = followed(a=[([], 0.1)] * 3, b=[spike, away, ([], 0.1)])
    assert report.outcomes_text(t, "a") == "0 of 3"
    assert report.outcomes_text(t, "b") == "2 of 3, 1 back, 1 away"
    assert report.outcomes_text(t | {"horizon": 70}, "b") == "2 of 3, 1 back, 1 open"
    back = report.returns(t, "b")
    assert (back.times, back.diverged, back.seeds) == ((20, 80), (True, False), (0, 1))
    assert report.returns(t, "a").runs == 0
    assert report.endings(t, "b", "a") == pytest.approx([math.log(2), math.log(8), 0])
    t["arms"]["a"]["runs"][1]["final_loss"] = None
    assert report.endings(t, "b", "a") == pytest.approx([math.log(2), 0])


def test_figures():
    matplotlib = pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    matplotlib.use("Agg")
    t = table(a=[None] * 3, b=[10, 20, 30])
    axes = report.survival_figure(t)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a (0/3)", "b (3/3)"]
    away = followed(a=[([], 0.1)] * 3, b=[([(10, None, 5.0)], 4.0)] * 3)
    axes = report.survival_figure(away)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a (0/3, 0 not back)", "b (3/3, 3 not back)"]
    assert [line.get_linestyle() for line in axes.lines] == ["-", "-", "--"]
    assert len(report.loss_figure(t, ["a", "b"]).lines) == 6
    matplotlib.pyplot.close("all")


def test_runs_on_disk_become_a_table(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    tiny = Experiment(width=32, layers=1, batch=32, steps=50)
    study = studies.Study("tiny", "?", {"FP32": tiny, "wild": tiny.but(rate=50.0), "absent": tiny}, 2, "FP32", 20)
    arms = {name: study.arms[name] for name in ("FP32", "wild")}
    for task in sweep.tasks_for(replace(study, arms=arms), range(2), tmp_path):
        task.run()
    said = []
    made = report.write(study, tmp_path, tmp_path / "results", said.append)
    assert list(made["arms"]) == ["FP32", "wild"]
    run = made["arms"]["FP32"]["runs"][1]
    assert run["seed"] == 1
    assert len(run["curve"]) == 40
    assert run["measured_at"] == [0, 20, 40]
    assert len(run["measured"]["zeta"]) == 3
    assert made["arms"]["wild"]["runs"][0]["diverged"] is not None
    assert made["arms"]["wild"]["runs"][0]["steps"] == 50  # the run continued after it diverged
    assert made["arms"]["wild"]["runs"][0]["excursions"][0]["end"] is None
    assert report.outcomes(made, "wild")[Outcome.OPEN] == 2
    assert (tmp_path / "results" / "tiny.md").read_text() == said[0]
    with pytest.raises(ValueError, match="has no run of the study 'quick'"):
        report.collect(studies.get("quick"), tmp_path)
    changed = replace(study, arms={"FP32": tiny.but(rate=0.5)})
    with pytest.raises(ValueError, match="does not have the configuration of arm 'FP32'"):
        report.collect(changed, tmp_path)


def test_tables_of_several_machines_become_one(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    tiny = Experiment(width=32, layers=1, batch=32, steps=20)
    study, results = (
        studies.Study("tiny", "?", {"FP32": tiny, "low": tiny.but(rate=0.5)}, 4, "FP32", 20),
        tmp_path / "r",
    )
    for machine, arm, seeds in (("here", "low", (3,)), ("there", "low", (1, 3)), ("there", "FP32", (3,))):
        for task in sweep.tasks_for(replace(study, arms={arm: study.arms[arm]}), seeds, tmp_path / machine):
            task.run()
    report.write(study, tmp_path / "here", results, add=True)  # the folder is empty
    before = report.stored(results, "tiny")
    before["environment"]["system"], before["arms"]["low"]["runs"][0]["steps"] = "Other", 90
    storage.write_json(results / "tiny.json", before)
    made = report.write(study, tmp_path / "there", results, add=True)
    assert json.loads(json.dumps(made)) == report.stored(results, "tiny")
    assert list(made["arms"]) == ["FP32", "low"]
    assert made["control"] == "FP32"
    assert [(run["seed"], run["steps"]) for run in made["arms"]["low"]["runs"]] == [(1, 20), (3, 90)]
    system = made["environment"]["system"]
    assert system.startswith("Other and ")
    assert report.write(study, tmp_path / "there", results, add=True)["environment"]["system"] == system
    (path,) = (tmp_path / "there" / study.folder / "low").glob("seed-3.json")
    storage.write_json(path, storage.read_json(path) | {"environment": before["environment"] | {"system": "Third"}})
    assert report.collect(study, tmp_path / "there")["environment"]["system"].endswith(" and Third")
    assert made["environment"]["numpy"] == before["environment"]["numpy"]
    assert [run["seed"] for run in report.write(study, tmp_path / "here", results)["arms"]["low"]["runs"]] == [3]
    other = replace(study, arms={"low": tiny})
    shutil.rmtree(tmp_path / "there")
    for task in sweep.tasks_for(other, (3,), tmp_path / "there"):
        task.run()
    with pytest.raises(ValueError, match="has a different configuration for arm 'low'"):
        report.write(other, tmp_path / "there", results, add=True)


def test_runs_under_way_are_as_far_as_their_checkpoints(tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    from mxnum.lab.mlp.loop import Training, load, save

    tiny = Experiment(width=32, layers=1, batch=32, steps=50)
    study = studies.Study("tiny", "?", {"FP32": tiny, "other": tiny.but(rate=0.5)}, 2, "FP32", 20)
    training = Training(tiny, (4, 9))
    for step in range(30):
        training.advance(step % 20 == 0)
    path = tmp_path / study.folder / "FP32" / "checkpoint-4-9-2.npz"
    save(training, path)
    with pytest.raises(ValueError, match="has no run of the study 'tiny'"):
        report.collect(study, tmp_path)
    runs = report.collect(study, tmp_path, unfinished=True)["arms"]["FP32"]["runs"]
    assert [(run["seed"], run["steps"], run["measured_at"]) for run in runs] == [(4, 30, [0, 20]), (9, 30, [0, 20])]
    assert len(runs[1]["measured"]["second_moment_least"]) == 2
    report.write(study, tmp_path, tmp_path / "results", unfinished=True)
    told = (
        "Unfinished, and without an excursion so far: FP32, seed 4, at step 30 of 50; FP32, seed 9, at step 30 of 50."
    )
    assert told in (tmp_path / "results" / "tiny.md").read_text()
    shutil.copytree(path.parent, tmp_path / study.folder / "other")  # a checkpoint made with another configuration
    assert list(report.collect(study, tmp_path, unfinished=True)["arms"]) == ["FP32"]
    for other in (Training(study.arms["other"], (4, 9)), Training(tiny, (4, 5)), Training(tiny, (4,))):
        with pytest.raises(ValueError, match="was made with another configuration or other seeds; remove it"):
            load(other, path)
    load(Training(tiny.but(steps=80), (4, 9)), path)  # the number of steps may change


RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"
#: The OpenBLAS kernels with which the stored results were made. Other kernels add in another order
#: and give other results.
KERNELS = "SkylakeX"
#: The names of the studies that have a page in the folder of stored results.
PAGES = sorted(page.stem for page in RESULTS.glob("*.md") if page.stem not in ("README", "interventions"))


@pytest.mark.parametrize("name", PAGES)
def test_stored_pages_are_what_this_code_says_of_the_stored_runs(name):
    assert (RESULTS / f"{name}.md").read_text() == report.page(report.stored(RESULTS, name))


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("interventions.json")), ids=lambda path: path.parent.name)
def test_stored_pages_of_actions_too(path):
    assert path.with_suffix(".md").read_text() == interventions.summary(storage.read_json(path)) + "\n"


FIRST_BIN = """
import json, sys
import numpy as np
from mxnum.lab import storage
from mxnum.lab.mlp import train
from mxnum.lab.mlp.config import Experiment
experiment, steps, seed = json.loads(sys.argv[1])
(run,) = train(Experiment.from_dict(experiment).but(steps=steps), (seed,))
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
            pytest.skip(f"stored results were made with {key} {stored['environment'][key]}, not {here[key]}")
    one, made = stored["arms"][arm]["runs"][0], stored["arms"][arm]["experiment"]
    assert Experiment.from_dict(made) == studies.get(name).arms[arm]
    given = json.dumps([made, one["steps"] // report.CURVE_POINTS, one["seed"]])
    done = subprocess.run(
        [sys.executable, "-c", FIRST_BIN, given],
        capture_output=True, text=True, check=True, env={**os.environ, "OPENBLAS_CORETYPE": KERNELS},
    )  # fmt: skip
    blas, median = json.loads(done.stdout)
    if not blas.endswith(KERNELS):
        pytest.skip(f"stored results were made with OpenBLAS's kernels for {KERNELS}; here, numpy uses {blas}")
    assert median == one["curve"][0]

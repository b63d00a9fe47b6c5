"""Tests of language-model studies from files: reading, running, continuing, tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx

pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("scipy", reason="the extra experiments is not installed")

from mxnum.lab.language_model import Decoder, Setting
from mxnum.lab.studies import language_model as studies
from mxnum.lab.studies import report, study_file
from mxnum.lab.studies import run_study as running
from mxnum.lab.studies.report import collect
from mxnum.lab.studies.studies import SHIPPED
from mxnum.lab.studies.studies import read as read_shipped

ROOT = Path(__file__).parents[3]
TEXT = """
name = "tiny"
control = "plain"
seeds = 2
first_seed = 5
measure_every = 2
[base]
vocabulary = 16
choices = 2
width = 16
heads = 2
layers = 1
context = 8
sequences = 2
steps = 3
[arms.plain]
[arms."short"]
sequences = 1
[arms."last"]
where = "last"
sequences = 1
recipe = { gradients = "mxfp8_e4m3" }
control = "short"
"""


def read(path):
    return study_file.read(path, "language_model")


def run_study(study, runs, *, processes=0, say=lambda text: None, **how):
    """Run a study in the test's own process."""
    return running.run_study(study, runs, processes=processes, say=say, **how)


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT)
    return read(path)


def test_a_grid_is_every_combination_with_its_control(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(TEXT + "[grid]\nwidth = [16, 32]\nsteps = [1, 2]\n")
    found = read(path)
    assert len(found.arms) == 3 * 4
    assert (found.arms["last, width 32, steps 2"].width, found.arms["last, width 32, steps 2"].steps) == (32, 2)
    assert found.control == "plain, width 16, steps 1"
    assert found.control_of("last, width 32, steps 2") == "short, width 32, steps 2"
    assert found.control_of("short, width 16, steps 2") == "plain, width 16, steps 2"
    run_study(found, tmp_path / "runs", seeds=1)
    table = collect(found, tmp_path / "runs")
    lines = studies.MODEL.files(table)["csv"].splitlines()
    assert lines[0] == "arm,seed,parameters,tokens,loss"
    model = Decoder(found.arms["plain, width 32, steps 2"], 16)
    parameters = sum(p.numel() for p in model.parameters())
    assert any(line.startswith(f"plain,5,{parameters},32,") for line in lines)
    for text, message in (
        ("3", "'grid' must be a table"),
        ("{rate = 3}", "'rate' must be a list of values"),
    ):
        path.write_text(f"grid = {text}\n" + TEXT)
        with pytest.raises(ValueError, match=message):
            read(path)


def test_operands_are_kept_and_compared(study, tmp_path):
    """Check that activations, weights and gradients of the layers are stored and compared."""
    run_study(study, tmp_path / "runs", seeds=1, keep_operands=True)
    with np.load(tmp_path / "runs" / "plain" / "seed-5-operands.npz") as kept:
        operands = dict(kept)
    tokens, setting = 16, study.arms["plain"]
    assert operands["activations/head"].shape == (tokens, setting.width)
    assert operands["gradients/head"].shape == (tokens, setting.vocabulary)
    logits = operands["activations/head"] @ operands["weights/head"].T
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    came = np.argmin(operands["gradients/head"], 1)
    expected = (shares - np.eye(setting.vocabulary)[came]) / tokens
    assert operands["gradients/head"] == pytest.approx(expected, abs=1e-6)
    (run,) = collect(study, tmp_path / "runs")["arms"]["plain"]["runs"]
    assert set(run["organisations"]) == {"weights", "activations", "gradients"}
    x = operands["weights/head"]
    alone = studies.organisation_errors({"weights/head": x})["weights"]
    e = mx.fake_quantize(x, "mxfp4_e2m1", scale_rule="even", block_shape=(16, 1)).astype(np.float64) - x
    assert alone["column"] == pytest.approx(np.sqrt((e**2).sum() / (x.astype(np.float64) ** 2).sum()), rel=1e-3)


def test_arms_whose_runs_would_lie_in_one_folder_are_refused(study, tmp_path):
    alike = replace(study, arms=study.arms | {"last, x 1": study.arms["last"], "last x 1": study.arms["short"]})
    with pytest.raises(ValueError, match="different folders, but 'last, x 1' and 'last x 1' lead"):
        run_study(alike, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_stored_runs_without_operands_run_again_to_keep_them(study, tmp_path):
    run_study(study, tmp_path, seeds=1)
    path = tmp_path / "plain" / "seed-5-operands.npz"
    assert not path.exists()
    said: list[str] = []
    for _ in range(2):  # the second call finds the stored operands
        run_study(study, tmp_path, seeds=1, keep_operands=True, say=said.append)
        assert path.exists()
        assert said.count("tiny: 3 arms, 1 seeds from 5, 3 tasks to do.") == 1


def test_run_with_nan_losses_keeps_the_table_of_others(study, tmp_path):
    """Check that the table is made even if a run has NaN losses and no measured biases."""
    lost = replace(study, arms=study.arms | {"last": study.arms["last"].but(rate=1e38)})
    run_study(lost, tmp_path)
    table = collect(lost, tmp_path)
    report.store(lost, table, tmp_path)
    rows = {row[0]: dict(zip(studies.HEADINGS, row, strict=True)) for row in studies.rows(table)}
    assert rows["last"]["loss"] == "nan"
    assert rows["last"]["excursions"].startswith("2 of 2")
    assert rows["last"]["p"] == "", "nothing was tested"
    assert float(rows["short"]["loss"]) > 0


def test_seeds_beyond_those_of_the_study_and_machines_are_all_in_the_table(study, tmp_path):
    run_study(study, tmp_path, seeds=3)
    path = tmp_path / "plain" / "seed-5.json"
    elsewhere = json.loads(path.read_text())
    elsewhere["environment"]["system"] = "Another"
    path.write_text(json.dumps(elsewhere))
    assert [len(arm["runs"]) for arm in collect(study, tmp_path)["arms"].values()] == [2] * 3
    again = run_study(study, tmp_path, seeds=1).table
    assert [len(arm["runs"]) for arm in again["arms"].values()] == [2] * 3, "what is there"
    table = collect(study, tmp_path, range(5, 8))
    assert [len(arm["runs"]) for arm in table["arms"].values()] == [3] * 3
    assert table["environment"]["system"].startswith("Another and ")


def test_a_study_runs_goes_on_and_is_collected(study, tmp_path):
    said: list[str] = []
    run_study(study, tmp_path / "runs", seeds=1, say=said.append)
    assert said[1:] == ["done: plain, seed 5", "done: short, seed 5", "done: last, seed 5"]
    run_study(study, tmp_path / "runs", say=said.append)
    assert said[4:] == [
        "tiny: 3 arms, 2 seeds from 5, 3 tasks to do.",
        *(f"done: {arm}, seed 6" for arm in ("plain", "short", "last")),
    ], "finished runs are not repeated"
    table = collect(study, tmp_path / "runs")
    rows = {row[0]: dict(zip(studies.HEADINGS, row, strict=True)) for row in studies.rows(table)}
    assert rows["plain"]["gap to control"] == ""
    ours, theirs = (table["arms"][name]["runs"] for name in ("last", "short"))
    gap = sum(a["evaluation"] - b["evaluation"] for a, b in zip(ours, theirs, strict=True)) / 2
    assert rows["last"]["gap to control"] == f"{gap:+.4f}", "an arm is compared with its own control"
    assert rows["last"]["seeds"] == "2"
    assert [row[1] for row in report.rows(table)] == ["0 of 2"] * 3, "the usual statistics of excursions"
    report.store(study, table, tmp_path)
    assert "| last |" in (tmp_path / "tiny.md").read_text()
    for changes, told in (({"rate": 1e-4}, r"rate .*, not 0.0001"), ({"steps": 9}, "steps 3, not 9")):
        changed = replace(study, arms={"plain": study.arms["plain"].but(**changes)})
        for call in (collect, run_study):
            with pytest.raises(ValueError, match=rf"does not have the configuration of arm 'plain' \({told}\)"):
                call(changed, tmp_path / "runs")
    with pytest.raises(ValueError, match="has no run of the study 'tiny'"):
        collect(study, tmp_path / "nothing")


def test_excursions_are_those_of_the_loss_above_the_entropy(study, tmp_path):
    run_study(study, tmp_path / "runs", seeds=1)
    path = next((tmp_path / "runs").glob("plain/seed-5.npz"))
    arrays = dict(np.load(path))
    (entropy, _) = json.loads(path.with_suffix(".json").read_text())["entropy"]
    arrays["losses"] = entropy + np.array([2.0] * 10 + [0.02] * 300 + [1.0] * 40)
    np.savez(path, **arrays)
    table = collect(study, tmp_path / "runs")
    (excursion,) = table["arms"]["plain"]["runs"][0]["excursions"]
    assert (excursion["start"], excursion["end"], excursion["peak"]) == (310, None, pytest.approx(1))
    table["arms"]["plain"]["experiment"]["steps"] = 350
    (row,) = (row for row in studies.rows(table) if row[0] == "plain")
    assert row[studies.HEADINGS.index("excursions")].startswith("1 of 1")


def test_processes_give_the_same_runs_and_isolate_failures(study, tmp_path):
    pytest.importorskip("threadpoolctl", reason="the extra experiments is not installed")
    run_study(study, tmp_path / "here", seeds=1)
    (tmp_path / "short.txt").write_text("too short")
    text = study.arms["plain"].but(source="text", text=str(tmp_path / "short.txt"), vocabulary=256)
    wrong = replace(study, arms=study.arms | {"wrong": text})
    failed = run_study(wrong, tmp_path / "runs", seeds=1, processes=2).failed
    assert [(failure.arm, failure.seed) for failure in failed] == [("wrong", 5)]
    assert "'text' must be a file with at least" in failed[0].reason
    ours, theirs = (collect(study, tmp_path / name)["arms"] for name in ("runs", "here"))
    assert ours == theirs


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seds = 2", "In file .*'name' must be one of"),
        ("width = 16", "width = 17", r"In \[base\] of file .*'width' must be a multiple of 4"),
        ('where = "last"', 'where = "lest"', r"In \[arms.last\] of file .*did you mean 'last'"),
        ('control = "short"', 'control = "shirt"', r"In \[arms.last\] of file .*did you mean 'short'"),
        ("[arms.plain]", "[arms.plain", "must be TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(old, new, message, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read(path)


def test_the_study_of_logits_can_be_read():
    shipped = SHIPPED["language_model"]
    assert set(shipped) >= {"logits", "recipes", "drift", "ladder"}
    for name in shipped:
        assert read_shipped(name, "language_model").name == name
    with pytest.raises(
        ValueError, match=r"Argument 'config' must be a TOML file or one of accumulators, .*, not 'receipts'\.$"
    ):
        read_shipped("receipts", "language_model")
    study = read_shipped("logits", "language_model")
    assert study.control_of("last x 1, 12 sequences") == "float32, 12 sequences"
    assert study.arms["last x 1"].recipe.gradients.format == "mxfp8_e4m3"
    assert study.arms["last x 2^(4/8)"].factor == pytest.approx(2**0.5, abs=1e-6)
    assert study.arms["all, rceil"].recipe.gamma.format is None


def test_predictions_are_those_of_the_analysis():
    base = Setting(choices=16, context=32, sequences=16)
    assert studies.predicted_gap(base) == 0
    assert studies.predicted_gap(base.but(recipe={"gradients": "mxfp8_e4m3"})) == pytest.approx(0.0504, abs=1e-3)
    assert studies.predicted_gap(base.but(source="text", text="t")) is None
    assert studies.predicted_gap(base.but(label_smoothing=0.1)) is None
    assert studies.predicted_gap(base.but(z_loss=1e-4)) is None
    for_one = {"gradients": "mxfp8_e4m3", "gradients_for_weights": "float32"}
    assert studies.predicted_gap(base.but(recipe=for_one)) is None
    assert studies.predicted_gap(base.but(recipe=for_one, where="not_last")) == 0


def test_a_text_that_is_not_there_is_said_before_anything_runs(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        'name = "t"\ncontrol = "float32"\nseeds = 1\nfirst_seed = 1\n'
        '[base]\nsource = "text"\ntext = "nowhere.txt"\nvocabulary = 256\n[arms.float32]\n'
    )
    with pytest.raises(ValueError, match=r"^Argument 'text' must be a file that exists, not 'nowhere.txt'\.$"):
        run_study(read(path), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("how", "told"), [({"machine": "amx"}, "'machine' must be 'cpu' or 'cuda'"), ({"stack": 2}, "'stack'")]
)
def test_what_language_models_cannot_do_is_said_before_anything_runs(how, told, study, tmp_path):
    with pytest.raises(ValueError, match=f"^Argument {told}"):
        run_study(study, tmp_path / "runs", **how)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("most", [None, 0.0])
def test_only_arms_at_rest_have_a_sampled_rest(most, tmp_path, monkeypatch):
    """Check that only centred arms with MX gradients have `sampled_rest`.

    If the control has learnt nothing, no arm has `sampled_rest`.
    """
    if most is not None:
        monkeypatch.setattr(studies, "MOST_NOISE", most)
    path = tmp_path / "tiny.toml"
    arms = "".join(
        f"[arms.{name}]\nwhere = 'last'\ncentred = true\nrecipe = {{gradients = '{fmt}'}}\n"
        for name, fmt in (("wide", "bfloat16"), ("both", "mxfp8_e4m3"))
    )
    path.write_text(TEXT.replace("seeds = 2", "seeds = 1") + arms)
    study = read(path)
    run_study(study, tmp_path / "runs")
    arms_with = [name for name, arm in collect(study, tmp_path / "runs")["arms"].items() if "sampled_rest" in arm]
    assert arms_with == ([] if most == 0.0 else ["both"])

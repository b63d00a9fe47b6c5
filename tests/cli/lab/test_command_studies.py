from __future__ import annotations

import pytest

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

SMALL = ["--set", "width=32", "--set", "layers=1", "--set", "batch=32", "--set", "steps=8", "--processes", "1"]


def test_a_study_runs_and_continues(run, tmp_path):
    arguments = ["lab", "run", "quick", "--seeds", "2", "--arms", "FP32;E2M1", "--runs", tmp_path / "r", *SMALL]
    assert "| E2M1 | 0 of 2 |" in run(*arguments)
    assert (tmp_path / "r" / "results" / "quick.json").exists()
    assert "0 tasks to do" in run(*arguments)


def test_tables_have_the_arms_of_earlier_calls(run, tmp_path, monkeypatch):
    from mxnum.lab.mlp.config import Experiment
    from mxnum.lab.studies import studies

    tiny = Experiment(width=32, layers=1, batch=32, steps=6)
    study = studies.Study("tiny", "?", {"a": tiny, "b": tiny.but(rate=0.1)}, 1, "a")
    monkeypatch.setitem(studies.STUDIES, "tiny", study)
    for arm in ("b", "a"):
        last = run("lab", "run", "tiny", "--arms", arm, "--runs", tmp_path, "--processes", "1")
    assert "| a | 0 of 1 |" in last.rpartition("# tiny")[2]
    assert "| b | 0 of 1 |" in last
    assert "| b | 0 of 1 |" in run("lab", "report", "tiny", "--runs", tmp_path)
    run("lab", "run", "tiny", "--seeds", "2", "--runs", tmp_path, "--processes", "1")
    assert "| b | 0 of 2 |" in run("lab", "report", "tiny", "--seeds", "2", "--runs", tmp_path)


def test_fresh_draws_new_seeds(run, tmp_path):
    arguments = ["run", "quick", "--fresh", "--seeds", "1", "--arms", "FP32", "--runs", tmp_path, *SMALL]
    said = run("lab", *arguments)
    (folder,) = tmp_path.glob("seeds-*")
    seed = folder.name.removeprefix("seeds-")
    assert seed in said
    assert (folder / "results" / "quick.json").exists()
    assert not (tmp_path / "results").exists(), "the table of the recorded seeds has the same name"
    assert "0 tasks to do" in run("lab", *[each for each in arguments if each != "--fresh"], "--first-seed", seed)


def test_after_an_interruption_fresh_seeds_can_be_continued(run, tmp_path, monkeypatch, capsys):
    """Check that the message names the drawn seed.

    A second call with --fresh would draw another seed and not continue the run.
    """
    from mxnum.cli.main import main

    asked = []

    def interrupted(*arguments, **named):
        asked.append(named["first_seed"])
        raise KeyboardInterrupt

    monkeypatch.setattr("mxnum.lab.studies.run_study.run_study", interrupted)
    arguments = ["lab", "run", "quick", "--runs", str(tmp_path)]
    assert main([*arguments, "--fresh"]) == 130
    again = ["--first-seed", str(asked[0])]
    assert f"the same command with {' '.join(again)} instead of --fresh continues" in capsys.readouterr().err
    assert main([*arguments, *again]) == 130
    assert asked[0] == asked[1]
    assert "Interrupted; the same command continues." in capsys.readouterr().err
    assert "--fresh" in run(*arguments, "--fresh", *again, status=2)


def test_unknown_machine_raises_before_anything_runs(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = run("lab", "run", "quick", "--machine", "tpu", status=2)
    names = "['cpu', 'amx', 'avx512_bf16', 'torch', 'cuda']"
    assert said == f"Error: Option --machine must be one of {names}, not 'tpu'; did you mean 'cpu'?\n"
    assert list(tmp_path.iterdir()) == []


def test_list(run):
    said = run("lab", "list")
    assert (
        "  mechanism (36 arms, 12 seeds): Which property of the rounding of gamma and beta drives the divergence?\n"
        in said
    )
    of_mlp, of_language_models = said.split("language model:\n")
    assert "  parts (8 arms, 24 seeds): Which part of a 4-bit recipe makes a run jump" in of_mlp
    assert "  logits (19 arms, 6 seeds): Does clamping of the gradient of the logits" in of_language_models
    assert "    E2M1, LN FP32" not in said
    arms = run("lab", "list", "recipes")
    assert "    recipe E2M1 even, SR gradients\n" in arms
    assert "    E2M1 even, SR gradients\n" in arms.split("language model:\n")[1]
    assert "did you mean 'recipes'" in run("lab", "list", "recipe", status=2)


def test_a_study_that_is_a_file_runs_in_a_folder_of_its_own(run, tmp_path):
    arguments = ["--seeds", "1", "--arms", "FP32, rate 0.034", "--runs", tmp_path]
    assert "| FP32, rate 0.034 | 0 of 1 |" in run("lab", "run", "parts", *arguments, *SMALL)
    assert (tmp_path / "parts" / "FP32-rate-0.034").is_dir()


def test_table_of_actions_is_not_replaced_by_the_table_of_another_arm(run, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "interventions.json").write_text('{"study": "confirm", "base": "E2M1"}')
    told = run("lab", "interventions", "--base", "LN E2M1", "--runs", tmp_path, status=2)
    message = "interventions.json' has results of the arm E2M1 in the study confirm; give another folder (--results)."
    assert message in told
    assert not (tmp_path / "width-32").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quick", "--arms", "E2M2"], "Option --arms must be one of"),
        (["run", "quick", "--set", "rat=1"], "did you mean 'rate'"),
        (["run", "quick", "--set", "rate=1", "--set", "rate=2"], "--set must give 'rate' once, not as 1 and 2"),
        (["run", "quick", "--set", "rate=fast"], "'rate' must be a number, not 'fast'"),
        (["run", "qick"], "did you mean 'quick'"),
        (["run", "quick", "--seeds", "0"], "--seeds"),
        (["interventions", "--base", "E2M2"], "did you mean 'E2M1'"),
        (["quik"], "No such command 'quik'"),
    ],
)
def test_errors(run, arguments, message):
    assert message in " ".join(run("lab", *arguments, status=2).split())

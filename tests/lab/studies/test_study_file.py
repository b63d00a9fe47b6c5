from __future__ import annotations

from pathlib import Path

import pytest

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.studies import studies, study_file
from mxnum.recipe import Operand, Recipe

TOML = """
name = "mine"
seeds = 2
[base]
width = 32
rate = 1
precision = {vector = "bfloat16"}
[arms.plain]
[arms."gamma in E2M1"]
gamma = {format = "mxfp4_e2m1", scale_rule = "rceil"}
steps = 10
betas = [0.9, 0.95]
injection = {mean = 0.5, where = "layer_norm"}
[arms.all]
uniform = "mxfp8_e4m3"
gamma = "bfloat16"
train_beta = false
"""


def read(tmp_path, text):
    (tmp_path / "some.toml").write_text(text)
    return study_file.read(tmp_path / "some.toml")


def test_a_study_from_a_file(tmp_path):
    study = read(tmp_path, TOML)
    assert (study.name, study.seeds, study.control, study.folder) == ("mine", 2, "plain", "width-32")
    arm = study.arms["gamma in E2M1"]
    assert (arm.steps, arm.rate, arm.precision.vector, arm.betas) == (10, 1, "bfloat16", (0.9, 0.95))
    assert arm.precision.gamma == Operand("mxfp4_e2m1", scale_rule="rceil")
    assert (arm.injection.mean, arm.injection.where) == (0.5, "layer_norm")
    # `uniform_precision` also rounds vector operations to bfloat16, as [base] does.
    expected = Experiment(width=32, rate=1, train_beta=False, precision=uniform_precision("mxfp8_e4m3"))
    assert study.arms["all"] == expected.but(gamma=Operand("bfloat16"))


def test_a_grid_is_every_combination(tmp_path):
    grid = "[grid]\nrate = [0.5, 0.25]\nuniform = ['mxfp8_e4m3', {format = 'mxfp4_e2m1', scale_rule = 'even'}]\n"
    study = read(tmp_path, "[arms.a]\n[arms.b]\nsteps = 3\n" + grid)
    assert len(study.arms) == 8
    arm = study.arms["b, rate 0.25, uniform mxfp4_e2m1 even"]
    assert (arm.rate, arm.steps, arm.precision.weights) == (0.25, 3, Operand("mxfp4_e2m1", scale_rule="even"))
    assert (study.name, study.control) == ("some", "a, rate 0.5, uniform mxfp8_e4m3")
    # An arm of the grid is compared with the control that has the same learning rate and precision.
    assert study.controls["b, rate 0.25, uniform mxfp4_e2m1 even"] == "a, rate 0.25, uniform mxfp4_e2m1 even"
    for control, expected in (("b", "b, rate 0.25"), ("b, rate 0.5", "b, rate 0.5")):
        study = read(tmp_path, f"control = '{control}'\n[arms.a]\n[arms.b]\n[grid]\nrate = [0.5, 0.25]\n")
        assert study.controls.get("a, rate 0.25", study.control) == expected


def test_arms_of_another_file_come_first(tmp_path):
    (tmp_path / "first.toml").write_text("[base]\nwidth = 96\n[arms.a]\nrate = 0.5\n[arms.b]\nsteps = 3\n")
    study = read(tmp_path, "arms_of = 'first'\n[base]\nwidth = 32\n[arms.c]\n[arms.b]\nsteps = 4\n")
    found = {name: (arm.width, arm.rate, arm.steps) for name, arm in study.arms.items()}
    assert found == {"a": (32, 0.5, 4000), "b": (32, 0.012, 4), "c": (32, 0.012, 4000)}
    assert study.control == "a"
    with pytest.raises(FileNotFoundError, match=r"second\.toml"):
        read(tmp_path, "arms_of = 'second'\n")


def test_uniform_is_the_operands_and_nothing_else(tmp_path):
    # Regression: an arm with `uniform` rounded vector operations to bfloat16, even if [base] did
    # not.
    arms = '[arms.plain]\n[arms.all]\nuniform = "mxfp8_e4m3"\ngamma = "float32"\nbeta = "float32"\n'
    arms += '[arms.named]\nuniform = {format = "mxfp8_e4m3", scale_rule = "rceil"}\nvector = "bfloat16"\n'
    study = read(tmp_path, "[base]\nround_activation = false\n" + arms)
    plain, every, named = (study.arms[name].precision for name in ("plain", "all", "named"))
    assert plain == Recipe(round_activation=False)
    assert every == Recipe.uniform("mxfp8_e4m3", layer_norm="float32").but(round_activation=False)
    expected = Recipe.uniform("mxfp8_e4m3", scale_rule="rceil").but(vector="bfloat16", round_activation=False)
    assert named == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[arms.plain]", "[arms.plain]\nwdith = 3"), r"^In \[arms.plain\] of file .*did you mean 'width'"),
        (("seeds = 2", "seed = 2"), "did you mean 'seeds'"),
        (("seeds = 2", "seeds = 'two'"), r"^In file .*: Argument 'seeds' must be an integer, not 'two'.$"),
        (("seeds = 2", "seeds = 0"), "^In file .*some.toml': Argument 'seeds' must be between 1"),
        (("seeds = 2", "control = 'x'"), "^In file .*some.toml': Argument 'control' must be one of"),
        (("seeds = 2", "seeds = = 2"), r"must be TOML: .* line 3"),
        (("[base]", "[base]\nlayer = 3"), "did you mean 'layers'"),
        (("width = 32", "width = 3.5"), r"^In \[base\] of .*: Argument 'width' must be an integer, not 3.5"),
        (("width = 32", "width = true"), "must be an integer, not True"),
        (("width = 32", "width = 0"), r"^In \[base\] of file .*: Argument 'width' must be between 1"),
        (("rate = 1", "rate = 'fast'"), "must be a number, not 'fast'"),
        (("rate = 1", "rate = -1"), "Argument 'rate' must be positive, not -1"),
        (("betas = [0.9, 0.95]", "betas = 0.9"), "must be a list of 2 numbers, not 0.9"),
        (("false", "0"), "'train_beta' must be True or False, not 0"),
        (
            ('where = "layer_norm"', 'where = "here"'),
            r"^In \[arms.gamma in .*'where' must be one of .*, not 'here'",
        ),
        (('format = "mxfp4_e2m1"', "form = 1"), "did you mean 'format'"),
        (('"mxfp8_e4m3"', '"mxfp8_e4m4"'), r"^In \[arms.all\] of .* did you mean 'mxfp8_e4m3'"),
        (('"mxfp8_e4m3"', "8"), "must be a format, 'float32', a mapping or an Operand, not 8"),
        (('vector = "bfloat16"', 'vector = "fp16"'), "one of \\['float32', 'bfloat16'\\], not 'fp16'"),
        (("[arms.plain]", "[arms]\nplain = 3"), "at least one table such as"),
        (("[arms.plain]", "[grid]\nrate = 3\n[arms.plain]"), "'rate' must be a list of values, not 3"),
        (
            ("[arms.plain]", "[grid]\nrates = [3]\n[arms.plain]"),
            r"^In \[grid\] for \[arms.plain\] .*mean 'rate'",
        ),
        (
            ("[arms.plain]", "[grid]\nrate = [3, 'x']\n[arms.plain]"),
            r"^In \[grid\] for \[arms.* must be a number, not 'x'",
        ),
        (("[arms.plain]", "[grid]\nrate = [-3]\n[arms.plain]"), r"^In \[grid\] for \[arms.plain\] of .*: .*'rate'"),
        (("[arms.plain]", "[grid]\nrate = [3]\n[arms.plain]\nsteps = 0"), r"^In \[arms.plain\] of .*: .*'steps'"),
        (("seeds = 2", "question = 3"), "^In file .*: Argument 'question' must be text, not 3"),
        (("[base]", "[[base]]"), r"^In file .*: Argument 'base' must be a table, not \[{'width'"),
        (("seeds = 2", "measure_above = 1"), "^In file .*: Argument 'measure_above' must be a number greater than 1"),
        (("[arms.plain]", "[arms.plain]\ncontrol = 'al'"), r"^In \[arms.plain\] of .*did you mean 'all'"),
    ],
)
def test_mistakes_in_a_file(tmp_path, change, message):
    assert change[0] in TOML
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        read(tmp_path, TOML.replace(*change))
    assert "\n" not in str(caught.value)


def test_a_file_without_arms(tmp_path):
    with pytest.raises(ValueError, match="at least one table such as"):
        read(tmp_path, "seeds = 2\n")


def test_the_example_of_the_documentation(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "lab" / "run-experiments.md").read_text()
    study = read(tmp_path, page.split("```toml\n")[1].split("```")[0])
    assert len(study.arms) == 6
    assert (study.seeds, study.control, study.folder) == (8, "plain, rate 0.012", "width-32")
    assert study.controls["E2M1 everywhere, rate 0.024"] == "plain, rate 0.024"
    assert study.arms["gamma in E2M1, rate 0.024"].precision.beta.rounding == "sr"
    assert study.arms["E2M1 everywhere, rate 0.012"].precision.weights.format == "mxfp4_e2m1"


def test_a_folder_of_something_else_is_refused(tmp_path):
    # Regression: the tables of two studies in one folder overwrote each other.
    folder = tmp_path / "mine"
    study = read(tmp_path, TOML)
    for is_there in (False, True):
        assert study_file.folders_of(study.name, folder) == (folder / "runs", folder)
        folder.mkdir(exist_ok=is_there)
    (folder / "mine.md").write_text("notes")
    with pytest.raises(ValueError, match="must be empty, or one that this command made before"):
        study_file.folders_of(study.name, folder)
    (folder / "runs").mkdir()
    assert study_file.folders_of(study.name, folder)[1] == folder


def test_first_seed_and_horizon(tmp_path):
    made = read(tmp_path, "first_seed = 70\nhorizon = 20\n[arms.plain]\nsteps = 40\n")
    assert (made.first_seed, made.horizon) == (70, 20)
    assert read(tmp_path, "[arms.plain]\n").horizon is None
    with pytest.raises(ValueError, match="'horizon' must be"):
        read(tmp_path, "horizon = 0\n[arms.plain]\n")


RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"
#: Studies whose settings are fixed. They were not run, because no GPU was available.
WAITING = ("paper-pairs",)
SETTINGS = sorted(path for path in studies.FILES.glob("mlp/*.toml") if path.stem not in WAITING)


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.stem)
def test_settings_that_were_written_down_are_those_of_the_stored_runs(path):
    study, stored = study_file.read(path), RESULTS / f"{path.stem}.json"
    assert study.name == path.stem
    table = storage.read_json(stored)
    assert table.get("horizon") == study.horizon
    for name, arm in table["arms"].items():
        assert Experiment.from_dict(arm["experiment"]) == study.arms[name]
        seeds = [run["seed"] for run in arm["runs"]]
        assert seeds == list(range(study.first_seed, study.first_seed + len(seeds)))
        # A run that was stored before it ended has fewer steps than the arm.
        assert all(0 < run["steps"] <= study.arms[name].steps for run in arm["runs"])

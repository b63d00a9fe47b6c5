import pytest

from mxnum.experiments import studies
from mxnum.experiments.config import experiment_from, to_dict
from mxnum.experiments.sweep import arm_directory


@pytest.mark.parametrize("study", studies.STUDIES.values(), ids=studies.STUDIES)
def test_a_study_is_well_made(study):
    assert study.control in study.arms
    assert {f"width-{e.width}" for e in study.arms.values()} == {study.setting}
    assert len(set(study.arms.values())) == len(study.arms), "two arms are the same"
    for experiment in study.arms.values():
        assert experiment_from(to_dict(experiment)) == experiment


def test_arms_of_one_name_are_one_experiment(tmp_path):
    # Runs lie in a folder named after the arm, whatever the study.
    folders = {}
    for study in studies.STUDIES.values():
        for name, experiment in study.arms.items():
            assert folders.setdefault(arm_directory(tmp_path / study.setting, name), (name, experiment)) == (
                name,
                experiment,
            )


def test_a_wrong_name_is_guessed():
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        studies.get("quik")


TOML = """
name = "mine"
seeds = 2
[base]
width = 32
rate = 0.01
precision = {vector = "bfloat16"}
[arms.plain]
[arms."gamma in E2M1"]
gamma = {format = "mxfp4_e2m1", scale_rule = "rceil"}
steps = 10
"""


def test_a_study_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    study = studies.from_toml(path)
    assert (study.name, study.seeds, study.control, study.setting) == ("mine", 2, "plain", "width-32")
    arm = study.arms["gamma in E2M1"]
    assert (arm.steps, arm.rate, arm.precision.vector) == (10, 0.01, "bfloat16")
    assert arm.precision.gamma.scale_rule == "rceil"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[arms.plain]", "[arms.plain]\nwdith = 3"), "did you mean 'width'"),
        (("seeds = 2", "seed = 2"), "did you mean 'seeds'"),
        (("seeds = 2", "control = 'x'"), "Argument 'control' must be one of"),
        (("[base]", "[base]\nlayer = 3"), "did you mean 'layers'"),
    ],
)
def test_mistakes_in_a_file(tmp_path, change, message):
    path = tmp_path / "mine.toml"
    path.write_text(TOML.replace(*change))
    with pytest.raises(ValueError, match=message):
        studies.from_toml(path)


def test_the_factorial_is_balanced_and_orthogonal():
    import itertools

    signs = studies.fraction()
    assert len(signs) == 16
    assert len({tuple(row) for row in signs}) == 16
    for a, b in itertools.combinations(range(6), 2):
        assert sum(row[a] for row in signs) == 0
        assert sum(row[a] * row[b] for row in signs) == 0
    # Resolution IV: no main effect is confounded with an interaction of two.
    for a, b, c in itertools.permutations(range(6), 3):
        assert abs(sum(row[a] * row[b] * row[c] for row in signs)) < 16

import pytest

from mxnum.lab.mlp.config import Experiment
from mxnum.lab.studies import studies
from mxnum.lab.studies.sweep import arm_directory


@pytest.mark.parametrize("name", studies.STUDIES)
def test_a_study_is_well_made(name):
    study = studies.get(name)
    assert study.name == name
    assert study.control in study.arms
    assert {study.own_folder or f"width-{e.width}" for e in study.arms.values()} == {study.folder}
    assert len(set(study.arms.values())) == len(study.arms), "two arms are the same"
    for experiment in study.arms.values():
        assert Experiment.from_dict(experiment.to_dict()) == experiment


def test_arms_of_one_name_are_one_experiment(tmp_path):
    # Runs of all studies lie in folders named after arms, so arms with the same name must have
    # equal settings.
    folders = {}
    for study in map(studies.get, studies.STUDIES):
        for name, experiment in study.arms.items():
            assert folders.setdefault(arm_directory(tmp_path / study.folder, name), (name, experiment)) == (
                name,
                experiment,
            )


def test_studies_that_are_files_do_not_hide_those_made_in_python():
    assert not studies.IN_PYTHON.keys() & {path.stem for path in studies.FILES.glob("mlp/*.toml")}


def test_the_list_has_every_study_with_the_arms_that_it_has():
    for name, shipped in studies.STUDIES.items():
        study = studies.get(name)
        assert studies.outline(shipped) == (study.question, study.seeds, tuple(study.arms))


def test_a_wrong_name_is_guessed():
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        studies.get("quik")


def test_the_factorial_is_balanced_and_orthogonal():
    import itertools

    signs = studies.fraction()
    assert len(signs) == 16
    assert len({tuple(row) for row in signs}) == 16
    for a, b in itertools.combinations(range(6), 2):
        assert sum(row[a] for row in signs) == 0
        assert sum(row[a] * row[b] for row in signs) == 0
    # The design has resolution IV: no main effect is confounded with an interaction of two factors.
    for a, b, c in itertools.permutations(range(6), 3):
        assert abs(sum(row[a] * row[b] * row[c] for row in signs)) < 16

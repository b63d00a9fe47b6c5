import pytest

from mxnum.lab.mlp.config import experiment_from, to_dict
from mxnum.lab.studies import studies
from mxnum.lab.studies.sweep import arm_directory


@pytest.mark.parametrize("study", studies.STUDIES.values(), ids=studies.STUDIES)
def test_a_study_is_well_made(study):
    assert study.control in study.arms
    assert {study.folder or f"width-{e.width}" for e in study.arms.values()} == {study.setting}
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

"""Tests that prove theorems of the fast tier: a sample, or all of them with ``--tier full``."""

from collections.abc import Sequence

import pytest

from proofs import ledger
from proofs.runner import OPTIONAL_MODULES, QUICK, QUICK_FAMILY, check, choose, collect, sample
from proofs.theorem import Outcome, Theorem

FAST = choose(collect().theorems.values(), "fast")
FAMILIES = ledger.families(FAST)
#: The theorems that this module proves without ``--tier full``, chosen by the times in the ledger.
#: `test_ledger` checks that the ledger's records of all theorems are up to date.
SAMPLE = sample(FAMILIES.values(), ledger.recorded_seconds())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "theorem" in metafunc.fixturenames:
        chosen = FAST if metafunc.config.getoption("tier") == "full" else SAMPLE
        metafunc.parametrize("theorem", chosen, ids=lambda theorem: theorem.name)


def test_is_proved(theorem: Theorem) -> None:
    outcome = check(theorem)
    assert outcome.verdict == "proved", outcome.detail


def test_nearly_each_family_has_its_sample() -> None:
    sampled = {theorem.name for theorem in SAMPLE}
    without = [title for title, family in FAMILIES.items() if not any(theorem.name in sampled for theorem in family)]
    assert len(without) <= len(FAMILIES) // 10, without
    assert len(SAMPLE) >= len(FAST) // 11


def some(*names: str) -> Sequence[Theorem]:
    """Return theorems with the given names and with fake checks, which always return "proved"."""
    return [Theorem(name, "So.", (), lambda: Outcome("proved", "-", 0.0)) for name in names]


def test_a_sample_has_each_part_of_the_names_but_what_takes_long() -> None:
    family, others = some("a/x/1", "a/x/2", "a/y/1", "a/y/2"), {f"b/{i}": 1.0 for i in range(9)}
    seconds = others | {theorem.name: QUICK * part / 4 for theorem, part in zip(family, (4, 3, 2, 1), strict=True)}

    def names(**changed: float) -> list[str]:
        slow = {f"a/{name.replace('_', '/')}": value for name, value in changed.items()}
        return [theorem.name for theorem in sample([family], seconds | slow)]

    assert names() == ["a/y/2", "a/y/1", "a/x/2"]
    assert names(x_2=QUICK + 0.1) == ["a/y/2", "a/y/1", "a/x/1"]
    assert names(x_1=QUICK_FAMILY, x_2=9.0, y_1=9.0, y_2=9.0) == ["a/x/1"]
    assert names(x_1=99.0, x_2=99.0, y_1=99.0, y_2=99.0) == []
    # The sample needs no theorem for a part of a name, such as "one", that only one theorem has.
    assert len(sample([some("m/one", "m/two", "m/three")], {})) == 1


@pytest.mark.parametrize("module", OPTIONAL_MODULES)
def test_states_theorems(module: str) -> None:
    if module in collect().skipped:
        pytest.skip(collect().skipped[module])

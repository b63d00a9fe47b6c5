"""The fast tier as tests, one per theorem."""

import pytest

from proofs.runner import OPTIONAL_MODULES, check, choose, collect
from proofs.theorem import Theorem

FAST = choose(collect().theorems.values(), "fast")


@pytest.mark.parametrize("theorem", FAST, ids=lambda theorem: theorem.name)
def test_is_proved(theorem: Theorem) -> None:
    outcome = check(theorem)
    assert outcome.verdict == "proved", outcome.detail


@pytest.mark.parametrize("module", OPTIONAL_MODULES)
def test_states_theorems(module: str) -> None:
    if module in collect().skipped:
        pytest.skip(collect().skipped[module])

"""Tests of claim M7 on tensors made as the paper describes, and on tensors of models."""

from __future__ import annotations

from mxnum.lab.claims.rows import m07
from tests.lab.claims.made_up import store


def test_block_organisation(held):
    """Check that claim M7 holds for tensors like the paper's.

    In small models, the claim must not hold for activations or gradients.
    """
    found = held("M7")
    assert list(found.values())[:5] == [True] * 5
    of_models = {what: holds for what, holds in found.items() if "language model" in what}
    assert len(of_models) == 9
    assert not any(holds for what, holds in of_models.items() if not what.startswith("weights"))


def test_organisation_in_language_models(context):
    assert list(m07.of_language_models(context)) == []
    of = {"row": 0.1, "column": 0.2, "tile": 0.15}
    runs = [{"organisations": {"activations": of, "gradients": dict.fromkeys(of, 0.1), "weights": of}}]
    store(context, "organisation", {"Markov source": {"runs": runs}})
    found = list(m07.of_language_models(context))
    assert [s.holds for s in found] == [True, True, False]
    assert found[0].numbers == "R-MSE row 0.1000, column 0.2000, tile 0.1500"

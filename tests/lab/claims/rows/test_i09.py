"""Tests of claim I9 on the published losses, and on changed losses with other results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxnum.lab.claims import Verdict, reproduce
from mxnum.lab.claims.rows import i09
from tests.lab.claims.made_up import arm, lm_recipes, store


def test_statements_and_figures_on_the_published_losses(checked):
    i9 = checked("I9")
    assert i9.verdict == Verdict.UNDECIDED  # no loss was published for 4.8e19 FLOP
    assert [s.holds for s in i9.evidence.statements] == [True] * 5 + [None] + [True] * 6
    assert all(c.agrees for c in i9.evidence.comparisons)
    matching = i9.evidence.statements[4].numbers
    for figure in ("over 80 sizes is +0.0005", "E4M3 throughout +0.0231", "E5M2 throughout +0.0630"):
        assert figure in matching
    note = i9.evidence.note
    assert "13 of 13 at 2.2e+19" in note
    assert "12 of 17 arms recorded both a final and a least loss" in note
    assert "11 of these go astray, bf16 among them (final loss 2.317, least 1.043" in note
    assert "At 25 sizes, models with E5M2 weights and bf16 activations were trained twice from the same seed" in note
    assert "The two least losses are equal at 20 of these sizes" in note


def test_a_mitigated_run_that_went_astray_elsewhere_would_be_seen(altered):
    def change(run):
        elsewhere = run.arm == "fp8_e4m3_bfloat16" and run.cell == (192268160, 3963879424)
        return replace(run, final=run.least + 0.03) if elsewhere else run

    altered(change)
    first = reproduce(["I9"])["I9"].evidence.statements[0]
    assert first.holds is False
    assert first.numbers.startswith("2 of 80 runs go astray")
    assert "bf16 goes astray too at the sizes (parameters and tokens) of 1 of them" in first.numbers


def test_added_gap_is_noticed(altered):
    altered(lambda run: replace(run, least=run.least + 0.004) if run.arm == "fp8_e4m3_bfloat16" else run)
    assert reproduce(["I9"])["I9"].evidence.statements[4].holds is False


def test_statements_about_our_language_models(context):
    pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
    assert i09.of_our_own(context) == []
    store(context, "recipes", lm_recipes())
    arms = {"E5M2": arm(0.2), "E5M2 forward only": arm(0.15), "E5M2 weights alone, bf16 activations": arm(0)}
    store(context, "recipes-converged", lm_recipes(**arms))
    assert [s.holds for s in i09.of_our_own(context)] == [True, False, True, False, False, True]

"""I9 and I10 from the published losses: the figures, and that other losses would have given other answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum.lab.claims import Verdict, language, losses, reproduce


@pytest.fixture(scope="module")
def i10(checked):
    return checked("I10")


@pytest.fixture(scope="module")
def i9(checked):
    return checked("I9")


@pytest.fixture
def altered(monkeypatch):
    """Makes the check see other runs."""

    def alter(change):
        changed = tuple(change(run) for run in losses.runs())
        monkeypatch.setattr(losses, "runs", lambda: changed)
        language.fit.cache_clear()

    yield alter
    language.fit.cache_clear()


def test_the_released_fit_comes_out_again(i10):
    assert len(i10.evidence.comparisons) == 6
    assert all(c.agrees for c in i10.evidence.comparisons)
    law = language.fit("fp8_e4m3_bfloat16", all_runs=True).law
    np.testing.assert_allclose(
        [law.A, law.B, law.E, law.alpha, law.beta],
        [2822.480604261686, 20445.40765376697, 0.5353079817554266, 0.5236196803588452, 0.5533511883618424],
        rtol=1e-6,
    )  # the notebook's, in float32


def test_laws_come_back(i10):
    assert i10.verdict == Verdict.REPRODUCED
    assert [s.holds for s in i10.evidence.statements] == [True] * 6
    assert "by the final loss it rises with tokens: beta -3.8" in i10.evidence.statements[-1].numbers
    for caveat in ("A = 2907", "39 of the 80", "35 of the 35", "at 2.2e+19", "1.991 times", "alpha 0.493 for 0.502"):
        assert caveat in i10.evidence.note


def test_a_mitigated_arm_that_misses_its_law_would_be_seen(altered):
    rng = np.random.default_rng(1)

    def change(run):
        if run.arm != "fp8_e5m2_fp8_e5m2_quantize_only_fwd":
            return run
        return replace(run, least=run.least * float(np.exp(0.03 * rng.standard_normal())))

    altered(change)
    valid, _ = language._validity("fp8_e5m2_fp8_e5m2_quantize_only_fwd")
    assert not valid


def test_runs_end_where_they_were_least(i9):
    assert i9.verdict == Verdict.UNDECIDED  # nothing was published at 4.8e19 FLOP
    assert [s.holds for s in i9.evidence.statements] == [True] * 5 + [None] + [True] * 6
    assert all(c.agrees for c in i9.evidence.comparisons)
    matching = i9.evidence.statements[4].numbers
    for figure in ("over 80 sizes +0.0005", "E4M3 throughout +0.0231", "E5M2 throughout +0.0630"):
        assert figure in matching
    note = i9.evidence.note
    assert "13 of 13 at 2.2e+19" in note
    assert "goes astray in 11 of the 12 arms" in note
    assert "2.317 at the end, 1.043 at least" in note
    assert "25 sizes of E5M2 with bf16 were run twice from the same seed: 20 end alike" in note


def test_a_mitigated_run_that_went_astray_elsewhere_would_be_seen(altered):
    def change(run):
        elsewhere = run.arm == "fp8_e4m3_bfloat16" and run.cell == (192268160, 3963879424)
        return replace(run, final=run.least + 0.03) if elsewhere else run

    altered(change)
    first = reproduce(["I9"])["I9"].evidence.statements[0]
    assert first.holds is False
    assert first.numbers.startswith("2 of 80 do")
    assert "1 where bf16 does" in first.numbers


def test_a_gap_would_be_seen(altered):
    altered(lambda run: replace(run, least=run.least + 0.004) if run.arm == "fp8_e4m3_bfloat16" else run)
    assert reproduce(["I9"])["I9"].evidence.statements[4].holds is False


def test_mean_interval():
    mean, low, high = language.mean_interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert 1 <= low < mean < high <= 4
    assert language.mean_interval([2.0, 2.0]) == (2, 2, 2)

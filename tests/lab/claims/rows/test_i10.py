"""Tests of claim I10 on the published losses, and of its study of model sizes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from mxnum.lab.claims import (
    Verdict,
)
from mxnum.lab.claims.rows import (
    i10,
)
from mxnum.lab.theory import ScalingLaw


@pytest.mark.full
def test_the_released_fit_comes_out_again(checked):
    found = checked("I10").evidence
    assert len(found.comparisons) == 6
    assert all(c.agrees for c in found.comparisons)
    law = i10.fit("fp8_e4m3_bfloat16", all_runs=True).law
    np.testing.assert_allclose(
        [law.A, law.B, law.E, law.alpha, law.beta],
        [2822.480604261686, 20445.40765376697, 0.5353079817554266, 0.5236196803588452, 0.5533511883618424],
        rtol=1e-6,
    )  # from the published notebook, which computes the loss in float32


@pytest.mark.full
def test_statements_and_figures_on_the_published_losses(checked):
    entry = checked("I10")
    assert entry.verdict == Verdict.REPRODUCED
    assert [s.holds for s in entry.evidence.statements] == [True] * 6
    assert "predicts that the loss rises with tokens (beta -3.8" in entry.evidence.statements[-1].numbers
    for caveat in (
        "A = 2907",
        "39 of the 80",
        "at 35 of their sizes. At 35 of these sizes, E4M3 throughout has the higher loss",
        "at 2.2e+19",
        "1.991 times",
        "alpha is 0.493 instead of 0.502",
    ):
        assert caveat in entry.evidence.note


def test_a_mitigated_arm_that_misses_its_law_would_be_seen(altered):
    rng = np.random.default_rng(1)

    def change(run):
        if run.arm != "fp8_e5m2_fp8_e5m2_quantize_only_fwd":
            return run
        return replace(run, least=run.least * float(np.exp(0.03 * rng.standard_normal())))

    altered(change)
    valid, _ = i10.validity("fp8_e5m2_fp8_e5m2_quantize_only_fwd")
    assert not valid


def test_ladder_of_model_sizes(context):
    """Check the text about a made-up study, in which E4M3 adds 2 % to the loss at every size."""
    assert i10.ladder(context) == ""
    law, random = ScalingLaw(A=20, B=900, E=2.3701, alpha=0.5, beta=0.6), np.random.default_rng(3)
    lines = ["arm,seed,parameters,tokens,loss"]
    arms = ["float32", "bfloat16", "E4M3", '"E4M3 weights alone, bf16 activations"', '"E2M1 rceil, SR gradients"']
    for arm, seed, n, d in product(arms, range(2), (2e3, 6e3, 2e4, 6e4), (1e5, 2e5, 4e5, 8e5)):
        loss = law(n, d) * (1.02 if arm == "E4M3" else 1) * math.exp(0.0005 * random.standard_normal())
        lines.append(f"{arm},{seed},{n:.0f},{d:.0f},{loss}")
    (context.results / "language").mkdir()
    (context.results / "language" / "ladder.csv").write_text("\n".join(lines))
    text = i10.ladder(context)
    assert "5 recipes, 32 runs of each, with 2,000 to 60,000 parameters and 100,000 to 800,000 tokens" in text
    assert re.search(r"the law of E4M3 \(E is \S+\) differs from the law of bfloat16", text)
    assert re.search(
        r"the law of E4M3 weights alone, bf16 activations \(E is \S+\) cannot be distinguished from the law of "
        r"bfloat16",
        text,
    )
    low, high = (float(part) for part in re.search(r"interval (\S+) to ([\d.]+)\)", text).groups())
    assert low < 2.3701 < high

    four_bits = [lines[0]]
    four_bits += [line.replace("float32", "E2M1", 1) for line in lines if line.startswith("float32,")]
    four_bits += [line.replace("E4M3,", '"E2M1 even, SR gradients",', 1) for line in lines if line.startswith("E4M3,")]
    (context.results / "language" / "ladder-four-bits.csv").write_text("\n".join(four_bits))
    text = i10.ladder(context)
    assert "7 recipes, 32 runs of each" in text
    assert re.search(r"the law of E2M1 \(E is \S+\) cannot be distinguished from the law of bfloat16", text)
    assert re.search(r"the law of E2M1 even, SR gradients \(E is \S+\) differs from the law of bfloat16", text)

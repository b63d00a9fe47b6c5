"""I6b: E4M3 makes divergence more likely."""

from __future__ import annotations

import math
from typing import Any

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement
from mxnum.lab.claims.mlp_runs import hazard_of_e4m3, none_away, over_rates, settings
from mxnum.lab.studies.statistics import compare

CLAIM = Claim(
    "I6b",
    "E4M3 makes divergence more likely",
    "Quantization to MXFP8 E4M3 makes runs diverge that would not diverge in FP32, so the hazard of a jump is "
    "higher than in FP32.",
    BY_TRAINING,
    "About 19 pairs of runs at the paper's size would decide the claim at that size.",
    needs=("hazard.json",),
    command="mxnum lab sweep hazard --out hazard",
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("hazard.json")
    statements = [hazard_of_e4m3(table)]
    if context.has("recovery.json"):
        never, numbers = none_away(context.json("recovery.json"), "E4M3")
        statements.append(
            Statement("E4M3 runs away in the small MLP, at rate 0.024", False if never else None, numbers)
        )
    runs, fp32 = paper_size.in_e4m3(context)
    if runs:
        jump, of_fp32 = paper_size.jumping(runs), paper_size.jumping(fp32)
        # If both formats have the same hazard, the probability that a jump is in E4M3 equals E4M3's
        # share of all steps before jumps.
        ours = sum(min(run.steps, run.horizon) if run.first is None else run.first for run in runs)
        theirs = sum(run.steps if not run.excursions else run.excursions[0].start for run in fp32)
        numbers = (
            f"the loss jumps in {jump} of {len(runs)} runs in E4M3, and in {of_fp32} of {len(fp32)} runs in FP32; "
            "if both formats had the same hazard, the probability that all jumps are in E4M3 would be "
            f"{(ours / (ours + theirs)) ** jump:.1g}"
        )
        statements.append(Statement(f"E4M3 jumps more often than FP32, {paper_size.WHERE}", None, numbers))
    ratio = compare(over_rates(table, "E4M3")).ratio
    answer, number = "", ""
    if ratio is not None and statements[0].holds is False:
        answer = (
            f"In the small MLP E4M3 does not raise the hazard of a jump by more than {100 * (ratio[2] - 1):.0f} % "
            f"(upper "
            "95 % limit, three learning rates pooled). At the paper's size the claim is undecided."
        )
        number = "hazard ratio {:.2f} ({:.2f} to {:.2f})".format(*ratio)
    note = f"The hazard ratio is pooled over learning rates, although it differs between rates: {_by_rate(table)}."
    return Evidence((), statements, note, settings(table), answer, number)


def _by_rate(table: dict[str, Any]) -> str:
    parts = []
    for pair in over_rates(table, "E4M3"):
        test, rate = compare([pair]), pair[0].name.rpartition(", ")[2]
        ratio = math.nan if test.ratio is None else test.ratio[0]
        parts.append(f"{rate} {ratio:.2f} (p {1.0 if test.p is None else test.p:.2g})")
    return ", ".join(parts)

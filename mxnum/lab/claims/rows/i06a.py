"""I6a: E4M3 diverges at the paper's size."""

from __future__ import annotations

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, counted, ours
from mxnum.lab.claims.mlp_runs import command

CLAIM = Claim(
    "I6a",
    "E4M3 diverges at the paper's size",
    "A residual MLP that is stable in FP32 diverges in MXFP8 E4M3 from the same seed, initialization and batches.",
    BY_TRAINING,
    "Fresh pairs of runs at d = 512, 4 layers, batch 2048, rate 6e-4, to 12,000 steps: two hours of a core each. "
    "They decide how often it happens.",
    needs=(paper_size.FILE,),
    command=command("paper-scale"),
)


@CLAIM.check
def at_the_size_of_the_paper(context: Context) -> Evidence:
    """Look for runs in E4M3 that jump within the planned steps while FP32 on the same seed stays calm."""
    jumps = paper_size.jumps(context)
    holds = True if jumps.beside_calm else None if jumps.e4m3 else False
    statements = [
        Statement(
            f"a run in E4M3 jumps where FP32 on the same seed does not, {paper_size.WHERE}",
            holds,
            f"{jumps.beside_calm} of {jumps.runs} runs in E4M3 and its variants, within {jumps.steps:,} steps",
        )
    ]
    statements += ours(
        Statement(f"E2M1 jumps there on every seed, FP32 on none, {paper_size.WHERE}", jumps.e2m1_always, jumps.e2m1)
    )
    answer = (
        f"It happens: in {jumps.beside_calm} of {jumps.runs} planned runs in E4M3 the loss jumps where FP32 stays "
        f"calm; how often, and whether E4M3 causes it, {counted(jumps.of, 'run')} of FP32 cannot tell."
    )
    note = f"An excursion is a loss above 20 times the least running median. By arm: {jumps.by_arm}."
    configuration = {"study": "paper-scale", "seeds": jumps.seeds}
    number = f"{jumps.beside_calm} of {jumps.runs} against {jumps.fp32} of {jumps.of}"
    return Evidence((), statements, note, configuration, answer if holds else "", number)

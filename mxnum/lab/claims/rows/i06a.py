"""I6a: E4M3 diverges at the paper's size."""

from __future__ import annotations

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, counted, ours
from mxnum.lab.claims.mlp_runs import command
from mxnum.lab.studies.excursions import Course

CLAIM = Claim(
    "I6a",
    "E4M3 diverges at the paper's size",
    "A residual MLP that is stable in FP32 diverges in MXFP8 E4M3 with the same seed, initial weights and batches.",
    BY_TRAINING,
    "Fresh pairs of runs at d = 512, 4 layers, batch 2048, rate 6e-4, for 12,000 steps would decide how often E4M3 "
    "diverges. Each run takes two hours on one core.",
    needs=(paper_size.FILE,),
    command=command("paper-scale"),
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    arms, (runs, fp32) = paper_size.planned(context), paper_size.in_e4m3(context)
    controls, e2m1 = {run.seed: run for run in fp32}, arms.get("E2M1", [])
    beside = sum(run.first is not None and _is_calm_to(controls.get(run.seed), run.first) for run in runs)
    jump, of_fp32, steps = paper_size.jumping(runs), paper_size.jumping(fp32), max((r.horizon for r in runs), default=0)
    first = Statement(
        f"the loss of a run in E4M3 jumps, and the loss of the FP32 run on the same seed does not, {paper_size.WHERE}",
        True if beside else None if jump else False,
        f"this happens in {beside} of {len(runs)} runs in E4M3 or a variant of it, within {steps:,} steps",
    )
    always = paper_size.jumping(e2m1) == len(e2m1) >= paper_size.SEEDS and bool(fp32) and not of_fp32
    counts = f"{paper_size.described(e2m1)}; FP32: {paper_size.described(fp32)}" if e2m1 else "not run"
    second = Statement(
        f"the loss jumps in E2M1 on every seed and in FP32 on none, {paper_size.WHERE}", always or None, counts
    )
    answer = (
        f"E4M3 can diverge: the loss jumps in {beside} of {len(runs)} planned runs in E4M3, but not in the FP32 "
        f"run on the same seed. With only {counted(len(fp32), 'run')} in FP32, the study cannot show how often "
        "this happens, or whether E4M3 is the cause."
    )
    by_arm = "; ".join(
        f"{name} {paper_size.described(of)}" for name, of in arms.items() if name not in ("FP32", "E2M1")
    )
    note = f"An excursion starts at a loss above 20 times the least running median so far. Runs of each arm: {by_arm}."
    configuration = {"study": "paper-scale", "seeds": sorted({run.seed for run in runs})}
    number = f"{beside} of {len(runs)} against {of_fp32} of {len(fp32)}"
    return Evidence((), [first, *ours(second)], note, configuration, answer * bool(beside), number)


def _is_calm_to(run: Course | None, step: int) -> bool:
    return run is not None and run.steps > step and not any(e.start <= step for e in run.excursions)

"""I7: interventions avert or delay the divergence."""

from __future__ import annotations

from typing import Any

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, counted
from mxnum.lab.studies import interventions, report
from mxnum.output import palette

CLAIM = Claim(
    "I7",
    "Interventions avert or delay the divergence",
    "Changes to a run shortly before it diverges avert or delay the divergence: higher precision in layer norm or "
    "activations, no quantization in the backward pass, and others.",
    BY_TRAINING,
    "Restarts of the run of row I6a from its checkpoints would decide the claim: restarts with one change each, and "
    "controls with no change or only a perturbation.",
    needs=("interventions.json",),
    command="mxnum lab interventions --study small --base E2M1 --seeds 10 --watch 800 --perturbed 2 "
    "--results docs/lab/results",
)
#: The level of significance, and the number of seeds below which the claim is undecided.
LEVEL, FEWEST = 0.05, 10
CLAIMED = ("LN in FP32", "activations bfloat16, everywhere", "activations bfloat16, forward")


@CLAIM.check
def _check(context: Context) -> Evidence:
    """Judge if interventions at a checkpoint (such as higher precision) delay the rise of the loss.

    The controls are runs whose parameters were changed by one part in a million. An exact sign-flip
    test compares the delays with zero. The verdict needs at least `FEWEST` seeds and a p-value
    below `LEVEL`, after Holm's correction over all interventions.
    """
    table = context.json("interventions.json")
    statements, delays = [], []
    for row in interventions.rows(table):
        if row.name in CLAIMED and row.p is not None and row.delay is not None:
            delays.append((row.delay[0], row.name, row.p))
            sure = row.arm.runs >= FEWEST and row.p < LEVEL
            what = f'"{row.name}" averts or delays the rise of the loss'
            statements.append(Statement(what, row.delay[0] > 0 if sure else None, row.numbers))
    statements.append(at_the_size_of_the_paper(context))
    seeds = [s["seed"] for s in table["seeds"]]
    note = (
        f"A verdict needs at least {FEWEST} seeds and a significant delay: an exact sign-flip test at the level "
        f"{LEVEL:.0%}, after Holm's correction over all interventions. {len(seeds)} seeds were used; two of them were "
        f"added after the first results were seen. Runs continue only for {table['plan']['watch']} steps, so it is not "
        "known whether the loss would have come back by itself without the change. A switch of precision during a run "
        "is itself a disturbance."
    )
    configuration = {"study": table["study"], "base": table["base"], "seeds": seeds, **table["plan"]}
    delay, name, p = max(delays, default=(0.0, "", 1.0))
    answer = (
        f"Undecided in the small MLP and at the paper's size: {len(seeds)} seeds of the small MLP were tried ({FEWEST} "
        f"are "
        f"needed). In {table['base']} the longest delay is {delay:.0f} steps, with {name} (p {p:.2g} after "
        f"Holm)."
    )
    open_ = bool(delays) and all(s.holds is None for s in statements)
    number = f"{name}: p {p:.2g}" if delays else ""
    return Evidence((), statements, note, configuration, answer if open_ else "", number)


def at_the_size_of_the_paper(context: Context) -> Statement:
    """Count the runs at the paper's size whose loss rose after each intervention.

    The statement has no verdict.
    """
    if context.has("paper-scale/interventions.json"):
        acted = context.json("paper-scale/interventions.json")
        listed = "; ".join(map(_acted, interventions.rows(acted)))
        numbers = (
            f"{counted(len(acted['seeds']), 'seed')}; runs whose loss rose within {acted['plan']['watch']} steps "
            f"after each intervention: {listed}"
        )
        return Statement(
            f"interventions avert or delay the rise of the loss in {acted['base'].removeprefix(paper_size.PREFIX)}, "
            f"{paper_size.WHERE}",
            None,
            numbers,
        )
    table = paper_size.table(context)
    runs = [run for name in table["arms"] if name != paper_size.CONTROL for run in report.courses(table, name)]
    calm = bool(runs) and not any(run.counted for run in runs)
    numbers = f"no rise to avert: none of {counted(len(runs), 'run')} had an excursion" if calm else "not run"
    return Statement(f"interventions avert or delay the rise of the loss, {paper_size.WHERE}", None, numbers)


def _acted(row: interventions.Row) -> str:
    after = row.arm.median_time()
    return f"{row.name} {row.arm.events} of {row.arm.runs}" + ("" if after is None else f" (after {after:.0f})")


@CLAIM.figure(3.6)
def _draw(ax: Any, context: Context) -> str | None:
    if not context.has("interventions.json"):
        return None
    rows = interventions.rows(context.json("interventions.json"))[::-1]
    colours = [palette.COLOURS[6 if row.reading == "control" else 0] for row in rows]
    ax.barh([row.name for row in rows], [row.arm.events / row.arm.runs for row in rows], color=colours, height=0.6)
    ax.set(xlim=(0, 1), xlabel="share of runs whose loss rose")
    ax.tick_params(axis="y", labelsize=8)
    return (
        "For each change that was made shortly before a rise of the loss: the share of runs whose loss rose "
        "nevertheless. Black: controls."
    )

"""Checks that rest on training runs of `mxnum.lab.mlp`: I5, I7, I8, and B3, whose short run is made here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum.lab.claims import judged, paper_size
from mxnum.lab.claims.evidence import Evidence, Statement, Whose
from mxnum.lab.claims.registry import Context, check
from mxnum.lab.mlp import Experiment, Training
from mxnum.lab.mlp.loop import one_blas_thread
from mxnum.lab.mlp.operands import affine
from mxnum.lab.studies import interventions, report
from mxnum.lab.studies.inference import compare, corrected, mean_interval, sign_flip
from mxnum.lab.theory import dead_zone, dwell
from mxnum.recipe import Operand, Recipe

#: A difference between arms counts at this level after Holm's correction over the statements of a row.
LEVEL = 0.01
#: I7 acts on few seeds: its level, and the number of seeds below which it is undecided.
ACTION_LEVEL, FEWEST = 0.05, 10
#: What is said of the others is ours.
_OF_THE_PAPER = "E4M3"


def _run(study: str) -> str:
    return f"mxnum lab run {study} --results docs/lab/results"


def _whose(arm: str) -> Whose:
    return Whose.PAPER if arm == _OF_THE_PAPER else Whose.OURS


def settings(table: dict[str, Any]) -> dict[str, Any]:
    """The settings that all arms share."""
    arms = list(table["arms"].values())
    keys = ("width", "layers", "batch", "rate", "steps", "optimizer", "activation")
    shared = {k: arms[0]["experiment"][k] for k in keys if len({arm["experiment"][k] for arm in arms}) == 1}
    return {"study": table["study"], **shared, "seeds": [r["seed"] for r in arms[0]["runs"]]}


@check("I5", needs=(("confirm.json", "quick.json"),), command=_run("confirm"))
def zeta_grows(context: Context) -> Evidence:
    """The measured zeta early and late in each run, and at the last look before a rise of the loss.

    It grows if the exact sign-flip test of the logarithms, run by run, says so at `LEVEL`; it is of order 2 if the 95 %
    limits of its geometric mean lie between 1 and 4, and not if they lie outside.
    """
    table = context.first("confirm.json", "quick.json")
    statements, grown = [], {}
    for arm in ("E2M1", "LN E2M1", "E4M3"):
        if arm not in table["arms"]:
            continue
        growth, last = [], []
        for run in table["arms"][arm]["runs"]:
            stop = run["steps"] if run["diverged"] is None else run["diverged"]
            pairs = zip(run["measured_at"], run["measured"]["zeta"], strict=True)
            zeta = [z for at, z in pairs if z is not None and 0 < at <= stop]
            if len(zeta) >= 4:
                growth.append(math.log(np.mean(zeta[-2:]) / np.mean(zeta[:2])))
                if run["diverged"] is not None:
                    last.append(math.log(zeta[-1]))
        if not growth:
            continue
        p, mean = sign_flip(growth), math.exp(np.mean(growth))
        numbers = f"by the factor {mean:.2f}, in {sum(g > 0 for g in growth)} of {len(growth)} runs, exact p {p:.2g}"
        holds = mean > 1 if p < LEVEL else None
        grown[arm] = holds, mean, p
        whose = _whose(arm)
        statements.append(Statement(f"{arm}: zeta grows during training", holds, numbers, whose))
        limits = mean_interval(last)
        if limits is not None:
            centre, low, high = (math.exp(v) for v in limits)
            inside, outside = low >= 1 and high <= 4, high < 1 or low > 4
            statements.append(
                Statement(
                    f"{arm}: before the loss rises zeta is of order 2 (here: between 1 and 4)",
                    True if inside else False if outside else None,
                    f"geometric mean {centre:.2f} (95 %: {low:.2f} to {high:.2f}) over {len(last)} runs at their last "
                    "look before it, one in 250 steps",
                    whose,
                )
            )
    statements += paper_size.growth(context)
    note = "zeta is the lower bound |g~ - g| / |g| on the same parameters and batch; the released code logs its square."
    answer, number = _of_growth(grown, statements) if grown else ("", "")
    return Evidence((), tuple(statements), note, settings(table), answer, number)


def _of_growth(grown: dict[str, tuple[bool | None, float, float]], statements: list[Statement]) -> tuple[str, str]:
    """Return in which formats zeta grows, what is undecided, and the number of the paper's format."""
    words, topics = {True: "grows in", False: "shrinks in", None: "shows no clear change in"}, []
    for sure, text in words.items():
        arms = [f"{arm} (factor {mean:.2f})" for arm, (holds, mean, _) in grown.items() if holds is sure]
        topics += [f"{text} {' and '.join(arms)}"] if arms else []
    parts = {"growth at the paper's size": paper_size.WHERE, "whether it is of order 2 before a rise": "order 2"}
    undecided = [part for part, what in parts.items() if any(what in s.what and s.holds is None for s in statements)]
    arm = _OF_THE_PAPER if _OF_THE_PAPER in grown else next(iter(grown))
    answer = (
        f"In the toy zeta, the relative error of the gradient, {', '.join(topics)}."
        + f" Undecided: {' and '.join(undecided)}." * bool(undecided)
    )
    return answer, f"{arm}: factor {grown[arm][1]:.2f}, p {grown[arm][2]:.2g}"


@check(
    "I7",
    needs=("interventions.json",),
    command="mxnum lab interventions --study small --base E2M1 --seeds 10 --watch 800 --perturbed 2 "
    "--results docs/lab/results",
)
def actions(context: Context) -> Evidence:
    """Each action from a checkpoint against controls whose parameters were changed by one part in a million.

    Decided by the exact sign-flip test of the delays, seed by seed, after Holm's correction over all actions, from
    `FEWEST` seeds on.
    """
    table = context.json("interventions.json")
    claimed = ("LN in FP32", "activations bfloat16, everywhere", "activations bfloat16, forward")
    statements, delays = [], []
    for row in interventions.rows(table):
        if row.name in claimed and row.p is not None and row.delay is not None:
            delays.append((row.delay[0], row.name, row.p))
            sure = row.arm.runs >= FEWEST and row.p < ACTION_LEVEL
            what = f"{row.name}: averts or delays the rise of the loss"
            statements.append(Statement(what, row.delay[0] > 0 if sure else None, row.numbers))
    statements.append(paper_size.actions(context))
    seeds = [s["seed"] for s in table["seeds"]]
    note = (
        f"Decided from {FEWEST} seeds on, by the exact sign-flip test of the delays at the level of {ACTION_LEVEL:.0%} "
        f"after Holm's correction over all actions; {len(seeds)} seeds were acted on, two of them added after a look. "
        "Runs were watched for a while only: whether an action averts a rise that would have come back by itself, or "
        "one that would not, is not known. A switch of precision in the middle of a run is a shock of its own."
    )
    configuration = {"study": table["study"], "base": table["base"], "seeds": seeds, **table["plan"]}
    delay, name, p = max(delays, default=(0.0, "", 1.0))
    answer = (
        f"Undecided in the toy and at the paper's size: of the toy {len(seeds)} seeds were tried ({FEWEST} are "
        f"needed). In {table['base']} the longest delay is {delay:.0f} steps, with {name} (p {p:.2g} after Holm)."
    )
    open_ = bool(delays) and all(s.holds is None for s in statements)
    number = f"{name}: p {p:.2g}" if delays else ""
    return Evidence((), tuple(statements), note, configuration, answer if open_ else "", number)


@check("I8", needs=("ablations.json",), command=_run("ablations"))
def ablations(context: Context) -> Evidence:
    """E2M1 against FP32 for each activation, with and without layer norm."""
    table = context.json("ablations.json")
    pairs = {
        "gelu with layer norm: E2M1 has excursions sooner than FP32": ("gelu, E2M1", "gelu, FP32"),
        "swiglu with layer norm: E2M1 has excursions sooner than FP32": ("swiglu, E2M1", "swiglu, FP32"),
        "with layer norm SwiGLU is the most unstable in MX": ("swiglu, E2M1", "gelu, E2M1"),
        "gelu without layer norm: FP32 has excursions sooner than E2M1": ("gelu, no LN, FP32", "gelu, no LN, E2M1"),
        "swiglu without layer norm: FP32 has them sooner than E2M1": ("swiglu, no LN, FP32", "swiglu, no LN, E2M1"),
    }
    arms = {what: pair for what, pair in pairs.items() if set(pair) <= set(table["arms"])}
    times = {what: (report.arm_of(table, a), report.arm_of(table, b)) for what, (a, b) in arms.items()}
    found = corrected({what: compare([pair]) for what, pair in times.items()})
    statements = []
    for what, test in found.items():
        a, b = times[what]
        comparable = report.is_followed(table) or "without" not in what
        sure = comparable and test.corrected_p is not None and test.corrected_p < LEVEL
        numbers = f"{a.events} of {a.runs} runs against {b.events} of {b.runs}, {test}"
        numbers += "" if comparable else "; a hundredfold rise is still below 0.02 there, so these are not excursions"
        statements.append(Statement(what, test.comes_sooner if sure else None, numbers))
    statements.append(paper_size.variants(context))
    normed = [
        f"{a.events} of {a.runs} runs with {what.split()[0]} (FP32 {b.events})"
        for what, (a, b) in times.items()
        if "with layer norm: E2M1" in what
    ]
    p = min((test.p for test in found.values() if test.p is not None), default=1.0)
    answer = (
        f"With layer norm E2M1 jumps in {' and in '.join(normed)}. Undecided: whether any of {len(found)} comparisons "
        "is a difference, and E4M3 at the paper's size."
    )
    open_ = bool(normed) and all(s.holds is None for s in statements)
    return Evidence(
        statements=tuple(statements), note=report.note(table), configuration=settings(table),
        answer=answer if open_ else "", number=f"least p {p:.2g}",
    )  # fmt: skip


def clamped_block(steps: int = 260, rate: float = 1e-3, seed: int = 1) -> dict[str, Any]:
    """A run whose gamma starts in E4M3's clamped range: masters and quantized values of a block that leaves it."""
    e4m3 = Operand("mxfp8_e4m3")
    precision = Recipe(gamma=e4m3, beta=e4m3, vector="bfloat16")
    training = Training(Experiment(rate=rate, gamma_start=(0.90, 0.95), precision=precision), (seed,))
    masters, values, losses = [], [], []
    with one_blas_thread():
        for step in range(steps):
            gamma = training.network.parameters.gamma
            masters.append(gamma[0, 0, 32:].copy())
            values.append(affine(gamma, e4m3, (seed,), step, 0)[0, 0, 32:])
            losses.append(float(training.advance()[0]))
    master, value = np.array(masters), np.array(values)
    crossing = int(np.argmax(master.max(axis=1) >= 1)) if (master.max(axis=1) >= 1).any() else None
    return {"master": master, "value": value, "losses": np.array(losses), "crossing": crossing, "rate": rate}


@check("B3")
def dead_zone_in_a_run(context: Context) -> Evidence:
    """Dwell and jump of a clamped block of a real run against the prediction."""
    context.tell("training a residual MLP with gamma in E4M3")
    with one_blas_thread():
        run, zone = clamped_block(), dead_zone("mxfp8_e4m3")
    context.keep("clamped-block", {name: run[name] for name in ("master", "value", "losses")})
    crossing, master, value = run["crossing"], run["master"], run["value"]
    if crossing is None:
        return Evidence(statements=(Statement("the block leaves its dead zone within the run", False),))
    before, after = value[crossing - 1], value[crossing]
    still, moved = bool((value[:crossing] == 0.875).all()), float(np.abs(np.diff(master[:crossing], axis=0)).max())
    predicted = np.array([_after(zone.jumps, float(x)) for x in master[crossing]])
    jump, drift = float(after.mean() / before.mean() - 1), float(np.abs(master[crossing] - master[crossing - 1]).max())
    least = dwell(float(master[0].max()), 1.0, run["rate"])
    statements = (
        Statement(
            "while its largest weight is below 1 the block reads 0.875 throughout, although its weights keep moving",
            still,
            f"{crossing} steps; weights moved by up to {moved:.1g} a step",
        ),
        Statement(
            "it takes at least (1 - largest) / rate steps, the dwell of Adam with a gradient of constant sign",
            crossing >= least,
            f"{crossing} against {least}",
        ),
        Statement(
            "at the crossing every element takes the predicted value",
            bool(np.array_equal(after, predicted.astype(np.float32))),
            f"the block's mean jumps by {jump:.1%} in one step in which no weight moved by more than {drift:.1g}",
        ),
        Statement(
            "no element jumps by more than 1/7", bool((after / before - 1).max() <= float(zone.largest_jump) + 1e-6)
        ),
    )
    configuration = {
        "width": 64,
        "layers": 4,
        "batch": 256,
        "rate": run["rate"],
        "seed": 1,
        "block": "layer 0, 32 to 63",
    }
    answer = (
        f"A clamped block reads 0.875 for {crossing} steps while its weights keep moving, and then jumps by "
        f"{100 * jump:.1f} % in one step, as derived."
    )
    return judged.answered(Evidence((), statements, "", configuration), answer, f"{100 * jump:.1f} % in one step")


def _after(jumps: Any, x: float) -> float:
    """The value of an element at a block maximum of just above 1, by the table of jumps."""
    for jump in jumps:
        if jump.lower <= x <= jump.upper:
            return float(jump.after)
    return 0.875 if x < 1 else 1.0

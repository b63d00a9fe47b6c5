"""Checks that rest on stored training runs of `mxnum.experiments`: I5 to I8, M1, M10, B2 to B4, B6."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mxnum.analysis import dead_zone, dwell, stability_limit
from mxnum.claims.evidence import Comparison, Evidence, Statement
from mxnum.claims.registry import Context, check
from mxnum.experiments import Experiment, Operand, Precision, Training, critical, interventions, report, studies
from mxnum.experiments.loop import one_blas_thread
from mxnum.experiments.operands import affine
from mxnum.experiments.survival import Arm, log_rank, mean_interval, pooled

#: A difference between arms counts at this level; the delays of I7 have limits of their own.
LEVEL, SEED = 0.01, 20260101
#: With fewer seeds than this an action that shows no effect is undecided.
FEWEST = 6
_SCALE = "at the paper's size (d = 512, 4 layers, batch 2048)"


def _run(study: str) -> str:
    return f"mxnum experiments run {study} --results docs/results"


def _sooner(a: Arm, b: Arm) -> tuple[bool | None, float | None]:
    """Whether runs diverge sooner in the first arm, None if they do but chance could be why; the log-rank test's p."""
    p = log_rank(a, b)
    if a.events * sum(b.times) <= b.events * sum(a.times):
        return False, p
    return (True if p is not None and p < LEVEL else None), p


def _compared(table: dict[str, Any], arm: str, control: str) -> tuple[Arm, Arm, bool | None, str]:
    """Two arms, whether the first diverges sooner, and the numbers."""
    a, b = report.arm_of(table, arm), report.arm_of(table, control)
    sooner, p = _sooner(a, b)
    numbers = f"{a.events} of {a.runs} runs against {b.events} of {b.runs}"
    return a, b, sooner, numbers + ("" if p is None else f", log-rank p {p:.2g}")


def _configuration(table: dict[str, Any]) -> dict[str, Any]:
    """The settings that all arms share."""
    arms = list(table["arms"].values())
    keys = ("width", "layers", "batch", "rate", "steps", "optimizer", "activation")
    shared = {k: arms[0]["experiment"][k] for k in keys if len({arm["experiment"][k] for arm in arms}) == 1}
    return {"study": table["study"], **shared, "seeds": [r["seed"] for r in arms[0]["runs"]]}


@check("I5", needs=(("confirm.json", "quick.json"),), command=_run("confirm"))
def zeta_grows(context: Context) -> Evidence:
    """The measured zeta early and late in each run, and at the last look before a divergence."""
    table = context.first("confirm.json", "quick.json")
    statements = []
    for arm in ("E2M1", "LN E2M1", "E4M3"):
        if arm not in table["arms"]:
            continue
        early, late, last = [], [], []
        for run in table["arms"][arm]["runs"]:
            stop = run["steps"] if run["diverged"] is None else run["diverged"]
            pairs = zip(run["measured_at"], run["measured"]["zeta"], strict=True)
            zeta = [z for at, z in pairs if z is not None and 0 < at <= stop]
            if len(zeta) >= 4:
                early.append(float(np.mean(zeta[:2])))
                late.append(float(np.mean(zeta[-2:])))
                if run["diverged"] is not None:
                    last.append(zeta[-1])
        if not early:
            continue
        grew = sum(b > a for a, b in zip(early, late, strict=True))
        numbers = f"medians {np.median(early):.2f} and {np.median(late):.2f}; it grew in {grew} of {len(early)} runs"
        statements.append(Statement(f"{arm}: zeta grows during training", grew > 0.8 * len(early), numbers))
        if last:
            statements.append(
                Statement(
                    f"{arm}: before a divergence zeta is of order 2 (here: its median is between 1 and 4)",
                    bool(1 <= np.median(last) <= 4),
                    f"median {np.median(last):.2f}, from {min(last):.2f} to {max(last):.2f}, at the last of the looks "
                    "(one in 250 steps) before the divergence",
                )
            )
    statements.append(Statement(f"the same {_SCALE}", None))
    note = "zeta is the lower bound |g~ - g| / |g| on the same parameters and batch; the released code logs its square."
    return Evidence(statements=tuple(statements), note=note, configuration=_configuration(table))


@check("I6", needs=(("confirm.json", "quick.json"),), command=_run("confirm"))
def runaway(context: Context) -> Evidence:
    """Survival of the low-precision arms against FP32 on the same seeds, initial parameters and batches."""
    statements, tables = [], [context.first("confirm.json", "quick.json")]
    tables += [context.json("small.json")] if context.has("small.json") else []
    for table in tables:
        width = table["arms"]["FP32"]["experiment"]["width"]
        for arm in ("E4M3", "E2M1", "LN E2M1"):
            if arm in table["arms"]:
                _, _, sooner, numbers = _compared(table, arm, "FP32")
                statements.append(Statement(f"width {width}: {arm} diverges where FP32 does not", sooner, numbers))
    statements.append(Statement(f"E4M3 diverges where FP32 does not, {_SCALE}", None, "not run"))
    note = (
        "Within the horizon of 4,000 steps. LN E2M1 is bfloat16 with only gamma and beta in E2M1. FP32 is not immune: "
        "it is a matter of hazard. The arms share their seeds, which the log-rank test does not use."
    )
    return Evidence(statements=tuple(statements), note=note, configuration=_configuration(tables[0]))


@check(
    "I7",
    needs=("interventions.json",),
    command="mxnum experiments interventions --study small --base E2M1 --seeds 10 --watch 800 --perturbed 2 "
    "--results docs/results",
)
def actions(context: Context) -> Evidence:
    """Each action from a checkpoint against controls whose parameters were changed by one part in a million.

    It averts or delays the divergence if the 95 % limits of its delay, seed by seed, lie above 0: see
    `interventions.Row.delay`. `LEVEL` and the log-rank test, which pools the seeds, do not decide here.
    """
    table = context.json("interventions.json")
    claimed = ("LN in FP32", "activations bfloat16, everywhere", "activations bfloat16, forward")
    statements = []
    for row in interventions.rows(table):
        if row.name in claimed:
            what, shown = (
                f"{row.name}: averts or delays the divergence",
                row.reading in ("averted while watched", "delayed"),
            )
            statements.append(Statement(what, shown if shown or row.arm.runs >= FEWEST else None, row.numbers))
    statements.append(Statement(f"the same {_SCALE}", None))
    note = (
        "Decided by the delay, seed by seed against the perturbed controls: yes if its 95 % limits lie above 0, "
        f"otherwise no if there are at least {FEWEST} seeds. Neither the log-rank test, which pools the seeds, nor the "
        "level of 1 % of other claims decides here. A switch of precision in the middle of a run is a shock of its "
        "own; the arms from scratch stand in I6."
    )
    seeds = [s["seed"] for s in table["seeds"]]
    configuration = {"study": table["study"], "base": table["base"], "seeds": seeds, **table["plan"]}
    return Evidence(statements=tuple(statements), note=note, configuration=configuration)


@check("I8", needs=("ablations.json",), command=_run("ablations"))
def ablations(context: Context) -> Evidence:
    """E2M1 against FP32 for each activation, with and without layer norm."""
    table = context.json("ablations.json")
    statements, counts = [], {}
    for activation in ("gelu", "relu", "swiglu"):
        for suffix in ("", ", no LN"):
            name = f"{activation}{suffix}"
            if f"{name}, E2M1" not in table["arms"]:
                continue
            a, b, sooner, numbers = _compared(table, f"{name}, E2M1", f"{name}, FP32")
            counts[name] = a.events, b.events, sooner, numbers
    for name in ("gelu", "swiglu"):
        if name in counts:
            statements.append(Statement(f"{name} with layer norm: E2M1 diverges sooner than FP32", *counts[name][2:]))
    if {"gelu", "swiglu"} <= set(counts):
        _, _, sooner, numbers = _compared(table, "swiglu, E2M1", "gelu, E2M1")
        statements.append(Statement("with layer norm SwiGLU is the most unstable in MX", sooner, numbers))
    for name in ("gelu", "swiglu"):
        if f"{name}, no LN" in counts:
            what = f"{name} without layer norm: FP32 diverges at least as often as E2M1, and diverges"
            mx, plain, _, numbers = counts[f"{name}, no LN"]
            statements.append(Statement(what, plain >= mx and plain > 0, numbers))
    statements.append(Statement(f"the same in E4M3 {_SCALE}", None))
    return Evidence(statements=tuple(statements), configuration=_configuration(table))


def _gap(table: dict[str, Any], arm: str) -> tuple[float, float]:
    """The loss at the end relative to FP32's on the same seed, minus one: median and standard error of the mean."""
    reference = {r["seed"]: r["last_loss"] for r in table["arms"]["recipe FP32"]["runs"]}
    runs = [r for r in table["arms"][arm]["runs"] if r["last_loss"] is not None]
    gaps = [r["last_loss"] / reference[r["seed"]] - 1 for r in runs]
    return float(np.median(gaps)), float(np.std(gaps) / np.sqrt(len(gaps)))


def _change(table: dict[str, Any], arm: str, other: str) -> tuple[float, float, float] | None:
    """How much higher the loss at the end is than another arm's on the same seed: relative, the mean and its limits."""
    reference = {r["seed"]: r["last_loss"] for r in table["arms"][other]["runs"] if r["last_loss"] is not None}
    runs = [r for r in table["arms"][arm]["runs"] if r["last_loss"] is not None and r["seed"] in reference]
    found = mean_interval([float(np.log(r["last_loss"] / reference[r["seed"]])) for r in runs], 1 - LEVEL)
    return None if found is None else (math.expm1(found[0]), math.expm1(found[1]), math.expm1(found[2]))


@check("M1", needs=("recipes.json",), command=_run("recipes"))
def stochastic_gradients(context: Context) -> Evidence:
    """The loss that is reached with gradients rounded to nearest and stochastically, seed by seed."""
    table = context.json("recipes.json")
    statements = []
    for rule in ("floor", "even"):
        names = [f"recipe E2M1 {rule}", f"recipe E2M1 {rule}, SR gradients"]
        if set(names) <= set(table["arms"]):
            what = f"E2M1 {rule}: stochastic rounding of the gradients reaches a lower loss"
            change = _change(table, names[1], names[0])
            if change is None:
                statements.append(Statement(what, None, "too few runs"))
                continue
            mean, low, high = change
            numbers = f"{mean:+.1%} on the same seeds, 99 % limits {low:+.1%} and {high:+.1%}"
            statements.append(Statement(what, None if low <= 0 <= high else mean < 0, numbers))
    statements.append(Statement("the same for language models", None))
    return Evidence(statements=tuple(statements), configuration=_configuration(table))


@check("M10", needs=("recipes.json",), command=_run("recipes"))
def recipes(context: Context) -> Evidence:
    """Gaps to FP32 of the recipes for 8, 6 and 4 bits."""
    table = context.json("recipes.json")
    gap = {name.removeprefix("recipe "): _gap(table, name) for name in table["arms"]}
    numbers = {name: f"loss {value:.1%} above FP32's (se {error:.1%})" for name, (value, error) in gap.items()}
    statements = [
        Statement(f"{name} tracks bf16 (its gap is at most 2 points larger)", gap[name][0] < gap["bf16"][0] + 0.02, n)
        for name, n in numbers.items()
        if name in ("E4M3", "E2M3", "E3M2")
    ]
    if "E2M1 floor" in gap:
        worst = gap["E2M1 floor"][0]
        for name in ("E2M1 even, SR gradients", "E2M1 ceil, SR gradients", "E3M0 ceil, SR gradients"):
            if name in gap:
                found = f"{numbers[name]}; E2M1 floor to nearest {numbers['E2M1 floor']}"
                statements.append(
                    Statement(f"{name}: closes more than half of the gap", gap[name][0] < worst / 2, found)
                )
    statements.append(Statement("gaps of about 0.02 in the loss of language models", None))
    note = "Relative mean squared error of a residual MLP, layer norm in bfloat16; it can only hint at language models."
    return Evidence(statements=tuple(statements), note=note, configuration=_configuration(table))


@check("B2", needs=("sgd-limits.json",), command="mxnum experiments sgd-limits --results docs/results")
def noise_and_stability(context: Context) -> Evidence:
    """The critical rate of SGD on a residual MLP under injected zeta, against the limit of the quadratic."""
    table = context.json("sgd-limits.json")
    comparisons, statements = [_on_a_quadratic(b, s) for b, s in ((0, 0.5), (0, 1), (-0.5, 0.5), (-0.125, 0))], []
    for row in table["rows"]:
        mean, spread = float(np.mean(row["ratios"])), float(np.std(row["ratios"]) / np.sqrt(len(row["ratios"])))
        what = f"residual MLP: limit with zeta of {critical.describe(row)}, relative to none"
        if row["common"] or not row["deviation"]:
            comparisons.append(Comparison(what, row["predicted"], mean, 0.02 * row["predicted"] + 3 * spread))
        else:
            numbers = f"{mean:.3f} against {row['predicted']:.3f} for noise common to all elements"
            statements.append(
                Statement(f"{what}: lies above the quadratic's in one dimension", mean > row["predicted"], numbers)
            )
    note = (
        "The formula is of one dimension, where one zeta multiplies the whole gradient. Noise that is drawn for each "
        "element spreads over all directions and destabilises less. Tolerances are 2 % and 3 standard errors."
    )
    configuration = {k: table["experiment"][k] for k in ("width", "layers", "batch", "steps")} | {
        "seeds": table["seeds"]
    }
    return Evidence(tuple(comparisons), tuple(statements), note, configuration)


def _on_a_quadratic(bias: float, deviation: float) -> Comparison:
    """The rate at which E[(1 - a (1 + zeta))^2] is 1, from a sample of zeta."""
    zeta = np.random.default_rng(SEED).standard_normal(1_000_000) * deviation + bias
    first, second = float((1 + zeta).mean()), float(np.square(1 + zeta).mean())
    error = 5 * float(np.std(first * np.square(1 + zeta) - second * (1 + zeta))) / second**2 * 2e-3 + 1e-9
    what = f"quadratic: limit of the rate times the curvature with mean {bias:g}, deviation {deviation:g}"
    return Comparison(what, float(stability_limit(bias, deviation**2)), 2 * first / second, error)


def clamped_block(steps: int = 260, rate: float = 1e-3, seed: int = 1) -> dict[str, Any]:
    """A run whose gamma starts in E4M3's clamped range: masters and quantized values of a block that leaves it."""
    e4m3 = Operand("mxfp8_e4m3")
    precision = Precision(gamma=e4m3, beta=e4m3, vector="bfloat16")
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
    return Evidence(statements=statements, configuration=configuration)


def _after(jumps: Any, x: float) -> float:
    """The value of an element at a block maximum of just above 1, by the table of jumps."""
    for jump in jumps:
        if jump.lower <= x <= jump.upper:
            return float(jump.after)
    return 0.875 if x < 1 else 1.0


@check("B4", needs=("factorial.json",), command=_run("factorial"))
def differences(context: Context) -> Evidence:
    """Main effects of the six switches on the share of runs that diverge, in a fraction of resolution IV."""
    table = context.json("factorial.json")
    names, signs = list(studies.get("factorial").arms), studies.fraction()
    arms = {name: report.arm_of(table, name) for name in names if name in table["arms"]}
    carrying: list[str] = []
    others: list[str] = []
    for index, difference in enumerate(studies.DIFFERENCES):
        groups: Mapping[int, list[Arm]] = {
            s: [arms[n] for n, row in zip(names, signs, strict=True) if row[index] == s and n in arms] for s in (-1, 1)
        }
        text, code = (pooled(groups[s]) for s in (-1, 1))
        p = log_rank(code, text)
        numbers = f"{code.events} of {code.runs} the code's way, {text.events} of {text.runs} the text's"
        found = f"{difference}: {numbers}" + ("" if p is None else f", log-rank p {p:.2g}")
        (carrying if p is not None and p < LEVEL / len(studies.DIFFERENCES) else others).append(found)
    statement = Statement("some change how often runs diverge", True if carrying else None, "; ".join(carrying))
    note = (
        f"Decided at the level of {LEVEL:.0%} for all six together. Not shown of the others: {'; '.join(others)}. In "
        "E2M1; main effects, which this fraction confounds with interactions of three and more switches."
    )
    return Evidence(statements=(statement,), note=note, configuration=_configuration(table))


@check("B6", needs=("critical-rate.json",), command=_run("critical-rate"))
def critical_rates(context: Context) -> Evidence:
    """How many of the runs diverge at each rate."""
    table = context.json("critical-rate.json")
    statements = []
    kinds = sorted({name.rpartition(", rate ")[0] for name in table["arms"]} - {"FP32"})
    for kind in kinds:
        rates = [r for r in studies.RATES if {f"{kind}, rate {r:g}", f"FP32, rate {r:g}"} <= set(table["arms"])]
        counts = {r: [report.arm_of(table, f"{k}, rate {r:g}") for k in (kind, "FP32")] for r in rates}
        ours, plain = (pooled([pair[i] for pair in counts.values()]) for i in (0, 1))
        worse, _ = _sooner(ours, plain)
        shares = ", ".join(f"{r:g}: {a.events} and {b.events} of {b.runs}" for r, (a, b) in counts.items())
        numbers, limits = f"diverged at rate {shares}", critical.shift(table, kind)
        if limits is not None:
            numbers += "; critical rate over FP32's {:.2f} (95 %: {:.2f} to {:.2f})".format(*limits)
        statements.append(Statement(f"{kind} has a lower critical rate than FP32", worse, numbers))
    note = "Decided by a log-rank test over all rates at the level of 1 %; shifts are seed by seed."
    return Evidence(statements=tuple(statements), note=note, configuration=_configuration(table))

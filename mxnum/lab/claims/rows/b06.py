"""B6: critical learning rates, of the MLP and of small language models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mxnum.lab.claims import mlp_runs, paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import LEVEL, Evidence, Statement, Whose, below, decided, unanimous
from mxnum.lab.claims.language_models import (
    ONE_SOURCE,
    PLAIN,
    Table,
    apart,
    gaps,
    limit_of,
    losses,
    lost,
    mean_gap,
    mean_row,
    study,
    words,
)  # fmt: skip
from mxnum.lab.studies import critical, report
from mxnum.lab.studies.excursions import Course, Outcome
from mxnum.lab.studies.statistics import Arm, compare, corrected, holm, sign_flip
from mxnum.output import palette

CLAIM = Claim(
    "B6",
    "Critical learning rate",
    "The learning rate above which runs diverge depends on the number format (FP32 or MX) and on the scale rule.",
    BY_TRAINING,
    "Many seeds at each of several learning rates would decide the claim.",
    whose=Whose.OURS,
    needs=("critical-rate.json",),
    takes=tuple(f"language/{name}.json" for name in ("rates", "lost", "lost-again", "lost-elsewhere", "two-layers")),
    command=mlp_runs.command("critical-rate"),
)
WAYS = {"centred": "centring", "rceil": "the rule rceil", "factor": "a factor of 2^(2/8) on the loss"}


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("critical-rate.json")
    strata = {kind: mlp_runs.over_rates(table, kind) for kind in _kinds(table)}
    tests = corrected({kind: compare(pairs) for kind, pairs in strata.items()})
    statements = []
    for kind, test in tests.items():
        numbers, limits = (
            f"runs with an excursion, in {kind} and in FP32, by rate: {_events(strata[kind])}; {test}",
            critical.shift(table, kind),
        )
        if limits is not None:
            numbers += "; critical rate {:.2f} times FP32's (95 %: {:.2f} to {:.2f})".format(*limits)
        sure = test.corrected_p is not None and test.corrected_p < LEVEL
        what = f"{kind} has excursions sooner than FP32, over {len(strata[kind])} learning rates"
        statements.append(Statement(what, test.comes_sooner if sure else None, numbers))
    sooner = [s.what.partition(" has ")[0] for s in statements if s.holds]
    hazard = mlp_runs.hazard_of_e4m3(context.json("hazard.json")) if context.has("hazard.json") else None
    statements += [hazard] if hazard is not None else []
    for name in filter(context.has, ("runaway-32.json", "runaway-64.json")):
        statements += _runaways(context.json(name))
    at_size = at_the_size_of_the_paper(context)
    answer = (
        f"At the {LEVEL:.0%} level, small MLPs' loss jumps sooner in {', '.join(sooner) or 'no format'} than in FP32"
        + ", not in E4M3" * (hazard is not None and hazard.holds is False and "E4M3" not in sooner)
        + _on_lost_runs(context) + ". Undecided: the paper's size" * (unanimous(at_size) is None) + "."
    )  # fmt: skip
    statements += at_size
    for name, judged in LANGUAGE_MODELS.items():
        if (stored := study(context, name)) is not None:
            statements += judged(stored)
    note = (
        f"The tests are exact log-rank tests within seeds, stratified by rate. The level is {LEVEL:.0%} after "
        "Holm's correction. A level of 1 % is out of reach, because 8 seeds cannot give a p-value below 1 / 128. The "
        "runs of `critical-rate` ended at the first rise of the loss, which counts as their excursion. In later "
        "studies, runs continued after a rise. If the loss did not come down again, the run is a runaway, and "
        f"runaways are counted separately. {ONE_SOURCE}"
    )
    first = tests.get("E2M1")
    number = "" if first is None or first.corrected_p is None else f"E2M1: p {first.corrected_p:.2g} after Holm"
    return Evidence((), statements, note, mlp_runs.settings(table), answer, number)


def _kinds(table: dict[str, Any]) -> list[str]:
    return sorted({critical.rate_of(name)[0] for name in table["arms"]} - {"FP32"})


def _events(pairs: Sequence[tuple[Arm, Arm]]) -> str:
    rates = ((a.name.rpartition(" ")[2], a, b) for a, b in pairs)
    return ", ".join(f"{rate}: {a.events} and {b.events} of {b.runs}" for rate, a, b in rates)


def _runaways(table: dict[str, Any]) -> Iterator[Statement]:
    """Judge, for each low precision, whether runaways start sooner than in FP32, over all rates.

    Only the test of E2M1 at width 32, at the level of 1 %, was fixed before the runs. Statements on
    other formats or widths are always undecided.
    """
    width = next(iter(table["arms"].values()))["experiment"]["width"]
    for kind in _kinds(table):
        pairs = mlp_runs.over_rates(table, kind, event="away")
        test = compare(pairs)
        back = sum(report.outcomes(table, a.name)[Outcome.RECOVERED] for a, _ in pairs)
        sure = (width, kind) == (32, "E2M1") and test.p is not None and test.p < mlp_runs.LEVEL
        what = f"width {width}: {kind} runs away sooner than FP32"
        away = ", ".join(
            f"{a.name.rpartition(' ')[2]}: {a.events} of {a.runs} and {b.events} of {b.runs}" for a, b in pairs
        )
        numbers = f"runaways in {kind} and in FP32, by rate: {away}; {back} runs in {kind} recovered; {test}"
        yield Statement(what, test.comes_sooner if sure else None, numbers)


def at_the_size_of_the_paper(context: Context) -> list[Statement]:
    """Judge whether low precision has excursions at lower rates than FP32, at the paper's size."""
    runs: dict[str, dict[float, list[Course]]] = {}
    table = paper_size.table(context, "paper-rates.json")
    for name in table["arms"]:
        kind, rate = critical.rate_of(name)
        runs.setdefault(kind, {})[rate] = report.courses(table, name)
    controls = runs.pop("FP32", {})

    def by_rate(courses: dict[float, list[Course]]) -> str:
        return "; ".join(f"{rate:g}: {paper_size.described(courses[rate])}" for rate in sorted(courses)) or "not run"

    what = f"has excursions at a lower learning rate than FP32, {paper_size.WHERE}"
    found = [
        Statement(f"{kind} {what}", _rises_at_less(own, controls), f"{by_rate(own)}; FP32: {by_rate(controls)}")
        for kind, own in runs.items()
    ]
    return found or [Statement(f"E4M3 {what}", None, "not run")]


def _rises_at_less(own: dict[float, list[Course]], controls: dict[float, list[Course]]) -> bool | None:
    """Judge whether low precision makes the loss rise at a lower learning rate than FP32 does.

    The answer depends on one rate: among the rates with enough runs, the lowest at which the loss
    of any run rises. Return True if all low-precision losses and no FP32 loss rise at this rate.
    Return False if all FP32 losses rise at this rate. In all other cases, return None.
    """
    for rate in sorted(own.keys() & controls.keys()):
        ours, theirs = ([bool(run.counted) for run in kind[rate]] for kind in (own, controls))
        if min(len(ours), len(theirs)) >= paper_size.SEEDS and any(ours + theirs):
            return True if all(ours) and not any(theirs) else False if all(theirs) else None
    return None


def lost_runs(table: Table) -> Iterator[Statement]:
    """Judge whether a low precision loses more runs than float32 at the same rate."""
    for kind in ("E4M3", "E2M1", "E2M1 rceil, SR gradients"):
        counts, pairs = [], []
        for rate in _rates(table):
            ours, theirs = lost(table, f"{kind}, {rate}"), lost(table, f"{PLAIN}, {rate}")
            counts.append(f"{rate}: {sum(ours.values())} and {sum(theirs.values())} of {len(ours)}")
            pairs += [float(ours[seed]) - theirs[seed] for seed in ours]
        p = sign_flip(pairs)
        what = f"small language models in {kind}: more runs are lost than in float32 at the same learning rate"
        numbers = (
            f"runs with a final loss above {limit_of(table):.3f}, in {kind} and in float32, by rate: "
            f"{'; '.join(counts)}; p {p:.2g}"
        )
        yield Statement(what, sum(pairs) > 0 if p < LEVEL else None, numbers)


def _on_lost_runs(context: Context) -> str:
    """Return, as text, how many runs two formats lose at the highest rate ("" if not stored)."""
    parts = []
    for name, arm, label in (("rates", "E4M3", "E4M3"), ("lost", "E2M1 even, logits, centred", "centred E2M1 even")):
        if (table := study(context, name)) is not None:
            gone = lost(table, f"{arm}, {_rates(table)[-1]}")
            parts.append(f"{label} {sum(gone.values())} of {len(gone)}")
    return f". Lost runs of small language models at the highest rate: {', '.join(parts)}" if parts else ""


def _rates(table: Table) -> list[str]:
    return [name.removeprefix(f"{PLAIN}, ") for name in table["arms"] if name.startswith(f"{PLAIN}, ")]


def lost_to_the_drift(table: Table) -> list[Statement]:
    """Judge whether E4M3 loses runs because rounding the logits' gradient moves the logits."""
    rates = _rates(table)
    kinds = dict.fromkeys(name.rpartition(", rate")[0] for name in table["arms"])
    gone = {kind: [lost(table, f"{kind}, {rate}") for rate in rates] for kind in kinds}
    counts = {kind: [sum(at.values()) for at in found] for kind, found in gone.items()}
    listed = {kind: " and ".join(map(str, found)) for kind, found in counts.items()}
    runs = len(gone[PLAIN][0])
    at = f"lost runs (of {runs}) at {' and '.join(rates)}"
    logits, even, others = "E4M3, logits", "E2M1 even, logits", "E4M3, all but the last layer"
    first = counts[logits][-1] >= runs - 1 and counts[others][-1] == counts[PLAIN][-1] == 0
    plain, without = sum(counts[logits]), sum(counts[f"{logits}, centred"])
    both = zip(gone[logits], gone[f"{logits}, centred"], strict=True)
    p = sign_flip([float(drifts[seed]) - centred[seed] for drifts, centred in both for seed in drifts])
    mended = max(sum(counts[f"{logits}, {how}"]) for how in ("rceil", "factor"))
    again, never = counts[even][-1] >= runs - 1, sum(counts[f"{even}, centred"])
    return [
        Statement(
            "at the highest rate, E4M3 loses runs because of the gradient of the logits alone",
            decided(first, counts[logits][-1] <= 1),
            f"{at}: E4M3 only in this gradient {listed[logits]}, in all but the last layer {listed[others]}, "
            f"everywhere {listed['E4M3']}; float32 {listed[PLAIN]}",
        ),
        Statement(
            "with a centred gradient of the logits, E4M3 loses no run",
            decided(without == 0 and p < LEVEL, 0 < plain <= 2 * without),
            f"{at}: {listed[f'{logits}, centred']}, p {p:.2g}",
        ),
        Statement(
            "with the rule rceil, or with a factor of 2^(2/8) on the loss, E4M3 loses no run",
            decided(mended == 0 < plain, 0 < plain <= 2 * mended),
            f"{at}: with rceil {listed[f'{logits}, rceil']}, with the factor {listed[f'{logits}, factor']}",
        ),
        Statement(
            "E2M1 with the rule 'even' also loses runs, but loses none if the gradient of the logits is centred; the "
            "logits drift for other reasons than in E4M3",
            decided(again and never == 0, counts[even][-1] <= 1 or never >= sum(counts[even])),
            f"{at}: {listed[even]}, centred {listed[f'{even}, centred']}",
        ),
    ]


def cost_of_the_drift(table: Table) -> list[Statement]:
    """Judge in which parts of the model E4M3 raises the final loss at a high learning rate."""
    everywhere, others, alone, *ways = (
        f"{name}, rate 0.192"
        for name in ("E4M3", "E4M3, all but the last layer", "E4M3, logits", *(f"E4M3, logits, {w}" for w in WAYS))
    )
    of_logits, of_others, more = gaps(table, alone), gaps(table, others), apart(table, everywhere, alone)
    p = holm({"alone": sign_flip(of_logits), "more": sign_flip(more)})
    costs = p["alone"] < LEVEL and sum(of_logits) > 0 and below(of_others, 0.05) is True
    made = [
        Statement(
            "at a learning rate of 0.192, rounding only the gradient of the logits to E4M3 raises the loss, and "
            "rounding only the other layers does not",
            decided(costs, below(of_logits) is not False or below(of_others, 0.1) is False),
            f"{words(of_logits)} nats, p {p['alone']:.2g} after Holm; all other layers {words(of_others)}",
        ),
        Statement(
            "E4M3 everywhere raises the loss more than E4M3 in the gradient of the logits alone",
            sum(more) > 0 if p["more"] < LEVEL else None,
            f"{words(gaps(table, everywhere))} nats, p {p['more']:.2g} after Holm",
        ),
    ]
    for way, arm in zip(WAYS.values(), ways, strict=True):
        left, half = (below(gaps(table, arm, share=share, of=alone)) for share in (0.2, 0.5))
        what = f"{way} leaves less than a fifth of the gap that E4M3 in the gradient of the logits causes"
        made.append(Statement(what, decided(left is True, half is False), words(gaps(table, arm))))
    return made


def four_bits_in_two_layers(table: Table) -> list[Statement]:
    """Judge why E2M1 with the floor rule diverges in a model of two layers."""
    whole, alone = "E2M1", "E2M1, logits"

    def shares(arm: str, of: str = whole) -> list[float]:
        return [a / b for a, b in zip(gaps(table, arm), gaps(table, of), strict=True)]

    def listed(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2f}" for value in values)

    ends, plain = ([*losses(table, arm).values()] for arm in (whole, PLAIN))
    nothing = math.log(table["arms"][whole]["experiment"]["vocabulary"])
    of_alone, of_others = (
        mean_gap(table, arm) / mean_gap(table, whole) for arm in (alone, "E2M1, all but the last layer")
    )
    centred, mended = shares(f"{alone}, centred", alone), shares("E2M1 even, SR gradients")
    forward, backward = shares("E2M1, forward only"), shares("E2M1, gradients alone")
    rows = {arm: mean_row(table, arm) for arm in table["arms"] if arm != PLAIN}
    return [
        Statement(
            "a model of two layers that is trained in E2M1 with floor, and with layer norm in float32, ends with a "
            "higher loss than a uniform guess",
            decided(min(ends) > nothing, max(ends) < 3.5),
            f"{listed(ends)} nats, a uniform guess {nothing:.2f}, float32 {listed(plain)}",
        ),
        Statement(
            "with two layers, rounding only the gradient of the logits causes more than half of the gap, and "
            "rounding only the other layers less than a fifth",
            decided(of_alone > 0.5 and of_others < 0.2, of_alone < 0.2),
            f"{of_alone:.2f} and {of_others:.2f}",
        ),
        Statement(
            "with two layers, centring the gradient of the logits leaves less than a fifth of the gap that this "
            "gradient causes",
            decided(max(centred) < 0.2, min(centred) > 0.5),
            f"{listed(centred)} of the gap",
        ),
        Statement(
            "with two layers, stochastic rounding of gradients under 'even' leaves less than a third of the gap",
            decided(max(mended) < 1 / 3, min(mended) > 2 / 3),
            f"{listed(mended)} of the gap",
        ),
        Statement(
            "with two layers, rounding only the forward pass causes less than a third of the gap, and rounding "
            "only the gradients more than two thirds",
            decided(max(forward) < 1 / 3 and min(backward) > 2 / 3, min(forward) > 2 / 3 and max(backward) < 1 / 3),
            f"shares of the gap: forward pass {listed(forward)}; gradients {listed(backward)}",
        ),
        Statement(
            "with two layers, an arm has a gap above 0.5 nats if, and only if, the relative norm of its last layer's "
            "mean row is above 0.5",
            all((row > 0.5) == (mean_gap(table, arm) > 0.5) for arm, row in rows.items()),
            "; ".join(f"{arm} {row:.2f}" for arm, row in rows.items()),
        ),
    ]


def lost_elsewhere(table: Table) -> Iterator[Statement]:
    """Judge whether E4M3 also ends far above float32's loss in other models and on other data."""
    for model in dict.fromkeys(name.rpartition(", ")[0] for name in table["arms"]):
        plain, floor, rceil = (losses(table, f"{model}, {kind}") for kind in (PLAIN, "E4M3", "E4M3 rceil"))
        learns = max(plain.values()) < limit_of(table, f"{model}, {PLAIN}")
        gap = {
            name: [found[seed] - plain[seed] for seed in plain] for name, found in (("floor", floor), ("rceil", rceil))
        }
        listed = "; ".join(f"{name} {min(g):+.2f} to {max(g):+.2f}" for name, g in gap.items())
        yield Statement(
            f"at a learning rate of 0.192, {model}: on every seed, E4M3 with floor ends more than 0.5 nats above "
            "float32, and E4M3 with rceil ends less than 0.1 nats above float32",
            min(gap["floor"]) > 0.5 and max(gap["rceil"]) < 0.1 if learns else None,
            listed if learns else f"float32 does not learn at this rate; {listed}",
        )


#: For each study of language models, the function that judges the study.
LANGUAGE_MODELS: dict[str, Callable[[Table], Iterable[Statement]]] = {
    "rates": lost_runs, "lost": lost_to_the_drift, "lost-again": cost_of_the_drift,
    "two-layers": four_bits_in_two_layers, "lost-elsewhere": lost_elsewhere,
}  # fmt: skip


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str | None:
    if not context.has("critical-rate.json"):
        return None
    table = context.json("critical-rate.json")
    for i, kind in enumerate(sorted({critical.rate_of(name)[0] for name in table["arms"]})):
        arms = [arm for arm, _ in mlp_runs.over_rates(table, kind, kind)]
        rates, diverged = [float(arm.name.rpartition(" ")[2]) for arm in arms], [arm.events / arm.runs for arm in arms]
        colour = palette.colour(kind, i)
        ax.plot(rates, diverged, "os^Dv*"[i % 6] + "-", ms=4, lw=1, label=kind, color=colour)
    ax.set(xlabel="rate", ylabel="share that diverged", xscale="log")
    ax.legend(fontsize=8)
    return "The share of runs that diverge at each learning rate."

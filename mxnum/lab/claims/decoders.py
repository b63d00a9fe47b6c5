"""What small language models of our own say of the claims: statements for B6, I9, M1, M7, M8 and M10, a note for I10.

The rules are those of `docs/lab/results/language/README.md`, written before the models were trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from mxnum.lab.claims.evidence import Statement, Whose, ours
from mxnum.lab.claims.judged import LEVEL, below, correlates, decided, rho
from mxnum.lab.claims.registry import Context
from mxnum.lab.studies.inference import holm, mean_interval, sign_flip
from mxnum.lab.theory import compare_laws, fit_scaling_law, read_losses

PLAIN, BFLOAT16 = "float32", "bfloat16"
#: Ladders of one source on the same seeds, and their recipes; the first has those that others are compared to.
LADDERS = {
    "ladder": (PLAIN, BFLOAT16, "E4M3", "E4M3 weights alone, bf16 activations", "E2M1 rceil, SR gradients"),
    "ladder-four-bits": ("E2M1", "E2M1 even, SR gradients"),
}
#: Of the Markov source of the ladders.
ENTROPY = 2.3701
#: What the paper's 0.02 nats may be, before rounding.
NEAR = 0.025
#: What a reader of p-values and limits must know.
ONE_SOURCE = "All seeds of a study of language models share one source, so p-values cover starts and batches only."
#: Recipes for 4 bits that the paper of [M] names, and others.
_NAMED = ("E2M1 even, SR gradients", "E2M1 ceil, SR gradients", "E2M1 even, E3M0 ceil SR gradients")
_FURTHER = ("E2M1 rceil, SR gradients", "INT4 ceil, SR gradients", "NVFP4, SR gradients", "NVFP4 as NVIDIA trains")
Table = dict[str, Any]
#: Studies of recipes, and what the ledger calls their models.
RECIPES = {"recipes": "a small language model of our own", "recipes-converged": "the same, trained to the end"}
_WAYS = {"centred": "centring", "rceil": "the rule rceil", "factor": "a factor of 2^(2/8) on the loss"}
RULES = {"floor": "E2M1", "even": "E2M1 even", "rceil": "E2M1 rceil"}


def study(context: Context, name: str) -> Table | None:
    """A stored study of language models, if it was run."""
    path = f"language/{name}.json"
    found: Table | None = context.json(path) if context.has(path) else None
    return found


def of_recipes(context: Context) -> Iterator[tuple[str, Table]]:
    """Each stored study of recipes, with what its models are called."""
    for name, model in RECIPES.items():
        table = study(context, name)
        if table is not None:
            yield model, table


def losses(table: Table, arm: str) -> dict[int, float]:
    """The loss at the end, by seed."""
    return {run["seed"]: run["evaluation"] for run in table["arms"][arm]["runs"]}


def gaps(table: Table, arm: str, other: str | None = None, share: float = 0.0, of: str = "") -> list[float]:
    """An arm's loss less another's (without one: its control's), less a share of a third's gap to that; by seed."""
    theirs = losses(table, other or table["controls"].get(arm, table["control"]))
    ours = losses(table, arm)
    third = losses(table, of) if of else ours
    seeds = sorted(ours.keys() & theirs.keys() & third.keys())
    return [ours[s] - theirs[s] - share * (third[s] - theirs[s]) for s in seeds]


def words(values: Sequence[float]) -> str:
    """The mean and its limits."""
    found = mean_interval(values, 1 - LEVEL)
    return "too few runs" if found is None else f"{found[0]:+.4f} ({found[1]:+.4f} to {found[2]:+.4f})"


def stochastic_gradients(context: Context) -> list[Statement]:
    """M1: gradients rounded to nearest and stochastically, in E2M1 under three scale rules."""
    made = []
    for model, table in of_recipes(context):
        pairs = {rule: gaps(table, f"{arm}, SR gradients", arm) for rule, arm in RULES.items()}
        corrected = holm({rule: sign_flip(values) for rule, values in pairs.items()})
        for rule, values in pairs.items():
            holds = bool(np.mean(values) < 0) if corrected[rule] < LEVEL else None
            what = f"{model}, E2M1 {rule}: stochastic gradients reach a lower loss"
            whose = Whose.OURS if rule == "rceil" else Whose.PAPER  # the paper does not have it
            made.append(Statement(what, holds, f"by {words(values)} nats, p {corrected[rule]:.2g} after Holm", whose))
    return made or [Statement("the same for language models", None, "not run")]


def recipes(context: Context) -> list[Statement]:
    """M10: the gaps to bfloat16 of formats in 8 and 6 bits, and those of recipes in 4 bits."""
    made = []
    for model, table in of_recipes(context):
        for arm in ("E4M3", "E2M3", "E3M2"):
            values = gaps(table, arm, BFLOAT16)
            what = f"{model}, {arm}: ends less than {NEAR} nats above bfloat16"
            made.append(Statement(what, below(values, NEAR, LEVEL), words(values)))
        for arm in (*_NAMED, *_FURTHER):
            values, half = gaps(table, arm, BFLOAT16), gaps(table, arm, share=0.5, of="E2M1")
            what = f"{model}, {arm}: closes more than half of the gap of E2M1 floor"
            whose = Whose.PAPER if arm in _NAMED else Whose.OURS
            made.append(Statement(what, below(half, 0.0, LEVEL), f"{words(values)} nats above bfloat16", whose))
    return made or [Statement("gaps of about 0.02 in the loss of language models", None, "not run")]


def mitigations(context: Context) -> list[Statement]:
    """I9: the two mitigations of formats in eight bits."""
    made = []
    for model, table in of_recipes(context):
        for kind, way in product(("E4M3", "E5M2"), ("forward only", "weights alone, bf16 activations")):
            arm = f"{kind} {way}"
            if arm not in table["arms"]:
                continue
            half, values = gaps(table, arm, share=0.5, of=kind), gaps(table, arm)
            what = f"{model}, {arm}: leaves less than half of {kind}'s gap"
            made.append(Statement(what, below(half, 0.0, LEVEL), f"{words(values)}; {kind} {words(gaps(table, kind))}"))
    return list(ours(*made))


def error_and_gap(context: Context) -> list[Statement]:
    """M8: the measured error of the operands beside the gap, over all recipes and over those in E2M1."""
    made: list[Statement] = []
    for model, table in of_recipes(context):
        points = _points(table)
        in_e2m1 = {arm: point for arm, point in points.items() if arm.startswith("E2M1") and "E3M0" not in arm}
        what = f"{model}: the error of its real operands correlates with the gap"
        made += [
            correlates(what, points, "{:+.3f}".format),
            *ours(
                correlates("so it does there within the recipes in E2M1", in_e2m1, "{:+.3f}".format),
                correlates("so it does there within all recipes in 4 bits", _in_4_bits(points), "{:+.3f}".format),
            ),
        ]
    return made or [Statement("the same for language models", None, "not run")]


def ranked(context: Context) -> list[tuple[float | None, float | None]]:
    """Return for each study of recipes how error ranks the gap, over all recipes and over those in 4 bits."""
    return [(rho(points), rho(_in_4_bits(points))) for points in (_points(table) for _, table in of_recipes(context))]


def _points(table: Table) -> dict[str, tuple[float, float]]:
    """Return the error of the operands and the gap of each recipe that was measured."""
    points = {}
    for arm, found in table["arms"].items():
        errors = [np.mean(run["measured"]["error"]) for run in found["runs"] if run["measured"].get("error")]
        if errors and arm != PLAIN:
            points[arm] = float(np.mean(errors)), float(np.mean(gaps(table, arm)))
    return points


def _in_4_bits(points: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {arm: point for arm, point in points.items() if arm.startswith(("E2M1", "E3M0", "INT4", "NVFP4"))}


def lost_runs(context: Context) -> list[Statement]:
    """B6: whether a low precision loses more runs than float32 at the same rate, over rates and seeds."""
    table, made = study(context, "rates"), list[Statement]()
    if table is None:
        return made
    for kind in ("E4M3", "E2M1", "E2M1 rceil, SR gradients"):
        counts, pairs = [], []
        for rate in _rates(table):
            ours, theirs = lost(table, f"{kind}, {rate}"), lost(table, f"{PLAIN}, {rate}")
            counts.append(f"{rate}: {sum(ours.values())} and {sum(theirs.values())} of {len(ours)}")
            pairs += [float(ours[seed]) - theirs[seed] for seed in ours]
        p = sign_flip(pairs)
        what = f"a small language model, {kind}: more runs are lost than in float32 at the same rate"
        numbers = f"lost, that is, above {limit_of(table):.3f} at the end: {'; '.join(counts)}; p {p:.2g}"
        made.append(Statement(what, sum(pairs) > 0 if p < LEVEL else None, numbers))
    return made


def answer_on_lost_runs(context: Context) -> str:
    """Return which formats lose runs at the highest rate, and which of them centring does not save; "" without runs."""
    parts = []
    for name, arm, told in (("rates", "E4M3", "E4M3"), ("lost", "E2M1 even, logits, centred", "centred E2M1 even")):
        table = study(context, name)
        if table is not None:
            gone = lost(table, f"{arm}, {_rates(table)[-1]}")
            parts.append(f"{told} {sum(gone.values())} of {len(gone)}")
    return f". At the highest rate small language models lose runs: {', '.join(parts)}" if parts else ""


def _rates(table: Table) -> list[str]:
    return [name.removeprefix(f"{PLAIN}, ") for name in table["arms"] if name.startswith(f"{PLAIN}, ")]


def limit_of(table: Table) -> float:
    """Half way from the best loss to that of knowing nothing: above it a run is lost."""
    arm = next(iter(table["arms"].values()))
    best: float = arm["runs"][0]["entropy"][1]
    return (best + math.log(arm["experiment"]["vocabulary"])) / 2


def ends_of(table: Table, arm: str) -> float:
    """The same of an arm's own source; of a text, whose best loss nobody knows, 2.5 nats for each byte."""
    found = table["arms"][arm]
    best = found["runs"][0]["entropy"]
    return 2.5 if best is None else (float(best[1]) + math.log(found["experiment"]["vocabulary"])) / 2


def lost(table: Table, arm: str) -> dict[int, bool]:
    """Whether each seed's run is lost at the end."""
    return {seed: not loss < limit_of(table) for seed, loss in losses(table, arm).items()}


def lost_to_the_drift(context: Context) -> list[Statement]:
    """B6: what becomes of the runs that E4M3 loses, with a part of it alone, and with the drift taken away."""
    table = study(context, "lost")
    if table is None:
        return []
    rates = _rates(table)
    counts = {
        kind: [sum(lost(table, f"{kind}, {rate}").values()) for rate in rates]
        for kind in dict.fromkeys(name.rpartition(", rate")[0] for name in table["arms"])
    }
    runs = len(lost(table, f"{PLAIN}, {rates[0]}"))
    told = {kind: " and ".join(map(str, found)) for kind, found in counts.items()}
    at = f"lost of {runs} at {' and '.join(rates)}"
    logits, centred, even = "E4M3, logits", "E4M3, logits, centred", "E2M1 even, logits"
    others = "E4M3, all but the last layer"
    first = counts[logits][-1] >= runs - 1 and counts[others][-1] == counts[PLAIN][-1] == 0
    plain, without = sum(counts[logits]), sum(counts[centred])
    pairs = [
        float(drifts) - lost(table, f"{centred}, {rate}")[seed]
        for rate in rates
        for seed, drifts in lost(table, f"{logits}, {rate}").items()
    ]
    p = sign_flip(pairs)
    mended = [sum(counts[f"{logits}, {how}"]) for how in ("rceil", "factor")]
    again, never = counts[even][-1] >= runs - 1, sum(counts[f"{even}, centred"])

    return [
        Statement(
            "what E4M3 loses at the highest rate it loses by the gradient of the logits alone",
            decided(first, counts[logits][-1] <= 1),
            f"{at}: that alone {told[logits]}, all but the last layer {told[others]}, float32 {told[PLAIN]}, "
            f"E4M3 everywhere {told['E4M3']}",
        ),
        Statement(
            "centring that gradient saves every run",
            decided(without == 0 and p < LEVEL, 0 < plain <= 2 * without),
            f"{at}: {told[centred]}, p {p:.2g}",
        ),
        Statement(
            "so do the rule rceil, and a factor of 2^(2/8) on the loss",
            decided(max(mended) == 0 < plain, 0 < plain <= 2 * max(mended)),
            f"{at}: rceil {told[f'{logits}, rceil']}, the factor {told[f'{logits}, factor']}",
        ),
        Statement(
            "E2M1 with even, which drifts for another reason, is lost the same way, and saved by centring",
            decided(again and never == 0, counts[even][-1] <= 1 or never >= sum(counts[even])),
            f"{at}: {told[even]}, centred {told[f'{even}, centred']}",
        ),
    ]


def cost_of_the_drift(context: Context) -> list[Statement]:
    """B6: what E4M3 and its parts cost at a high rate, by the loss at the end."""
    table = study(context, "lost-again")
    if table is None:
        return []
    everywhere, others, alone, *ways = (
        f"{name}, rate 0.192"
        for name in ("E4M3", "E4M3, all but the last layer", "E4M3, logits", *(f"E4M3, logits, {w}" for w in _WAYS))
    )
    more = [a - b for a, b in zip(gaps(table, everywhere), gaps(table, alone), strict=True)]
    p = holm({"alone": sign_flip(gaps(table, alone)), "more": sign_flip(more)})
    rest = below(gaps(table, others), 0.05, LEVEL)
    costs = p["alone"] < LEVEL and np.mean(gaps(table, alone)) > 0
    refuted = below(gaps(table, alone), 0.0, LEVEL) is not False or below(gaps(table, others), 0.1, LEVEL) is False
    made = [
        Statement(
            "at a rate of 0.192 the gradient of the logits alone costs something in E4M3, and all other layers nothing",
            decided(bool(costs and rest), refuted),
            f"{words(gaps(table, alone))} nats, p {p['alone']:.2g} after Holm; all others {words(gaps(table, others))}",
        ),
        Statement(
            "E4M3 everywhere costs more than that",
            bool(np.mean(more) > 0) if p["more"] < LEVEL else None,
            f"{words(gaps(table, everywhere))} nats, p {p['more']:.2g} after Holm",
        ),
    ]
    for way, arm in zip(_WAYS.values(), ways, strict=True):
        left, half = (gaps(table, arm, share=share, of=alone) for share in (0.2, 0.5))
        holds = decided(below(left, 0.0, LEVEL) is True, below(half, 0.0, LEVEL) is False)
        made.append(Statement(f"{way} leaves less than a fifth of it", holds, words(gaps(table, arm))))
    return made


def four_bits_in_two_layers(context: Context) -> list[Statement]:
    """B6: how E2M1 with the floor rule runs away where nothing else does, and what that begins with."""
    table = study(context, "two-layers")
    if table is None:
        return []
    whole, alone, centred = "E2M1", "E2M1, logits", "E2M1, logits, centred"
    others, forward, backward = "E2M1, all but the last layer", "E2M1, forward only", "E2M1, gradients alone"
    mended = "E2M1 even, SR gradients"

    def shares(arm: str, of: str = whole) -> list[float]:
        return [a / b for a, b in zip(gaps(table, arm), gaps(table, of), strict=True)]

    def share(arm: str) -> float:
        return float(np.mean(gaps(table, arm)) / np.mean(gaps(table, whole)))

    def told(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2f}" for value in values)

    ends, nothing = list(losses(table, whole).values()), math.log(table["arms"][whole]["experiment"]["vocabulary"])
    rows = {
        arm: float(np.mean([run["measured"]["common_weight"][-1] for run in table["arms"][arm]["runs"]]))
        for arm in table["arms"]
        if arm != PLAIN
    }
    loses = {arm: float(np.mean(gaps(table, arm))) > 0.5 for arm in rows}
    wrong = [arm for arm, row in rows.items() if (row > 0.5) != loses[arm]]
    in_part = [shares(forward), shares(backward)]
    return [
        Statement(
            "two layers, E2M1 floor with layer norm in float32: it ends worse than knowing nothing",
            decided(min(ends) > nothing, max(ends) < 3.5),
            f"{told(ends)} nats, knowing nothing {nothing:.2f}, float32 {told(list(losses(table, PLAIN).values()))}",
        ),
        Statement(
            "there it is the gradient of the logits: that alone has more than half of the gap, all other layers less "
            "than a fifth",
            decided(share(alone) > 0.5 and share(others) < 0.2, share(alone) < 0.2),
            f"{share(alone):.2f} and {share(others):.2f}",
        ),
        Statement(
            "there it is the drift: centring leaves less than a fifth of what that gradient costs",
            decided(max(shares(centred, alone)) < 0.2, min(shares(centred, alone)) > 0.5),
            f"{told(shares(centred, alone))} of it",
        ),
        Statement(
            "there even with stochastic gradients leaves less than a third",
            decided(max(shares(mended)) < 1 / 3, min(shares(mended)) > 2 / 3),
            f"{told(shares(mended))} of the gap",
        ),
        Statement(
            "there it is the backward pass: forward only leaves less than a third, gradients alone more than two "
            "thirds",
            decided(
                max(in_part[0]) < 1 / 3 and min(in_part[1]) > 2 / 3,
                min(in_part[0]) > 2 / 3 and max(in_part[1]) < 1 / 3,
            ),
            f"{told(in_part[0])} and {told(in_part[1])} of the gap",
        ),
        Statement(
            "there the mean row of the last layer goes with what is lost",
            not wrong,
            "; ".join(f"{arm} {row:.2f}" for arm, row in rows.items()),
        ),
    ]


def ladder(context: Context) -> str:
    """I10: what laws a ladder of small models of our own follows, in float32 and in low precisions."""
    paths = {name: context.results / "language" / f"{name}.csv" for name in LADDERS}
    if not paths["ladder"].is_file():
        return ""
    fits = {
        arm: fit_scaling_law(read_losses(paths[name], where={"arm": arm}))
        for name, arms in LADDERS.items() if paths[name].is_file() for arm in arms
    }  # fmt: skip
    plain, table = fits[PLAIN], fits[PLAIN].table
    low, high = plain.bootstrap(level=0.9)["E"]
    parts = []
    for arm in list(fits)[2:]:
        found = compare_laws(fits[BFLOAT16], fits[arm], level=1 - LEVEL)
        told = "can be told from" if found.told_apart else "cannot be told from"
        numbers = f"{found.distance:.2%} apart, p {found.p:.2g}, at most {found.at_most:.2%}"
        parts.append(f"that of {arm}, E {fits[arm].law.E:.4f}, {told} it ({numbers})")
    return (
        f"A ladder of our own, {len(table)} runs of each of {len(fits)} recipes, from {table.parameters.min():,.0f} to "
        f"{table.parameters.max():,.0f} parameters and {table.tokens.min():,.0f} to {table.tokens.max():,.0f} tokens: "
        f"in float32 E is {plain.law.E:.4f} (90 % bootstrap interval {low:.4f} to {high:.4f}), where the entropy of "
        f"the source is {ENTROPY}. Beside the law of bfloat16, {'; '.join(parts)}. It is small, and decides nothing "
        "of the claim, which is about large models."
    )


def organisation(context: Context) -> list[Statement]:
    """M7: blocks along a token, across tokens, and tiles, on the tensors of trained models."""
    table = study(context, "organisation")
    made: list[Statement] = []
    if table is None:
        return made
    for arm, found in table["arms"].items():
        kept = [run["organisations"] for run in found["runs"]]
        for kind in ("activations", "gradients", "weights"):
            mean = {each: float(np.mean([run[kind][each] for run in kept])) for each in kept[0][kind]}
            numbers = "R-MSE " + ", ".join(f"{each} {value:.4f}" for each, value in mean.items())
            if kind == "activations":
                what, holds = "inside a token is best", mean["row"] == min(mean.values())
            else:
                what, holds = "no two differ by 1 %", max(mean.values()) < 1.01 * min(mean.values())
            made.append(Statement(f"{kind} of a small language model ({arm}): {what}", holds, numbers))
    return made

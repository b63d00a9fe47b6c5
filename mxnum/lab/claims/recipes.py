"""Checks of recipes by the loss that they end at: M1, M10. Losses are means over the last looks, seed by seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum.lab.claims import decoders, judged
from mxnum.lab.claims.evidence import Evidence, Statement, Whose
from mxnum.lab.claims.registry import Context, check
from mxnum.lab.claims.training import LEVEL, settings
from mxnum.lab.studies.inference import mean_interval

#: The last fifth of a run, in the bins of the stored curve: what a loss at the end is averaged over.
LOOKS = 8
_COMMAND = "mxnum lab run recipes --results docs/lab/results"
#: The recipes for 4 bits that the paper names.
_OF_THE_PAPER = (
    "E2M1 even, SR gradients",
    "E2M1 ceil, SR gradients",
    "E3M0 ceil, SR gradients",
    "E2M1 ceil, E3M0 ceil SR gradients",
)
#: What the answer of M10 calls recipes of the paper; those in 4 bits have stochastic gradients.
_LABELS = {
    "E4M3 floor": "E4M3", "E2M3 floor": "E2M3", "E3M2 floor": "E3M2", "E2M1 even": "E2M1 even, SR gradients",
    "E2M1 ceil": "E2M1 ceil, SR gradients", "E2M1 with E3M0 gradients": "E2M1 even, E3M0 ceil SR gradients",
}  # fmt: skip
Limits = tuple[float, float, float]


def final_logs(table: dict[str, Any], arm: str) -> dict[int, float]:
    """Of each seed the mean logarithm of the last looks at its loss."""
    found = {}
    for run in table["arms"][arm]["runs"]:
        looks = run["curve"][-LOOKS:]
        if looks and all(looks):
            found[run["seed"]] = float(np.mean(np.log(looks)))
    return found


def gaps(table: dict[str, Any], arm: str, other: str) -> list[float]:
    """By how much an arm ends above another on each seed, in logarithms of the loss."""
    ours, theirs = final_logs(table, arm), final_logs(table, other)
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def _words(limits: Limits) -> str:
    mean, low, high = (math.expm1(v) for v in limits)
    return f"{mean:+.1%} ({1 - LEVEL:.0%}: {low:+.1%} to {high:+.1%})"


def below(values: list[float], limit: float = 0.0) -> tuple[bool | None, str]:
    """Whether the mean lies below a limit, by Student's limits at `LEVEL`, and those limits."""
    found = mean_interval(values, 1 - LEVEL)
    return judged.below(values, limit, LEVEL), "too few runs" if found is None else _words(found)


@check("M1", needs=("recipes.json",), command=_COMMAND)
def stochastic_gradients(context: Context) -> Evidence:
    """The loss that is reached with gradients rounded to nearest and stochastically, seed by seed."""
    table = context.json("recipes.json")
    statements = []
    for rule in ("floor", "even"):
        names = [f"recipe E2M1 {rule}", f"recipe E2M1 {rule}, SR gradients"]
        if set(names) <= set(table["arms"]):
            holds, numbers = below(gaps(table, names[1], names[0]))
            what = f"E2M1 {rule}: stochastic rounding of the gradients reaches a lower loss"
            statements.append(Statement(what, holds, numbers))
    statements += decoders.stochastic_gradients(context)
    note = f"Losses are means of the last {LOOKS} of 40 looks, compared on the same seeds. {decoders.ONE_SOURCE}"
    answer, number = _of_gradients(context, statements)
    return Evidence((), tuple(statements), note, settings(table), answer, number)


def _of_gradients(context: Context, statements: list[Statement]) -> tuple[str, str]:
    """Return under which rules stochastic gradients help language models, and by how much in the last study."""
    tables = [table for _, table in decoders.of_recipes(context)]
    if not tables:
        return "", ""
    made: dict[bool | None, list[str]] = {False: [], True: [], None: []}
    for rule, arm in decoders.RULES.items():
        more = float(np.mean(decoders.gaps(tables[-1], f"{arm}, SR gradients", arm)))
        of_rule = [s for s in statements if f"E2M1 {rule}: stochastic gradients" in s.what]
        made[judged.unanimous(of_rule)].append(f"{rule} ({more:+.2f})")
    words = {True: "lower the loss under", False: "raise it under", None: "are undecided under"}
    told = ", and ".join(f"{words[sure]} {' and '.join(made[sure])}" for sure in words if made[sure])
    undecided = [s for s in statements if "stochastic rounding of the gradients" in s.what and s.holds is None]
    answer = (
        f"In E2M1 small language models, stochastic gradients {told} nats. "
        f"Undecided: {'the MLP, and ' * bool(undecided)}rounding of weights and activations, which was not varied."
    )
    decisive = next(rule for rules in made.values() for rule in rules)
    return answer, f"{decisive.replace('(', '').replace(')', '')} nats"


@check("M10", needs=("recipes.json",), command=_COMMAND)
def recipes(context: Context) -> Evidence:
    """Gaps to FP32 of the recipes for 8, 6 and 4 bits, on the same seeds."""
    table = context.json("recipes.json")
    statements = []
    for name in ("E4M3", "E2M3", "E3M2"):
        if f"recipe {name}" in table["arms"] and "recipe bf16" in table["arms"]:
            holds, numbers = below(gaps(table, f"recipe {name}", "recipe bf16"), math.log(1.02))
            statements.append(Statement(f"{name} tracks bf16 (it ends less than 2 % above)", holds, numbers))
    tables = [table] + ([context.json("recipes-4bit.json")] if context.has("recipes-4bit.json") else [])
    for each in tables:
        floor, plain = "recipe E2M1 floor", "recipe FP32"
        for name in each["arms"]:
            if name in (floor, plain) or not name.startswith("recipe E") or {floor, plain} - set(each["arms"]):
                continue
            if "SR" not in name and "ceil" not in name:
                continue
            holds, numbers = _closes(each, name, floor, plain)
            what = f"{name.removeprefix('recipe ')}: closes more than half of the gap of E2M1 floor to FP32"
            if name == "recipe E3M0 ceil, SR gradients":  # not the recipe of the paper
                holds, numbers = None, f"{numbers}; E3M0 is everywhere here, the paper has it in the gradients alone"
            whose = Whose.PAPER if name.removeprefix("recipe ") in _OF_THE_PAPER else Whose.OURS
            statements.append(Statement(what, holds, numbers, whose))
    statements += decoders.recipes(context)
    note = (
        f"Relative mean squared error of a residual MLP, layer norm in bfloat16, means of the last {LOOKS} of 40 "
        f"looks; and the loss at the end of a small language model on a Markov source. {decoders.ONE_SOURCE}"
    )
    answer, number = _of_bfloat16(context, statements)
    return Evidence((), tuple(statements), note, settings(table), answer, number)


def _of_bfloat16(context: Context, statements: list[Statement]) -> tuple[str, str]:
    """Return which of the paper's recipes end near bfloat16 in the last study of language models."""
    tables = [table for _, table in decoders.of_recipes(context)]
    if not tables:
        return "", ""
    found = {label: float(np.mean(decoders.gaps(tables[-1], arm, decoders.BFLOAT16))) for label, arm in _LABELS.items()}
    near, far = (
        ", ".join(f"{label} ({gap:+.3f})" for label, gap in found.items() if (gap < decoders.NEAR) is is_near) or "none"
        for is_near in (True, False)
    )
    on_mlp = [
        s.holds for s in statements if "floor to FP32" in s.what and s.whose is Whose.PAPER and s.holds is not None
    ]
    answer = (
        f"Small models end within {decoders.NEAR} nats of bfloat16 in {near}; not in {far}. On an MLP {sum(on_mlp)} "
        f"of {len(on_mlp)} 4-bit recipes halve the gap. Undecided: large models."
    )
    return answer, f"E4M3 {found['E4M3 floor']:+.3f} nats"


def _closes(table: dict[str, Any], name: str, floor: str, plain: str) -> tuple[bool | None, str]:
    """Whether a recipe's gap to FP32 is less than half of the gap of E2M1 with the floor rule, seed by seed."""
    ours, worst, none = (final_logs(table, arm) for arm in (name, floor, plain))
    seeds = sorted(ours.keys() & worst.keys() & none.keys())
    holds, _ = below([ours[s] - none[s] - (worst[s] - none[s]) / 2 for s in seeds])
    words = [mean_interval(gaps(table, arm, plain), 1 - LEVEL) for arm in (name, floor)]
    if words[0] is None or words[1] is None:
        return None, "too few runs"
    return holds, f"{_words(words[0])} above FP32; E2M1 floor to nearest {_words(words[1])}"

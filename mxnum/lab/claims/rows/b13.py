"""B13: how much the sums of Hopper's FP8 unit raise the loss of a small language model in FP8."""

from __future__ import annotations

from typing import Any

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, Whose, below, decided
from mxnum.lab.claims.language_models import ONE_SOURCE, PLAIN, Table, gaps, mean_gap, words
from mxnum.lab.studies.statistics import holm, mean_interval, sign_flip

CLAIM = Claim(
    "B13",
    "What Hopper's FP8 sums cost a language model",
    "Expected: in a small language model in FP8, the sums of Hopper's unit raise the loss by less than .002 nats, so "
    "promotion to float32 lowers the loss by less than .002 nats.",
    "Five arms are trained on eight seeds: four in FP8, which differ only in how they sum, and one in float32. The "
    "tests were fixed before the runs (`docs/lab/results/language/README.md`).",
    "A large model, whose forward pass also has sums of 4,096 and more products, would decide the claim.",
    whose=Whose.OURS,
    needs=("language/accumulators.json",),
    command="mxnum lab language-model accumulators",
)
FP8, HOPPER, PROMOTED, RECIPE = (
    "FP8, float32 sums", "FP8, Hopper's sums", "FP8, Hopper's sums, promoted", "FP8, backward promoted",
)  # fmt: skip
#: A difference of losses between -`NONE` and `NONE` nats counts as no cost.
NONE = 0.002
LEVEL = 0.05


def is_none(values: list[float]) -> bool | None:
    """Judge whether the mean of the loss differences in `values` counts as no cost.

    The result is True if both confidence limits of the mean lie between -`NONE` and `NONE`. The
    result is False if both limits lie above `NONE`, or both lie below -`NONE`. Otherwise, the
    result is None.
    """
    found = mean_interval(values)
    if found is None:
        return None
    return decided(found[1] > -NONE and found[2] < NONE, found[1] > NONE or found[2] < -NONE)


def costs(values: list[float], p: float) -> bool | None:
    """Judge whether the mean of the loss differences in `values` is a cost.

    The result is True if the mean is significantly above 0 (`p` is below `LEVEL`). The result is
    False if the mean counts as no cost or is significantly below 0; otherwise None.
    """
    found = mean_interval(values)
    if found is None:
        return None
    return decided(p < LEVEL and found[0] > 0, bool(is_none(values)) or (p < LEVEL and found[0] < 0))


def outcomes(table: Table) -> dict[str, tuple[bool | None, str]]:
    """Return the outcome and the numbers of each test of the study, in the study's order."""
    of_format, of_sums = gaps(table, FP8, PLAIN), gaps(table, HOPPER, FP8)
    gained, of_recipe = gaps(table, HOPPER, PROMOTED), gaps(table, RECIPE, FP8)
    tested = {
        "FP8 with float32 sums raises the loss": of_format,
        "Hopper's sums raise the loss": of_sums,
        "promotion lowers the loss": gained,
    }
    corrected = holm({what: sign_flip(values) for what, values in tested.items()})
    first, second, fourth = (
        {what: (costs(values, corrected[what]), f"{words(values)} nats, p {corrected[what]:.2g} after Holm")}
        for what, values in tested.items()
    )
    less = [a - b for a, b in zip(of_sums, of_format, strict=True)]
    third = {"Hopper's sums raise the loss by less than the format does": (below(less), f"{words(less)} nats")}
    fifth = {
        "the recipe `hopper fp8` is as good as FP8 with float32 sums": (is_none(of_recipe), f"{words(of_recipe)} nats")
    }
    return first | second | third | fourth | fifth


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("language/accumulators.json")
    found = outcomes(table)
    _, (sums, of_sums), _, (promotion, of_promotion), (recipe, of_recipe) = found.values()
    statements = [
        Statement(f"Hopper's sums raise the loss by less than {NONE} nats", _not(sums), of_sums),
        Statement(f"promotion lowers the loss by less than {NONE} nats", _not(promotion), of_promotion),
        Statement("the recipe `hopper fp8` is as good as FP8 with float32 sums", recipe, of_recipe),
    ]
    said = {True: "yes", False: "no", None: "undecided"}
    tests = "; ".join(f"{what}: {said[holds]} ({text})" for what, (holds, text) in found.items())
    note = f"All tests, in the order of the study: {tests}. {ONE_SOURCE}"
    number = f"{mean_gap(table, HOPPER, FP8):+.4f} nats"
    return Evidence((), statements, note, _settings(table), _answer(table, statements), number)


def _not(holds: bool | None) -> bool | None:
    return None if holds is None else not holds


def _settings(table: Table) -> dict[str, Any]:
    arm = table["arms"][HOPPER]
    kept = ("width", "layers", "context", "sequences", "steps", "rate")
    return {"seeds": len(arm["runs"])} | {name: arm["experiment"][name] for name in kept}


def _answer(table: Table, statements: list[Statement]) -> str:
    interval = mean_interval(gaps(table, HOPPER, FP8))
    limits = "" if interval is None else f" ({interval[1]:+.4f} to {interval[2]:+.4f})"
    open_ = " Undecided: whether this change is a cost." * (statements[0].holds is None)
    return (
        f"In a small model Hopper's sums change the final loss by {mean_gap(table, HOPPER, FP8):+.4f} nats{limits}, "
        f"and the FP8 format changes it by {mean_gap(table, FP8, PLAIN):+.4f}.{open_} Undecided: large models."
    )

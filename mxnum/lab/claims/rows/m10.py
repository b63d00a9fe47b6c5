"""M10: which MXFP4 trains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mxnum.lab.claims import language_models, mlp_runs
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, Whose, below
from mxnum.lab.claims.language_models import BFLOAT16, ONE_SOURCE, gaps, mean_gap, of_recipes, words

CLAIM = Claim(
    "M10",
    "Which MXFP4 trains",
    "MXFP4 with default settings diverges or has a growing gap to BF16. With stochastic rounding of gradients, "
    "three recipes reduce the gap to about 0.02 nats: E2M1 with 'even', E2M1 with 'ceil' and E3M0 with 'ceil'. MXFP6 "
    "and MXFP8 end close to BF16.",
    BY_TRAINING,
    "Large language models would decide the claim; the residual MLP gives only hints.",
    needs=("recipes.json",),
    takes=language_models.RECIPE_FILES,
    command=mlp_runs.command("recipes"),
)
CLAIM.figure()(mlp_runs.draw_final_losses)
#: The names of the paper's 4-bit recipes in studies of the MLP (`ON_THE_MLP`) and of language
#: models (`NAMED`). `FURTHER` lists recipes that are not the paper's.
ON_THE_MLP = (
    "E2M1 even, SR gradients", "E2M1 ceil, SR gradients", "E3M0 ceil, SR gradients",
    "E2M1 ceil, E3M0 ceil SR gradients",
)  # fmt: skip
NAMED = ("E2M1 even, SR gradients", "E2M1 ceil, SR gradients", "E2M1 even, E3M0 ceil SR gradients")
FURTHER = ("E2M1 rceil, SR gradients", "INT4 ceil, SR gradients", "NVFP4, SR gradients", "NVFP4 as NVIDIA trains")
#: The paper's recipes. Each key is a recipe's name in the answer, and each value is the recipe's
#: arm in studies of language models. The 4-bit arms round gradients stochastically.
LABELS = {
    "E4M3 floor": "E4M3", "E2M3 floor": "E2M3", "E3M2 floor": "E3M2",
    **dict(zip(("E2M1 even", "E2M1 ceil", "E2M1 with E3M0 gradients"), NAMED, strict=True)),
}  # fmt: skip
#: Gaps below this limit round to the paper's 0.02 nats or less.
NEAR = 0.025


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("recipes.json")
    statements = []
    for name in ("E4M3", "E2M3", "E3M2"):
        if {f"recipe {name}", "recipe bf16"} <= set(table["arms"]):
            holds, numbers = mlp_runs.below(mlp_runs.gaps(table, f"recipe {name}", "recipe bf16"), math.log(1.02))
            statements.append(
                Statement(f"{name} follows bf16: its final loss is less than 2 % above bf16's", holds, numbers)
            )
    statements += in_4_bits(table)
    statements += in_4_bits(context.json("recipes-4bit.json")) if context.has("recipes-4bit.json") else ()
    statements += of_language_models(context)
    note = (
        "The layer norm of the residual MLP is in bfloat16, except in FP32. The loss of the MLP is its mean squared "
        "error. Each run is divided into 40 parts; the final loss is the geometric mean of the median losses of the "
        f"last {mlp_runs.LAST_BINS} parts. The loss of the small language model is its final loss on a Markov source. "
        f"{ONE_SOURCE}"
    )
    return Evidence((), statements, note, mlp_runs.settings(table), *_answer(context, statements))


def in_4_bits(table: dict[str, Any]) -> Iterator[Statement]:
    """Judge whether recipes remove more than half of the gap between E2M1 with floor and FP32."""
    floor, plain = "recipe E2M1 floor", "recipe FP32"
    for name in table["arms"] if {floor, plain} <= set(table["arms"]) else ():
        recipe = name.removeprefix("recipe ")
        if name == floor or not recipe.startswith("E") or not ("SR" in name or "ceil" in name):
            continue
        ours, worst, none = (mlp_runs.final_logs(table, arm) for arm in (name, floor, plain))
        seeds = sorted(ours.keys() & worst.keys() & none.keys())
        holds, _ = mlp_runs.below([ours[s] - none[s] - (worst[s] - none[s]) / 2 for s in seeds])
        gap, of_floor = (mlp_runs.words(mlp_runs.gaps(table, arm, plain)) for arm in (name, floor))
        numbers = (
            f"gap {gap}; gap of E2M1 with floor and nearest rounding: {of_floor}" if len(seeds) > 2 else "too few runs"
        )
        if recipe == "E3M0 ceil, SR gradients":  # the paper's recipe has E3M0 only in gradients
            holds, numbers = None, f"{numbers}; E3M0 is in all operands here, and only in the gradients in the paper"
        what = f"{recipe}: removes more than half of the gap between E2M1 with floor and FP32"
        yield Statement(what, holds, numbers, Whose.PAPER if recipe in ON_THE_MLP else Whose.OURS)


def of_language_models(context: Context) -> list[Statement]:
    """Judge the gaps between bfloat16 and language models trained in 8, 6 and 4 bits."""
    made = []
    for model, table in of_recipes(context):
        for arm in ("E4M3", "E2M3", "E3M2"):
            values = gaps(table, arm, BFLOAT16)
            what = f"{model}, {arm}: ends less than {NEAR} nats above bfloat16"
            made.append(Statement(what, below(values, NEAR), words(values)))
        for arm in (*NAMED, *FURTHER):
            values, half = gaps(table, arm, BFLOAT16), gaps(table, arm, share=0.5, of="E2M1")
            what = f"{model}, {arm}: removes more than half of the gap of E2M1 with floor"
            whose = Whose.PAPER if arm in NAMED else Whose.OURS
            made.append(Statement(what, below(half), f"{words(values)} nats above bfloat16", whose))
    return made or [Statement("language models have gaps of about 0.02 in the loss", None, "not run")]


def _answer(context: Context, statements: list[Statement]) -> tuple[str, str]:
    """Return the answer, and the gap of E4M3. The answer says which recipes end near bfloat16."""
    tables = [table for _, table in of_recipes(context)]
    if not tables:
        return "", ""
    found = {label: mean_gap(tables[-1], arm, BFLOAT16) for label, arm in LABELS.items()}
    near, far = (
        ", ".join(f"{label} ({gap:+.3f})" for label, gap in found.items() if (gap < NEAR) is is_near) or "none"
        for is_near in (True, False)
    )
    papers = [s for s in statements if "floor and FP32" in s.what and s.whose is Whose.PAPER]
    on_mlp = [s.holds for s in papers if s.holds is not None]
    answer = (
        f"Language models end within {NEAR} nats of bfloat16 with {near}, not with {far}. On MLPs, "
        f"{sum(on_mlp)} of {len(on_mlp)} recipes halve the gap under floor. Undecided: large models."
    )
    return answer, f"E4M3 {found['E4M3 floor']:+.3f} nats"

"""M1: rounding, to nearest in the forward pass and stochastically for gradients."""

from __future__ import annotations

from mxnum.lab.claims import language_models, mlp_runs
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import LEVEL, Evidence, Statement, Whose, unanimous
from mxnum.lab.claims.language_models import ONE_SOURCE, gaps, mean_gap, of_recipes, words
from mxnum.lab.studies.statistics import holm, sign_flip

CLAIM = Claim(
    "M1",
    "Rounding: to nearest in the forward pass, stochastic for gradients",
    "Weights and activations are best rounded to nearest even, and gradients stochastically.",
    BY_TRAINING,
    "Training runs with each rounding for each operand on several seeds would decide the claim. Runs of language "
    "models would decide whether the paper's numbers are right.",
    needs=("recipes.json",),
    takes=language_models.RECIPE_FILES,
    command=mlp_runs.command("recipes"),
)
CLAIM.figure()(mlp_runs.draw_final_losses)
#: Scale rules, and the recipes of language models that use them.
RULES = {"floor": "E2M1", "even": "E2M1 even", "rceil": "E2M1 rceil"}


@CLAIM.check
def _check(context: Context) -> Evidence:
    table = context.json("recipes.json")
    statements = []
    for rule in ("floor", "even"):
        names = [f"recipe E2M1 {rule}", f"recipe E2M1 {rule}, SR gradients"]
        if set(names) <= set(table["arms"]):
            what = f"E2M1 {rule} in a residual MLP: stochastic rounding of the gradients reaches a lower loss"
            statements.append(Statement(what, *mlp_runs.below(mlp_runs.gaps(table, names[1], names[0]))))
    statements += of_language_models(context)
    note = (
        "Each run of the MLP is divided into 40 parts; its final loss is the geometric mean of the median losses of "
        f"the last {mlp_runs.LAST_BINS} parts. Final losses are compared on the same seeds. {ONE_SOURCE}"
    )
    return Evidence((), statements, note, mlp_runs.settings(table), *_answer(context, statements))


def of_language_models(context: Context) -> list[Statement]:
    """Judge, for each scale rule, whether stochastic rounding of gradients lowers E2M1's loss."""
    made = []
    for model, table in of_recipes(context):
        pairs = {rule: gaps(table, f"{arm}, SR gradients", arm) for rule, arm in RULES.items()}
        corrected = holm({rule: sign_flip(values) for rule, values in pairs.items()})
        for rule, values in pairs.items():
            holds = sum(values) < 0 if corrected[rule] < LEVEL else None
            what = f"{model}, E2M1 {rule}: stochastic rounding of gradients reaches a lower loss"
            whose = Whose.OURS if rule == "rceil" else Whose.PAPER  # the paper does not use rceil
            made.append(Statement(what, holds, f"by {words(values)} nats, p {corrected[rule]:.2g} after Holm", whose))
    return made or [Statement("stochastic rounding of gradients helps language models", None, "not run")]


def _answer(context: Context, statements: list[Statement]) -> tuple[str, str]:
    """Return the answer, with the effect under each scale rule, and the text of one effect.

    The latter is an effect that refutes the claim, if there is one.
    """
    tables = [table for _, table in of_recipes(context)]
    if not tables:
        return "", ""
    made: dict[bool | None, list[str]] = {False: [], True: [], None: []}
    for rule, arm in RULES.items():
        of_rule = [s for s in statements if f"E2M1 {rule}: stochastic rounding of gradients" in s.what]
        more = mean_gap(tables[-1], f"{arm}, SR gradients", arm)
        made[unanimous(of_rule)].append(f"{rule} ({more:+.2f})")
    verbs = {True: "lowers the loss under", False: "raises the loss under", None: "has an undecided effect under"}
    effects = ", and ".join(f"{verb} {' and '.join(made[sure])}" for sure, verb in verbs.items() if made[sure])
    undecided = [s for s in statements if "stochastic rounding of the gradients" in s.what and s.holds is None]
    answer = (
        f"In small language models in E2M1, stochastic rounding of gradients {effects} (in nats). Undecided: "
        f"{'the MLP, and ' * bool(undecided)}the rounding of weights and activations, which is the same in all runs."
    )
    decisive = next(rule for rules in made.values() for rule in rules)
    return answer, f"{decisive.replace('(', '').replace(')', '')} nats"

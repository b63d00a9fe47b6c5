"""B12: the effect of each part of a 4-bit recipe."""

from __future__ import annotations

from typing import Any

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, Whose
from mxnum.lab.claims.mlp_runs import is_sure, over_rates, settings
from mxnum.lab.studies import report
from mxnum.lab.studies.statistics import Comparison, compare, corrected

CLAIM = Claim(
    "B12",
    "Which part of a 4-bit recipe does what",
    "Expected after a rate of .024: 4-bit layer norm alone brings the jump of the loss sooner and comes back; 4-bit "
    "products alone delay the jump; only both together run away.",
    "The recipe and its parts at two more rates, by tests fixed before 24 fresh seeds; and single operands, scale "
    "rules and roundings at the first rate.",
    whose=Whose.OURS,
    needs=("parts.json", "delay.json"),
    command="mxnum lab sweep parts --out parts",
)
#: The tests of `parts` that belong together: arm, control, event, and whether it is expected
#: sooner.
PARTS = {
    "4-bit products alone delay the jump": ("E2M1, LN FP32", "FP32", "first", False),
    "4-bit layer norm alone brings the jump sooner": ("LN E2M1", "FP32", "first", True),
    "4-bit layer norm alone runs away later than everything in 4 bits": ("LN E2M1", "E2M1", "away", False),
    "4-bit products alone run away later than everything in 4 bits": ("E2M1, LN FP32", "E2M1", "away", False),
}
SINGLE = [f"{operand} alone" for operand in ("weights", "activations", "gradients")]


@CLAIM.check
def _check(context: Context) -> Evidence:
    table, delay = context.json("parts.json"), context.json("delay.json")
    first = report.compared(delay, {name: "FP32" for name in delay["arms"] if name != "FP32"})
    later = {name: is_sure(test) and not test.comes_sooner for name, test in first.items()}
    counts = {name: _jumps_text(delay, name, test) for name, test in first.items()}
    statements = [
        *of_parts(table),
        Statement("at rate 0.024 4-bit products alone delay the jump", later["products"] or None, counts["products"]),
        Statement(
            "there one operand in 4 bits is enough to delay it",
            any(later[name] for name in SINGLE) or None,
            "; ".join(f"{name} {counts[name]}" for name in SINGLE),
        ),
    ]
    arms = [
        [arm for arm, _ in over_rates(table, kind, kind, "away")]
        for kind in ("E2M1", "E2M1, LN FP32", "LN E2M1", "FP32")
    ]
    away, runs = [sum(arm.events for arm in each) for each in arms], sum(arm.runs for arm in arms[0])
    answer = (
        f"At .034 and .048, of {runs} runs each, {away[0]} are lost with everything in 4 bits, {away[1]} with products "
        f"alone, {away[2]} with layer norm alone, {away[3]} in FP32."
        + " At .024 4-bit products delay the jump." * later["products"]
        + " Undecided: whether they do at higher rates." * (statements[0].holds is None)
    )
    delaying = ", ".join(name for name in later if later[name]) or "none"
    note = (
        f"At rate 0.024 the jump comes later than in FP32 with: {delaying} (exact test, 1 % after Holm's correction "
        f"over {len(first)}). All arms: {'; '.join(f'{name} {counts[name]}' for name in first)}."
    )
    return Evidence((), statements, note, settings(table), answer, ", ".join(map(str, away)) + f" of {runs}")


def _jumps_text(table: dict[str, Any], name: str, test: Comparison) -> str:
    ours, theirs = report.arm_of(table, name), report.arm_of(table, "FP32")
    return f"{ours.events} of {ours.runs} jump, of FP32 {theirs.events} of {theirs.runs} ({test})"


def of_parts(table: dict[str, Any]) -> list[Statement]:
    """Judge the hypotheses `PARTS` together, over all rates of the table."""
    pairs = {what: over_rates(table, arm, control, event) for what, (arm, control, event, _) in PARTS.items()}
    statements = []
    for what, test in corrected({what: compare(of) for what, of in pairs.items()}).items():
        events, of_control = (sum(pair[side].events for pair in pairs[what]) for side in (0, 1))
        runs = sum(pair[0].runs for pair in pairs[what])
        holds = test.comes_sooner is PARTS[what][3] if is_sure(test) else None
        statements.append(Statement(what, holds, f"{events} of {runs} against {of_control} of {runs}; {test}"))
    return statements

"""Checks of runaway divergence: at the paper's size (I6a), E4M3's hazard (I6b), training in 4 bits (I6c, B12)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.evidence import Evidence, Statement, ours
from mxnum.lab.claims.findings import counted
from mxnum.lab.claims.registry import Context, check
from mxnum.lab.claims.training import LEVEL, settings
from mxnum.lab.studies import report
from mxnum.lab.studies.excursions import Outcome
from mxnum.lab.studies.inference import Comparison, compare, corrected, wilson

#: "It does not happen" needs an upper 95 % limit of its share, by Wilson, below this.
SHARE = 0.25
#: The rule written before `recovery` ran asks for so many runaways more than FP32's.
ENOUGH = 5
#: The limits within which a hazard ratio counts as no difference, written before `hazard` ran.
NO_DIFFERENCE = 0.5, 2.0
#: The rate at which the confirmatory tests of I6c were fixed.
RATE = "rate 0.034"
#: The tests of `parts` that belong together: arm, control, event, and what is expected.
PARTS = {
    "4-bit products alone delay the jump": ("E2M1, LN FP32", "FP32", "first", False),
    "4-bit layer norm alone brings the jump sooner": ("LN E2M1", "FP32", "first", True),
    "4-bit layer norm alone runs away later than everything in 4 bits": ("LN E2M1", "E2M1", "away", False),
    "4-bit products alone run away later than everything in 4 bits": ("E2M1, LN FP32", "E2M1", "away", False),
}


@dataclass(frozen=True)
class Contest:
    """Runaways of one arm beside those of another, and the test of which come sooner."""

    away: int
    runs: int
    of_control: int
    of: int
    test: Comparison

    @property
    def counts(self) -> str:
        """Return the counts as "15 of 16 runs against 3 of 16"."""
        return f"{self.away} of {self.runs} runs against {self.of_control} of {self.of}"

    @property
    def decides(self) -> bool | None:
        """Return True if the first arm runs away sooner, False if later, None if the test does not say."""
        return None if self.test.p is None or self.test.p >= LEVEL else self.test.comes_sooner


def contest(table: Mapping[str, Any], arm: str = "E2M1", control: str = "FP32", rate: str = "") -> Contest:
    """Compare two arms by the steps at which their runaways begin: the exact paired log-rank test."""
    a, b = (report.arm_of(dict(table), name + (f", {rate}" if rate else ""), event="away") for name in (arm, control))
    return Contest(a.events, a.runs, b.events, b.runs, compare([(a, b)]))


@check("I6a", needs=("paper-scale.json",), command="mxnum lab run paper-scale --results docs/lab/results")
def at_the_size_of_the_paper(context: Context) -> Evidence:
    """Look for runs in E4M3 that jump within the planned steps while FP32 on the same seed stays calm."""
    jumps = paper_size.jumps(context)
    holds = True if jumps.beside_calm else None if jumps.e4m3 else False
    statements = [
        Statement(
            f"a run in E4M3 jumps where FP32 on the same seed does not, {paper_size.WHERE}",
            holds,
            f"{jumps.beside_calm} of {jumps.runs} runs in E4M3 and its variants, within {jumps.steps:,} steps",
        )
    ]
    statements += ours(
        Statement(f"E2M1 jumps there on every seed, FP32 on none, {paper_size.WHERE}", jumps.e2m1_always, jumps.e2m1)
    )
    answer = (
        f"It happens: in {jumps.beside_calm} of {jumps.runs} planned runs in E4M3 the loss jumps where FP32 stays "
        f"calm; how often, and whether E4M3 causes it, {counted(jumps.of, 'run')} of FP32 cannot tell."
    )
    return Evidence(
        statements=tuple(statements),
        note=f"An excursion is a loss above 20 times the least running median. By arm: {jumps.by_arm}.",
        configuration={"study": "paper-scale", "seeds": jumps.seeds},
        answer=answer if holds else "",
        number=f"{jumps.beside_calm} of {jumps.runs} against {jumps.fp32} of {jumps.of}",
    )


@check("I6b", needs=("hazard.json",), command="mxnum lab sweep mxnum/lab/studies/files/mlp/hazard.toml --out hazard")
def hazard_in_e4m3(context: Context) -> Evidence:
    """Compare the hazard of a jump in E4M3 with FP32's: in the toy by Cox's ratio, at the paper's size by exposure."""
    table = context.json("hazard.json")
    statements = [hazard_of_e4m3(table)]
    if context.has("recovery.json"):
        never, numbers = none_away(context.json("recovery.json"), "E4M3")
        statements.append(Statement("E4M3 runs away in the toy, at rate 0.024", False if never else None, numbers))
    jumps = paper_size.jumps(context)
    if jumps.runs:
        what = f"E4M3 jumps more often than FP32, {paper_size.WHERE}"
        numbers = (
            f"{jumps.e4m3} of {jumps.runs} runs against {jumps.fp32} of {jumps.of}; if both had one hazard, all jumps "
            f"would fall to E4M3 with probability {jumps.chance:.1g}"
        )
        statements.append(Statement(what, None, numbers))
    ratio = hazard_ratio(table)
    answer, number = "", ""
    if ratio is not None and statements[0].holds is False:
        answer = (
            f"In the toy E4M3 does not raise the hazard of a jump by more than {100 * (ratio[2] - 1):.0f} % (upper "
            "95 % limit, three rates pooled); at the paper's size it is undecided."
        )
        number = "hazard ratio {:.2f} ({:.2f} to {:.2f})".format(*ratio)
    return Evidence(
        statements=tuple(statements),
        note=f"The ratio pools rates that differ: {_by_rate(table)}.",
        configuration=settings(table),
        answer=answer,
        number=number,
    )


@check("I6c", needs=("quick.json",), command="mxnum reproduce --quick --only I6c")
def in_four_bits(context: Context) -> Evidence:
    """Compare runaways in E2M1 with FP32's on the same seeds.

    The confirmatory test is on the seeds of `quick`: the step at which a runaway begins, by the exact paired log-rank
    test, two-sided, at `LEVEL`. Stored studies add the same test on other seeds, and the rule that was written before
    `recovery`.
    """
    table = context.json("quick.json")
    if not {"FP32", "E2M1"} <= set(table["arms"]):
        return Evidence(note="All runs of an arm failed.", configuration=settings(table))
    found = contest(table)
    statements = [_sooner(found, f"{found.test.seeds} fresh pairs")]
    if context.has("parts.json"):
        parts = context.json("parts.json")
        again = contest(parts, rate=RATE)
        statements.append(_sooner(again, f"{again.test.seeds} more pairs"))
    if context.has("recovery.json"):
        recovery = context.json("recovery.json")
        never, numbers = none_away(recovery, "LN E2M1")
        what = "4-bit layer norm alone does not run away, at rate 0.024"
        statements += [_by_the_first_rule(recovery), Statement(what, True if never else None, numbers)]
    words = {
        True: "4 bits run away sooner than FP32",
        False: "4 bits run away later than FP32",
        None: "No difference between 4 bits and FP32 is shown",
    }
    p = "-" if found.test.p is None else f"{found.test.p:.2g}"
    answer = (
        f"{words[found.decides]}: with everything in E2M1 {found.away} of {found.runs} runs are lost, in FP32 "
        f"{found.of_control} of {found.of}, at {RATE}."
    )
    note = (
        "A runaway is an excursion that starts before the horizon and is not back at twice the horizon. LN E2M1 is "
        "bfloat16 with only gamma and beta in E2M1. FP32 runs away too, later and at higher rates."
    )
    return Evidence(
        statements=tuple(statements), note=note, configuration=settings(table), answer=answer, number=f"p = {p}"
    )


def _sooner(found: Contest, where: str) -> Statement:
    what = f"with everything in E2M1 runs are lost sooner than in FP32, at {RATE}, {where}"
    return Statement(what, found.decides, f"{found.counts} of FP32; {found.test}")


@check("B12", needs=("parts.json", "delay.json"), command="mxnum lab sweep parts --out parts")
def parts_of_the_recipe(context: Context) -> Evidence:
    """Test which part of a 4-bit recipe does what: four tests of `parts`, stratified by rate, and those of `delay`."""
    table, delay = context.json("parts.json"), context.json("delay.json")
    statements = of_parts(table)
    first = report.compared(delay, {name: "FP32" for name in delay["arms"] if name != "FP32"})
    later = {name: bool(_is_sure(test) and not test.comes_sooner) for name, test in first.items()}
    told = {name: _told_first(delay, name, test) for name, test in first.items()}
    single = [f"{operand} alone" for operand in ("weights", "activations", "gradients")]
    statements += [
        Statement("at rate 0.024 4-bit products alone delay the jump", later["products"] or None, told["products"]),
        Statement(
            "there one operand in 4 bits is enough to delay it",
            any(later[name] for name in single) or None,
            "; ".join(f"{name} {told[name]}" for name in single),
        ),
    ]
    arms = ("E2M1", "E2M1, LN FP32", "LN E2M1", "FP32")
    away = [
        sum(report.arm_of(table, name, event="away").events for name in names) for names in _over_rates(table, arms)
    ]
    runs = sum(len(table["arms"][name]["runs"]) for name in next(iter(_over_rates(table, arms))))
    answer = (
        f"At .034 and .048, of {runs} runs each, {away[0]} are lost with everything in 4 bits, {away[1]} with products "
        f"alone, {away[2]} with layer norm alone, {away[3]} in FP32."
    )
    if later["products"]:
        answer += " At .024 4-bit products delay the jump."
    if statements[0].holds is None:
        answer += " Undecided: whether they do at higher rates."
    delaying = [name for name in later if later[name]]
    note = (
        f"At rate 0.024 the jump comes later than in FP32 with: {', '.join(delaying) or 'none'} (exact test, 1 % after "
        f"Holm's correction over {len(first)}). All arms: {'; '.join(f'{name} {told[name]}' for name in first)}."
    )
    return Evidence(
        statements=tuple(statements), note=note, configuration=settings(table), answer=answer,
        number=", ".join(map(str, away)) + f" of {runs}",
    )  # fmt: skip


def _is_sure(test: Comparison) -> bool:
    return test.corrected_p is not None and test.corrected_p < LEVEL


def _told_first(table: dict[str, Any], name: str, test: Comparison) -> str:
    ours_, theirs = report.arm_of(table, name), report.arm_of(table, "FP32")
    return f"{ours_.events} of {ours_.runs} jump, of FP32 {theirs.events} of {theirs.runs} ({test})"


def _over_rates(table: dict[str, Any], arms: Sequence[str]) -> list[list[str]]:
    """Return the names of each arm at all rates of the table."""
    rates = sorted({arm["experiment"]["rate"] for arm in table["arms"].values()})
    return [[f"{arm}, rate {rate:g}" for rate in rates] for arm in arms]


def of_parts(table: dict[str, Any]) -> list[Statement]:
    """Test the hypotheses `PARTS`, which belong together, over all rates of the table."""
    pairs = {}
    for what, (arm, control, event, _) in PARTS.items():
        ours_, theirs = (
            [report.arm_of(table, name, event=event) for name in n] for n in _over_rates(table, (arm, control))
        )
        pairs[what] = list(zip(ours_, theirs, strict=True))
    tests = corrected({what: compare(of) for what, of in pairs.items()})
    statements = []
    for what, test in tests.items():
        events, of_control = (sum(pair[side].events for pair in pairs[what]) for side in (0, 1))
        runs = sum(pair[0].runs for pair in pairs[what])
        holds = test.comes_sooner is PARTS[what][3] if _is_sure(test) else None
        statements.append(Statement(what, holds, f"{events} of {runs} against {of_control} of {runs}; {test}"))
    return statements


def _by_the_first_rule(table: dict[str, Any]) -> Statement:
    """Apply the rule written before `recovery`: `ENOUGH` runaways more than FP32, and the test of their times."""
    others = [name for name in table["arms"] if name != "FP32"]  # all that the table compares count in the correction
    test = report.compared(table, dict.fromkeys(others, "FP32"), event="away")["E2M1"]
    count, control = (report.outcomes(table, name)[Outcome.RUNAWAY] for name in ("E2M1", "FP32"))
    more = count - control >= ENOUGH and test.corrected_p is not None and test.corrected_p < LEVEL
    holds = test.comes_sooner if more else None
    what = f"with everything in E2M1 at least {ENOUGH} runs more are lost than in FP32, at rate 0.024"
    return Statement(what, holds, f"{count} against {control}; {test}")


def none_away(table: dict[str, Any], arm: str) -> tuple[bool, str]:
    """Return True if no run of an arm is lost and the upper limit of their share is below `SHARE`, with the counts."""
    away, runs = report.outcomes(table, arm)[Outcome.RUNAWAY], len(table["arms"][arm]["runs"])
    limit = wilson(away, runs)[1]
    return away == 0 and limit < SHARE, f"{away} of {runs} runs; upper 95 % limit {limit:.0%}"


def hazard_ratio(table: dict[str, Any]) -> tuple[float, float, float] | None:
    """Return Cox's ratio of E4M3's hazard to FP32's over all rates with its 95 % limits."""
    return compare(_strata(table)).ratio


def hazard_of_e4m3(table: dict[str, Any]) -> Statement:
    """Say whether the hazard of an excursion is higher in E4M3 than in FP32, over the rates of a table."""
    test = compare(_strata(table))
    what = "over three rates the hazard of an excursion is higher in E4M3 than in FP32"
    if test.ratio is None:
        return Statement(what, None, str(test))
    ratio, low, high = test.ratio
    holds = True if low > 1 else False if low >= NO_DIFFERENCE[0] and high <= NO_DIFFERENCE[1] else None
    return Statement(what, holds, f"hazard ratio {ratio:.2f} (95 %: {low:.2f} to {high:.2f}), {test}")


def _strata(table: dict[str, Any]) -> list[tuple[Any, Any]]:
    rates = sorted({arm["experiment"]["rate"] for arm in table["arms"].values()})
    names = [(f"E4M3, rate {rate:g}", f"FP32, rate {rate:g}") for rate in rates]
    return [(report.arm_of(table, a), report.arm_of(table, b)) for a, b in names if {a, b} <= set(table["arms"])]


def _by_rate(table: dict[str, Any]) -> str:
    parts = []
    for pair in _strata(table):
        test, rate = compare([pair]), pair[0].name.rpartition(", ")[2]
        ratio = math.nan if test.ratio is None else test.ratio[0]
        parts.append(f"{rate} {ratio:.2f} (p {1.0 if test.p is None else test.p:.2g})")
    return ", ".join(parts)

"""The evidence of a check, and the verdict that follows from it by rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mxnum.lab.studies.statistics import mean_interval

#: The level of significance of most statements about language models.
LEVEL = 0.05


class Whose(StrEnum):
    """Who states a figure or a sentence; the first member with evidence decides the verdict."""

    #: A paper.
    PAPER = "paper"
    #: This project, on something that no paper states: an expectation, a derivation, or a finding
    #: elsewhere.
    OURS = "ours"
    #: This project, for a number whose changes must be noticed.
    KEPT = "kept"


class Verdict(StrEnum):
    """What the evidence says about a claim; `MEANINGS` explains each member.

    A check that raises an exception has failed.
    """

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    NOT_REPRODUCED = "not reproduced"
    CONFIRMED = "confirmed"
    CORRECTED = "corrected"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"
    FAILED = "failed"


#: The meaning of each verdict.
MEANINGS = {
    Verdict.REPRODUCED: "every figure agrees and every statement holds.",
    Verdict.DIFFERS: "something does not; both numbers are given.",
    Verdict.NOT_REPRODUCED: "the claim makes statements, and none holds.",
    Verdict.CONFIRMED: "no paper claims it; what was expected here is so.",
    Verdict.CORRECTED: "no paper claims it; something that was expected here is not so.",
    Verdict.UNDECIDED: "what was run agrees where it can be compared, but cannot decide all of the claim.",
    Verdict.NOT_RUN: "nothing was run; the remark says what would.",
}


@dataclass(frozen=True)
class Comparison:
    """A figure of the claim beside the figure found here."""

    what: str
    claimed: float
    found: float
    #: The allowed difference: half a unit of the last digit claimed, plus the error bar of `found`.
    tolerance: float
    #: Who states it; None: as its row says.
    whose: Whose | None = None

    @property
    def agrees(self) -> bool:
        return abs(self.found - self.claimed) <= self.tolerance

    def __str__(self) -> str:
        sign = "=" if self.agrees else "against"
        return f"{self.what}: {self.found:.6g} {sign} {self.claimed:g} (±{self.tolerance:.2g})"


@dataclass(frozen=True)
class Statement:
    """A sentence that the claim implies: if it holds (None: undecided), and its numbers."""

    what: str
    holds: bool | None
    numbers: str = ""
    #: Who states it; None: as its row says.
    whose: Whose | None = None

    def __post_init__(self) -> None:
        """Convert numpy's truth values to bool, because JSON cannot store them."""
        object.__setattr__(self, "holds", None if self.holds is None else bool(self.holds))

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "cannot be told"}[self.holds]
        return f"{self.what}: {answer}" + (f" ({self.numbers})" if self.numbers else "")


@dataclass(frozen=True)
class Evidence:
    """What one check found."""

    comparisons: Sequence[Comparison] = ()
    statements: Sequence[Statement] = ()
    #: A note on how to weigh the evidence.
    note: str = ""
    #: Seeds, sizes and formats with which the numbers can be repeated.
    configuration: dict[str, Any] = field(default_factory=dict)
    #: A sentence on what is decided and what is not, and the number that decides it.
    answer: str = ""
    number: str = ""

    def __post_init__(self) -> None:
        """Convert lists to tuples."""
        for name in ("comparisons", "statements"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def of(self, whose: Whose) -> Evidence:
        """Return the evidence with `whose` filled in for every item that has none."""
        comparisons = [replace(c, whose=c.whose or whose) for c in self.comparisons]
        statements = [replace(s, whose=s.whose or whose) for s in self.statements]
        return replace(self, comparisons=comparisons, statements=statements)

    @property
    def items(self) -> tuple[Statement | Comparison, ...]:
        """Everything that was found, statements first."""
        return (*self.statements, *self.comparisons)

    @property
    def parts(self) -> dict[Whose, Evidence]:
        """The evidence split by who states it, in the order of `Whose`."""
        parts = {
            whose: Evidence(
                [c for c in self.comparisons if (c.whose or Whose.PAPER) == whose],
                [s for s in self.statements if (s.whose or Whose.PAPER) == whose],
            )
            for whose in Whose
        }
        return {whose: part for whose, part in parts.items() if part.items}

    @property
    def verdict(self) -> Verdict:
        """The verdict by rule.

        Figures that differ make a difference, and a claim without a true statement is not
        reproduced. If a paper states something about the claim, only that counts. If no paper does,
        the verdict uses other words.
        """
        if not self.parts:
            return Verdict.NOT_RUN
        whose, part = next(iter(self.parts.items()))
        found = [s.holds for s in part.statements] + [c.agrees for c in part.comparisons]
        if all(each is None for each in found):
            return Verdict.UNDECIDED
        if whose != Whose.PAPER and False in found:
            return Verdict.CORRECTED
        if True not in found and any(s.holds is not None for s in part.statements):
            return Verdict.NOT_REPRODUCED
        if False in found:
            return Verdict.DIFFERS
        if None in found:
            return Verdict.UNDECIDED
        return Verdict.REPRODUCED if whose == Whose.PAPER else Verdict.CONFIRMED

    @property
    def counts(self) -> str:
        """How many figures agree and statements hold, in words, for each member of `Whose`."""
        return "; ".join(f"{whose}: " * (whose != Whose.PAPER) + p._counted for whose, p in self.parts.items())

    @property
    def _counted(self) -> str:
        holds, agrees = [s.holds for s in self.statements], [c.agrees for c in self.comparisons]
        open_ = holds.count(None)
        parts = [f"{holds.count(True)} of {len(holds) - open_} statements hold"] if len(holds) > open_ else []
        parts += [f"{sum(agrees)} of {len(agrees)} figures agree"] if agrees else []
        parts += [f"{open_} cannot be told"] if open_ else []
        return ", ".join(parts)

    def brief(self, most: int = 2) -> str:
        """Return the counts, and the first items that do not hold or agree."""
        against = [str(s) for s in self.statements if s.holds is False]
        against += [str(c) for c in self.comparisons if not c.agrees]
        shown = "; ".join(against[:most]) + (f"; and {len(against) - most} more" if len(against) > most else "")
        return self.counts + (f". Not so: {shown}" if against else "") + "." if self.counts else ""


def ours(*items: Statement) -> list[Statement]:
    """Return statements marked as this project's, in a row of a paper."""
    return [replace(item, whose=Whose.OURS) for item in items]


def answered(evidence: Evidence, answer: str, number: str = "") -> Evidence:
    """Return the evidence with an answer, or without it unless everything agrees.

    `number` defaults to a count of figures. Without an answer the page shows the counts and what
    does not agree.
    """
    agree = [c.agrees for c in evidence.comparisons]
    settled = all(agree) and all(s.holds for s in evidence.statements)
    number = number or f"{sum(agree)} of {len(agree)} figures"
    return replace(evidence, answer=answer if settled else "", number=number)


def unanimous(statements: Iterable[Statement]) -> bool | None:
    """Return the answer that all statements share, or None if there is none.

    It is None if they differ, are undecided, or there are none.
    """
    found = {s.holds for s in statements}
    return found.pop() if len(found) == 1 else None


def decided(holds: bool, refuted: bool) -> bool | None:
    """Return True if `holds`, False if `refuted`, otherwise None."""
    return True if holds else False if refuted else None


def below(values: Sequence[float], limit: float = 0.0, level: float = LEVEL) -> bool | None:
    """Judge if the mean lies below a limit, by Student's t; None if undecided.

    The verdict is None if the confidence limits at this level enclose the limit.
    """
    found = mean_interval(values, 1 - level)
    return None if found is None else decided(found[2] < limit, found[1] > limit)


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {what}{'s' * (number != 1)}"

"""Define the evidence of a check, and the rule that computes a verdict from evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mxnum.lab.studies.statistics import mean_interval

#: The level of significance of most statements about language models.
LEVEL = 0.05


class Whose(StrEnum):
    """The party that states a number or a sentence of the evidence.

    A verdict depends on the items of only one party: the first party below that states any item.
    """

    #: A paper.
    PAPER = "paper"
    #: This project. The item is an expectation, a derivation, or a finding on models that no paper
    #: used.
    OURS = "ours"
    #: This project, which records the number only to notice later changes. No paper states it.
    KEPT = "kept"


class Verdict(StrEnum):
    """The outcome of a check; `MEANINGS` explains each member.

    FAILED means that the check raised an exception.
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
    Verdict.DIFFERS: "a figure does not agree (claimed and found number are shown), or a statement does not hold.",
    Verdict.NOT_REPRODUCED: "none of the claim's statements holds.",
    Verdict.CONFIRMED: "no paper makes the claim; this project expected it, and every part holds.",
    Verdict.CORRECTED: "no paper makes the claim; this project expected it, but a part does not hold.",
    Verdict.UNDECIDED: "nothing refutes the claim, but the runs cannot decide every statement.",
    Verdict.NOT_RUN: "the check was not run; the row says what the check needs.",
}


@dataclass(frozen=True)
class Comparison:
    """A number that a claim states, and the number that the check found."""

    what: str
    claimed: float
    found: float
    #: The allowed difference: half a unit of the last digit of the claimed number, plus the error
    #: of `found`.
    tolerance: float
    #: The party that states the number; None if the same party states the whole claim.
    whose: Whose | None = None

    @property
    def agrees(self) -> bool:
        return abs(self.found - self.claimed) <= self.tolerance

    def __str__(self) -> str:
        sign = "=" if self.agrees else "against"
        return f"{self.what}: {self.found:.6g} {sign} {self.claimed:g} (±{self.tolerance:.2g})"


@dataclass(frozen=True)
class Statement:
    """A sentence that the claim implies, whether it holds (None: undecided), and its numbers."""

    what: str
    holds: bool | None
    numbers: str = ""
    #: The party that states the sentence; None if the same party states the whole claim.
    whose: Whose | None = None

    def __post_init__(self) -> None:
        """Convert numpy's truth values to bool, because JSON cannot store them."""
        object.__setattr__(self, "holds", None if self.holds is None else bool(self.holds))

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "undecided"}[self.holds]
        return f"{self.what}: {answer}" + (f" ({self.numbers})" if self.numbers else "")


@dataclass(frozen=True)
class Evidence:
    """The results of one check."""

    comparisons: Sequence[Comparison] = ()
    statements: Sequence[Statement] = ()
    #: A note for readers of the evidence.
    note: str = ""
    #: The seeds, sizes and formats that are needed to compute the numbers again.
    configuration: dict[str, Any] = field(default_factory=dict)
    #: One sentence that says what the check decides and what remains undecided. `number` is the
    #: figure that decides.
    answer: str = ""
    number: str = ""

    def __post_init__(self) -> None:
        """Convert lists to tuples."""
        for name in ("comparisons", "statements"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def of(self, whose: Whose) -> Evidence:
        """Return a copy that assigns the party `whose` to every item that names no party."""
        comparisons = [replace(c, whose=c.whose or whose) for c in self.comparisons]
        statements = [replace(s, whose=s.whose or whose) for s in self.statements]
        return replace(self, comparisons=comparisons, statements=statements)

    @property
    def items(self) -> tuple[Statement | Comparison, ...]:
        """All statements, then all comparisons."""
        return (*self.statements, *self.comparisons)

    @property
    def parts(self) -> dict[Whose, Evidence]:
        """The evidence, split by the party that states each item, in the order of `Whose`."""
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
        """The verdict that follows from the evidence by rule.

        A paper's claim *differs* if a figure does not agree or a statement does not hold. It is
        *not reproduced* if no figure agrees and no statement holds, and at least one statement is
        refuted. A claim of this project is *corrected* if any figure or statement fails, and
        *confirmed* if all hold. If a paper states a part of the claim, only this part counts.
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
        """The counts of statements that hold and of figures that agree, for each party."""
        return "; ".join(f"{whose}: " * (whose != Whose.PAPER) + p._counted for whose, p in self.parts.items())

    @property
    def _counted(self) -> str:
        holds, agrees = [s.holds for s in self.statements], [c.agrees for c in self.comparisons]
        open_ = holds.count(None)
        parts = [f"{holds.count(True)} of {len(holds) - open_} statements hold"] if len(holds) > open_ else []
        parts += [f"{sum(agrees)} of {len(agrees)} figures agree"] if agrees else []
        parts += [f"{open_} undecided"] if open_ else []
        return ", ".join(parts)

    def brief(self, most: int = 2) -> str:
        """Return `counts`, then up to `most` statements that fail or numbers that differ."""
        against = [str(s) for s in self.statements if s.holds is False]
        against += [str(c) for c in self.comparisons if not c.agrees]
        shown = "; ".join(against[:most]) + (f"; and {len(against) - most} more" if len(against) > most else "")
        return self.counts + (f". Not confirmed: {shown}" if against else "") + "." if self.counts else ""


def ours(*items: Statement) -> list[Statement]:
    """Mark statements in the row of a paper's claim as statements of this project."""
    return [replace(item, whose=Whose.OURS) for item in items]


def answered(evidence: Evidence, answer: str, number: str = "") -> Evidence:
    """Return the evidence with `number`, and with `answer` if all figures and statements hold.

    `number` defaults to the count of figures that agree. If the evidence has no answer, the page
    shows the counts, the figures that do not agree, and the statements that do not hold.
    """
    agree = [c.agrees for c in evidence.comparisons]
    settled = all(agree) and all(s.holds for s in evidence.statements)
    number = number or f"{sum(agree)} of {len(agree)} figures"
    return replace(evidence, answer=answer if settled else "", number=number)


def unanimous(statements: Iterable[Statement]) -> bool | None:
    """Return True if all statements hold, False if all are refuted, otherwise None.

    The result is None if statements differ, if all are undecided, or if there are no statements.
    """
    found = {s.holds for s in statements}
    return found.pop() if len(found) == 1 else None


def decided(holds: bool, refuted: bool) -> bool | None:
    """Return True if `holds` is true, False if only `refuted` is true, and None if neither is."""
    return True if holds else False if refuted else None


def below(values: Sequence[float], limit: float = 0.0, level: float = LEVEL) -> bool | None:
    """Return True if the mean of values is below a limit, and False if it is above (Student's t).

    The result is None if `limit` lies between the confidence limits of the mean, or if there are
    fewer than three values.
    """
    found = mean_interval(values, 1 - level)
    return None if found is None else decided(found[2] < limit, found[1] > limit)


def counted(number: int, what: str) -> str:
    """Return a count with its noun, which is plural unless the count is 1.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {what}{'s' * (number != 1)}"

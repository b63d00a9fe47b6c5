"""What a check found, and the verdict that follows from it by rule: no verdict is ever written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Whose(StrEnum):
    """Who says a figure or a sentence. A verdict is on what weighs most, in this order."""

    #: A paper.
    PAPER = "paper"
    #: This library, on something that no paper says: what was expected, or derived, or found elsewhere.
    OURS = "ours"
    #: A number of ours that is kept so that a change is noticed.
    KEPT = "kept"


class Verdict(StrEnum):
    """What the evidence says about a claim."""

    #: Every comparison agrees and every statement holds.
    REPRODUCED = "reproduced"
    #: Something disagrees; both numbers are given.
    DIFFERS = "differs"
    #: The claim makes statements, and none of them holds.
    NOT_REPRODUCED = "not reproduced"
    #: No paper claims it; what was expected here is so.
    CONFIRMED = "confirmed"
    #: No paper claims it; something that was expected here is not so.
    CORRECTED = "corrected"
    #: What was run can neither confirm nor refute it.
    UNDECIDED = "undecided"
    #: Nothing was run.
    NOT_RUN = "not run"
    #: The check itself broke, which is a bug.
    FAILED = "failed"


@dataclass(frozen=True)
class Comparison:
    """A figure of the claim beside the figure found here."""

    what: str
    claimed: float
    found: float
    #: How far apart they may be: half a unit of the last digit claimed, plus the error bar of what was found.
    tolerance: float
    #: None: as most of its row.
    whose: Whose | None = None

    @property
    def agrees(self) -> bool:
        return abs(self.found - self.claimed) <= self.tolerance

    def __str__(self) -> str:
        sign = "=" if self.agrees else "against"
        return f"{self.what}: {self.found:.6g} {sign} {self.claimed:g} (±{self.tolerance:.2g})"


@dataclass(frozen=True)
class Statement:
    """A sentence that the claim implies, whether it holds here (None: it cannot be told), and the numbers behind it."""

    what: str
    holds: bool | None
    numbers: str = ""
    #: None: as most of its row.
    whose: Whose | None = None

    def __post_init__(self) -> None:
        """numpy's own truth values cannot be stored."""
        object.__setattr__(self, "holds", None if self.holds is None else bool(self.holds))

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "cannot be told"}[self.holds]
        return f"{self.what}: {answer}" + (f" ({self.numbers})" if self.numbers else "")


@dataclass(frozen=True)
class Evidence:
    """What one check found."""

    comparisons: tuple[Comparison, ...] = ()
    statements: tuple[Statement, ...] = ()
    #: What a reader must know to weigh it.
    note: str = ""
    #: Seeds, sizes, formats: what makes the numbers come out again.
    configuration: dict[str, Any] = field(default_factory=dict)
    #: One sentence that says what is decided, and what is not; and the one number that decides it.
    answer: str = ""
    number: str = ""

    def of(self, whose: Whose) -> Evidence:
        """What does not say whose it is, belongs to whom the row belongs."""
        return replace(
            self,
            comparisons=tuple(replace(c, whose=c.whose or whose) for c in self.comparisons),
            statements=tuple(replace(s, whose=s.whose or whose) for s in self.statements),
        )

    def said_by(self, whose: Whose) -> Evidence:
        """The part of it that somebody says."""
        return replace(
            self,
            comparisons=tuple(c for c in self.comparisons if (c.whose or Whose.PAPER) == whose),
            statements=tuple(s for s in self.statements if (s.whose or Whose.PAPER) == whose),
        )

    @property
    def items(self) -> tuple[Statement | Comparison, ...]:
        """Everything that was found, statements first."""
        return (*self.statements, *self.comparisons)

    @property
    def parts(self) -> dict[Whose, Evidence]:
        """By whoever says it, what weighs most first."""
        parts = {whose: self.said_by(whose) for whose in Whose}
        return {whose: part for whose, part in parts.items() if part.items}

    @property
    def verdict(self) -> Verdict:
        """The rule. Numbers that differ are a difference; a claim none of whose statements holds is not reproduced.

        If a paper says something of it, nothing else counts; and where no paper does, the verdict is in other words.
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
        """How much agrees and holds, in words; of what is not a paper's, apart."""
        told = [
            part._counted if whose == Whose.PAPER else f"{whose}: {part._counted}" for whose, part in self.parts.items()
        ]
        return "; ".join(told)

    @property
    def _counted(self) -> str:
        decided = [s for s in self.statements if s.holds is not None]
        parts = []
        if decided:
            parts.append(f"{sum(bool(s.holds) for s in decided)} of {len(decided)} statements hold")
        if self.comparisons:
            parts.append(f"{sum(c.agrees for c in self.comparisons)} of {len(self.comparisons)} figures agree")
        if len(decided) < len(self.statements):
            parts.append(f"{len(self.statements) - len(decided)} cannot be told")
        return ", ".join(parts)

    def brief(self, most: int = 2) -> str:
        """The counts, and the first things that do not hold or agree."""
        against = [str(s) for s in self.statements if s.holds is False]
        against += [str(c) for c in self.comparisons if not c.agrees]
        shown = "; ".join(against[:most]) + (f"; and {len(against) - most} more" if len(against) > most else "")
        return self.counts + (f". Not so: {shown}" if against else "") + "." if self.counts else ""


def ours(*items: Statement) -> tuple[Statement, ...]:
    """Statements that no paper makes, in a row of a paper."""
    return tuple(replace(item, whose=Whose.OURS) for item in items)


def evidence_from(table: Mapping[str, Any]) -> Evidence:
    """The inverse of `dataclasses.asdict`, through JSON; tuples in the configuration come back as lists."""
    return Evidence(
        tuple(Comparison(**_read(c)) for c in table["comparisons"]),
        tuple(Statement(**_read(s)) for s in table["statements"]),
        table["note"],
        dict(table["configuration"]),
        table["answer"],
        table["number"],
    )


def _read(item: Mapping[str, Any]) -> dict[str, Any]:
    return dict(item) | {"whose": Whose(item["whose"]) if item.get("whose") else None}

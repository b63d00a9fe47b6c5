"""What a check found, and the verdict that follows from it by rule: no verdict is ever written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What the evidence says about a claim."""

    #: Every comparison agrees and every statement holds.
    REPRODUCED = "reproduced"
    #: Something disagrees; both numbers are given.
    DIFFERS = "differs"
    #: The claim makes statements, and none of them holds.
    NOT_REPRODUCED = "not reproduced"
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

    @property
    def verdict(self) -> Verdict:
        """The rule. Numbers that differ are a difference; a claim none of whose statements holds is not reproduced."""
        decided = [s.holds for s in self.statements if s.holds is not None]
        agreeing = [c.agrees for c in self.comparisons]
        if not self.statements and not self.comparisons:
            return Verdict.NOT_RUN
        if not decided and not agreeing:
            return Verdict.UNDECIDED
        if not any(decided + agreeing) and decided:
            return Verdict.NOT_REPRODUCED
        if not all(decided + agreeing):
            return Verdict.DIFFERS
        return Verdict.REPRODUCED if len(decided) == len(self.statements) else Verdict.UNDECIDED

    @property
    def counts(self) -> str:
        """How much agrees and holds, in words."""
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
        decided = [s for s in self.statements if s.holds is not None]
        against = [str(s) for s in decided if not s.holds] + [str(c) for c in self.comparisons if not c.agrees]
        shown = "; ".join(against[:most]) + (f"; and {len(against) - most} more" if len(against) > most else "")
        return self.counts + (f". Not so: {shown}" if against else "") + "." if self.counts else ""


def evidence_from(table: Mapping[str, Any]) -> Evidence:
    """The inverse of `dataclasses.asdict`, through JSON; tuples in the configuration come back as lists."""
    return Evidence(
        tuple(Comparison(**c) for c in table["comparisons"]),
        tuple(Statement(**s) for s in table["statements"]),
        table["note"],
        dict(table["configuration"]),
    )

"""What a check found, and the verdict that follows from it by rule: no verdict is ever written by hand."""

from __future__ import annotations

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
        if not decided and not agreeing:
            return Verdict.UNDECIDED
        if not any(decided + agreeing) and decided:
            return Verdict.NOT_REPRODUCED
        if not all(decided + agreeing):
            return Verdict.DIFFERS
        return Verdict.REPRODUCED if len(decided) == len(self.statements) else Verdict.UNDECIDED

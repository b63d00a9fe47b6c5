"""The report on a kernel that draws its own random bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mxnum.conformance.judge import CHOICES
from mxnum.conformance.report import Profile
from mxnum.conformance.task import Task


@dataclass
class StochasticReport:
    """The outcome of `check_stochastic`. `problems` are sentences by topic; a right kernel has none."""

    task: Task
    sr_bits: int | None
    calls: int = 0
    draws: int = 0
    cases: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)
    #: The legitimate choices that the kernel makes, and the number of numbers that follow each.
    choices: dict[str, int] = field(default_factory=dict)
    #: The rules that fit the observed shares.
    fits: list[str] = field(default_factory=list)
    #: Sentences that say which errors the test detects, and how rarely a right kernel fails.
    guarantees: list[str] = field(default_factory=list)

    @property
    def conforms(self) -> bool:
        """True if the kernel differs by legitimate choices only."""
        return not self.problems

    @property
    def is_equal(self) -> bool:
        """True if there are no differences except those that the profile accepts."""
        return self.conforms and not self.choices

    def text(self) -> str:
        """Return the whole report as text for users."""
        bits = "the exact fraction" if self.sr_bits is None else f"{self.sr_bits} random bits"
        lines = [
            f"{self.task.operation}, {self.task.format.name}, stochastic rounding by {bits}: {self.draws} draws for "
            f"{self.cases} cases in {self.calls} calls, {'right' if self.conforms else 'WRONG'}."
        ]
        for about, sentences in self.problems.items():
            lines += [f"{about}: {sentences[0]}", *(f"  {sentence}" for sentence in sentences[1:])]
        for name, count in sorted(self.choices.items()):
            lines.append(f"Choice {name} ({count} numbers): {CHOICES.get(name, name)}.")
        if self.fits:
            lines.append(f"The shares are those of {', or of '.join(self.fits)}.")
        return "\n".join([*lines, *self.guarantees])

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary for scripts."""
        facts = {key: getattr(self, key) for key in ("calls", "draws", "cases", "problems", "choices", "fits")}
        head = self.task.header() | {"rounding": "sr", "sr_bits": str(self.sr_bits or "exact")}
        return {**head, **facts, "guarantees": self.guarantees, "conforms": self.conforms}


def add_problem(report: StochasticReport, about: str, sentence: str) -> None:
    """Add a sentence about a problem to the report."""
    report.problems.setdefault(about, []).append(sentence)


def add_choice(report: StochasticReport, name: str, numbers: int, profile: Profile) -> None:
    """Add the number of numbers that follow a choice, unless the profile accepts the choice."""
    if numbers and name not in profile.accepted:
        report.choices[name] = report.choices.get(name, 0) + numbers

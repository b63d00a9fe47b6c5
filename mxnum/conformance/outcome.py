"""The report on a kernel that draws random bits of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mxnum.conformance.judge import CHOICES
from mxnum.conformance.report import Profile
from mxnum.conformance.task import Task


@dataclass
class StochasticReport:
    """The outcome. `problems` are sentences by what they are about; a right kernel has none."""

    task: Task
    sr_bits: int | None
    calls: int = 0
    draws: int = 0
    cases: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)
    #: Differences that are legitimate, with how many numbers they concern.
    choices: dict[str, int] = field(default_factory=dict)
    #: The rules that the shares do not contradict.
    fits: list[str] = field(default_factory=list)
    #: What would have been seen, and how rarely a right kernel fails.
    guarantees: list[str] = field(default_factory=list)

    @property
    def conforms(self) -> bool:
        """Whether nothing is wrong but legitimate choices."""
        return not self.problems

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference but those that the profile accepts."""
        return self.conforms and not self.choices

    def text(self) -> str:
        """The whole report for people."""
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
        """The report for scripts."""
        facts = {key: getattr(self, key) for key in ("calls", "draws", "cases", "problems", "choices", "fits")}
        head = self.task.header() | {"rounding": "sr", "sr_bits": str(self.sr_bits or "exact")}
        return {**head, **facts, "guarantees": self.guarantees, "conforms": self.conforms}


def add_problem(report: StochasticReport, about: str, sentence: str) -> None:
    """Add a sentence about something that is wrong."""
    report.problems.setdefault(about, []).append(sentence)


def add_choice(report: StochasticReport, name: str, numbers: int, profile: Profile) -> None:
    """Add how many numbers follow a choice, unless the choice is documented."""
    if numbers and name not in profile.accepted:
        report.choices[name] = report.choices.get(name, 0) + numbers

"""The report of a check, as text for users and as a dictionary for scripts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mxnum import errors
from mxnum.conformance.judging.describe import describe_unknown
from mxnum.conformance.judging.diagnosis import Explanation
from mxnum.conformance.judging.distances import Distances
from mxnum.conformance.judging.judge import CHOICES
from mxnum.conformance.task import Columns, Task

#: The largest number of lines about wrong arrays in a report.
ARRAYS = 16


@dataclass(frozen=True)
class Profile:
    """The choices that an implementation documents; answers that follow them are accepted."""

    name: str = "mxnum"
    accepted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, accepted: str | Iterable[str] | Profile | None) -> Profile:
        """Make a profile from the names of choices, ``"all"``, or None."""
        if isinstance(accepted, Profile):
            return accepted
        if accepted is None:
            return cls()
        if accepted == "all":
            return cls("any choice", frozenset(CHOICES))
        listed = [accepted] if isinstance(accepted, str) else list(accepted)
        chosen = frozenset(errors.choose("accept", name, tuple(CHOICES)) for name in listed)
        return cls(", ".join(sorted(chosen)) or "mxnum", chosen)


@dataclass
class Case:
    """One case whose answers are not right: the inputs, the answers, and the right answers."""

    #: Where the case is: "line 17", "case 17", or the block of an array.
    where: str
    number: int
    inputs: Columns
    answers: Columns
    want: Columns
    part: str | None = None
    #: The text of an answer with unknown bits (digits x or z).
    written: str = ""

    def body(self, task: Task) -> str:
        """Describe in words how the answers differ from the right answers."""
        if self.written:
            return describe_unknown(task, self.inputs, self.written, self.want)
        return task.operation.describe(task, self.inputs, self.answers, self.want)

    def text(self, task: Task) -> str:
        """Return where the case is, followed by the text of `body`."""
        return f"{self.where}{f' [{self.part}]' if self.part else ''}: {self.body(task)}"


@dataclass(frozen=True)
class ArrayResult:
    """The result for one array: its shape, its memory layout, and the number of wrong blocks."""

    shape: tuple[int, int]
    layout: str
    blocks: int
    wrong: int
    #: Why the array's answer could not be judged; None if it was judged.
    problem: str | None = None


@dataclass
class Report:
    """The outcome of a check. `bugs` counts cases that no legitimate choice explains."""

    task: Task
    profile: Profile
    cases: int
    bugs: int
    #: `choices` counts the cases that each choice explains, unless `profile` accepts the choice.
    #: `inconsistent` lists the choices that only some of the answers follow. It has two numbers for
    #: each choice: the answers that follow the choice, and those that could follow it but do not.
    choices: dict[str, int]
    inconsistent: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]
    parts: dict[str, int]
    #: Some wrong cases that differ from each other as much as possible, and one case for each
    #: choice.
    failures: list[Case]
    examples: dict[str, Case]
    #: For each wrong part (such as "scale", or a class of elements), the first case with this part
    #: wrong.
    by_part: dict[str, Case]
    #: Each explanation names one or more mistakes. Each of these mistakes alone reproduces all
    #: answers, right or wrong, of one field or of some classes of cases.
    explanations: list[Explanation]
    #: Lines of text about common causes of the wrong cases.
    causes: list[str]
    #: For an element without NaN: how often a NaN became each code.
    nan_became: dict[str, int]
    #: For `mxnum.conformance.check_arrays`: the result of each array.
    arrays: list[ArrayResult] = field(default_factory=list)
    #: The other orders of codes, scales or elements that would make all answers right.
    arrangements: list[str] = field(default_factory=list)
    #: The stacks of `mxnum.stacks` that give exactly these answers, if any answer is wrong.
    stacks: tuple[str, ...] = ()
    #: Why the check cannot notice that cases were changed or left out; empty if it can notice this.
    unchecked: str = ""
    #: Number of answers with unknown bits (digits x or z, as logic simulators print them).
    unknown: int = 0
    #: A sentence about the inputs that the cases cover.
    tried: str = ""
    #: Number of wrong answers that the explanations do not cover, or 0 if there are no
    #: explanations. The scale of a block counts as one answer, and the codes of the block count as
    #: one more answer. `refused` names the error that the tested function raises for a NaN, if the
    #: element format has no NaN.
    unexplained: int = 0
    refused: str = ""
    #: The distances of wrong dot products from the right dot products.
    distances: Distances = field(default_factory=Distances)

    @property
    def conforms(self) -> bool:
        """True if no difference is a bug."""
        return self.bugs == 0

    @property
    def is_equal(self) -> bool:
        """True if answers differ from the right ones only by choices that `profile` accepts."""
        return self.conforms and not self.choices

    def text(self) -> str:
        """Return the whole report as text for users."""
        task = self.task
        unit = "cases" if not self.arrays else "elements" if task.takes_codes else "blocks"
        what = f"{self.cases} {unit}{f' in {len(self.arrays)} arrays' * bool(self.arrays)}"
        differing = sum(self.choices.values())
        head = f"{task.operation.title(task)}: {what}"
        lines = [f"{head}, {self.cases - self.bugs - differing} right, {differing} by choice, {self.bugs} wrong."]
        lines[0] += f" {self.tried}" if self.tried else ""
        lines += [*([self.unchecked] if self.unchecked else []), *task.operation.notes(task)]
        for name, count in sorted(self.choices.items()):
            lines.append(f"Choice {name} ({count} cases): {_sentence(name)}.")
            lines += [f"  e.g. {self.examples[name].text(task)}"] if name in self.examples else []
        if self.nan_became and (self.bugs or self.choices):
            lines.append(f"NaN became {', '.join(f'{code} {count} times' for code, count in self.nan_became.items())}.")
        for name, (followed, kept) in sorted(self.inconsistent.items()):
            others = f"{kept} other answers could follow this choice and do not"
            lines.append(f"{followed} answers follow the choice {name}, but {others}, so the {followed} are wrong.")
        if self.unknown:
            lines.append(f"Wrong answers with unknown bits (X or Z), which no explanation covers: {self.unknown}.")
        if self.bugs:
            lines += self._array_lines()
            if self.stacks:
                names = errors.joined(self.stacks)
                lines.append(f"All answers, right or wrong, are what {names} computes (see mxnum.stacks).")
            lines += [explanation.sentence() for explanation in self.explanations if not explanation.classes]
            if self.failures:
                lines.append("Some of the failures, chosen to differ as much as possible:")
                lines += [f"  {case.text(task)}" for case in self.failures]
            lines += [self.distances.sentence()] if self.distances.count else []
            wrong = {n: f"{b} of {c}" for n, (c, b) in self.classes.items() if b}
            lines += ["Wrong by class: " + _counts(wrong)] if wrong else []
            lines += ["Wrong by part: " + _counts(self.parts)] if self.parts else []
            lines += self.causes
            lines += [explanation.sentence() for explanation in self.explanations if explanation.classes]
            lines += [f"No explanation covers {self.unexplained} other wrong answers."] if self.unexplained else []
        return "\n".join(lines)

    def _array_lines(self) -> list[str]:
        """Return the lines about wrong arrays, one for each shape and outcome."""
        wrong = [array for array in self.arrays if array.wrong]
        if not wrong:
            return []
        layouts: dict[tuple[object, str], list[str]] = {}
        for array in wrong:
            outcome = array.problem or f"{array.wrong} of {array.blocks} wrong"
            layouts.setdefault((array.shape, outcome), []).append(array.layout)
        others = ", right in the others" if len(wrong) < len(self.arrays) else ""
        lines = [f"Wrong in {len(wrong)} of {len(self.arrays)} arrays{others}:"]
        for (shape, outcome), named in list(layouts.items())[:ARRAYS]:
            lines.append(f"  shape {shape}, {', '.join(named)}: {outcome}")
        lines += [f"  and {len(layouts) - ARRAYS} more such lines"] if len(layouts) > ARRAYS else []
        judged = "All answers" + " of the right shape and type" * any(array.problem for array in wrong)
        return lines + [f"{judged} are right if {how}." for how in self.arrangements]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary for scripts."""
        return {
            **self.task.header(),
            "profile": self.profile.name,
            "cases": self.cases,
            "tried": self.tried,
            "unchecked": self.unchecked,
            "bugs": self.bugs,
            "unknown": self.unknown,
            "choices": self.choices,
            "inconsistent": self.inconsistent,
            "nan became": self.nan_became,
            "classes": {name: {"cases": c, "bugs": b} for name, (c, b) in self.classes.items()},
            "parts": self.parts,
            "failures": [case.text(self.task) for case in self.failures],
            "explanations": [explanation.sentence() for explanation in self.explanations],
            "unexplained": self.unexplained,
            "stacks": list(self.stacks),
            "causes": self.causes,
            "distances": self.distances.as_dict(),
            "arrays": [vars(array) for array in self.arrays],
            "arrangements": self.arrangements,
            "conforms": self.conforms,
            "equal": self.is_equal,
        }


@dataclass
class StochasticReport:
    """The outcome of `check_stochastic`.

    `problems` maps each topic to sentences that say what is wrong. It is empty for a right kernel.
    """

    task: Task
    sr_bits: int | None
    calls: int = 0
    draws: int = 0
    cases: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)
    #: For each legitimate choice that the kernel makes: the number of inputs whose results follow
    #: the choice. Choices that the argument `accept` names are left out.
    choices: dict[str, int] = field(default_factory=dict)
    #: The rules whose probabilities fit the answers.
    fits: list[str] = field(default_factory=list)
    #: Sentences that say which errors the test detects, and how rarely a right kernel fails.
    guarantees: list[str] = field(default_factory=list)

    @property
    def conforms(self) -> bool:
        """True if all differences from the right answers are permitted choices."""
        return not self.problems

    @property
    def is_equal(self) -> bool:
        """True if answers differ from the right ones only by choices in the argument `accept`."""
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
            lines.append(f"The observed shares of results rounded away from zero fit {', or '.join(self.fits)}.")
        return "\n".join([*lines, *self.guarantees])

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary for scripts."""
        facts = {key: getattr(self, key) for key in ("calls", "draws", "cases", "problems", "choices", "fits")}
        head = self.task.header() | {"rounding": "sr", "sr_bits": str(self.sr_bits or "exact")}
        return {**head, **facts, "guarantees": self.guarantees, "conforms": self.conforms}


class ConformanceError(AssertionError):
    """The error for wrong answers that neither a legitimate choice nor chance explains."""

    def __init__(self, report: Report | StochasticReport, smallest: Case | None = None, note: str = "") -> None:
        self.report, self.smallest = report, smallest
        text = report.text()
        if smallest is not None:
            text += f"\nSmallest failing input found: {smallest.body(report.task)}"
        super().__init__(f"{text}\n{note}" if note else text)


def add_problem(report: StochasticReport, about: str, sentence: str) -> None:
    """Add a sentence about a problem to the report."""
    report.problems.setdefault(about, []).append(sentence)


def add_choice(report: StochasticReport, name: str, numbers: int, profile: Profile) -> None:
    """Add to the report how many numbers follow a choice, unless `profile` accepts the choice."""
    if numbers and name not in profile.accepted:
        report.choices[name] = report.choices.get(name, 0) + numbers


def _sentence(label: str) -> str:
    return "; ".join(CHOICES[name.split(" (")[0]] for name in label.split(", ")) or label


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())

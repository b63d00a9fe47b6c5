"""The verdict on an implementation: counts, choices, and the first failures in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.conformance import words
from mxnum.conformance.expected import as_bits, as_floats, expected
from mxnum.conformance.grid import PLACES, as_magnitudes, places
from mxnum.conformance.judge import BUG, CHOICES, LABELS, Consistency, class_names, judge
from mxnum.conformance.task import Columns, Task
from mxnum.dtypes import Array, numpy_dtype
from mxnum.formats import FLOATS
from mxnum.modes import Rounding, ScaleRule

#: Wrong cases per batch on which other modes are tried, to say what they have in common.
TRIED = 256


@dataclass(frozen=True)
class Profile:
    """The choices that an implementation documents: differences they explain count as conforming."""

    name: str = "mxnum"
    accepted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, accepted: str | Iterable[str] | Profile | None) -> Profile:
        """From the names of choices, ``"all"``, or nothing."""
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
    """One case that differs: what went in, what came out, and what is right."""

    line: int
    inputs: Columns
    answers: Columns
    want: Columns
    #: ``bug``, or the names of choices.
    kind: str
    part: str | None = None

    def text(self, task: Task) -> str:
        """The difference in words."""
        return words.describe(task, self.inputs, self.answers, self.want, self.line, self.part)


@dataclass
class Report:
    """The outcome. `bugs` counts cases that no legitimate choice explains."""

    task: Task
    profile: Profile
    cases: int
    bugs: int
    #: Cases by the choices that explain them, and choices followed in some of the cases that tell but not in others.
    choices: dict[str, int]
    inconsistent: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]
    parts: dict[str, int]
    first: list[Case]
    examples: dict[str, Case]
    #: The first wrong case of each part.
    by_part: dict[str, Case]
    #: What other mode gives the answers of so many of the wrong cases tried: of those with wrong scales, of the others.
    explanations: list[tuple[str, int, int]]

    @property
    def conforms(self) -> bool:
        """Whether no difference is a bug."""
        return self.bugs == 0

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference but those that the profile accepts."""
        return self.conforms and not self.choices

    def text(self) -> str:
        """The whole report for people."""
        task = self.task
        head = f"{task.operation}, {task.format.name}: {self.cases} cases"
        differing = sum(self.choices.values())
        lines = [f"{head}, {self.cases - self.bugs - differing} right, {differing} by choice, {self.bugs} wrong."]
        for name, count in sorted(self.choices.items()):
            lines.append(f"Choice {name} ({count} cases): {_sentence(name)}.")
            lines += [f"  e.g. {self.examples[name].text(task)}"] if name in self.examples else []
        for name, (followed, kept) in sorted(self.inconsistent.items()):
            lines.append(f"{followed} answers look like the choice {name}, {kept} that could do not: counted as wrong.")
        if self.bugs:
            lines.append("First failures:")
            lines += [f"  {case.text(task)}" for case in self.first]
            for what, explained, tried in self.explanations:
                lines.append(f"{explained} of {tried} wrong answers looked at are what {what} gives.")
            lines.append("Wrong by class: " + _counts({n: f"{b} of {c}" for n, (c, b) in self.classes.items() if b}))
            lines.append("Wrong by part: " + _counts(self.parts))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The report for scripts."""
        return {
            **self.task.header(),
            "profile": self.profile.name,
            "cases": self.cases,
            "bugs": self.bugs,
            "choices": self.choices,
            "inconsistent": self.inconsistent,
            "classes": {name: {"cases": c, "bugs": b} for name, (c, b) in self.classes.items()},
            "parts": self.parts,
            "first failures": [case.text(self.task) for case in self.first],
            "explanations": self.explanations,
            "conforms": self.conforms,
        }


class Judge:
    """Takes batches of answers and gives a `Report` at the end."""

    def __init__(self, task: Task, profile: Profile | None = None, keep: int = 5) -> None:
        self.task, self.profile, self.keep = task, profile or Profile(), keep
        self.cases = 0
        self._verdicts: Counter[int] = Counter()
        self._classes: Counter[int] = Counter()
        self._classes_wrong: Counter[int] = Counter()
        self._parts: Counter[str] = Counter()
        self._tallies: dict[str, Consistency] = {}
        self._first: list[Case] = []
        self._by_verdict: dict[int, Case] = {}
        self._by_part: dict[str, Case] = {}
        #: For wrong scales and for the rest: cases that each other mode explains, and cases tried.
        self._explained: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        self._tried = {True: 0, False: 0}
        self._also_right: Counter[str] = Counter()
        self._right_tried = 0

    def add(self, inputs: Columns, answers: Columns, first_line: int = 1) -> None:
        """Judge one batch."""
        found = judge(self.task, inputs, answers, self._tallies)
        self.cases += len(found.verdicts)
        self._verdicts.update(found.verdicts.tolist())
        self._classes.update(found.classes.tolist())
        wrong = np.flatnonzero(found.verdicts & BUG)
        self._classes_wrong.update(found.classes[wrong].tolist())
        self._parts.update(str(found.parts[row]) for row in wrong)
        for row in wrong[: max(0, self.keep - len(self._first))]:
            self._first.append(self._case(inputs, answers, row, first_line, "bug", found.parts[row]))
        for verdict in np.unique(found.verdicts):
            if verdict and not verdict & BUG and int(verdict) not in self._by_verdict:
                row = int(np.argmax(found.verdicts == verdict))
                self._by_verdict[int(verdict)] = self._case(inputs, answers, row, first_line, "choice", None)
        for row in wrong:
            part = str(found.parts[row])
            if part not in self._by_part:
                self._by_part[part] = self._case(inputs, answers, int(row), first_line, "bug", part)
        for of_scale in (True, False):
            rows = np.array([row for row in wrong if (found.parts[row] == "scale") == of_scale], np.int64)[:TRIED]
            if rows.size:
                self._try_other_modes(inputs, answers, rows, self._explained[of_scale])
                self._tried[of_scale] += len(rows)
        if wrong.size:
            right = np.flatnonzero(found.verdicts == 0)
            self._try_other_modes(inputs, answers, right[:TRIED], self._also_right)
            self._right_tried += len(right[:TRIED])

    def _case(self, inputs: Columns, answers: Columns, row: int, first_line: int, kind: str, part: str | None) -> Case:
        one = {name: column[row : row + 1] for name, column in inputs.items()}
        got = {name: column[row : row + 1] for name, column in answers.items()}
        return Case(first_line + int(row), one, got, expected(self.task, one), kind, part)

    def _try_other_modes(self, inputs: Columns, answers: Columns, rows: Array, matches: Counter[str]) -> None:
        """Count for every other mode the cases whose answers are its answers."""
        some = {name: column[rows] for name, column in inputs.items()}
        got = {name: column[rows] for name, column in answers.items()}
        for name, alternative in other_answers(self.task, some):
            alike = []
            for field in self.task.outputs:
                mine, theirs = alternative[field.name], got[field.name]
                lost_sign = (mine == 1 << (field.bits - 1)) & (theirs == 0) & (field.kind == "element")
                alike.append(((mine == theirs) | lost_sign).all(axis=1))
            same = np.logical_and.reduce(alike)
            matches[name] += int(same.sum())

    def report(self) -> Report:
        """Everything counted so far."""
        inconsistent = self._inconsistent()
        bugs = 0
        choices: Counter[str] = Counter()
        examples: dict[str, Case] = {}
        for verdict, count in self._verdicts.items():
            names = {name for name, bit in LABELS.items() if verdict & bit}
            if verdict & BUG or names & set(inconsistent):
                bugs += count
                continue
            names -= self.profile.accepted
            if names:
                label = ", ".join(sorted(names))
                choices[label] += count
                examples.setdefault(label, self._by_verdict[verdict])
        first = list(self._first)
        for verdict, case in self._by_verdict.items():
            odd = [name for name in inconsistent if verdict & LABELS[name]]
            if odd and len(first) < self.keep:
                first.append(replace(case, kind="bug"))
                self._parts[f"inconsistent {odd[0]}"] += self._verdicts[verdict]
        explanations = []
        for of_scale, tried in self._tried.items():
            explained = self._explained[of_scale]
            # Of two modes that explain as many wrong answers, the one that also gives the right ones.
            name = max(explained, key=lambda n, e=explained: (e[n], self._also_right[n]), default="")  # type: ignore[misc]
            count = explained[name]
            fits = count >= 0.9 * tried and self._also_right[name] >= 0.9 * self._right_tried
            if not tried or not fits:
                continue
            if name.startswith(("sr_bits", "sr_fraction")) and count == sum(self._tried.values()) and not inconsistent:
                choices[name] = bugs
                bugs, first = 0, []
            else:
                explanations.append((name, count, tried))
        titles = class_names(self.task)
        classes = {titles[i]: (n, self._classes_wrong[i]) for i, n in sorted(self._classes.items())}
        return Report(
            self.task, self.profile, self.cases, bugs, dict(choices),
            {name: (t.followed, t.kept) for name, t in inconsistent.items()},
            classes, dict(self._parts) if bugs else {}, first, examples, self._by_part if bugs else {}, explanations,
        )  # fmt: skip

    def _inconsistent(self) -> dict[str, Consistency]:
        found: dict[str, Consistency] = {}
        zero_codes = []
        for label, tally in self._tallies.items():
            name = label.split(" (")[0]
            if name == "zero_scale":
                zero_codes.append(tally.followed)
            elif not tally.is_consistent:
                found[name] = tally
        if len(zero_codes) > 1:
            found["zero_scale"] = Consistency(max(zero_codes), sum(zero_codes) - max(zero_codes))
        return found


def other_answers(task: Task, inputs: Columns) -> Iterable[tuple[str, Columns]]:
    """What other modes, and two common mistakes, would answer."""
    if task.operation in ("encode", "quantize") and not task.is_stochastic:
        for mode in Rounding:
            if mode not in (task.rounding, Rounding.SR):
                yield f"rounding {mode}", expected(replace(task, rounding=mode), inputs)
    if task.is_stochastic:
        for r in range(1, 31):
            if r != task.sr_bits:
                yield f"sr_bits ({r})", expected(replace(task, sr_bits=r), inputs)
        if task.sr_bits < 30:
            # floor(F + 1/2) + R >= 2^r, with F the fraction times 2^r, is the rule for r + 1 bits and the word 2 R + 1.
            low = inputs["random"] & np.uint32((1 << task.sr_bits) - 1)
            nearest = {**inputs, "random": low * np.uint32(2) + np.uint32(1)}
            yield "sr_fraction", expected(replace(task, sr_bits=task.sr_bits + 1), nearest)
    if task.operation in ("quantize", "scale"):
        for rule in ScaleRule:
            if rule != task.scale_rule:
                yield f"scale rule {rule}", expected(replace(task, scale_rule=rule), inputs)
                if task.operation == "quantize" and task.rounding == Rounding.RNE:
                    both = replace(task, scale_rule=rule, rounding=Rounding.RNA)
                    yield f"scale rule {rule} with rounding rna", expected(both, inputs)
    if "x" in inputs:
        x = as_floats(inputs["x"], task.source)
        with np.errstate(all="ignore"):
            flushed = np.where(np.abs(x) < task.source.min_normal, x * x.dtype.type(0), x)
        rest = {name: column for name, column in inputs.items() if name != "x"}
        yield "reading subnormal inputs as zero", expected(task, {"x": as_bits(flushed, task.source), **rest})
        for name in {"float64": ["float32"], "float32": ["bfloat16", "float16"]}.get(task.source.name, []):
            with np.errstate(all="ignore"):
                narrow = x.astype(numpy_dtype(FLOATS[name])).astype(x.dtype)
            yield f"rounding to {name} first", expected(task, {"x": as_bits(narrow, task.source), **rest})
    if task.operation in ("encode", "quantize") and task.rounding == Rounding.RNE:
        yield "rounding to nearest with ties toward zero", _ties_toward_zero(task, inputs)
    if task.operation == "encode":
        code = expected(task, inputs)["code"]
        e = task.element
        sign = 1 << (e.bits - 1)
        tiny = (code & (sign - 1)) < (1 << e.mantissa_bits) if not e.integer else np.zeros(code.shape, bool)
        yield "flushing subnormal results to zero", {"code": np.where(tiny, code & sign, code).astype(code.dtype)}


def _ties_toward_zero(task: Task, inputs: Columns) -> Columns:
    want, toward = expected(task, inputs), expected(replace(task, rounding=Rounding.RTZ), inputs)
    y = as_magnitudes(inputs["x"], task.source, want.get("scale"))
    name = task.outputs[-1].name
    tie = places(y, task.element) == PLACES.index("tie")
    return {**want, name: np.where(tie, toward[name], want[name])}


def _sentence(label: str) -> str:
    return "; ".join(CHOICES[name.split(" (")[0]] for name in label.split(", ")) or label


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())

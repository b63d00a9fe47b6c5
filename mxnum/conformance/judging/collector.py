"""Judge batches of answers one by one, and make the report about all of them at the end.

Failures are grouped by cause: class, scale code, exponent, sign, index in the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mxnum.conformance.bits import fits, sign_bits
from mxnum.conformance.cases.batches import Coverage
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.hypotheses.elements import choices_of_bits
from mxnum.conformance.judging.describe import code_text, hexadecimal
from mxnum.conformance.judging.diagnosis import Diagnosis
from mxnum.conformance.judging.distances import Distances
from mxnum.conformance.judging.judge import (
    BUG,
    LABELS,
    Judgement,
    Tallies,
    judge,
    or_none,
    place_of_largest,
    wrong_codes,
)
from mxnum.conformance.judging.report import Case, Profile, Report
from mxnum.conformance.judging.right import expected, right
from mxnum.conformance.task import Columns, Task, select
from mxnum.memory.dtypes import Array

#: At most this many combinations of causes get a stored example. Cases of other combinations are
#: counted, but give no example.
COMBINATIONS = 4096
#: The largest number of ranges that the report lists for one cause.
RANGES = 6

Cause = tuple[Any, ...]


def causes(task: Task, found: Judgement) -> dict[str, Array]:
    """Return for each possible cause (class, exponent, sign, ...) its value in every case.

    The value is None where a cause does not apply, such as the exponent of a zero.
    """
    titles = np.array(task.operation.class_names(task), object)
    bits, more = task.operation.causes(task, found)
    magnitude = as_magnitudes(bits, task.source)
    known = np.isfinite(magnitude) & (magnitude > 0)
    return {
        "class": titles[found.classes],
        "part": np.array(found.parts, object),
        **more,
        "exponent": or_none(known, np.frexp(np.where(known, magnitude, 1))[1] - 1),
        "sign": np.where(sign_bits(bits, task.source), "-", "+").astype(object),
    }


def mistaken(task: Task, inputs: Columns, answers: Columns, labels: Columns) -> Counter[str]:
    """Return how often each wrong code was answered in place of each right code.

    The right code is the code that is right under the scale in the answer. NaN inputs are left out
    if the element format has no NaN code.
    """
    name = task.outputs[-1].name
    got, wanted = answers[name], right(task, {**inputs, **answers}, name)
    bad = wrong_codes(labels[name]) & fits(got, task.element.bits)
    if task.element.nan_code is None:
        bad &= ~np.isnan(as_magnitudes(inputs["x"], task.source))
    pairs, counts = np.unique(np.stack([got[bad], wanted[bad]], axis=1), axis=0, return_counts=True)
    texts = [" for ".join(code_text(task, code) for code in pair) for pair in pairs.tolist()]
    return Counter(dict(zip(texts, counts.tolist(), strict=True)))


class Groups:
    """Counts of cases by cause, and one example for each combination of causes."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[Any]] = {}
        #: `places` counts wrong codes by their index in the block. `maxima` counts wrong scales by
        #: the index of the block's largest number.
        self.places: Counter[int] = Counter()
        self.maxima: Counter[int] = Counter()
        #: Counts of wrong codes by a text that has the answered code and the right code.
        self.mistaken: Counter[str] = Counter()
        self._examples: dict[Cause, Any] = {}
        self._sizes: Counter[Cause] = Counter()

    def add(self, causes: dict[str, Array], rows: Array, example: Callable[[int], Any]) -> None:
        """Count cases in `rows` of a batch; call `example(row)` to make an example of a case."""
        lists = {name: column[rows].tolist() for name, column in causes.items()}
        for name, values in lists.items():
            self.counts.setdefault(name, Counter()).update(values)
        for row, values in zip(rows.tolist(), zip(*lists.values(), strict=True), strict=True):
            combination = tuple(zip(lists, values, strict=True))
            if combination in self._examples:
                self._sizes[combination] += 1
            elif len(self._examples) < COMBINATIONS:
                self._sizes[combination] = 1
                self._examples[combination] = example(row)

    def include(self, other: Groups) -> None:
        """Add the counts and the examples of `other`."""
        for name, counts in other.counts.items():
            self.counts.setdefault(name, Counter()).update(counts)
        self.places.update(other.places)
        self.maxima.update(other.maxima)
        self.mistaken.update(other.mistaken)
        for combination, example in other._examples.items():
            self._examples.setdefault(combination, example)
            self._sizes[combination] += other._sizes[combination]

    def different(self, count: int) -> list[Any]:
        """Return examples with little in common; examples of the largest groups come first."""
        left = sorted(self._examples, key=lambda combination: -self._sizes[combination])
        seen: set[Any] = set()
        chosen: list[Any] = []
        while left and len(chosen) < count:
            best = max(left, key=lambda combination: sum(cause not in seen for cause in combination))
            left.remove(best)
            seen |= set(best)
            chosen.append(self._examples[best])
        return chosen

    def lines(self, block: int) -> list[str]:
        """Return lines with the counts of wrong codes, of indices in the block, and of each cause.

        The causes `class`, `part`, `direction` and `element` have no line.
        """
        told = [f"Wrong codes: {_most(self.mistaken)}"] if self.mistaken else []
        named = {"codes by index in the block": self.places, "scales by index of the block's maximum": self.maxima}
        for what, places in named.items():
            if 0 < len(places) < block:
                told.append(f"Wrong {what}: {_ranges('place', places)}")
        for name, counts in self.counts.items():
            known = {value: count for value, count in counts.items() if value is not None}
            if known and name not in ("class", "part", "direction", "element"):
                told.append(f"Wrong by {name}: {_ranges(name, known)}")
        return told


def _most(counts: Counter[str]) -> str:
    """Return the most frequent entries and their counts, as text."""
    texts = [f"{text}: {count}" for text, count in counts.most_common(RANGES)]
    others = counts.total() - sum(count for _, count in counts.most_common(RANGES))
    return ", ".join([*texts, f"others: {others}"] if others else texts)


def _ranges(name: str, counts: dict[Any, int]) -> str:
    """Return counts as text, the largest first, with consecutive values joined to ranges."""
    if name == "sign":
        return ", ".join(f"{sign}: {count}" for sign, count in sorted(counts.items()))
    spans: list[tuple[int, int, int]] = []
    for value, count in sorted(counts.items()):
        if spans and value == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], value, spans[-1][2] + count
        else:
            spans.append((value, value, count))
    write = {"exponent": "2^{}", "scale code": "0x{:02X}", "element code": "0x{:02X}"}.get(name, "{}").format
    largest = sorted(spans, key=lambda span: -span[2])
    texts = [f"{_span(write, span)}: {span[2]}" for span in largest[:RANGES]]
    if len(largest) > RANGES:
        texts.append(f"elsewhere: {sum(span[2] for span in largest[RANGES:])}")
    return ", ".join(texts)


def _span(write: Callable[[int], str], span: Iterable[int]) -> str:
    first, last, _ = span
    return write(first) if first == last else f"{write(first)} to {write(last)}"


#: The value of `Case.part` for an answer in which some bits are unknown (printed as x or z).
UNKNOWN = "unknown bits"
#: The names of the implementation's choices that concern the scale of a block.
OF_SCALES = ("nonfinite", "zero_scale")


@dataclass
class _Wrong:
    """The numbers of wrong cases in total, by class and by part, and the cases' common causes."""

    count: int = 0
    groups: Groups = field(default_factory=Groups)
    classes: Counter[int] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, count: int, classes: Counter[int]) -> None:
        """Add `count` wrong cases; `classes` holds the number of wrong cases of each class."""
        self.count += count
        self.classes.update(classes)


class Collector:
    """Judges batches of cases and answers, and makes the report about all of them."""

    def __init__(self, task: Task, profile: Profile | None = None, keep: int = 5) -> None:
        self.task, self.profile, self.keep = task, profile or Profile(), keep
        self._tallies = Tallies()
        #: Number of cases by verdict and class.
        self._counts: Counter[tuple[int, int]] = Counter()
        self._parts: Counter[str] = Counter()
        self._by_part: dict[str, Case] = {}
        #: For each verdict except "right": the common causes of its cases.
        self._groups: dict[int, Groups] = {}
        self._diagnosis = Diagnosis(task)
        self._distances = Distances()
        self.coverage = Coverage(task)
        #: The number of answers that have unknown bits (x or z), by class, and the first few cases
        #: with such answers.
        self._unknown: Counter[int] = Counter()
        self._with_unknown: list[Case] = []

    @property
    def cases(self) -> int:
        return self._counts.total() + self._unknown.total()

    def add(self, inputs: Columns, answers: Columns, first: int = 1, where: Callable[[int], str] | None = None) -> int:
        """Judge a batch and return the number of its wrong cases.

        The first case of the batch has the number `first`. `where(number)` returns the location of
        a case for the report; by default, locations are like "case 17". The returned number leaves
        out cases whose only fault is a choice that the answers make inconsistently.
        """
        self.coverage.add(inputs)
        found = judge(self.task, inputs, answers, self._tallies)
        self._counts.update(zip(found.verdicts.tolist(), found.classes.tolist(), strict=True))
        wrong = np.flatnonzero(found.verdicts & BUG)
        self._parts.update(str(found.parts[row]) for row in wrong)
        where = where or (lambda number: f"case {number}")
        if found.verdicts.any():
            self._group(found, first, where)
        if len(wrong) and self.task.operation.result_bits(self.task) is not None:
            self._distances.add(self.task, answers, found.want, wrong, lambda row: where(first + row))
        self._diagnosis.add(inputs, answers, found.labels)
        return len(wrong)

    def add_unknown(self, inputs: Columns, written: dict[int, str], first: int) -> None:
        """Count the cases of a batch whose answers have unknown bits; all of them are wrong.

        `written` maps the row of each answer with unknown bits to the text of the answer.
        """
        rows = np.array(list(written), np.int64)
        some = select(inputs, rows)
        self.coverage.add(some)
        want = expected(self.task, some)
        self._unknown.update(self.task.operation.classify(self.task, some, want).tolist())
        for at, row in enumerate(rows[: self.keep - len(self._with_unknown)].tolist()):
            one, right = (select(columns, [at]) for columns in (some, want))
            self._with_unknown.append(Case(f"line {first + row}", first + row, one, {}, right, UNKNOWN, written[row]))

    def _group(self, found: Judgement, first: int, where: Callable[[int], str]) -> None:
        def case(row: int) -> Case:
            one, got, right = (select(columns, [row]) for columns in (found.inputs, found.answers, found.want))
            return Case(where(first + row), first + row, one, got, right, found.parts[row])

        common = causes(self.task, found)
        for verdict in np.unique(found.verdicts[found.verdicts != 0]).tolist():
            rows = np.flatnonzero(found.verdicts == verdict)
            group = self._groups.setdefault(verdict, Groups())
            group.add(common, rows, case)
            if self.task.outputs[-1].kind == "element":
                some = (select(columns, rows) for columns in (found.inputs, found.answers, found.labels))
                group.mistaken.update(mistaken(self.task, *some))
            if "codes" in found.labels:
                group.places.update(np.nonzero(wrong_codes(found.labels["codes"][rows]))[1].tolist())
            if "scale" in found.labels:
                wrong = rows[wrong_codes(found.labels["scale"][rows, 0])]
                group.maxima.update(place_of_largest(self.task, found.inputs["x"][wrong]).tolist())
        for row in np.flatnonzero(found.verdicts & BUG):
            part = str(found.parts[row])
            if part not in self._by_part:
                self._by_part[part] = case(int(row))

    def report(self) -> Report:
        """Return the report on all cases judged so far."""
        inconsistent = self._tallies.inconsistent()
        wrong, choices, examples = self._sorted(set(inconsistent))
        steady = set(LABELS) - set(inconsistent)
        explanations = self._diagnosis.explanations(steady, inconsistent) if wrong.count else []
        unexplained = self._diagnosis.unexplained(explanations, inconsistent)
        whole = [explanation for explanation in explanations if not explanation.classes]
        if len(whole) == 1 and whole[0].wrong == wrong.count and whole[0].names[0] in dict(choices_of_bits(self.task)):
            if whole[0].names[0].split(" (")[0] not in self.profile.accepted:
                choices[whole[0].names[0]] += wrong.count
            wrong, explanations, unexplained = _Wrong(), [], 0
        # Leave out an inconsistent choice if an explanation already covers the choice's field.
        explained = {explanation.field for explanation in whole}
        inconsistent = {
            name: tally
            for name, tally in inconsistent.items()
            if wrong.count and not (explained & {"scale"} if name in OF_SCALES else explained - {"scale"})
        }
        stacks = self._diagnosis.stacks(steady) if wrong.count else ()
        failures = wrong.groups.different(self.keep - bool(self._unknown))
        failures += self._with_unknown[: self.keep - len(failures)]
        if unknown := self._unknown.total():
            wrong.add(unknown, self._unknown)
            wrong.parts[UNKNOWN] += unknown
        bits = self.task.element.bits
        return Report(
            self.task, self.profile, self.cases, wrong.count, dict(choices),
            {name: (t.followed, t.kept) for name, t in inconsistent.items()}, self._by_class(wrong.classes),
            dict(wrong.parts), sorted(failures, key=lambda case: case.number), examples,
            self._by_part if wrong.count else {}, explanations, wrong.groups.lines(self.task.block),
            {hexadecimal(code, bits): count for code, count in sorted(self._tallies.nan_became.items())},
            stacks=stacks, unknown=unknown, unexplained=unexplained,
            tried=self.coverage.sentence() if self.cases else "", refused=self.coverage.refused,
            distances=self._distances,
        )  # fmt: skip

    def _sorted(self, inconsistent: set[str]) -> tuple[_Wrong, Counter[str], dict[str, Case]]:
        """Return the wrong cases; for each choice, return the number of cases and an example.

        A case with an inconsistent choice counts as wrong.
        """
        wrong, choices, examples = _Wrong(parts=Counter(self._parts)), Counter[str](), dict[str, Case]()
        for verdict, groups in self._groups.items():
            classes = Counter({c: n for (v, c), n in self._counts.items() if v == verdict})
            names = {name for name, bit in LABELS.items() if verdict & bit}
            odd = sorted(names & inconsistent)
            if verdict & BUG or odd:
                wrong.add(classes.total(), classes)
                wrong.groups.include(groups)
                if not verdict & BUG:
                    wrong.parts[f"inconsistent {odd[0]}"] += classes.total()
            elif names - self.profile.accepted:
                label = ", ".join(sorted(names - self.profile.accepted))
                choices[label] += classes.total()
                examples.setdefault(label, groups.different(1)[0])
        return wrong, choices, examples

    def _by_class(self, wrong: Counter[int]) -> dict[str, tuple[int, int]]:
        """Return the number of cases of each class, and how many of these cases are wrong."""
        names = self.task.operation.class_names(self.task)
        totals: Counter[int] = Counter(self._unknown)
        for (_, of_class), count in self._counts.items():
            totals[of_class] += count
        return {names[i]: (count, wrong[i]) for i, count in sorted(totals.items())}

"""Collect judged batches, and make the report about all of them at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mxnum.conformance.calling import fits
from mxnum.conformance.cases.coverage import Coverage
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.hypotheses import right
from mxnum.conformance.judging.describe import code_text, hexadecimal, ordinal
from mxnum.conformance.judging.diagnosis import Diagnosis, Explanation
from mxnum.conformance.judging.judge import (
    BUG,
    LABELS,
    NAN_BECAME,
    Consistency,
    Judgement,
    class_names,
    classify,
    judge,
    wrong_codes,
)
from mxnum.conformance.judging.report import Case, Profile, Report
from mxnum.conformance.judging.right import expected
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import Array

#: Most combinations of causes that are stored with an example; later ones count in the totals only.
COMBINATIONS = 4096
#: Most ranges that are written for one cause.
RANGES = 6

Cause = tuple[Any, ...]


def causes(task: Task, inputs: Columns, answers: Columns, want: Columns, found: Judgement) -> dict[str, Array]:
    """Return possible causes for each case of a batch: numbers or words; None where a cause has no meaning."""
    titles = np.array(class_names(task), object)
    result: dict[str, Array] = {"class": titles[found.classes], "part": np.array(found.parts, object)}
    rows = np.arange(len(found.verdicts))
    match task.operation:
        case "encode":
            bits, got, right = inputs["x"][:, 0], answers["code"][:, 0], want["code"][:, 0]
            result["direction"] = _direction(task, got, right)
        case "quantize":
            result["scale code"] = want["scale"][:, 0].astype(object)
            bad = wrong_codes(found.labels["codes"])
            place = np.where(bad.any(axis=1), bad.argmax(axis=1), 0)
            wrong_code = np.asarray(bad.any(axis=1))
            result["element"] = _or_none(wrong_code, place)
            decides = np.where(wrong_code, place, place_of_largest(task, inputs["x"]))  # the maximum decides the scale
            bits = inputs["x"][rows, decides]
            got, right = answers["codes"][rows, place], want["codes"][rows, place]
            of_scale = answers["scale"][:, 0].astype(np.int64) - want["scale"][:, 0]
            result["direction"] = np.where(wrong_code, _direction(task, got, right), np.sign(of_scale).astype(object))
        case "scale":
            result["scale code"] = want["scale"][:, 0].astype(object)
            bits = inputs["x"][rows, place_of_largest(task, inputs["x"])]
            result["direction"] = np.sign(answers["scale"][:, 0].astype(np.int64) - want["scale"][:, 0]).astype(object)
        case _:
            bits = want["value"][:, 0]
            if task.operation == "dequantize":
                result["scale code"] = inputs["scale"][:, 0].astype(object)
                result["element code"] = inputs["code"][:, 0].astype(object)
    magnitude = as_magnitudes(bits, task.source)
    known = np.isfinite(magnitude) & (magnitude > 0)
    exponent = np.frexp(np.where(known, magnitude, 1))[1] - 1
    result["exponent"] = _or_none(known, exponent)
    result["sign"] = np.where(bits >> bits.dtype.type(task.source.bits - 1), "-", "+").astype(object)
    return result


def place_of_largest(task: Task, x: Array) -> Array:
    """Return the index of the largest finite element in each block."""
    magnitude = as_magnitudes(x, task.source)
    return np.asarray(np.where(np.isfinite(magnitude), magnitude, -1).argmax(axis=1))


def _direction(task: Task, got: Array, want: Array) -> Array:
    known = fits(got, task.element.bits)
    ranks = np.array([ordinal(task.element, code) for code in range(1 << task.element.bits)])
    steps = ranks[np.where(known, got, 0).astype(np.int64)] - ranks[want]
    return _or_none(known, np.sign(steps))


def _or_none(known: Array, values: Array) -> Array:
    result = values.astype(object)
    result[~known] = None
    return result


def mistaken(task: Task, inputs: Columns, answers: Columns, labels: Columns) -> Counter[str]:
    """Return the counts of wrong codes, by the code answered and the code wanted at the scale that was answered.

    Codes of a NaN in an element without NaN are left out.
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
    """Counts of cases by each cause, and one example for each combination of causes."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[Any]] = {}
        #: Wrong codes by their index in the block, wrong scales by the index of the largest
        #: element.
        self.places: Counter[int] = Counter()
        self.maxima: Counter[int] = Counter()
        #: Wrong codes by the code answered and the code wanted.
        self.mistaken: Counter[str] = Counter()
        self._examples: dict[Cause, Any] = {}
        self._sizes: Counter[Cause] = Counter()

    def add(self, causes: dict[str, Array], rows: Array, example: Callable[[int], Any]) -> None:
        """Count some rows of a batch. `example(row)` makes an example of a row."""
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
        """Add the counts of other groups."""
        for name, counts in other.counts.items():
            self.counts.setdefault(name, Counter()).update(counts)
        self.places.update(other.places)
        self.maxima.update(other.maxima)
        self.mistaken.update(other.mistaken)
        for combination, example in other._examples.items():
            self._examples.setdefault(combination, example)
            self._sizes[combination] += other._sizes[combination]

    def different(self, count: int) -> list[Any]:
        """Return examples that have as little in common as possible, those of the largest groups first."""
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
        """Return a line for each informative cause. Class and part have their own lines elsewhere."""
        told = [f"Wrong codes: {_most(self.mistaken)}"] if self.mistaken else []
        named = {"codes by place in the block": self.places, "scales by place of the largest element": self.maxima}
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
    """Return counts as text, the largest first. Consecutive values form one range."""
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


#: The wrong part of a case whose answer has unknown bits.
UNKNOWN = "unknown bits"


class Collector:
    """Judges batches of cases and answers, and makes the report."""

    def __init__(self, task: Task, profile: Profile | None = None, keep: int = 5) -> None:
        self.task, self.profile, self.keep = task, profile or Profile(), keep
        self._tallies: dict[str, Consistency] = {}
        #: Number of cases by verdict and class.
        self._counts: Counter[tuple[int, int]] = Counter()
        self._parts: Counter[str] = Counter()
        self._by_part: dict[str, Case] = {}
        #: What cases of a verdict have in common, for each verdict that is not "right".
        self._groups: dict[int, Groups] = {}
        self._diagnosis = Diagnosis(task)
        self.coverage = Coverage(task)
        #: Answers with unknown bits: their number by class, and the first of them.
        self._unknown: Counter[int] = Counter()
        self._with_unknown: list[Case] = []

    @property
    def cases(self) -> int:
        return self._counts.total() + self._unknown.total()

    def add(self, inputs: Columns, answers: Columns, first: int = 1, where: Callable[[int], str] | None = None) -> int:
        """Judge a batch and return the number of its wrong cases.

        Its first case has the number `first`. `where(number)` says where a case is (default: "case
        17"). Cases that are wrong only because choices are followed inconsistently are not counted
        here.
        """
        self.coverage.add(inputs)
        found = judge(self.task, inputs, answers, self._tallies)
        self._counts.update(zip(found.verdicts.tolist(), found.classes.tolist(), strict=True))
        wrong = np.flatnonzero(found.verdicts & BUG)
        self._parts.update(str(found.parts[row]) for row in wrong)
        if found.verdicts.any():
            self._group(inputs, answers, found, first, where or (lambda number: f"case {number}"))
        self._diagnosis.add(inputs, answers, found.labels)
        return len(wrong)

    def add_unknown(self, inputs: Columns, written: dict[int, str], first: int) -> None:
        """Count cases of a batch as wrong whose answers have unknown bits. `written` holds these answers by row."""
        rows = np.array(list(written), np.int64)
        some = {name: column[rows] for name, column in inputs.items()}
        self.coverage.add(some)
        want = expected(self.task, some)
        self._unknown.update(classify(self.task, some, want).tolist())
        for at, row in enumerate(rows[: self.keep - len(self._with_unknown)].tolist()):
            one, right = ({name: column[at : at + 1].copy() for name, column in each.items()} for each in (some, want))
            self._with_unknown.append(Case(f"line {first + row}", first + row, one, {}, right, UNKNOWN, written[row]))

    def _group(
        self, inputs: Columns, answers: Columns, found: Judgement, first: int, where: Callable[[int], str]
    ) -> None:
        want = expected(self.task, inputs)

        def case(row: int) -> Case:
            one, got, right = (
                {name: column[row : row + 1].copy() for name, column in columns.items()}
                for columns in (inputs, answers, want)
            )
            return Case(where(first + row), first + row, one, got, right, found.parts[row])

        common = causes(self.task, inputs, answers, want, found)
        for verdict in np.unique(found.verdicts[found.verdicts != 0]).tolist():
            rows = np.flatnonzero(found.verdicts == verdict)
            group = self._groups.setdefault(verdict, Groups())
            group.add(common, rows, case)
            if self.task.outputs[-1].kind == "element":
                columns = (inputs, answers, found.labels)
                some = ({name: column[rows] for name, column in one.items()} for one in columns)
                group.mistaken.update(mistaken(self.task, *some))
            if "codes" in found.labels:
                group.places.update(np.nonzero(wrong_codes(found.labels["codes"][rows]))[1].tolist())
            if "scale" in found.labels:
                wrong = rows[wrong_codes(found.labels["scale"][rows, 0])]
                group.maxima.update(place_of_largest(self.task, inputs["x"][wrong]).tolist())
        for row in np.flatnonzero(found.verdicts & BUG):
            part = str(found.parts[row])
            if part not in self._by_part:
                self._by_part[part] = case(int(row))

    def report(self) -> Report:
        """Return the report on everything judged so far."""
        inconsistent = self._inconsistent()
        bugs = 0
        choices: Counter[str] = Counter()
        examples: dict[str, Case] = {}
        wrong = Groups()
        wrong_classes: Counter[int] = Counter()
        parts = Counter(self._parts)
        for verdict, groups in self._groups.items():
            count = sum(n for (v, _), n in self._counts.items() if v == verdict)
            names = {name for name, bit in LABELS.items() if verdict & bit}
            odd = sorted(names & set(inconsistent))
            if verdict & BUG or odd:
                bugs += count
                wrong.include(groups)
                wrong_classes.update({c: n for (v, c), n in self._counts.items() if v == verdict})
                if not verdict & BUG:
                    parts[f"inconsistent {odd[0]}"] += count
                continue
            names -= self.profile.accepted
            if names:
                label = ", ".join(sorted(names))
                choices[label] += count
                examples.setdefault(label, groups.different(1)[0])
        steady = set(LABELS) - set(inconsistent)
        explanations = self._diagnosis.explanations(steady, inconsistent) if bugs else []
        stacks = self._diagnosis.stacks(steady) if bugs else ()
        unexplained = self._diagnosis.unexplained(explanations, inconsistent)
        whole = [explanation for explanation in explanations if not explanation.classes]
        as_choice = _of_random_bits(whole) if len(whole) == 1 else None
        if as_choice and whole[0].wrong == bugs:
            choices[as_choice] += bugs
            bugs, explanations, unexplained = 0, [], 0
            wrong, wrong_classes, parts = Groups(), Counter(), Counter()
        # A field that an explanation covers needs no inconsistent choice to explain it.
        explained = {explanation.field for explanation in whole}
        of_blocks = {"nonfinite", "zero_scale"} if self.task.operation in ("quantize", "scale") else set()
        inconsistent = {
            name: tally
            for name, tally in inconsistent.items()
            if bugs and not (explained & {"scale"} if name in of_blocks else explained - {"scale"})
        }
        failures = wrong.different(self.keep - bool(self._unknown))
        failures += self._with_unknown[: self.keep - len(failures)]
        if unknown := self._unknown.total():
            bugs, parts = bugs + unknown, parts + Counter({UNKNOWN: unknown})
            wrong_classes.update(self._unknown)
        return Report(
            self.task, self.profile, self.cases, bugs, dict(choices),
            {name: (t.followed, t.kept) for name, t in inconsistent.items()}, self._by_class(wrong_classes),
            dict(parts), sorted(failures, key=_number), examples,
            self._by_part if bugs else {}, explanations, wrong.lines(self.task.block),
            self._nan_became(), stacks=stacks if bugs else (), unknown=unknown,
            unexplained=unexplained,
            tried=self.coverage.sentence() if self.cases else "", refused=self.coverage.refused,
        )  # fmt: skip

    def _by_class(self, wrong: Counter[int]) -> dict[str, tuple[int, int]]:
        """Return the number of cases of each class, and the number of wrong ones among them."""
        names = class_names(self.task)
        totals: Counter[int] = Counter(self._unknown)
        for (_, of_class), count in self._counts.items():
            totals[of_class] += count
        return {names[i]: (count, wrong[i]) for i, count in sorted(totals.items())}

    def _nan_became(self) -> dict[str, int]:
        found = {
            int(label.removeprefix(NAN_BECAME)): tally.followed
            for label, tally in self._tallies.items()
            if label.startswith(NAN_BECAME)
        }
        return {hexadecimal(code, self.task.element.bits): count for code, count in sorted(found.items())}

    def _inconsistent(self) -> dict[str, Consistency]:
        found: dict[str, Consistency] = {}
        zero_codes: dict[str, int] = {}
        of_nan = []
        for label, tally in self._tallies.items():
            name = label.split(" (")[0]
            if name == "zero_scale":
                zero_codes[label] = tally.followed
            elif name == "nan_element":
                of_nan.append(tally)
            elif not label.startswith(NAN_BECAME) and not tally.is_consistent:
                found[name] = tally
        right = zero_codes.pop("zero_scale (0)", 0)
        if zero_codes and (right or len(zero_codes) > 1):
            followed = max(zero_codes.values())
            found["zero_scale"] = Consistency(followed, right + sum(zero_codes.values()) - followed)
        most = max(of_nan, key=lambda tally: tally.followed, default=Consistency())
        if most.followed and all(tally.kept for tally in of_nan):  # none of the rules is followed for every NaN
            found["nan_element"] = most
        return found


def _of_random_bits(explanations: list[Explanation]) -> str | None:
    """Return the choice about random bits that the first explanation names; None if it names none."""
    name = explanations[0].names[0]
    return name if name.startswith(("sr_bits", "sr_fraction")) else None


def _number(case: Case) -> int:
    return case.number

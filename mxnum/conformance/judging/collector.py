"""Collect judged batches, and make the report about all of them at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mxnum.conformance.cases.batches import Coverage
from mxnum.conformance.hypotheses.elements import choices_of_bits
from mxnum.conformance.judging.describe import hexadecimal
from mxnum.conformance.judging.diagnosis import Diagnosis
from mxnum.conformance.judging.groups import Groups, causes, mistaken, place_of_largest
from mxnum.conformance.judging.judge import BUG, LABELS, Judgement, Tallies, judge, wrong_codes
from mxnum.conformance.judging.report import Case, Profile, Report
from mxnum.conformance.judging.right import expected
from mxnum.conformance.task import Columns, Task, select

#: The wrong part of a case whose answer has unknown bits.
UNKNOWN = "unknown bits"
#: The choices about the scale of a block.
OF_SCALES = ("nonfinite", "zero_scale")


@dataclass
class _Wrong:
    """The wrong cases: their number, what they have in common, and their number by class and by part."""

    count: int = 0
    groups: Groups = field(default_factory=Groups)
    classes: Counter[int] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, count: int, classes: Counter[int]) -> None:
        """Add a number of cases of these classes."""
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
            self._group(found, first, where or (lambda number: f"case {number}"))
        self._diagnosis.add(inputs, answers, found.labels)
        return len(wrong)

    def add_unknown(self, inputs: Columns, written: dict[int, str], first: int) -> None:
        """Count cases of a batch as wrong whose answers have unknown bits. `written` holds these answers by row."""
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
        """Return the report on everything judged so far."""
        inconsistent = self._tallies.inconsistent()
        wrong, choices, examples = self._sorted(set(inconsistent))
        steady = set(LABELS) - set(inconsistent)
        explanations = self._diagnosis.explanations(steady, inconsistent) if wrong.count else []
        unexplained = self._diagnosis.unexplained(explanations, inconsistent)
        whole = [explanation for explanation in explanations if not explanation.classes]
        if len(whole) == 1 and whole[0].wrong == wrong.count and whole[0].names[0] in dict(choices_of_bits(self.task)):
            choices[whole[0].names[0]] += wrong.count
            wrong, explanations, unexplained = _Wrong(), [], 0
        # A field that an explanation covers needs no inconsistent choice to explain it.
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
        )  # fmt: skip

    def _sorted(self, inconsistent: set[str]) -> tuple[_Wrong, Counter[str], dict[str, Case]]:
        """Return the wrong cases, the number of cases by choice, and an example for each choice."""
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
        """Return the number of cases of each class, and the number of wrong ones among them."""
        names = self.task.operation.class_names(self.task)
        totals: Counter[int] = Counter(self._unknown)
        for (_, of_class), count in self._counts.items():
            totals[of_class] += count
        return {names[i]: (count, wrong[i]) for i, count in sorted(totals.items())}

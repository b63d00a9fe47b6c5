"""Judge batches one by one, and make the report about all of them at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from mxnum.conformance.covered import Coverage
from mxnum.conformance.diagnosis import Diagnosis, Explanation
from mxnum.conformance.expected import expected
from mxnum.conformance.groups import Groups, causes, mistaken, place_of_largest
from mxnum.conformance.judge import (
    BUG,
    LABELS,
    NAN_BECAME,
    Consistency,
    Judgement,
    class_names,
    classify,
    judge,
    wrong_codes,
)  # fmt: skip
from mxnum.conformance.report import Case, Profile, Report
from mxnum.conformance.task import Columns, Task
from mxnum.conformance.words import hexadecimal

#: The wrong part of a case whose answer has unknown bits.
UNKNOWN = "unknown bits"


class Judge:
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

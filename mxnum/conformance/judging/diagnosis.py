"""Find hypotheses that explain every answer, the wrong answers and the right ones.

A hypothesis is dropped at the first answer that differs from its prediction. A difference does not
count if a legitimate choice explains it and the implementation makes this choice throughout. The
sign of a zero and the code of a NaN are legitimate choices, too. If no hypothesis is left, pairs of
mistakes are tried. If no pair is left either, hypotheses are tried on each class of cases
separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from mxnum.conformance.bits import fits
from mxnum.conformance.cases.batches import has_nan
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.hypotheses import ZEROS, Hypothesis, hypotheses, pairs, stuck_bits
from mxnum.conformance.judging.judge import BUG, LABELS, UNJUDGED, wrong_codes
from mxnum.conformance.judging.right import Remembering, expected, is_nan_scale, quotients, right
from mxnum.conformance.task import Columns, Field, Task, select
from mxnum.memory.dtypes import Array, code_dtype

#: A hypothesis is first tried on at most this many wrong rows and at most this many right rows, and
#: then on the whole batch.
FIRST = 16
#: A report names a hypothesis about some classes only if it explains at least this many wrong
#: answers; fewer answers can agree by chance.
FEWEST = 4
#: Batches are kept for further hypotheses while their total size is at most this many bytes.
KEPT = 1 << 27


@dataclass(frozen=True)
class Explanation:
    """One or more hypotheses, each of which explains every case, or every case of some classes."""

    field: str
    #: The names of the hypotheses, the likeliest first.
    names: tuple[str, ...]
    wrong: int
    right: int
    #: For the field of codes: True if the hypotheses also explain codes of blocks with a wrong
    #: scale.
    at_any_scale: bool = True
    #: The classes whose cases the hypotheses explain; empty if they explain all classes.
    classes: tuple[str, ...] = ()
    #: The number of answers, in other fields or other classes, that contradict each hypothesis;
    #: this number is the same for all of `names`. An answer contradicts a hypothesis if the
    #: hypothesis predicts a different answer that is not the right answer.
    contradicted: int = 0

    @property
    def claim(self) -> str:
        """A phrase that names the explained answers and the hypotheses."""
        others = f" ({' or '.join(self.names[1:4])} would give the same)" if len(self.names) > 1 else ""
        subject = {"scale": "wrong scales", "codes": "blocks of wrong codes"}.get(self.field, "wrong answers")
        given = ", given the scales in the answers," if self.at_any_scale else ", where the scale is right,"
        given = given if self.field == "codes" else ""
        first = self.names[0] if self.names[0].startswith("the right") else f"what {self.names[0]} gives"
        where = ", ".join(map(repr, self.classes))
        where = f" in the class{'es' * (len(self.classes) > 1)} {where}" if where else ""
        return f"all {self.wrong} {subject}{where} are{given} {first}{others}"

    def sentence(self) -> str:
        """Return a sentence: the claim, the number of explained right answers, and `doubt`."""
        right = {
            "scale": f"the {self.right} right scales",
            "codes": f"the right codes of {self.right} blocks (blocks that are NaN or have a wrong scale are left out)",
        }.get(self.field, f"the {self.right} right ones")
        rest = f", and so are {right}" if self.right else ""
        return f"{self.claim[0].upper()}{self.claim[1:]}{rest}{self.doubt}."

    @property
    def doubt(self) -> str:
        """A phrase with the number of answers that contradict the claim, or ""."""
        return f"; but {self.contradicted} other answers contradict this explanation" if self.contradicted else ""


@dataclass
class _Tried:
    """A hypothesis that no answer contradicts so far."""

    hypothesis: Hypothesis
    #: For each legitimate choice: the number of answers that differ from the prediction, but that
    #: the choice may explain.
    misses: Counter[str] = field(default_factory=Counter)
    #: The number of answers that are -0, as the hypothesis predicts.
    minus_zeros: int = 0
    #: True if some answers in blocks with a wrong scale differ from the predicted answers.
    elsewhere: bool = False


def _singles(task: Task) -> list[Hypothesis]:
    return [*hypotheses(task), *stuck_bits(task)]


class Diagnosis:
    """The judged batches of a check, and the hypotheses that explain all answers in them."""

    def __init__(self, task: Task, made: Callable[[Task], Iterable[Hypothesis]] = _singles) -> None:
        self.task, self._made = task, made
        self._alive: list[_Tried] | None = None  # None before the first bug, because trying hypotheses costs time
        self._kept: list[tuple[Columns, Columns, Columns]] = []
        self._size = 0
        #: For each field, and for each combination of labels: the number of rows with these labels.
        self._wrong: dict[str, Counter[int]] = {output.name: Counter() for output in task.outputs}
        self._right: Counter[str] = Counter()

    def add(self, inputs: Columns, answers: Columns, labels: Columns) -> None:
        """Record a batch.

        Hypotheses are tried only from the first bug on, because trying them costs time.
        """
        if not self.task.takes_nan:  # no hypothesis says which code replaces NaN if the element has no NaN
            known = ~has_nan(self.task, inputs)
            inputs, answers, labels = (select(columns, known) for columns in (inputs, answers, labels))
        if any(wrong_codes(found).any() for found in labels.values()):
            self._start()
        if self._alive is not None:
            self._try(inputs, answers, labels)
        self._size += sum(column.nbytes for columns in (inputs, answers, labels) for column in columns.values())
        if self._size <= KEPT:
            self._kept.append((inputs, answers, labels))

    def _start(self) -> None:
        if self._alive is None:
            self._alive = [_Tried(one) for one in self._made(self.task)]
            for batch in self._kept:
                self._try(*batch)

    def _try(self, inputs: Columns, answers: Columns, labels: Columns) -> None:
        assert self._alive is not None
        for output in self.task.outputs:
            name, found = output.name, labels[output.name]
            judged, given = self._judged(output, inputs, answers, labels)
            bug = judged & wrong_codes(found).any(axis=1)
            together = np.bitwise_or.reduce(np.where(found == UNJUDGED, 0, found), axis=1)
            self._wrong[name].update(together[together != 0].tolist())
            self._right[name] += int((judged & (found == 0).all(axis=1)).sum())
            first = np.concatenate([np.flatnonzero(bug)[:FIRST], np.flatnonzero(judged & ~bug)[:FIRST]])
            every = np.flatnonzero(judged)
            for rows in (first, every) if len(first) < len(every) else (every,):
                mine, of_rows = answers[name][rows], found[rows]
                some = Remembering({**select(given, rows), "answered": mine})
                self._alive = [
                    tried
                    for tried in self._alive
                    if tried.hypothesis.field != name
                    or not rows.size
                    or self._agrees(tried, output, some, mine, of_rows, count=rows is every)
                ]

    def _judged(self, output: Field, inputs: Columns, answers: Columns, labels: Columns) -> tuple[Array, Columns]:
        """Return a mask of the rows on which to try hypotheses, and the inputs of all rows.

        For hypotheses about codes, the inputs include the scales of the answers.
        """
        judged = (labels[output.name] != UNJUDGED).all(axis=1)
        if output.name != "codes":
            return judged, inputs
        # The judge judges codes only in blocks with a right scale, but a hypothesis can also be
        # tried in blocks with a wrong scale.
        scale, bits = answers["scale"], self.task.scale_bits
        finite = np.isfinite(as_magnitudes(inputs["x"], self.task.source)).all(axis=1)
        judged |= (fits(scale, bits) & ~is_nan_scale(self.task, scale))[:, 0] & finite
        return judged, {**inputs, "scale": np.where(fits(scale, bits), scale, 0).astype(code_dtype(bits))}

    def _agrees(self, tried: _Tried, output: Field, inputs: Columns, got: Array, labels: Array, count: bool) -> bool:
        """Return True if legitimate choices explain every difference from the predicted answers.

        If `count` is True, also count the differences that each choice explains.
        """
        theirs = tried.hypothesis.answer(self.task, inputs)
        differs, choices = self._compared(output, inputs, got, theirs)
        unjudged = labels == UNJUDGED
        open_to = np.where(unjudged, 0, labels) & ~BUG
        plain = differs & (open_to == 0) & ~unjudged
        if (plain & ~np.any(list(choices.values()), axis=0)).any():
            return False
        if count:
            tried.elsewhere |= bool((differs & unjudged).any())
            tried.minus_zeros += int((~differs & (theirs == self._minus_zero(output))).sum())
            for name, bit in LABELS.items():
                by_label = differs & ((open_to & bit) != 0)
                tried.misses[name] += int((by_label | (plain & choices[name]) if name in choices else by_label).sum())
        return True

    def _compared(self, output: Field, inputs: Columns, got: Array, theirs: Array) -> tuple[Array, Columns]:
        """Return a mask of the answers that differ from the prediction, and a mask for each choice.

        The mask for a choice marks the answers for which this choice may explain the difference.
        Answers with the label `UNJUDGED` are compared, too.
        """
        differs = np.asarray(got != theirs)
        if output.name == "codes" and "padding" in inputs:  # the padding of short blocks is not part of the answer
            differs &= ~inputs["padding"]
        return differs, {
            "minus_zero": (got == 0) & (theirs == self._minus_zero(output)),
            "nan_code": self._is_nan(output, got) & self._is_nan(output, theirs),
            "most_negative": self._is_most_negative(output, inputs, got, theirs),
        }

    def _minus_zero(self, output: Field) -> int:
        """Return the code of -0. If the field has no -0, return -1, which is not a code."""
        return -1 if output.kind == "scale" or self.task.element.integer else 1 << (output.bits - 1)

    def _is_nan(self, output: Field, codes: Array) -> Array:
        e = self.task.source if output.kind == "float" else self.task.element
        if output.kind == "scale" or e.nan_code is None:
            return np.zeros(codes.shape, bool)
        sign = 1 << (e.bits - 1)
        magnitude = codes & codes.dtype.type(sign - 1)
        return np.asarray(fits(codes, e.bits) & (magnitude >= e.max_code + 1 + (e.infinity_code is not None)))

    def _is_most_negative(self, output: Field, inputs: Columns, got: Array, theirs: Array) -> Array:
        """Return True for each answer that saturates to the most negative integer.

        Right answers never contain the most negative integer.
        """
        e = self.task.element
        if output.kind != "element" or not e.integer or "x" not in inputs:
            return np.zeros(got.shape, bool)
        beyond = quotients(self.task, inputs) > e.max
        sign = 1 << (e.bits - 1)
        return np.asarray(beyond & (got == sign) & (theirs == sign + 1))

    def explanations(self, steady: Collection[str], inconsistent: Collection[str]) -> list[Explanation]:
        """Return explanations of the fields that have wrong answers.

        An explanation is one mistake, a pair of mistakes, or a mistake in some classes of cases.
        `steady` lists the choices that no answer contradicts. `inconsistent` lists the choices that
        only some answers follow.
        """
        found = self._found(steady, inconsistent)
        fields = {output.name for output in self.task.outputs if self._count(output, inconsistent)}
        if self._size <= KEPT and fields > {one.field for one in found}:
            found += self._again(pairs, fields - {one.field for one in found})._found(steady, inconsistent)
            fields -= {one.field for one in found}
            classes = [self._classes(inputs) for inputs, _, _ in self._kept] if fields else []
            each = [
                (name, one)
                for index, name in enumerate(self.task.operation.class_names(self.task) if fields else ())
                for one in self._again(hypotheses, fields, [of == index for of in classes])._found(steady, inconsistent)
            ]
            for field_name in sorted(fields):
                joined = _joined({name: one for name, one in each if one.field == field_name})
                found += [one for one in joined if one.wrong >= FEWEST]
        return [self._checked(one) for one in found] if self._size <= KEPT else found

    def _classes(self, inputs: Columns) -> Array:
        return self.task.operation.classify(self.task, inputs, expected(self.task, inputs))

    def unexplained(self, found: Collection[Explanation], inconsistent: Collection[str]) -> int:
        """Return the number of wrong answers that `found` does not explain.

        If `found` is empty, return 0.
        """
        counts = {output.name: self._count(output, inconsistent) for output in self.task.outputs}
        for one in found:
            counts[one.field] -= one.wrong
        return sum(counts.values()) if found else 0

    def _checked(self, found: Explanation) -> Explanation:
        """Return the explanation, reduced to the hypotheses that the fewest answers contradict."""
        counts = self._contradictions(found)
        least = min(counts.values())
        names = tuple(name for name in found.names if counts[name] == least)
        return replace(found, names=names, contradicted=least)

    def _contradictions(self, found: Explanation) -> dict[str, int]:
        """Return the number of answers that contradict each hypothesis of `found`.

        Only answers that `found` does not explain are counted.
        """
        counts = dict.fromkeys(found.names, 0)
        known = [one for one in _singles(self.task) if one.name in counts and one.name != ZEROS]
        for output in self.task.outputs:
            tried = [one for one in known if one.field == output.name]
            if not tried or (output.name == found.field and not found.classes):
                continue
            for batch in self._kept:
                some, labels = self._outside(found, output, *batch)
                if not len(labels):
                    continue
                want = right(self.task, some, output.name)
                for one in tried:
                    theirs = one.answer(self.task, some)
                    differs, choices = self._compared(output, some, some["answered"], theirs)
                    differs &= (labels & ~BUG == 0) & ~np.any(list(choices.values()), axis=0)
                    counts[one.name] += int((differs & (theirs != want)).any(axis=1).sum())
        return counts

    def _outside(
        self, found: Explanation, output: Field, inputs: Columns, answers: Columns, labels: Columns
    ) -> tuple[Columns, Array]:
        """Return the inputs and labels of the rows of a batch that `found` does not explain."""
        judged, given = self._judged(output, inputs, answers, labels)
        if output.name == found.field:
            names = np.array(self.task.operation.class_names(self.task), object)
            judged &= ~np.isin(names[self._classes(inputs)], found.classes)
        rows = np.flatnonzero(judged)
        some = Remembering({**select(given, rows), "answered": answers[output.name][rows]})
        return some, labels[output.name][rows]

    def _again(
        self, made: Callable[[Task], Iterable[Hypothesis]], fields: Collection[str], chosen: list[Array] | None = None
    ) -> Diagnosis:
        """Return a diagnosis of the stored batches with other hypotheses about `fields`.

        `chosen` selects rows of each batch; None selects all rows.
        """
        again = Diagnosis(self.task, lambda task: [one for one in made(task) if one.field in fields])
        for index, batch in enumerate(self._kept):
            rows = slice(None) if chosen is None else chosen[index]
            again.add(*(select(columns, rows) for columns in batch))
        return again

    def _found(self, steady: Collection[str], inconsistent: Collection[str]) -> list[Explanation]:
        """Return the explanations that hold for all cases, at most one for each field."""
        found = []
        for output in self.task.outputs:
            fitting = self._fitting(output, steady)
            fitting.sort(key=lambda tried: tried.misses.total())  # hypotheses with the fewest differences come first
            at_any_scale = not all(tried.elsewhere for tried in fitting)
            names = tuple(tried.hypothesis.name for tried in fitting if tried.elsewhere != at_any_scale)
            wrong = self._count(output, inconsistent)
            if names and wrong:
                found.append(Explanation(output.name, names, wrong, self._right[output.name], at_any_scale))
        return found

    def _count(self, output: Field, inconsistent: Collection[str]) -> int:
        """Return the number of wrong rows.

        Rows that follow an inconsistent choice count as wrong.
        """
        mask = BUG | sum(bit for name, bit in LABELS.items() if name in inconsistent)
        return sum(count for labels, count in self._wrong[output.name].items() if labels & mask)

    def stacks(self, steady: Collection[str]) -> tuple[str, ...]:
        """Return the names of the stacks (`mxnum.stacks`) that would give the same answers."""
        every = [
            {tried.hypothesis.stack for tried in self._fitting(output, steady) if not tried.elsewhere}
            for output in self.task.outputs
        ]
        names = (hypothesis.stack for hypothesis in hypotheses(self.task) if hypothesis.stack)
        return tuple(name for name in dict.fromkeys(names) if all(name in some for some in every))

    def _fitting(self, output: Field, steady: Collection[str]) -> list[_Tried]:
        """Return the hypotheses about a field that no answer contradicts."""
        self._start()
        assert self._alive is not None
        return [
            tried
            for tried in self._alive
            if tried.hypothesis.field == output.name
            and all(name in steady for name, count in tried.misses.items() if count)
            and not (tried.misses["minus_zero"] and tried.minus_zeros)
        ]


def _joined(by_class: dict[str, Explanation]) -> Iterator[Explanation]:
    """Yield the explanations of a field, after merging the classes that share a hypothesis.

    The explanation of the most wrong answers comes first.
    """
    while by_class:
        counts: Counter[str] = Counter()
        for one in by_class.values():
            counts.update(dict.fromkeys(one.names, one.wrong))
        best = max(counts, key=counts.__getitem__)
        taken = {name: one for name, one in by_class.items() if best in one.names}
        by_class = {name: one for name, one in by_class.items() if name not in taken}
        same = list(taken.values())
        yield Explanation(
            same[0].field,
            tuple(name for name in same[0].names if all(name in one.names for one in same)),
            sum(one.wrong for one in same),
            sum(one.right for one in same),
            all(one.at_any_scale for one in same),
            tuple(taken),
        )

"""Failures grouped by cause (class, scale code, exponent, sign, index in the block), and differing examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mxnum.conformance.bits import fits, sign_bits
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.judging.describe import code_text, ordinal
from mxnum.conformance.judging.judge import Judgement, wrong_codes
from mxnum.conformance.judging.right import right
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import Array

#: Most combinations of causes that are stored with an example; later ones count in the totals only.
COMBINATIONS = 4096
#: Most ranges that are written for one cause.
RANGES = 6

Cause = tuple[Any, ...]


def causes(task: Task, found: Judgement) -> dict[str, Array]:
    """Return possible causes for each case of a batch: numbers or words; None where a cause has no meaning."""
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


def place_of_largest(task: Task, x: Array) -> Array:
    """Return the index of the largest finite element in each block."""
    magnitude = as_magnitudes(x, task.source)
    return np.asarray(np.where(np.isfinite(magnitude), magnitude, -1).argmax(axis=1))


def direction(task: Task, got: Array, want: Array) -> Array:
    """Return whether each code is too high (1) or too low (-1); None if it is no code."""
    known = fits(got, task.element.bits)
    ranks = np.array([ordinal(task.element, code) for code in range(1 << task.element.bits)])
    steps = ranks[np.where(known, got, 0).astype(np.int64)] - ranks[want]
    return or_none(known, np.sign(steps))


def or_none(known: Array, values: Array) -> Array:
    """Return the values that are known, and None for the others."""
    result = values.astype(object)
    result[~known] = None
    return result


def mistaken(task: Task, inputs: Columns, answers: Columns, labels: Columns) -> Counter[str]:
    """Return the counts of wrong codes by what came for what at the scale answered, NaNs without a code left out."""
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

"""Make the cases of a task in batches, and say what the cases cover."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mxnum import errors
from mxnum.conformance.bits import Generator, magnitude_bits
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.judging.right import is_nan_scale, with_tensor
from mxnum.conformance.task import Columns, Field, Task, number_of, select
from mxnum.memory.dtypes import Array

#: Number of cases in a batch.
BATCH = 8192
#: Inputs of at most `COUNTED_BITS` bits are counted one by one, so that the report can say that all
#: possible inputs were tried.
COUNTED_BITS = 16


def cases(task: Task, *, level: int = 1, seed: int = 0, count: int | None = None) -> Iterator[Columns]:
    """Yield the inputs of a task's cases, in batches.

    At level 1 the number of cases is fixed; at level 2 `count` sets the number. If the element
    format has no NaN, no answer to a NaN is right, so the random cases of level 2 contain no NaN.
    """
    errors.require(level in (1, 2), "level", "1 or 2 (for level 3, call check_arrays)", level)
    rng = Generator(errors.integer("seed", seed, 0, (1 << 64) - 1))
    if level == 1:
        if count is not None:
            raise ValueError("Argument 'count' must be left out at level 1, whose cases are fixed.")
        whole = with_tensor(task, task.operation.boundaries(task, rng))
        # A function may raise an error for NaNs that have no right answer, so the cases with such
        # NaNs come last, in separate batches.
        last = has_nan(task, whole) & (not task.takes_nan)
        for rows in (np.flatnonzero(~last), np.flatnonzero(last)):
            for start in range(0, len(rows), BATCH):
                yield select(whole, rows[start : start + BATCH])
        return
    total = number_of_cases(task, level=2, count=count)
    for start in range(0, total, BATCH):
        made = task.operation.samples(task, rng, min(total - start, BATCH), start)
        yield with_tensor(task, _without_nan(task, made))


def number_of_cases(task: Task, *, level: int = 1, seed: int = 0, count: int | None = None) -> int:
    """Return the number of cases that `cases` yields."""
    if level == 2:
        return task.operation.level_2 if count is None else errors.positive_integer("count", count)
    return sum(number_of(batch) for batch in cases(task, level=level, seed=seed, count=count))


def _without_nan(task: Task, inputs: Columns) -> Columns:
    """Return the inputs, with NaNs made finite if the task has no right answer to a NaN."""
    if task.takes_nan or "x" not in inputs:
        return inputs
    x = inputs["x"]
    quiet_bit = x.dtype.type(1 << (task.source.bits - 2))
    is_nan = magnitude_bits(x, task.source) > task.source.max_code + 1
    return {**inputs, "x": np.where(is_nan, x & ~quiet_bit, x)}


def has_nan(task: Task, inputs: Columns) -> Array:
    """Return True for each case with a NaN among its inputs."""
    found = _codes_are(task, inputs, np.isnan)
    scales = (inputs[name] for name in ("scale", "a_scale", "b_scale") if name in inputs)
    return np.asarray(np.any([found, *(is_nan_scale(task, codes).any(axis=1) for codes in scales)], axis=0))


def _codes_are(task: Task, inputs: Columns, what: np.ufunc) -> Array:
    """Return True for each case with a number for which `what` (`isnan` or `isinf`) is true."""

    def are(field: Field, codes: Array) -> Array:
        if field.kind in ("float", "code", "addend"):
            return np.asarray(what(as_magnitudes(codes, task.source)))
        if task.element.bits > 8:
            return np.asarray(what(as_magnitudes(codes, task.element)))
        return np.asarray(what(np.array(task.element.values()))[codes])

    kinds = "float", "code", "element", "operand", "addend"
    fields = [field for field in task.inputs if field.kind in kinds and field.name in inputs]
    return np.asarray(np.any([are(field, inputs[field.name]).any(axis=1) for field in fields], axis=0))


class Coverage:
    """Which of a task's possible inputs a check has tried, and a sentence for the report."""

    def __init__(self, task: Task) -> None:
        self.task = task
        name, bits = task.operation.possible(task)
        self._seen, self._inputs = None, name if bits is None else f"the 2^{bits} {name}"
        if bits is not None and bits <= COUNTED_BITS:
            self._seen, self._inputs = np.zeros(1 << bits, bool), f"{1 << bits:,} {name}"
        self._nan = self._infinity = False
        #: The name of the exception that the function raised for NaNs without a right answer.
        self.refused = ""

    def add(self, inputs: Columns) -> None:
        """Record the inputs of a batch of cases."""
        if self._seen is not None:
            index = np.zeros(number_of(inputs), np.int64)
            for field in self.task.inputs:
                if field.kind != "random":
                    index = index << field.bits | inputs[field.name][:, 0]
            self._seen[index] = True
        self._nan |= bool(has_nan(self.task, inputs).any())
        self._infinity |= bool(_codes_are(self.task, inputs, np.isinf).any())

    def sentence(self) -> str:
        """Return the sentence that says which inputs were tried and which were left out."""
        random = ", with a sample of random words" if self.task.is_stochastic else ""
        if self._seen is not None and self._seen.all():
            return f"Tried: all {self._inputs}{random}."
        some = "a sample of" if self._seen is None else f"{self._seen.sum():,} of"
        found = {"NaN": self._nan, "infinity": self._infinity}
        if self.task.takes_codes and self.task.element.infinity_code is None:
            del found["infinity"]
        parts = [
            f"{word} {' and '.join(names)}"
            for word, is_there in (("with", True), ("without", False))
            if (names := [name for name, there in found.items() if there == is_there])
        ]
        why = f" (for which the function raises {self.refused})" if self.refused else ""
        return f"Tried: {some} {self._inputs}{random}, {', '.join(parts)}{why}."

"""What the judged cases cover: all inputs or a sample, with NaN and infinity or without."""

from __future__ import annotations

import numpy as np

from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.judging.right import is_nan_scale
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import Array

#: Inputs of at most this many bits are counted one by one, to say that all were tried.
COUNTED_BITS = 16


def has_nan(task: Task, inputs: Columns) -> Array:
    """Return for each case whether a NaN is among its inputs."""
    found = _codes_are(task, inputs, np.isnan)
    scales = (inputs[name] for name in ("scale", "a_scale", "b_scale") if name in inputs)
    return np.asarray(np.any([found, *(is_nan_scale(task, codes).any(axis=1) for codes in scales)], axis=0))


def _codes_are(task: Task, inputs: Columns, what: np.ufunc) -> Array:
    """Return for each case whether `what` (is NaN, or is infinite) holds for a number or element code of its inputs."""
    if "x" in inputs:
        return np.asarray(what(as_magnitudes(inputs["x"], task.source)).any(axis=1))
    table = what(np.array(task.element.values()))
    found = [table[inputs[name]].any(axis=1) for name in ("code", "a", "b") if name in inputs]
    return np.asarray(np.any(found, axis=0))


class Coverage:
    """Collects the inputs of judged cases and says what they cover."""

    def __init__(self, task: Task) -> None:
        self.task = task
        bits = {"encode": task.source.bits, "dequantize": task.scale_bits + task.element.bits}.get(task.operation)
        countable = bits is not None and bits <= COUNTED_BITS and not task.has_tensor
        self._seen = np.zeros(1 << bits, bool) if bits is not None and countable else None
        self._nan = self._infinity = False
        #: The exception that the function raises for NaN, where there is no answer to a NaN.
        self.refused = ""

    def add(self, inputs: Columns) -> None:
        """Record the inputs of a batch of cases."""
        if self._seen is not None:
            found = inputs["x"] if "x" in inputs else inputs["scale"].astype(np.int64) << self.task.element.bits
            self._seen[found if "x" in inputs else found | inputs["code"]] = True
        self._nan |= bool(has_nan(self.task, inputs).any())
        self._infinity |= bool(_codes_are(self.task, inputs, np.isinf).any())

    def sentence(self) -> str:
        """Return the sentence that says what was tried and what was left out."""
        if self._seen is not None and self._seen.all():
            return f"Tried: all {self._inputs()}{self._words()}."
        found = {"NaN": self._nan, "infinity": self._infinity}
        if "x" not in {field.name for field in self.task.inputs} and self.task.element.infinity_code is None:
            del found["infinity"]
        parts = [
            f"{word} {' and '.join(names)}"
            for word, is_there in (("with", True), ("without", False))
            if (names := [name for name, there in found.items() if there == is_there])
        ]
        why = f" (for which the function raises {self.refused})" if self.refused else ""
        some = "a sample of" if self._seen is None else f"{self._seen.sum():,} of"
        return f"Tried: {some} {self._inputs()}{self._words()}, {', '.join(parts)}{why}."

    def _inputs(self) -> str:
        """Return the name of the possible inputs, with their number if they are counted."""
        task, number = self.task, "" if self._seen is None else f"{len(self._seen):,} "
        match task.operation:
            case "encode":
                return f"{number or f'the 2^{task.source.bits} '}{task.source.name} patterns"
            case "quantize" | "scale":
                return f"blocks of {task.block} {task.source.name} numbers"
            case "dequantize":
                return f"{number}pairs of a scale code and an element code"
            case _:
                return f"pairs of rows of {task.dot_blocks} blocks"

    def _words(self) -> str:
        return ", with a sample of random words" if self.task.is_stochastic else ""

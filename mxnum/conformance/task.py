"""Define a field of a case, an operation, and a task (an operation with format and modes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mxnum
from mxnum import formats
from mxnum.formats import E8M0, FLOATS, ElementFormat, MXFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Accumulate, FloatScaleRule, Nonfinite, Overflow, Rounding, ScaleRule
from mxnum.units import MatrixUnit, notation

if TYPE_CHECKING:
    from mxnum.conformance.bits import Generator
    from mxnum.conformance.judging.judge import Judgement, Tallies

#: The fields of many cases: for each field name an array of unsigned integers, of shape (cases,
#: numbers).
Columns = dict[str, Array]
#: A function that computes one field of the answers from a task and its inputs.
Answer = Callable[["Task", Columns], Array]


def number_of(columns: Columns) -> int:
    """Return the number of cases."""
    return len(next(iter(columns.values())))


def select(columns: Columns, rows: Any) -> Columns:
    """Return the cases at the indices `rows`."""
    return {name: column[rows] for name, column in columns.items()}


@dataclass(frozen=True)
class Field:
    """A field of each case: `count` numbers of one kind, written in hexadecimal."""

    name: str
    bits: int
    count: int
    #: The kind of number. ``float`` is a bit pattern of the float type, and ``code`` is a code of
    #: the element from which the task converts. ``operand`` and ``addend`` are bit patterns of a
    #: matrix unit's operand and accumulator. The other kinds are ``element``, ``scale``, ``tensor``
    #: and ``random``.
    kind: str

    @property
    def digits(self) -> int:
        return (self.bits + 3) // 4


class ArrayFormat(MXFormat):
    """The format of operands that are arrays of floats without scales."""

    def __init__(self, element: ElementFormat, name: str) -> None:
        fields = {"element": element, "scale": E8M0, "block": 1, "name": name, "tensor_scale": None}
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    @property
    def notation(self) -> str:
        return self.name


class Operation:
    """One kind of operation: its fields, cases, right answers, judge, hypotheses and description.

    A new operation is a subclass, with an instance in `mxnum.conformance.operations.OPERATIONS`.
    """

    name: str
    #: The settings on which the right answers depend.
    settings: tuple[str, ...]
    #: The input fields, ordered like the callable's arguments, and the output fields, ordered like
    #: the items of the tuple that the callable returns.
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    #: Number of cases of level 2, unless the caller gives a count.
    level_2: int
    #: True if each field of a case is one number; arguments and answers then have one axis.
    is_flat = False
    #: True if each case is a part of a tensor, which may have a tensor scale.
    in_tensors = False
    #: The key of the float type in the header of a file of vectors.
    type_key = "source"

    def __str__(self) -> str:
        return self.name

    def inputs(self, task: Task) -> list[Field]:
        """Return the input fields, except for random words and tensor scales."""
        raise NotImplementedError

    def outputs(self, task: Task) -> tuple[Field, ...]:
        """Return the fields that an implementation computes."""
        raise NotImplementedError

    def result_bits(self, task: Task) -> int | None:
        """Return the number of fraction bits of a result, or None.

        Reports give distances in units of the last fraction bit. If this method returns None,
        reports give no distances.
        """
        return None

    def takes_nan(self, task: Task) -> bool:
        """Return True if the definition has an answer for inputs with a NaN."""
        return True

    def title(self, task: Task) -> str:
        """Return the words that begin a report."""
        return f"{self.name}, {task.format.name}"

    def notes(self, task: Task) -> list[str]:
        """Return sentences that every report on the task contains."""
        return []

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        """Return the cases of level 1: every boundary and its neighbours."""
        raise NotImplementedError

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        """Return `size` random cases (level 2), the first of which has the index `start`."""
        raise NotImplementedError

    def possible(self, task: Task) -> tuple[str, int | None]:
        """Return a noun for the inputs, such as "element codes", and the size of an input in bits.

        The number of bits is None if there are too many possible inputs to count.
        """
        raise NotImplementedError

    def expected(self, task: Task, inputs: Columns) -> Columns:
        """Return the right outputs of every case."""
        raise NotImplementedError

    def labels(self, task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: Tallies) -> Columns:
        """Return the labels of each output field (defined in `mxnum.conformance.judging.judge`)."""
        raise NotImplementedError

    def class_names(self, task: Task) -> tuple[str, ...]:
        """Return the names of the classes of cases."""
        raise NotImplementedError

    def classify(self, task: Task, inputs: Columns, want: Columns) -> Array:
        """Return an index into `class_names` for each case."""
        raise NotImplementedError

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        """Return possible causes of each case's error: the bits of a float, and numbers by name."""
        raise NotImplementedError

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        """Yield possible mistakes: the output field, the name, and a function with the mistake."""
        raise NotImplementedError

    def given(self, task: Task, inputs: Columns) -> str:
        """Return the inputs of one case in words."""
        raise NotImplementedError

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        """Return a sentence or two about the difference in one case."""
        raise NotImplementedError


@dataclass(frozen=True)
class Task:
    """An operation, with the format and all settings on which its right answers depend."""

    operation: Operation
    format: MXFormat
    #: The float type of the input numbers, or, for dequantize, of the output numbers.
    source: ElementFormat = FLOATS["float32"]
    rounding: Rounding = Rounding.RNE
    scale_rule: ScaleRule | FloatScaleRule = ScaleRule.FLOOR
    overflow: Overflow = Overflow.SATURATE
    nonfinite: Nonfinite = Nonfinite.BLOCK
    sr_bits: int = 30
    accumulate: Accumulate = Accumulate.BLOCK
    #: Number of blocks in each operand of a dot product. Four blocks are enough to detect the order
    #: in which an implementation adds blocks.
    dot_blocks: int = 4
    #: The matrix unit that sums the `k` products of a case. If `unit` is None, `accumulate` defines
    #: the sum.
    unit: MatrixUnit | None = None
    k: int = 0

    @property
    def element(self) -> ElementFormat:
        return self.format.element

    @property
    def block(self) -> int:
        return self.format.block

    @property
    def scale_bits(self) -> int:
        """Width of a scale code without a sign bit, since scales are never negative."""
        scale = self.format.scale
        return scale.bits if scale.number is None else scale.number.bits - 1

    @property
    def scale_number(self) -> ElementFormat:
        """The float format of the scales; raises an error if scales are not floats."""
        number = self.format.scale.number
        assert number is not None
        return number

    @property
    def operand(self) -> ElementFormat:
        """The format of the operands of a matrix unit. TF32 operands are float32 arrays."""
        assert self.unit is not None
        return self.unit.formats[self.format.name] if isinstance(self.format, ArrayFormat) else self.element

    @property
    def has_tensor(self) -> bool:
        """True if each case is a part of a tensor with a tensor scale.

        In dot products all tensor scales are 1.
        """
        return self.format.tensor_scale is not None and self.operation.in_tensors

    @property
    def has_scales(self) -> bool:
        """True if each answer has a scale code."""
        return "scale" in self.operation.gives

    @property
    def takes_codes(self) -> bool:
        """True if the inputs are codes, not numbers."""
        return "x" not in self.operation.takes

    @property
    def is_stochastic(self) -> bool:
        return self.rounding.is_stochastic and "rounding" in self.operation.settings

    @property
    def takes_nan(self) -> bool:
        """True if the definition has an answer for inputs with a NaN."""
        return self.operation.takes_nan(self)

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The fields that an implementation receives."""
        fields = self.operation.inputs(self)
        if self.is_stochastic:
            fields.append(Field("random", 32, fields[0].count, "random"))
        if self.has_tensor:
            fields += [Field("largest", self.source.bits, 1, "tensor"), Field("tensor_scale", 32, 1, "tensor")]
        return tuple(fields)

    @property
    def outputs(self) -> tuple[Field, ...]:
        """The fields that an implementation computes."""
        return self.operation.outputs(self)

    def header(self) -> dict[str, str]:
        """Return the keys and values in the header of a file of vectors, in order."""
        known = self.format.name in formats.names() and formats.get(self.format.name).element == self.element
        name, decided = self.format.name if known else self.format.notation, self.operation.settings
        facts = {"operation": self.operation.name, "format": name}
        if not isinstance(self.format, ArrayFormat):
            facts["block"] = str(self.block)
        if "source" in decided:
            facts[self.operation.type_key] = self.source.name
        if "rounding" in decided:
            facts |= {"rounding": self.rounding.value, "overflow": self.overflow.value}
        if "scale_rule" in decided:
            facts |= {"scale_rule": self.scale_rule.value, "nonfinite": self.nonfinite.value}
        if self.is_stochastic:
            facts["sr_bits"] = str(self.sr_bits)
        if self.unit is not None:
            facts |= {"accumulate": notation(self.unit), "k": str(self.k)}
        elif "accumulate" in decided:
            facts |= {"accumulate": self.accumulate.value, "dot_blocks": str(self.dot_blocks)}
        facts["inputs"] = " ".join(f"{field.name}[{field.count}]" for field in self.inputs)
        facts["outputs"] = " ".join(f"{field.name}[{field.count}]" for field in self.outputs)
        facts["mxnum"] = mxnum.__version__
        return facts

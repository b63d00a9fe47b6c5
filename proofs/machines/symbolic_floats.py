"""Run functions that compute with floats on the IEEE floats of a solver.

A `Number` is a float of the solver. A `Word` is a symbolic bit pattern; if a float operation
computed it, the `Word` also stores the float. Each float operation is one IEEE operation, rounded
to nearest even. numpy's scalars and functions accept a `Number` in place of an array. A symbolic
NaN can have the bit pattern of any NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import z3

from mxnum.definition import word
from mxnum.engine.machine import lanes
from mxnum.prove.sym import Sym, SymBool

SORTS = {"float32": z3.Float32(), "float16": z3.Float16(), "bfloat16": z3.FPSort(8, 8)}
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
RNE = z3.RNE()


class Machine:
    """The state of an execution: equations that define new bit patterns, and goals to prove."""

    def __init__(self) -> None:
        self.definitions: list[z3.BoolRef] = []
        self.obligations: list[z3.BoolRef] = []

    def number(self, value: z3.FPRef) -> Number:
        """Return a `Number` for a term of the solver."""
        return Number(self, value)

    def word(self, name: str) -> Word:
        """Return a symbolic word."""
        return Word(self, z3.BitVec(name, 32))

    def constant(self, value: int) -> Word:
        """Return a constant word."""
        return Word(self, z3.BitVecVal(value, 32))

    def of_number(self, value: z3.FPRef, name: str = "bits") -> Word:
        """Return a word with the bit pattern of a float32 number."""
        bits = z3.FreshConst(z3.BitVecSort(32), name)
        self.definitions.append(z3.fpBVToFP(bits, z3.Float32()) == value)
        return Word(self, bits, value)


class Truth:
    """The outcome of a comparison of numbers; only `select` and numpy.where can use it."""

    def __init__(self, machine: Machine, holds: z3.BoolRef) -> None:
        self.machine, self.holds = machine, holds

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.machine, z3.Or(self.holds, other.holds))

    def __array_function__(self, function: Any, types: Any, arguments: Any, names: Any) -> Any:
        return _select_number(*arguments) if function is np.where else NotImplemented


class Number:
    """A float of the solver."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, machine: Machine, value: z3.FPRef) -> None:
        self.machine, self.value = machine, value

    @property
    def dtype(self) -> Any:
        return next(DTYPES[name] for name, sort in SORTS.items() if sort == self.value.sort())

    def astype(self, dtype: Any) -> Number:
        """Return the number in another type, rounded to nearest even."""
        sort = SORTS[np.dtype(dtype).name]
        same = sort == self.value.sort()
        return self if same else Number(self.machine, z3.fpFPToFP(RNE, self.value, sort))

    def lift(self, other: Any) -> z3.FPRef:
        """Return `other` as a term of the solver; raise TypeError if it has another float type."""
        if isinstance(other, Number):
            value = other.value
        elif isinstance(other, np.generic | np.ndarray):
            value = z3.FPVal(float(other), SORTS[other.dtype.name])
        else:
            value = z3.FPVal(float(other), self.value.sort()) if type(other) is int else None
        if value is None or value.sort() != self.value.sort():
            raise TypeError(f"{self.dtype} meets {other!r}")
        return value

    def _compute(self, operation: Callable[..., z3.FPRef], a: Any, b: Any) -> Number:
        return Number(self.machine, operation(RNE, self.lift(a), self.lift(b)))

    def _compare(self, comparison: Callable[..., z3.BoolRef], a: Any, b: Any) -> Truth:
        return Truth(self.machine, comparison(self.lift(a), self.lift(b)))

    def __array_ufunc__(self, function: Any, method: str, *operands: Any) -> Any:
        if function in _ARITHMETIC:
            return self._compute(_ARITHMETIC[function], *operands)
        if function in _COMPARISONS:
            return self._compare(_COMPARISONS[function], *operands)
        if function is np.isfinite:
            return Truth(self.machine, z3.Not(z3.Or(z3.fpIsInf(self.value), z3.fpIsNaN(self.value))))
        if function is np.maximum:
            a, b = map(self.lift, operands)
            return Number(self.machine, z3.If(z3.fpIsNaN(a), a, z3.If(z3.fpIsNaN(b), b, z3.fpMax(a, b))))
        return NotImplemented

    def __array_function__(self, function: Any, types: Any, arguments: Any, names: Any) -> Any:
        if function is np.ones_like:
            return Number(self.machine, z3.FPVal(1, self.value.sort()))
        return _select_number(*arguments) if function is np.where else NotImplemented

    def __add__(self, other: Any) -> Number:
        return self._compute(z3.fpAdd, self, other)

    def __mul__(self, other: Any) -> Number:
        return self._compute(z3.fpMul, self, other)

    def __rmul__(self, other: Any) -> Number:
        return self._compute(z3.fpMul, other, self)

    def __truediv__(self, other: Any) -> Number:
        return self._compute(z3.fpDiv, self, other)

    def __rtruediv__(self, other: Any) -> Number:
        return self._compute(z3.fpDiv, other, self)

    def __lt__(self, other: Any) -> Truth:
        return self._compare(z3.fpLT, self, other)

    def __gt__(self, other: Any) -> Truth:
        return self._compare(z3.fpGT, self, other)

    def __eq__(self, other: Any) -> Truth:  # type: ignore[override]
        return self._compare(z3.fpEQ, self, other)


_ARITHMETIC = {np.add: z3.fpAdd, np.multiply: z3.fpMul, np.divide: z3.fpDiv}
_COMPARISONS = {np.less: z3.fpLT, np.greater: z3.fpGT, np.equal: z3.fpEQ}


def _select_number(condition: Truth, if_true: Any, if_false: Any) -> Number:
    number = if_true if isinstance(if_true, Number) else if_false
    return Number(condition.machine, z3.If(condition.holds, number.lift(if_true), number.lift(if_false)))


class Condition(SymBool):
    """The outcome of a comparison of words."""

    def __and__(self, other: Condition) -> Condition:
        return Condition(z3.And(self.predicate, other.predicate), self.of)


class Word(Sym):
    """A symbolic word of 32 bits, and its float32 number if a float operation computed the word."""

    __slots__ = ("machine", "number")

    def __init__(self, machine: Machine, value: z3.BitVecRef, number: z3.FPRef | None = None) -> None:
        super().__init__(value, machine.obligations)
        self.machine, self.number = machine, number

    def _new(self, value: z3.BitVecRef) -> Word:
        return Word(self.machine, value)

    def __lt__(self, other: Any) -> Condition:
        return Condition(super().__lt__(other).predicate, self)

    def __le__(self, other: Any) -> Condition:
        return Condition(super().__le__(other).predicate, self)

    def __gt__(self, other: Any) -> Condition:
        return Condition(super().__gt__(other).predicate, self)

    def __ge__(self, other: Any) -> Condition:
        return Condition(super().__ge__(other).predicate, self)

    def __eq__(self, other: Any) -> Condition:  # type: ignore[override]
        return Condition(super().__eq__(other).predicate, self)

    def __ne__(self, other: Any) -> Condition:  # type: ignore[override]
        return Condition(super().__ne__(other).predicate, self)


def _select_word(condition: Condition, if_true: Any, if_false: Any) -> Word:
    of: Any = condition.of
    return Word(of.machine, z3.If(condition.predicate, of.lift(if_true), of.lift(if_false)))


def number_of(bits: Any) -> Any:
    """Return the float32 number whose bits are a word.

    In proofs, this function replaces `mxnum.engine.machine.float32_numbers.number_of`.
    """
    return Number(bits.machine, value_of(bits)) if isinstance(bits, Word) else np.int32(bits).view(np.float32)


def bits_of(number: Number) -> Word:
    """Return the bits of a float32 number as a word.

    In proofs, this function replaces `mxnum.engine.machine.float32_numbers.bits_of`.
    """
    return number.machine.of_number(number.value)


def value_of(bits: Any) -> z3.FPRef:
    """Return the float32 number whose bits are a word or an integer, as a term of the solver."""
    if not isinstance(bits, Word):
        return z3.FPVal(float(np.int32(bits).view(np.float32)), z3.Float32())
    return z3.fpBVToFP(bits.value, z3.Float32()) if bits.number is None else bits.number


_OPERATIONS = {"add": z3.fpAdd, "subtract": z3.fpSub, "multiply": z3.fpMul, "divide": z3.fpDiv}


def _float_arithmetic(operation: str, *operands: Any) -> Word:
    first: Word = operands[0]
    if operation == "float16":
        half = z3.FreshConst(z3.BitVecSort(16), "half")
        narrowed = z3.fpFPToFP(RNE, value_of(first), z3.Float16())
        first.machine.definitions.append(z3.fpBVToFP(half, z3.Float16()) == narrowed)
        return Word(first.machine, z3.ZeroExt(16, half))
    if operation == "float32":
        half = z3.fpBVToFP(z3.Extract(15, 0, first.value), z3.Float16())
        return first.machine.of_number(z3.fpFPToFP(RNE, half, z3.Float32()))
    return first.machine.of_number(_OPERATIONS[operation](RNE, *map(value_of, operands)), operation)


word.SELECT[Truth] = _select_number
word.SELECT[Condition] = _select_word
lanes.FLOAT_ARITHMETIC[Word] = _float_arithmetic

"""Run functions in the Python subset of `mxnum.definition.word` on symbolic bit-vectors.

`Sym` is a signed word that records these obligations: + - and * do not overflow, << loses no bits,
and shift amounts are smaller than the word. If all obligations hold, `Sym` computes the same values
as Python ints, int64 and int32. A theorem about `Sym` then also holds for the compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from mxnum.definition import word


class Sym:
    """A signed bit-vector of 32 or 64 bits, and the list that collects its obligations."""

    __slots__ = ("obligations", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: z3.BitVecRef, obligations: list[z3.BoolRef]) -> None:
        self.value = value
        self.obligations = obligations

    def lift(self, other: Any) -> z3.BitVecRef:
        """Return `other`, a Sym or a Python int that fits, as a bit-vector of this word's width."""
        width = self.value.size()
        if isinstance(other, Sym):
            if other.value.size() != width:
                raise TypeError(f"operands must have equal widths, not {width} and {other.value.size()} bits")
            return other.value
        if isinstance(other, int) and not isinstance(other, bool) and -(1 << (width - 1)) <= other < 1 << (width - 1):
            return z3.BitVecVal(other, width)
        raise TypeError(f"operand {other!r} must be a word or an integer of {width} bits")

    def _new(self, value: z3.BitVecRef) -> Sym:
        return Sym(value, self.obligations)

    def __add__(self, other: Any) -> Sym:
        a, b = self.value, self.lift(other)
        self.obligations += [z3.BVAddNoOverflow(a, b, True), z3.BVAddNoUnderflow(a, b)]
        return self._new(a + b)

    def __sub__(self, other: Any) -> Sym:
        a, b = self.value, self.lift(other)
        self.obligations += [z3.BVSubNoOverflow(a, b), z3.BVSubNoUnderflow(a, b, True)]
        return self._new(a - b)

    def __radd__(self, other: Any) -> Sym:
        return self._new(self.lift(other)) + self

    def __rsub__(self, other: Any) -> Sym:
        return self._new(self.lift(other)) - self

    def __and__(self, other: Any) -> Sym:
        return self._new(self.value & self.lift(other))

    def __or__(self, other: Any) -> Sym:
        return self._new(self.value | self.lift(other))

    def __xor__(self, other: Any) -> Sym:
        return self._new(self.value ^ self.lift(other))

    def __mul__(self, other: Any) -> Sym:
        a, b = self.value, self.lift(other)
        self.obligations += [z3.BVMulNoOverflow(a, b, True), z3.BVMulNoUnderflow(a, b)]
        return self._new(a * b)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Any) -> Sym:
        a, amount = self.value, self._amount(other)
        result = a << amount
        self.obligations.append((result >> amount) == a)
        return self._new(result)

    def __rshift__(self, other: Any) -> Sym:
        return self._new(self.value >> self._amount(other))  # an arithmetic shift, as for Python ints

    def __rlshift__(self, other: Any) -> Sym:
        return self._new(self.lift(other)) << self

    def __rrshift__(self, other: Any) -> Sym:
        return self._new(self.lift(other)) >> self

    def _amount(self, other: Any) -> z3.BitVecRef:
        amount = self.lift(other)
        self.obligations.append(z3.ULT(amount, self.value.size()))
        return amount

    def __lt__(self, other: Any) -> SymBool:
        return SymBool(self.value < self.lift(other), self)

    def __le__(self, other: Any) -> SymBool:
        return SymBool(self.value <= self.lift(other), self)

    def __gt__(self, other: Any) -> SymBool:
        return SymBool(self.value > self.lift(other), self)

    def __ge__(self, other: Any) -> SymBool:
        return SymBool(self.value >= self.lift(other), self)

    def __eq__(self, other: Any) -> SymBool:  # type: ignore[override]
        return SymBool(self.value == self.lift(other), self)

    def __ne__(self, other: Any) -> SymBool:  # type: ignore[override]
        return SymBool(self.value != self.lift(other), self)

    def __bool__(self) -> bool:
        raise TypeError("a dialect function must not branch on data: use select()")

    __index__ = __int__ = __bool__


class SymBool:
    """The outcome of a comparison; only `select` may read it."""

    __slots__ = ("of", "predicate")

    def __init__(self, predicate: z3.BoolRef, of: Sym) -> None:
        self.predicate = predicate
        self.of = of

    def __bool__(self) -> bool:
        raise TypeError("a dialect function must not branch on data: use select()")


def _select(condition: SymBool, if_true: Any, if_false: Any) -> Sym:
    word_of = condition.of
    return Sym(z3.If(condition.predicate, word_of.lift(if_true), word_of.lift(if_false)), word_of.obligations)


word.SELECT[SymBool] = _select


def run(function: Callable[..., Any], *arguments: z3.BitVecRef) -> tuple[Any, list[z3.BoolRef]]:
    """Run a function on bit-vectors; return its result, and the obligations of `Sym`.

    The result is a bit-vector or a tuple of bit-vectors.
    """
    obligations: list[z3.BoolRef] = []
    result = function(*(Sym(argument, obligations) for argument in arguments))
    return _values(result, arguments[0].size()), obligations


def _values(result: Any, width: int) -> Any:
    if isinstance(result, tuple):
        return tuple(_values(item, width) for item in result)
    return result.value if isinstance(result, Sym) else z3.BitVecVal(result, width)

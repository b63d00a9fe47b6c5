"""Symbolic words whose products are new unknowns, and words of 32 bits that wrap around."""

from __future__ import annotations

from typing import Any

import z3

from mxnum.prove.sym import Sym, SymBool


class Factor(Sym):
    """A symbolic word whose products are not computed: each product is a new unknown.

    `products` lists each multiplication as (factor, factor, unknown product).
    """

    products: list[tuple[z3.BitVecRef, z3.BitVecRef, z3.BitVecRef]]

    def _new(self, value: z3.BitVecRef) -> Factor:
        made = type(self)(value, self.obligations)
        made.products = self.products
        return made

    def __mul__(self, other: Sym) -> Factor:
        name = z3.FreshConst(z3.BitVecSort(64), "product")
        self.products.append((self.value, other.value, name))
        return self._new(name)


class Lane(Sym):
    """A word of 32 bits that wraps around, as in vector instructions; shifts are at most 31."""

    def _new(self, value: z3.BitVecRef) -> Lane:
        return Lane(value, self.obligations)

    def lift(self, other: Any) -> z3.BitVecRef:
        return z3.BitVecVal(other, 32) if isinstance(other, int) else super().lift(other)

    def __add__(self, other: Any) -> Lane:
        return self._new(self.value + self.lift(other))

    def __sub__(self, other: Any) -> Lane:
        return self._new(self.value - self.lift(other))

    def __lshift__(self, other: Any) -> Lane:
        return self._new(self.value << self._amount(other))

    def __rsub__(self, other: Any) -> Lane:
        return self._new(self.lift(other) - self.value)


def select(condition: SymBool | bool, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` if `condition` holds, else `if_false`.

    If the condition is symbolic, the result is a symbolic word.
    """
    if isinstance(condition, bool):
        return if_true if condition else if_false
    of = condition.of
    return of._new(z3.If(condition.predicate, of.lift(if_true), of.lift(if_false)))

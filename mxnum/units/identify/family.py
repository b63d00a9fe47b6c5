"""The family of rules from which `identify` chooses, and tables of these rules for `compiled`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors
from mxnum.formats import FLOATS, SCALES, ElementFormat, ScaleFormat
from mxnum.units.unit import ACCUMULATORS, OPERANDS

Array = np.ndarray[Any, Any]

#: The formats of operands: those of a `MatrixUnit`, and float32.
FORMATS = {**OPERANDS, "float32": FLOATS["float32"]}
#: The types of the addend and the result. Sums with a bfloat16 result are computed in float32 and
#: rounded at the end.
RESULTS = (*ACCUMULATORS, "bfloat16")
ALIGNMENTS = ("rtz", "floor", "rne", "sticky")
ROUNDINGS = ("rtz", "rne", "floor")
INFINITIES = ("ieee", "nan", "finite")
#: The exponent of a zero if alignment ignores zeros. It is below all other exponents.
NO_EXPONENT = -(10**6)
#: The ways to combine the sums of an instruction, each with the possible values of `Rule.addend`.
COMBINATIONS = {
    "chain": ("term", "after", "none"), "add": ("before", "after", "none"), "tree": ("before", "after", "none"),
    "halves": ("before", "after", "none"),
}  # fmt: skip
#: The formats of block scales.
SCALE_FORMATS = ("e8m0", "e4m3", "ue5m3")


@dataclass(frozen=True)
class Rule:
    """A rule of the family, which says how a unit adds.

    An instruction adds `terms` products at a time. Each sum of `terms` products aligns its terms at
    the largest exponent, keeps `fraction_bits` fraction bits, and rounds once.
    """

    #: The number of products of one sum.
    terms: int
    #: "chain": the accumulator is a term of the next sum. "add": each sum is rounded and then added
    #: to the accumulator. "tree": neighbouring sums are added in pairs until one sum is left.
    #: "halves": each sum of the first half is added to its counterpart in the second half, until
    #: one sum is left.
    combine: str = "chain"
    #: "term": the addend is a term of the first sum. "before": the addend is added to the first
    #: sum. "after": the addend is added to the total of all sums. "none": the addend is ignored.
    addend: str = "term"
    #: The order in which products enter the sums, as (width, step). Each chunk of `width`
    #: neighbouring products has a number, from 0 on. First come the chunks whose number is
    #: divisible by `step`, then the chunks whose number leaves the remainder 1, and so on. (1, 1)
    #: is ascending order; (1, -2) swaps the two products of each pair.
    order: tuple[int, int] = (1, 1)
    #: How alignment drops bits: "rtz" truncates magnitudes, "floor" truncates in two's complement,
    #: "rne" rounds to nearest even, and "sticky" keeps one more bit, which is set if any dropped
    #: bit is set.
    align: str = "rtz"
    #: The number of fraction bits of an aligned term; None for an exact sum.
    fraction_bits: int | None = 25
    #: True if products are normalized before alignment.
    normalize: bool = False
    rounding: str = "rtz"
    #: The number of fraction bits to which a sum is rounded. This number can be less than the
    #: accumulator's number of fraction bits only if `combine` is "chain" and `addend` is "term" or
    #: "none".
    result_bits: int = 23
    #: The rounding of additions that are not part of a sum, such as the addition of a sum to the
    #: accumulator.
    add_rounding: str = "rne"
    #: The number of integer bits of a sum. A sum that needs more bits wraps. None if sums never
    #: wrap.
    carry: int | None = None
    flush_operands: bool = False
    flush_addend: bool = False
    flush_result: bool = False
    #: The exponent of a zero operand or addend; None if zeros do not influence alignment.
    zero_exponent: int | None = None
    #: "plus": a zero result is +0. "ieee": a zero result has the sign that IEEE 754 gives to the
    #: sum.
    zero: str = "plus"
    #: The result if a sum is beyond the largest number: "infinity", or "largest" for the largest
    #: number.
    overflow: str = "infinity"
    #: How infinite inputs are handled: "ieee" follows IEEE 754, "nan" makes every infinity a NaN,
    #: and "finite" reads the top exponent as an ordinary exponent.
    infinities: str = "ieee"
    #: The bits of every NaN result; -1 if the bits are not always the same.
    nan: int = 0x7FFFFFFF
    #: The number of products that are added exactly to make one term. The exponent of a term of
    #: several products is the sum of the exponents of its two scales.
    group: int = 1


FIELDS = tuple(field.name for field in fields(Rule))


@dataclass(frozen=True)
class Problem:
    """The instruction to identify: its formats, its length K, and its block scales."""

    a: str
    b: str
    k: int
    accumulator: str = "float32"
    #: The format of the scales of blocks; "" if operands have no scales.
    scale: str = ""
    #: The number of products that share a pair of scales; 0 without scales.
    block: int = 0

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            errors.choose(name, value, tuple(FORMATS))
        errors.integer("k", self.k, 1, 1 << 12)
        errors.choose("accumulator", self.accumulator, RESULTS)
        if self.scale or self.block:
            errors.choose("scale", self.scale, SCALE_FORMATS)
            errors.integer("block", self.block, 1, self.k)
            errors.require(self.k % self.block == 0, "block", f"a divisor of k ({self.k})", self.block)
            narrow = all(fmt.bits <= 8 for fmt in self.formats)
            errors.require(narrow, "scale", "left out if an operand has more than 8 bits", self.scale)

    @property
    def blocks(self) -> int:
        """The number of scales of an operand."""
        return self.k // self.block if self.block else 0

    @property
    def groups(self) -> tuple[int, ...]:
        """The values above 1 that `Rule.group` can have.

        The tuple is empty if the operands have no block scales. The tuple is also empty if an
        operand has more than 6 bits, because exact sums of products might not fit in a word.
        """
        if not self.block or any(fmt.bits > 6 for fmt in self.formats):
            return ()
        return tuple(n for n in range(2, self.block + 1) if self.block % n == 0)

    @property
    def formats(self) -> tuple[ElementFormat, ElementFormat]:
        """The formats of a and b."""
        return FORMATS[self.a], FORMATS[self.b]

    @property
    def result(self) -> ElementFormat:
        """The format of the addend and the result."""
        return FLOATS[self.accumulator]

    @property
    def sum(self) -> ElementFormat:
        """The format of sums."""
        return FLOATS["float32" if self.accumulator == "bfloat16" else self.accumulator]


class Cases(NamedTuple):
    """Cases: the codes of the operands, and the bits of the addends.

    `a` and `b` have a row for each case: the K codes of the operand, then the codes of its scales.
    """

    a: Array
    b: Array
    c: Array

    def at(self, index: Any) -> Cases:
        """Return the cases that `index` selects."""
        return Cases(*(x[index] for x in self))


def join(*some: Cases) -> Cases:
    """Return all given cases in one table."""
    return Cases(*(np.concatenate(x) for x in zip(*some, strict=True)))


def orders(k: int) -> list[tuple[int, int]]:
    """Return the values that `Rule.order` can have for K products."""
    powers = [1 << i for i in range(k.bit_length())]
    return [(1, 1), *((w, s) for s in powers[1:] for w in powers if w * s < k), (1, -2)]


def order_of(order: tuple[int, int], k: int) -> list[int]:
    """Return the indices of the K products in the order in which the products enter the sums."""
    width, step = order
    if step < 0:
        return sorted(range(k), key=lambda i: (i // -step, -i))
    return sorted(range(k), key=lambda i: (i // width) % step)


#: The possible values of fields that are not integers. A table of rules stores the index of a value
#: instead of the value.
CHOICES: dict[str, tuple[Any, ...]] = {
    "combine": tuple(COMBINATIONS), "addend": ("term", "before", "after", "none"), "align": ALIGNMENTS,
    "normalize": (False, True), "rounding": ROUNDINGS, "add_rounding": ROUNDINGS, "flush_operands": (False, True),
    "flush_addend": (False, True), "flush_result": (False, True), "zero": ("plus", "ieee"),
    "overflow": ("infinity", "largest"), "infinities": INFINITIES,
}  # fmt: skip
#: The integers that a table of rules stores instead of None.
_NONE = {"fraction_bits": -1, "carry": 0, "zero_exponent": NO_EXPONENT}


def code(name: str, value: Any, k: int) -> int:
    """Return the integer that a table of rules for K products stores for a field's value."""
    if name == "order":
        return orders(k).index(value)
    if value is None:
        return _NONE[name]
    return CHOICES[name].index(value) if name in CHOICES else int(value)


def table_of(rules: Sequence[Rule], k: int) -> Array:
    """Return rules as a table of integers, a row for each."""
    rows = [[code(name, getattr(rule, name), k) for name in FIELDS] for rule in rules]
    return np.array(rows, np.int64).reshape(len(rows), len(FIELDS))


def rules_of(table: Array, k: int) -> list[Rule]:
    """Return the rules that a table of integers describes."""
    some = orders(k)

    def value(name: str, number: int) -> Any:
        if name == "order":
            return some[number]
        if number == _NONE.get(name, number + 1):
            return None
        return CHOICES[name][number] if name in CHOICES else number

    return [Rule(*(value(name, x) for name, x in zip(FIELDS, row, strict=True))) for row in table.tolist()]


class Evaluator:
    """Evaluates rules on the cases of a problem, with the functions of `compiled`."""

    def __init__(self, problem: Problem) -> None:
        a, b = problem.formats
        scale = _scale_numbers(SCALES[problem.scale]) if problem.scale else ()
        mantissas = a.mantissa_bits + b.mantissa_bits + (2 * scale[1] + 2 if scale else 0)
        least = -min(a.emin + b.emin, 0) if problem.groups else 0
        self.point = max(problem.sum.mantissa_bits, 1 + mantissas + least)
        rows = [_numbers(fmt) for fmt in (a, b, problem.sum, problem.result)]
        self.formats = np.array([*rows, scale or rows[0]], np.int64)
        self.orders = np.array([order_of(order, problem.k) for order in orders(problem.k)], np.int64)

    def answers(self, table: Array, cases: Cases) -> Array:
        """Return the bits of the results, a row for each rule of a table."""
        from mxnum.units.identify import compiled

        return np.asarray(compiled.answers(table, self.formats, self.point, self.orders, _whole(cases)))

    def fitting(self, table: Array, cases: Cases, right: Array, zeros: int = 0, wrong: int = 0) -> Array:
        """Return the rules of a table that give at most `wrong` wrong answers.

        `zeros` is the mask of the sign bit if +0 and -0 count as equal, and 0 if they differ.
        """
        from mxnum.units.identify import compiled

        given = table, self.formats, self.point, self.orders, _whole(cases), right, zeros, wrong
        return np.asarray(table[compiled.fitting(*given)])


def _whole(cases: Cases) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(x, np.int64) for x in cases)


def _numbers(fmt: ElementFormat) -> tuple[int, ...]:
    """Return the row of integers from which the functions of `compiled` read a format."""
    infinity = -1 if fmt.infinity_code is None else fmt.infinity_code
    return fmt.bits, fmt.mantissa_bits, fmt.bias, fmt.max_code, infinity, fmt.emax, int(fmt.specials != "none")


def _scale_numbers(scale: ScaleFormat) -> tuple[int, ...]:
    """Return the row of integers from which the functions of `compiled` read a scale format."""
    if scale.number is None:
        return scale.bits, 0, scale.bias, scale.max_code, -1, scale.max_code - scale.bias, 2
    return _numbers(scale.number)


def evaluate(rule: Rule, problem: Problem, cases: Cases) -> Array:
    """Return the bits of the results of one rule, one for each case."""
    return np.asarray(Evaluator(problem).answers(table_of([rule], problem.k), cases)[0])

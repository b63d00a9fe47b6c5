"""The family of adders that `identify` chooses from; tables of its rules, which are evaluated."""

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
#: The types of the addend and the result. Sums with a bfloat16 result are float32 until the end.
RESULTS = (*ACCUMULATORS, "bfloat16")
ALIGNMENTS = ("rtz", "floor", "rne", "sticky")
ROUNDINGS = ("rtz", "rne", "floor")
INFINITIES = ("ieee", "nan", "finite")
#: The exponent of a term that does not count.
NO_EXPONENT = -(10**6)
#: How the sums of an instruction are combined, with where the addend may join them.
COMBINATIONS = {
    "chain": ("term", "after", "none"), "add": ("before", "after", "none"), "tree": ("before", "after", "none"),
    "halves": ("before", "after", "none"),
}  # fmt: skip
#: The formats of block scales.
SCALE_FORMATS = ("e8m0", "e4m3", "ue5m3")


@dataclass(frozen=True)
class Rule:
    """How a unit adds: one member of the family.

    An instruction adds `terms` products at a time. Each such sum aligns its terms at the largest
    exponent to `fraction_bits` and rounds once.
    """

    #: The products of one sum.
    terms: int
    #: "chain": the accumulator is a term of the next sum. "add": each sum is rounded and then added
    #: to the accumulator. "tree" and "halves": the sums are added in pairs, neighbours or halves.
    combine: str = "chain"
    #: "term": inside the first sum. "before": added to the first sum. "after": added to the last.
    #: "none": ignored.
    addend: str = "term"
    #: (width, step): sums take runs of `width` indices; first those whose run number is 0 modulo
    #: `step`, then those with 1, and so on. (1, 1) is index order; (1, -2) swaps the indices of
    #: pairs.
    order: tuple[int, int] = (1, 1)
    #: What becomes of the bits that alignment drops: "rtz" (sign and magnitude), "floor" (two's
    #: complement), "rne", or "sticky" (they set one more bit).
    align: str = "rtz"
    #: The fraction bits of an aligned term; None for an exact sum.
    fraction_bits: int | None = 25
    #: True if products are normalized before alignment.
    normalize: bool = False
    rounding: str = "rtz"
    #: The fraction bits of a sum's result. Only chains with an addend inside have fewer than the
    #: accumulator.
    result_bits: int = 23
    #: The rounding of additions outside the sums.
    add_rounding: str = "rne"
    #: The integer bits of a sum, which wraps beyond them; None for enough.
    carry: int | None = None
    flush_operands: bool = False
    flush_addend: bool = False
    flush_result: bool = False
    #: The exponent of a zero operand or addend; None if zeros do not count.
    zero_exponent: int | None = -126
    #: "plus": a zero result is +0. "ieee": it has the sign of the sum.
    zero: str = "plus"
    #: A result beyond the largest number: "infinity" or "largest".
    overflow: str = "infinity"
    #: Infinite inputs: "ieee", "nan" (any gives NaN), or "finite" (the top exponent is ordinary).
    infinities: str = "ieee"
    #: The bits of a NaN; -1 if they vary.
    nan: int = 0x7FFFFFFF
    #: The products that are added exactly to make one term, which has the exponent of its scales.
    group: int = 1


FIELDS = tuple(field.name for field in fields(Rule))


@dataclass(frozen=True)
class Problem:
    """The instruction in question: operand formats, K, the type of addend and result, scales."""

    a: str
    b: str
    k: int
    accumulator: str = "float32"
    #: The format of the scales of blocks; "" if operands have none.
    scale: str = ""
    #: The products that share a pair of scales; 0 without scales.
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
            errors.require(narrow, "scale", "given with operands of at most 8 bits", self.scale)

    @property
    def blocks(self) -> int:
        """The scales of an operand."""
        return self.k // self.block if self.block else 0

    @property
    def groups(self) -> tuple[int, ...]:
        """The sizes of exact group sums that the family has; wider formats do not fit in a word."""
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
    """Codes of the operands, a row for each case, and the bits of the addends.

    A row has the K codes of an operand, then those of its scales.
    """

    a: Array
    b: Array
    c: Array

    def at(self, index: Any) -> Cases:
        """Return some of the cases."""
        return Cases(*(x[index] for x in self))


def join(*some: Cases) -> Cases:
    """Return all cases in one table."""
    return Cases(*(np.concatenate(x) for x in zip(*some, strict=True)))


def orders(k: int) -> list[tuple[int, int]]:
    """Return the orders of the family: index order, runs dealt to 2, 4, ... sums, swapped pairs."""
    powers = [1 << i for i in range(k.bit_length())]
    return [(1, 1), *((w, s) for s in powers[1:] for w in powers if w * s < k), (1, -2)]


def order_of(order: tuple[int, int], k: int) -> list[int]:
    """Return the indices of an instruction in the order in which its sums take them."""
    width, step = order
    if step < 0:
        return sorted(range(k), key=lambda i: (i // -step, -i))
    return sorted(range(k), key=lambda i: (i // width) % step)


#: The values of fields in the order of their codes in a table of rules. Other fields are integers.
CHOICES: dict[str, tuple[Any, ...]] = {
    "combine": tuple(COMBINATIONS), "addend": ("term", "before", "after", "none"), "align": ALIGNMENTS,
    "normalize": (False, True), "rounding": ROUNDINGS, "add_rounding": ROUNDINGS, "flush_operands": (False, True),
    "flush_addend": (False, True), "flush_result": (False, True), "zero": ("plus", "ieee"),
    "overflow": ("infinity", "largest"), "infinities": INFINITIES,
}  # fmt: skip
#: What None means in a table.
_NONE = {"fraction_bits": -1, "carry": 0, "zero_exponent": NO_EXPONENT}


def code(name: str, value: Any, k: int) -> int:
    """Return the integer of a field's value in a table of rules for K products."""
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
    """Return the rules of a table."""
    some = orders(k)

    def value(name: str, number: int) -> Any:
        if name == "order":
            return some[number]
        if number == _NONE.get(name, number + 1):
            return None
        return CHOICES[name][number] if name in CHOICES else number

    return [Rule(*(value(name, x) for name, x in zip(FIELDS, row, strict=True))) for row in table.tolist()]


class Evaluator:
    """Evaluates rules on the cases of a problem, by the compiled functions of `compiled`."""

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
        """Return the rules of a table that give the right answers, but for `wrong` of them.

        `zeros` has the bits in which zeros may differ.
        """
        from mxnum.units.identify import compiled

        given = table, self.formats, self.point, self.orders, _whole(cases), right, zeros, wrong
        return np.asarray(table[compiled.fitting(*given)])


def _whole(cases: Cases) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(x, np.int64) for x in cases)


def _numbers(fmt: ElementFormat) -> tuple[int, ...]:
    """Return a format as `compiled` reads it."""
    infinity = -1 if fmt.infinity_code is None else fmt.infinity_code
    return fmt.bits, fmt.mantissa_bits, fmt.bias, fmt.max_code, infinity, fmt.emax, int(fmt.specials != "none")


def _scale_numbers(scale: ScaleFormat) -> tuple[int, ...]:
    """Return a scale format as `compiled` reads it."""
    if scale.number is None:
        return scale.bits, 0, scale.bias, scale.max_code, -1, scale.max_code - scale.bias, 2
    return _numbers(scale.number)


def evaluate(rule: Rule, problem: Problem, cases: Cases) -> Array:
    """Return the bits of the results of one rule."""
    return np.asarray(Evaluator(problem).answers(table_of([rule], problem.k), cases)[0])

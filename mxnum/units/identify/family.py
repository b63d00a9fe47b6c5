"""The family of adders that `identify` chooses from, and a numpy evaluator of its rules.

The evaluator shares no code with the definition and the reference: it works on signed integers of
numpy, or on Python's where sums are exact. It evaluates many rules of one shape in one call: arrays
have the axes (rule, case, term).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors
from mxnum.formats import FLOATS, ElementFormat
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
#: States of a number: a bit for each sign of infinity, and both bits for NaN.
PLUS, MINUS, NAN = 1, 2, 3
_FAR = 62


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


FIELDS = tuple(field.name for field in fields(Rule))


@dataclass(frozen=True)
class Problem:
    """The instruction in question: operand formats, K, and the type of addend and result."""

    a: str
    b: str
    k: int
    accumulator: str = "float32"

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            errors.choose(name, value, tuple(FORMATS))
        errors.integer("k", self.k, 1, 1 << 12)
        errors.choose("accumulator", self.accumulator, RESULTS)

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
    """Codes of the operands, a row for each case, and the bits of the addends."""

    a: Array
    b: Array
    c: Array

    def at(self, index: Any) -> Cases:
        """Return some of the cases."""
        return Cases(*(x[index] for x in self))


def join(*some: Cases) -> Cases:
    """Return all cases in one table."""
    return Cases(*(np.concatenate(x) for x in zip(*some, strict=True)))


class Number(NamedTuple):
    """Numbers sig * 2**(exponent - point), with a sign for zeros and a state for the rest."""

    sig: Array
    exponent: Array
    negative: Array
    state: Array


def decode(codes: Array, fmt: ElementFormat, flush: Any = False, infinities: Any = 0) -> Number:
    """Return the numbers that codes mean; their point is the mantissa bits.

    `flush` says which subnormal numbers are zero, `infinities` is an index of `INFINITIES`.
    """
    codes, m = codes.astype(np.int64), fmt.mantissa_bits
    sign = (codes >> (fmt.bits - 1)) & 1 == 1
    magnitude = codes & ((1 << (fmt.bits - 1)) - 1)
    if fmt.integer:
        magnitude = np.where(sign, (1 << (fmt.bits - 1)) - magnitude, magnitude)
        return Number(np.where(sign, -magnitude, magnitude), 0 * codes, sign, 0 * codes)
    field, fraction = magnitude >> m, magnitude & ((1 << m) - 1)
    sig = np.where(field == 0, np.where(flush, 0, fraction), fraction | (1 << m))
    state = np.zeros_like(codes)
    if fmt.specials != "none":
        special = (magnitude > fmt.max_code) & (infinities != INFINITIES.index("finite"))
        infinite = special & (magnitude == fmt.infinity_code) & (infinities == INFINITIES.index("ieee"))
        state = np.where(infinite, np.where(sign, MINUS, PLUS), np.where(special, NAN, 0))
        sig = np.where(special, 0, sig)
    return Number(np.where(sign, -sig, sig), np.maximum(field, 1) - fmt.bias, sign, state)


def order_of(rule: Rule, k: int) -> list[int]:
    """Return the indices of an instruction in the order in which its sums take them."""
    width, step = rule.order
    if step < 0:
        return sorted(range(k), key=lambda i: (i // -step, -i))
    return sorted(range(k), key=lambda i: (i // width) % step)


def _length(x: Array) -> Array:
    """Return the bit length of each number, which is not negative."""
    if x.dtype == object:
        return np.asarray(np.frompyfunc(int.bit_length, 1, 1)(x)).astype(np.int64)
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


class Adder:
    """Evaluates rules that differ in some fields, `columns`, and in no others.

    A column has a value for each rule. The fields before `fraction_bits` are the same in all, and
    so are `normalize` and `add_rounding`; either all fraction bits are None or none are.
    """

    def __init__(self, rule: Rule, problem: Problem, columns: Mapping[str, Sequence[Any]] | None = None) -> None:
        self.rule, self.problem, self.fmt = rule, problem, problem.sum
        self.point = max(self.fmt.mantissa_bits, 1 + sum(fmt.mantissa_bits for fmt in problem.formats))
        values = {name: (columns or {}).get(name, (getattr(rule, name),)) for name in FIELDS}
        self.count = max(map(len, values.values()))
        self.exact = values["fraction_bits"][0] is None

        def column(name: str, number: Callable[[Any], int] = int) -> Array:
            return np.array([number(value) for value in values[name]], np.int64)[:, None]

        self.fraction = column("fraction_bits", lambda f: f or 0)
        self.bits, self.mode = column("result_bits"), column("rounding", ROUNDINGS.index)
        self.carry = column("carry", lambda c: c or 0)
        self.flush_operands, self.flush_addend = column("flush_operands") != 0, column("flush_addend") != 0
        self.flush_result = column("flush_result") != 0
        self.zero_exponent = column("zero_exponent", lambda e: NO_EXPONENT if e is None else e)
        self.plus = column("zero", lambda zero: zero == "plus") != 0
        self.infinite = column("overflow", lambda overflow: overflow == "infinity") != 0
        self.infinities, self.nan = column("infinities", INFINITIES.index), column("nan")

    def products(self, cases: Cases) -> Number:
        """Return the products, with the common point."""
        x, y = (
            decode(codes[None], fmt, self.flush_operands[..., None], self.infinities[..., None])
            for codes, fmt in zip(cases[:2], self.problem.formats, strict=True)
        )
        negative = x.negative ^ y.negative
        either = np.where((x.state == NAN) | (y.state == NAN), NAN, np.where(negative, MINUS, PLUS))
        of_zero = ((x.state != 0) & (y.state == 0) & (y.sig == 0)) | ((y.state != 0) & (x.state == 0) & (x.sig == 0))
        state = np.where((x.state | y.state) == 0, 0, np.where(of_zero, NAN, either))
        shift = self.point - sum(fmt.mantissa_bits for fmt in self.problem.formats)
        zero = self.zero_exponent[..., None]
        sig, exponent = (x.sig * y.sig) << shift, self._exponent(x, zero) + self._exponent(y, zero)
        if self.rule.normalize:
            sig, exponent = self._normalized(sig, exponent)
        return Number(sig, exponent, negative, state)

    def _normalized(self, sig: Array, exponent: Array) -> tuple[Array, Array]:
        """Return significands in [1, 2) with their exponents; the point leaves a bit to spare."""
        lift = np.where(sig != 0, self.point + 1 - _length(np.abs(sig)), 0)
        return np.where(lift < 0, sig >> 1, sig << np.maximum(lift, 0)), exponent - lift

    @staticmethod
    def _exponent(x: Number, zero: Array) -> Array:
        """Return the exponents of terms, those of a zero included."""
        return np.where((x.sig == 0) & (x.state == 0), zero, x.exponent)

    def _accumulator(self, x: Number) -> Number:
        """Return an addend as a term."""
        sig = np.where(self.flush_addend & (np.abs(x.sig) < 1 << self.fmt.mantissa_bits), 0, x.sig)
        exponent = self._exponent(x._replace(sig=sig), self.zero_exponent)
        sig = sig << (self.point - self.fmt.mantissa_bits)
        if self.rule.normalize:
            sig, exponent = self._normalized(sig, exponent)
        return Number(sig, exponent, x.negative, x.state)

    def fused(self, parts: list[Number]) -> Number:
        """Return the rounded sum of terms; each part has the axes (rule, case, term)."""
        shape = np.broadcast_shapes(*(x.shape[:2] for p in parts for x in p))
        sig, exponent, negative, state = (
            np.concatenate([np.broadcast_to(p[i], (*shape, p[i].shape[2])) for p in parts], axis=2) for i in range(4)
        )
        state, negative = np.bitwise_or.reduce(state, axis=2), np.asarray(negative.all(axis=2))
        largest = exponent.max(axis=2)
        if self.exact:
            used = sig != 0
            least = np.where(used, exponent, 1 << 20).min(axis=2)
            distance = np.where(used, exponent - least[..., None], 0)
            total = (sig.astype(object) << distance.astype(object)).sum(axis=2)
            return self.round(total, least - self.point, negative, state)
        align, extra = self.rule.align, int(self.rule.align == "sticky")
        fraction = (self.fraction + extra)[..., None]
        left, right = np.maximum(fraction - self.point, 0), np.maximum(self.point - fraction, 0)
        distance = np.minimum(largest[..., None] - exponent + right, _FAR)
        if align == "floor":
            terms = (sig << left) >> distance
        else:
            magnitude = np.abs(sig) << left
            terms = magnitude >> distance
            lost = magnitude - (terms << distance)
            if align == "sticky":
                terms |= lost != 0
            elif align == "rne":
                half = np.where(distance > 0, np.int64(1) << np.maximum(distance - 1, 0), 1)
                terms += (lost > half) | ((lost == half) & (terms & 1 == 1))
            terms = np.where(sig < 0, -terms, terms)
        total = terms.sum(axis=2)
        if self.carry.any():
            half = np.int64(1) << (fraction[..., 0] + self.carry)
            total = np.where(self.carry == 0, total, ((total + half) & (2 * half - 1)) - half)
        return self.round(total, largest - fraction[..., 0], negative, state)

    def round(self, total: Array, unit: Array, negative: Array, state: Array, outside: bool = False) -> Number:
        """Return total * 2**unit, rounded to the result's bits, or to those of the accumulator."""
        m = self.fmt.mantissa_bits
        bits = m if outside else self.bits
        mode = ROUNDINGS.index(self.rule.add_rounding) if outside else self.mode
        minus, magnitude = total < 0, np.abs(total)
        quantum = np.maximum(_length(magnitude) - 1 + unit, self.fmt.emin) - bits
        drop = np.where(magnitude == 0, 0, quantum - unit)
        down, up = np.clip(drop, 0, None), np.clip(-drop, 0, _FAR)
        down = down if magnitude.dtype == object else np.minimum(down, _FAR)
        if magnitude.dtype == object:
            down, up = down.astype(object), up.astype(object)
        kept = magnitude >> down
        lost = magnitude - (kept << down)
        half = (magnitude * 0 + 1) << down
        nearest = (2 * lost > half) | ((2 * lost == half) & (kept & 1 == 1) & (down > 0))
        increment = np.where(mode == 1, nearest & (lost != 0), (mode == 2) & minus.astype(bool) & (lost != 0))
        sig = ((kept + increment.astype(np.int64)) << up).astype(np.int64)
        exponent = quantum + bits
        carried = sig >> (bits + 1) != 0
        sig, exponent = np.where(carried, sig >> 1, sig) << (m - bits), exponent + carried
        sig = np.where(self.flush_result & (sig < 1 << m), 0, sig)
        sign = minus.astype(bool) | ((total == 0).astype(bool) & negative)
        if not outside:
            sign = sign & ~(self.plus & (sig == 0))
        over = (exponent > self.fmt.emax) & (sig != 0)
        state = state | np.where(self.infinite & over & (state == 0), np.where(sign, MINUS, PLUS), 0)
        full = ((1 << (m + 1)) - 1) >> (m - bits) << (m - bits)
        sig, exponent = np.where(over, full, sig), np.where(over, self.fmt.emax, exponent)
        exponent = np.where(sig == 0, self.fmt.emin, exponent)
        return Number(np.where(sign, -sig, sig), exponent, sign, state)

    def add(self, x: Number, y: Number) -> Number:
        """Return the sum of two accumulators, rounded outside the sums."""
        largest = np.maximum(
            np.where(x.sig == 0, NO_EXPONENT, x.exponent), np.where(y.sig == 0, NO_EXPONENT, y.exponent)
        )
        total = np.zeros_like(largest)
        for one in (x, y):
            distance = np.where(one.sig == 0, 0, largest - one.exponent)
            total = total + np.where(distance > 27, np.sign(one.sig), one.sig << np.maximum(27 - distance, 0))
        unit = np.where(largest == NO_EXPONENT, 0, largest - self.fmt.mantissa_bits - 27)
        return self.round(total, unit, x.negative & y.negative, x.state | y.state, outside=True)

    def __call__(self, cases: Cases) -> Array:
        """Return the bits of the results, a row for each rule."""
        rule, k = self.rule, self.problem.k
        order = order_of(rule, k)
        products = Number(*(x[:, :, order] for x in self.products(cases)))
        bits = cases.c[None] << (self.fmt.bits - self.problem.result.bits)
        c = decode(bits, self.fmt, self.flush_addend, self.infinities)
        zero = Number(np.zeros_like(c.sig), c.exponent * 0 + self.fmt.emin, np.zeros_like(c.negative), c.state * 0)
        groups = [Number(*(x[:, :, i : i + rule.terms] for x in products)) for i in range(0, k, rule.terms)]
        if rule.combine == "chain":
            total = c if rule.addend == "term" else zero
            for group in groups:
                term = Number(*(x[..., None] for x in self._accumulator(total)))
                total = self.fused([term, group])
        else:
            total = self._combine([self.fused([group]) for group in groups], c)
        total = self.add(total, c) if rule.addend == "after" else total
        return self.encode(total, len(cases.c))

    def _combine(self, sums: list[Number], c: Number) -> Number:
        if self.rule.addend == "before":
            sums = [self.add(c, sums[0]), *sums[1:]]
        while len(sums) > 1:
            if self.rule.combine == "add":
                pairs, rest = [(sums[0], sums[1])], sums[2:]
            elif self.rule.combine == "tree":
                pairs, rest = list(zip(sums[::2], sums[1::2], strict=False)), sums[len(sums) // 2 * 2 :]
            else:
                half = len(sums) // 2
                pairs, rest = list(zip(sums[:half], sums[half : 2 * half], strict=True)), sums[2 * half :]
            sums = [*(self.add(x, y) for x, y in pairs), *rest]
        return sums[0]

    def encode(self, x: Number, count: int) -> Array:
        """Return the bits of numbers."""
        fmt, m = self.fmt, self.fmt.mantissa_bits
        magnitude = np.abs(x.sig)
        code = np.where(magnitude >> m != 0, ((x.exponent - fmt.emin) << m) + magnitude, magnitude)
        code = np.where(x.state == 0, code, fmt.max_code + 1) | (x.negative.astype(np.int64) << (fmt.bits - 1))
        sign = np.int64(1) << (fmt.bits - 1)
        code = np.where(x.state == PLUS, fmt.max_code + 1, np.where(x.state == MINUS, (fmt.max_code + 1) | sign, code))
        drop = fmt.bits - self.problem.result.bits
        if drop:  # from float32 to bfloat16, to nearest even
            code = (code + (1 << (drop - 1)) - 1 + (code >> drop & 1)) >> drop
        code = np.where(x.state == NAN, self.nan, code)
        return np.broadcast_to(code, (self.count, count))


def evaluate(rule: Rule, problem: Problem, cases: Cases) -> Array:
    """Return the bits of the results of one rule."""
    return np.asarray(Adder(rule, problem)(cases)[0])


#: The fields in which the rules of one `Adder` are the same.
SHAPE = ("terms", "combine", "addend", "order", "align", "normalize", "add_rounding")
#: The numbers that an `Adder` works on at once.
AT_ONCE = 1 << 17


def evaluate_all(rules: Sequence[Rule], problem: Problem, cases: Cases) -> Array:
    """Return the bits of the results, a row for each rule."""
    shapes: dict[tuple[Any, ...], list[int]] = {}
    for index, rule in enumerate(rules):
        key = *(getattr(rule, name) for name in SHAPE), rule.fraction_bits is None
        shapes.setdefault(key, []).append(index)
    answers = np.empty((len(rules), len(cases.c)), np.int64)
    most = max(AT_ONCE // max(problem.k * len(cases.c), 1), 1)
    for indices in shapes.values():
        for start in range(0, len(indices), most):
            part = indices[start : start + most]
            columns = {name: [getattr(rules[i], name) for i in part] for name in FIELDS if name not in SHAPE}
            varying = {name: values for name, values in columns.items() if len(set(values)) > 1}
            answers[part] = Adder(rules[part[0]], problem, varying)(cases)
    return answers

"""Cases for matrix units: terms near the limit of alignment, ties, carries and cancellation.

Each row consists of one largest product, products that are smaller by chosen powers of two, and an
addend. Many of the smaller products are about 2**-n times the largest product. Here n is the number
of fraction bits that the unit's alignment, result or accumulator keeps. The unit's rules decide
whether such a small product changes the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxnum.conformance.bits import Generator
from mxnum.conformance.task import ArrayFormat, Columns, Task
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array, code_dtype

#: The number of rows at level 1, not counting the rows with special values.
BOUNDARIES = 2048
#: The number of patterns for a row's mantissa bits: all zeros, all ones, only the last bit, random.
_PATTERNS = 4


def boundary_products(task: Task, rng: Generator) -> Columns:
    """Return the cases of level 1: rows at all boundaries, then rows with special values."""
    rows, special = unit_products(task, rng, BOUNDARIES), _special_products(task)
    return {name: np.concatenate([rows[name], special[name]]) for name in rows}


def unit_products(task: Task, rng: Generator, count: int) -> Columns:
    """Return `count` random rows of finite operands and addends."""
    rows = _Rows(task, rng, count)
    columns = rows.operands()
    columns["c"] = rows.addends(columns)
    return {field.name: columns[field.name] for field in task.inputs}


class _Scales(NamedTuple):
    """The range of the exponents of scales."""

    lowest: int
    highest: int


class _Rows:
    """Random rows of products; exponents, mantissa bits and signs follow random patterns."""

    def __init__(self, task: Task, rng: Generator, count: int) -> None:
        self.task, self.rng, self.shape = task, rng, (count, task.k)
        assert task.unit is not None
        self.unit, self.element, self.accumulator = task.unit, task.operand, task.source
        kept, own = self.unit.fraction_bits, self.accumulator.mantissa_bits
        near = {0, 1, *(bits + step for bits in (kept, self.unit.result_bits, own) for step in range(-2, 4))}
        self.distances = np.array(sorted(distance for distance in near if distance >= 0))
        self.scales = None if isinstance(task.format, ArrayFormat) else _scale_range(task)
        lowest, highest = 2 * (self.element.emin - self.element.mantissa_bits), 2 * self.element.emax
        if self.scales is not None:
            lowest, highest = lowest + 2 * self.scales.lowest, highest + 2 * self.scales.highest
        self.top = self._tops(lowest, highest)
        self.first = rng.integers(0, task.k - 1, (count, 1))
        self.pattern = rng.integers(0, _PATTERNS - 1, (count, 1))

    def _tops(self, lowest: int, highest: int) -> Array:
        """Return the exponent of the largest product of each row.

        About one row in eight has a result near the accumulator's smallest number, and another one
        in eight has a result near the accumulator's largest number.
        """
        e, rng, size = self.accumulator, self.rng, (self.shape[0], 1)
        room = self.unit.fraction_bits + 4
        ordinary = rng.integers(max(-20, lowest + room), 20, size) if lowest + room < 20 else np.full(size, highest)
        small = rng.integers(e.emin - e.mantissa_bits - 2, e.emin + 3, size)
        large = rng.integers(e.emax - 4, e.emax + 1, size)
        kind = rng.integers(0, 7, size)
        return np.asarray(np.clip(np.select([kind == 0, kind == 1], [small, large], ordinary), lowest, highest))

    def operands(self) -> Columns:
        """Return the codes of both operands and, if the unit takes scales, the scales."""
        rng, (count, k) = self.rng, self.shape
        place = np.arange(k)
        distance = rng.choice(self.distances, (count, 1)) + rng.integers(-1, 1, self.shape)
        distance = np.where(rng.chance(0.2, self.shape), rng.choice(self.distances, self.shape), distance)
        distance = np.where(place == self.first, 0, np.maximum(distance, 0))
        # A random fraction of the products is nonzero. In half of the rows, nearly all nonzero
        # products belong to one fused sum.
        share = rng.choice(np.array([1, 3, 30, 100]), (count, 1))
        there = rng.integers(1, 100, self.shape) <= share * max(1, 32 // k)
        near = place // self.unit.terms == self.first // self.unit.terms
        there &= near | rng.chance(0.5, (count, 1))
        second = rng.integers(0, k - 1, (count, 1))
        cancels = rng.chance(0.25, (count, 1)) & (second != self.first)
        there |= (place == self.first) | (place == second)
        distance = np.where((place == second) & cancels, 0, distance)
        target = self.top - distance
        columns, left = self._scaled(target, there)
        for side, codes in zip(("a", "b"), self._elements(left, there), strict=True):
            columns[side] = codes
        self._sign(columns, second, cancels)
        return columns

    def _scaled(self, target: Array, there: Array) -> tuple[Columns, Array]:
        """Return the scales of the blocks, and exponents for the products of elements.

        After scaling, the products have the exponents `target`.
        """
        if self.scales is None:
            return {}, target
        task, rng, count = self.task, self.rng, self.shape[0]
        blocks = np.where(there, target, -(1 << 20)).reshape(count, -1, task.block)
        largest = np.where(there.reshape(blocks.shape).any(axis=2), blocks.max(axis=2), self.top)
        total = largest - 2 * self.element.emax + rng.integers(0, 3, largest.shape)
        a = np.clip(total // 2 + rng.integers(-3, 3, total.shape), self.scales.lowest, self.scales.highest)
        b = np.clip(total - a, self.scales.lowest, self.scales.highest)
        columns = {f"{side}_scale": self._scale_codes(e) for side, e in (("a", a), ("b", b))}
        return columns, target - np.repeat(a + b, task.block, axis=1)

    def _scale_codes(self, exponents: Array) -> Array:
        number = self.task.format.scale.number
        if number is None:
            return (exponents + self.task.format.scale.bias).astype(np.uint8)
        codes = _codes(number, exponents, self._mantissas(number, exponents.shape))
        return codes.astype(code_dtype(self.task.scale_bits))

    def _elements(self, target: Array, there: Array) -> tuple[Array, Array]:
        """Return codes whose products have the exponents of `target`, or exponents one higher."""
        e, rng = self.element, self.rng
        low, high = np.maximum(e.emin, target - e.emax), np.minimum(e.emax, target - e.emin)
        spread = np.maximum(high - low + 1, 1)
        a = np.where(high < low, target // 2, low + rng.integers(0, (1 << 16) - 1, target.shape) % spread)
        return tuple(  # type: ignore[return-value]
            self._stored(np.where(there, _codes(e, exponent, self._mantissas(e, target.shape)), 0))
            for exponent in (a, target - a)
        )

    def _mantissas(self, fmt: ElementFormat, shape: tuple[int, ...]) -> Array:
        ones = (1 << fmt.mantissa_bits) - 1
        random = self.rng.integers(0, ones, shape)
        pattern = np.broadcast_to(self.pattern, shape)
        return np.select([pattern == 0, pattern == 1, pattern == 2], [0, ones, min(1, ones)], random)

    def _stored(self, codes: Array) -> Array:
        """Return codes in the form that arrays store: TF32 as float32 with random lower bits."""
        bits = self.task.element.bits
        low = bits - self.element.bits
        below = self.rng.integers(0, (1 << low) - 1, codes.shape) if low else np.zeros_like(codes)
        return (codes << low | np.where(codes == 0, 0, below)).astype(code_dtype(bits))

    def _sign(self, columns: Columns, second: Array, cancels: Array) -> None:
        """Set the signs of products: all positive, random, or only the largest product negative.

        In rows where `cancels` is True, the product at index `second` becomes minus the largest
        product.
        """
        rng, (count, k) = self.rng, self.shape
        sign = columns["a"].dtype.type(1 << (self.task.element.bits - 1))
        place = np.arange(k)
        kind = rng.integers(0, 3, (count, 1))
        negative = np.select([kind == 0, kind == 1], [False, place == self.first], rng.chance(0.5, self.shape))
        rows = np.flatnonzero(cancels)
        for name in ("a", "b"):
            columns[name][rows, second[rows, 0]] = columns[name][rows, self.first[rows, 0]]
        negative[rows, second[rows, 0]] = ~negative[rows, self.first[rows, 0]]
        columns["a"] = np.where(negative, columns["a"] | sign, columns["a"])

    def addends(self, columns: Columns) -> Array:
        """Return an addend for each row.

        An addend is 0, minus the row's sum, or a number whose exponent is chosen relative to that
        of the largest product.
        """
        e, rng, size = self.accumulator, self.rng, (self.shape[0], 1)
        step = rng.choice(np.concatenate([self.distances, -self.distances]), size)
        codes = _codes(e, self.top + step, self._mantissas(e, size))
        codes = np.where(rng.chance(0.3, size), _codes(e, self.top + step, rng.integers(0, (1 << 30) - 1, size)), codes)
        codes |= rng.integers(0, 1, size) << (e.bits - 1)
        opposite = self.task.operation.expected(self.task, {**columns, "c": np.zeros(size, code_dtype(e.bits))})[
            "value"
        ]
        finite = (opposite & opposite.dtype.type((1 << (e.bits - 1)) - 1)) <= e.max_code
        opposite = np.where(finite, opposite ^ opposite.dtype.type(1 << (e.bits - 1)), 0)
        kind = rng.integers(0, 7, size)
        return np.select([kind < 2, kind == 2], [0, opposite], codes).astype(code_dtype(e.bits))


def _codes(fmt: ElementFormat, exponent: Array, mantissa: Array) -> Array:
    """Return codes from mantissas and exponents; exponents are clipped to the format's range."""
    m = fmt.mantissa_bits
    e = np.clip(exponent, fmt.emin - m, fmt.emax)
    mantissa = mantissa & ((1 << m) - 1)
    below = np.maximum(fmt.emin - e, 0)
    codes = np.where(below > 0, ((1 << m) | mantissa) >> below, (np.maximum(e + fmt.bias, 1) << m) | mantissa)
    return np.asarray(np.minimum(codes, fmt.max_code))


def _scale_range(task: Task) -> _Scales:
    """Return the range from which the exponents of a case's scales are drawn."""
    number = task.format.scale.number
    if number is None:
        return _Scales(-127, 127)
    return _Scales(max(number.emin - number.mantissa_bits, -40), min(number.emax, 40))


def _special_products(task: Task) -> Columns:
    """Return rows of special operands (NaN, infinities, zeros, extremes) and special addends."""
    e, c, k = task.operand, task.source, task.k
    one, shift = int(_codes(e, np.array(0), np.array(0))), task.element.bits - e.bits
    sign = 1 << (e.bits - 1)
    special = [0, 1, e.max_code]
    special += [] if e.infinity_code is None else [e.infinity_code]
    special += [] if e.nan_code is None else [e.nan_code]
    pairs = [(x | s, y) for x in special for s in (0, sign) for y in (0, one, e.max_code, one | sign)]
    least, unity = 1 << c.mantissa_bits, c.bias << c.mantissa_bits
    addends = [0, unity, 1, least // 2, least - 1, least, c.max_code, c.max_code + 1, c.nan_code or 0]
    # MMA-Sim, a public model of matrix units, assigns the exponent -126 to zero operands. In such a
    # model, the addend below is aligned to the product 0 * (largest number), and loses its last
    # bits.
    kept = task.unit.fraction_bits if task.unit else 0
    addends.append(int(_codes(c, np.array(-126 + e.emax - kept + 4), np.array(least - 1))))
    addends += [code | 1 << (c.bits - 1) for code in addends]
    rows: dict[str, list[Any]] = {"a": [], "b": [], "c": []}

    def add(places: dict[int, tuple[int, int]], addend: int) -> None:
        for i, side in enumerate(("a", "b")):
            row = np.zeros(k, np.int64)
            for at, codes in places.items():
                row[at] = codes[i] << shift
            rows[side].append(row)
        rows["c"].append([addend])

    for pair in pairs:
        for addend in addends:
            add({0: pair}, addend)
        add(dict.fromkeys(range(k), pair), 0)
    if e.infinity_code is not None and k > 1:
        for last in sorted({1, k - 1}):  # opposite infinities in one fused sum, or in two fused sums
            add({0: (e.infinity_code, one), last: (e.infinity_code | sign, one)}, 0)
    bits = {"a": task.element.bits, "b": task.element.bits, "c": c.bits}
    columns = {name: np.array(rows[name]).astype(code_dtype(bits[name])) for name in rows}
    return columns if isinstance(task.format, ArrayFormat) else _with_scales(task, columns)


def _with_scales(task: Task, columns: Columns) -> Columns:
    """Return all rows at scale 1, and some rows with each special scale in the first block."""
    scale, number = task.format.scale, task.format.scale.number
    one = scale.bias if number is None else number.bias << number.mantissa_bits
    ends = [0, 1, scale.max_code, scale.nan_code]
    if number is not None:
        ends[2:] = number.max_code, (1 << task.scale_bits) - 1
    count, blocks = len(columns["c"]), task.k // task.block
    some = np.arange(0, count, 7)
    rows = np.concatenate([np.arange(count), *([some] * (2 * len(ends)))])
    made = {name: column[rows] for name, column in columns.items()}
    for i, side in enumerate(("a", "b")):
        scales = np.full((len(rows), blocks), one, code_dtype(task.scale_bits))
        for j, code in enumerate(ends):
            start = count + (2 * j + i) * len(some)
            scales[start : start + len(some), 0] = code
        made[f"{side}_scale"] = scales
    return made

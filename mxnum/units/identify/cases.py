"""Make cases to which different rules of addition give different answers.

An example is a case with two powers of two that cancel.
"""

from __future__ import annotations

import numpy as np

from mxnum.formats import SCALES, ElementFormat
from mxnum.units.identify.family import Array, Cases, Problem, join

#: The kinds of cases, with the share of each kind among the first cases.
KINDS = {
    "structure": 0.22, "sparse": 0.2, "pair": 0.09, "residue": 0.09, "tie": 0.1, "crowded": 0.1, "subnormal": 0.1,
    "special": 0.1,
}  # fmt: skip
#: The largest distance between two exponents in a case of `Maker.structure`. A sum with more than
#: `SPAN` fraction bits adds the terms of a structure case exactly.
SPAN = 38


def _power(fmt: ElementFormat, exponent: int) -> int:
    """Return the code of 2**exponent, with the exponent clipped to the range of the format."""
    emin, m = fmt.emin, fmt.mantissa_bits
    exponent = min(max(exponent, emin - m), fmt.emax)
    return 1 << (exponent - emin + m) if exponent < emin else (exponent + fmt.bias) << m


class Maker:
    """Makes cases of each kind from a seed."""

    def __init__(self, problem: Problem, seed: int | tuple[int, ...], depths: tuple[int, ...] = ()) -> None:
        self.problem, self.random = problem, np.random.default_rng(seed)
        #: The numbers of fraction bits that the remaining rules keep, each number once. Small terms
        #: often lie about as many bits below the largest term.
        self.depths = depths
        a, b = problem.formats
        c = problem.result
        #: The range of the exponents of products in ordinary cases. For wide formats, the range is
        #: narrowed, so that zeros and the limits of the accumulator do not affect the result.
        self.high = min(a.emax, 10) + min(b.emax, 10)
        self.low = max(max(a.emin, -14) + max(b.emin, -14), self.high - SPAN)
        self.c_low, self.c_high = max(c.emin, -50), min(c.emax - 1, 50)
        #: The exponents of the least and the largest product in cases of two or three terms.
        self.least, self.highest = self.low, min(self.high, c.emax)
        if problem.accumulator == "float16":
            self.low, self.high = max(self.low, -13), min(self.high, 11)

    def blank(self) -> tuple[Array, Array, int]:
        """Return the codes of a case whose numbers are all zero."""
        k, blocks = self.problem.k, self.problem.blocks
        a = np.array([0] * k + [one_of(self.problem)] * blocks, np.int64)
        return a, a.copy(), 0

    def _scale(self, codes: Array) -> None:
        """Write scales: all equal or far apart, sometimes with fraction bits, a zero or a NaN."""
        r, k, one = self.random, self.problem.k, one_of(self.problem)
        number, blocks = SCALES[self.problem.scale].number, self.problem.blocks
        m = number.mantissa_bits if number else 0
        reach = min(one >> m, 20) - 1
        exponents = r.integers(-reach, reach + 1, blocks if r.random() < 0.7 else 1) // int(r.choice([1, 1, 4]))
        codes[k:] = one + (exponents << m)
        if m and r.random() < 0.6:
            codes[k:] += r.integers(0, 1 << m, blocks)
        if r.random() < 0.05:
            codes[k + int(r.integers(blocks))] = int(r.choice([0, 1, SCALES[self.problem.scale].nan_code]))

    def _put(self, a: Array, b: Array, index: int, exponent: int, negative: bool, mantissa: bool = False) -> None:
        """Write the operands of a product near 2**exponent; `mantissa` adds random fractions."""
        x, y = self.problem.formats
        first = min(max(exponent // 2, x.emin, exponent - y.emax), max(exponent - y.emin, x.emin))
        codes = [_power(x, first), _power(y, exponent - first)]
        for i, fmt in enumerate((x, y)):
            if mantissa and fmt.mantissa_bits and codes[i] >> fmt.mantissa_bits:
                code = codes[i] | int(self.random.integers(0, 1 << fmt.mantissa_bits))
                codes[i] = min(code, fmt.max_code)
        a[index] = self._signed(codes[0], x, negative)
        b[index] = codes[1]

    @staticmethod
    def _signed(code: int, fmt: ElementFormat, negative: bool) -> int:
        return code | 1 << (fmt.bits - 1) if negative else code

    def _addend(self, exponent: int, negative: bool, mantissa: bool = False) -> int:
        fmt = self.problem.result
        fraction = int(self.random.integers(0, 1 << fmt.mantissa_bits)) if mantissa else 0
        return self._signed(_power(fmt, min(max(int(exponent), fmt.emin), fmt.emax)) | fraction, fmt, negative)

    def _some(self, count: int) -> list[int]:
        """Return at most `count` different indices of products, often neighbours."""
        k, r = self.problem.k, self.random
        start = int(r.integers(k))
        if r.random() < 0.5:
            near = [start ^ (1 << bit) for bit in r.integers(max(k.bit_length() - 1, 1), size=4 * count).tolist()]
            found = list(dict.fromkeys([start, *(i for i in near if i < k)]))[:count]
        else:
            found = [start]
        rest = [i for i in r.permutation(k).tolist() if i not in found]
        return (found + rest)[: min(count, k)]

    def _depth(self) -> int:
        """Return a random number of bits by which a term lies below the largest term."""
        return self._far(0, 40) if self.random.random() < 0.7 else self._far(8, 28)

    def _far(self, low: int, high: int) -> int:
        """Return a random distance in bits, between `low` and `high` or near one of `depths`."""
        if self.depths and self.random.random() < 0.6:
            return max(int(self.random.choice(self.depths)) + int(self.random.integers(-2, 4)), low)
        return int(self.random.integers(low, high))

    def structure(self) -> tuple[Array, Array, int]:
        """Make two large terms that cancel, and a small term that survives only if added last."""
        a, b, c = self.blank()
        r, where = self.random, self._some(3)
        high, low = self.high, self.low
        style = int(r.integers(3)) if len(where) >= 3 else 1
        if len(where) < 2:
            style = 2
        if style == 0:
            self._put(a, b, where[0], high, False)
            self._put(a, b, where[1], high, True)
            self._put(a, b, where[2], low, False)
        elif style == 1:
            c = self._addend(high, True)
            self._put(a, b, where[0], high, False)
            self._put(a, b, where[1], low, False)
        else:
            c = self._addend(low, False)
            self._put(a, b, where[0], high, False)
            if len(where) > 1:
                self._put(a, b, where[1], high, True)
        return a, b, c

    def sparse(self) -> tuple[Array, Array, int]:
        """Make one large term, or a pair that cancels, and small terms with random fractions."""
        a, b, c = self.blank()
        r = self.random
        where = self._some(int(r.integers(2, 5)))
        top = int(r.integers(max(self.low, self.high - 12), self.high + 1))
        negative, pair, style = bool(r.integers(2)), r.random() < 0.6, int(r.integers(3))
        if style == 0:  # the large term is the addend
            top = int(np.clip(top + r.integers(0, 24), self.c_low, self.c_high)) if not pair else top
            c = self._addend(top, negative, not pair and bool(r.integers(2)))
            if pair:
                self._put(a, b, where[0], top, not negative)
        else:
            self._put(a, b, where[0], top, negative, not pair and bool(r.integers(2)))
            if pair and len(where) > 1:
                self._put(a, b, where[1], top, not negative)
            if style == 2:
                c = self._addend(max(top - self._depth(), self.c_low), bool(r.integers(2)), bool(r.integers(2)))
        for index in where[1 + (pair and style != 0) :]:
            self._put(a, b, index, max(top - self._depth(), self.low), bool(r.integers(2)), bool(r.integers(4)))
        return a, b, c

    def pair(self) -> tuple[Array, Array, int]:
        """Make two products whose exponents lie far apart, often at neighbouring indices."""
        a, b, c = self.blank()
        r = self.random
        top = self.highest if r.random() < 0.3 else self.high
        for index, depth in zip(self._some(2), (int(r.integers(4)), self._far(18, SPAN + 3)), strict=False):
            self._put(a, b, index, max(top - depth, self.least), bool(r.integers(2)), bool(r.integers(2)))
        if r.random() < 0.3:
            c = self._addend(max(self.high - self._far(18, SPAN + 3), self.c_low), bool(r.integers(2)))
        return a, b, c

    def residue(self) -> tuple[Array, Array, int]:
        """Make two terms that cancel or almost cancel, and terms that are far larger or smaller."""
        a, b, c = self.blank()
        r, fmt, where, style = self.random, self.problem.result, self._some(3), int(self.random.integers(3))
        level = self.least if r.random() < 0.6 else int(r.integers(self.least, self.high + 1))
        negative, is_above = bool(r.integers(2)), bool(r.integers(2))
        self._put(a, b, where[0], level, negative, style > 0)
        rest = where[2:]
        if style == 0:  # The addend is the next number below the power of two, with the opposite sign.
            c, rest = self._addend(level - 1, not negative) | ((1 << fmt.mantissa_bits) - 1), where[1:]
        elif len(where) > 1:  # two equal products, or two products with random fractions
            self._put(a, b, where[1], level, not negative, True)
            if style == 1:
                a[where[1]], b[where[1]] = a[where[0]] ^ 1 << (self.problem.formats[0].bits - 1), b[where[0]]
        for index in rest[:1]:
            far = level + (SPAN if r.random() < 0.4 else self._far(8, SPAN + 3)) * (1 if is_above else -1)
            far = int(np.clip(far, self.least, self.highest))
            self._put(a, b, index, far, bool(r.integers(2)), bool(r.integers(2)))
        if c == 0 and r.random() < 0.5:
            c = self._addend(level - self._far(8, SPAN + 3), bool(r.integers(2)), True)
        return a, b, c

    def tie(self) -> tuple[Array, Array, int]:
        """Make a sum halfway between two results, and a much smaller product to break the tie."""
        a, b, c = self.blank()
        r, (x, y), where = self.random, self.problem.formats, self._some(3)
        last, top, negative = self.problem.sum.mantissa_bits + 1, self.high - int(r.integers(3)), bool(r.integers(2))
        most, least = min(x.mantissa_bits, last - 1), max(last - y.mantissa_bits, 1)
        if most >= least and r.random() < 0.6:
            in_a = int(r.integers(least, most + 1))
            # The product becomes +-2**top * (1 + 2**-in_a) * (1 + 2**-(last - in_a)).
            self._put(a, b, where[0], top, negative)
            a[where[0]] |= 1 << (x.mantissa_bits - in_a)
            b[where[0]] |= 1 << (y.mantissa_bits - last + in_a)
        else:
            if r.random() < 0.5:
                c = self._addend(top, negative)
            else:
                self._put(a, b, where[-1], top, negative)
            self._put(a, b, where[0], max(top - last, self.least), bool(r.integers(2)))
            if r.random() < 0.4:  # A slightly smaller product breaks the tie, even in a sum of only two terms.
                self._lower(a, b, where[0])
        if len(where) > 1:
            deep = top - self._far(last + 1, SPAN + 3)
            self._put(a, b, where[1], max(deep, self.least), bool(r.integers(2)), bool(r.integers(2)))
        return a, b, c

    def _lower(self, a: Array, b: Array, index: int) -> None:
        """Multiply a product of two powers of two by (1 + 2**-t) (1 - 2**-t), for a random t."""
        x, y = self.problem.formats
        most = min(x.mantissa_bits, y.mantissa_bits + 1)
        is_normal = a[index] & ((1 << (x.bits - 1)) - 1) >= 1 << x.mantissa_bits and b[index] >= 2 << y.mantissa_bits
        if most and is_normal:
            t = int(self.random.integers(1, most + 1))
            a[index] |= 1 << (x.mantissa_bits - t)
            b[index] -= 1 << (y.mantissa_bits + 1 - t)

    def crowded(self) -> tuple[Array, Array, int]:
        """Make all products nonzero, in half of the cases with similar sizes and equal signs."""
        a, b, c = self.blank()
        r, full = self.random, self.random.random() < 0.5
        base = int(r.integers(self.low, self.high - 1)) if self.high - 1 > self.low else self.low
        spread, negative = int(r.integers(1, 20)), bool(r.integers(2))
        for index in range(self.problem.k):
            down = 0 if full else int(r.integers(0, spread))
            sign = negative if full else bool(r.integers(2))
            self._put(a, b, index, max(base - down, self.low), sign, True)
            if full and r.random() < 0.8:
                for codes, fmt in zip((a, b), self.problem.formats, strict=True):
                    if (codes[index] >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1):
                        codes[index] |= min((1 << fmt.mantissa_bits) - 1, fmt.max_code & ((1 << fmt.mantissa_bits) - 1))
        if r.random() < 0.5:
            c = self._addend(base + int(r.integers(-12, 6)), bool(r.integers(2)), True)
        return a, b, c

    def subnormal(self) -> tuple[Array, Array, int]:
        """Make a subnormal operand, addend or result, or a zero times a large number."""
        a, b, c = self.blank()
        r, fmt = self.random, self.problem.result
        where, style = self._some(2), int(r.integers(4))
        x, y = self.problem.formats
        sign = int(r.integers(2))
        if style == 0 and x.mantissa_bits:
            a[where[0]] = int(r.integers(1, 1 << x.mantissa_bits)) | sign << (x.bits - 1)
            b[where[0]] = _power(y, min(int(r.integers(-1, 4)), y.emax))
        elif style == 1 and y.mantissa_bits:
            b[where[0]] = int(r.integers(1, 1 << y.mantissa_bits)) | sign << (y.bits - 1)
            a[where[0]] = _power(x, min(int(r.integers(-1, 4)), x.emax))
        else:
            c = int(r.integers(1, 1 << int(r.integers(1, fmt.mantissa_bits + 3)))) | sign << (fmt.bits - 1)
            if style == 2:
                a[where[0]], b[where[0]] = (0, y.max_code) if r.integers(2) else (x.max_code, 0)
                if r.random() < 0.5:  # Alignment to the exponent of the zero product may cut bits of the addend.
                    c = self._addend(fmt.emin + int(r.integers(0, 24, 2).min()), bool(sign), True)
            else:  # a product near the least normal result, or the least product
                least = max(fmt.emin + int(r.integers(-8, 3)), x.emin + y.emin)
                self._put(a, b, where[0], least, bool(r.integers(2)), bool(r.integers(2)))
        return a, b, c

    def special(self) -> tuple[Array, Array, int]:
        """Make NaN, infinities, signed zeros, or a result beyond the largest number."""
        a, b, c = self.blank()
        r, fmt = self.random, self.problem.result
        where, style = self._some(3), int(r.integers(6))
        sign = int(r.integers(2)) << (fmt.bits - 1)
        if style <= 1:  # NaN and infinity in the operands
            for codes, one, other, index in zip((a, b), self.problem.formats, (b, a), where, strict=False):
                if one.specials == "none" or r.random() < 0.3:
                    continue
                infinity = one.infinity_code
                code = one.nan_code if infinity is None or r.random() < 0.2 else infinity
                codes[index] = int(code or 0) | int(r.integers(2)) << (one.bits - 1)
                if r.random() < 0.8:
                    partner = self.problem.formats[1 if codes is a else 0]
                    other[index] = _power(partner, 0)
        if style in (1, 2):
            c = int(r.choice([fmt.max_code + 1, fmt.max_code + 1, int(fmt.nan_code or 0)])) | sign
        elif style == 3:  # zeros
            c = sign
            for codes, one in zip((a, b), self.problem.formats, strict=True):
                codes[: self.problem.k] = (np.int64(1) << (one.bits - 1)) * int(r.integers(2))
                if r.random() < 0.3:
                    codes[where[0]] ^= 1 << (one.bits - 1)
        elif style >= 4:  # overflow
            c = fmt.max_code - int(r.integers(0, 3)) * (style == 5) | sign
            for index in where:
                top = sum(one.emax for one in self.problem.formats)
                top = min(top, fmt.emax + 1) - int(r.integers(0, 14))
                self._put(a, b, index, top, bool(sign) ^ (r.random() < 0.2))
        return a, b, c

    def make(self, count: int, kind: str | None = None) -> Cases:
        """Return `count` cases of one kind, or of random kinds if `kind` is None."""
        some = [kind] * count if kind else self.random.choice(list(KINDS), size=count, p=list(KINDS.values()))
        rows = [getattr(self, str(one))() for one in some]
        if self.problem.blocks:
            for name, (a, b, _) in zip(some, rows, strict=True):
                if name != "structure" and self.random.random() < 0.8:
                    self._scale(a)
                    self._scale(b)
        return Cases(np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows]), np.array([r[2] for r in rows]))


def one_of(problem: Problem) -> int:
    """Return the code of the scale 1, or 0 if the problem has no scales."""
    scale = SCALES[problem.scale] if problem.scale else None
    return 0 if scale is None else scale.bias << (scale.number.mantissa_bits if scale.number else 0)


def first_cases(problem: Problem, count: int = 300, seed: int = 0) -> Cases:
    """Return the cases of the first round, with each kind's share from `KINDS`.

    In the last case all products are zero and the addend is 1. Its answer shows whether the unit
    ignores the addend.
    """
    maker = Maker(problem, seed)
    cases = [maker.make(max(round(count * share), 1), kind) for kind, share in KINDS.items()]
    cases[-1].a[-1], cases[-1].b[-1], cases[-1].c[-1] = maker.blank()[0], maker.blank()[1], _power(problem.result, 0)
    return join(*cases)


def mixed(problem: Problem, cases: Cases, count: int, random: np.random.Generator) -> Cases:
    """Return `count` cases, each mixed from two, with some indices, exponents and signs changed."""
    k, n = problem.k, len(cases.c)
    first, second = random.integers(0, n, (2, count))
    share = random.choice([0.5, 1.0, 1.0], (count, 1))
    rows = np.where(random.random((count, k)) < share, first[:, None], second[:, None])
    index = np.tile(np.arange(k), (count, 1))
    moved = random.random(count) < 0.5
    index[moved] = random.permuted(index[moved], axis=1)
    shifts = _shifts(problem, cases, rows, index, random)
    operands = list[Array]()
    for codes, fmt, shift in zip(cases[:2], problem.formats, shifts, strict=False):
        new = _changed(codes[rows, index], fmt, shift[:, None], random)
        operands.append(np.concatenate([new, codes[first, k:]], axis=1))
    c = np.where(random.random(count) < 0.8, cases.c[first], cases.c[second])
    shift = shifts.sum(axis=0) + random.choice([0, 0, -1, 1, 2], count)
    a, b = operands
    return Cases(a, b, _changed(c[:, None], problem.result, shift[:, None], random)[:, 0])


def _shifts(problem: Problem, cases: Cases, rows: Array, index: Array, random: np.random.Generator) -> Array:
    """Return the numbers to add to the exponents of a and of b in each case.

    Most cases keep their exponents or get a small random shift. In the other cases, the shift
    brings the result near the least or the largest number.
    """
    count, fmt = len(rows), problem.result
    a, b = (decode(codes[rows, index], one) for codes, one in zip(cases[:2], problem.formats, strict=False))
    largest = np.where(a[0] * b[0] != 0, a[1] + b[1], -1000).max(axis=1)
    low, high = fmt.emin - largest + random.integers(-28, 5, count), fmt.emax - largest - random.integers(-1, 6, count)
    style = random.integers(0, 6, count)
    shift = np.select([style < 2, style < 4, style == 4], [0, random.integers(-12, 13, count), low], high)
    first = shift // 2 + random.integers(-2, 3, count) * (style >= 2)
    return np.stack([first, shift - first])


def _changed(codes: Array, fmt: ElementFormat, shift: Array, random: np.random.Generator) -> Array:
    """Return codes with shifted exponents, some also with other fractions and signs."""
    m, sign = fmt.mantissa_bits, 1 << (fmt.bits - 1)
    magnitude, count = codes & (sign - 1), len(codes)
    field = magnitude >> m
    finite = (magnitude <= fmt.max_code) & (field > 0)
    moved = magnitude + (shift << m)
    magnitude = np.where(finite & (field + shift > 0) & (moved <= fmt.max_code), moved, magnitude)
    ones = (1 << m) - 1
    fraction = np.where(random.random((count, 1)) < 0.3, ones, random.integers(0, 1 << m, codes.shape))
    refilled = (magnitude | ones) - ones + fraction
    some = random.random(codes.shape) < random.choice([0.0, 0.0, 0.3, 1.0], (count, 1))
    magnitude = np.where(some & finite & (refilled <= fmt.max_code), refilled, magnitude)
    flipped = random.random(codes.shape) < random.choice([0.0, 0.2], (count, 1))
    same = random.random((count, 1)) < 0.2
    return magnitude | np.where(same, codes[:, :1] & sign, (codes & sign) ^ np.where(flipped, sign, 0))


def decode(codes: Array, fmt: ElementFormat) -> tuple[Array, Array, Array]:
    """Return the signed significands and the exponents of codes, and a mask of special values."""
    m, sign = fmt.mantissa_bits, 1 << (fmt.bits - 1)
    magnitude = codes & (sign - 1)
    field = magnitude >> m
    sig = magnitude & ((1 << m) - 1) | np.where(field > 0, 1 << m, 0)
    special = magnitude > fmt.max_code
    sig = np.where(special, 0, np.where(codes & sign, -sig, sig))
    return sig, np.maximum(field, 1) - fmt.bias, special


def _terms(problem: Problem, cases: Cases) -> tuple[Array, Array, Array, Array]:
    """Return the significands, exponents and fraction bits of terms, and a mask of unusual cases.

    The addend is the last term. A case is unusual if it contains a NaN, an infinity, a subnormal
    number or a scale of zero. A case is also unusual if a large number is multiplied by zero,
    because the exponent of such a product may affect alignment.
    """
    k, odd = problem.k, np.zeros(len(cases.c), bool)
    sig, exponent, point = np.ones((len(cases.c), k), np.int64), np.zeros((len(cases.c), k), np.int64), 0
    largest = exponent
    for codes, fmt in zip(cases[:2], problem.formats, strict=False):
        parts = [(decode(codes[:, :k], fmt), fmt.mantissa_bits)]
        if problem.blocks:
            parts.append(_scales(problem, codes[:, k:]))
        for (s, e, special), m in parts:
            odd |= ((s != 0) & (np.abs(s) < 1 << m) | special).any(axis=1)
            sig, exponent, point = sig * s, exponent + e, point + m
            largest = np.maximum(largest, e)
    odd |= ((sig == 0) & (largest > 20)).any(axis=1)
    fmt = problem.result
    s, e, special = decode(cases.c[:, None], fmt)
    odd |= ((s != 0) & (np.abs(s) < 1 << fmt.mantissa_bits) | special).any(axis=1)
    points = np.array([point] * k + [fmt.mantissa_bits])
    return np.concatenate([sig, s], axis=1), np.concatenate([exponent, e], axis=1), points, odd


def _scales(problem: Problem, codes: Array) -> tuple[tuple[Array, Array, Array], int]:
    """Return one operand's scale for each product, decoded, and the number of its fraction bits.

    The scales are decoded as by `decode`, but the mask also marks scales of zero as special values.
    """
    scale, codes = SCALES[problem.scale], np.repeat(codes, problem.block, axis=1)
    if scale.number is None:
        return (np.ones_like(codes), codes - scale.bias, codes == scale.nan_code), 0
    sig, exponent, special = decode(codes, scale.number)
    return (sig, exponent, special | (sig == 0)), scale.number.mantissa_bits


def ordinary(problem: Problem, cases: Cases, answers: Array) -> tuple[Array, Array]:
    """Return two masks: of the ordinary cases, and of the ordinary cases without carry overflow.

    An ordinary case has no subnormal numbers, NaN or infinities. At least one of its terms is not
    tiny, and no sum of its terms is subnormal or overflows.

    In a case without carry overflow, no sum needs more than 3 integer bits. The function tests a
    sufficient condition: for each term's exponent e, the magnitudes of all terms with exponents up
    to e add to less than 6 * 2**e.
    """
    fmt = problem.result
    sig, exponent, points, odd = _terms(problem, cases)
    fine = ~odd
    magnitude = answers & ((1 << (fmt.bits - 1)) - 1)
    fine &= (magnitude <= fmt.max_code) & ((magnitude >> fmt.mantissa_bits != 0) | (answers == 0))
    exponent = np.where(sig != 0, exponent, -(10**4))
    # The lowest set bit of each term is worth at least the least normal number. So no sum of terms
    # is subnormal.
    last_bit = np.frexp((sig & -sig).astype(np.float64))[1] - 1 + exponent - points
    fine &= ((last_bit >= problem.sum.emin) | (sig == 0)).all(axis=1)
    order = np.argsort(exponent, axis=1)
    values = np.take_along_axis(np.abs(sig) * 0.5**points, order, 1)
    exponent = np.take_along_axis(exponent, order, 1)
    largest = exponent[:, -1]
    fine &= largest >= -60 if problem.accumulator == "float32" else largest >= -14
    power = 2.0 ** np.clip(exponent, -300, 300)
    total = np.cumsum(values * power, axis=1)
    fine &= total[:, -1] < 2.0**fmt.emax
    return fine, fine & (total < 6 * power).all(axis=1)


def structural(problem: Problem, cases: Cases) -> tuple[Array, int]:
    """Return the indices of the structure cases, and the code of their small term.

    In a structure case (`Maker.structure`), two large terms cancel. A unit that does not lose the
    small term returns the code of this term. The code is -1 if the term is not a normal number.
    """
    maker = Maker(problem, 0)
    sig, exponent, points, odd = _terms(problem, cases)
    terms = sig * 2.0 ** np.clip(exponent - points, -900, 900)
    found = ((terms != 0).sum(axis=1) == 3) & ~odd
    for value in (2.0**maker.high, -(2.0**maker.high), 2.0**maker.low):
        found &= (terms == value).sum(axis=1) == 1
    scales = (cases.a[:, problem.k :] == one_of(problem)) & (cases.b[:, problem.k :] == one_of(problem))
    found &= scales.all(axis=1)
    fmt = problem.result
    small = ((maker.low + fmt.bias) << fmt.mantissa_bits) if maker.low >= fmt.emin else -1
    return np.flatnonzero(found), small

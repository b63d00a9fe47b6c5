"""Cases that separate the rules of the family: powers of two that cancel, special values."""

from __future__ import annotations

import numpy as np

from mxnum.formats import ElementFormat
from mxnum.units.identify.family import Array, Cases, Problem, decode

#: The kinds of cases, with the share of each kind among the first cases.
KINDS = {
    "structure": 0.22, "sparse": 0.25, "pair": 0.1, "tie": 0.1, "crowded": 0.11, "subnormal": 0.11, "special": 0.11,
}  # fmt: skip
#: The largest distance of two exponents in a structure case. A sum with more fraction bits is
#: exact.
SPAN = 38


def _power(fmt: ElementFormat, exponent: int) -> int:
    """Return the code of 2**exponent; the exponent is clipped to those of the format."""
    exponent = min(max(exponent, fmt.emin - fmt.mantissa_bits), fmt.emax)
    if fmt.integer:
        return 1 << min(max(exponent, -fmt.mantissa_bits) + fmt.mantissa_bits, fmt.bits - 2)
    if exponent < fmt.emin:
        return 1 << (exponent - fmt.emin + fmt.mantissa_bits)
    return (exponent + fmt.bias) << fmt.mantissa_bits


def _least(fmt: ElementFormat) -> int:
    """Return the exponent of the least power of two that is a normal number, or an integer."""
    return -fmt.mantissa_bits if fmt.integer else fmt.emin


class Maker:
    """Makes cases of each kind from a seed."""

    def __init__(self, problem: Problem, seed: int | tuple[int, ...]) -> None:
        self.problem, self.random = problem, np.random.default_rng(seed)
        a, b = problem.formats
        c = problem.result
        #: The exponents of products that are used in ordinary cases. Wide formats stay where
        #: neither zeros nor the ends of the accumulator take part.
        self.high = min(a.emax, 10) + min(b.emax, 10)
        self.low = max(max(_least(a), -14) + max(_least(b), -14), self.high - SPAN)
        self.c_low, self.c_high = max(c.emin, -50), min(c.emax - 1, 50)
        #: The exponent of the least product in an ordinary case.
        self.least = self.low
        if problem.accumulator == "float16":
            self.low, self.high = max(self.low, -13), min(self.high, 11)

    def blank(self) -> tuple[Array, Array, int]:
        """Return the codes of a case whose numbers are all zero."""
        k = self.problem.k
        return np.zeros(k, np.int64), np.zeros(k, np.int64), 0

    def _put(self, a: Array, b: Array, index: int, exponent: int, negative: bool, mantissa: bool = False) -> None:
        """Write a product of about 2**exponent; `mantissa` fills its fraction with random bits."""
        x, y = self.problem.formats
        first = min(max(exponent // 2, _least(x), exponent - y.emax), max(exponent - _least(y), _least(x)))
        codes = [_power(x, first), _power(y, exponent - first)]
        for i, fmt in enumerate((x, y)):
            if mantissa and fmt.mantissa_bits and not fmt.integer and codes[i] >> fmt.mantissa_bits:
                code = codes[i] | int(self.random.integers(0, 1 << fmt.mantissa_bits))
                codes[i] = min(code, fmt.max_code)
        a[index] = self._signed(codes[0], x, negative)
        b[index] = codes[1]

    @staticmethod
    def _signed(code: int, fmt: ElementFormat, negative: bool) -> int:
        if not negative:
            return code
        return ((1 << fmt.bits) - code) & ((1 << fmt.bits) - 1) if fmt.integer else code | 1 << (fmt.bits - 1)

    def _addend(self, exponent: int, negative: bool, mantissa: bool = False) -> int:
        fmt = self.problem.result
        fraction = int(self.random.integers(0, 1 << fmt.mantissa_bits)) if mantissa else 0
        return self._signed(_power(fmt, int(np.clip(exponent, fmt.emin, fmt.emax))) | fraction, fmt, negative)

    def _some(self, count: int) -> list[int]:
        """Return different indices, often neighbours."""
        k, r = self.problem.k, self.random
        start = int(r.integers(k))
        if r.random() < 0.5:
            near = [start ^ (1 << int(r.integers(max(k.bit_length() - 1, 1)))) for _ in range(4 * count)]
            found = list(dict.fromkeys([start, *(i for i in near if i < k)]))[:count]
        else:
            found = [start]
        rest = [int(i) for i in r.permutation(k) if i not in found]
        return (found + rest)[: min(count, k)]

    def _depth(self) -> int:
        """Return by how many bits a term lies below the largest one."""
        return int(self.random.integers(0, 40) if self.random.random() < 0.7 else self.random.integers(8, 28))

    def structure(self) -> tuple[Array, Array, int]:
        """Make two large terms that cancel, and a small one, which survives if added afterwards."""
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
        """Make a few terms with random fractions below one large term or a pair that cancels."""
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
        """Make two products far apart, often neighbours; perhaps with an addend far below."""
        a, b, c = self.blank()
        r = self.random
        for index, depth in zip(self._some(2), (int(r.integers(4)), int(r.integers(18, SPAN + 3))), strict=False):
            self._put(a, b, index, max(self.high - depth, self.least), bool(r.integers(2)), bool(r.integers(2)))
        if r.random() < 0.3:
            c = self._addend(max(self.high - int(r.integers(18, SPAN + 3)), self.c_low), bool(r.integers(2)))
        return a, b, c

    def tie(self) -> tuple[Array, Array, int]:
        """Make a sum halfway between two results, and a product far below that breaks the tie."""
        a, b, c = self.blank()
        r, (x, y), where = self.random, self.problem.formats, self._some(3)
        last, top, negative = self.problem.sum.mantissa_bits + 1, self.high - int(r.integers(3)), bool(r.integers(2))
        most, least = min(x.mantissa_bits, last - 1), max(last - y.mantissa_bits, 1)
        if most >= least and not x.integer and r.random() < 0.6:
            in_a = int(r.integers(least, most + 1))
            self._put(a, b, where[0], top, negative)  # (1 + 2**-in_a)(1 + 2**-(last - in_a))
            a[where[0]] |= 1 << (x.mantissa_bits - in_a)
            b[where[0]] |= 1 << (y.mantissa_bits - last + in_a)
        else:
            if r.random() < 0.5:
                c = self._addend(top, negative)
            else:
                self._put(a, b, where[-1], top, negative)
            self._put(a, b, where[0], max(top - last, self.least), bool(r.integers(2)))
        if len(where) > 1:
            deep = top - int(r.integers(last + 1, SPAN + 3))
            self._put(a, b, where[1], max(deep, self.least), bool(r.integers(2)), bool(r.integers(2)))
        return a, b, c

    def crowded(self) -> tuple[Array, Array, int]:
        """Make all products nonzero; in half of the cases with large terms of one sign."""
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
                    if not fmt.integer and (codes[index] >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1):
                        codes[index] |= min((1 << fmt.mantissa_bits) - 1, fmt.max_code & ((1 << fmt.mantissa_bits) - 1))
        if r.random() < 0.5:
            c = self._addend(base + int(r.integers(-12, 6)), bool(r.integers(2)), True)
        return a, b, c

    def subnormal(self) -> tuple[Array, Array, int]:
        """Make subnormal operands, addends and results, and zeros with large partners."""
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
            if style == 2 and self.problem.k > 0:
                a[where[0]], b[where[0]] = (0, y.max_code) if r.integers(2) else (x.max_code, 0)
                if x.integer or y.integer:
                    a[where[0]], b[where[0]] = 0, 1
            else:  # a product near the least numbers, or the least product
                least = max(fmt.emin + int(r.integers(-8, 3)), _least(x) + _least(y))
                self._put(a, b, where[0], least, bool(r.integers(2)), bool(r.integers(2)))
        return a, b, c

    def special(self) -> tuple[Array, Array, int]:
        """Make NaN, infinities, signed zeros, and results beyond the largest number."""
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
                if not one.integer:
                    codes[:] = (np.int64(1) << (one.bits - 1)) * int(r.integers(2))
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
        """Return cases of one kind, or of all kinds."""
        some = [kind] * count if kind else self.random.choice(list(KINDS), size=count, p=list(KINDS.values()))
        rows = [getattr(self, str(one))() for one in some]
        return Cases(np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows]), np.array([r[2] for r in rows]))


def first_cases(problem: Problem, count: int = 300, seed: int = 0) -> Cases:
    """Return the cases of the first round: shares of all kinds."""
    maker = Maker(problem, seed)
    parts = [maker.make(max(round(count * share), 1), kind) for kind, share in KINDS.items()]
    return Cases(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def ordinary(problem: Problem, cases: Cases, answers: Array) -> tuple[Array, Array]:
    """Return which cases have no special values, and which of these cannot exceed a carry limit.

    Ordinary cases have no subnormal numbers, NaN or infinities, and no terms near the least
    exponents or the largest number, nor can sums of their terms have. Those that cannot exceed a
    limit of 3 integer bits have, for each term, terms up to it that add to less than 6 times its
    power of two.
    """
    fmt = problem.result
    columns = zip((cases.a, cases.b, cases.c[:, None]), (*problem.formats, fmt), strict=True)
    parts = [decode(codes, one) for codes, one in columns]
    fine = np.ones(len(cases.c), bool)
    for x, one in zip(parts, (*problem.formats, fmt), strict=True):
        tiny = (x.sig != 0) & (np.abs(x.sig) < 1 << one.mantissa_bits) & (not one.integer)
        fine &= ~(tiny | (x.state != 0)).any(axis=1)
    magnitude = answers & ((1 << (fmt.bits - 1)) - 1)
    fine &= (magnitude <= fmt.max_code) & ((magnitude >> fmt.mantissa_bits != 0) | (answers == 0))
    a, b, c = parts
    sig = np.concatenate([a.sig * b.sig, c.sig], axis=1)
    exponent = np.where(sig != 0, np.concatenate([a.exponent + b.exponent, c.exponent], axis=1), -(10**4))
    point = [sum(one.mantissa_bits for one in problem.formats)] * problem.k + [fmt.mantissa_bits]
    # No sum of terms may be subnormal: the last bit of each term is at least the least normal
    # number.
    last_bit = np.frexp((sig & -sig).astype(np.float64))[1] - 1 + exponent - np.array(point)
    fine &= ((last_bit >= problem.sum.emin) | (sig == 0)).all(axis=1)
    order = np.argsort(exponent, axis=1)
    sig = np.take_along_axis(np.abs(sig) * 0.5 ** np.array(point), order, 1)
    exponent = np.take_along_axis(exponent, order, 1)
    largest = exponent[:, -1]
    fine &= largest >= -60 if problem.accumulator == "float32" else largest >= -14
    power = 2.0 ** np.clip(exponent, -300, 300)
    total = np.cumsum(sig * power, axis=1)
    fine &= total[:, -1] < 2.0**fmt.emax
    return fine, fine & (total < 6 * power).all(axis=1)


def structural(problem: Problem, cases: Cases) -> tuple[Array, int]:
    """Return which cases `Maker.structure` made, and the answer that shows the small term."""
    maker = Maker(problem, 0)
    x, y, c = (decode(codes, one) for codes, one in zip(cases, (*problem.formats, problem.result), strict=True))
    point = sum(one.mantissa_bits for one in problem.formats)
    products = x.sig * y.sig * 2.0 ** (x.exponent + y.exponent - point)
    terms = np.concatenate([products, (c.sig * 2.0 ** (c.exponent - problem.result.mantissa_bits))[:, None]], axis=1)
    high, low = 2.0**maker.high, 2.0**maker.low
    found = (terms != 0).sum(axis=1) == 3
    for value in (high, -high, low):
        found &= (terms == value).sum(axis=1) == 1
    fmt = problem.result
    small = ((maker.low + fmt.bias) << fmt.mantissa_bits) if maker.low >= fmt.emin else -1
    return np.flatnonzero(found), small

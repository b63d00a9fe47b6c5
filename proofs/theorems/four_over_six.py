"""Four over six: lemmas about the choice between two scales.

Each block gets the scale with the smaller sum of rounding errors. The loop first sums the errors in
float32. If the two sums differ by more than their error bound, the loop chooses the scale with the
smaller float32 sum. For undecided blocks, the loop sums the errors in pairs of float64 numbers. For
blocks that are still undecided, the loop's caller sums the errors in rational numbers. This module
proves that decisions by float32 and float64 sums are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import z3

from mxnum import formats
from mxnum.definition import float_scale, word
from mxnum.engine.loops import four_over_six
from mxnum.engine.machine import lanes, vectors
from mxnum.modes import FloatScaleRule
from proofs.machines.checks import outcome_of, patched
from proofs.machines.ratios import EXPONENTS, Ratios, covers
from proofs.machines.solve import follows, prove
from proofs.specs import tables
from proofs.specs.float_scales import MOST_DIGITS, SCALES, is_leading, over_tensor_scales, pack_nothing, unpacking
from proofs.theorem import Outcome, Theorem

AIM = (
    "Before it rounds to the scale that maps the largest magnitude to 4, the definition computes the right leading "
    "digits of (largest magnitude) / (4 * tensor scale), and a last digit that says whether a remainder is left."
)
NEAREST = (
    "To find the error of a number, the loop compares the number with the right value: `_nearest` returns the nearest "
    "product of the factor and an E2M1 value, ties to even."
)
EXACT = "The difference of two float64 numbers is exact if neither is more than twice the other."
TERMS = (
    "The distance of a number from its rounded value, computed in float32, has an error of at most 2**-20.82 times the "
    "block's largest number. The exact distance is never more than the largest number."
)
ADDED = (
    "The error bounds of single distances, and of their squares, add up to at most the bound that the loop uses for "
    "the difference of two sums. This holds in whatever order 16 terms are added in float32, if each term passes "
    "through four additions."
)
LOST = (
    "A sum of n errors, kept as a pair of float64 numbers, loses at most the share of itself that the loop assumes. If "
    "the difference of two sums is larger than the loop's bound on all losses, it has the sign of the exact difference."
)
E2M1 = formats.ELEMENTS["e2m1"]
RULE = FloatScaleRule.FOUR_OVER_SIX_SQUARED
#: An upper bound of the error of the distance between an element and its rounded value, if float32
#: arithmetic computes the distance. The bound is relative to the block's largest element.
KNOWN = Fraction(2.0**-20.82)
#: `HALF_UNIT` bounds the relative error of rounding to float32. `UNDERFLOW` bounds the absolute
#: error of products that are smaller than the smallest normal number.
HALF_UNIT = Fraction(1, 2**24 + 1)
UNDERFLOW = Fraction(1, 2**150)


def check_aim(source: Any, scale: Any, over: Any = float_scale) -> Outcome:
    """Prove the statement `AIM` for a source and a scale."""
    count, number = [0], tables.ELEMENTS["e2m1"].value(four_over_six.FOUR)

    def problems() -> Iterator[str]:
        if number != 4:
            yield f"the aim is {number}"
        with patched(over, make_unpack=unpacking(over.make_unpack, EXPONENTS, 0), make_pack=pack_nothing):
            find = over.make_float_scale(source, E2M1, scale, RULE, four_over_six.FOUR)
        every = []
        for ratios, got in over_tensor_scales(find, source):
            count[0] += 1
            every.append(ratios)
            if not is_leading(got, ratios, scale.number.mantissa_bits + 2, 2):
                yield f"ratios from {ratios.low} to {ratios.high} get the wrong digits {got[1]:#b}"
        if not covers(every, Fraction(1, 2), Fraction(2)):
            yield "the intervals of ratios do not cover every ratio once"

    return outcome_of(problems(), "ratios", lambda: f"{count[0]} intervals of ratios")


class _Size:
    """An unknown magnitude whose ratio to the factor is in the set `ratios`."""

    def __init__(self, ratios: Ratios) -> None:
        self.ratios = ratios

    def __lt__(self, place: Fraction) -> bool:
        return self.ratios.below(Fraction(place))

    def __le__(self, place: Fraction) -> bool:
        return self.ratios.below(Fraction(place), or_equal=True)


def check_nearest(nearest: Any = four_over_six._nearest) -> Outcome:
    """Prove the statement `NEAREST` for every magnitude.

    The proof checks each value and each threshold of E2M1, and each interval between them.
    """
    table = tables.ELEMENTS["e2m1"]
    values = [table.value(code) for code in range(table.last + 1)]
    ends = sorted({*values, *((a + b) / 2 for a, b in pairwise(values)), Fraction(1 << 20)})
    every = [(a, a) for a in ends] + list(pairwise(ends))

    def problems() -> Iterator[str]:
        for low, high in every:
            x = (low + high) / 2
            want = min(range(len(values)), key=lambda code: (abs(x - values[code]), code % 2))
            got = nearest(_Size(Ratios(low, high)), 1.0)
            if got != values[want]:
                yield f"x / factor from {low} to {high}: {got}"

    return outcome_of(problems(), "ratios", lambda: f"{len(every)} intervals of ratios")


# Differences


def _float64(name: str) -> tuple[z3.BitVecRef, z3.FPRef]:
    bits = z3.BitVec(name, 64)
    return bits, z3.fpBVToFP(bits, z3.Float64())


def _is_exact(operation: Any, a: z3.FPRef, b: z3.FPRef) -> z3.BoolRef:
    """Return the condition that an operation is exact, so rounding up and down are the same."""
    return z3.fpEQ(operation(z3.RTP(), a, b), operation(z3.RTN(), a, b))


def check_exact() -> Outcome:
    """Prove the statement `EXACT` with a solver."""
    (a_bits, a), (b_bits, b) = _float64("a"), _float64("b")
    twice = partial(z3.fpMul, z3.RNE(), z3.FPVal(2.0, z3.Float64()))
    below = (1023 + 900) << 52
    premises = [a_bits >= 0, b_bits >= 0, a_bits < below, b_bits < below, z3.fpLEQ(a, twice(b)), z3.fpLEQ(b, twice(a))]
    return prove(premises, _is_exact(z3.fpSub, a, b), engines=("bitwuzla",), show=(a_bits, b_bits))


# Sums in float32


class _Near:
    """A real number that differs from the exact result by at most one float32 rounding error."""

    def __init__(self, value: z3.ArithRef, known: list[z3.BoolRef]) -> None:
        self.value, self.known = value, known

    def __gt__(self, other: _Near) -> _Above:
        return _Above(self.value > other.value, self)

    def __and__(self, mask: int) -> _Near:
        if mask != 0x7FFFFFFF:
            return NotImplemented
        return _Near(z3.If(self.value < 0, -self.value, self.value), self.known)


class _Above:
    def __init__(self, holds: z3.BoolRef, of: _Near) -> None:
        self.holds, self.of = holds, of


def _real(number: Any) -> Any:
    return number.value if isinstance(number, _Near) else z3.RealVal(Fraction(float(np.int32(number).view(np.float32))))


def _select(condition: _Above, if_true: Any, if_false: Any) -> _Near:
    return _Near(z3.If(condition.holds, _real(if_true), _real(if_false)), condition.of.known)


def _rounded(operation: str, a: Any, b: Any) -> _Near:
    of = a if isinstance(a, _Near) else b
    exact = {"multiply": _real(a) * _real(b), "subtract": _real(a) - _real(b)}[operation]
    return _Near(_near(exact, of.known), of.known)


def _near(exact: z3.ArithRef, known: list[z3.BoolRef]) -> z3.ArithRef:
    """Return a symbolic number that differs from `exact` by at most one rounding error."""
    found, most = z3.FreshReal("rounded"), z3.If(exact < 0, -exact, exact) * z3.RealVal(HALF_UNIT)
    known += [found - exact <= most, exact - found <= most]
    return found


word.SELECT[_Above] = _select
lanes.FLOAT_ARITHMETIC[_Near] = _rounded


def check_terms(difference: Any = four_over_six._difference) -> Outcome:
    """Prove the statement `TERMS` with the factor 1.

    The statement for the factor 1 implies the statement for every other factor, because all bounds
    are relative to the largest element.
    """
    known = list[z3.BoolRef]()
    x, largest = z3.Reals("x largest")
    got = difference(_Near(x, known), _Near(_near(z3.RealVal(1), known), known)).value
    distances = [x - z3.RealVal(tables.ELEMENTS["e2m1"].value(code)) for code in range(8)]
    sizes = [z3.If(d < 0, -d, d) for d in distances]
    exact = z3.Real("distance")
    known += [z3.Or([exact == size for size in sizes]), *(exact <= size for size in sizes)]
    known += [x >= 0, largest >= x]

    def problems() -> Iterator[str]:
        solver = z3.Solver()
        solver.set("timeout", 120_000)
        solver.add(*known)
        if solver.check() != z3.sat:
            yield "the premises are not shown to be satisfiable"
        off = z3.If(got < exact, exact - got, got - exact)
        solver.add(z3.Or(off > largest * z3.RealVal(KNOWN), exact > largest))
        if solver.check() != z3.unsat:
            yield f"{solver.check()}: {solver.reason_unknown() if solver.check() == z3.unknown else solver.model()}"

    return outcome_of(problems(), "z3")


def check_added(loop: Any = four_over_six) -> Outcome:
    """Check the statement `ADDED` in rational numbers.

    All bounds are relative to the block's largest element, which is at least 2**-50.
    """
    one = 1 + HALF_UNIT
    levels = 4
    # Each difference is rounded once, and four additions in float32 then include it in a sum of 16
    # differences. In a block of 2**31 elements, 2**27 such sums are then added in float64.
    by_adding = one ** (levels + 1) - 1 + Fraction(1, 2**26)
    slack = 1 - Fraction(1, 2**50)

    def problems() -> Iterator[str]:
        if 1 << levels != vectors.LENGTH:
            yield "other vectors"
        largest = 1 + KNOWN
        if 2 * KNOWN + by_adding * largest > Fraction(loop._TERM) * slack:
            yield "distances"
        square = KNOWN * (2 + KNOWN) + HALF_UNIT * largest**2 + UNDERFLOW / Fraction(loop._LEAST_WIDE) ** 2
        if 2 * square + by_adding * (largest**2 * one + square) > Fraction(loop._SQUARE) * slack:
            yield "squares"
        if (
            6 * Fraction(loop._GREATEST_WIDE) * 2 > Fraction(2) ** 60
            or Fraction(loop._LEAST_WIDE) / 4 < Fraction(2) ** -126
        ):
            yield "a product may be outside the normal float32 numbers"

    return outcome_of(problems(), "rationals")


# Sums as pairs of float64 numbers


def check_lost(loop: Any = four_over_six) -> Outcome:
    """Prove the statement `LOST` in real numbers."""
    unit = Fraction(1, 2**53)

    def problems() -> Iterator[str]:
        # If a sum is at most 1, its addition has an error of at most `unit`. `low` is the sum of k
        # errors, so `low` is at most about k * unit. An addition to `low` has an error of at most
        # `unit` times the new `low`. The first check is the induction step from k to k + 1. Each
        # term causes two additions to `low`. The second check bounds the sum of the errors of all
        # additions to `low`.
        low, error, k, made, lost = z3.Reals("low error k made lost")
        more = 1 + z3.RealVal(Fraction(1, 2**20))
        u = z3.RealVal(unit)
        step = [k >= 0, k <= 2**32, low >= 0, low <= k * u * more, error >= 0, error <= u]
        step += [made == low + error, lost == made * u]
        if not follows(z3.And(made * (1 + u) <= (k + 1) * u * more, lost <= (k + 1) * u * u * more), *step):
            yield "a step loses more"
        most = 4 * unit**2 * (1 + Fraction(1, 2**20)) * (1 + Fraction(1, 2**20))
        if 2 * most > Fraction(loop._LOST):
            yield "all steps lose more"
        total, rest, gone, limit, e1, e2, e3 = z3.Reals("total rest gone limit e1 e2 e3")
        sizes = [z3.If(e < 0, -e, e) for e in (e1, e2, e3, gone, total)]
        sign = [limit >= 0, sizes[3] <= limit, 2 * rest >= sizes[0] + sizes[1] + sizes[2]]
        sign.append(2 * sizes[4] > 4 * rest + 2 * limit)
        exact = total + e1 + e2 + e3 + gone
        if not follows(z3.And((exact < 0) == (total < 0), exact != 0), *sign):
            yield "the sign of a difference"

    return outcome_of(problems(), "z3")


def theorems() -> Iterator[Theorem]:
    for source in formats.FLOATS.values():
        for scale in SCALES:
            if scale.number.mantissa_bits > MOST_DIGITS:
                continue
            yield Theorem(
                name=f"factors/choice/aim/{source.name}/{scale.name}",
                statement=AIM,
                kernels=("make_float_scale",),
                check=partial(check_aim, source, scale),
                hypotheses=(
                    "the largest magnitude is any positive finite number, the tensor scale any positive finite float32",
                ),
                functions=(float_scale.make_float_scale(source, E2M1, scale, RULE, four_over_six.FOUR),),
            )
    yield Theorem(
        name="factors/choice/nearest",
        statement=NEAREST,
        kernels=("_nearest",),
        check=check_nearest,
        hypotheses=("products of thresholds and values with the factor are exact (factors/exact)",),
        functions=(four_over_six._nearest,),
    )
    yield Theorem("factors/choice/exact", EXACT, (), check_exact, ("both are zero or positive, and below 2**900",))
    yield Theorem(
        name="factors/choice/terms",
        statement=TERMS,
        kernels=("_difference",),
        check=check_terms,
        hypotheses=(
            "each float32 result differs from the exact one by at most 1 / (2**24 + 1) of the exact one",
            "the block's largest number and the factors are between 2**-50 and 2**50",
        ),
        functions=(four_over_six._difference,),
    )
    limits = f"{four_over_six._TERM!r}, {four_over_six._SQUARE!r} and {four_over_six._LOST!r}"
    yield Theorem(
        "factors/choice/added",
        ADDED,
        ("choose",),
        check_added,
        (f"the loop's bound for each number is the first of {limits}, or the second if errors are squared",),
        functions=(four_over_six.choose,),
    )
    yield Theorem(
        "factors/choice/lost",
        LOST,
        ("choose",),
        check_lost,
        (
            f"the loop's bound on the loss of a sum is the last of {limits}",
            "a float64 sum or product and its computed error add up to the exact result (Knuth 1969, Dekker 1971)",
            "computing the bounds in float64 loses less than half of them",
        ),
        functions=(four_over_six.choose,),
    )

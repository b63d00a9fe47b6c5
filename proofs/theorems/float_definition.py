"""Theorems: with float scales, the definition rounds an exact quotient once, as specified.

The definition divides, keeps the leading digits and a digit that says whether a remainder is left,
and packs these digits. The theorems of `factor_quotients` (elements), `factor_scales` (scales) and
this module (tensor scales) say that the digits are right. This module also proves that packing
these digits gives the correctly rounded quotient, for elements, scales and tensor scales.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import z3

from mxnum import formats
from mxnum.definition import float_scale
from mxnum.definition.pack import SR_BITS, make_pack
from mxnum.definition.unpack import FINITE, ZERO_EXPONENT
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.checks import patched
from proofs.machines.long_division import divide
from proofs.machines.solve import prove, together
from proofs.specs import conversions, tables
from proofs.specs.float_scales import FLOAT32, SCALES
from proofs.theorem import Outcome, Theorem

PACKED = (
    "Packing the leading digits of a number, and a last digit that says whether others follow, gives the code that the "
    "specification gives the number. If others follow, the proof rounds the leading digits plus half a unit of the "
    "last one. This is enough, because rounding gives the same result for all numbers with the same leading digits and "
    "nonzero digits after these."
)
TENSOR = (
    "Before it rounds to a tensor scale, the definition computes the right leading digits of (largest magnitude) / "
    "(largest element * largest scale), and a last digit that says whether a remainder is left. After rounding, the "
    "tensor scale of a tensor of zeros is 1, and no tensor scale is zero."
)
DIGITS = (
    "the digits are any that `divide` returns, and the exponent is any that x / factor can have; or both are those of "
    "zero"
)
#: The largest exponent of a quotient, as in `ratios.EXPONENTS`.
MOST = 1400
#: The standards' tables of the elements, and of the float formats of scales.
NUMBERS: dict[str, Any] = {**tables.ELEMENTS, **tables.FLOATS, "e5m3": tables.E5M3}


def check_packed(number: Any, roundings: tuple[tuple[Rounding, Overflow], ...], digits: int, pack_of: Any) -> Outcome:
    """Prove the statement `PACKED` for numbers with `digits` digits after the leading one.

    `pack_of` makes the packing function, or a mutant of the packing function.
    """
    return together((f"{rounding} {over}", partial(_packed, number, rounding, over, digits, pack_of))
                    for rounding, over in roundings)  # fmt: skip


def _packed(number: Any, rounding: Rounding, overflow: Overflow, digits: int, pack_of: Any) -> Outcome:
    target, definitions, width = NUMBERS[number.name], list[z3.BoolRef](), digits + 1
    sign, exponent, fraction = z3.BitVec("sign", 1), z3.BitVec("exponent", 64), z3.BitVec("fraction", width)
    is_zero, random = z3.Bool("zero"), inputs.random()
    # The number is 1.fraction times a power of two. `sort` represents 1.fraction exactly.
    sort = z3.FPSort(12, max(16, width + 1, getattr(target, "precision", 0)))
    behind = sort.sbits() - 1 - width
    padded = z3.Concat(fraction, z3.BitVecVal(0, behind)) if behind else fraction
    one = z3.fpBVToFP(z3.Concat(sign, z3.BitVecVal((1 << 11) - 1, 12), padded), sort)
    zero = z3.fpBVToFP(z3.Concat(sign, z3.BitVecVal(0, 11 + sort.sbits())), sort)
    base = conversions.Exact(z3.If(is_zero, zero, one), definitions)
    wanted = conversions.Rounding(base.times(z3.Extract(11, 0, exponent)), sign == 1, target, str(rounding), random,
                           definitions)  # fmt: skip
    significand = z3.If(is_zero, z3.BitVecVal(0, 64), z3.ZeroExt(63 - width, z3.Concat(z3.BitVecVal(1, 1), fraction)))
    of_zero = z3.If(is_zero, z3.BitVecVal(ZERO_EXPONENT, 64), exponent)
    pack = pack_of(number, rounding, overflow, width, 64)
    got, safe = run(pack, z3.ZeroExt(63, sign), of_zero, significand, z3.BitVecVal(FINITE, 64),
                    inputs.natural(random, 64))  # fmt: skip
    code, clean = inputs.code_of(got, target.bits)
    premises = [exponent >= -MOST, exponent <= MOST, *definitions]
    example = ((exponent, 0), (fraction, 0), (sign, 0))
    goal = z3.And(clean, wanted.finite(str(overflow), code), *safe)
    return prove(premises, goal, engines=("bitwuzla",), show=(sign, exponent, fraction, random), example=example)


def check_tensor(source: Any, over: Any = float_scale) -> Outcome:
    """Prove the statement `TENSOR` for all elements and all scale formats with a tensor scale."""
    started, problems = time.perf_counter(), []
    widths: dict[tuple[int, int], int] = {}
    for element, scale in _pairs():
        made, calls, packed = _made(source, element, scale, over)
        ((width, divisor_width, digits, exponent, dividend, exponent_d, divisor),) = calls
        exact = divisor * Fraction(2) ** (exponent_d - divisor_width)
        is_right = (dividend, exponent, digits) == ("x", "of x", 25) and exact == _largest(element) * _largest(scale)
        is_right = is_right and width == source.mantissa_bits and 1 << divisor_width <= divisor < 2 << divisor_width
        is_right = is_right and packed == [(FLOAT32, Rounding.RNE, Overflow.SATURATE, 26, 0, "exponent", "quotient")]
        if not is_right or [made(0, 5), made(1, 5), made(1, 0)] != [float_scale.ONE, 5, 1]:
            problems.append(f"{element.name} {scale.name}: {calls} {packed}")
        widths[width, divisor_width] = digits
    for both, digits in widths.items():
        divided = partial(_divided, over.make_divide(*both, digits))
        problems += [f"{both}: {problem}" for problem in divide(divided, both, digits)]
    seconds = time.perf_counter() - started
    return Outcome("refuted" if problems else "proved", "z3", seconds, "; ".join(problems[:1]))


def _divided(of_numbers: Any, x: Any, divisor: Any) -> Any:
    return of_numbers(0, x, 0, divisor)


def _pairs() -> list[tuple[Any, Any]]:
    scales = [scale for scale in SCALES if scale.name not in formats._REACH_ALL]
    return list(product(formats.ELEMENTS.values(), scales))


def _made(source: Any, element: Any, scale: Any, over: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return a function that computes a tensor scale, and two lists that describe its last call.

    The first list holds the arguments of the divisions, and the second list holds the arguments of
    the packings. The function takes the significand of the largest magnitude, and the code that
    each packing returns.
    """
    calls, packed, code = list[Any](), list[Any](), [0]

    class X:
        """The largest magnitude's significand, as an object that can only be compared with zero."""

        __hash__ = None  # type: ignore[assignment]

        def __init__(self, size: int) -> None:
            self.size = size

        def __eq__(self, other: object) -> bool:
            assert other == 0
            return self.size == 0

    def make_divide(*how: int) -> Any:
        def divided(exponent: Any, dividend: Any, exponent_d: int, divisor: int) -> Any:
            calls.append((*how, exponent, "x" if isinstance(dividend, X) else dividend, exponent_d, divisor))
            return "exponent", "quotient"

        return divided

    def make_packed(*how: Any) -> Any:
        def pack(sign: Any, exponent: Any, quotient: Any, kind: Any, random: Any) -> int:
            assert kind == FINITE
            packed.append((*how[:4], sign, exponent, quotient))
            return code[0]

        return pack

    unpack = {"make_unpack": lambda source, width: lambda x: (0, "of x", x, FINITE)}
    with patched(over, **unpack, make_divide=make_divide, make_pack=make_packed):
        tensor_scale = over.make_tensor_scale(source, element, scale)

    def made(size: int, of_quotient: int) -> Any:
        code[0] = of_quotient
        del calls[:], packed[:]
        return tensor_scale(X(size))

    made(1, 5)
    return made, calls, packed


def _largest(of: Any) -> Fraction:
    """Return the largest number of an element or a scale, from the standards' tables."""
    number = NUMBERS[getattr(of, "number", of).name]
    if isinstance(number, tables.Element):
        return Fraction(number.value(number.last))
    return Fraction((1 << number.precision) - 1) * Fraction(2) ** (2 - number.emin - number.precision)  # type: ignore[no-any-return]


def theorems() -> list[Theorem]:
    return [*_element_theorems(), *_scale_theorems()]


def _element_theorems() -> Iterator[Theorem]:
    e4m3 = formats.SCALES["e4m3"]
    for element, rounding in product(formats.ELEMENTS.values(), Rounding):
        overflows = tuple(o for o in Overflow if o != Overflow.IEEE or element.specials != "none")
        digits = element.mantissa_bits + (SR_BITS + 1 if rounding.is_stochastic else 2)
        yield Theorem(
            name=f"float-definition/elements/{element.name}/{rounding}",
            statement=PACKED,
            kernels=("make_pack", "make_encode_over"),
            check=partial(check_packed, element, tuple((rounding, o) for o in overflows), digits, make_pack),
            hypotheses=(DIGITS, "random is any integer below 2**30"),
            functions=tuple(float_scale.make_encode_over(FLOAT32, element, e4m3, rounding, o) for o in overflows),
        )


def _scale_theorems() -> Iterator[Theorem]:
    e2m1, ways = formats.ELEMENTS["e2m1"], {Rounding.RNE: FloatScaleRule.NEAREST, Rounding.RTP: FloatScaleRule.RCEIL}
    for scale in SCALES:
        modes = tuple((rounding, Overflow.SATURATE) for rounding in ways)
        yield Theorem(
            name=f"float-definition/scales/{scale.name}",
            statement=PACKED,
            kernels=("make_pack", "make_float_scale"),
            check=partial(check_packed, scale.number, modes, scale.number.mantissa_bits + 2, make_pack),
            hypotheses=(DIGITS,),
            functions=tuple(float_scale.make_float_scale(FLOAT32, e2m1, scale, rule) for rule in ways.values()),
        )
    yield Theorem(
        name="float-definition/tensor-scales",
        statement=PACKED,
        kernels=("make_pack", "make_tensor_scale"),
        check=partial(check_packed, FLOAT32, ((Rounding.RNE, Overflow.SATURATE),), 25, make_pack),
        hypotheses=(DIGITS,),
        functions=(float_scale.make_tensor_scale(FLOAT32, e2m1, formats.SCALES["e4m3"]),),
    )
    for source in formats.FLOATS.values():
        yield Theorem(
            name=f"float-definition/tensor-digits/{source.name}",
            statement=TENSOR,
            kernels=("make_tensor_scale",),
            check=partial(check_tensor, source),
            hypotheses=(
                "the largest magnitude is any finite number of the source type",
                "the element is one of the eight, and the scale is of any type that has a tensor scale",
            ),
            functions=tuple(float_scale.make_tensor_scale(source, *pair) for pair in _pairs()),
        )

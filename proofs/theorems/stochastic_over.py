"""Stochastic rounding under float scales: the definition and the fast formulation are right.

The definition computes the leading digits of the quotient: 31 more digits than the element has
mantissa bits. The definition's long division is proved right digit by digit
(`proofs.machines.long_division`). The fast formulation compares |x| with the factor times a
threshold that depends on the random bits. Each step of the fast formulation is proved exact on
symbolic words of 64 bits, and on symbolic words of 32 bits that wrap around.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import z3

from mxnum import formats
from mxnum.definition import float_scale, random
from mxnum.definition.unpack import FINITE, ZERO_EXPONENT
from mxnum.engine.rounding import as_float32, by_factors, stochastic_over
from mxnum.engine.rounding.paths import DRAWN
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import Sym, run
from proofs.machines.checks import ON_DICTIONARIES, outcome_of, patched
from proofs.machines.long_division import divide
from proofs.machines.solve import follows, prove, together
from proofs.machines.words import Factor, Lane, select
from proofs.specs import tables
from proofs.specs.float_scales import FACTOR, FLOAT32, SCALES, pack_nothing, packing, unpacking
from proofs.specs.tables import RANDOM_BITS
from proofs.theorem import Outcome, Theorem
from proofs.theorems.factor_values import on_products, product_of
from proofs.theorems.stochastic import WIDE, Gap

DIGITS = (
    "Before it rounds x / factor stochastically, the definition computes the right leading digits of the quotient, 31 "
    "more than the element has mantissa bits, and a last digit that says whether a remainder is left. This holds for "
    "every nonzero x and every nonzero factor."
)
THRESHOLD = (
    "Let delta, from 0 to 1, be the position of |x| / factor in the gap between its two neighbouring values. From the "
    "leading digits of the quotient, the definition gives the neighbour away from zero if and only if floor(delta * "
    "2**30) + R >= 2**30. Beyond the largest value, it gives the largest value."
)
COMPARED = (
    "Let n be the neighbour of |x| / factor toward zero, divided by the gap. Then floor(delta * 2**30) + R >= 2**30 if "
    "and only if |x| * 2**30 >= gap * factor * ((n + 1) * 2**30 - R). The reason is that an integer is at most a "
    "quotient if and only if it is at most the quotient's integer part."
)
PRODUCT = "`multiply_32x32` returns the two words of the product of two 32-bit words."
DECIDED = (
    "|x| rounds up if and only if |x| * 2**30 >= gap * factor * ((n + 1) * 2**30 - R), where n is the neighbour of |x| "
    "/ factor toward zero, divided by the gap."
)
CONSTANTS = (
    "If a loop accepts a factor, the significand of 28 bits and the exponent that the loop stores represent the factor "
    "exactly. For a factor of zero, the loop stores the greatest exponent."
)
CHOSEN = (
    "The code is that of x rounded toward zero, or the next larger magnitude if `goes_up` returns 1 and the code is "
    "not the largest. A value is the value of this code times the factor. Code and value have the sign of x."
)
FAST = tuple(ELEMENTS[name] for name in DRAWN.elements)
SOURCES = tuple(FLOATS[name] for name in DRAWN.float_types)
DIGITS_OF_FACTOR = stochastic_over._DIGITS
#: The least and the greatest exponent of a factor. The greatest is the exponent of a zero factor.
LEAST_EXPONENT, NO_EXPONENT = -1100, stochastic_over._FAR


def check_digits(source: ElementFormat, mantissa_bits: int, over: Any = float_scale) -> Outcome:
    """Prove the statement `DIGITS` for a source, and elements of `mantissa_bits` mantissa bits."""
    digits = mantissa_bits + RANDOM_BITS + 1
    element = ElementFormat("any", 7 - mantissa_bits, mantissa_bits, 1)

    def problems() -> Iterator[str]:
        for scale in SCALES:
            with patched(over, make_unpack=unpacking(over.make_unpack, 0), make_pack=pack_nothing):
                encode = over.make_encode_over(source, element, scale, Rounding.SR, Overflow.SATURATE)
            widths = source.mantissa_bits, over.factor_width(scale)
            for problem in divide(partial(_divided, encode), widths, digits):
                yield f"{scale.name}: {problem}"

    return outcome_of(problems(), "z3", lambda: f"{digits} digits")


def _divided(encode: Any, x: Any, factor: Any) -> Any:
    return encode(x, 0, factor, FINITE, 0)


def check_threshold(element: ElementFormat, over: Any = float_scale) -> Outcome:
    """Prove the statement `THRESHOLD` for an element."""
    table = tables.ELEMENTS[element.name]
    pack = packing(over, "make_encode_over", FLOAT32, element, SCALES[0], Rounding.SR, Overflow.SATURATE)
    leading = element.mantissa_bits + RANDOM_BITS + 2
    exponent, significand, bits = (z3.BitVec(name, 64) for name in ("exponent", "significand", "random"))
    sign = z3.BitVec("sign", 64)
    packed, safe = run(pack, sign, exponent, significand, z3.BitVecVal(FINITE, 64), bits)
    code = z3.If(sign == 0, packed, (1 << element.bits) - packed if element.integer else packed)
    magnitude = z3.Extract(element.bits - 1, 0, code) & ((1 << (element.bits - 1)) - 1)
    # `amount` is floor(quotient * 2**30), for the quotient in units of the smallest step. The last
    # digit of `significand` is 1 if the division leaves a remainder. The value of this digit is at
    # most 2**-32 of a gap between two values, so the digit does not change `amount`.
    power = z3.SignExt(WIDE - 64, exponent) - leading - table.unit + RANDOM_BITS
    wide = z3.ZeroExt(WIDE - 64, significand)
    amount = z3.If(power < 0, z3.LShR(wide, -power), wide << power)
    gap = Gap(amount, table)
    delta30 = z3.FreshConst(z3.BitVecSort(RANDOM_BITS + 1), "delta30")
    step = z3.LShR(gap.high - gap.low, RANDOM_BITS)
    lower = z3.ZeroExt(WIDE - delta30.size(), delta30) * step
    definition = [
        z3.ULE(delta30, 1 << RANDOM_BITS), z3.ULE(lower, amount - gap.low), z3.ULT(amount - gap.low, lower + step),
    ]  # fmt: skip
    away = z3.UGE(z3.ZeroExt(33, delta30) + bits, 1 << RANDOM_BITS)
    up = z3.If(away, z3.BitVecVal(1, element.bits), z3.BitVecVal(0, element.bits))
    is_digits = z3.LShR(significand, leading) == 1
    some = [
        z3.Or(is_digits, z3.And(significand == 0, exponent == ZERO_EXPONENT)),
        z3.Or(sign == 0, sign == 1), z3.ULT(bits, 1 << RANDOM_BITS), exponent >= -1500, exponent <= 1500,
    ]  # fmt: skip
    keeps_sign = z3.BoolVal(True) if element.integer else z3.LShR(packed, element.bits - 1) == sign
    within = prove(
        [*some, power < 80, *gap.premises, *definition],
        z3.And(magnitude == gap.below + up, keeps_sign, *safe),
        engines=("bitwuzla",), show=(exponent, significand, bits),
        example=((exponent, table.unit + 1), (significand, 1 << leading), (bits, 0), (sign, 0)),
    )  # fmt: skip
    if within.verdict != "proved":
        return within
    most = z3.BitVecVal(table.magnitudes[table.last] << RANDOM_BITS, WIDE)
    is_beyond = z3.And(is_digits, z3.Or(power >= 80, z3.UGE(amount, most)))
    beyond = prove([*some, is_beyond], z3.And(magnitude == table.last, keeps_sign, *safe), engines=("bitwuzla",))
    return together([("within", lambda: within), ("beyond", lambda: beyond)])


def check_compared() -> Outcome:
    """Prove the statement `COMPARED` in integers."""

    def problems() -> Iterator[str]:
        whole, integer, divisor, dividend = z3.Ints("whole integer divisor dividend")
        more = whole - integer
        product = z3.Int("product")  # integer * divisor
        premises = [divisor > 0, whole * divisor <= dividend, dividend < whole * divisor + divisor]
        # The proof needs only two nonlinear facts: more * divisor >= 0 if `more` is nonnegative,
        # and more * divisor <= -divisor if `more` is negative.
        premises += [z3.Implies(more >= 0, more * divisor >= 0), z3.Implies(more <= -1, more * divisor <= -divisor)]
        premises.append(product == whole * divisor - more * divisor)
        if not follows((integer <= whole) == (product <= dividend), *premises):
            yield "an integer is at most a quotient, but not at most the quotient's integer part, or conversely"
        if not follows(more * divisor >= 0, divisor > 0, more >= 0):
            yield "signs of products"
        if not follows(more * divisor <= -divisor, divisor > 0, more <= -1):
            yield "signs of products"
        (gaps, delta, bits), one = z3.Ints("gaps delta30 bits"), 1 << RANDOM_BITS
        if not follows((delta + bits >= one) == (gaps * one + delta >= (gaps + 1) * one - bits)):
            yield "thresholds differ"

    return outcome_of(problems(), "z3")


# Words


def check_product(multiply: Any = random.multiply_32x32) -> Outcome:
    """Prove the statement `PRODUCT` for a * b, with symbols in place of two smaller products.

    Let a = upper * 2**16 + lower, where both halves have 16 bits. Then a * b is upper * b * 2**16 +
    lower * b. The symbols replace upper * b and lower * b, which have at most 48 bits.
    """
    a, b = z3.BitVecs("a b", 64)
    left, obligations = Factor(a, []), list[z3.BoolRef]()
    left.products = []
    right = Sym(b, obligations)
    high, low = multiply(left, right)
    (x, u, of_low), (y, v, of_high) = left.products
    bound = 0xFFFF * 0xFFFFFFFF
    premises = [z3.ULE(a, 0xFFFFFFFF), z3.ULE(b, 0xFFFFFFFF), z3.ULE(of_low, bound), z3.ULE(of_high, bound)]
    wide = [z3.ZeroExt(64, word) for word in (of_low, of_high, high.value, low.value)]
    goal = z3.And(
        a == (y << 16) + x, z3.ULE(x, 0xFFFF), z3.ULE(y, 0xFFFF), u == b, v == b,
        wide[0] + (wide[1] << 16) == (wide[2] << 32) + wide[3],
        z3.ULE(low.value, 0xFFFFFFFF), *obligations, *left.obligations,
    )  # fmt: skip
    return prove(premises, goal, engines=("bitwuzla",), show=(a, b, of_low, of_high))


def check_decided(element: ElementFormat, bits: int, fast: Any = stochastic_over) -> Outcome:
    """Prove the statement `DECIDED` for each code of an element, in words of `bits` bits."""
    last = tables.ELEMENTS[element.name].last
    return together((f"code {code}", partial(_decided, element, bits, code, fast)) for code in range(last))


def _decided(element: ElementFormat, bits: int, code: int, fast: Any) -> Outcome:
    table = tables.ELEMENTS[element.name]
    low, high = (table.magnitudes[code + i] for i in (0, 1))
    gap = high - low
    obligations, seen = list[z3.BoolRef](), list[tuple[Any, Any]]()
    x, digits, exponent, drawn = (z3.BitVec(name, bits) for name in ("x", "digits", "exponent", "random"))
    words = z3.BitVec("product", 64)
    make = Lane if bits == 32 else Sym

    def multiply(a: Sym, b: Sym) -> tuple[Sym, ...]:
        seen.append((a.value, b.value))
        given = z3.If(b.value == 0, z3.BitVecVal(0, 64), words)  # in 32 bits, 2**32 is stored as 0
        halves = z3.Extract(63, 32, given), z3.Extract(31, 0, given)
        return tuple(make(z3.ZeroExt(bits - 32, half), obligations) for half in halves)

    with patched(fast, multiply_32x32=multiply, select=select):
        arguments = [make(value, obligations) for value in (x, digits, exponent, drawn)]
        goes_up = inspect.unwrap(fast.make_goes_up)(element)
        got = goes_up(arguments[0], code, *arguments[1:]).value
    field, fraction = z3.LShR(x, 23), x & 0x7FFFFF
    significand = z3.ZeroExt(WIDE - bits, z3.If(field == 0, fraction, fraction | 0x800000))
    # Let g be the width of the gap, and let u be the factor divided by `digits`. Then `amount` is
    # |x| * 2**30 / (g * u). If the exponent field is not 0, |x| = significand * 2**(field - 150).
    power_of_gap = table.unit + (gap.bit_length() - 1)
    power = z3.If(field == 0, z3.BitVecVal(1, bits), field) - 150 + RANDOM_BITS - power_of_gap
    power = power - (exponent - (DIGITS_OF_FACTOR - 1))
    wide_power = z3.SignExt(WIDE - bits, power)
    amount = z3.If(power < 0, z3.LShR(significand, -wide_power), significand << wide_power)
    below, above = (z3.ZeroExt(WIDE - bits, digits) * ((n // gap) << RANDOM_BITS) for n in (low, high))
    product = z3.ZeroExt(WIDE - 64, words)
    premises = [
        x >= 0, x <= FLOAT32.max_code,
        z3.UGE(digits, 1 << (DIGITS_OF_FACTOR - 1)), z3.ULT(digits, 1 << DIGITS_OF_FACTOR),
        exponent >= LEAST_EXPONENT, exponent <= NO_EXPONENT, z3.ULT(drawn, 1 << RANDOM_BITS),
        z3.Or(power < 100, significand == 0), z3.ULE(below, amount), z3.ULT(amount, above),
        z3.ULT(below, product), z3.ULE(product, above), (drawn == 0) == (product == above),
    ]  # fmt: skip
    ((a, b),) = seen
    threshold = z3.BitVecVal((high // gap) << RANDOM_BITS, bits) - drawn
    goal = z3.And(
        got == z3.If(z3.UGE(amount, product), z3.BitVecVal(1, bits), z3.BitVecVal(0, bits)),
        a == digits, b == threshold, *obligations,
    )  # fmt: skip
    return prove(premises, goal, engines=("bitwuzla",), show=(x, digits, exponent, drawn, words))


# Constants of a block, and codes and values computed from these constants


class _Anything:
    """A placeholder for a result that another theorem covers; ``result & other`` is `other`."""

    def __and__(self, other: Any) -> Any:
        return other


def check_constants(fast: Any = stochastic_over) -> Outcome:
    """Prove the statement `CONSTANTS` for a symbolic factor."""
    factor, obligations, table = z3.BitVec("factor", 64), list[z3.BoolRef](), dict[int, Sym]()
    real = inspect.unwrap(by_factors.by_seven_places)

    def by_seven_places(*how: Any) -> Any:
        return real(*how)._replace(prepare=lambda *of_block: _Anything())

    with (
        patched(by_factors, by_seven_places=by_seven_places, _make_factor=lambda scale: lambda code, tensor: code),
        patched(fast, store=ON_DICTIONARIES["store"]),
    ):
        made = inspect.unwrap(fast.by_products)(FLOAT32, FAST[0], SCALES[0], None)
        is_kept = made.prepare(Sym(factor, obligations), 0, table, 0, 1)
    significand, exponent = (table[made.constants - 2 + i].value for i in (0, 1))
    fraction, least = (factor & ((1 << 52) - 1)) | (1 << 52), 1 << (DIGITS_OF_FACTOR - 1)
    is_factor = z3.And(fraction == significand << (53 - DIGITS_OF_FACTOR), exponent == z3.LShR(factor, 52) - 1023)
    is_none = z3.And(significand == least, exponent == NO_EXPONENT)
    is_right = z3.And(z3.UGE(significand, least), z3.If(factor == 0, is_none, is_factor))
    premises = [factor >= 0, factor < by_factors._HUGE, z3.Or(factor == 0, factor >= 1 << 52)]
    goal = z3.And(z3.Implies(is_kept.predicate, is_right), *obligations)
    return prove(premises, goal, engines=("bitwuzla",), show=(factor,))


class _Number:
    """A placeholder for a number x, of which only the magnitude and the code can be read."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __and__(self, mask: int) -> Any:
        return self if mask == 0x7FFFFFFF else NotImplemented


def check_chosen(element: ElementFormat, target: ElementFormat | None, fast: Any = stochastic_over) -> Outcome:
    """Check the statement `CHOSEN` for every code and for both results of `goes_up`, 0 and 1."""
    source, up = target or FLOAT32, 0
    real, asked, kept = inspect.unwrap(by_factors.by_seven_places), list[tuple[Any, ...]](), ("significand", "exponent")

    def by_seven_places(source: Any, element: Any, scale: Any, rounding: Rounding, target: Any) -> Any:
        return real(source, element, scale, rounding, target)._replace(element=lambda x, c, random: x.code)

    def goes_up(*arguments: Any) -> int:
        asked.append(arguments)
        return up

    def problems() -> Iterator[str]:
        nonlocal up
        made, table = inspect.unwrap(fast.by_products)(source, element, SCALES[0], target), dict[int, Any]()
        if target is not None:
            made.prepare_more("factor", 0, table, 0, 1)
        places = tuple(f"place {i}" for i in range(7))
        table.update(enumerate(places))
        table.update(zip(range(made.constants - 2, made.constants), kept, strict=True))
        constants = made.at(table, 0, 1)
        if tuple(constants[:7]) != places:
            yield "the thresholds are not the first seven constants"
        for code, up in product(range(16), (0, 1)):
            (sign, magnitude), x = divmod(code, 8), _Number(code)
            after = magnitude + (up if magnitude < element.max_code else 0)
            got = made.element(x, constants, "random")
            if asked.pop() != (x, magnitude, *kept, "random"):
                yield f"code {code}: `goes_up` gets the wrong arguments"
            if target is None and got != after + 8 * sign:
                yield f"code {code}: got {got}"
            value = None if target is None else product_of(got)
            if value is not None and (float(value.number), value.sign) != (element.value(after), sign):
                yield f"code {code}: got {value}"

    with (
        on_products(by_factors),
        patched(by_factors, by_seven_places=by_seven_places),
        patched(as_float32, make_widen=lambda source: lambda x: x),
        patched(fast, make_goes_up=lambda element: goes_up, store=ON_DICTIONARIES["store"]),
    ):
        return outcome_of(problems(), "sweep", lambda: "32 cases")


def theorems() -> Iterator[Theorem]:
    e4m3, ready = formats.SCALES["e4m3"], []
    for source, mantissa_bits in product(FLOATS.values(), range(7)):
        element = ElementFormat("any", 7 - mantissa_bits, mantissa_bits, 1)
        yield Theorem(
            name=f"factors/stochastic-digits/{source.name}/m{mantissa_bits}",
            statement=DIGITS,
            kernels=("make_encode_over",),
            check=partial(check_digits, source, mantissa_bits),
            hypotheses=(FACTOR, "the element has the mantissa bits in the theorem's name; scales have any float type"),
            functions=(float_scale.make_encode_over(source, element, e4m3, Rounding.SR, Overflow.SATURATE),),
        )
    for element in ELEMENTS.values():
        encode = float_scale.make_encode_over(FLOAT32, element, e4m3, Rounding.SR, Overflow.SATURATE)
        yield Theorem(
            name=f"factors/stochastic-threshold/{element.name}",
            statement=THRESHOLD,
            kernels=(encode.__name__,),
            check=partial(check_threshold, element),
            hypotheses=(
                "the digits are any that a nonzero quotient can have, or those of zero",
                "R is any integer below 2**30",
            ),
            functions=(encode,),
        )
    yield Theorem("factors/stochastic/compared", COMPARED, (), check_compared, ("all are integers",))
    yield Theorem(
        name="factors/stochastic/product",
        statement=PRODUCT,
        kernels=("multiply_32x32",),
        check=check_product,
        hypotheses=(
            "products of a 16-bit and a 32-bit integer are right",
            "compiled for 32-bit lanes, the function computes one 64-bit product",
        ),
        functions=(random.multiply_32x32,),
    )
    for element in FAST:
        goes_up = stochastic_over.make_goes_up(element)
        for bits in (64, 32):
            yield Theorem(
                name=f"factors/stochastic/decided/{element.name}/{bits}",
                statement=DECIDED,
                kernels=("make_goes_up",),
                check=partial(check_decided, element, bits),
                hypotheses=(
                    "x is any finite float32 magnitude, and its code rounded toward zero is right (factors/places)",
                    "the factor is zero, or any number of at most 28 significant bits",
                    "R is any integer below 2**30, and the product is right (factors/stochastic/product)",
                    f"words have {bits} bits" + (" and wrap around" if bits == 32 else ""),
                ),
                functions=(goes_up,),
            )
        for target in (None, *SOURCES):
            made = stochastic_over.by_products(target or FLOAT32, element, e4m3, target)
            ready.append(made.prepare)
            yield Theorem(
                name=f"factors/stochastic/chosen/{element.name}/{target.name if target else 'code'}",
                statement=CHOSEN,
                kernels=("by_products",),
                check=partial(check_chosen, element, target),
                hypotheses=("the factor is any number other than zero (a factor of zero gives zeros)",),
                functions=(made.at, made.element),
            )
    yield Theorem(
        name="factors/stochastic/constants",
        statement=CONSTANTS,
        kernels=("by_products",),
        check=check_constants,
        hypotheses=("the factor is zero, or any positive normal float64 number below the limit `_HUGE`",),
        functions=tuple(ready),
    )

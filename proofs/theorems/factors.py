"""Scales that are floats: what the fast formulations make of x over a factor is what the definition makes of it.

A factor is scale times tensor scale. What either way computes hangs on the ratio of x to it alone, and every ratio is
gone through by `proofs.ratios`, exactly. What is between floats and real numbers is a theorem of its own: products are
exact, thresholds are right in float32, and no quotient of 53 bits hides on which side of a place the exact one lies.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import z3

from mxnum import formats
from mxnum.engine.machine import lanes
from mxnum.engine.rounding import as_float32, by_factors, float_additions
from mxnum.engine.rounding import paths as fast_paths
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from mxnum.scalar import float_scale
from mxnum.scalar.convert import make_encode
from mxnum.scalar.pack import make_pack
from mxnum.scalar.unpack import FINITE, ZERO_EXPONENT
from proofs.ratios import DOUBLED, EXPONENTS, Form, Hidden, Place, Ratios, Size, covers, leading, paths
from proofs.solve import prove, together
from proofs.sym import Sym, run
from proofs.theorem import Outcome, Theorem, Verdict
from proofs.theorems.narrowing import low_word

FLOAT32 = formats.FLOATS["float32"]
PLACES = (
    "The code that comparisons of |x| with places times the factor make is the code of the definition, for every ratio "
    "of x to the factor, and for a factor that is zero."
)
DIVIDED = (
    "Before it is packed, the definition has the leading digits of x over the factor, and whether any are left, for "
    "every x and every factor."
)
ROUNDED = (
    "The code made of a float64 quotient is what the definition packs of its leading digits and whether any are left, "
    "for every quotient."
)
FOUND = "The scale made of a float64 quotient is what the definition packs of its digits, for every quotient."
DIVIDED_FOR_SCALES = (
    "Before it is packed as a scale, the definition has the leading digits of the largest magnitude over the largest "
    "element times the tensor scale, and whether any are left, for every such pair."
)
GAP = (
    "A quotient of 53 bits lies where the exact one does, below, at or above every place: of a dividend and a product "
    "of place and divisor, both of at most 48 bits, that differ, the lesser is below the greater by 2**-48 of it at "
    "least, and a correctly rounded quotient is off by 2**-53 of itself at most."
)
EXACT = (
    "Products of scale and tensor scale are the factors of the definition, and they, their products with the places "
    "and values of elements, and those of tensor scales with largest elements, have at most 53 bits and are normal "
    "float64 numbers, as are quotients by them."
)
FIRST = (
    "A float32 magnitude is at or above (or above) a float64 number iff its bits are those of the first such float32 "
    "number, or more."
)
DOUBLED_NUMBERS = (
    "For a factor that blocks of E2M1 are not left with, one more in the exponent makes of the first float32 number at "
    "or above a place that at or above its double, and of a rounded value the rounded double; two more do so twice, "
    "one less makes the rounded half. No sum leaves the nonnegative words of 32 bits."
)
CONVERSIONS = "conversions round to nearest even"
FACTOR = "x is any finite number and the factor any finite one: a scale code times a tensor scale without sign"
#: Leading bits of a float64 number that are divided, the last of which says whether there are others.
LEADING = 48
#: Ratios beyond 2**±`FAR` are on the same side of all places.
FAR = 16
BY_PLACES = tuple(formats.ELEMENTS[name] for name in fast_paths.PLACES.elements)
BY_PLACES_ROUNDINGS = fast_paths.PLACES.roundings
QUOTIENT_ROUNDINGS = fast_paths.QUOTIENTS.roundings
FOUND_BY: Any = fast_paths.FOUND.rules
#: Digits of which every sequence is gone through.
MOST_DIGITS = 10
SCALES: Any = tuple(scale for scale in formats.SCALES.values() if scale.number is not None)


VALUES = (
    "A value is made, for each code, of the factor times the number that the definition multiplies it by, with the "
    "same sign; infinities and NaNs are the definition's."
)
NARROWED = "Products of elements and factors are rounded to a float type as the definition rounds them."


@contextmanager
def patched(module: Any, **names: Any) -> Iterator[None]:
    """Names of a module that mean something else to what is made here."""
    before = {name: getattr(module, name) for name in names}
    try:
        for name, value in names.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


# Elements of four bits


def check_places(
    source: Any, element: Any, scale: Any, rounding: Rounding, over: Any = float_scale, fast: Any = by_factors
) -> Outcome:
    """`over` and `fast` are the modules of the definition and of the fast way, or mutants of them."""
    started, count = time.perf_counter(), [0]

    def problems() -> Iterator[str]:
        if not all(2.0 ** (1 - FAR) < value < 2.0 ** (FAR - 1) for value in map(element.value, (1, element.max_code))):
            yield "places lie too far away"
        if fast.by_places(source, element, scale, rounding, None) is not _by_places(fast, source, element)(
            source, element, scale, rounding, None
        ):
            yield "other functions are used"
        code_of, of_nothing = _code_by_places(fast, source, element, scale, rounding)
        every = []
        for ratios, sign, wanted in _defined_codes(over, source, element, scale, rounding):
            every += [ratios] * (1 - sign)
            count[0] += len(EXPONENTS)
            for exponent in range(-FAR, FAR + 1):
                of_ratio = ratios.times(Fraction(2) ** exponent)
                code = code_of(Size(of_ratio, sign))
                if np.any((wanted[np.clip(EXPONENTS, -FAR, FAR) == exponent] - code) % 16):
                    yield f"x / factor from {of_ratio.low} to {of_ratio.high}, sign {sign}: got {code % 16:#x}"
        if not covers(every, Fraction(1, 2), Fraction(2)):
            yield "not every ratio was gone through"
        for sign in (0, 1):
            zero = code_of(Size(Ratios(Fraction(0), Fraction(0)), sign)) % 16
            for want in (*_defined_zeros(over, source, element, scale, rounding, sign), of_nothing(sign)):
                if want % 16 != zero:
                    yield f"zeros, sign {sign}"

    return _outcome(problems(), started, lambda: f"{count[0]} intervals of ratios")


def _outcome(problems: Iterator[str], started: float, detail: Callable[[], str]) -> Outcome:
    """Refuted by the first problem."""
    try:
        problem = next(problems, "")
    except Hidden as hidden:
        problem = str(hidden)
    verdict: Verdict = "refuted" if problem else "proved"
    return Outcome(verdict, "ratios", time.perf_counter() - started, problem or detail())


def _by_places(fast: Any, source: Any, element: Any) -> Any:
    """What `by_places` takes."""
    doubles = element.mantissa_bits == 1 and source.name in ("float32", "bfloat16")
    return fast.by_doublings if doubles else fast.by_seven_places


def _code_by_places(
    fast: Any, source: Any, element: Any, scale: Any, rounding: Rounding
) -> tuple[Callable[[Size], int], Callable[[int], int]]:
    """(size -> code, sign -> code of the largest x under a factor of zero), as `by_places` makes them.

    The factor is 1, since places are multiplied by it without error: only ratios to it matter.
    """

    def multiply(factor: int, place: int) -> Any:
        return Place(Fraction(float(np.int64(place).view(np.float64)))) if factor else 0

    def store(table: dict[int, Any], index: int, value: Any) -> None:
        table[index] = value

    with (
        patched(
            fast,
            _make_factor=lambda scale: lambda code, tensor: code,
            _first_from=lambda is_wide: lambda place, from_on: place if from_on else place + 1,
            multiply_float64=multiply,
            store=store,
            load=lambda table, index: table[index],
        ),
        patched(fast.as_float32, make_widen=lambda source: lambda x: x),
    ):
        made = inspect.unwrap(_by_places(fast, source, element))(source, element, scale, rounding, None)
        constants = []
        for factor in (0, 1):
            table: dict[int, Any] = {}
            made.prepare(factor, 0, table, 0, 1)
            constants.append(made.at(table, 0, 1))
    bits, largest = (64, source.max_code) if source.bits == 64 else (32, FLOAT32.max_code)

    def of_nothing(sign: int) -> int:
        return int(made.element(largest - (sign << (bits - 1)), constants[0], 0))

    return (lambda size: int(made.element(size, constants[1], 0))), of_nothing


def _defined_codes(
    over: Any, source: Any, element: Any, scale: Any, rounding: Rounding
) -> Iterator[tuple[Ratios, int, Any]]:
    """(ratios of significands, sign, codes under all exponents): the definition on every x and factor."""
    width = over.factor_width(scale)
    bits, down = (source.mantissa_bits + 1, width + 1), Fraction(2) ** (width - source.mantissa_bits)
    for sign in (0, 1):
        unpacked = {"make_unpack": lambda source, width, sign=sign: lambda x: (sign, EXPONENTS, x, FINITE)}
        with patched(over, **unpacked):
            encode = over.make_encode_over(source, element, scale, rounding, Overflow.SATURATE)
        on_forms = partial(_encoded, encode)
        for ratios, codes in paths(on_forms, bits, 1 / down / 2, 2 / down):
            yield ratios.times(down), sign, codes


def _encoded(encode: Any, x: Form, factor: Form) -> Any:
    return encode(x, 0, factor, FINITE, 0)


def _defined_zeros(over: Any, source: Any, element: Any, scale: Any, rounding: Rounding, sign: int) -> list[int]:
    """Codes of zero over a factor, of the largest number over none and under an infinite one, and of zero over none."""
    encode = over.make_encode_over(source, element, scale, rounding, Overflow.SATURATE)
    some, negative = 1 << over.factor_width(scale), sign << (source.bits - 1)
    minus = -(1 << 63) if sign and source.bits == 64 else negative
    return [int(encode(x + minus, 0, factor, FINITE, 0)) for x, factor in ((0, some), (source.max_code, 0), (0, 0))]


# Other elements: quotients


def check_digits(source: Any, mantissa_bits: int, over: Any = float_scale) -> Outcome:
    """Of every scale, and all elements with so many mantissa bits."""
    element = formats.ElementFormat("any", 7 - mantissa_bits, mantissa_bits, 1)
    started, count = time.perf_counter(), [0]

    def problems() -> Iterator[str]:
        for scale in SCALES:
            with patched(over, make_unpack=_unpack_forms, make_pack=_pack_nothing):
                encode = over.make_encode_over(source, element, scale, Rounding.RNE, Overflow.SATURATE)
            width = over.factor_width(scale)
            down, every = Fraction(2) ** (width - source.mantissa_bits), []
            for ratios, got in paths(
                partial(_encoded, encode), (source.mantissa_bits + 1, width + 1), 1 / down / 2, 2 / down
            ):
                count[0] += 1
                every.append(ratios.times(down))
                if not _is_leading(got, every[-1], mantissa_bits + 2):
                    yield f"{scale.name}: digits of {every[-1].low} to {every[-1].high} are not {got[1]:#b}"
            if not covers(every, Fraction(1, 2), Fraction(2)):
                yield f"{scale.name}: not every ratio was gone through"

    return _outcome(problems(), started, lambda: f"{count[0]} intervals of ratios")


def _unpack_forms(source: Any, width: int) -> Any:
    return lambda x: (0, EXPONENTS, x, FINITE)


def _pack_nothing(*how: Any) -> Any:
    return lambda sign, exponent, significand, kind, random: (exponent, significand)


def _is_leading(got: tuple[Any, int], ratios: Ratios, digits: int, down: int = 0) -> bool:
    """Whether exponents and digits are those of ratios, under each of the exponents less `down`."""
    exponent, significand = leading(ratios, digits)
    return got[1] == significand and bool(np.all(got[0] == EXPONENTS + exponent - down))


def check_rounded(
    element: Any, rounding: Rounding, overflow: Overflow, over: Any = float_scale, fast: Any = by_factors
) -> Outcome:
    """By `magic/code` and `narrowing/conversion`, a code is the definition's, of the quotient rounded to odd."""
    lanes.LOW_WORD[Sym] = low_word
    domain = float_additions.domain(element, rounding)
    if not (domain.least_scale <= fast.UNIT <= domain.greatest_scale and domain.greatest_x >= fast._GREATEST):
        return Outcome("refuted", "-", 0.0, "quotients leave the domain of magic/code")
    encode32 = make_encode(FLOAT32, element, rounding, overflow)
    q, x = z3.BitVec("quotient", 64), z3.BitVec("x", 64)
    obligations: list[z3.BoolRef] = []
    additions = _Changed(
        fast.float_additions, make_code=lambda *how: lambda x, scale, random, e: encode32(x, scale, random)
    )
    with patched(
        fast,
        float_additions=additions,
        _make_factor=lambda scale: None,
        make_number=lambda source: lambda x: x,
        divide_float64=lambda a, b: Sym(q, obligations),
        to_odd_by_conversion=as_float32.to_odd,
        wide=lambda word: word,
    ):
        made = inspect.unwrap(fast.by_quotients)(FLOAT32, element, SCALES[0], rounding, overflow, None)
        got = made.element(Sym(x, obligations), (None, None), 0).value
    kept: dict[str, Any] = {}
    with patched(over, make_pack=lambda *how: kept.setdefault("pack", make_pack(*how))):
        over.make_encode_over(FLOAT32, element, SCALES[0], rounding, overflow)
    digits = element.mantissa_bits + 2
    exponent, significand = _leading_of_float64(q, digits)
    sign = z3.LShR(x, 31) & 1
    zero = z3.BitVecVal(0, 64)
    want, safe = run(kept["pack"], sign, exponent, significand, zero, zero)
    goal = z3.And(z3.SignExt(32, got) & ((1 << element.bits) - 1) == want, *obligations, *safe)
    finite = [q >= 0, q <= 0x7FF << 52, z3.Or(q == 0, q >= 1 << 52)]
    return prove(finite, goal, engines=("bitwuzla",), show=(q, x), example=((q, 0x3FF << 52), (x, 0)))


class _Changed:
    """A module with other values of some names."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.module, self.names = module, names

    def __getattr__(self, name: str) -> Any:
        return self.names[name] if name in self.names else getattr(self.module, name)


def _leading_of_float64(q: z3.BitVecRef, digits: int) -> tuple[z3.BitVecRef, z3.BitVecRef]:
    """As `ratios.leading`; of zero what `divide` gives."""
    fraction, below = q & ((1 << 52) - 1), (1 << (52 - digits)) - 1
    whole = z3.LShR(fraction | (1 << 52), 52 - digits) << 1
    one, zero = z3.BitVecVal(1, 64), z3.BitVecVal(0, 64)
    significand = whole | z3.If(fraction & below == 0, zero, one)
    exponent = z3.LShR(q, 52) - 1023
    return z3.If(q == 0, z3.BitVecVal(ZERO_EXPONENT, 64), exponent), z3.If(q == 0, zero, significand)


# Scales


def check_found(scale: Any, rule: FloatScaleRule, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    q, obligations, results = z3.BitVec("quotient", 64), list[z3.BoolRef](), list[z3.BoolRef]()

    def arithmetic(operation: Any) -> Any:
        def result(a: Any, b: Any) -> Sym:
            bits = z3.FreshConst(z3.BitVecSort(64), "result")
            a, b = (
                z3.fpBVToFP(word.value if isinstance(word, Sym) else z3.BitVecVal(word, 64), z3.Float64())
                for word in (a, b)
            )
            results.append(z3.fpBVToFP(bits, z3.Float64()) == operation(z3.RNE(), a, b))
            return Sym(bits, obligations)

        return result

    element = formats.ELEMENTS["e2m1"]
    with patched(
        fast,
        make_number=lambda source: lambda x: x,
        multiply_float64=lambda a, b: a,
        float32_to_float64=lambda a: a,
        low_word=lambda a: a,
        divide_float64=lambda a, b: Sym(q, obligations),
        add_float64=arithmetic(z3.fpAdd),
        subtract_float64=arithmetic(z3.fpSub),
    ):
        got = inspect.unwrap(fast.make_scale)(FLOAT32, element, scale, rule)(q, q).value
    kept: dict[str, Any] = {}
    with patched(over, make_pack=lambda *how: kept.setdefault("pack", make_pack(*how))):
        over.make_float_scale(FLOAT32, element, scale, rule)
    exponent, significand = _leading_of_float64(q, scale.number.mantissa_bits + 2)
    zero = z3.BitVecVal(0, 64)
    want, safe = run(kept["pack"], zero, exponent, significand, zero, zero)
    finite = [q >= 0, q <= 0x7FF << 52, z3.Or(q == 0, q >= 1 << 52)]
    premises, goal = [*finite, *results], z3.And(got == want, *obligations, *safe)
    return prove(premises, goal, engines=("bitwuzla",), show=(q,))


def check_scale_digits(source: Any, scale: Any, over: Any = float_scale) -> Outcome:
    started, count = time.perf_counter(), [0]
    digits = scale.number.mantissa_bits + 2
    by_goal = {float_scale._number_of_code(e, e.max_code)[0]: e for e in formats.ELEMENTS.values()}

    def problems() -> Iterator[str]:
        for goal, element in by_goal.items():
            with patched(over, make_unpack=_unpack_once(), make_pack=_pack_nothing):
                find = over.make_float_scale(source, element, scale, FloatScaleRule.NEAREST)
            _, shift = float_scale._number_of_code(element, element.max_code)
            bits = source.mantissa_bits + 1, FLOAT32.mantissa_bits + 1
            unit = Fraction(2) ** (FLOAT32.mantissa_bits - source.mantissa_bits)
            low, high = (Fraction(1 << bits[0] - 1, 1 << bits[1]), Fraction(1 << bits[0], 1 << bits[1] - 1))
            for ratios, got in paths(find, bits, low, high):
                count[0] += 1
                if ratios.low > ratios.high or not _is_leading(got, ratios.times(unit / goal), digits, shift):
                    yield f"{element.name}: digits of {ratios.low} to {ratios.high} are not {got[1]:#b}"

    return _outcome(problems(), started, lambda: f"{count[0]} intervals of ratios")


def check_scale_digits_alone(source: Any, scale: Any, over: Any = float_scale) -> Outcome:
    """Without a tensor scale the divisor is one of few integers; by the solver, since the digits are too many."""
    by_goal = {float_scale._number_of_code(e, e.max_code)[0]: e for e in formats.ELEMENTS.values()}
    return together((e.name, partial(_digits_alone, source, e, scale, over)) for e in by_goal.values())


def _digits_alone(source: Any, element: Any, scale: Any, over: Any) -> Outcome:
    x, obligations = z3.BitVec("x", 64), list[z3.BoolRef]()
    real, is_source = over.make_unpack, iter((True, False))

    def make_unpack(source: Any, width: int) -> Any:
        return (lambda x: (0, 0, x, FINITE)) if next(is_source) else real(source, width)

    with patched(over, make_unpack=make_unpack, make_pack=_pack_nothing):
        find = over.make_float_scale(source, element, scale, FloatScaleRule.NEAREST)
    exponent, quotient = find(Sym(x, obligations), float_scale.ONE)
    goal, shift = float_scale._number_of_code(element, element.max_code)
    last, digits, wide = goal.bit_length() - 1, scale.number.mantissa_bits + 2, 160 - 64
    is_less = z3.SignExt(wide, -(exponent.value + shift + last))
    amount, found = z3.ZeroExt(wide, x), z3.ZeroExt(wide, quotient.value)
    whole, rest = z3.LShR(found, 1), found & 1
    # x / 2**mantissa over goal / 2**last, in units of its last digit, times goal * 2**mantissa
    exact = amount << (digits + last + is_less)
    low, high = (whole * goal) << source.mantissa_bits, ((whole + 1) * goal) << source.mantissa_bits
    right = [
        z3.ULE(is_less, 1),
        z3.UGE(whole, 1 << digits),
        z3.ULT(whole, 2 << digits),
        z3.ULT(exact, high),
        z3.If(rest == 0, exact == low, z3.UGT(exact, low)),
    ]
    premises = [z3.LShR(x, source.mantissa_bits) == 1]
    return prove(premises, z3.And(*right, *obligations), engines=("bitwuzla",), show=(x,))


def _unpack_once() -> Any:
    """The first to be unpacked has all exponents, the tensor scale 0."""
    exponents = iter((EXPONENTS, 0))

    def make(source: Any, width: int) -> Any:
        exponent = next(exponents)
        return lambda x: (0, exponent, x, FINITE)

    return make


# Between floats and real numbers


def check_first(from_on: bool, fast: Any = by_factors) -> Outcome:
    place, magnitude = z3.BitVec("place", 64), z3.BitVec("magnitude", 32)
    results, obligations = list[z3.BoolRef](), list[z3.BoolRef]()
    first = _bits_of_first(fast, from_on, Sym(place, obligations), results)
    single, double = z3.Float32(), z3.Float64()
    compare = z3.fpGEQ if from_on else z3.fpGT
    exact = compare(z3.fpFPToFP(z3.RNE(), z3.fpBVToFP(magnitude, single), double), z3.fpBVToFP(place, double))
    low = z3.Extract(31, 0, first)
    goal = z3.And((magnitude >= low) == exact, z3.SignExt(32, low) == first, *obligations)
    premises = [place >= 0, place < 0x7FF << 52, magnitude >= 0, magnitude <= FLOAT32.max_code, *results]
    return prove(premises, goal, engines=("bitwuzla",), show=(place, magnitude))


def check_doubled(target: Any, fast: Any = by_factors) -> Outcome:
    """Of all places and values that are doubled; the ends of factors are those that `prepare` asks for."""
    least, most = fast._DOUBLES_FROM, fast._DOUBLES_TO
    e2m1, roundings = formats.ELEMENTS["e2m1"], fast_paths.PLACES.roundings
    doubled = [place for rounding in roundings for place, _ in fast._places(e2m1, rounding)[2:4]]
    if not all(1 <= number <= 2 for number in (*doubled, e2m1.value(2), e2m1.value(3))):
        return Outcome("refuted", "-", 0.0, "what is doubled is not between the factor and its double")
    one = 1 << (FLOAT32.mantissa_bits - 32 + target.bits)
    ways: list[tuple[str, Any, int]] = [
        (f"first {from_on}", partial(_bits_of_first, fast, from_on), fast._DOUBLE) for from_on in (True, False)
    ]
    ways.append(("value", partial(_bits_of_value, fast, target), one))
    cases = []
    for name, bits_of, double in ways:
        for steps in (1, 2) if name != "value" else (-1, 1, 2):
            cases.append((f"{name} {steps}", partial(_doubled, bits_of, double, steps, least, most)))
    return together(cases)


def _doubled(bits_of: Any, double: int, steps: int, least: int, most: int) -> Outcome:
    number, results, obligations = z3.BitVec("number", 64), list[z3.BoolRef](), list[z3.BoolRef]()
    once = bits_of(Sym(number, obligations), results)
    changed = bits_of(Sym(number + (steps << 52), obligations), results)
    goal = z3.And(changed == once + steps * double, z3.Extract(31, 31, changed) == 0, once > 0)
    premises = [number >= least, number < most + (1 << 52), *results]
    return prove(premises, goal, engines=("bitwuzla",), show=(number,))


def _bits_of_first(fast: Any, from_on: bool, word: Sym, results: list[z3.BoolRef]) -> z3.BitVecRef:
    with patched(fast, **_conversions(results, word.obligations)):
        return inspect.unwrap(fast._first_from)(False)(word, from_on).value


def _bits_of_value(fast: Any, target: Any, word: Sym, results: list[z3.BoolRef]) -> z3.BitVecRef:
    with patched(fast, **_conversions(results, word.obligations)):
        return inspect.unwrap(fast.make_narrow)(target)(word).value


def _conversions(results: list[z3.BoolRef], obligations: list[z3.BoolRef]) -> dict[str, Any]:
    """Of floats into one another, to nearest even."""

    def converted(size: int, sort: Any, of: Any) -> Any:
        def convert(word: Sym) -> Sym:
            bits = z3.FreshConst(z3.BitVecSort(size), "converted")
            low = z3.Extract(of.ebits() + of.sbits() - 1, 0, word.value)
            results.append(z3.fpBVToFP(bits, sort) == z3.fpFPToFP(z3.RNE(), z3.fpBVToFP(low, of), sort))
            return Sym(z3.SignExt(64 - size, bits) if size < 64 else bits, obligations)

        return convert

    single, double, half = z3.Float32(), z3.Float64(), z3.Float16()
    return {
        "float64_to_float32": converted(32, single, double),
        "float32_to_float64": converted(64, double, single),
        "float32_to_float16": converted(16, half, single),
    }


def factor_bits(scale: Any) -> int:
    """Significant bits of a factor; scales that reach all numbers have no tensor scale."""
    alone = scale.name in formats._REACH_ALL
    return int(scale.number.mantissa_bits + 1 + (0 if alone else FLOAT32.mantissa_bits + 1))


def check_gap(fast: Any = by_factors) -> Outcome:
    started = time.perf_counter()

    def problems() -> Iterator[str]:
        for scale in SCALES:
            tensor = factor_bits(scale) - scale.number.mantissa_bits - 1
            products = [m + 3 + factor_bits(scale) for m in range(7)]
            products.append(scale.number.mantissa_bits + 3 + tensor + 7)  # (largest elements have 7 bits at most)
            if max(products) >= LEADING:
                yield f"{scale.name}: products of {max(products)} bits"
        x, p = z3.Ints("x p")
        for shift in range(-LEADING - 1, LEADING + 2):
            a, b = x * 2 ** max(shift, 0), p * 2 ** max(-shift, 0)
            within = [x >= 1, x < 2**LEADING, p >= 1, p < 2**LEADING, a != b]
            lesser, greater = z3.If(a < b, a, b), z3.If(a < b, b, a)
            solver = z3.Solver()
            solver.add(*within, (greater - lesser) * 2**LEADING < lesser)
            if solver.check() != z3.unsat:
                yield f"x 2**{shift} and p are too near"
        gap, rounded = 1 + Fraction(1, 2**LEADING), Fraction(1, 2**53)
        if not ((1 + rounded) / gap < 1 < (1 - rounded) * gap):
            yield "rounding reaches over the gap"
        # Of float64 numbers the leading bits are divided.
        magnitude, place = z3.BitVec("magnitude", 64), z3.BitVec("place", 64)
        kept, safe = run(fast.make_number(formats.FLOATS["float64"]), magnitude)
        below, above = (kept < place) == (magnitude < place), (kept > place) == (magnitude > place)
        normal = [
            place >= 0,
            place < 0x7FF << 52,
            place & 63 == 0,
            magnitude >= by_factors._TINY,
            magnitude < 0x7FF << 52,
        ]
        if prove(normal, z3.And(below, above, *safe)).verdict != "proved":
            yield "the leading bits of float64 numbers lie on another side"

    outcome = _outcome(problems(), started, lambda: "")
    return replace(outcome, solver="z3")


def check_exact(scale: Any, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    started, number = time.perf_counter(), scale.number

    def problems() -> Iterator[str]:
        goals = [7] * (factor_bits(scale) > number.mantissa_bits + 1)
        if factor_bits(scale) + 8 > 53 or any(FLOAT32.mantissa_bits + 1 + bits > 53 for bits in goals):
            yield "products of more than 53 bits"
        lowest, highest = (2.0**-149, FLOAT32.max) if goals else (1.0, 1.0)  # of tensor scales, where there are any
        least, greatest = number.value(1) * lowest, number.max * highest
        if not (least > 2.0**-200 and greatest < 2.0**200):
            yield "factors, or quotients by them, are no normal float64 numbers"
        codes = np.arange(0, scale.max_code + 1)
        bits = fast.make_number_of_scale(scale)(codes)
        if [float(v) for v in bits.view(np.float64)] != [number.value(int(code)) for code in codes]:
            yield "scales are not their numbers"
        no_numbers = np.array([0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF])[:, None]
        factors = inspect.unwrap(fast._make_factor)(scale)
        beyond = np.arange(scale.max_code + 1, 1 << (number.bits - 1))
        if not (np.all(factors(codes, no_numbers) >= fast._HUGE) and np.all(factors(beyond, 0 * beyond) >= fast._HUGE)):
            yield "what is no number is taken for one"
        width = over.factor_width(scale)
        one = FLOAT32.mantissa_bits + 1
        for code in codes.tolist():
            with patched(over, make_unpack=_unpack_tensor(over.make_unpack)):
                factor = inspect.unwrap(over.make_factor)(scale)

            def normalized(_: Form, tensor: Form, factor: Any = factor, code: int = code) -> Any:
                exponent, total, kind = factor(code, tensor)
                return exponent, total, kind, total < (1 << width), total < (1 << width + 1)

            for _, (exponent, total, kind, is_low, is_high) in paths(
                normalized, (one, one), Fraction(1, 2), Fraction(2)
            ):
                if code == 0:
                    is_right = isinstance(total, int) and total == 0 and kind == FINITE
                else:
                    value = total.b * Fraction(2) ** (int(exponent[0] - EXPONENTS[0]) - width + FLOAT32.mantissa_bits)
                    is_right = value == Fraction(number.value(code)) and not is_low and is_high and kind == FINITE
                    is_right = is_right and bool(np.all(exponent - exponent[0] == EXPONENTS - EXPONENTS[0]))
                if not is_right:
                    yield f"the factor of code {code}"

    return replace(_outcome(problems(), started, lambda: ""), solver="sweep")


def check_exact_alone(scale: Any, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    """Without a tensor scale, by the solver: of more codes than can be gone through."""
    code, results, obligations = z3.BitVec("code", 64), list[z3.BoolRef](), list[z3.BoolRef]()

    def subtract(a: Sym, b: int) -> Sym:
        bits = z3.FreshConst(z3.BitVecSort(64), "difference")
        a, b = z3.fpBVToFP(a.value, z3.Float64()), z3.fpBVToFP(z3.BitVecVal(b, 64), z3.Float64())
        results.append(z3.fpBVToFP(bits, z3.Float64()) == z3.fpSub(z3.RNE(), a, b))
        return Sym(bits, obligations)

    with patched(fast, subtract_float64=subtract):
        got = inspect.unwrap(fast.make_number_of_scale)(scale)(Sym(code, obligations)).value
    words = code, z3.BitVecVal(float_scale.ONE, 64)
    (exponent, significand, kind), safe = run(inspect.unwrap(over.make_factor)(scale), *words)
    width, one = over.factor_width(scale), z3.BitVecVal(1, 64)
    fraction = (significand - (one << width)) << (52 - width)
    want = z3.If(significand == 0, z3.BitVecVal(0, 64), ((exponent + 1023) << 52) + fraction)
    normal = z3.Or(significand == 0, z3.LShR(significand, width) == 1)
    premises = [code >= 0, code <= scale.max_code, *results]
    goal = z3.And(got == want, normal, kind == FINITE, *obligations, *safe)
    return prove(premises, goal, engines=("bitwuzla",), show=(code,))


def _unpack_tensor(make_unpack: Any) -> Any:
    """The tensor scale is a form, of any exponent; the scale is unpacked as it is."""
    count = iter((False, True))

    def make(source: Any, width: int) -> Any:
        return (lambda x: (0, EXPONENTS, x, FINITE)) if next(count) else make_unpack(source, width)

    return make


# Values


@dataclass(frozen=True)
class _Product:
    """A number times the factor, before it is rounded; with the sign that was put before it."""

    number: Fraction
    sign: int = 0

    def __or__(self, sign_bit: int) -> _Product:
        return _Product(self.number, int(sign_bit != 0))

    __ror__ = __or__

    def __add__(self, doublings: int) -> _Product:
        return replace(self, number=self.number * DOUBLED[doublings]) if doublings else self

    def __sub__(self, doublings: int) -> _Product:
        return replace(self, number=self.number / DOUBLED[doublings])


def check_values(element: Any, target: Any, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    """That both ways multiply the factor by the same number, exactly; `check_narrowed` is about the rounding."""
    started, count = time.perf_counter(), [0]

    def problems() -> Iterator[str]:
        pack = make_pack(target, Rounding.RNE, Overflow.IEEE, target.mantissa_bits + 1, float_scale.WORD)
        ways = [_values(fast, element, target), *_tables_of_values(fast, element, target)]
        for scale, code in product(SCALES, range(1 << element.bits)):
            wanted: list[Any] = []
            for at, sign, exponent, total, kind in _defined_products(over, element, target, scale, code):
                if kind != FINITE:
                    wanted.append(int(pack(sign, 0, 0, kind, 0)) % (1 << target.bits))
                    continue
                is_form, down = isinstance(total, Form), exponent - at + over.factor_width(scale)
                wanted.append(_Product(total.b * Fraction(2) ** down if is_form else Fraction(total), int(sign)))
            count[0] += 1
            for way in ways:
                got = way(code)
                got = got if isinstance(got, _Product) else int(got) % (1 << target.bits)
                if any(got != want for want in wanted) or not wanted:
                    yield f"code {code:#x}: {got}, not {wanted}"

    return replace(_outcome(problems(), started, lambda: f"{count[0]} codes"), solver="sweep")


def _defined_products(over: Any, element: Any, target: Any, scale: Any, code: int) -> Iterator[Any]:
    """(where the leading bit is, sign, exponent, significand, kind) of a code times any factor."""
    with patched(over, make_pack=lambda *how: lambda *packed: (how[3], *packed[:4])):
        decode = over.make_decode_over(element, scale, target)

    def on_forms(_: Form, factor: Form) -> Any:
        return decode(code, 0, factor, FINITE)

    for _, packed in paths(on_forms, (1, over.factor_width(scale) + 1), Fraction(0), Fraction(1)):
        yield packed


def _multiply(a: Any, b: Any) -> Any:
    """The factor is any object; the other is bits of a number."""
    bits = a if isinstance(a, int | np.integer) else b
    number = float(np.int64(bits).view(np.float64))
    return _Product(Fraction(number)) if np.isfinite(number) else None


def _values(fast: Any, element: Any, target: Any) -> Callable[[int], Any]:
    names = {"multiply_float64": _multiply, "make_narrow": lambda target: _unchanged}

    def value(code: int) -> Any:
        with patched(fast, wide=lambda word: word, **names):
            return inspect.unwrap(fast._make_value_of)(element, target)(code, "factor")

    return value


def _tables_of_values(fast: Any, element: Any, target: Any) -> list[Callable[[int], Any]]:
    """Values that are made for each block, and chosen by comparisons, or by the code."""
    ways: list[Callable[[int], Any]] = []
    if element in BY_PLACES:
        ways.append(partial(_value_by_places, fast, element, target))
    if element.bits == 4 and not element.integer and target == FLOAT32:
        ways.append(partial(_value_by_code, fast, element))
    return ways


def _value_by_places(fast: Any, element: Any, target: Any, code: int) -> Any:
    """Of a size beyond as many places as the code says; the comparisons are those of codes."""
    magnitude, sign = _magnitude_of(element, code)
    if magnitude > element.max_code:  # the most negative integer is never produced
        return _values(fast, element, target)(code)
    size = Size(Ratios(Fraction(element.value(magnitude)), Fraction(element.value(magnitude))), sign)
    with _on_products(fast), patched(fast.as_float32, make_widen=lambda source: lambda x: x):
        made = inspect.unwrap(_by_places(fast, target, element))(target, element, SCALES[0], Rounding.RNE, target)
        table: dict[int, Any] = {}
        made.prepare("factor", 0, table, 0, 1)
        for place, value in table.items():
            table[place] = Place(value.number)
        made.prepare_more("factor", 0, table, 0, 1)
        return _zeros_too(made.element(size, made.at(table, 0, 1), 0))


def _magnitude_of(element: Any, code: int) -> tuple[int, int]:
    sign, half = code >> (element.bits - 1), 1 << (element.bits - 1)
    return (2 * half - code if sign else code) if element.integer else code % half, sign


def _value_by_code(fast: Any, element: Any, code: int) -> Any:
    with _on_products(fast):
        made, table = inspect.unwrap(fast._by_values)(element, SCALES[0]), dict[int, Any]()
        made.prepare("factor", 0, table, 0, 1)
        return _zeros_too(made.element(code, made.at(table, 0, 1), 0))


def _zeros_too(value: Any) -> Any:
    return value if isinstance(value, _Product) else _Product(Fraction(0), int(value != 0))


def _unchanged(number: Any) -> Any:
    return number


def _on_products(fast: Any) -> Any:
    return patched(
        fast,
        _make_factor=lambda scale: lambda code, tensor: _Factor(),
        _first_from=lambda is_wide: lambda place, from_on: place,
        multiply_float64=_multiply,
        float64_to_float32=_unchanged,
        make_narrow=lambda target: _unchanged,
        store=lambda table, index, value: table.__setitem__(index, value),
        load=lambda table, index: table[index],
    )


class _Factor:
    """Some factor that is not zero."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __lt__(self, other: int) -> bool:
        return True

    def __ge__(self, other: int) -> bool:
        return True


def check_narrowed(target: Any, fast: Any = by_factors) -> Outcome:
    """Of numbers with as many bits as products have: by the processor, and by packing."""
    widths = {element + 1 + float_scale.factor_width(scale) for element in range(7) for scale in SCALES}
    widths = {max(width, target.mantissa_bits + 1) for width in widths}
    return together((f"{width} bits", partial(_narrowed, target, width, fast)) for width in sorted(widths))


def _narrowed(target: Any, width: int, fast: Any) -> Outcome:
    p, results, obligations = z3.BitVec("product", 64), list[z3.BoolRef](), list[z3.BoolRef]()
    got = _bits_of_value(fast, target, Sym(p, obligations), results)
    fraction, zero = (p & ((1 << 52) - 1)) | (1 << 52), z3.BitVecVal(0, 64)
    significand = z3.LShR(fraction, 52 - width) if width < 52 else fraction << (width - 52)
    exponent = z3.If(p == 0, z3.BitVecVal(ZERO_EXPONENT, 64), z3.LShR(p, 52) - 1023)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, width, float_scale.WORD)
    want, safe = run(pack, zero, exponent, z3.If(p == 0, zero, significand), zero, zero)
    premises = [p >= 0, p < (1023 + 700) << 52, z3.Or(p == 0, p >= (1023 - 1000) << 52), *results]
    if width < 52:
        premises.append(p & ((1 << (52 - width)) - 1) == 0)
    mask = (1 << target.bits) - 1 if target.bits < 64 else -1
    goal = z3.And(got & mask == want & mask, *obligations, *safe)
    return prove(premises, goal, engines=("bitwuzla",), show=(p,))


def theorems() -> list[Theorem]:
    return [*_element_theorems(), *_value_theorems(), *_scale_theorems(), *_other_theorems()]


def _element_theorems() -> Iterator[Theorem]:
    e4m3 = formats.SCALES["e4m3"]
    for source, element, rounding in product(formats.FLOATS.values(), BY_PLACES, BY_PLACES_ROUNDINGS):
        encode = float_scale.make_encode_over(source, element, e4m3, rounding, Overflow.SATURATE)
        made = by_factors.by_places(source, element, e4m3, rounding, None)
        cases = [(scale.name, partial(check_places, source, element, scale, rounding)) for scale in SCALES]
        yield Theorem(
            name=f"factors/places/{source.name}/{element.name}/{rounding}",
            statement=PLACES,
            kernels=("by_places", encode.__name__),
            check=partial(together, cases),
            hypotheses=(FACTOR, "the scale is any float that scales are"),
            functions=(made.prepare, made.at, made.element, encode),
        )
    for source, mantissa_bits in product(formats.FLOATS.values(), range(7)):
        element = formats.ElementFormat("any", 7 - mantissa_bits, mantissa_bits, 1)
        yield Theorem(
            name=f"factors/digits/{source.name}/m{mantissa_bits}",
            statement=DIVIDED,
            kernels=("make_encode_over",),
            check=partial(check_digits, source, mantissa_bits),
            hypotheses=(FACTOR, "the element is any with so many mantissa bits, and the scale any float"),
            functions=(float_scale.make_encode_over(source, element, e4m3, Rounding.RNE, Overflow.SATURATE),),
        )
    for element, rounding, overflow in product(formats.ELEMENTS.values(), QUOTIENT_ROUNDINGS, Overflow):
        if overflow == Overflow.IEEE and element.specials == "none":
            continue
        encode = float_scale.make_encode_over(FLOAT32, element, e4m3, rounding, overflow)
        divided = by_factors.by_quotients(FLOAT32, element, e4m3, rounding, overflow, None)
        assert divided is not None
        yield Theorem(
            name=f"factors/rounded/{element.name}/{rounding}/{overflow}",
            statement=ROUNDED,
            kernels=("by_quotients", encode.__name__),
            check=partial(check_rounded, element, rounding, overflow),
            hypotheses=(
                "the quotient is any float64 number but a subnormal one, infinity included",
                "made by to_odd and the definition of float32, which narrowing/conversion and magic/code are about",
            ),
            functions=(divided.prepare, divided.at, divided.element, encode, as_float32.to_odd),
        )


def _value_theorems() -> Iterator[Theorem]:
    for element, target in product(formats.ELEMENTS.values(), formats.FLOATS.values()):
        defined = float_scale.make_decode_over(element, SCALES[0], target)
        fast = by_factors.decoding(element, SCALES[0], target)
        assert fast is not None
        functions = [fast.prepare, fast.at, fast.element, by_factors._make_value_of(element, target), defined]
        if element in BY_PLACES:
            made = by_factors.by_places(target, element, SCALES[0], Rounding.RNE, target)
            functions += [made.prepare, made.at, made.element]
        yield Theorem(
            name=f"factors/values/{element.name}/{target.name}",
            statement=VALUES,
            kernels=("decoding", defined.__name__),
            check=partial(check_values, element, target),
            hypotheses=("the factor is any finite number but zero, which makes zeros, of every scale",),
            functions=tuple(functions),
        )
    for target in formats.FLOATS.values():
        example = float_scale.make_decode_over(formats.ELEMENTS["e2m1"], SCALES[0], target)
        yield Theorem(
            name=f"factors/narrowed/{target.name}",
            statement=NARROWED,
            kernels=(by_factors.make_narrow(target).__name__, "make_pack"),
            check=partial(check_narrowed, target),
            hypotheses=(
                "the product is zero or any normal float64 number of so many bits",
                "conversions round to even",
            ),
            functions=(by_factors.make_narrow(target), example),
        )


def _scale_theorems() -> Iterator[Theorem]:
    e2m1 = formats.ELEMENTS["e2m1"]
    for scale, rule in product(SCALES, FOUND_BY):
        fast, defined = (
            make(FLOAT32, e2m1, scale, rule) for make in (by_factors.make_scale, float_scale.make_float_scale)
        )
        yield Theorem(
            name=f"factors/scale/{scale.name}/{rule}",
            statement=FOUND,
            kernels=(fast.__name__, defined.__name__),
            check=partial(check_found, scale, rule),
            hypotheses=(
                "the quotient is any float64 number but a subnormal one, infinity included",
                "float64 sums and differences round to nearest even",
            ),
            functions=(fast, defined),
        )
    for source, scale in product(formats.FLOATS.values(), SCALES):
        is_alone = scale.number.mantissa_bits > MOST_DIGITS
        defined = float_scale.make_float_scale(source, e2m1, scale, FloatScaleRule.NEAREST)
        yield Theorem(
            name=f"factors/scale-digits/{source.name}/{scale.name}",
            statement=DIVIDED_FOR_SCALES,
            kernels=("make_float_scale",),
            check=partial(check_scale_digits_alone if is_alone else check_scale_digits, source, scale),
            hypotheses=(
                "the largest magnitude is any finite number, the element one of the eight",
                "there is no tensor scale" if is_alone else "the tensor scale is any without sign",
            ),
            functions=(defined,),
        )


def _other_theorems() -> Iterator[Theorem]:
    for from_on, name in ((True, "at"), (False, "above")):
        yield Theorem(
            name=f"factors/first/{name}",
            statement=FIRST,
            kernels=("_first_from",),
            check=partial(check_first, from_on),
            hypotheses=("the float64 number is any finite one without sign", "conversions round to nearest even"),
            functions=(by_factors._first_from(False),),
        )
    for target in (FLOAT32, formats.FLOATS["bfloat16"]):
        yield Theorem(
            name=f"factors/doubled/{target.name}",
            statement=DOUBLED_NUMBERS,
            kernels=("_first_from", by_factors.make_narrow(target).__name__),
            check=partial(check_doubled, target),
            hypotheses=("the number is any from the least factor on and below twice the greatest", CONVERSIONS),
            functions=(by_factors._first_from(False), by_factors.make_narrow(target)),
        )
    for scale in SCALES:
        is_alone = scale.number.bits > 16
        functions = float_scale.make_factor(scale), by_factors._make_factor(scale)
        yield Theorem(
            name=f"factors/exact/{scale.name}",
            statement=EXACT,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_exact_alone if is_alone else check_exact, scale),
            hypotheses=("there is no tensor scale" if is_alone else "the tensor scale is any without sign",),
            functions=functions,
        )
    yield Theorem(
        name="factors/gap",
        statement=GAP,
        kernels=("divide_float64", "make_number"),
        check=check_gap,
        hypotheses=("quotients are rounded to nearest even", "dividends of float64 have their leading 48 bits"),
        functions=tuple(by_factors.make_number(source) for source in formats.FLOATS.values()),
    )

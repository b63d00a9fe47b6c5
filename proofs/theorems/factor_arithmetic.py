"""Float scales: the float operations of fast formulations agree with exact arithmetic.

Products are exact. A float32 threshold replaces a float64 product: comparing float32 numbers with
either of them gives the same results. A quotient rounded to 53 bits lies on the same side of every
threshold as the exact quotient.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import z3

from mxnum import formats
from mxnum.definition import float_scale
from mxnum.definition.unpack import FINITE
from mxnum.engine.rounding import by_factors
from mxnum.engine.rounding import paths as fast_paths
from mxnum.prove.sym import Sym, run
from proofs.machines.checks import outcome_of, patched
from proofs.machines.ratios import EXPONENTS, Form, paths
from proofs.machines.solve import follows, prove, together
from proofs.specs.float_scales import FLOAT32, SCALES, unpacking
from proofs.theorem import Outcome, Theorem

GAP = (
    "A float64 quotient lies on the same side of every threshold (below, at or above) as the exact quotient. The "
    "dividend and the product of threshold and divisor have at most 48 bits each. If they differ, they differ by at "
    "least 2**-48 of the smaller one. Rounding changes a quotient by at most 2**-53 of itself, which is too little to "
    "cross a threshold."
)
EXACT = (
    "The float64 product of scale and tensor scale is the factor of the definition. Nonzero factors are between "
    "2**-200 and 2**200. At most 53 bits are needed for a factor, for its product with a threshold or value of an "
    "element, and for the product of a tensor scale and the largest value of an element. So all these products are "
    "exact, and neither they nor quotients by them are subnormal. If a scale of at most 16 bits or a tensor scale is "
    "infinite or NaN, the fast formulation returns a number above every finite factor."
)
FIRST = (
    "`_first_from` returns the bits of the least float32 magnitude at or above (or strictly above) a float64 number. "
    "Comparing the bits of a finite float32 magnitude with these bits gives the same result as comparing the two "
    "numbers."
)
DOUBLED_NUMBERS = (
    "Take any factor that `by_doublings` accepts, and a threshold that is this factor times a constant. Let y be the "
    "first float32 number at or above (or strictly above) the threshold. Adding 1 to the exponent field of y gives the "
    "first such number for twice the threshold. In the same way, adding 1 to the exponent field of a rounded value "
    "gives the rounded double. Adding 2 doubles twice, and subtracting 1 from the exponent field of a rounded value "
    "halves it. All results fit in 31 bits."
)
CONVERSIONS = "conversions between float types round to nearest even"
#: The number of bits to which fast formulations round a float64 dividend. They round to odd.
LEADING = 48


def check_first(from_on: bool, fast: Any = by_factors) -> Outcome:
    """Prove the statement `FIRST`, with "at or above" if `from_on` is True, else with "above"."""
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
    """Prove the statement `DOUBLED_NUMBERS` for a float type.

    The proof covers every nonzero factor that `prepare` of the fast formulation accepts.
    """
    least, most = fast._DOUBLES_FROM, fast._DOUBLES_TO
    e2m1, roundings = formats.ELEMENTS["e2m1"], fast_paths.PLACES.roundings
    doubled = [place for rounding in roundings for place, _ in fast._places(e2m1, rounding)[2:4]]
    if not all(1 <= number <= 2 for number in (*doubled, e2m1.value(2), e2m1.value(3))):
        return Outcome("refuted", "-", 0.0, "before doubling, a threshold or value is not from factor to 2 * factor")
    one = 1 << (FLOAT32.mantissa_bits - 32 + target.bits)
    ways: list[tuple[str, Any, int]] = [
        (f"first {from_on}", partial(_bits_of_first, fast, from_on), fast._DOUBLE) for from_on in (True, False)
    ]
    ways.append(("value", partial(bits_of_value, fast, target), one))
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


def bits_of_value(fast: Any, target: Any, word: Sym, results: list[z3.BoolRef]) -> z3.BitVecRef:
    """Return the 32 bits to which the function from `fast.make_narrow` rounds a float64 number."""
    with patched(fast, **_conversions(results, word.obligations)):
        return inspect.unwrap(fast.make_narrow)(target)(word).value


def _conversions(results: list[z3.BoolRef], obligations: list[z3.BoolRef]) -> dict[str, Any]:
    """Return functions that convert float types, rounding to nearest even."""

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


def _factor_bits(scale: Any) -> int:
    """Return the number of significant bits of a factor.

    A factor is a scale, multiplied by a tensor scale if the scale format allows one.
    """
    alone = scale.name in formats._REACH_ALL
    return int(scale.number.mantissa_bits + 1 + (0 if alone else FLOAT32.mantissa_bits + 1))


def check_gap(fast: Any = by_factors) -> Outcome:
    """Prove the statement `GAP` for all scales."""

    def problems() -> Iterator[str]:
        for scale in SCALES:
            tensor = _factor_bits(scale) - scale.number.mantissa_bits - 1
            products = [m + 3 + _factor_bits(scale) for m in range(7)]
            # The largest value of every element has at most 7 significant bits.
            products.append(scale.number.mantissa_bits + 3 + tensor + 7)
            if max(products) >= LEADING:
                yield f"{scale.name}: a product has {max(products)} bits"
        x, p = z3.Ints("x p")
        for shift in range(-LEADING - 1, LEADING + 2):
            a, b = x * 2 ** max(shift, 0), p * 2 ** max(-shift, 0)
            within = [x >= 1, x < 2**LEADING, p >= 1, p < 2**LEADING, a != b]
            lesser, greater = z3.If(a < b, a, b), z3.If(a < b, b, a)
            if not follows((greater - lesser) * 2**LEADING >= lesser, *within):
                yield f"x * 2**{shift} and p can be too close together"
        gap, rounded = 1 + Fraction(1, 2**LEADING), Fraction(1, 2**53)
        if not ((1 + rounded) / gap < 1 < (1 - rounded) * gap):
            yield "rounding can move a quotient across a threshold"
        # Fast formulations round float64 dividends to odd, which must not cross a threshold.
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
            yield "rounding a float64 dividend to odd moves it across a threshold"

    return outcome_of(problems(), "z3")


def check_exact(scale: Any, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    """Check the statement `EXACT` for every scale code, and for the extremes of tensor scales."""
    number = scale.number

    def problems() -> Iterator[str]:
        goals = [7] * (_factor_bits(scale) > number.mantissa_bits + 1)
        if _factor_bits(scale) + 8 > 53 or any(FLOAT32.mantissa_bits + 1 + bits > 53 for bits in goals):
            yield "a product has more than 53 bits"
        # The ends of the range of tensor scales, or 1 if there is no tensor scale.
        lowest, highest = (2.0**-149, FLOAT32.max) if goals else (1.0, 1.0)
        least, greatest = number.value(1) * lowest, number.max * highest
        if not (least > 2.0**-200 and greatest < 2.0**200):
            yield "a factor is not between 2**-200 and 2**200"
        codes = np.arange(0, scale.max_code + 1)
        bits = fast.make_number_of_scale(scale)(codes)
        if [float(v) for v in bits.view(np.float64)] != [number.value(int(code)) for code in codes]:
            yield "a scale code is converted to the wrong float64 number"
        no_numbers = np.array([0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF])[:, None]
        factors = inspect.unwrap(fast._make_factor)(scale)
        beyond = np.arange(scale.max_code + 1, 1 << (number.bits - 1))
        if not (np.all(factors(codes, no_numbers) >= fast._HUGE) and np.all(factors(beyond, 0 * beyond) >= fast._HUGE)):
            yield "an infinite or NaN scale or tensor scale is taken for a number"
        width = over.factor_width(scale)
        one = FLOAT32.mantissa_bits + 1
        for code in codes.tolist():
            with patched(over, make_unpack=unpacking(over.make_unpack, None, EXPONENTS)):
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
                    yield f"the factor of scale code {code} is wrong"

    return outcome_of(problems(), "sweep")


def check_exact_alone(scale: Any, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    """Prove `EXACT` with a solver, for a scale format that has too many codes to try them all."""
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


def theorems() -> Iterator[Theorem]:
    for from_on, name in ((True, "at"), (False, "above")):
        yield Theorem(
            name=f"factors/first/{name}",
            statement=FIRST,
            kernels=("_first_from",),
            check=partial(check_first, from_on),
            hypotheses=("the float64 number is any finite number whose sign bit is 0", CONVERSIONS),
            functions=(by_factors._first_from(False),),
        )
    for target in (FLOAT32, formats.FLOATS["bfloat16"]):
        yield Theorem(
            name=f"factors/doubled/{target.name}",
            statement=DOUBLED_NUMBERS,
            kernels=("_first_from", by_factors.make_narrow(target).__name__),
            check=partial(check_doubled, target),
            hypotheses=(
                "the threshold or value is any float64 number from the least accepted factor to below twice the limit",
                CONVERSIONS,
            ),
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
            hypotheses=(
                "scales are float32, and the tensor scale is 1"
                if is_alone
                else "scales are not float32, and the tensor scale is any positive float32 (1 with bfloat16 scales)",
            ),
            functions=functions,
        )
    yield Theorem(
        name="factors/gap",
        statement=GAP,
        kernels=("divide_float64", "make_number"),
        check=check_gap,
        hypotheses=(
            "float64 quotients are rounded to nearest even",
            "float64 dividends are first rounded to odd, to 48 bits",
        ),
        functions=tuple(by_factors.make_number(source) for source in formats.FLOATS.values()),
    )

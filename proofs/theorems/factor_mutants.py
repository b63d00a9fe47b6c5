"""Check that proofs fail after a mistake in the definition or a fast version of float scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from mxnum.definition import float_scale, pack
from mxnum.engine.rounding import by_factors
from mxnum.formats import ELEMENTS, FLOATS, SCALES
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from proofs.mutants.modules import given_as, stated
from proofs.theorem import Outcome, Theorem
from proofs.theorems import (
    factor_arithmetic,
    factor_places,
    factor_quotients,
    factor_scales,
    factor_values,
    float_definition,
)

STATEMENT = (
    "A mistake planted in a fast formulation for float scales, or in their definition, is found: the theorem about the "
    "changed function is refuted."
)
MODULES = {"fast": by_factors, "over": float_scale, "pack_module": pack}
FLOAT32, E4M3 = FLOATS["float32"], SCALES["e4m3"]


def places(element: str, rounding: str) -> Callable[..., Outcome]:
    """Return a function that checks the statement `PLACES` for the changed module."""
    return partial(factor_places.check_places, FLOAT32, ELEMENTS[element], E4M3, Rounding(rounding))


def rounded(element: str, rounding: str) -> Callable[..., Outcome]:
    """Return a function that checks the statement `ROUNDED` for the changed module."""
    return partial(factor_quotients.check_rounded, ELEMENTS[element], Rounding(rounding), Overflow.SATURATE)


def found(rule: FloatScaleRule) -> Callable[..., Outcome]:
    """Return a function that checks the statement `FOUND` for the changed module."""
    return partial(factor_scales.check_found, E4M3, rule)


def packed(element: str, rounding: str) -> Callable[..., Outcome]:
    """Return a function that checks the statement `PACKED` for a changed module `pack`."""
    number, mode = ELEMENTS[element], Rounding(rounding)
    digits = number.mantissa_bits + (31 if mode.is_stochastic else 2)

    def theorem(pack_module: ModuleType) -> Outcome:
        return float_definition.check_packed(number, ((mode, Overflow.SATURATE),), digits, pack_module.make_pack)

    return theorem


DIGITS = partial(factor_quotients.check_digits, FLOAT32, 3)
SCALE_DIGITS = partial(factor_scales.check_scale_digits, FLOAT32, E4M3)
EXACT = partial(factor_arithmetic.check_exact, E4M3)
VALUES, VALUES_OF_E3M0 = (partial(factor_values.check_values, ELEMENTS[name], FLOAT32) for name in ("e2m1", "e3m0"))
TENSOR = partial(float_definition.check_tensor, FLOAT32)
UP = FloatScaleRule.RCEIL

#: (name, a key of `MODULES`, text, its replacement, the check that must refute the changed module)
MUTANTS: tuple[tuple[str, str, str, str, Callable[..., Outcome]], ...] = (
    ("ties-to-odd", "fast", "code % 2 == 0))", "code % 2 == 1))", places("e2m1", "rne")),
    ("places-of-truncation", "fast", "made.append((high, True))", "made.append((high, False))", places("e2m1", "rtz")),
    ("values-rounded-to-odd", "fast", "made.append((low, False))", "made.append((low, True))", places("e2m1", "rto")),
    ("tie-away-excluded", "fast", "nearest_away or code", "code", places("e3m0", "rna")),
    ("sign-bit", "fast", "code | (sign & 8)", "code | (sign & 4)", places("e3m0", "rne")),
    ("no-twos-complement", "fast", "((code ^ sign) - sign) & 15", "(code ^ sign) & 15", places("int4", "rne")),
    ("no-last-place", "fast", "select(lower, c[4], c[6])", "select(lower, c[4], c[5])", places("e3m0", "rne")),
    ("factor-zero", "fast", "select(factor == 0, NEVER, first_from(multiply_float64(factor, place), INCLUSIVE))",
     "first_from(multiply_float64(factor, place), INCLUSIVE)", places("int4", "rne")),
    ("doubled-of-zero", "fast", "select(is_zero, _NEVER, fourth)", "fourth", places("e2m1", "rne")),
    ("doubled-once", "fast", "select(lower, _DOUBLE, 2 * _DOUBLE)", "_DOUBLE", places("e2m1", "rtz")),
    ("doubled-sign", "fast", "((x >> 31) & 8)", "((x >> 31) & 4)", places("e2m1", "rto")),
    ("not-halved", "fast", "unit - DOUBLE_VALUE", "unit", VALUES),
    ("doubled-too-small", "fast", "(_BIAS - 125)", "(_BIAS - 127)", partial(factor_arithmetic.check_doubled, FLOAT32)),
    ("doubled-too-large", "fast", "(_BIAS + 125)", "(_BIAS + 127)", partial(factor_arithmetic.check_doubled, FLOAT32)),
    ("first-at", "fast", "select(back < place, 1, 0) if", "select(back > place, 1, 0) if",
     partial(factor_arithmetic.check_first, True)),
    ("first-above", "fast", "select(back <= place, 1, 0)", "select(back < place, 1, 0)",
     partial(factor_arithmetic.check_first, False)),
    ("quotient-sign", "fast", "((wide(x) >> SIGN_DOWN) & 1) << 31", "((wide(x) >> SIGN_DOWN) & 0) << 31",
     rounded("e4m3", "rtp")),
    ("leading-without-rest", "fast", "select((magnitude & 31) == 0, 0, 32)", "select((magnitude & 31) == 0, 0, 0)",
     factor_arithmetic.check_gap),
    ("scale-up-always", "fast", "(total, magic) < quotient", "(total, magic) <= quotient",
     found(UP)),
    ("scale-unbounded", "fast", "return select(code > MAX, MAX, code)", "return code", found(FloatScaleRule.NEAREST)),
    ("scale-digit-less", "fast", "(field + (_MANTISSA - MANTISSA))", "(field + (_MANTISSA - MANTISSA) + 1)",
     found(FloatScaleRule.NEAREST)),
    ("scale-subnormals", "fast", "select(field < EMIN, EMIN, field)", "field", found(FloatScaleRule.NEAREST)),
    ("scale-number", "fast", "subnormal, moved + REBIAS", "subnormal, moved + LEAST", EXACT),
    ("nan-as-scale", "fast", "select(code > LIMIT, _NEVER_WIDE, ", "select(code > LIMIT, 0, ", EXACT),
    ("value-of-another", "fast", "(value, _bits(element.value(code)))", "(value, _bits(element.value(max(code, 2))))",
     VALUES_OF_E3M0),
    ("values-chosen", "fast", "select(odd, c[first + 1], c[first + 2])", "select(odd, c[first + 2], c[first + 1])",
     VALUES),
    ("value-sign", "fast", "& select(magnitude > 0x7F800000, 0, 1)", "& 0", VALUES),
    ("narrowed-twice", "fast", "return below | select(back == number, 0, 1)", "return near",
     partial(factor_values.check_narrowed, FLOATS["bfloat16"])),
    ("value-digit", "over", "total << (lowered + UP)", "total << UP", VALUES),
    ("no-rest", "over", "(quotient << 1) | select(rest == 0, 0, 1)", "quotient << 1", DIGITS),
    ("rest-of-nothing", "over", "(quotient << 1) | select(rest == 0, 0, 1)", "(quotient << 1) | 1", DIGITS),
    ("less-or-equal", "over", "select(rest < divisor, 1, 0)", "select(divisor < rest, 0, 1)", DIGITS),
    ("digit-short", "over", "if rounding.is_stochastic else 2", "if rounding.is_stochastic else 0",
     places("e2m1", "rne")),
    ("quotient-exponent", "over", "exponent = exponent_a - exponent_b - is_less", "exponent = exponent_a - exponent_b",
     places("e2m1", "rtz")),
    ("divisor-exponent", "over", "EXPONENT + GOAL_BITS - lowered", "EXPONENT + GOAL_BITS", SCALE_DIGITS),
    ("divisor-not-lowered", "over", "quotient = divide(exponent, significand, exponent_d, divisor << lowered)",
     "quotient = divide(exponent, significand, exponent_d, divisor << 1)", SCALE_DIGITS),
    ("scale-not-up", "over", "Rounding.RTP if rule.rounds_up else Rounding.RNE", "Rounding.RNE", found(UP)),
    ("tensor-of-zeros", "over", "select(significand == 0, ONE,", "select(significand == 0, 0,", TENSOR),
    ("tensor-zero", "over", "select(code < LEAST, LEAST, code))", "code)", TENSOR),
    ("tensor-divisor", "over", "DIVISOR = exponent_of_greatest + exponent_of_scale, greatest * greatest_scale",
     "DIVISOR = exponent_of_greatest + exponent_of_scale, greatest_scale", TENSOR),
    ("tensor-digit-less", "over", "make_divide(source.mantissa_bits, DIVISOR_WIDTH, mantissa + 2)",
     "make_divide(source.mantissa_bits, DIVISOR_WIDTH, mantissa + 1)", TENSOR),
    ("tensor-truncated", "over", "make_pack(TENSOR_SCALE, Rounding.RNE", "make_pack(TENSOR_SCALE, Rounding.RTZ",
     TENSOR),
    ("packed-ties", "pack_module", "(rest >> 1) + (kept & 1)", "(rest >> 1) + 1", packed("e2m1", "rne")),
    ("packed-beyond", "pack_module", "select(code > BEYOND, BEYOND, code)", "select(code > MANTISSA, BEYOND, code)",
     packed("e2m1", "rtz")),
    ("packed-drawn", "pack_module", "random >> (SR_BITS - shift)", "random >> (SR_BITS - shift + 1)",
     packed("e2m1", "sr")),
    ("factor-exponent", "over", "exponent + exponent_t + 1 - carries", "exponent + exponent_t", EXACT),
)  # fmt: skip


def theorems() -> list[Theorem]:
    return [
        stated(f"factors/mutant/{name}", STATEMENT, MODULES[place], old, new, given_as(place, theorem))
        for name, place, old, new, theorem in MUTANTS
    ]

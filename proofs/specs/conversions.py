"""The specification of conversions, stated over the reals with SMT-LIB's floating-point theory.

The specification represents a real number by a float that is wide enough for exact operations. To
multiply such a number by a power of two, the specification adds the power to the exponent field.
This formula gives the value of an element of any format, before the overflow rule applies:

    round(v / 2**q) * 2**q    with v = x / 2**scale, q = max(floor(log2 |v|), emin) - mantissa bits

The solver's function `fp.roundToIntegral` computes `round`. SMT-LIB lacks the parity of e3m0 codes,
rounding to odd, and stochastic rounding, so this module defines these three. This module shares no
code with `mxnum`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import z3

from proofs.specs.tables import RANDOM_BITS, SCALE_BIAS, SCALE_NAN, Element, Float

ROUNDINGS = ("rne", "rna", "rtz", "rtp", "rtn", "rto", "sr")
OVERFLOWS = ("saturate", "ieee")
MODES = {"rne": z3.RNE(), "rna": z3.RNA(), "rtz": z3.RTZ(), "rtp": z3.RTP(), "rtn": z3.RTN()}
EXACTLY = z3.RNE()  # the mode for operations whose result is exact

#: Equations that define new constants; theorems take these equations as hypotheses. Each equation
#: has a solution for all inputs, so the hypotheses exclude no input.
Definitions = list[z3.BoolRef]


def sort_of(float_type: Float) -> z3.FPSortRef:
    """Return the solver's own type ("sort") for a float type."""
    return z3.FPSort(float_type.exponent_bits, float_type.precision)


def wide_sort(*types: Float | Element, extra: int = 0) -> z3.FPSortRef:
    """Return a solver float type that holds x * 2**k exactly, for x in `types` and abs(k) <= 128.

    The significand has at least 11 bits.
    """
    exponent_bits = 12 if any(t.name == "float64" for t in types) else 10
    return z3.FPSort(exponent_bits, extra + max(11, *(t.precision for t in types if isinstance(t, Float))))


class Exact:
    """An exact real number: a wide float of the solver, times a power of two."""

    def __init__(self, base: z3.FPRef, definitions: Definitions) -> None:
        self.base = base
        self.sort = base.sort()
        self.fraction_bits = self.sort.sbits() - 1
        self.exponent_bits = self.sort.ebits()
        self.bits = z3.FreshConst(z3.BitVecSort(self.exponent_bits + self.fraction_bits + 1), "bits")
        self.power = z3.BitVecVal(0, self.exponent_bits)
        definitions.append(z3.fpBVToFP(self.bits, self.sort) == base)

    def times(self, power: z3.BitVecRef) -> Exact:
        """Return this number times 2**power."""
        product = object.__new__(Exact)
        product.__dict__.update(self.__dict__)
        product.power = z3.simplify(self.power + power)
        return product

    @property
    def field(self) -> z3.BitVecRef:
        top = self.exponent_bits + self.fraction_bits - 1
        return z3.Extract(top, self.fraction_bits, self.bits) + self.power

    @property
    def exponent(self) -> z3.BitVecRef:
        """floor(log2(|number|)) of a nonzero number, which is normal in the wide float type."""
        return self.field - ((1 << (self.exponent_bits - 1)) - 1)

    @property
    def fraction(self) -> z3.BitVecRef:
        """The significand of the number without its leading one."""
        return z3.Extract(self.fraction_bits - 1, 0, self.bits)

    @property
    def value(self) -> z3.FPRef:
        top = self.exponent_bits + self.fraction_bits
        sign = z3.Extract(top, top, self.bits)
        shifted = z3.fpBVToFP(z3.Concat(sign, self.field, self.fraction), self.sort)
        return z3.If(z3.fpIsZero(self.base), self.base, shifted)


def widen(x: z3.BitVecRef, source: Float, sort: z3.FPSortRef) -> z3.FPRef:
    """Return the value of a bit pattern of `source`, as a float wide enough to be exact."""
    return z3.fpToFP(EXACTLY, z3.fpBVToFP(x, sort_of(source)), sort)


def scaled(x: z3.FPRef, scale: z3.BitVecRef, definitions: Definitions) -> Exact:
    """Return the real x * 2**(scale - 127); `scale` is an E8M0 code of eight bits."""
    exact = Exact(x, definitions)
    width = exact.exponent_bits
    return exact.times(z3.ZeroExt(width - 8, scale) - SCALE_BIAS)


def unscaled(x: z3.FPRef, scale: z3.BitVecRef, definitions: Definitions) -> Exact:
    """Return the real x / 2**(scale - 127); `scale` is an E8M0 code of eight bits."""
    exact = Exact(x, definitions)
    width = exact.exponent_bits
    return exact.times(z3.BitVecVal(SCALE_BIAS, width) - z3.ZeroExt(width - 8, scale))


def table(code: z3.BitVecRef, entries: Callable[[int], z3.ExprRef], count: int, otherwise: z3.ExprRef) -> z3.ExprRef:
    """Return a solver term: entries(code) for codes below `count`, `otherwise` for other codes."""
    result = otherwise
    for index in range(count):
        result = z3.If(code == index, entries(index), result)
    return result


def sign_and_magnitude(code: z3.BitVecRef, element: Element) -> tuple[z3.BoolRef, z3.BitVecRef]:
    """Return the condition that `code` is negative, and the code of its magnitude.

    `code` and the code of its magnitude both have `element.bits` bits.
    """
    top = element.bits - 1
    negative = z3.Extract(top, top, code) == 1
    if element.twos_complement:
        return negative, z3.If(negative, -code, code)
    return negative, code & ((1 << top) - 1)


def element_value(code: z3.BitVecRef, element: Element, sort: z3.FPSortRef, every_code: bool = False) -> z3.FPRef:
    """Return the value of an element code, from the standard's table in `proofs.specs.tables`.

    The value is NaN for a code without a finite value. Encoders never produce the most negative
    code of an integer format. The value of this code is -2 if `every_code` is True, otherwise NaN.
    """
    negative, magnitude = sign_and_magnitude(code, element)
    values = [element.value(index) for index in range(element.last + 1)]
    if element.twos_complement and every_code:
        values.append(Fraction(2))
    value = table(magnitude, lambda index: z3.FPVal(float(values[index]), sort), len(values), z3.fpNaN(sort))
    return z3.If(negative, z3.fpNeg(value), value)


def rounded(
    number: Exact, mantissa: int, emin: int, rounding: str, random: z3.BitVecRef, definitions: Definitions
) -> z3.FPRef:
    """Return the number rounded to `mantissa` fraction bits.

    Results below 2**emin are subnormal; the exponent has no upper limit.
    """
    exponent = number.exponent
    subnormal = exponent < emin
    quantum = z3.If(subnormal, z3.BitVecVal(emin, exponent.size()), exponent) - mantissa
    quotient = number.times(-quantum).value
    if rounding in MODES and (mantissa > 0 or rounding != "rne"):
        integer = z3.fpRoundToIntegral(MODES[rounding], quotient)
    else:
        step = z3.If(subnormal, z3.BitVecVal(0, exponent.size()), exponent - emin)
        integer = _away_or_not(quotient, step, mantissa, rounding, random, definitions)
    return Exact(integer, definitions).times(quantum).value


def _away_or_not(
    quotient: z3.FPRef, step: z3.BitVecRef, mantissa: int, rounding: str, random: z3.BitVecRef, definitions: Definitions
) -> z3.FPRef:
    """Return one of the two integers around the quotient, chosen by the rounding mode."""
    size = z3.fpAbs(quotient)
    below = z3.fpRoundToIntegral(z3.RTZ(), size)
    # `odd` is the parity of the code below the number. If exponents had no limit, this code would
    # be step * 2**mantissa + below.
    odd = z3.Extract(0, 0, z3.fpToUBV(z3.RTZ(), size, z3.BitVecSort(mantissa + 2))) == 1
    if mantissa == 0:
        odd = z3.Xor(odd, z3.Extract(0, 0, step) == 1)
    match rounding:
        case "rne":
            tie = z3.fpEQ(size, z3.fpAdd(EXACTLY, below, z3.FPVal(0.5, size.sort())))
            nearest = z3.fpRoundToIntegral(z3.RNA(), size)
            away = z3.If(tie, odd, z3.Not(z3.fpEQ(nearest, below)))
        case "rto":
            away = z3.And(z3.Not(z3.fpEQ(size, below)), z3.Not(odd))
        case "sr":
            away = _chance(size, mantissa, random, definitions)
        case _:
            raise ValueError(f"no rounding called {rounding!r}")
    chosen = z3.If(away, z3.fpAdd(EXACTLY, below, z3.FPVal(1.0, size.sort())), below)
    return z3.If(z3.fpIsNegative(quotient), z3.fpNeg(chosen), chosen)


def _chance(size: z3.FPRef, mantissa: int, random: z3.BitVecRef, definitions: Definitions) -> z3.BoolRef:
    """Return the condition that stochastic rounding increases the magnitude `size`.

    The condition is floor(delta * 2**30) + random >= 2**30, where delta is the fractional part of
    `size`.
    """
    power = z3.BitVecVal(RANDOM_BITS, size.sort().ebits())
    fixed_point = z3.fpToUBV(
        z3.RTZ(), Exact(size, definitions).times(power).value, z3.BitVecSort(mantissa + 1 + RANDOM_BITS)
    )
    delta = z3.Extract(RANDOM_BITS - 1, 0, fixed_point)
    return z3.UGE(z3.ZeroExt(1, delta) + z3.ZeroExt(1, random), 1 << RANDOM_BITS)


def limits_to_max(rounding: str, overflow: str, below_zero: bool) -> bool:
    """Return True if a finite number beyond the largest value is limited to the largest value.

    Otherwise, the number becomes an infinity, or a NaN. For the overflow mode "ieee", the target
    must have an infinity or a NaN.
    """
    return overflow == "saturate" or rounding in {"rtz", "rto", "rtp" if below_zero else "rtn"}


def signed_code(target: Element | Float, below_zero: bool, magnitude: int) -> int:
    """Return the code that has the given sign and magnitude code."""
    if not below_zero:
        return magnitude
    integer = isinstance(target, Element) and target.twos_complement
    return (1 << target.bits) - magnitude if integer else magnitude | 1 << (target.bits - 1)


def with_sign(target: Element | Float, negative: z3.BoolRef, magnitude: int) -> z3.BitVecRef:
    """Return the code that has a symbolic sign and the given magnitude code."""
    codes = (z3.BitVecVal(signed_code(target, below_zero, magnitude), target.bits) for below_zero in (True, False))
    return z3.If(negative, *codes)


def sign_bit(pattern: z3.BitVecRef) -> z3.BoolRef:
    """Return the condition that the sign bit of a pattern is 1."""
    return z3.Extract(pattern.size() - 1, pattern.size() - 1, pattern) == 1


class Rounding:
    """The conversion of a real number to a type: one rounding, and then the overflow mode."""

    def __init__(
        self,
        number: Exact,
        negative: z3.BoolRef,
        target: Element | Float,
        rounding: str,
        random: z3.BitVecRef,
        definitions: Definitions,
    ) -> None:
        self.number, self.negative, self.target, self.rounding = number, negative, target, rounding
        if isinstance(target, Element) or rounding not in MODES:
            mantissa = target.mantissa if isinstance(target, Element) else target.precision - 1
            self.result = rounded(number, mantissa, target.emin, rounding, random, definitions)

    def finite(self, overflow: str, code: z3.BitVecRef) -> z3.BoolRef:
        """Return the condition that `code` is right for a finite number in an overflow mode."""
        if isinstance(self.target, Element):
            return self._finite_element(self.target, overflow, code)
        return self._finite_float(self.target, overflow, code)

    def _finite_element(self, target: Element, overflow: str, code: z3.BitVecRef) -> z3.BoolRef:
        special = element_special(target)

        def beyond(below_zero: bool) -> z3.BitVecRef:
            limited = limits_to_max(self.rounding, overflow, below_zero)
            magnitude = target.last if special is None or limited else special
            return z3.BitVecVal(signed_code(target, below_zero, magnitude), target.bits)

        largest = z3.FPVal(float(target.value(target.last)), self.number.sort)
        same_sign = z3.BoolVal(True) if target.twos_complement else sign_bit(code) == self.negative
        return z3.If(
            z3.fpGT(z3.fpAbs(self.result), largest),
            code == z3.If(self.negative, beyond(True), beyond(False)),
            z3.And(z3.fpEQ(element_value(code, target, self.number.sort), self.result), same_sign),
        )

    def _finite_float(self, target: Float, overflow: str, code: z3.BitVecRef) -> z3.BoolRef:
        sort = sort_of(target)
        if self.rounding in MODES:
            exactly = z3.fpToFP(MODES[self.rounding], self.number.value, sort)
            if overflow == "saturate":
                largest = z3.fpBVToFP(with_sign(target, self.negative, target.last), sort)
                exactly = z3.If(z3.fpIsInf(exactly), largest, exactly)
            return z3.fpBVToFP(code, sort) == exactly
        over = target.last if limits_to_max(self.rounding, overflow, False) else target.infinity
        return z3.If(
            z3.fpGT(z3.fpAbs(self.result), widen(z3.BitVecVal(target.last, target.bits), target, self.number.sort)),
            code == with_sign(target, self.negative, over),
            z3.And(z3.fpEQ(widen(code, target, self.number.sort), self.result), sign_bit(code) == self.negative),
        )


class Conversion(Rounding):
    """The conversion of x / 2**(scale - 127) to a type, for every x and every scale code."""

    def __init__(
        self,
        source: Float,
        target: Element | Float,
        rounding: str,
        x: z3.BitVecRef,
        scale: z3.BitVecRef,
        random: z3.BitVecRef,
    ) -> None:
        self.definitions: Definitions = []
        self.scale = scale
        self.x = widen(x, source, wide_sort(source, target))
        number = unscaled(self.x, scale, self.definitions)
        super().__init__(number, sign_bit(x), target, rounding, random, self.definitions)

    def gives(self, overflow: str, code: z3.BitVecRef) -> z3.BoolRef:
        """Return the condition that `code` is the right code in an overflow mode."""
        if isinstance(self.target, Element):
            finite, special = self.finite(overflow, code), element_special(self.target)
            nan = (
                self.target.last if self.target.nan is None else with_sign(self.target, self.negative, self.target.nan)
            )
        else:
            finite, special = self.finite(overflow, code), self.target.infinity
            nan = self.target.nan
        infinite = self.target.last if special is None or overflow == "saturate" else special
        return z3.If(
            self.scale == SCALE_NAN,
            code == 0,
            z3.If(
                z3.fpIsNaN(self.x),
                code == nan,
                z3.If(z3.fpIsInf(self.x), code == with_sign(self.target, self.negative, infinite), finite),
            ),
        )


def element_special(element: Element) -> int | None:
    """Return the code that a number beyond the largest value gets with overflow="ieee".

    The result is the code of infinity. For an element without infinity, it is the code of NaN, and
    for an element with neither, it is None.
    """
    return element.nan if element.infinity is None else element.infinity


def decodes(
    element: Element,
    target: Float,
    code: z3.BitVecRef,
    scale: z3.BitVecRef,
    pattern: z3.BitVecRef,
    definitions: Definitions,
) -> z3.BoolRef:
    """Return the condition that `pattern` is the value of `code`, rounded once to nearest even.

    The exact value is element value * 2**(scale - 127). The most negative code of an integer format
    has the element value -2.
    """
    negative, magnitude = sign_and_magnitude(code, element)
    number = scaled(element_value(code, element, wide_sort(target), every_code=True), scale, definitions)
    is_infinite = z3.BoolVal(False) if element.infinity is None else magnitude == element.infinity
    is_nan = z3.And(z3.UGT(magnitude, element.last), z3.Not(is_infinite)) if element.nan else z3.BoolVal(False)
    return z3.If(
        z3.Or(scale == SCALE_NAN, is_nan),
        pattern == target.nan,
        z3.If(
            is_infinite,
            pattern == with_sign(target, negative, target.infinity),
            z3.fpBVToFP(pattern, sort_of(target)) == z3.fpToFP(MODES["rne"], number.value, sort_of(target)),
        ),
    )

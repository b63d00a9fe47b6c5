"""The modes that a caller can choose, each with its definition as its docstring.

Each kind of choice is a string enum: ``Rounding.RNE == "rne"``. Functions of the public API accept
the string or the enum's member.

Code that depends on a mode has a `match` case for each member, looks the mode up in a table of all
members, calls `which`, or reads a property that this module defines. No function has an `else` for
all remaining modes. A function without a case for some mode raises an error for that mode.
tests/test_modes.py checks that the whole package follows this rule.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Self, assert_never

from mxnum import errors
from mxnum.formats import ELEMENTS, MXFormat

#: The public names of this module. The function `which` is not public.
__all__ = ["Accumulate", "FloatScaleRule", "Nonfinite", "OffsetRange", "Overflow", "Rounding", "ScaleRule"]


class _DocumentedEnum(StrEnum):
    """A string enum whose members carry their definition as ``__doc__``."""

    def __new__(cls, value: str, definition: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.__doc__ = definition
        return member


def which(mode: StrEnum, *known: StrEnum) -> tuple[bool, ...]:
    """Return one flag for each mode in `known`: True for `mode`, and False for every other mode.

    Raise an error if `mode` is not in `known`. If the calling function is compiled for one mode,
    the flags become constants of the compiled code.
    """
    answers = tuple(mode == one for one in known)
    if not any(answers):
        raise NotImplementedError(
            f"{type(mode).__name__} {str(mode)!r} is not supported here. Supported: {list(map(str, known))}."
        )
    return answers


class Rounding(_DocumentedEnum):
    """The rounding of the exact quotient x / 2**scale to an element value, in one step.

    A value is even if its code k * 2**m + q is even, else odd. Here m is the number of mantissa
    bits, q is the significand as an integer, and k is the exponent minus emin. k has no upper
    limit. If m > 0, the code is even exactly if q is even. In e3m0, where m = 0, every second power
    of two has an even code.
    """

    RNE = "rne", "To nearest, ties to the even code (the default)."
    RNA = "rna", "To nearest, ties away from zero."
    RTZ = "rtz", "Toward zero."
    RTP = "rtp", "Up, toward plus infinity."
    RTN = "rtn", "Down, toward minus infinity."
    RTO = "rto", "To odd: element values do not change, and all other numbers round to the neighbour with odd code."
    SR = (
        "sr",
        "Stochastic with r bits. Let delta be the position of |x| between its neighbours as a fraction of the gap, and "
        "R the caller's integer in [0, 2**r). x is rounded away from zero iff floor(delta * 2**r) + R >= 2**r.",
    )

    @cached_property
    def is_stochastic(self) -> bool:
        """True if the mode reads random bits."""
        match self:
            case Rounding.SR:
                return True
            case Rounding.RNE | Rounding.RNA | Rounding.RTZ | Rounding.RTP | Rounding.RTN | Rounding.RTO:
                return False
            case _:
                assert_never(self)


class Overflow(_DocumentedEnum):
    """The result for a number whose magnitude rounds to more than the largest finite value.

    For this comparison, the number is rounded as if the exponent had no upper limit.
    """

    SATURATE = (
        "saturate",
        "The largest finite value, with the number's sign, in every rounding mode. Infinities become this value too.",
    )
    IEEE = (
        "ieee",
        "Non-saturating as in OFP8 and IEEE 754 section 7.4. rne, rna and sr give infinity (e5m2) or NaN (e4m3). rtz "
        "and rto give the largest finite value. rtp gives infinity or NaN for positive numbers and -max for negative "
        "numbers; rtn does the reverse. An infinite input gives infinity or NaN in every mode. Elements without "
        "special values saturate.",
    )

    @cached_property
    def saturates(self) -> bool:
        """True if every result is finite."""
        match self:
            case Overflow.SATURATE:
                return True
            case Overflow.IEEE:
                return False
            case _:
                assert_never(self)

    def of(self, specials: str) -> Overflow:
        """Return the mode that applies to a format with the given special values.

        A format without special values always saturates.
        """
        return Overflow.SATURATE if self.saturates or specials == "none" else self


class ScaleRule(_DocumentedEnum):
    """The exponent of the E8M0 scale of a block with largest magnitude A = f * 2**E, 1 <= f < 2.

    A is the largest finite magnitude. Each member below gives an exponent, which is then clamped to
    -127..127. A block with A = 0 or without finite elements has scale code 0.
    """

    FLOOR = "floor", "E - emax (OCP MX section 6.3, the default)."
    CEIL = "ceil", "E - emax, plus 1 iff f > 1."
    EVEN = "even", "E - emax, plus 1 iff f >= 2 - 2**-(m+1). Such an A, rounded to m mantissa bits, is 2**(E+1)."
    RCEIL = "rceil", "The least s with A <= max * 2**s, where max is the largest element."
    HALF_UP = (
        "half_up",
        "E - emax, plus 1 iff f >= 7/4, for every element. So A is rounded half up to one mantissa bit. "
        "compressed-tensors (and so vLLM) uses this rule. For e2m1 this rule equals `even`.",
    )
    FLOOR_PLUS_ONE = (
        "floor_plus_one",
        "E - emax + 1. Every finite |x| / 2**s is then below 2**emax. AWS Neuron uses this rule for MXFP8 "
        "(nki.isa.quantize_mx).",
    )


class FloatScaleRule(_DocumentedEnum):
    """The rule that rounds the exact quotient q = m / (max * t) to a scale that is a float.

    Here m is the largest finite magnitude of the block, max the largest element, and t the tensor
    scale, or 1. If q exceeds the largest scale, every rule gives the largest scale. A block whose
    finite elements are all 0 has the scale 0.
    """

    NEAREST = "nearest", "Rounds the quotient q to nearest, ties to even (the default)."
    RCEIL = "rceil", "Rounds the quotient q upward, to the least scale for which no number lies beyond max."
    FOUR_OVER_SIX_ABSOLUTE = (
        "four_over_six_absolute",
        "For E2M1. Two scales are tried: q rounded to nearest, which maps m to 6, and 3/2 q rounded to nearest, "
        "which maps m to 4. The rule takes the scale with the smaller sum of |x - value| over the finite elements of "
        "the block, each rounded to nearest even. If the sums are equal, it takes the first scale.",
    )
    FOUR_OVER_SIX_SQUARED = (
        "four_over_six_squared",
        "Like `four_over_six_absolute`, but with the sum of (x - value)**2.",
    )

    @property
    def rounds_up(self) -> bool:
        """True if the exact quotient q is rounded up, False if q is rounded to nearest."""
        match self:
            case FloatScaleRule.RCEIL:
                return True
            case FloatScaleRule.NEAREST | FloatScaleRule.FOUR_OVER_SIX_ABSOLUTE | FloatScaleRule.FOUR_OVER_SIX_SQUARED:
                return False
            case _:
                assert_never(self)

    @property
    def error_power(self) -> int:
        """The exponent p, if the rule compares two scales by their sums of abs(x - value)**p.

        The exponent is 0 if the rule does not compare scales.
        """
        match self:
            case FloatScaleRule.NEAREST | FloatScaleRule.RCEIL:
                return 0
            case FloatScaleRule.FOUR_OVER_SIX_ABSOLUTE:
                return 1
            case FloatScaleRule.FOUR_OVER_SIX_SQUARED:
                return 2
            case _:
                assert_never(self)


def scale_rules(fmt: MXFormat) -> tuple[ScaleRule | FloatScaleRule, ...]:
    """Return the scale rules of a format. The first rule is the default."""
    if fmt.scale.power_of_two:
        return tuple(ScaleRule)
    is_e2m1 = fmt.element == ELEMENTS["e2m1"]
    return tuple(rule for rule in FloatScaleRule if is_e2m1 or not rule.error_power)


def scale_rule_of(fmt: MXFormat, asked: str | ScaleRule | FloatScaleRule | None) -> ScaleRule | FloatScaleRule:
    """Return the scale rule that `asked` names, or the format's default rule if `asked` is None.

    Raise ValueError if the format does not have the rule.
    """
    rules = scale_rules(fmt)
    if asked is None:
        return rules[0]
    kinds: tuple[ScaleRule | FloatScaleRule, ...] = tuple(type(rules[0]))
    rule = errors.choose_member("scale_rule", asked, kinds)
    accepted = errors.joined(repr(str(each)) for each in rules)
    errors.require(rule in rules, "scale_rule", f"{accepted} for {fmt.element.name} elements", str(rule))
    return rule


class Nonfinite(_DocumentedEnum):
    """The effect of a NaN or an infinity in the input."""

    BLOCK = (
        "block",
        "The block gets the scale NaN and element codes 0, so every element decodes to NaN (the default of quantize).",
    )
    ELEMENT = (
        "element",
        "An infinity gives the result that `overflow` names, and a NaN gives the NaN code. In an element without NaN, "
        "a NaN raises ValueError. This is the default of encode, which has no blocks.",
    )
    RAISE = "raise", "A NaN or an infinity raises ValueError. The message gives the first of them and its index."

    @cached_property
    def by_block(self) -> bool:
        """True if a NaN or infinity makes its whole block NaN."""
        return which(self, Nonfinite.BLOCK, Nonfinite.ELEMENT, Nonfinite.RAISE)[0]

    @cached_property
    def by_element(self) -> bool:
        """True if a NaN or infinity affects only its own element."""
        return which(self, Nonfinite.BLOCK, Nonfinite.ELEMENT, Nonfinite.RAISE)[1]

    @cached_property
    def by_error(self) -> bool:
        """True if a NaN or infinity raises ValueError."""
        return which(self, Nonfinite.BLOCK, Nonfinite.ELEMENT, Nonfinite.RAISE)[2]


class OffsetRange(_DocumentedEnum):
    """The magnitude that sets the scale of a block with asymmetric scaling.

    The block has an offset O, and the differences d = x - O are quantized.
    """

    EXACT = "exact", "The largest difference |d|, which the elements must represent (the default)."
    HALF = (
        "half",
        "Half the range of the block, (max - min) / 2, as in Yang et al. (ARITH 2025). Because O is rounded, some "
        "differences |d| can be larger than half the range.",
    )

    @cached_property
    def is_half(self) -> bool:
        """True if half the range sets a block's scale, False if the largest difference does."""
        match self:
            case OffsetRange.EXACT:
                return False
            case OffsetRange.HALF:
                return True
            case _:
                assert_never(self)


class Accumulate(_DocumentedEnum):
    """The way to sum a dot product. Every mode starts at +0 and keeps subnormals.

    A sum without terms is +0.

    `exact` computes one exact sum, and `block` computes an exact sum for each block. An exact sum
    is NaN if its terms include NaN, 0 * infinity, or infinities of both signs. Otherwise, it is
    infinite if a term is infinite. A sum that is exactly zero is +0. The result is a float32. If
    the caller asks for a narrower type, the float32 result is rounded once more, to nearest even.
    """

    EXACT = "exact", "The exact sum of the exact products of exact values, rounded once to float32. Slow."
    BLOCK = (
        "block",
        "The default. For each block along the summed axis, t = Sa * Sb * sum(Pa * Pb), with the block's scales S "
        "and elements P, is computed exactly and rounded once to float32. Then acc = acc + t in float32, in block "
        "order. Last, the result is multiplied by the float32 product of the tensor scales. Both operands must be MX "
        "arrays without offsets, with blocks of equal length along the summed axis.",
    )
    SEQUENTIAL = (
        "sequential",
        "The operands are decoded (or rounded) to float32. Then acc = fma(a, b, acc) in float32, in index order.",
    )
    BLAS = (
        "blas",
        "The operands are decoded (or rounded) to float32, and numpy's matmul multiplies them. Fast, but not "
        "reproducible: the order of additions, and so the bits, depend on the machine, the library and the shape.",
    )

    @cached_property
    def by_block(self) -> bool:
        """True if products of elements are summed block by block before the scales are applied.

        If True, the blocks of the two operands must have the same length.
        """
        match self:
            case Accumulate.BLOCK:
                return True
            case Accumulate.EXACT | Accumulate.SEQUENTIAL | Accumulate.BLAS:
                return False
            case _:
                assert_never(self)

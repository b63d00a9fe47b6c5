"""The choices a caller can make, each with its definition as docstring.

Every mode is a string enum: ``Rounding.RNE == "rne"``. Functions of the public API accept the
string or the member.

Code that depends on a mode never compares with one member and leaves all others to `else`. It
matches all members, looks the mode up in a table of all, asks `which`, or reads a property that
modes define here. A mode that is added therefore raises wherever it is not handled;
tests/test_modes.py checks the package for that.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Self, assert_never

from mxnum import errors
from mxnum.formats import ELEMENTS, MXFormat

#: The public names of this module; `which` is for the package alone.
__all__ = ["Accumulate", "FloatScaleRule", "Nonfinite", "OffsetRange", "Overflow", "Rounding", "ScaleRule"]


class _DocumentedEnum(StrEnum):
    """A string enum whose members carry their definition as ``__doc__``."""

    def __new__(cls, value: str, definition: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.__doc__ = definition
        return member


def which(mode: StrEnum, *known: StrEnum) -> tuple[bool, ...]:
    """Return for each of the known modes True if it is `mode`; raise if none is.

    The answers are constants of a function that is made for the mode.
    """
    answers = tuple(mode == one for one in known)
    if not any(answers):
        raise NotImplementedError(
            f"{type(mode).__name__} {str(mode)!r} is not handled here: only {list(map(str, known))}."
        )
    return answers


class Rounding(_DocumentedEnum):
    """The rounding of the exact real x / 2**scale to an element value, once, from any input type.

    Even and odd are the parity of the unbounded code k * 2**m + q (exponent step k, significand q).
    It is the parity of the significand in every element but e3m0, where it alternates by exponent.
    """

    RNE = "rne", "To nearest, ties to the even code (the default)."
    RNA = "rna", "To nearest, ties away from zero."
    RTZ = "rtz", "Toward zero."
    RTP = "rtp", "Up, toward plus infinity."
    RTN = "rtn", "Down, toward minus infinity."
    RTO = "rto", "To odd: exact values stay, an inexact one takes the neighbour whose code is odd."
    SR = (
        "sr",
        "Stochastic with r bits: with delta the fraction of the gap at which |x| lies and R the caller's integer in "
        "[0, 2**r), away from zero iff floor(delta * 2**r) + R >= 2**r.",
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
    """The result for a value that is rounded beyond the element's largest finite value.

    The rounding that decides this has an unbounded exponent.
    """

    SATURATE = "saturate", "The largest finite value with the sign kept, in every rounding mode; infinities too."
    IEEE = (
        "ieee",
        "OFP8 non-saturating, IEEE 754 section 7.4: rne, rna and sr give infinity (e5m2) or NaN (e4m3); rtz and rto "
        "the largest finite value; rtp infinity or NaN above and -max below; rtn mirrored. An infinite input gives "
        "infinity or NaN in every mode. Elements without special values saturate.",
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
        """Return the mode that applies to a format with such special values.

        A format without special values always saturates.
        """
        return Overflow.SATURATE if self.saturates or specials == "none" else self


class ScaleRule(_DocumentedEnum):
    """E8M0: the shared exponent of a block with largest finite magnitude A = f * 2**E, 1 <= f < 2.

    The exponent is then clamped to -127..127. A block with A = 0 or without finite elements has
    scale code 0.
    """

    FLOOR = "floor", "E - emax (OCP MX section 6.3, the default)."
    CEIL = "ceil", "E - emax, one more iff f > 1."
    EVEN = "even", "E - emax, one more iff f >= 2 - 2**-(m+1): A rounded to the element's mantissa width, ties to even."
    RCEIL = "rceil", "The least s with A <= max * 2**s."
    HALF_UP = (
        "half_up",
        "E - emax, one more iff f >= 7/4: half up at the mantissa width of E2M1, whatever the element, as "
        "compressed-tensors (and so vLLM) has it; in e2m1 it is `even`.",
    )
    FLOOR_PLUS_ONE = (
        "floor_plus_one",
        "E - emax + 1, so that the largest element's binade stays empty: MXFP8 on AWS Neuron (nki.isa.quantize_mx).",
    )


class FloatScaleRule(_DocumentedEnum):
    """Scales that are floats: how q = m / (max * t), exact, is rounded to the scale's format.

    Here m is the largest finite magnitude of the block, max the largest element, and t the tensor
    scale, or 1. A q beyond the largest scale gives the largest scale, in every rule. A block
    without finite elements other than 0 has the scale 0.
    """

    NEAREST = "nearest", "q to nearest, ties to even (the default)."
    RCEIL = "rceil", "q upward: the least scale under which nothing is beyond max."
    FOUR_OVER_SIX_ABSOLUTE = (
        "four_over_six_absolute",
        "For E2M1: `nearest` of q, which makes 6 of m, or of 3/2 q, which makes 4 of it: the one with the smaller sum "
        "of |x - value| over the finite elements of the block, each rounded to nearest even; the first if they are "
        "equal.",
    )
    FOUR_OVER_SIX_SQUARED = "four_over_six_squared", "The same with the sum of (x - value)**2."

    @property
    def rounds_up(self) -> bool:
        """True if q is rounded up, False if it is rounded to nearest."""
        match self:
            case FloatScaleRule.RCEIL:
                return True
            case FloatScaleRule.NEAREST | FloatScaleRule.FOUR_OVER_SIX_ABSOLUTE | FloatScaleRule.FOUR_OVER_SIX_SQUARED:
                return False
            case _:
                assert_never(self)

    @property
    def error_power(self) -> int:
        """The power of errors that compares two scales; 0 if the rule tries one scale."""
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
    """Return the rules for the scales of a format; the first is the default."""
    if fmt.scale.power_of_two:
        return tuple(ScaleRule)
    is_e2m1 = fmt.element == ELEMENTS["e2m1"]
    return tuple(rule for rule in FloatScaleRule if is_e2m1 or not rule.error_power)


def scale_rule_of(fmt: MXFormat, asked: str | ScaleRule | FloatScaleRule | None) -> ScaleRule | FloatScaleRule:
    """Return the rule that was asked for; None asks for the format's default.

    Raise ValueError if the format does not have that rule.
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

    BLOCK = "block", "The block gets the scale NaN and element codes 0: all of it reads NaN (the default of quantize)."
    ELEMENT = (
        "element",
        "Infinities follow `overflow`, NaN gives the NaN code; in an element without NaN a NaN raises ValueError (the "
        "default of encode, which has no block).",
    )
    RAISE = "raise", "ValueError naming the first index."

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
    """The magnitude that sets the scale of an asymmetric block.

    The block has the offset O and the differences d = x - O.
    """

    EXACT = "exact", "The largest |d|: what the elements must hold (the default)."
    HALF = "half", "(max - min) / 2, as the Meta study writes it: it can be exceeded because O is rounded."

    @cached_property
    def is_half(self) -> bool:
        """True if the range of a block, not its largest difference, sets the scale."""
        match self:
            case OffsetRange.EXACT:
                return False
            case OffsetRange.HALF:
                return True
            case _:
                assert_never(self)


class Accumulate(_DocumentedEnum):
    """The way to sum a dot product. Every mode starts at +0 and keeps subnormals; no terms give +0.

    In `exact` and in each term of `block`, NaN, 0 * infinity or infinities of both signs give NaN.
    Otherwise an infinity stays, and an exact zero is +0. The result is a float32; it is rounded to
    nearest even once more if another type is asked for.
    """

    EXACT = "exact", "The exact sum of the exact products of exact values, rounded once to float32. Slow."
    BLOCK = (
        "block",
        "For each block along the summed axis t = Sa * Sb * sum(Pa * Pb) with its scales, exactly, rounded once to "
        "float32; then acc = acc + t in float32, in block order (the default). The product of tensor scales, rounded "
        "to float32, multiplies the result. Both operands are MX arrays with blocks of equal length along that axis, "
        "without offsets.",
    )
    SEQUENTIAL = (
        "sequential",
        "Operands decoded (or rounded) to float32; acc = fma(a, b, acc) in float32, one rounding each, in index order.",
    )
    BLAS = (
        "blas",
        "Operands decoded (or rounded) to float32; numpy's matmul. Fast; the order, and so the bits, depend on the "
        "machine, the library and the shape: not reproducible.",
    )

    @cached_property
    def by_block(self) -> bool:
        """True if elements are summed block by block before they are scaled.

        The blocks of the two operands must then have equal lengths.
        """
        match self:
            case Accumulate.BLOCK:
                return True
            case Accumulate.EXACT | Accumulate.SEQUENTIAL | Accumulate.BLAS:
                return False
            case _:
                assert_never(self)

"""The contents of a format's reference model: the functions that every printer prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from mxnum import errors, formats
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.float_scale import (
    ONE,
    WORD,
    make_decode_over,
    make_encode_over,
    make_factor,
    make_float_scale,
    make_tensor_scale,
)
from mxnum.definition.random import make_align_random
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import dialect, select, word_bits
from mxnum.emit.program import Function, Program
from mxnum.formats import FLOATS, ElementFormat, MXFormat
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule, scale_rule_of

_Scalar = Callable[..., Any]

#: The clauses of standards that the functions made by each factory function implement.
CLAUSES = {
    "make_encode": "OCP MX v1.0 6.3: conversion to an MX format.",
    "make_unpack": "OCP MX v1.0 5.3 and OFP8 v1.0: the fields of an element. IEEE 754-2019 3.4: the fields of a float.",
    "make_pack": "OFP8 v1.0 5: saturating and non-saturating overflow.",
    "make_round": "IEEE 754-2019 4.3: rounding directions.",
    "make_shared_scale": "OCP MX v1.0 6.3: the scale of a block. OCP MX v1.0 5.4.1: E8M0.",
}


@dataclass(frozen=True)
class Settings:
    """The format, the float types and the modes of a model."""

    format: MXFormat
    source: ElementFormat
    target: ElementFormat
    rounding: Rounding
    scale_rule: Any
    overflow: Overflow
    nonfinite: Nonfinite
    sr_bits: int

    @property
    def text(self) -> str:
        """The settings in one line, written like the arguments of `mxnum.quantize`."""
        random = f", sr_bits={self.sr_bits}" if self.rounding.is_stochastic else ""
        return (
            f"{self.format.name}, blocks of {self.format.block}; from {self.source.name}, rounding={self.rounding}"
            f"{random}, scale_rule={self.scale_rule}, overflow={self.overflow}, nonfinite={self.nonfinite}; "
            f"to {self.target.name}"
        )


@dataclass(frozen=True)
class Emitted:
    """The base class of models. A model holds the name and the functions of one emitted file."""

    name: str
    program: Program

    @property
    def about(self) -> str:
        """One line that says what the functions compute."""
        raise NotImplementedError

    @property
    def roots(self) -> tuple[Function, ...]:
        """The functions that a user calls; all other functions are helpers."""
        raise NotImplementedError


@dataclass(frozen=True)
class Model(Emitted):
    """The functions of a format's reference model."""

    settings: Settings
    #: ``encode(x, scale[, tensor][, random])`` returns an element code.
    encode: Function
    #: ``decode(code, scale[, tensor])`` returns the bits of a number in the target format.
    decode: Function
    #: ``shared_scale(amax[, tensor])`` returns the code of a scale.
    shared_scale: Function
    #: ``larger(amax, x)`` returns max(amax, abs(x)), or amax if x is not finite.
    larger: Function
    #: ``is_finite(x)`` returns 1 if x is finite, else 0.
    is_finite: Function
    #: ``align_random(word)`` returns the random bits that `encode` takes. The field is None unless
    #: rounding is stochastic.
    align_random: Function | None
    #: ``tensor_scale(amax)`` returns the tensor scale as float32 bits. The field is None if the
    #: format has no tensor scale.
    tensor_scale: Function | None

    @property
    def about(self) -> str:
        """One line that says what the functions compute."""
        return self.settings.text

    @property
    def roots(self) -> tuple[Function, ...]:
        """The functions that a user calls; all other functions are helpers."""
        found = (self.encode, self.decode, self.shared_scale, self.larger, self.is_finite, self.align_random)
        return tuple(each for each in (*found, self.tensor_scale) if each is not None)

    @property
    def has_tensor_scale(self) -> bool:
        return self.tensor_scale is not None


def settings_of(
    format: str | MXFormat,
    source: str,
    target: str,
    rounding: str | Rounding,
    scale_rule: Any,
    overflow: str | Overflow,
    nonfinite: str | Nonfinite,
    sr_bits: int,
) -> Settings:
    """Check and return the settings; raise ValueError for settings that a model cannot have."""
    fmt = formats.get(format)
    rule = scale_rule_of(fmt, scale_rule)
    if getattr(rule, "error_power", 0):
        raise ValueError(f"Argument 'scale_rule' must be a rule that tries only one scale, not {str(rule)!r}.")
    policy = errors.choose_member("nonfinite", nonfinite, Nonfinite)
    errors.require(not policy.by_error, "nonfinite", "'block' or 'element' for a model", str(policy))
    mode = errors.choose_member("rounding", rounding, Rounding)
    bits = errors.integer("sr_bits", sr_bits, 1, 30)
    if bits != 30 and not mode.is_stochastic:
        raise ValueError("Argument 'sr_bits' must be left out unless rounding='sr'.")
    return Settings(
        format=fmt,
        source=FLOATS[errors.choose("source", source, tuple(FLOATS))],
        target=FLOATS[errors.choose("target", target, tuple(FLOATS))],
        rounding=mode,
        scale_rule=rule,
        overflow=errors.choose_member("overflow", overflow, Overflow),
        nonfinite=policy,
        sr_bits=bits,
    )


def model_of(settings: Settings, name: str) -> Model:
    """Return a format's reference model: the definition's functions, with all their callees."""
    fmt, source, target = settings.format, settings.source, settings.target
    element, program, has_tensor = fmt.element, Program(CLAUSES), fmt.tensor_scale is not None
    encode, decode, scale, words = definition_of(settings)
    by, per = f"{settings.rounding}, {settings.overflow}", "(scale * tensor scale)" if has_tensor else "scale"
    number = {"x": f"x: {source.bits} bits of a {source.name}", "random": "random: what align_random returns"}
    return Model(
        name,
        program,
        settings,
        encode=program.add(
            encode,
            "encode",
            words[0],
            f"Round x / {per} once to an {element.name} code ({by}).\n\n{number['x']}; scale: a {fmt.scale.name} "
            f"code{'; tensor: float32 bits' if has_tensor else ''}"
            f"{'; ' + number['random'] if settings.rounding.is_stochastic else ''}. Under a NaN scale the code is 0.",
        ),
        decode=program.add(
            decode,
            "decode",
            words[1],
            f"Round element * {per} to {target.name} bits, to nearest even; infinity on overflow.\n\n"
            "Under a NaN scale the result is NaN.",
        ),
        shared_scale=program.add(
            scale,
            "shared_scale",
            words[0],
            f"Find the {fmt.scale.name} code of a block's scale by the rule {settings.scale_rule}.\n\n"
            f"amax: {source.name} bits of the largest finite magnitude of the block.",
        ),
        larger=program.add(make_larger(source), "larger", words[0]),
        is_finite=program.add(make_is_finite(source), "is_finite", words[0]),
        align_random=program.add(make_align_random(settings.sr_bits), "align_random", words[0])
        if settings.rounding.is_stochastic
        else None,
        tensor_scale=program.add(
            make_tensor_scale(source, element, fmt.scale),
            "tensor_scale",
            WORD,
            f"Find the tensor scale of an array, as float32 bits.\n\namax: {source.name} bits of its largest finite "
            "magnitude.",
        )
        if has_tensor
        else None,
    )


def definition_of(settings: Settings) -> tuple[_Scalar, _Scalar, _Scalar, tuple[int, int]]:
    """Return the definition's `encode`, `decode` and `shared_scale`, and their word lengths.

    The first word length is for `encode` and `shared_scale`, the second is for `decode`.
    """
    fmt, source, target = settings.format, settings.source, settings.target
    if not fmt.scale.power_of_two:
        return *_over_float_scales(settings), (WORD, WORD)
    assert isinstance(settings.scale_rule, ScaleRule)
    return (
        make_encode(source, fmt.element, settings.rounding, settings.overflow),
        make_decode(fmt.element, target),
        make_shared_scale(source, fmt.element, settings.scale_rule),
        (word_bits(source, fmt.element), word_bits(fmt.element, target)),
    )


def _over_float_scales(settings: Settings) -> tuple[_Scalar, _Scalar, _Scalar]:
    """Return `encode`, `decode` and `shared_scale` for a format whose scales are floats."""
    fmt = settings.format
    factor = make_factor(fmt.scale)
    encode_over = make_encode_over(settings.source, fmt.element, fmt.scale, settings.rounding, settings.overflow)
    decode_over = make_decode_over(fmt.element, fmt.scale, settings.target)
    float_scale = make_float_scale(settings.source, fmt.element, fmt.scale, settings.scale_rule)

    if fmt.tensor_scale is not None:

        @dialect
        def encode(x: Any, scale: Any, tensor: Any, random: Any) -> Any:
            exponent, significand, kind = factor(scale, tensor)
            return encode_over(x, exponent, significand, kind, random)

        @dialect
        def decode(code: Any, scale: Any, tensor: Any) -> Any:
            exponent, significand, kind = factor(scale, tensor)
            return decode_over(code, exponent, significand, kind)

        return encode, decode, float_scale

    @dialect
    def encode_alone(x: Any, scale: Any, random: Any) -> Any:
        exponent, significand, kind = factor(scale, ONE)
        return encode_over(x, exponent, significand, kind, random)

    @dialect
    def decode_alone(code: Any, scale: Any) -> Any:
        exponent, significand, kind = factor(scale, ONE)
        return decode_over(code, exponent, significand, kind)

    @dialect
    def shared_scale(amax: Any) -> Any:
        return float_scale(amax, ONE)

    return encode_alone, decode_alone, shared_scale


@cache
def make_larger(source: ElementFormat) -> Callable[..., Any]:
    """Return `larger(amax, x)`, which returns max(amax, abs(x)), or amax if x is not finite."""
    MAGNITUDE_MASK, MAX = (1 << (source.bits - 1)) - 1, source.max_code

    @dialect
    def larger(amax: Any, x: Any) -> Any:
        magnitude = x & MAGNITUDE_MASK
        larger_one = select(magnitude > amax, magnitude, amax)
        return select(magnitude > MAX, amax, larger_one)

    return larger


@cache
def make_is_finite(source: ElementFormat) -> Callable[..., Any]:
    """Return `is_finite(x)`, which returns 1 for a finite number, and 0 for infinity and NaN."""
    MAGNITUDE_MASK, MAX = (1 << (source.bits - 1)) - 1, source.max_code

    @dialect
    def is_finite(x: Any) -> Any:
        return select((x & MAGNITUDE_MASK) > MAX, 0, 1)

    return is_finite

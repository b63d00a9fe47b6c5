"""Encode and decode numbers: unpack, add the scale to the exponent, and pack with one rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxnum.definition.pack import make_pack
from mxnum.definition.unpack import make_unpack
from mxnum.definition.word import dialect, select, word_bits, working_width
from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import Overflow, Rounding

SCALE_BIAS = E8M0.bias
SCALE_NAN = E8M0.nan_code


def make_encode(
    source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow
) -> Callable[..., Any]:
    """Return `encode(x, scale, random)`, which rounds x / 2**(scale - 127) once to a `target` code.

    `x` is a bit pattern of `source`, and `scale` is an E8M0 code (0xFF gives code 0). `random` is
    an integer below 2**30 that only stochastic rounding reads. If the target has no NaN code, NaN
    becomes the largest value, because a dialect function cannot raise an error.
    """
    width, word = working_width(source, target), word_bits(source, target)
    unpack = make_unpack(source, width)
    pack = make_pack(target, rounding, overflow, width, word)

    @dialect
    def encode(x, scale, random):
        sign, exponent, significand, kind = unpack(x)
        code = pack(sign, exponent - scale + SCALE_BIAS, significand, kind, random)
        return select(scale == SCALE_NAN, 0, code)

    encode.__name__ = f"encode_{source.name}_{target.name}_{rounding}_{overflow}"
    return encode


def make_decode(element: ElementFormat, target: ElementFormat) -> Callable[..., Any]:
    """Return `decode(code, scale)`, which rounds element value * 2**(scale - 127) to `target`.

    `decode` returns a bit pattern, rounded to nearest even. Overflow gives infinity. The scale code
    0xFF gives NaN for every element code.
    """
    width, word = working_width(element, target), word_bits(element, target)
    unpack = make_unpack(element, width)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, width, word)
    NAN_CODE = target.nan_code

    @dialect
    def decode(code, scale):
        sign, exponent, significand, kind = unpack(code)
        value = pack(sign, exponent + scale - SCALE_BIAS, significand, kind, 0)
        return select(scale == SCALE_NAN, NAN_CODE, value)

    decode.__name__ = f"decode_{element.name}_{target.name}"
    return decode

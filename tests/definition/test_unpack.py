"""Tests of unpacking: significands are normalized and have the format's meaning."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mxnum.definition.unpack import FINITE, INFINITE, NAN, ZERO_EXPONENT, make_unpack
from mxnum.formats import ELEMENTS, FLOATS
from tests import samples

NARROW = {**ELEMENTS, "float16": FLOATS["float16"], "bfloat16": FLOATS["bfloat16"]}


@pytest.mark.parametrize("name", NARROW)
def test_every_code_unpacks_to_its_value(name):
    fmt = NARROW[name]
    width = fmt.mantissa_bits + 3
    unpack = make_unpack(fmt, width)
    for code in range(1 << fmt.bits):
        sign, exponent, significand, kind = unpack(code)
        value = fmt.value(code)
        if math.isfinite(value):
            assert kind == FINITE
            if significand == 0:
                assert value == 0
                assert exponent <= ZERO_EXPONENT
            else:
                assert 1 << width <= significand < 2 << width
                assert Fraction(value) == (-1) ** sign * significand * Fraction(2) ** (exponent - width)
        else:
            assert kind == (INFINITE if math.isinf(value) else NAN)
        assert sign == (code >> (fmt.bits - 1))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_wide_patterns_unpack_to_their_values(name):
    fmt = FLOATS[name]
    width = fmt.mantissa_bits
    unpack = make_unpack(fmt, width)
    powers = np.array([1 << b for b in range(width)], f"i{fmt.bits // 8}")
    bits = np.concatenate([samples.special_patterns(fmt), samples.random_patterns(fmt, 500), powers])
    for code, value in zip(bits.tolist(), samples.as_floats(fmt, bits), strict=True):
        sign, exponent, significand, kind = unpack(code)
        assert kind == (NAN if math.isnan(value) else INFINITE if math.isinf(value) else FINITE)
        if kind == FINITE and value:
            assert 1 << width <= significand < 2 << width
            assert Fraction(value) == (-1) ** sign * significand * Fraction(2) ** (exponent - width)

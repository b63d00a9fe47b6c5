"""Tests that the integer code of factors, quotients and scales agrees with exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mxnum.definition import float_scale
from mxnum.definition.unpack import FINITE, INFINITE, NAN
from mxnum.formats import ELEMENTS, FLOATS, SCALES, MXFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from mxnum.reference import float_scales as exact
from mxnum.reference import numbers
from tests.samples import generator

FLOAT32 = FLOATS["float32"]
KINDS = {FINITE: "finite", INFINITE: "inf", NAN: "nan"}
RULES = FloatScaleRule.NEAREST, FloatScaleRule.RCEIL


def signed(bits, width):
    return bits - (1 << width) if bits >> (width - 1) else bits


def near(rng, element, source, factor):
    """Return the bits of a float near `factor` times a random value of `element`.

    In half of the cases, the mean of two random values is taken instead.
    """
    values = [Fraction(element.value(int(rng.integers(0, element.max_code + 1)))) for _ in range(2)]
    magnitude = factor * (sum(values) / 2 if rng.random() < 0.5 else values[0])
    bits = numbers.round_to(numbers.Exact("finite", bool(rng.integers(2)), magnitude), source)
    return (bits + int(rng.integers(-1, 2))) % (1 << source.bits)


@pytest.mark.parametrize("scale_name", [name for name in SCALES if name != "e8m0"])
@pytest.mark.parametrize("source", FLOATS.values(), ids=lambda source: source.name)
def test_encode_decode_and_scales(source, scale_name):
    scale, rng = SCALES[scale_name], generator(source.name, scale_name)
    factor_of, width = float_scale.make_factor(scale), float_scale.factor_width(scale)
    for element in (ELEMENTS[name] for name in ("e2m1", "e4m3", "int8", "e5m2", "e3m0")):
        fmt = MXFormat(element, scale, 16)
        find_tensor = float_scale.make_tensor_scale(source, element, scale)
        find = {rule: float_scale.make_float_scale(source, element, scale, rule) for rule in RULES}
        target = [*FLOATS.values()][rng.integers(4)]
        decode = float_scale.make_decode_over(element, scale, target)
        for rounding in Rounding:
            overflow = [*Overflow][rng.integers(2)]
            encode = float_scale.make_encode_over(source, element, scale, rounding, overflow)
            for _ in range(6):
                special = rng.random() < 0.1
                code = scale.max_code + int(rng.integers(0, 2)) if special else int(rng.integers(0, scale.max_code + 1))
                tensor = int(rng.integers(0, FLOAT32.max_code + 2))
                parts = factor_of(code, tensor)
                factor = numbers.times(exact.scale_number(code, scale), numbers.decode_exact(tensor, FLOAT32))
                assert KINDS[parts[2]] == factor.kind
                if factor.kind == "finite":
                    assert Fraction(parts[1]) * Fraction(2) ** (parts[0] - width) == factor.magnitude
                x = int.from_bytes(rng.bytes(source.bits // 8), "little")
                if rng.random() < 0.7 and factor.kind == "finite" and factor.magnitude:
                    x = near(rng, element, source, factor.magnitude)
                number, random = numbers.decode_exact(x, source), int(rng.integers(0, 1 << 30))
                want = 0
                if factor.kind != "nan":
                    quotient = exact.divided(number, factor)
                    want = numbers.round_to(quotient, element, rounding, overflow, random, 30)
                assert encode(signed(x, source.bits), *parts, random) == want, (hex(x), code, hex(tensor))
                element_code = int(rng.integers(0, 1 << element.bits))
                value = numbers.times(numbers.decode_exact(element_code, element), factor)
                bits = decode(element_code, *parts) % (1 << target.bits)
                assert bits == numbers.round_to(value, target), (element_code, code, hex(tensor))
                t = numbers.decode_exact(max(1, tensor % (FLOAT32.max_code + 1)), FLOAT32).magnitude
                if number.kind == "finite":
                    amax = x % (1 << (source.bits - 1))
                    for rule in RULES:
                        made = find[rule](amax, max(1, tensor % (FLOAT32.max_code + 1)))
                        assert made == exact.float_scale([number.magnitude], fmt, rule, t), (hex(x), hex(tensor))
                    assert Fraction(float(np.uint32(find_tensor(amax)).view(np.float32))) == exact.tensor_scale(
                        [number.magnitude], fmt
                    )

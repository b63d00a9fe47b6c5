"""Tests that fast formulations for float scales equal the definition near every threshold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mxnum.definition.float_scale import make_float_scale
from mxnum.engine.rounding import by_factors, formulation, paths
from mxnum.formats import ELEMENTS, FLOATS, SCALES, ElementFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from mxnum.reference import numbers
from mxnum.reference.float_scales import scale_number
from tests.samples import generator

FLOAT32 = FLOATS["float32"]
OWN = ElementFormat("e3m4", 3, 4, 3, "nan")


def constants(formulation, code, tensor):
    """Return a formulation's constants for a block, and whether its results there are right."""
    tables = np.zeros(formulation.constants, np.int64 if formulation.is_wide else np.int32)
    is_right = formulation.prepare(code, tensor, tables, 0, 1)
    if formulation.prepare_more is not None:
        formulation.prepare_more(code, tensor, tables, 0, 1)
    return formulation.at(tables, 0, 1), is_right


def signed(bits, width):
    return bits - (1 << width) if bits >> (width - 1) else bits


def inputs(rng, element, source, factor):
    """Yield bits of finite numbers at or next to thresholds, and at the ends of the range."""
    for _ in range(2):
        low, high = (Fraction(element.value(int(rng.integers(0, element.max_code + 1)))) for _ in range(2))
        for magnitude in (low * factor, (low + high) / 2 * factor):
            number = numbers.Exact("finite", bool(rng.integers(2)), magnitude)
            bits = numbers.round_to(number, source, overflow=Overflow.SATURATE)
            for near in (bits - 1, bits, bits + 1):
                if 0 <= near & ((1 << (source.bits - 1)) - 1) <= source.max_code:
                    yield near % (1 << source.bits)
    yield from (0, 1, source.max_code, 1 << (source.bits - 1))


def cases(rng, scale, count=2):
    """Yield pairs of a scale code and a tensor scale, including the extremes of both."""
    yield from ((0, 0x3F800000), (scale.max_code, FLOAT32.max_code), (1, 1))
    for _ in range(count):
        yield int(rng.integers(0, scale.max_code + 1)), int(rng.integers(1, FLOAT32.max_code + 1))


@pytest.mark.parametrize("scale_name", ["e4m3", "ue5m3", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("source", FLOATS.values(), ids=lambda source: source.name)
def test_elements(source, scale_name):
    scale, tried = SCALES[scale_name], 0
    for element in (*ELEMENTS.values(), OWN):
        for rounding in paths.QUOTIENTS.roundings:
            rng = generator(source.name, scale_name, element.name, rounding)
            overflow, target = [*Overflow][rng.integers(2)], (None, source)[rng.integers(2)]
            how = source, element, scale, rounding
            makers = [by_factors.by_quotients(*how, overflow, target)]
            if paths.PLACES.covers(source, element, rounding=rounding, scale=scale):
                makers.append(by_factors.by_places(*how, target))
            defined = formulation.quantizing_over(*how, overflow, target)
            for code, tensor in cases(rng, scale):
                tensor = tensor if scale.bits == 8 or scale_name == "float16" else 0x3F800000
                factor = numbers.times(scale_number(code, scale), numbers.decode_exact(tensor, FLOAT32)).magnitude
                exact, _ = constants(defined, code, tensor)
                for fast in makers:
                    made, is_right = constants(fast, code, tensor)
                    doubles = (
                        fast is not makers[0] and element.mantissa_bits == 1 and source.name in by_factors._IN_VECTORS
                    )
                    assert is_right == (not doubles or factor == 0 or 2.0**-125 <= factor < 2.0**125)
                    if not is_right:
                        continue
                    mask = (1 << (8 if target is None else target.bits)) - 1
                    for x in inputs(rng, element, source, factor):
                        word = signed(x, source.bits)
                        want = defined.element(word, exact, 0) & mask
                        assert int(fast.element(word, made, 0)) & mask == want, (how, hex(x), code, hex(tensor))
                        tried += 1
    assert tried > 2_000


@pytest.mark.parametrize("scale_name", ["e4m3", "ue5m3", "float16", "float32"])
@pytest.mark.parametrize("target", FLOATS.values(), ids=lambda target: target.name)
def test_decoding(target, scale_name):
    scale, rng = SCALES[scale_name], generator("decoding", target.name, scale_name)
    for element in (*ELEMENTS.values(), OWN):
        fast, defined = (make(element, scale, target) for make in (by_factors.decoding, formulation.decoding_over))
        for code, tensor in cases(rng, scale):
            made, is_right = constants(fast, code, tensor)
            assert is_right or (code == 0 and element.infinity_code is not None)
            if not is_right:
                continue
            exact, _ = constants(defined, code, tensor)
            mask = (1 << target.bits) - 1
            for element_code in range(1 << element.bits):
                want = defined.element(element_code, exact, 0) & mask
                assert int(fast.element(element_code, made, 0)) & mask == want, (
                    element,
                    element_code,
                    code,
                    hex(tensor),
                )


@pytest.mark.parametrize("scale", [s for s in SCALES.values() if not s.power_of_two], ids=lambda scale: scale.name)
@pytest.mark.parametrize("source", FLOATS.values(), ids=lambda source: source.name)
def test_scales(source, scale):
    rng = generator("scales", source.name, scale.name)
    for element in (ELEMENTS["e2m1"], ELEMENTS["e4m3"], ELEMENTS["int8"]):
        for rule in (FloatScaleRule.NEAREST, FloatScaleRule.RCEIL):
            fast, defined = (make(source, element, scale, rule) for make in (by_factors.make_scale, make_float_scale))
            for code, tensor in cases(rng, scale, 8):
                tensor = tensor if scale.bits == 8 or scale.name == "float16" else 0x3F800000
                factor = numbers.times(scale_number(code, scale), numbers.decode_exact(tensor, FLOAT32)).magnitude
                half = (scale_number(min(code + 1, scale.max_code), scale).magnitude * numbers.decode_exact(
                    tensor, FLOAT32).magnitude + factor) / 2  # fmt: skip
                for magnitude in (factor * Fraction(element.max), half * Fraction(element.max)):
                    bits = numbers.round_to(
                        numbers.Exact("finite", False, magnitude), source, overflow=Overflow.SATURATE
                    )
                    for amax in (
                        bits,
                        max(bits - 1, 0),
                        min(bits + 1, source.max_code),
                        int(rng.integers(0, source.max_code)),
                    ):
                        assert fast(amax, tensor) == defined(amax, tensor), (element, rule, hex(amax), hex(tensor))


def test_what_is_no_number_is_left_to_the_definition():
    e4m3, e2m1 = SCALES["e4m3"], ELEMENTS["e2m1"]
    fast = by_factors.by_places(FLOAT32, e2m1, e4m3, Rounding.RNE, None)
    assert [constants(fast, code, 0x3F800000)[1] for code in (0, 1, 0x7E, 0x7F)] == [True, True, True, False]
    for tensor in (0x7F800000, 0x7FC00000):
        assert not constants(by_factors.decoding(e2m1, e4m3, FLOAT32), 1, tensor)[1]
        # The factor would be 0 times infinity, or 0 times NaN.
        assert not constants(by_factors.decoding(e2m1, e4m3, FLOAT32), 0, tensor)[1]


@pytest.mark.parametrize(
    ("tensor", "doubles"),
    [(0x01000000, True), (0x00FFFFFF, False), (0x7DFFFFFF, True), (0x7E000000, False)],
    ids=["2**-125", "below 2**-125", "below 2**125", "2**125"],
)
@pytest.mark.parametrize("target", [None, FLOAT32], ids=["codes", "values"])
def test_factors_at_the_ends_of_doubling(tensor, doubles, target):
    """Check that the formulation accepts a block only if all thresholds and values are normal."""
    one, e4m3, e2m1 = 0x38, SCALES["e4m3"], ELEMENTS["e2m1"]
    fast = by_factors.by_places(FLOAT32, e2m1, e4m3, Rounding.RNE, target)
    defined = formulation.quantizing_over(FLOAT32, e2m1, e4m3, Rounding.RNE, Overflow.SATURATE, target)
    made, is_right = constants(fast, one, tensor)
    exact, _ = constants(defined, one, tensor)
    assert is_right == doubles
    factor, mask = numbers.decode_exact(tensor, FLOAT32).magnitude, 15 if target is None else 0xFFFFFFFF
    words = [signed(x, 32) for x in inputs(generator("ends"), e2m1, FLOAT32, factor)] if doubles else []
    assert [int(fast.element(x, made, 0)) & mask for x in words] == [defined.element(x, exact, 0) & mask for x in words]

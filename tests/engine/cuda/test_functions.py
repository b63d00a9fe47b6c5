"""Tests that functions in GPU kernels equal the definition, and use only proved float formulas."""

from __future__ import annotations

import pytest

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests.samples import boundary_patterns

RNE, SATURATE, IEEE = Rounding.RNE, Overflow.SATURATE, Overflow.IEEE


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("source_name", ["float32", "bfloat16", "float16"])
def test_functions_are_the_definition(name, source_name):
    from mxnum.engine.cuda import functions

    source, element = FLOATS[source_name], ELEMENTS[name]
    quantized = functions.make_quantized(source, element, RNE, SATURATE, Nonfinite.BLOCK)
    fake = functions.make_fake_quantized(source, element, RNE, SATURATE, Nonfinite.BLOCK)
    encode, decode = make_encode(source, element, RNE, SATURATE), make_decode(element, source)
    mask = (1 << source.bits) - 1
    for scale in (0, 1, 100, 127, 128, 253, 254, 255):
        for x in boundary_patterns(source, element, min(scale, 254)).tolist()[::3]:
            if (x & (mask >> 1)) <= source.max_code:
                code = encode(x, scale, 0)
                assert quantized(x, scale, 0) == code, (x, scale)
                assert fake(x, scale, 0) == decode(code, scale) & mask, (x, scale)


@pytest.mark.parametrize("name", ELEMENTS)
def test_scales_are_those_of_the_definition(name):
    from mxnum.engine.cuda import functions

    for source in FLOATS.values():
        magnitudes = {p & ((1 << (source.bits - 1)) - 1) for p in boundary_patterns(source, ELEMENTS[name]).tolist()}
        for rule in ScaleRule:
            fast = functions.make_scale_of(source, ELEMENTS[name], rule)
            definition = make_shared_scale(source, ELEMENTS[name], rule)
            for amax in magnitudes:
                if amax <= source.max_code:
                    assert fast(amax) == definition(amax), (source.name, rule, amax)


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_code_under_every_scale_decodes_as_defined(name):
    from mxnum.engine.cuda import functions

    element, target = ELEMENTS[name], FLOATS["float32"]
    decoded, decode = functions.make_dequantized(element, target), make_decode(element, target)
    for code in range(1 << element.bits):
        for scale in (*range(0, 256, 17), 1, 127, 254):
            assert decoded(code, scale) == decode(code, scale) & 0xFFFFFFFF, (code, scale)


def test_floats_are_used_only_where_it_is_proved():
    from mxnum.engine.cuda.functions import decodes_by_float32, scales_to_float32

    float32, e4m3 = FLOATS["float32"], ELEMENTS["e4m3"]
    assert scales_to_float32(float32, e4m3, RNE, SATURATE)
    assert scales_to_float32(float32, ELEMENTS["int8"], RNE, IEEE)  # saturates, because int8 has no infinity or NaN
    impostor = ElementFormat("e4m3", exponent_bits=4, mantissa_bits=3, bias=9)
    for source, element, rounding, overflow in (
        (FLOATS["float64"], e4m3, RNE, SATURATE),
        (float32, ELEMENTS["e3m0"], RNE, SATURATE),
        (float32, impostor, RNE, SATURATE),
        (float32, e4m3, Rounding.RNA, SATURATE),
        (float32, e4m3, RNE, IEEE),
    ):
        assert not scales_to_float32(source, element, rounding, overflow)
    assert decodes_by_float32(e4m3, float32)
    assert not decodes_by_float32(impostor, float32)
    assert not decodes_by_float32(e4m3, FLOATS["bfloat16"])

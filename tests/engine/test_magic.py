"""The fast formulation against the definition, at its limits and beyond them."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine import magic
from mxnum.engine.jit import compile_scalar
from mxnum.formats import ELEMENTS
from mxnum.modes import Overflow, Rounding
from mxnum.scalar.convert import make_decode, make_encode
from tests import samples


def in_domain(element, scale):
    """Float32 patterns around every boundary of the element at that scale, within the domain, and random ones."""
    _, _, last_field = magic.domain(element)
    bits = [
        samples.boundary_patterns(magic.FLOAT32, element, scale),
        samples.random_patterns(magic.FLOAT32, 2000, scale),
    ]
    bits = np.concatenate(bits).astype(np.int64)
    return bits[((bits >> 23) & 0xFF) <= last_field]


@pytest.mark.parametrize("name", magic.ELEMENTS)
def test_codes_and_values_equal_the_definition(name):
    element = ELEMENTS[name]
    least, greatest, _ = magic.domain(element)
    encode = make_encode(magic.FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    decode = make_decode(element, magic.FLOAT32)
    code, value = magic.make_nearest_even_code(element), magic.make_nearest_even_value(element)
    for scale in (least, least + 1, 100, 127, greatest - 1, greatest):
        bits = in_domain(element, scale)
        want = encode(bits, np.int64(scale), np.int64(0))
        samples.assert_same(f"code {name} {scale}", bits, code(bits, np.int64(scale)), want)
        samples.assert_same(f"value {name} {scale}", bits, value(bits, np.int64(scale)), decode(want, np.int64(scale)))


@pytest.mark.parametrize("name", ELEMENTS)
def test_decoding_equals_the_definition_for_every_code_and_scale(name):
    element = ELEMENTS[name]
    least, greatest = magic.decoding_domain(element)
    fast, decode = magic.make_value_of_code(element), make_decode(element, magic.FLOAT32)
    codes = np.arange(1 << element.bits)
    with np.errstate(all="ignore"):
        for scale in range(least, greatest + 1):
            samples.assert_same(name, codes, fast(codes, np.int64(scale)), decode(codes, np.int64(scale)))


def test_e3m0_is_left_out_for_a_reason():
    """Its ties go by the parity of the exponent, which the hardware does not know."""
    element = ELEMENTS["e3m0"]
    assert "e3m0" not in magic.ELEMENTS
    x = int(np.float32(1.5).view(np.int32))
    encode = make_encode(magic.FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    half_way_below = int(np.float32(0.75).view(np.int32))
    fast = magic.make_nearest_even_code(element)
    assert [fast(x, 127), fast(half_way_below, 127)] != [encode(x, 127, 0), encode(half_way_below, 127, 0)]


def test_compiled_functions_equal_the_plain_ones():
    element = ELEMENTS["e2m3"]
    functions = magic.make_nearest_even_code(element), magic.make_nearest_even_value(element)
    for function in functions:
        compiled = compile_scalar(function)
        for bits in in_domain(element, 120)[:300].tolist():
            assert compiled(np.int32(bits), np.int32(120)) == function(bits, 120)
    decode = magic.make_value_of_code(element)
    assert compile_scalar(decode)(np.int32(0x21), np.int32(100)) == decode(0x21, 100)


def test_narrow_is_the_identity():
    assert magic.narrow(-5) == -5
    assert magic.add_float32(0x3F800000, 0x3F800000) == 0x40000000
    assert magic.subtract_float32(0x3F800000, 0x3F800000) == 0

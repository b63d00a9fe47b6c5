"""Tests that rounding by float32 additions equals the definition inside the allowed domain."""

from __future__ import annotations

from itertools import product

import numba
import numpy as np
import pytest

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import dialect
from mxnum.engine.machine.jit import register
from mxnum.engine.machine.lanes import integer, lane
from mxnum.engine.rounding import float_additions, paths
from mxnum.formats import ELEMENTS, ElementFormat, two_complement
from mxnum.modes import Overflow, Rounding
from tests import samples


def in_domain(element, scale, rounding=Rounding.RNE):
    """Return the bits of boundary floats and random floats in the domain of `float_additions`."""
    bits = [
        samples.boundary_patterns(float_additions.FLOAT32, element, scale),
        samples.random_patterns(float_additions.FLOAT32, 2000, scale),
    ]
    bits = np.concatenate(bits).astype(np.int64)
    return bits[(bits & 0x7FFFFFFF) <= float_additions.domain(element, rounding).greatest_x]


@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("rounding", paths.ROUNDINGS)
@pytest.mark.parametrize("name", ELEMENTS)
def test_codes_equal_the_definition(name, rounding, overflow):
    element = ELEMENTS[name]
    least, greatest, _ = float_additions.domain(element, rounding)
    encode = make_encode(float_additions.FLOAT32, element, rounding, overflow)
    code = float_additions.make_code(rounding, float_additions.breaks_ties_by_parity(element))
    constants = float_additions.constants(element, rounding, overflow)
    for scale in (least, least + 1, 127, greatest - 1, greatest):
        bits = in_domain(element, scale, rounding)
        random = samples.generator("magic", name).integers(0, 1 << 30, bits.size)
        want = encode(bits, np.int64(scale), random)
        got = code(bits, np.int64(scale), random, constants)
        samples.assert_same(f"code {name} {rounding} {overflow} {scale}", bits, got, want)


def any_format(seed):
    """Return a random element format of at most eight bits."""
    rng = samples.generator("formats", seed)
    if seed % 6 == 0:
        return two_complement("int", int(rng.integers(3, 9)))
    while True:
        exponent_bits, mantissa_bits = int(rng.integers(1, 8)), int(rng.integers(0, 7))
        bias, specials = (
            int(rng.choice([-300, -20, -3, 0, 1, 3, 7, 20, 63, 140])),
            str(rng.choice(["none", "nan", "ieee"])),
        )
        try:
            element = ElementFormat("any", exponent_bits, mantissa_bits, bias, specials)
        except ValueError:
            continue
        if element.bits <= 8:
            return element


@pytest.mark.parametrize("seed", range(60))
def test_formats_of_users(seed):
    """Check codes and values at the smallest, a middle and the largest scale of the domain.

    proofs/theorems/any_format.py proves for all scales that codes and values are right.
    """
    element, rng = any_format(seed), samples.generator("modes", seed)
    for rounding, overflow in product(paths.ROUNDINGS, Overflow):
        least, greatest, _ = float_additions.domain(element, rounding)
        decodable = float_additions.decoding_domain(element)
        encode = make_encode(float_additions.FLOAT32, element, rounding, overflow)
        decode = make_decode(element, float_additions.FLOAT32)
        code = float_additions.make_code(rounding, float_additions.breaks_ties_by_parity(element))
        constants = float_additions.constants(element, rounding, overflow)
        least, greatest = max(least, 0), min(greatest, 254)
        for scale in {least, (least + greatest) // 2, greatest} if least <= greatest else ():
            bits = in_domain(element, scale, rounding)
            random = rng.integers(0, 1 << 30, bits.size)
            want = encode(bits, np.int64(scale), random)
            got = code(bits, np.int64(scale), random, constants)
            samples.assert_same(f"{element!r} {rounding} {overflow} {scale}", bits, got, want)
            if decodable[0] <= scale <= decodable[1]:
                value = float_additions.value_of_code(want, np.int64(scale), constants)
                samples.assert_same(f"{element!r} {scale}", want, value, decode(want, np.int64(scale)))


@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("rounding", paths.ROUNDINGS)
@pytest.mark.parametrize("name", ELEMENTS)
def test_values_equal_the_definition(name, rounding, overflow):
    element = ELEMENTS[name]
    least, greatest, _ = float_additions.domain(element, rounding)
    encode = make_encode(float_additions.FLOAT32, element, rounding, overflow)
    decode, constants = (
        make_decode(element, float_additions.FLOAT32),
        float_additions.constants(element, rounding, overflow),
    )
    value = float_additions.make_value(rounding, float_additions.breaks_ties_by_parity(element))
    for scale in (least, 100, 127, greatest):
        bits = in_domain(element, scale, rounding)
        random = samples.generator("magic", name).integers(0, 1 << 30, bits.size)
        want = decode(encode(bits, np.int64(scale), random), np.int64(scale))
        got = value(bits, np.int64(scale), random, constants)
        samples.assert_same(f"value {name} {rounding} {overflow} {scale}", bits, got, want)


@pytest.mark.parametrize("rule", paths.RULES)
@pytest.mark.parametrize("name", ELEMENTS)
def test_scales_equal_the_definition_where_magnitudes_are_normal(name, rule):
    element = ELEMENTS[name]
    amax = np.concatenate([np.arange(0, 0x7F800000, 0x3FFF), [0x7F7FFFFF, 0x00800000, 0]])
    got = float_additions.fast_scale(amax, float_additions.constants(element, rule=rule))
    want = make_shared_scale(float_additions.FLOAT32, element, rule)(amax)
    normal = (amax >= 1 << 23) | (amax == 0)
    samples.assert_same(f"{name} {rule}", amax[normal], got[normal], want[normal])
    assert (got[~normal] < float_additions.domain(element, Rounding.RNE).least_scale).all()


@pytest.mark.parametrize("name", ELEMENTS)
def test_decoding_equals_the_definition_for_every_code_and_scale(name):
    element = ELEMENTS[name]
    least, greatest = float_additions.decoding_domain(element)
    decode, constants = make_decode(element, float_additions.FLOAT32), float_additions.constants(element)
    codes = np.arange(1 << element.bits)
    with np.errstate(all="ignore"):
        for scale in range(least, greatest + 1):
            got = float_additions.value_of_code(codes, np.int64(scale), constants)
            samples.assert_same(name, codes, got, decode(codes, np.int64(scale)))


@pytest.mark.parametrize("name", ELEMENTS)
def test_decoding_by_product_equals_the_definition_for_every_code_and_scale(name):
    element = ELEMENTS[name]
    least, greatest = float_additions.product_domain(element)
    assert 0 < least < 100
    assert 200 < greatest <= 254
    decode, constants = make_decode(element, float_additions.FLOAT32), float_additions.constants(element)
    value = float_additions.make_value_by_product(element)
    codes = np.arange(1 << element.bits)
    with np.errstate(invalid="ignore"):
        for scale in range(least, greatest + 1):
            got = value(codes, np.int64(scale), constants)
            samples.assert_same(name, codes, got, decode(codes, np.int64(scale)))


def test_ties_of_an_element_without_mantissa_go_by_the_parity_of_its_code():
    """Check ties of E3M0, which hardware additions break wrongly, by the float's last bit."""
    element = ELEMENTS["e3m0"]
    encode = make_encode(float_additions.FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    ties = [int(np.float32(x).view(np.int32)) for x in (1.5, 0.75)]
    by_hardware, by_parity = (float_additions.make_code(Rounding.RNE, by_parity) for by_parity in (False, True))
    want = [encode(x, 127, 0) for x in ties]
    assert [by_parity(x, 127, 0, float_additions.constants(element)) for x in ties] == want
    assert [by_hardware(x, 127, 0, float_additions.constants(element)) for x in ties] != want


def on_lanes(function, constants):
    """Return a function that converts integers to 32-bit lanes and calls `function` with them."""

    @dialect
    def call(x, scale, random):
        return integer(function(lane(x), lane(scale), lane(random), constants))

    return call


def test_compiled_functions_equal_the_plain_ones():
    element = ELEMENTS["e2m3"]
    constants = float_additions.constants(element)
    for function in (float_additions.make_code(Rounding.SR, False), float_additions.make_value(Rounding.RTO, False)):
        call = on_lanes(function, constants)
        compiled = numba.njit(register(call))
        for bits in in_domain(element, 120)[:300].tolist():
            assert compiled(np.int32(bits), np.int32(120), np.int32(77777)) == call(bits, 120, 77777)

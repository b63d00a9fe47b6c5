"""Tests of cases that other emulators get wrong or treat differently."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.formats import E8M0, FLOATS
from tests import samples
from tests.covering import covering


def quantized(values, fmt, dtype=np.float32, **options):
    return mx.quantize(np.array(values, dtype), fmt, **options)


def test_exponent_of_the_value_just_below_a_power_of_two():
    q = quantized([np.nextafter(np.float32(8), np.float32(0))], "mxfp8_e4m3")
    assert E8M0.value(int(q.scales[0])) == 2.0 ** (2 - 8)
    assert q.dequantize()[0] == 7.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponent_below_every_power_of_two(dtype):
    """Check numbers just below powers of two, for which log2 in float32 rounds up to an integer."""
    powers = np.exp2(np.arange(-118, 128, dtype=np.float64)).astype(dtype)
    below = np.nextafter(powers, dtype(0))
    at = mx.shared_scale(powers.reshape(-1, 1), "mxfp8_e4m3").ravel().astype(int)
    assert np.array_equal(at, np.arange(-118, 128) - 8 + 127)
    assert np.array_equal(mx.shared_scale(below.reshape(-1, 1), "mxfp8_e4m3").ravel(), at - 1)


def test_ties_go_to_even_not_away():
    assert mx.decode(mx.encode([-5.0, 5.0, 2.5], "e2m1"), "e2m1").tolist() == [-4, 4, 2]
    assert mx.decode(mx.encode([-5.0, 5.0, 2.5], "e2m1", rounding="rna"), "e2m1").tolist() == [-6, 6, 3]
    assert mx.decode(mx.encode([0.0625], "e2m3"), "e2m3")[0] == 0
    assert mx.decode(mx.encode([0.0625], "e2m3", rounding="rna"), "e2m3")[0] == 0.125


@pytest.mark.parametrize("fmt", mx.formats.names("e8m0"))
def test_a_block_of_zeros_has_scale_code_zero(fmt):
    for zero in (0.0, -0.0):
        for rule in mx.ScaleRule:
            q = quantized([zero] * 32, fmt, scale_rule=rule)
            assert q.scales.tolist() == [0]
            assert (q.dequantize() == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_nan_or_infinity_makes_the_whole_block_nan_and_no_other(bad):
    q = quantized([1.0] * 31 + [bad] + [2.0] * 32, "mxfp8_e4m3")
    assert q.scales.tolist() == [0xFF, 127 - 7]
    assert (q.codes[:32] == 0).all()
    values = q.dequantize()
    assert np.isnan(values[:32]).all()
    assert (values[32:] == 2).all()
    assert (values.view(np.uint32)[:32] == 0x7FC00000).all()


def test_one_infinity_by_element_saturates_or_stays():
    x = [1.0, np.inf, -np.inf]
    assert quantized(x, "mxfp8_e5m2", nonfinite="element").codes[1:].tolist() == [0x7B, 0xFB]
    assert quantized(x, "mxfp8_e5m2", nonfinite="element", overflow="ieee").codes[1:].tolist() == [0x7C, 0xFC]
    assert quantized(x, "mxfp8_e4m3", nonfinite="element", overflow="ieee").codes[1:].tolist() == [0x7F, 0xFF]


def test_scale_underflow_is_exact():
    for power in range(-149, -110):
        for scale in ("floor", "ceil", "even", "rceil"):
            q = quantized([2.0**power], "mxfp8_e4m3", scale_rule=scale)
            exact = 2.0**power if power >= -127 - 9 else 0.0
            assert q.dequantize("float64")[0] == q.dequantize("float32")[0] == exact


def test_every_scale_code_expands_exactly():
    codes = np.full((255, 1), 0x38, np.uint8)  # the code of 1.0
    q = mx.MXArray.from_parts(codes, np.arange(255, dtype=np.uint8).reshape(255, 1), "mxfp8_e4m3")
    expected = np.ldexp(1.0, np.arange(255) - 127)
    assert np.array_equal(q.dequantize("float64").ravel(), expected)
    assert np.array_equal(q.dequantize("float32").ravel(), expected.astype(np.float32))


@pytest.mark.parametrize("rule", ["ceil", "even", "rceil"])
def test_the_largest_float_does_not_turn_its_block_into_nan(rule):
    q = quantized([np.finfo(np.float32).max, 1.0], "mxfp8_e4m3", scale_rule=rule)
    assert q.scales[0] != 0xFF
    assert np.isfinite(q.dequantize("float64")).all()


def test_int8_has_emax_zero_and_is_symmetric():
    q = quantized([-1.9999, 1.0], "mxint8")
    assert q.scales.tolist() == [127]
    assert q.dequantize()[0] == -1.984375
    x = samples.generator("int8").standard_normal((100, 32)).astype(np.float32)
    assert not (quantized(x, "mxint8").codes == 0x80).any()
    assert not (quantized(x, "mxint4").codes == 0x8).any()


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxfp4_e3m0"])
def test_minus_zero_keeps_its_sign(fmt):
    values = quantized([-0.0, 0.0, -1e-30, 1.0], fmt).dequantize()
    assert np.signbit(values).tolist() == [True, False, True, False]
    assert values[:3].tolist() == [0, 0, 0]


def test_minus_nan_of_e4m3_decodes_to_nan():
    assert np.isnan(mx.decode(np.array([0x7F, 0xFF], np.uint8), "e4m3")).all()


def test_e5m2_halfway_to_overflow():
    assert mx.decode(mx.encode([61440.0], "e5m2"), "e5m2")[0] == 57344
    assert mx.decode(mx.encode([61440.0], "e5m2", overflow="ieee"), "e5m2")[0] == np.inf
    below = np.nextafter(np.float32(61440), np.float32(0))
    assert mx.decode(mx.encode(np.array([below]), "e5m2", overflow="ieee"), "e5m2")[0] == 57344


def test_rceil_where_float32_arithmetic_is_wrong():
    """Check rceil for an input for which float32 rounds max * (1 / 448) to a power of two."""
    x = np.array([float.fromhex("0x1.c00002p-119")], np.float32)
    scale = int(mx.shared_scale(x, "mxfp8_e4m3", scale_rule="rceil")[0])
    assert 448.0 * 2.0 ** (scale - 127) >= float(x[0]) > 448.0 * 2.0 ** (scale - 128)


def test_nibbles_are_neighbours():
    """Check that element i begins at bit 4 * i, as in gpt-oss; llama.cpp uses another order."""
    q = mx.MXArray.from_parts(np.arange(16, dtype=np.uint8), np.full(1, 127, np.uint8), "mxfp4_e2m1")
    assert q.pack().tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]


def test_blocks_do_not_straddle_rows():
    x = np.ones((2, 40), np.float32)
    x[1] *= 1024
    q = mx.quantize(x, "mxfp4_e2m1")
    assert q.scales.shape == (2, 2)
    assert np.array_equal(q.dequantize(), x)


@covering(element=samples.ELEMENTS, dtype=FLOATS, kinds={"element": samples.kind}).parametrize_in_tiers
def test_every_code_round_trips(element, dtype):
    fmt = mx.formats.element(element)
    codes = np.array([code for code, value in enumerate(fmt.values()) if value == value], np.uint8)
    if fmt.integer:  # `encode` never returns the code of the most negative number
        codes = codes[codes != 1 << (fmt.bits - 1)]
    back = mx.encode(mx.decode(codes, element, dtype=dtype), element, overflow="ieee")
    assert np.array_equal(back, codes)


def test_a_short_last_block_is_as_if_zero_padded():
    x = samples.generator("padding").standard_normal(45).astype(np.float32)
    short = mx.quantize(x, "mxfp6_e3m2")
    padded = mx.quantize(np.pad(x, (0, 19)), "mxfp6_e3m2")
    assert np.array_equal(short.codes, padded.codes[:45])
    assert np.array_equal(short.scales, padded.scales)

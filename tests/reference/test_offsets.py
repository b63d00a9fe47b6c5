"""Tests of the oracle on asymmetric blocks: offsets, differences and sums."""

from __future__ import annotations

import math

import numpy as np

from mxnum.reference import dequantize, fake_quantize, quantize, shared_scale
from tests.reference.tables import DTYPES, INF, NAN, bits_of, f16, f32, u8


def test_offset_by_hand() -> None:
    q = quantize(f32([1, 3, 2.25]), "mxfp4_e2m1", offset="float16")
    assert q.offsets is not None
    assert q.offsets.dtype == np.float16
    assert q.offsets.tolist() == [2.0]
    assert q.scales.tolist() == [125]  # The largest difference is 2**0, so the scale is 2**(0 - emax).
    assert q.codes.tolist() == [0xE, 0x6, 0x2]  # The differences are -4/4, 4/4 and 1/4.
    assert dequantize(q.codes, q.scales, "mxfp4_e2m1", offsets=q.offsets).tolist() == [1, 3, 2.25]
    assert fake_quantize(f32([1, 3, 2.25]), "mxfp4_e2m1", offset="float16").tolist() == [1, 3, 2.25]


def test_offset_is_rounded_and_its_error_held_by_the_exact_range() -> None:
    x = f32([4097, 4099])  # the mid-range, 4098, is a float16 tie and rounds to 4096
    exact = quantize(x, "mxfp4_e2m1", offset="float16")
    half = quantize(x, "mxfp4_e2m1", offset="float16", offset_range="half")
    assert exact.offsets is not None
    assert exact.offsets.tolist() == [4096.0]
    # With scale 1/2, the differences 1 and 3 are 2 and 6 halves.
    assert (exact.scales.tolist(), exact.codes.tolist()) == ([126], [4, 7])
    # With scale 1/4, the first difference is 4 quarters; the second difference, 12 quarters,
    # saturates.
    assert (half.scales.tolist(), half.codes.tolist()) == ([125], [6, 7])
    wide = quantize(f32([1e6, 1e6]), "mxfp8_e4m3", offset="float16")
    assert wide.offsets is not None
    assert wide.offsets.tolist() == [65504.0]
    assert wide.scales.tolist() == [shared_scale([1e6 - 65504], "e4m3")]
    low = quantize(f32([-3e38]), "mxfp8_e4m3", offset="float16")
    assert low.offsets is not None
    assert low.offsets.tolist() == [-65504.0]


def test_offset_difference_is_rounded_to_float32_unless_the_input_is_float64() -> None:
    x = np.array([2.0**-30, 2.0])
    scales = np.array([127])
    codes = {
        dtype: quantize(
            x.astype(DTYPES[dtype]), "mxint8", offset="float16", scales=scales, rounding="rtz"
        ).codes.tolist()
        for dtype in ("float64", "float32", "bfloat16")
    }
    assert codes == {"float64": [256 - 63, 64], "float32": [256 - 64, 64], "bfloat16": [256 - 64, 64]}


def test_offset_of_short_blocks_and_axes() -> None:
    x = f32([[1, 2], [3, 4], [10, 30]])
    q = quantize(x, "mxint8", blocks=(2, 1), offset="float16")
    assert q.offsets is not None
    assert q.offsets.tolist() == [[2, 3], [10, 30]]
    assert q.scales.tolist() == [[127, 127], [0, 0]]
    assert q.codes[2].tolist() == [0, 0]
    back = dequantize(q.codes, q.scales, "mxint8", blocks=(2, 1), offsets=q.offsets)
    assert back.tolist() == x.tolist()


def test_offset_with_nonfinite_elements() -> None:
    minus_nan = math.copysign(NAN, -1.0)
    x = np.array([1.0, 3.0, INF, -INF, NAN, minus_nan], np.float32)
    q = quantize(x, "mxfp8_e5m2", offset="float16")
    assert q.offsets is not None
    assert bits_of(q.offsets) == [0]
    assert q.scales.tolist() == [255]
    assert not q.codes.any()
    q = quantize(x, "mxfp8_e5m2", offset="float16", nonfinite="element", overflow="ieee")
    assert q.offsets is not None
    assert q.offsets.tolist() == [2.0]
    assert q.codes[2:].tolist() == [0x7C, 0xFC, 0x7F, 0xFF]
    assert q.codes[:2].tolist() == [0xF8, 0x78]
    back = dequantize(q.codes, q.scales, "mxfp8_e5m2", offsets=q.offsets)
    assert back[:4].tolist() == [1, 3, INF, -INF]
    assert bits_of(back[4:].copy()) == [0x7FC00000] * 2
    for offset_range in ("exact", "half"):
        q = quantize(
            x[2:4], "mxfp8_e5m2", offset="float16", nonfinite="element", overflow="ieee", offset_range=offset_range
        )
        assert q.offsets is not None
        assert bits_of(q.offsets) == [0]
        assert q.scales.tolist() == [0]
        assert q.codes.tolist() == [0x7C, 0xFC]
    given = quantize(f32([8.0]), "mxfp8_e5m2", offset="float16", scales=np.array([255]))
    assert given.offsets is not None
    assert given.offsets.tolist() == [0.0]
    assert given.codes.tolist() == [0]


def test_offset_zeros() -> None:
    # x - x is +0 for x of either sign, and -0 - +0 is -0.
    q = quantize(f32([5.0, 5.0]), "mxfp8_e4m3", offset="float16")
    assert q.codes.tolist() == [0, 0]
    assert q.scales.tolist() == [0]
    q = quantize(f32([-5.0]), "mxfp8_e4m3", offset="float16")
    assert q.codes.tolist() == [0]
    q = quantize(f32([-1.0, 1.0, -0.0, 0.0]), "mxfp8_e4m3", offset="float16")
    assert q.offsets is not None
    assert bits_of(q.offsets) == [0]
    assert q.codes.tolist() == [0xF8, 0x78, 0x80, 0]
    # A tiny negative mid-range rounds to -0 in float16, and then -0 - -0 is +0.
    q = quantize(f32([-(2.0**-40), -0.0]), "mxfp8_e4m3", offset="float16")
    assert q.offsets is not None
    assert bits_of(q.offsets) == [0x8000]
    assert q.codes.tolist() == [0xF8, 0]


def test_dequantized_sums() -> None:
    codes, scales = u8([[0xC], [0x8], [0x0], [0x8]]), np.full((4, 1), 127, np.uint8)
    offsets = f16([[2.0], [-0.0], [-0.0], [0.0]])
    back = dequantize(codes, scales, "mxfp4_e2m1", offsets=offsets)
    assert bits_of(back) == [0, 0x80000000, 0, 0]
    # The exact sum is rounded once, to bfloat16.
    one = dequantize(u8([0x79]), u8([127 - 16]), "mxfp8_e4m3", dtype="bfloat16", offsets=f16([1.0]))
    assert one.astype(float).tolist() == [1 + 2.0**-7]  # 1 + 288 * 2**-16 is just above a tie
    special = dequantize(
        u8([[0x7C], [0x7C], [0x3C]]), np.full((3, 1), 127), "mxfp8_e5m2", offsets=f16([[-INF], [1], [NAN]])
    )
    assert bits_of(special) == [0x7FC00000, 0x7F800000, 0x7FC00000]

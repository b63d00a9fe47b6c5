"""Tests of the oracle on arrays: blocks, policies for non-finite numbers, given scales."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mxnum import formats
from mxnum.formats import MXFormat
from mxnum.reference import decode, dequantize, encode, fake_quantize, quantize, shared_scale
from tests.reference.tables import DTYPES, INF, NAN, RULES, bits_of, f16, f32, u8


@pytest.mark.parametrize(
    ("shape", "blocks", "counts"),
    [
        ((), (), ()),
        ((0,), (4,), (0,)),
        ((3, 0), (2, 32), (2, 0)),
        ((5,), (4,), (2,)),
        ((5,), (9,), (1,)),
        ((3, 7), (2, 3), (2, 3)),
        ((2, 3, 4), (1, 3, 1), (2, 1, 4)),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_element_has_the_scale_of_its_block(
    shape: tuple[int, ...], blocks: tuple[int, ...], counts: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(DTYPES[dtype])
    words = rng.integers(0, 2**32, shape, np.uint32)
    options: dict[str, Any] = {"rounding": "sr", "overflow": "ieee", "sr_bits": 7}
    q = quantize(x, "mxfp8_e5m2", blocks=blocks, random_bits=words, scale_rule="even", **options)
    assert q.codes.dtype == q.scales.dtype == np.uint8
    assert q.offsets is None
    assert q.codes.shape == shape
    assert q.scales.shape == counts
    blocks_of: dict[tuple[int, ...], list[float]] = {place: [] for place in np.ndindex(*counts)}
    for i in np.ndindex(*shape):
        blocks_of[tuple(n // b for n, b in zip(i, blocks, strict=True))].append(float(x[i]))
    for place, members in blocks_of.items():
        assert q.scales[place] == shared_scale(members, "e5m2", scale_rule="even")
    back = dequantize(q.codes, q.scales, "mxfp8_e5m2", blocks=blocks, dtype=dtype)
    assert back.dtype == x.dtype
    assert back.shape == shape
    for i in np.ndindex(*shape):
        scale = int(q.scales[tuple(n // b for n, b in zip(i, blocks, strict=True))])
        assert q.codes[i] == encode(float(x[i]), "e5m2", scale=scale, random_bits=int(words[i]), **options)
        assert bits_of(back[i]) == [decode(int(q.codes[i]), "e5m2", dtype=dtype, scale=scale)]
    fake = fake_quantize(x, "mxfp8_e5m2", blocks=blocks, random_bits=words, scale_rule="even", **options)
    assert bits_of(fake) == bits_of(back)
    assert fake.dtype == x.dtype


def test_default_blocks_lie_along_the_last_axis() -> None:
    q = quantize(np.ones((2, 3, 65)), "mxint4")
    assert q.scales.shape == (2, 3, 3)
    assert quantize(np.float64(1.0), "mxint4").scales.shape == ()
    assert quantize(np.ones((2, 3)), MXFormat("e2m1", block=2)).scales.shape == (2, 2)


def test_short_block_is_as_if_padded_with_zeros() -> None:
    x = np.random.default_rng(6).standard_normal((5, 37)) * np.exp2(np.arange(37) - 18)
    padded = np.zeros((5, 64))
    padded[:, :37] = x
    short, full = quantize(x, "mxfp6_e3m2"), quantize(padded, "mxfp6_e3m2")
    assert (short.scales == full.scales).all()
    assert (short.codes == full.codes[:, :37]).all()


@pytest.mark.parametrize("name", formats.names("e8m0"))
@pytest.mark.parametrize("rule", RULES[:4])
def test_quantization_is_idempotent_in_values(name: str, rule: str) -> None:
    x = np.random.default_rng(7).standard_normal((2, 32)) * np.exp2(np.arange(32) / 4)
    once = fake_quantize(x, name, scale_rule=rule)
    assert (once != x).any()
    assert bits_of(fake_quantize(once, name, scale_rule=rule)) == bits_of(once)


def test_zero_block() -> None:
    q = quantize(f32([0.0, -0.0]), "mxfp4_e2m1")
    assert q.scales.tolist() == [0]
    assert q.codes.tolist() == [0, 8]
    assert bits_of(fake_quantize(f32([0.0, -0.0]), "mxfp4_e2m1")) == [0, 0x80000000]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("name", formats.names("e8m0"))
def test_policy_block(bad: float, name: str) -> None:
    x = f32([[1.0, bad, 2.0, 3.0], [1.0, 2.0, 4.0, -8.0]])
    for scales in (None, u8([[120, 127], [127, 127]])):
        q = quantize(x, name, blocks=(1, 2), scales=scales, overflow="ieee")
        assert q.scales[0, 0] == 255
        assert q.codes[0, :2].tolist() == [0, 0]
        assert q.scales[0, 1] != 255
        assert q.codes[0, 2:].all()
        assert q.codes[1].all()
        back = dequantize(q.codes, q.scales, name, blocks=(1, 2))
        assert bits_of(back[0, :2].copy()) == [0x7FC00000] * 2
        assert np.isfinite(back[1]).all()


def test_policy_element() -> None:
    minus_nan = math.copysign(NAN, -1.0)
    x = np.array([INF, -INF, NAN, minus_nan, 448.0, 0.5])
    q = quantize(x, "mxfp8_e4m3", nonfinite="element")
    assert q.scales.tolist() == [127]
    assert q.codes.tolist() == [0x7E, 0xFE, 0x7F, 0xFF, 0x7E, 0x30]
    q = quantize(x, "mxfp8_e4m3", nonfinite="element", overflow="ieee")
    assert q.codes.tolist() == [0x7F, 0xFF, 0x7F, 0xFF, 0x7E, 0x30]
    for dtype in DTYPES.values():
        q = quantize(x.astype(dtype), "mxfp8_e5m2", nonfinite="element", overflow="ieee")
        assert q.scales.tolist() == [127 + 8 - 15]
        assert q.codes[:4].tolist() == [0x7C, 0xFC, 0x7F, 0xFF]
    q = quantize(f32([INF, -INF]), "mxfp4_e2m1", nonfinite="element", overflow="ieee")
    assert q.scales.tolist() == [0]
    assert q.codes.tolist() == [7, 15]
    with pytest.raises(ValueError, match=r"'x'.*index 2"):
        quantize(x, "mxfp4_e2m1", nonfinite="element")
    with pytest.raises(ValueError, match=r"index \(1, 0\)"):
        quantize(x.reshape(3, 2), "mxint8", nonfinite="element")


def test_policy_raise() -> None:
    x = f32([[1, 2, 3], [4, -INF, NAN]])
    with pytest.raises(ValueError, match=r"'x'.*index \(1, 1\)"):
        quantize(x, "mxfp8_e5m2", nonfinite="raise", overflow="ieee")
    finite = quantize(x[:1], "mxfp8_e5m2", nonfinite="raise")
    assert (finite.codes == quantize(x[:1], "mxfp8_e5m2").codes).all()


def test_given_scales() -> None:
    x = f32([1.0, 2.0, 3.0, 4.0, 5.0])
    q = quantize(x, "mxfp4_e2m1", blocks=(2,), scales=np.array([128, 255, 126]), scale_rule="rceil")
    assert q.scales.tolist() == [128, 255, 126]
    assert q.scales.dtype == np.uint8
    assert q.codes.tolist() == [1, 2, 0, 0, 7]  # 0.5, 1, NaN block, 10 saturates to 6
    back = dequantize(q.codes, q.scales, "mxfp4_e2m1", blocks=(2,))
    assert bits_of(back[2:4].copy()) == [0x7FC00000] * 2
    assert back[[0, 1, 4]].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="'scales'"):
        quantize(x, "mxfp4_e2m1", blocks=(2,), scales=np.array([128, 128]))
    with pytest.raises(ValueError, match="'scales'"):
        quantize(x, "mxfp4_e2m1", scales=np.array([256]))


def test_fake_quantize_narrows_to_the_input_dtype() -> None:
    with np.errstate(over="raise"):
        assert fake_quantize(f16([65504]), "mxfp8_e4m3", scale_rule="even").tolist() == [INF]
    assert fake_quantize(f32([65504]), "mxfp8_e4m3", scale_rule="even").tolist() == [65536]
    result = fake_quantize(np.array([[1.03, -2.0]], ml_dtypes.bfloat16), "mxfp8_e4m3")
    assert result.dtype == ml_dtypes.bfloat16
    assert result.astype(float).tolist() == [[1.0, -2.0]]
    assert bits_of(fake_quantize(f16([-NAN, 1]), "mxfp8_e4m3")) == [0x7E00, 0x7E00]
    for bad in (np.arange(3), np.ones(2, complex), np.ones(2, bool)):
        with pytest.raises(TypeError, match="'x'"):
            fake_quantize(bad, "mxfp8_e4m3")


def test_a_tensor_scale_that_is_nan() -> None:
    # Regression: it raised for more than one element, because no two NaN of a set are equal.
    parts = np.array([[1, 2, 3]]), np.array([[0x38]], np.uint8)
    for tensor_scale in (NAN, [[-NAN]]):
        values = dequantize(*parts, "nvfp4", tensor_scale=tensor_scale)
        assert bits_of(values[0]) == [0x7FC00000] * 3

"""Asymmetric scaling by fast loops against the definition: every type, range, layout and special value."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import asymmetric, definition, environment
from mxnum.formats import FLOATS
from mxnum.layout import scales_shape
from tests import samples

TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
LAYOUTS = ({}, {"axis": 0}, {"block_shape": (8, 8)}, {"block_size": 17}, {"block_shape": (3, 5)})


@pytest.fixture(autouse=True)
def _needs_compilation():
    if not environment.is_default():
        pytest.skip("the fast loops add floats, which only compiled code does")


def inputs(dtype, shape=(70, 96)):
    """Blocks away from zero, at every magnitude, and among them constant ones, zeros, NaN and infinities."""
    rng = samples.generator("asymmetric", dtype, shape)
    with np.errstate(over="ignore"):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 14, (shape[0], 1))) + rng.integers(-9, 9, shape)
        x = x.astype(TYPES[dtype])
    x[3, 5], x[4, 40], x[8, :32], x[7, :32], x[7, 0] = np.nan, np.inf, -np.inf, np.nan, -np.nan
    x[5], x[6], x[9], x[12, :32] = 0, -0.0, 3.25, 70000 if dtype != "float16" else 65504
    bits = x.view(f"u{x.dtype.itemsize}")
    bits[20:30] = rng.integers(0, 1 << min(63, 8 * x.dtype.itemsize), (10, shape[1]))
    bits[25:30] |= bits.dtype.type(1 << (8 * x.dtype.itemsize - 1))
    return x


def check(x, monkeypatch, **options):
    """Quantize, dequantize to every type and fake-quantize, both ways."""
    options = {"format": "mxfp4_e2m1", "offset": "float16", **options}
    got, fake = mx.quantize(x, **options), mx.fake_quantize(x, **options)
    values = [got.dequantize(dtype) for dtype in TYPES.values()]
    with monkeypatch.context() as patch:
        for name in ("quantize", "dequantize", "fake_quantize"):
            patch.setattr(asymmetric, name, lambda *_: False)
        want, want_fake = mx.quantize(x, **options), mx.fake_quantize(x, **options)
        want_values = [got.dequantize(dtype) for dtype in TYPES.values()]
    for name in ("scales", "offsets", "codes"):
        mine, its = getattr(got, name), getattr(want, name)
        samples.assert_same(f"{name} {options}", None, mine.view(f"u{mine.itemsize}"), its.view(f"u{its.itemsize}"))
    for mine, its in zip((*values, fake), (*want_values, want_fake), strict=True):
        as_bits = f"u{mine.itemsize}"
        samples.assert_same(f"{mine.dtype} {options}", None, mine.view(as_bits), its.view(as_bits))


@pytest.mark.parametrize("offset_range", ["exact", "half"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_layout_equals_the_definition(dtype, offset_range, monkeypatch):
    x = inputs(dtype)
    for layout in LAYOUTS if dtype == "float32" else LAYOUTS[::4]:
        check(x, monkeypatch, offset_range=offset_range, **layout)


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp8_e5m2", "mxint8", "mxfp4_e3m0"])
def test_formats_and_modes(name, monkeypatch):
    x = inputs("float32")
    check(x, monkeypatch, format=name, rounding="rtp", scale_rule="rceil", nonfinite="block")
    check(x, monkeypatch, format=name, rounding="sr", seed=9, overflow="ieee", offset_range="half")
    check(x, monkeypatch, format=name, scales=np.full((70, 3), 120, np.uint8))


def test_arrays_larger_than_a_chunk_draw_the_same_random_bits(monkeypatch):
    x = np.resize(inputs("float32"), (3, 100_000))
    words = samples.generator("words").integers(0, 1 << 32, x.shape, dtype=np.uint32)
    check(x, monkeypatch, rounding="sr", seed=5)
    check(x, monkeypatch, rounding="sr", random_bits=words)
    check(x.reshape(-1), monkeypatch, rounding="sr", seed=5)
    check(x[:, ::2], monkeypatch, rounding="sr", random_bits=words[:, ::2])
    check(np.asfortranarray(x), monkeypatch, rounding="sr", seed=5)
    check(np.asfortranarray(x), monkeypatch, rounding="sr", random_bits=words, axis=0)
    check(np.repeat(x, 2, axis=1)[:, ::-2], monkeypatch, scales=np.full((1, 100_000), 120, np.uint8), axis=0)


def test_arrays_without_axes_or_elements(monkeypatch):
    check(np.float32(1.3) + np.zeros((), np.float32), monkeypatch)
    check(np.zeros((0, 5), np.float32), monkeypatch)
    check(np.full((1, 1, 3), 2.5, np.float32), monkeypatch)


def test_offsets_and_scales_of_ones_own(monkeypatch):
    """What no quantization makes: infinite offsets, and scales at which values are not exact in float32."""
    rng = samples.generator("own")
    codes = rng.integers(0, 16, (64, 64), dtype=np.uint8)
    scales = np.resize(np.arange(256, dtype=np.uint8), (64, 2))
    offsets = rng.integers(0, 1 << 16, (64, 2), dtype=np.uint16).view(np.float16)
    for middles in (offsets, np.nan_to_num(offsets)):
        q = mx.MXArray.from_parts(codes, scales, "mxfp4_e2m1", offsets=middles)
        for dtype, target in FLOATS.items():
            want = np.empty(codes.shape, TYPES[dtype])
            definition.dequantize(codes, scales, middles, q.format.element, q.blocks, target, want)
            as_bits = f"u{want.itemsize}"
            samples.assert_same(f"{dtype}", None, q.dequantize(dtype).view(as_bits), want.view(as_bits))


def test_what_is_left_to_the_definition():
    codes = np.zeros((4, 64, 4), np.uint8)
    element, target = mx.formats.get("mxfp4_e2m1").element, FLOATS["float32"]
    for blocks, done in (((1, 32, 4), True), ((2, 32, 4), False)):
        shape = scales_shape(codes.shape, blocks)
        scales, offsets = np.full(shape, 127, np.uint8), np.zeros(shape, np.float16)
        values = np.asfortranarray(np.empty(codes.shape, np.float32))
        assert asymmetric.dequantize(codes, scales, offsets, element, blocks, target, values) == done


def test_a_block_longer_than_a_part(monkeypatch):
    x = np.resize(inputs("float32"), (400, 400))
    x[~np.isfinite(x)] = 1
    for kind in ({"block_shape": (400, 400)}, {"block_shape": (400, 400), "offset_range": "half"}):
        check(x, monkeypatch, **kind)
    check(x.reshape(1, -1), monkeypatch, block_size=160_000)

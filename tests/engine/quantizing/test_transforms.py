"""Tests that asymmetric scaling, which gives each block an offset, equals the definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.loops.panels import NO_WORDS
from mxnum.engine.machine import workers
from mxnum.engine.quantizing.offsets import OFFSETS
from mxnum.engine.quantizing.powers_of_two import POWERS_OF_TWO
from mxnum.engine.request import RandomBits, Request
from mxnum.engine.traversal import parts
from mxnum.engine.traversal.block_walk import walk_of
from mxnum.formats import FLOATS
from tests import samples
from tests.engine import naive

TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
LAYOUTS = ({}, {"axis": 0}, {"block_shape": (8, 8)}, {"block_size": 17}, {"block_shape": (3, 5)})


def inputs(dtype, shape=(70, 96)):
    """Return numbers of every magnitude, blocks of constants and of zeros, NaN and infinities."""
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


def same(label, mine, its):
    samples.assert_same(label, None, mine.view(f"u{mine.itemsize}"), its.view(f"u{its.itemsize}"))


def settings(x, fmt="mxfp4_e2m1", *, scales=None, **options):
    """Return the settings of an asymmetric quantization."""
    given = {"offset": "float16", "scales_given": scales is not None, **options}
    return mx.ops.checked_settings(mx.ops.Choices(fmt, x.shape, x.dtype.name, **given))


def check(x, fmt="mxfp4_e2m1", *, scales=None, seed=None, words=None, **options):
    """Compare `quantize`, `dequantize` to every type, and `fake_quantize` with the definition."""
    random = None
    given = dict(options)
    if seed is not None or words is not None:
        random = RandomBits(30, words=words, seed=seed or 0)
        given |= {"seed": seed, "random_bits": words}
    asked = settings(x, fmt, scales=scales, **options)
    codes, sides, offsets = naive.quantize(Request(asked, x, scales, random))
    got = mx.quantize(x, fmt, offset="float16", scales=scales, **given)
    label = f"{fmt} {x.dtype} {options}"
    for name, mine, its in (
        ("scales", got.scales, sides),
        ("offsets", got.offsets, offsets),
        ("codes", got.codes, codes),
    ):
        same(f"{name} {label}", mine, its)
    kind = codes, sides, offsets, asked.element, asked.blocks
    for dtype, target in FLOATS.items():
        same(f"{dtype} {label}", got.dequantize(dtype), naive.dequantize(*kind, target))
    fake = mx.fake_quantize(x, fmt, offset="float16", scales=scales, **given)
    same(f"fake {label}", fake, naive.dequantize(*kind, asked.source))


@pytest.mark.parametrize("offset_range", ["exact", "half"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_layout_equals_the_definition(dtype, offset_range):
    x = inputs(dtype)
    for layout in LAYOUTS if dtype == "float32" else LAYOUTS[::4]:
        check(x, offset_range=offset_range, **layout)


@pytest.mark.parametrize(
    "name",
    ["mxfp8_e4m3", "mxint8", *(pytest.param(name, marks=pytest.mark.full) for name in ("mxfp8_e5m2", "mxfp4_e3m0"))],
)
def test_formats_and_modes(name):
    x = inputs("float32")
    check(x, name, rounding="rtp", scale_rule="rceil", nonfinite="block")
    check(x, name, rounding="sr", seed=9, overflow="ieee", offset_range="half")
    check(x, name, scales=np.full((70, 3), 120, np.uint8))


def test_chunks_draw_the_same_random_bits_whatever_the_order_of_memory(monkeypatch):
    """Check that random bits do not depend on memory order, in arrays of several chunks."""
    small = parts.chunks.__wrapped__
    monkeypatch.setattr(parts, "chunks", lambda shape, cuts, blocks, _=0: small(shape, cuts, blocks, 2000))
    monkeypatch.setattr("mxnum.engine.quantizing.plan.CHUNK", 2000)
    x = np.resize(inputs("float32"), (3, 6_000))
    words = samples.generator("words").integers(0, 1 << 32, x.shape, dtype=np.uint32)
    for view, some in ((x, words), (np.asfortranarray(x), words), (np.repeat(x, 2, axis=1)[:, ::-2], words[:, ::-1])):
        check(view, rounding="sr", seed=5)
        check(view, rounding="sr", words=some)
        check(view, rounding="sr", words=some, axis=0)
    check(x.reshape(-1), rounding="sr", seed=5)
    check(np.asfortranarray(x), scales=np.full((1, 6_000), 120, np.uint8), axis=0)


def test_arrays_without_axes_or_elements():
    check(np.float32(1.3) + np.zeros((), np.float32))
    check(np.zeros((0, 5), np.float32))
    check(np.full((1, 1, 3), 2.5, np.float32))


def test_blocks_over_three_axes_and_blocks_longer_than_a_chunk():
    x = np.resize(inputs("float32"), (7, 9, 11))
    check(x, blocks=(2, 4, 3))
    check(x.T, blocks=(3, 4, 2), offset_range="half")
    large = np.resize(inputs("float32"), (400, 400))
    large[~np.isfinite(large)] = 1
    check(large, block_shape=(400, 400))


def test_without_trust_in_the_hardware(monkeypatch):
    monkeypatch.setattr(workers, "may_use_floats", lambda: False)
    check(inputs("float32"))
    check(inputs("bfloat16"), axis=0, offset_range="half")


def test_offsets_and_scales_of_ones_own():
    """Check `dequantize` with given offsets, some of them NaN, and with every scale code."""
    rng = samples.generator("own")
    codes = rng.integers(0, 16, (64, 64), dtype=np.uint8)
    scales = np.resize(np.arange(256, dtype=np.uint8), (64, 2))
    offsets = rng.integers(0, 1 << 16, (64, 2), dtype=np.uint16).view(np.float16)
    for middles in (offsets, np.nan_to_num(offsets)):
        q = mx.MXArray.from_parts(codes, scales, "mxfp4_e2m1", offsets=middles)
        for dtype, target in FLOATS.items():
            want = naive.dequantize(codes, scales, middles, q.format.element, q.blocks, target)
            same(dtype, q.dequantize(dtype), want)


@pytest.mark.parametrize("transform", [POWERS_OF_TWO, OFFSETS], ids=["scales", "offsets"])
def test_a_transform_undoes_what_it_applies(transform):
    """Check that `apply_and_undo` of a transform has the same result as `apply` and then `undo`."""
    x = inputs("float32")
    asked = settings(x, axis=0)
    walk = walk_of(x.shape, asked.blocks)
    used, both = (tuple(np.zeros(asked.scales_shape, dtype) for dtype in transform.sides) for _ in range(2))
    codes, values, again = np.zeros(x.shape, np.uint8), np.zeros_like(x), np.zeros_like(x)
    transform.apply(asked).along(walk, None)(x, codes, used, None, None, NO_WORDS, 1)
    transform.apply_and_undo(asked).along(walk, None)(x, values, both, None, None, NO_WORDS, 1)
    decoding = mx.engine.request.decoding_settings(
        asked.element, asked.blocks, asked.shape, False, transform is OFFSETS, FLOATS["float32"]
    )
    transform.undo(decoding).along(walk, None)(codes, again, used, None, None, NO_WORDS, 1)
    same("values", values, again)
    for one, other in zip(used, both, strict=True):
        same("sides", one, other)

"""Tests that quantizing to packed codes equals quantizing and then packing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxnum as mx
from mxnum.engine.machine import workers
from mxnum.engine.traversal.parts import CHUNK
from mxnum.formats import ELEMENTS
from mxnum.modes import Overflow, Rounding, ScaleRule
from tests import samples
from tests.covering import covering

NARROW = [name for name in mx.formats.names("e8m0") if mx.formats.get(name).element.bits < 8]
#: User-defined formats with blocks of 16. One loop converts all user-defined elements of a width.
OWN = [
    mx.MXFormat(mx.ElementFormat("e2m2", 2, 2, 1), block=16),
    mx.MXFormat(mx.ElementFormat("e2m0", 2, 0, 1), block=16),
]
TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def numbers(shape, *key, dtype="float32"):
    """Return rows of different magnitudes, with NaN, infinities and -0."""
    rng = samples.generator("packed", dtype, shape, *key)
    reach = {"float32": 140, "bfloat16": 140, "float64": 200, "float16": 14}[dtype]
    with np.errstate(all="ignore"):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-reach, reach, (*shape[:-1], 1)[: len(shape)]))
        x = x.astype(TYPES[dtype])
    flat = x.reshape(-1)
    some = rng.integers(0, max(flat.size, 1), 3 if flat.size else 0)
    flat[some] = np.array([np.nan, np.inf, -np.inf])[: some.size]
    flat[flat.size // 3 : flat.size // 3 + 40] = -0.0
    return x


def check(x, fmt, **options):
    """Assert that packed and unpacked quantization agree on bytes, scales and values.

    Both functions are also called with `out`, so that they write their results into existing
    arrays.
    """
    dtype = options.pop("result", "float32")
    want = mx.quantize(x, fmt, **options)
    got = mx.quantize(x, fmt, packed=True, **options)
    case = f"{want.format.name} {x.shape} {x.dtype} {options}"
    assert got.is_packed, case
    assert got.shape == x.shape, case
    samples.assert_same(f"scales of {case}", None, got.scales.reshape(-1), want.scales.reshape(-1))
    samples.assert_same(f"bytes of {case}", None, got.pack().reshape(-1), want.pack().reshape(-1))
    assert got.equals(want), case
    into = mx.quantize(np.zeros_like(x), fmt, packed=True, **options)
    into.pack()[...], into.scales[...] = 0xA5, 0x5A
    assert mx.quantize(x, fmt, out=into, **options) is into
    assert into.equals(want), case
    values, wanted = got.dequantize(dtype), want.dequantize(dtype)
    as_bits = f"u{values.itemsize}"
    samples.assert_same(f"values of {case}", None, values.view(as_bits).reshape(-1), wanted.view(as_bits).reshape(-1))
    out = np.full_like(wanted, 7)
    assert got.dequantize(dtype, out=out) is out
    assert np.array_equal(out.view(as_bits), wanted.view(as_bits)), case


@pytest.mark.parametrize("fmt", [*NARROW, *(pytest.param(own, marks=pytest.mark.full) for own in OWN)], ids=str)
def test_every_format(fmt):
    for shape in ((8, 320), (3, 5, 64), (300,)):
        check(numbers(shape, fmt), fmt)


@pytest.mark.parametrize("shape", [(33, 100), (7, 33), (7, 333), (1, 5000), (40, 8), (2, 17), (3, 1)])
def test_rows_that_end_in_short_blocks_or_inside_a_byte(shape):
    for fmt in ("mxfp4_e2m1", "mxfp6_e2m3", OWN[0]):
        check(numbers(shape), fmt)


@pytest.mark.parametrize("block_size", [17, 18, 34, 5000])
def test_blocks_that_begin_inside_a_byte_and_blocks_longer_than_a_buffer(block_size):
    """Check blocks that begin inside a byte, for which codes are unpacked before the loop runs."""
    for shape in ((5, 34), (2, 340), (3, 10000)):
        check(numbers(shape, block_size), "mxfp4_e2m1", block_size=block_size)


#: The roundings that are tested without `--tier full`. Packing does not depend on the rounding,
#: and `test_host` checks all roundings.
SAMPLE = Rounding.RNE, Rounding.SR


@pytest.mark.parametrize("rounding", [pytest.param(r, marks=() if r in SAMPLE else pytest.mark.full) for r in Rounding])
def test_every_rounding_and_overflow(rounding):
    specials = mx.MXFormat(mx.ElementFormat("e3m2n", 3, 2, 3, specials="ieee"))
    draws = [{"seed": 5, "sr_bits": 9}, {"random_bits": None}] if rounding == Rounding.SR else [{}]
    for fmt in ("mxint4", specials) if rounding in (Rounding.RNE, Rounding.SR) else (specials,):
        for overflow in Overflow:
            for options in draws:
                x = numbers((9, 224), fmt, rounding)
                if "random_bits" in options:
                    options["random_bits"] = samples.generator("bits").integers(0, 1 << 32, x.shape, dtype=np.uint32)
                check(x, fmt, rounding=rounding, overflow=overflow, block_size=16, **options)


@pytest.mark.parametrize("rule", ScaleRule)
def test_every_scale_rule(rule):
    for fmt in ("mxfp4_e2m1", "mxfp4_e3m0"):
        check(numbers((6, 320), fmt), fmt, scale_rule=rule)


@pytest.mark.parametrize(("dtype", "result"), [("float64", "float64"), ("float16", "bfloat16")])
def test_every_type(dtype, result):
    check(numbers((6, 320), dtype=dtype), "mxfp4_e2m1", result=result, block_size=16)


@covering(
    options=[
        {"block_size": 16}, {"block_size": 64}, {"block_size": 100}, {"block_size": 21}, {"block_size": 5000},
        {"axis": 0}, {"block_shape": (4, 4)}, {"block_shape": (2, 32)}, {"blocks": (2, 500)}, {"block_size": 1},
        {"offset": "float16"}, {"offset": "float16", "axis": 0}, {"block_size": 8},
    ],
    shape=[(6, 320), (7, 333)], fmt=["mxfp4_e2m1", "mxfp6_e2m3"],
).parametrize_in_tiers  # fmt: skip
def test_every_layout(options, shape, fmt):
    check(numbers(shape, str(options)), fmt, **options)


def test_blocks_over_several_axes_and_last_axes_of_one():
    for shape, blocks in (
        ((6, 20, 33), (2, 3, 32)),
        ((64, 32, 1), (1, 32, 1)),
        ((4, 6, 21), (1, 6, 21)),
        ((4, 21), (2, 21)),
    ):
        check(numbers(shape), "mxfp4_e2m1", blocks=blocks)
        check(numbers(shape), "mxfp6_e2m3", blocks=blocks)


def test_given_scales():
    x = numbers((8, 320))
    scales = samples.generator("scales").integers(0, 256, (8, 10)).astype(np.uint8)
    for fmt in ("mxfp4_e2m1", "mxfp6_e2m3"):
        check(x, fmt, scales=scales)
        assert np.array_equal(
            mx.quantize(x, fmt, scales=np.full((8, 10), 255, np.uint8), packed=True).codes, np.zeros_like(x)
        )


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::2, ::-1], lambda x: x[:, :, None].repeat(2, 2)[..., 0]])
def test_inputs_that_are_not_contiguous(view):
    x = view(numbers((64, 96)))
    assert not x.flags.c_contiguous
    words = samples.generator("words").integers(0, 1 << 32, x.shape, dtype=np.uint32)
    for fmt in ("mxfp4_e2m1", "mxfp6_e2m3"):
        check(x, fmt)
        check(x, fmt, rounding="sr", seed=1)
        check(np.ascontiguousarray(x), fmt, rounding="sr", random_bits=np.asfortranarray(words))


def test_bytes_and_values_that_are_not_contiguous():
    x = numbers((64, 96))
    want = mx.quantize(x, "mxfp6_e2m3")
    strided = np.zeros((64, 144), np.uint8)[:, ::2]
    q = mx.MXArray.from_packed(strided, np.zeros((64, 6), np.uint8)[:, ::2], "mxfp6_e2m3", length=96)
    assert mx.quantize(x, "mxfp6_e2m3", out=q) is q
    assert q.equals(want)
    out = np.zeros((64, 192), np.float32)[:, ::2]
    q.dequantize(out=out)
    mx.MXArray.from_packed(want.pack(), want.scales, "mxfp6_e2m3", length=96).dequantize(out=out)
    assert np.array_equal(out.view("u4"), want.dequantize().view("u4"))


@pytest.mark.parametrize("shape", [(3, 3 * CHUNK + 40), (1300, 1000)])
def test_large_arrays_with_groups_that_are_left(shape):
    """Check large arrays with 1 and 3 threads; the definition computes some of their blocks."""
    x = samples.generator("large", shape).standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    places = samples.generator("places", shape).integers(0, x.size, 40)
    flat[places] = np.resize(np.array([np.nan, 1e-44, 3e38, np.inf], np.float32), 40)
    flat[-1] = np.nan
    for name in ("mxfp4_e2m1", "mxfp6_e2m3"):
        for options in ({}, {"rounding": "sr", "seed": 7})[: 2 if name == "mxfp4_e2m1" else 1]:
            want = mx.quantize(x, name, **options)
            for threads in (1, 3):
                got = mx.quantize(x, name, packed=True, threads=threads, **options)
                assert got.equals(want)
        values = want.dequantize().view("u4")
        for threads in (1, 3):
            assert np.array_equal(got.dequantize(threads=threads).view("u4"), values)
            assert np.array_equal(
                got.dequantize("float64", threads=threads), want.dequantize("float64"), equal_nan=True
            )


def test_what_shares_memory():
    x = numbers((64, 320))
    want = mx.quantize(x, "mxfp4_e2m1")
    room = x.copy()
    q = mx.MXArray.from_packed(
        room.view(np.uint8).reshape(-1)[: 64 * 160].reshape(64, 160),
        np.zeros((64, 10), np.uint8),
        "mxfp4_e2m1",
        length=320,
    )
    assert mx.quantize(room, "mxfp4_e2m1", out=q).equals(want)
    values = q.dequantize(out=room)
    assert np.array_equal(values.view("u4"), want.dequantize().view("u4"))


def test_other_float_environments_take_integers(monkeypatch):
    x = numbers((8, 320))
    want = mx.quantize(x, "mxfp4_e2m1")
    values = want.dequantize()
    monkeypatch.setattr(workers, "may_use_floats", lambda: False)
    got = mx.quantize(x, "mxfp4_e2m1", packed=True)
    assert got.equals(want)
    assert np.array_equal(got.dequantize().view("u4"), values.view("u4"))


def test_nonfinite_policies():
    x = np.ones((4, 64), np.float32)
    x[2, 33] = np.nan
    for options in ({"nonfinite": "raise"}, {"nonfinite": "element"}):
        with pytest.raises(ValueError, match=r"index \(2, 33\)"):
            mx.quantize(x, "mxfp4_e2m1", packed=True, **options)
    x[2, 33] = np.inf
    check(x, "mxfp4_e2m1", nonfinite="element")


@given(
    st.lists(st.integers(0, 70), min_size=0, max_size=3), st.sampled_from(["mxfp4_e2m1", "mxfp6_e2m3", OWN[0]]),
    st.integers(1, 80), st.integers(0, 1000),
)  # fmt: skip
def test_any_shape_and_block(shape, fmt, block, seed):
    shape = tuple(shape[:1] + [n % 7 for n in shape[1:-1]] + shape[-1:] if len(shape) > 1 else shape)
    x = numbers(shape, seed) if shape else np.float32(seed)
    check(np.asarray(x), fmt, block_size=block)


def test_every_narrow_element_has_a_format_here():
    widths = {ELEMENTS[mx.formats.get(name).element.name].bits for name in NARROW} | {fmt.element.bits for fmt in OWN}
    assert widths == {3, 4, 5, 6}  # test_bit_stream tests the other widths

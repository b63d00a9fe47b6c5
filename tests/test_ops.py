"""Tests that public operations on whole arrays equal the oracle: every format, mode and layout."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxnum as mx
from mxnum import reference
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from mxnum.reference.random import philox4x32
from tests import samples
from tests.covering import covering

DTYPES = {name: numpy_dtype(fmt) for name, fmt in FLOATS.items()}


def blocky(dtype, shape, *key, special=0.02):
    """Return an array whose blocks have different magnitudes, with zeros and subnormals.

    A fraction `special` of the numbers is NaN or infinite.
    """
    rng = samples.generator("blocky", dtype, shape, *key)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-12, 12, (*shape[:-1], 1) if shape else ()))
    bits = rng.random(shape)
    x = np.where(bits < 0.05, 0.0 * x, x)
    x = np.where((bits > 0.05) & (bits < 0.08), x * 2.0**-20, x)
    for k, value in enumerate((np.nan, np.inf, -np.inf, -np.nan)):
        x = np.where((bits > 0.5 + k / 10) & (bits < 0.5 + k / 10 + special / 4), value, x)
    with np.errstate(all="ignore"):
        return x.astype(DTYPES[dtype])


def check(x, fmt, blocks, values=None, **options):
    """Assert that codes, scales, offsets and decoded values equal those of the oracle.

    `values` is the type of the decoded values. The default is the type of x.
    """
    got, want, case = check_parts(x, fmt, blocks, **options)
    dtype = x.dtype.name if values is None else values
    width = DTYPES[dtype].itemsize
    found = got.dequantize(dtype)
    expected = reference.dequantize(want.codes, want.scales, fmt, blocks=blocks, dtype=dtype, offsets=want.offsets)
    samples.assert_same(f"values {dtype}: {case}", None, found.view(f"u{width}"), expected.view(f"u{width}"))
    return got


def check_parts(x, fmt, blocks, **options):
    """Assert that codes, scales and offsets equal those of the oracle, and return both results."""
    got = mx.quantize(x, fmt, blocks=blocks, **options)
    want = reference.quantize(x, fmt, blocks=blocks, **options)
    case = f"{fmt} {x.dtype} {x.shape} {blocks} {options}"
    assert got.blocks == tuple(blocks)
    samples.assert_same(f"scales: {case}", None, got.scales, want.scales)
    inputs = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").ravel()
    if want.offsets is None:
        assert got.offsets is None
    else:
        samples.assert_same(f"offsets: {case}", None, got.offsets.view(np.uint16), want.offsets.view(np.uint16))
    samples.assert_same(f"codes: {case}", inputs, got.codes, want.codes)
    return got, want, case


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fmt", mx.formats.names("e8m0"))
def test_every_rounding_scale_rule_and_overflow_of_ordinary_numbers(fmt, dtype):
    """Check all combinations of modes on numbers without NaN and infinity."""
    x = blocky(dtype, (1, 40), fmt, special=0)
    words = samples.generator("words", fmt).integers(0, 1 << 32, x.shape, dtype=np.uint32)
    for rounding, rule, overflow in product(Rounding, ScaleRule, Overflow):
        options = {"random_bits": words} if rounding == Rounding.SR else {}
        got = mx.quantize(x, fmt, rounding=rounding, scale_rule=rule, overflow=overflow, **options)
        want = reference.quantize(x, fmt, rounding=rounding, scale_rule=rule, overflow=overflow, **options)
        case = f"{fmt} {dtype} {rounding} {rule} {overflow}"
        samples.assert_same(f"scales: {case}", None, got.scales, want.scales)
        samples.assert_same(f"codes: {case}", x.view(f"i{x.dtype.itemsize}").ravel(), got.codes, want.codes)


@covering(
    fmt=mx.formats.names("e8m0"), dtype=["float32", "float64"], rounding=Rounding, rule=ScaleRule, overflow=Overflow,
    apart=[("fmt", "rounding"), ("fmt", "rule"), ("rounding", "rule"), ("fmt", "dtype"), ("fmt", "overflow")],
).parametrize_in_tiers  # fmt: skip
def test_every_rounding_scale_rule_and_overflow(fmt, dtype, rounding, rule, overflow):
    """Check arrays with NaN and infinities.

    Such arrays need compiled code for each format, rounding and rule, so the fast tier checks only
    some combinations of modes.
    """
    x = blocky(dtype, (3, 70), fmt)
    options = {"rounding": rounding, "scale_rule": rule, "overflow": overflow}
    if rounding == Rounding.SR:
        options["random_bits"] = samples.generator("words", fmt).integers(0, 1 << 32, x.shape, dtype=np.uint32)
    check_parts(x, fmt, (1, 32), **options)


@covering(
    fmt=mx.formats.names("e8m0"), dtype=DTYPES, nonfinite=[Nonfinite.BLOCK, Nonfinite.ELEMENT], overflow=Overflow,
    values=DTYPES, strength=1,
).parametrize_in_tiers  # fmt: skip
def test_every_source_type_and_policy(fmt, dtype, nonfinite, overflow, values):
    x = blocky(dtype, (4, 64), fmt, special=0.05)
    if nonfinite == Nonfinite.ELEMENT and mx.formats.get(fmt).element.nan_code is None:
        x = np.where(np.isnan(x), DTYPES[dtype].type(1), x)
    check(x, fmt, (1, 32), values, nonfinite=nonfinite, overflow=overflow)


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((), ()), ((0,), (32,)), ((1,), (32,)), ((31,), (32,)), ((33,), (32,)), ((100,), (7,)), ((5, 0), (1, 32)),
        ((0, 5), (32, 1)), ((40, 3), (32, 1)), ((9, 10), (4, 4)), ((9, 10), (9, 10)), ((3, 4, 70), (1, 1, 32)),
        ((3, 40, 5), (1, 32, 1)), ((40, 3, 2), (32, 1, 1)), ((4, 6, 8), (2, 3, 4)), ((2, 3, 4, 33), (1, 2, 1, 16)),
        ((2, 2, 2, 2, 5), (2, 1, 2, 1, 2)),
    ],
)  # fmt: skip
def test_every_layout(shape, blocks):
    x = blocky("float32", shape, special=0.01)
    check(x, "mxfp6_e2m3", blocks)
    if x.ndim > 1:
        check(x[::-1, ..., ::2], "mxfp8_e4m3", blocks)
        check(np.asfortranarray(x), "mxfp8_e4m3", blocks)
        check(x.T, "mxfp8_e4m3", tuple(reversed(blocks)))


def test_strides_and_byte_order_do_not_matter():
    x = blocky("float32", (6, 64), special=0)
    want = mx.quantize(x, "mxfp8_e4m3")
    padded = np.zeros((6, 130), np.float32)
    padded[:, 1:129:2] = x
    assert mx.quantize(padded[:, 1:129:2], "mxfp8_e4m3").equals(want)
    assert mx.quantize(x.astype(">f4"), "mxfp8_e4m3").equals(want)
    assert mx.quantize(x.tolist(), "mxfp8_e4m3").equals(mx.quantize(x.astype(np.float64), "mxfp8_e4m3"))
    broadcast = np.broadcast_to(x[0], (6, 64))
    assert mx.quantize(broadcast, "mxfp8_e4m3").equals(mx.quantize(broadcast.copy(), "mxfp8_e4m3"))
    readonly = x.copy()
    readonly.flags.writeable = False
    assert mx.quantize(readonly, "mxfp8_e4m3").equals(want)


@covering(
    dtype=DTYPES, offset_range=["exact", "half"], fmt=["mxint4", "mxfp4_e2m1", "mxfp8_e5m2"], rule=["floor", "ceil"],
    nonfinite=["block", "element"], values=DTYPES, strength=1,
).parametrize_in_tiers  # fmt: skip
def test_asymmetric_scaling(dtype, offset_range, fmt, rule, nonfinite, values):
    x = blocky(dtype, (6, 40), "offset", special=0.02)
    x[0] += DTYPES[dtype].type(3)
    x[1] = DTYPES[dtype].type(-0.0)
    x[2] = DTYPES[dtype].type(7.25)
    if nonfinite == "element" and fmt != "mxfp8_e5m2":
        x = np.where(np.isnan(x), DTYPES[dtype].type(0), x)
    check(x, fmt, (1, 16), values, offset="float16", offset_range=offset_range, scale_rule=rule, nonfinite=nonfinite)


def test_asymmetric_scaling_of_huge_and_tiny_values():
    x = np.array([[3e38, -1e38, 1.0, 2.0], [1e-40, 3e-45, 0.0, -1e-42], [7e4, 6.9e4, 8e4, 1e5]], np.float32)
    check(x, "mxint8", (1, 4), offset="float16")
    check(x.astype(np.float64) * 1e200, "mxint8", (1, 4), offset="float16", offset_range="half")
    nan = np.array([[np.nan, -np.nan, 1.0, 2.0]], np.float32)
    got = check(nan, "mxfp8_e4m3", (1, 4), offset="float16", nonfinite="element")
    assert got.codes[0, :2].tolist() == [0x7F, 0xFF]


def test_given_scales():
    x = blocky("float32", (4, 64), "given")
    scales = samples.generator("given").integers(100, 150, (4, 2)).astype(np.uint8)
    scales[0, 0] = 255
    for nonfinite in ("block", "element"):
        got = check(x, "mxfp8_e4m3", (1, 32), scales=scales, nonfinite=nonfinite, overflow="ieee")
        assert (got.codes[0, :32] == 0).all()
    check(x, "mxint4", (1, 32), scales=scales, offset="float16")
    assert scales[0, 0] == 255, "the caller's array is not written to"


@settings(max_examples=60)
@given(st.data())
def test_random_blocks_of_random_bits(data):
    """Check arbitrary numbers and lengths, with few modes and blocks, to keep compilation short."""
    modes = {"scale_rule": ["even"], "rounding": ["rne", "sr"], "overflow": ["ieee"]}
    random_block(data, ["mxfp8_e5m2"], ["float32"], modes, [5, 32])


@pytest.mark.full
@settings(max_examples=600)
@given(st.data())
def test_random_blocks_of_random_bits_in_any_mode(data):
    modes = {"scale_rule": list(ScaleRule), "rounding": list(Rounding), "overflow": list(Overflow)}
    random_block(data, mx.formats.names("e8m0"), ["float32", "float64"], modes, range(1, 34))


def random_block(data, formats, dtypes, modes, blocks):
    """Check a random block of random bits."""
    fmt = data.draw(st.sampled_from(formats), "format")
    dtype = data.draw(st.sampled_from(dtypes), "dtype")
    source = FLOATS[dtype]
    length = data.draw(st.integers(1, 40), "length")
    centre = data.draw(st.integers(1, (1 << source.exponent_bits) - 2), "exponent field of the block")
    spread = data.draw(st.integers(0, 12), "spread")
    rng = samples.generator("block", fmt, dtype, length, centre, spread)
    field = np.clip(centre - rng.integers(0, spread + 1, length), 0, None)
    bits = (field << source.mantissa_bits) | rng.integers(0, 1 << source.mantissa_bits, length)
    x = bits.astype(f"i{source.bits // 8}").view(dtype) * rng.choice([-1, 1], length).astype(dtype)
    options = {name: data.draw(st.sampled_from(some), name) for name, some in modes.items()}
    if options["rounding"] == Rounding.SR:
        options["random_bits"] = rng.integers(0, 1 << 32, length, dtype=np.uint32)
    for value in data.draw(st.lists(st.sampled_from([np.inf, -np.inf, np.nan, -0.0]), max_size=1), "special"):
        x[rng.integers(0, length)] = value
    check(x, fmt, (data.draw(st.sampled_from(blocks), "block"),), **options)


# Stochastic rounding


def test_seeded_bits_are_philox_words_by_c_order_index():
    x = blocky("float32", (5, 33), "seed", special=0)
    for seed, stream in ((0, 0), (12345, 0), ((1 << 64) - 1, (1 << 63) + 5)):
        words = reference.random_words(x.shape, seed=seed, stream=stream)
        for sr_bits in (1, 8, 30):
            seeded = mx.quantize(x, "mxfp8_e4m3", rounding="sr", seed=seed, stream=stream, sr_bits=sr_bits)
            assert seeded.equals(mx.quantize(x, "mxfp8_e4m3", rounding="sr", random_bits=words, sr_bits=sr_bits))
            want = reference.quantize(x, "mxfp8_e4m3", rounding="sr", random_bits=words, sr_bits=sr_bits)
            samples.assert_same("seeded", x.view(np.int32), seeded.codes, want.codes)


@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "nvfp4"])
def test_a_part_draws_the_bits_that_it_has_in_the_whole(fmt):
    whole, options = blocky("float32", (37, 33), "part", special=0), {"rounding": "sr", "tensor_scale": None}
    if fmt == "nvfp4":
        options["tensor_scale"] = 0.125
    words = reference.random_words(whole.shape, seed=9, stream=3)
    for begin in (1, 4, 35):
        part, these = whole[begin:], words[begin:]
        drawn = {"seed": 9, "stream": 3, "first": 33 * begin}
        for layout in ({}, {"axis": 0}, {"packed": True}):
            want = mx.quantize(part, fmt, random_bits=these, **options, **layout)
            for x in (part, np.asfortranarray(part), np.repeat(part, 2, axis=0)[::2]):
                assert mx.quantize(x, fmt, **drawn, **options, **layout).equals(want)
        values = mx.fake_quantize(part, fmt, random_bits=these, **options)
        assert np.array_equal(mx.fake_quantize(part, fmt, **drawn, **options), values)
        codes = mx.encode(part, "e2m1", rounding="sr", random_bits=these)
        assert np.array_equal(mx.encode(part, "e2m1", rounding="sr", **drawn), codes)
    for first in (-1, 1 << 62, 0.5):
        with pytest.raises((ValueError, TypeError), match="'first' must be"):
            mx.quantize(part, fmt, rounding="sr", seed=1, first=first)


def test_indices_may_exceed_32_bits():
    far, words = (1 << 40) + 2, []
    for i in range(far, far + 6):
        words.append(philox4x32((i >> 2 & 0xFFFFFFFF, i >> 34, 0, 0), (5, 0))[i % 4])
    x = np.full(6, 1.1, np.float32)
    want = mx.encode(x, "e2m1", rounding="sr", random_bits=np.array(words, np.uint32))
    assert np.array_equal(mx.encode(x, "e2m1", rounding="sr", seed=5, first=far), want)


def test_seeded_bits_do_not_depend_on_layout():
    x = blocky("float32", (64, 32), "layout", special=0)
    options = {"rounding": "sr", "seed": 7, "axis": 0}
    want = mx.quantize(x, "mxfp4_e2m1", **options)
    assert mx.quantize(np.asfortranarray(x), "mxfp4_e2m1", **options).equals(want)
    assert mx.quantize(np.repeat(x, 2, axis=1)[:, ::2], "mxfp4_e2m1", **options).equals(want)
    other = mx.quantize(x, "mxfp4_e2m1", rounding="sr", seed=8, axis=0)
    assert not np.array_equal(other.codes, want.codes)
    elsewhere = mx.quantize(x, "mxfp4_e2m1", rounding="sr", seed=7, stream=1, axis=0)
    assert not np.array_equal(elsewhere.codes, want.codes)


def test_stochastic_rounding_is_unbiased_over_seeds():
    x = np.full(1 << 16, 1.1, np.float32)
    q = mx.encode(x, "e2m1", rounding="sr", seed=1)
    away = np.count_nonzero(mx.decode(q, "e2m1") == 1.5)
    expected, sigma = 0.2 * x.size, (0.2 * 0.8 * x.size) ** 0.5
    assert abs(away - expected) < 5 * sigma
    assert away != round(expected), "a count that exact would not be random"


# Conversions to elements without blocks, and to float types


@covering(
    element=[*samples.ELEMENTS, *DTYPES], dtype=DTYPES, overflow=Overflow, result=DTYPES, strength=1,
).parametrize_in_tiers  # fmt: skip
def test_encode_and_decode_of_elements(element, dtype, overflow, result):
    source, target = FLOATS[dtype], mx.formats.element(element)
    bits = np.concatenate([samples.special_patterns(source), samples.random_patterns(source, 100, element)])
    if target.bits <= 8:
        bits = np.concatenate([bits, samples.boundary_patterns(source, target)[::7]])
    x = bits.view(DTYPES[dtype])
    if target.nan_code is None:
        bits = bits[~samples.is_nan(source, bits)]
        x = bits.view(DTYPES[dtype])
    got = mx.encode(x, element, overflow=overflow)
    want = [reference.encode(v, element, overflow=overflow) for v in samples.as_floats(source, bits)]
    samples.assert_same(f"{dtype} {element} {overflow}", bits, got, np.array(want, np.uint64))
    width = DTYPES[result].itemsize
    values = mx.decode(got, element, dtype=result).view(f"u{width}")
    if element in DTYPES:
        with np.errstate(all="ignore"):
            cast = got.view(DTYPES[element]).astype(DTYPES[result])
        want = np.where(np.isnan(cast), FLOATS[result].nan_code, cast.view(f"u{width}"))
    else:
        want = [reference.decode(int(c), element, dtype=result) for c in got]
    samples.assert_same(f"decode {element} {result}", None, values, np.array(want, np.uint64))


@covering(
    fmt=mx.formats.names("e8m0"),
    rule=ScaleRule,
    nonfinite=["block", "element"],
    apart=[("fmt", "rule"), ("fmt", "nonfinite")],
).parametrize_in_tiers
def test_shared_scale_is_what_quantize_chooses(fmt, rule, nonfinite):
    x = blocky("bfloat16", (5, 64), special=0.03)
    got = mx.shared_scale(x, fmt, scale_rule=rule, nonfinite=nonfinite, axis=0)
    if nonfinite == "block":
        assert np.array_equal(got, mx.quantize(x, fmt, scale_rule=rule, axis=0).scales)
    columns = [[float(v) for v in x[:, c]] for c in range(64)]
    element = mx.formats.get(fmt).element
    finite = np.array([[reference.shared_scale(c, element, scale_rule=rule) for c in columns]])
    bad = ~np.isfinite(x.astype(np.float64)).all(axis=0, keepdims=True)
    assert np.array_equal(got, np.where(bad & (nonfinite == "block"), 255, finite))


def test_fake_quantize_keeps_the_dtype_and_writes_into_out():
    for dtype in DTYPES:
        x = blocky(dtype, (3, 50), "fake", special=0.01)
        y = mx.fake_quantize(x, "mxfp8_e4m3", scale_rule="even")
        assert y.dtype == x.dtype
        want = reference.fake_quantize(x, "mxfp8_e4m3", scale_rule="even")
        samples.assert_same(dtype, None, y.view(f"u{x.dtype.itemsize}"), want.view(f"u{x.dtype.itemsize}"))
        out = np.zeros((3, 100), x.dtype)[:, ::2]
        assert mx.fake_quantize(x, "mxfp8_e4m3", scale_rule="even", out=out) is out
        assert np.array_equal(out.copy().view(f"u{x.dtype.itemsize}"), y.view(f"u{x.dtype.itemsize}"))


@pytest.mark.parametrize("shift", [0, 1, 31, 40])
def test_fake_quantize_may_write_over_its_input(shift):
    memory = blocky("float32", (4096 + shift,), "overlap", special=0)
    x, out = memory[:4096], memory[shift:]
    want = mx.fake_quantize(x.copy(), "mxfp8_e4m3")
    assert np.array_equal(mx.fake_quantize(x, "mxfp8_e4m3", out=out), want)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((300, 1000), {}),
        ((300, 1000), {"axis": 0}),
        ((300, 1000), {"axis": 0, "rounding": "sr", "seed": 3}),
        ((3, 200, 500), {"block_shape": (8, 8), "rounding": "sr", "seed": 3}),
        ((1 << 21,), {"block_size": 1 << 21}),
        ((1 << 21,), {"threads": 2}),
        ((1,), {}),
    ],
    ids=str,
)
def test_large_arrays_in_place(shape, options):
    x = blocky("float32", shape, "in place", special=0.001)
    want = mx.fake_quantize(x, "mxfp8_e5m2", **options)
    turned = np.asfortranarray(x)
    for over in (x, turned):
        assert mx.fake_quantize(over, "mxfp8_e5m2", out=over, **options) is over
        samples.assert_same(f"{shape} {options}", None, over.copy().view(np.uint32), want.view(np.uint32))


@covering(
    dtype=["float32", "bfloat16", "float64"],
    options=[
        {},
        {"blocks": (32, 1), "rounding": "rtz", "scale_rule": "ceil"},
        {"blocks": (4, 4), "overflow": "ieee"},
        {"blocks": (5, 1)},
        {"nonfinite": "element"},
    ],
    apart=[("dtype", "options")],
).parametrize_in_tiers
def test_a_quantizer_sees_the_numbers_of_its_array_change(dtype, options):
    x, bits = np.zeros((40, 64), DTYPES[dtype]), f"u{DTYPES[dtype].itemsize}"
    contiguous, turned, sparse = np.empty_like(x), np.empty((64, 40), x.dtype).T, np.empty((40, 128), x.dtype)[:, ::2]
    outs = contiguous, turned, sparse
    quantizers = [mx.fake_quantizer(x, "mxfp8_e4m3", out=out, **options) for out in outs]
    again = [mx.fake_quantizer(y, "mxfp8_e4m3", out=y, **options) for y in (contiguous, sparse)]
    # A call marks blocks with NaN or infinity. The marks must not remain for the next call.
    for step, special in enumerate((0, 0.02, 0)):
        x[...] = blocky(dtype, x.shape, "quantizer", step, special=special)
        want = reference.fake_quantize(x, "mxfp8_e4m3", **options)
        for out, quantize_again in zip(outs, quantizers, strict=True):
            assert quantize_again() is out
            samples.assert_same(f"step {step}", None, out.copy().view(bits), want.view(bits))
            assert np.array_equal(mx.fake_quantize(x, "mxfp8_e4m3", **options).view(bits), out.copy().view(bits))
        for y, quantize_in_place in zip((contiguous, sparse), again, strict=True):
            y[...] = x
            quantize_in_place()
            samples.assert_same(f"in place {step}", None, y.copy().view(bits), want.view(bits))


@pytest.mark.parametrize("shift", [1, 31])
def test_a_quantizer_may_write_over_its_input(shift):
    memory = blocky("float32", (4096 + shift,), "overlap", special=0)
    x, out = memory[:4096], memory[shift:]
    want = mx.fake_quantize(x.copy(), "mxfp8_e4m3")
    assert np.array_equal(mx.fake_quantizer(x, "mxfp8_e4m3", out=out)(), want)


def test_a_quantizer_looks_for_what_it_refuses_at_each_call():
    x, empty = np.ones(40, np.float32), np.ones((0, 3), np.float32)
    quantize_again = mx.fake_quantizer(x, "mxfp4_e2m1", nonfinite="raise", out=np.empty_like(x))
    assert np.array_equal(quantize_again(), x)
    x[7] = np.nan
    with pytest.raises(ValueError, match=r"7"):
        quantize_again()
    assert mx.fake_quantizer(empty, "mxfp4_e2m1", out=empty)() is empty


@pytest.mark.parametrize(
    ("x", "change", "message"),
    [
        ([1.0], {}, "'x' must be an array, not 'list'"),
        (np.ones(4, ">f4"), {}, "'x' must be in native byte order"),
        (np.ones(4, np.int32), {}, "'x' must be an array of float64"),
        (np.ones(4, np.float32), {"out": None}, "'out' must be an array, not None"),
        (np.ones(4, np.float32), {"out": np.empty(3, np.float32)}, "'out' must be of shape"),
        (np.ones(4, np.float32), {"rounding": "sr"}, "'rounding' must be one of"),
        (np.ones(4, np.float32), {"axis": 1}, "'axis'"),
    ],
)
def test_what_a_quantizer_refuses(x, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mx.fake_quantizer(x, "mxfp4_e2m1", **({"out": np.empty(4, np.float32)} | change))


def test_a_saturated_finite_value_can_dequantize_to_infinity_in_float32():
    x = np.array([np.finfo(np.float32).max], np.float32)
    q = mx.quantize(x, "mxfp8_e4m3", scale_rule="rceil")
    assert np.isinf(q.dequantize())
    assert q.dequantize("float64")[0] == 2.0**128


@pytest.mark.parametrize("fmt", mx.formats.names("e8m0"))
def test_quantization_is_idempotent_in_values(fmt):
    x = blocky("float64", (8, 64), "idempotent", special=0)
    for rule in ("floor", "ceil", "even", "rceil"):
        once = mx.fake_quantize(x, fmt, scale_rule=rule)
        assert np.array_equal(mx.fake_quantize(once, fmt, scale_rule=rule), once), rule


def test_user_made_formats():
    e4m1 = mx.ElementFormat("e4m1", exponent_bits=4, mantissa_bits=1, bias=7)
    int6 = mx.formats.element("int6:")
    x = blocky("float32", (3, 48), "user")
    for element in (e4m1, int6):
        fmt = mx.MXFormat(element, "e8m0", 16)
        for rounding in ("rne", "rto", "rtn"):
            check(x, fmt, (1, 16), rounding=rounding)


def test_dequantize_function_and_numpy_protocol():
    q = mx.quantize(np.linspace(-3, 3, 40, dtype=np.float32), "mxfp8_e4m3")
    assert np.array_equal(mx.dequantize(q), q.dequantize())
    assert np.array_equal(np.asarray(q), q.dequantize())
    assert np.asarray(q, dtype=np.float64).dtype == np.float64
    assert mx.dequantize(q, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16


SR = {"rounding": "sr", "random_bits": np.zeros((2, 32), np.uint32)}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": 5}, "'stream' must be left out unless rounding='sr'"),
        ({"first": 9}, "'first' must be left out unless rounding='sr'"),
        ({**SR, "stream": 5}, "'stream' must not be given together with 'random_bits'"),
        ({**SR, "first": 9}, "'first' must not be given together with 'random_bits'"),
        (
            {"scales": np.full((2, 1), 127, np.uint8), "scale_rule": "ceil"},
            "'scale_rule' must not be given together with",
        ),
    ],
)
@pytest.mark.parametrize("function", [mx.quantize, mx.fake_quantize])
def test_what_would_decide_nothing_is_refused(function, options, says):
    with pytest.raises(ValueError, match=says):
        function(np.ones((2, 32)), "mxfp8_e4m3", **options)


@pytest.mark.parametrize("number", [10**400, -(10**400), 1 << 128, 1e300])
def test_a_tensor_scale_that_is_no_float32(number):
    with pytest.raises(ValueError, match="'tensor_scale' must be a float32 number, not "):
        mx.quantize(np.ones(3), "nvfp4", tensor_scale=number)

"""Tests that array operations agree with the definition for every format, mode, type and layout."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.machine import workers
from mxnum.engine.quantizing import host
from mxnum.engine.request import (
    Choices,
    DecodingRequest,
    RandomBits,
    Request,
    Settings,
    checked_settings,
    decoding_settings,
)
from mxnum.engine.traversal import parts
from mxnum.formats import ELEMENTS, FLOATS, MXFormat
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests import samples
from tests.covering import covering
from tests.engine import naive

FLOAT32 = FLOATS["float32"]
TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def request(x, name="e4m3", blocks=(1, 32), **changes):
    """Return a request to quantize an array; `changes` replace default settings."""
    arrays = {key: changes.pop(key) for key in ("scales", "random", "threads") if key in changes}
    settings = {
        "format": MXFormat(changes.pop("element", ELEMENTS[name])), "shape": x.shape, "source": FLOATS[x.dtype.name],
        "blocks": blocks,
        "rounding": Rounding.RNE, "scale_rule": ScaleRule.FLOOR, "overflow": Overflow.SATURATE,
        "nonfinite": Nonfinite.BLOCK, "offset_range": None, "scales_given": arrays.get("scales") is not None,
    }  # fmt: skip
    return Request(Settings(**{**settings, **changes}), x, **arrays)


def inputs(shape=(48, 160), dtype="float32"):
    """Return an array with ordinary, tiny and huge numbers, zeros, ties, NaN and infinities."""
    rng = samples.generator("host", dtype, shape)
    with np.errstate(over="ignore"):
        x = rng.standard_normal(shape)
        x[shape[0] // 2 :] *= np.exp2(rng.integers(-110, 100, (shape[0] - shape[0] // 2, 1)))
        x[1] = rng.integers(-512, 512, shape[1]) / 16
        x = x.astype(TYPES[dtype])
    x[3, 64:96], x[9, 32:64] = 0, -0.0
    x[4, 7], x[5, 40], x[6, 159] = np.nan, np.inf, -np.inf
    # Row 16 has no NaN. Fast loops can leave its blocks to the definition only because of its tiny
    # numbers.
    x[16] *= x.dtype.type(2.0**-120)
    x[10] = min(ml_dtypes.finfo(x.dtype).max, np.finfo(np.float32).max)
    bits = x.view(f"u{x.dtype.itemsize}")
    bits[8] = rng.integers(0, 1 << min(63, 8 * x.dtype.itemsize), shape[1])
    return x


def values_of(codes, scales, element, blocks, target, out=None):
    """Dequantize codes with the engine."""
    asked = decoding_settings(element, blocks, codes.shape, False, False, target)
    return host.dequantize(DecodingRequest(asked, codes, scales), out)


def check(asked, label):
    """Assert that the engine and the definition return the same codes, scales and values.

    The function compares the values in the input's type and in float32.
    """
    settings = asked.settings
    want_codes, want_scales, _ = naive.quantize(asked)
    codes, scales, _ = host.quantize(asked)
    samples.assert_same(f"scales {label}", None, scales, want_scales)
    samples.assert_same(f"codes {label}", None, codes, want_codes)
    for target, got in (
        (settings.source, host.fake_quantize(asked)),
        (FLOAT32, values_of(codes, scales, settings.element, settings.blocks, FLOAT32)),
    ):
        want = naive.dequantize(want_codes, want_scales, None, settings.element, settings.blocks, target)
        as_bits = f"u{got.dtype.itemsize}"
        samples.assert_same(f"values {label} {target}", None, got.view(as_bits), want.view(as_bits))


@pytest.mark.parametrize("rule", ScaleRule)
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_and_scale_rule(element, rule):
    check(request(inputs(), element, scale_rule=rule), f"{element} {rule}")


@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("rounding", Rounding)
def test_every_rounding_and_overflow(rounding, overflow):
    random = RandomBits(7, seed=3) if rounding == Rounding.SR else None
    check(request(inputs(), "e5m2", rounding=rounding, overflow=overflow, random=random), f"{rounding} {overflow}")


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype):
    x = inputs(dtype=dtype)
    check(request(x, "e4m3"), dtype)
    if dtype == "float64":  # Here the fast formulation is right only if it marks infinities.
        check(request(x, "e5m2"), dtype)
    check(request(x, "e2m1", (32, 1), rounding=Rounding.RTO), dtype)


@pytest.mark.parametrize(
    "blocks",
    [(1, 1), (1, 2), (1, 7), (1, 16), (1, 33), (1, 1000), (32, 1), (5, 1), (4, 4), (3, 16), (48, 160), (100, 7)],
)
def test_every_layout(blocks):
    check(request(inputs(), "e3m2", blocks), str(blocks))


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        ((4, 40, 24), (1, 32, 1)), ((4, 40, 24), (2, 1, 1)), ((4, 40, 24), (1, 4, 4)), ((4, 40, 24), (2, 1, 8)),
        ((4, 40, 24), (2, 4, 8)), ((2, 3, 4, 5), (1, 2, 1, 5)), ((2, 3, 4, 5), (2, 2, 2, 2)), ((7,), (32,)), ((), ()),
    ],
)  # fmt: skip
def test_every_rank(shape, blocks):
    x = samples.generator("rank", shape).standard_normal(shape).astype(np.float32)
    check(request(x, "e2m1", blocks), f"{shape} {blocks}")


@pytest.mark.parametrize("nonfinite", [Nonfinite.BLOCK, Nonfinite.ELEMENT])
def test_special_values_by_policy(nonfinite):
    check(request(inputs(), "e4m3", nonfinite=nonfinite), str(nonfinite))
    check(request(inputs(), "e5m2", (8, 8), nonfinite=nonfinite, overflow=Overflow.IEEE), str(nonfinite))


def test_given_scales():
    scales = np.tile(np.arange(0, 250, 50, dtype=np.uint8), (48, 1))
    scales[2] = 255
    check(request(inputs(), scales=scales), "given")
    check(request(np.zeros((4, 160), np.float32), scales=np.full((4, 5), 255, np.uint8)), "zeros that are NaN")
    check(request(np.nan_to_num(inputs()), "int8", scales=scales, nonfinite=Nonfinite.ELEMENT), "given")


def test_an_element_of_ones_own():
    check(request(inputs(), element=dataclasses.replace(ELEMENTS["e4m3"], name="mine", bias=9)), "own")


@pytest.mark.parametrize("view", ["x.T", "x[::2]", "x[:, ::3]", "x[::-1, 5:]", "np.asfortranarray(x)"])
def test_every_stride(view):
    x = eval(view, {"x": inputs(), "np": np})
    random = RandomBits(30, seed=11)
    check(request(x, "e2m3"), view)
    check(request(x, "e2m3", (16, 1), rounding=Rounding.SR, random=random), view)


VIEWS = (
    "x", "x.T", "np.asfortranarray(x)", "np.repeat(x, 2, axis=0)[::2]", "np.repeat(x, 3, axis=1)[:, ::3]",
    "np.ascontiguousarray(x[:, ::-1])[:, ::-1]", "np.asfortranarray(x)[::-1, 5:]", "np.broadcast_to(x[3:4], x.shape)",
    "x.reshape(48, 2, 80).transpose(1, 0, 2)", "x.reshape(12, 4, 160).T", "x.reshape(4, 240, 8)", "x[:, None, ::2].T",
)  # fmt: skip


def smaller_chunks(monkeypatch, limit):
    """Limit the number of elements in a chunk."""
    chunks = parts.chunks.__wrapped__
    monkeypatch.setattr(parts, "chunks", lambda shape, cuts, blocks, _: chunks(shape, cuts, blocks, limit))


@covering(view=VIEWS, limit=[600, 1 << 17], axis=[-1, 0, -2], draw=["nothing", "a seed", "words"]).parametrize_in_tiers
def test_every_order_of_memory(view, limit, axis, draw, monkeypatch):
    """Check inputs and results in any memory order, in chunks, with and without random bits."""
    smaller_chunks(monkeypatch, limit)
    x = eval(view, {"x": inputs(), "np": np})
    words = samples.generator("words", view).integers(0, 1 << 32, x.shape[::-1], dtype=np.uint32).T
    blocks = tuple(32 if i == axis % x.ndim else 1 for i in range(x.ndim))
    drawn = {"nothing": None, "a seed": RandomBits(30, seed=11), "words": RandomBits(9, words=words)}[draw]
    options = {} if drawn is None else {"rounding": Rounding.SR, "random": drawn}
    asked, label = request(x, "e4m3", blocks, **options), f"{view} {blocks} {draw}"
    want_codes, want_scales, want = by_definition(asked)
    codes, scales, _ = host.quantize(asked)
    samples.assert_same(f"scales {label}", None, scales, want_scales)
    samples.assert_same(f"codes {label}", None, codes, want_codes)
    assert codes.strides == np.empty_like(x, np.uint8).strides or 0 in x.strides
    for order in "CF":
        into = np.zeros(x.shape, np.uint8, order), np.zeros(scales.shape, np.uint8, order), None
        host.quantize(asked, into)
        assert np.array_equal(into[0], codes)
        assert np.array_equal(into[1], scales)
        for values in (
            host.fake_quantize(asked, np.zeros(x.shape, x.dtype, order)),
            values_of(*into[:2], asked.settings.element, blocks, FLOAT32),
            values_of(*into[:2], asked.settings.element, blocks, FLOAT32, np.zeros(x.shape, x.dtype)),
        ):
            samples.assert_same(f"values {label}", None, values.view(np.uint32), want.view(np.uint32))
    made = host.shared_scale(request(x, "e4m3", blocks), np.zeros(scales.shape, np.uint8, "F"))
    samples.assert_same("scales alone", None, made, scales)


def by_definition(asked):
    """Return the codes, scales and values that the definition computes."""
    settings = asked.settings
    codes, scales, _ = naive.quantize(asked)
    kind = codes, scales, None, settings.element, settings.blocks, settings.source
    return codes, scales, naive.dequantize(*kind)


@pytest.mark.parametrize("view", VIEWS[1:])
def test_elements_in_every_order_of_memory(view, monkeypatch):
    smaller_chunks(monkeypatch, 600)
    x = np.nan_to_num(eval(view, {"x": inputs(), "np": np}))
    options = {"overflow": Overflow.SATURATE, "nonfinite": Nonfinite.ELEMENT}
    words = samples.generator("words", view).integers(0, 1 << 32, x.shape, dtype=np.uint32)
    for rounding, random in ((Rounding.SR, RandomBits(30, seed=1)), (Rounding.SR, RandomBits(30, words=words))):
        codes = host.encode(x, FLOAT32, ELEMENTS["e2m1"], rounding=rounding, random=random, **options)
        want = naive.encode(x, FLOAT32, ELEMENTS["e2m1"], rounding, Overflow.SATURATE, random)
        samples.assert_same(view, None, codes, want)
        values = host.decode(codes, ELEMENTS["e2m1"], FLOAT32, np.empty(x.shape, np.float32))
        same = host.decode(np.ascontiguousarray(codes), ELEMENTS["e2m1"], FLOAT32, np.empty(x.shape, np.float32, "F"))
        samples.assert_same(view, None, values.view(np.uint32), same.view(np.uint32))


def test_threads_share_arrays_of_any_strides():
    x = samples.generator("threads").standard_normal((2, 3000, 700), dtype=np.float32)
    for view in (x[:, ::2], x.T[1:], x[..., ::-1]):
        for options in ({}, {"rounding": "sr", "seed": 1}):
            want = mx.quantize(np.ascontiguousarray(view), "mxfp8_e4m3", threads=1, **options)
            for threads in (1, 3):
                assert mx.quantize(view, "mxfp8_e4m3", threads=threads, **options).equals(want)
            assert np.array_equal(mx.fake_quantize(view, "mxfp8_e4m3", threads=3, **options), want.dequantize())


@pytest.mark.parametrize("run", [17, 31, 47, 48, 63, 100])
def test_rows_of_blocks_that_registers_do_not_divide(run):
    """Check block lengths that do not fill whole vector registers; the last block is short."""
    rng = samples.generator("odd blocks", run)
    x = (rng.standard_normal((5, 40 * run + 5)) * np.exp2(rng.integers(-20, 20, (5, 1)))).astype(np.float32)
    x[1, run], x[2, 5 * run : 6 * run], x[3, ::2] = np.inf, 0, -0.0
    words = rng.integers(0, 1 << 32, x.shape, dtype=np.uint32)
    check(request(x, "e3m2", (1, run)), run)
    for random in (RandomBits(30, seed=run), RandomBits(9, words=words)):
        check(request(x, "e3m2", (1, run), rounding=Rounding.SR, random=random), run)


def test_random_words_go_with_their_elements():
    x = inputs()
    words = samples.generator("words").integers(0, 1 << 32, x.shape, dtype=np.uint32)
    for a, w in ((x, words), (x.T, words.T), (x[:, ::-1], words[:, ::-1])):
        check(request(a, rounding=Rounding.SR, random=RandomBits(9, words=w)), "words")


def test_a_block_longer_than_what_is_drawn_at_a_time():
    x = samples.generator("long").standard_normal(20_000).astype(np.float32)
    check(request(x, blocks=(15_000,), rounding=Rounding.SR, random=RandomBits(30, seed=1)), "long")
    check(request(x, blocks=(20_000,)), "long")


def test_results_may_lie_anywhere():
    x = inputs()
    want = host.fake_quantize(request(x))
    strided = np.zeros((48, 320), np.float32)[:, ::2]
    assert host.fake_quantize(request(x), strided) is strided
    samples.assert_same("strided", None, strided.view(np.uint32), want.view(np.uint32))
    own = x.copy()
    host.fake_quantize(request(own), own)
    samples.assert_same("in place", None, own.view(np.uint32), want.view(np.uint32))
    shifted = np.concatenate([x.ravel(), np.zeros(3, np.float32)])
    source, target = shifted[:-3].reshape(x.shape), shifted[3:].reshape(x.shape)
    host.fake_quantize(request(source), target)
    samples.assert_same("overlapping", None, target.view(np.uint32), want.view(np.uint32))


def test_without_trust_in_the_hardware_the_definition_does_it(monkeypatch):
    monkeypatch.setattr(workers, "may_use_floats", lambda: False)
    check(request(inputs(), "e2m1"), "distrust")
    check(request(inputs(), "e2m1", (4, 4)), "distrust")


@pytest.mark.parametrize("shape", [(1, 1 << 21), (7, 300_000), (1 << 21,), (3, 700_001)])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_results(shape, threads):
    x = samples.generator("threads").standard_normal(shape, dtype=np.float32)
    for options in ({}, {"rounding": "sr", "seed": 1}, {"block_size": 4}):
        want = mx.quantize(x, "mxfp8_e4m3", threads=1, **options)
        assert mx.quantize(x, "mxfp8_e4m3", threads=threads, **options).equals(want)
        values = mx.fake_quantize(x, "mxfp8_e4m3", threads=threads, **options)
        assert np.array_equal(values, want.dequantize(threads=threads))


@pytest.mark.parametrize(
    ("name", "dtype", "ways"),
    [
        ("mxfp8_e4m3", "float32", [(-1, "rne"), (-2, "rtz"), (0, "sr")]), ("mxfp8_e4m3", "bfloat16", [(-1, "rne")]),
        ("nvfp4", "float32", [(-1, "rne"), (1, "sr")]), ("nvfp4", "float64", [(-2, "rne")]),
    ],
)  # fmt: skip
def test_repeated_calls_on_bits(name, dtype, ways):
    x = inputs(dtype=dtype)
    for axis, rounding in ways:
        out, usual = np.empty_like(x), {"axis": axis, "rounding": rounding}
        again = host.repeated(checked_settings(Choices(name, x.shape, dtype, **usual)), out)
        drawn = {"seed": 5, "stream": 1 << 40, "first": 9} if rounding == "sr" else {}
        for y in (x, x[::-1].copy(), np.abs(x)):
            again(y.view(f"i{y.itemsize}").ravel(), RandomBits(30, **drawn) if drawn else None)
            want = mx.fake_quantize(y, name, **usual, **drawn)
            assert np.array_equal(out.view(np.uint8), want.view(np.uint8))


def test_calls_that_need_more_are_not_repeated():
    out = np.empty((48, 160), np.float32)
    usual = Choices("nvfp4", out.shape, "float32")
    assert host.repeated(checked_settings(usual), out) is not None
    assert host.repeated(checked_settings(usual), np.empty((160, 48), np.float32).T) is None
    for change in ({"nonfinite": "raise"}, {"scale_rule": "four_over_six_squared"}, {"scales_given": True}):
        assert host.repeated(checked_settings(usual._replace(**change)), out) is None


def test_keys_are_words():
    key = RandomBits(30, seed=0x0123456789ABCDEF, stream=(1 << 64) - 1).key
    assert key == (0x89ABCDEF, 0x01234567, 0xFFFFFFFF, 0xFFFFFFFF)


def test_the_first_offender_is_named_in_c_order():
    x = np.zeros((4, 3), np.float32)
    x[2, 1], x[3, 0] = np.inf, np.nan
    options = {"rounding": Rounding.RNE, "overflow": Overflow.SATURATE, "random": None}
    with pytest.raises(ValueError, match=r"a NaN or infinity at index \(2, 1\)"):
        host.encode(x, FLOATS["float32"], ELEMENTS["e2m1"], nonfinite=Nonfinite.RAISE, **options)
    with pytest.raises(ValueError, match=r"NaN at index \(3, 0\)"):
        host.encode(x, FLOATS["float32"], ELEMENTS["e2m1"], nonfinite=Nonfinite.ELEMENT, **options)
    with pytest.raises(ValueError, match=r"NaN at index \(0, 3\)"):
        host.encode(x.T, FLOATS["float32"], ELEMENTS["e2m1"], nonfinite=Nonfinite.ELEMENT, **options)


@pytest.mark.parametrize("view", ["x", "x.T", "x[:, ::2]"])
def test_elements_alone(view):
    x = eval(view, {"x": inputs()})
    options = {"rounding": Rounding.RNA, "overflow": Overflow.IEEE, "nonfinite": Nonfinite.ELEMENT, "random": None}
    for target in (ELEMENTS["e5m2"], FLOATS["bfloat16"]):
        codes = host.encode(x, FLOAT32, target, **options)
        want = naive.encode(x, FLOAT32, target, Rounding.RNA, Overflow.IEEE, None)
        samples.assert_same(f"{view} {target}", None, codes, want)
        values = host.decode(codes, target, FLOAT32)
        unit = np.full(1, 127, np.uint8).reshape((1,) * x.ndim)
        expected = naive.dequantize(codes, unit, None, target, x.shape, FLOAT32)
        samples.assert_same(f"{view} {target}", None, values.view(np.uint32), expected.view(np.uint32))


@covering(element=ELEMENTS, dtype=FLOATS, strength=1).parametrize_in_tiers
def test_every_code_under_every_scale_dequantizes_as_defined(element, dtype):
    element, target = ELEMENTS[element], FLOATS[dtype]
    codes = np.tile(np.arange(1 << element.bits, dtype=np.uint8), (256, 1))
    every = np.arange(256, dtype=np.uint8).reshape(256, 1)
    for scales in (every, np.where(every == 255, every, np.uint8(127))):
        blocks = (1, codes.shape[1])
        got = values_of(codes, scales, element, blocks, target)
        want = naive.dequantize(codes, scales, None, element, blocks, target)
        as_bits = f"u{got.dtype.itemsize}"
        samples.assert_same(f"{element} {dtype}", None, got.view(as_bits), want.view(as_bits))

"""Jobs are made once for all calls that ask for the same; what they do is tested in test_host."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import jobs, parts, walk
from mxnum.engine.draws import NO_DRAW
from mxnum.engine.request import Settings
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests import samples

FLOAT32, E4M3 = FLOATS["float32"], ELEMENTS["e4m3"]


def settings(name):
    return Settings(
        mx.formats.get(name), (4, 32), FLOAT32, (1, 32), Rounding.RNE, ScaleRule.FLOOR, Overflow.SATURATE,
        Nonfinite.BLOCK, None, False,
    )  # fmt: skip


def test_a_job_is_one_object():
    modes = Rounding.RNE, Overflow.SATURATE
    assert jobs.encoding_job(FLOAT32, E4M3, *modes) is jobs.encoding_job(FLOAT32, E4M3, *modes)
    assert jobs.decoding_job(E4M3, FLOAT32) is not jobs.decoding_job(ELEMENTS["e5m2"], FLOAT32)


def test_loops_are_shared_by_elements():
    kinds = [jobs.encoding_job(FLOAT32, ELEMENTS[name], Rounding.RNE, Overflow.SATURATE) for name in ("e4m3", "int8")]
    one, other = (jobs.quantizing_loop(kind, True, 32, NO_DRAW) for kind in kinds)
    assert one is other


def test_the_commonest_conversions_have_their_constants_compiled_in():
    asked = [settings(name) for name in ("mxfp8_e4m3", "mxint8")]
    rceil, ieee = ([replace(s, **change) for s in asked] for change in ({"scale_rule": "rceil"}, {"overflow": "ieee"}))
    usual, short, other_rule, other_overflow = (
        {jobs.quantizing_loop(jobs.quantizing_job(s, False), True, run, NO_DRAW) for s in some}
        for some, run in ((asked, 32), (asked, 16), (rceil, 32), (ieee, 32))
    )
    assert (len(usual), len(short), len(other_overflow - usual)) == (2, 1, 1)  # integers have no other overflow
    assert other_rule == usual  # the rule is among the numbers that a loop is given
    columns, tiles = (
        {jobs.quantizing_loop(jobs.quantizing_job(s, True), False, run, NO_DRAW) for s in asked} for run in (1, 4)
    )
    assert (len(columns), len(tiles)) == (2, 1)


def test_what_no_loop_takes_is_left_undone():
    codes, values = np.ones((4, 4, 4), np.uint8), np.zeros((4, 4, 4), np.float32)
    job, scales = jobs.decoding_job(E4M3, FLOAT32), np.full((2, 2, 2), 127, np.uint8)
    assert not jobs.in_parts(job, (2, 2, 2), codes, values, scales, None)
    assert not values.any()
    assert jobs.in_parts(job, (1, 2, 2), codes, values, np.full((4, 2, 2), 127, np.uint8), None)
    assert values.all()
    whole = np.full((2, 4, 2), 127, np.uint8)  # axes of blocks that are no neighbours become so
    values[...] = 0
    assert jobs.in_parts(job, (2, 1, 2), codes, values, whole, None)
    assert values.all()


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="words are then copied")
@pytest.mark.parametrize(("shape", "size"), [((200, 1040), 16), ((5000, 64), 32), ((300, 150), 17), ((130, 333), 100)])
def test_random_words_in_another_order_are_read_where_they_are(shape, size, monkeypatch):
    rng = samples.generator("other order", shape)
    x, words = rng.standard_normal(shape, np.float32), rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    x[3, 5], x[4, 70:75], x[20, 21] = np.nan, 1e-44, np.inf
    turned = np.asfortranarray(x)
    options = {"format": "mxfp6_e3m2", "block_size": size, "rounding": "sr"}
    want = mx.quantize(x, random_bits=words, **options)
    read = parts._Room.read

    def read_no_words(room, name, array):
        assert name != "words"
        return read(room, name, array)

    monkeypatch.setattr(walk, "ELEMENTS_PER_THREAD", 4096)
    monkeypatch.setattr(parts._Room, "read", read_no_words)
    for threads in (1, 3):
        got = mx.quantize(turned, random_bits=words, threads=threads, **options)
        assert got.codes.flags.f_contiguous
        samples.assert_same("codes", None, got.codes, want.codes)
        samples.assert_same("scales", None, got.scales, want.scales)
    other_way = mx.quantize(x.T.copy(), axis=0, random_bits=words.T, **options)  # C order, and words that are not
    samples.assert_same("codes", None, other_way.codes, want.codes.T)


@pytest.mark.parametrize(("shape", "is_drawn"), [((200, 1040), False), ((300, 152), False), ((130, 331), True)])
def test_seeded_words_of_another_order_are_made_where_they_are_wanted(shape, is_drawn, monkeypatch):
    x = samples.generator("seeded order", shape).standard_normal(shape, np.float32)
    x[3, 5], x[4, 70:75], x[20, 21] = np.nan, 1e-44, np.inf
    monkeypatch.setattr(walk, "ELEMENTS_PER_THREAD", 4096)
    made, drawn = [], parts.Parts._drawn
    monkeypatch.setattr(parts.Parts, "_drawn", lambda *arguments: made.append(1) or drawn(*arguments))
    for options in ({}, {"block_size": 16, "sr_bits": 7}, {"block_shape": (4, 8)}):
        kind = {"format": "mxfp4_e2m1", "rounding": "sr", "seed": 1 << 40, "stream": 3, **options}
        want = mx.quantize(x, **kind)
        for threads in (1, 3):
            for turned in (np.asfortranarray(x), np.asfortranarray(np.pad(x, ((0, 5), (0, 0))))[:-5]):
                got = mx.quantize(turned, threads=threads, **kind)
                samples.assert_same("codes", None, got.codes, want.codes)
                samples.assert_same("scales", None, got.scales, want.scales)
    assert bool(made) == is_drawn


def test_random_words_that_cannot_be_read_so_are_copied():
    """Narrow blocks, rows in memory, and words between others."""
    rng = samples.generator("copied words")
    x, words = rng.standard_normal((96, 128), np.float32), rng.integers(0, 1 << 32, (96, 256), dtype=np.uint32)
    for axis, size, some in ((1, 8, words[:, :128].copy()), (0, 32, words[:, :128].copy()), (1, 32, words[:, ::2])):
        options = {"format": "mxfp4_e2m1", "axis": axis, "block_size": size, "rounding": "sr"}
        want = mx.quantize(x, random_bits=some.copy(), **options)
        got = mx.quantize(np.asfortranarray(x), random_bits=some, **options)
        samples.assert_same(f"{options}", None, got.codes, want.codes)


APART = {
    "every other row": lambda x: np.repeat(x, 2, axis=-2)[..., ::2, :],
    "wider": lambda x: np.pad(x, ((0, 0),) * (x.ndim - 1) + ((64, 3),))[..., 64:-3],
    "repeated": lambda x: np.broadcast_to(x[..., :1, :], x.shape),
    "windows": lambda x: np.lib.stride_tricks.as_strided(x, x.shape, (*x.strides[:-2], x.itemsize, x.itemsize)),
    "Fortran, wider": lambda x: np.pad(x.T, ((0, 0),) * (x.ndim - 1) + ((0, 64),))[..., :-64].T,
}
MODES = [
    {"format": "mxfp8_e4m3"},
    {"format": "mxfp6_e2m3", "axis": -2, "rounding": "sr", "seed": 4},
    {"format": "mxfp4_e2m1", "block_size": 16, "rounding": "rtz", "scale_rule": "rceil", "threads": 3},
    {"format": "mxfp8_e5m2", "block_shape": (4, 4), "nonfinite": "element"},
    {"format": "mxfp8_e5m2", "block_size": 20, "overflow": "ieee"},
]


def record_copies(monkeypatch):
    """A list to which the name of each array is added that is asked for in contiguous memory."""
    read, copied = parts._Room.read, []
    monkeypatch.setattr(parts._Room, "read", lambda room, name, array: copied.append(name) or read(room, name, array))
    return copied


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="they are then copied")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("view", APART)
def test_rows_that_lie_apart_are_read_where_they_are(view, dtype, monkeypatch):
    monkeypatch.setattr(walk, "ELEMENTS_PER_THREAD", 2048)
    rng = samples.generator("apart", view)
    x = (rng.standard_normal((64, 320)) * np.exp2(rng.integers(-9, 9, (64, 320)))).astype(dtype)
    x[3, 5], x[40, 70:75], x[20, 21] = np.nan, 1e-7, np.inf
    x = APART[view](x)
    copied = record_copies(monkeypatch)
    for options in MODES:
        want, fake = mx.quantize(x.copy(order="K"), **options), mx.fake_quantize(x.copy(order="K"), **options)
        copied.clear()
        got = mx.quantize(x, **options)
        samples.assert_same("codes", None, got.codes, want.codes)
        samples.assert_same("scales", None, got.scales, want.scales)
        samples.assert_same(
            "values", None, mx.fake_quantize(x, **options).view(f"u{x.itemsize}"), fake.view(f"u{x.itemsize}")
        )
        if "Fortran" not in view or "seed" not in options:
            assert "x" not in copied


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="they are then copied")
@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"block_size": 16}, {"block_size": 8}], ids=str)
def test_codes_whose_rows_lie_apart_are_read_where_they_are(options, monkeypatch):
    x = samples.generator("codes apart").standard_normal((128, 320), np.float32)
    q = mx.quantize(x, "mxfp6_e3m2", **options)
    want, copied = q.dequantize()[64:, :256], record_copies(monkeypatch)
    samples.assert_same(f"{options}", None, q[64:, :256].dequantize(), want)
    assert "x" not in copied

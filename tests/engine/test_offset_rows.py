"""The loop that does all of asymmetric scaling along rows: when it does, what it leaves, and how that is finished."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import asymmetric, definition, environment, walk
from mxnum.engine.jobs import Quantization
from mxnum.engine.offset_rows import add_offsets_to_rows, decode_rows_with_offsets
from mxnum.formats import FLOATS
from tests import samples

TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@pytest.fixture(autouse=True)
def _needs_compilation():
    if not environment.is_default():
        pytest.skip("the loop adds floats, which only compiled code does")


def numbers(shape, dtype="float32"):
    """Blocks away from zero, constant ones and zeros of both signs among them."""
    rng = samples.generator("offset rows", shape)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-9, 4, (shape[0], 1))) + rng.integers(-9, 9, shape[:1] + (1,))
    x[1], x[2, :64], x[3, ::2], x[4] = 2.5, 0, -0.0, -0.0
    return x.astype(TYPES[dtype])


def results(x, **options):
    """Codes, scales, offsets and fake-quantized values, as integers."""
    q, fake = mx.quantize(x, **options), mx.fake_quantize(x, **options)
    return [a.view(f"u{a.itemsize}") for a in (q.codes, q.scales, q.offsets, fake)]


def by_definition(x, monkeypatch, **options):
    with monkeypatch.context() as patch:
        for name in ("quantize", "dequantize", "fake_quantize"):
            patch.setattr(asymmetric, name, lambda *_: False)
        return results(x, **options)


def check(got, want, what):
    for name, mine, its in zip(("codes", "scales", "offsets", "values"), got, want, strict=True):
        samples.assert_same(f"{name} {what}", None, mine, its)


def count(monkeypatch, owner, name):
    """Calls of a function, and what they return, as they come."""
    function, returned = getattr(owner, name), []
    monkeypatch.setattr(owner, name, lambda *a: returned.append(function(*a)) or returned[-1])
    return returned


MODES = [
    {"format": "mxfp8_e4m3"},
    {"format": "mxfp4_e2m1", "offset_range": "half"},
    {"format": "mxint8", "rounding": "sr", "seed": 3},
    {"format": "mxfp6_e2m3", "rounding": "rtp", "scale_rule": "rceil", "offset_range": "half"},
    {"format": "mxfp8_e5m2", "rounding": "sr", "overflow": "ieee"},
]


@pytest.mark.parametrize(
    ("options", "size"), [*((mode, 32) for mode in MODES), *zip(MODES, (16, 17, 96, 4096), strict=False)], ids=str
)
def test_ordinary_numbers_leave_nothing(options, size, monkeypatch):
    def fail(*_):
        raise AssertionError("not all in one go")

    x = numbers((12, 8192 // size * size))
    if "seed" not in options and options.get("rounding") == "sr":
        options = {**options, "random_bits": samples.generator("bits").integers(0, 1 << 32, x.shape, dtype=np.uint32)}
    options = {**options, "offset": "float16", "block_size": size}
    want = by_definition(x, monkeypatch, **options)
    monkeypatch.setattr(Quantization, "finish", fail)
    monkeypatch.setattr(asymmetric, "_run", fail)
    check(results(x, **options), want, options)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_left_is_finished(dtype, monkeypatch):
    """Nonfinite numbers, rows that end in a short block, and scales that were given."""
    finished = count(monkeypatch, Quantization, "finish")
    cases = [(320, {})]
    if dtype == "float32":
        cases += [(300, {"block_size": 16, "rounding": "sr", "seed": 4})]
        cases += [(333, {"block_size": 24, "offset_range": "half", "overflow": "ieee", "nonfinite": "element"})]
    for length, options in cases:
        x = numbers((70, length), dtype)
        x[7, 5], x[8, ::32], x[50, 40:200], x[51, 0] = np.nan, np.inf, np.nan, -np.inf
        kind = {"format": "mxfp8_e5m2", "offset": "float16", **options}
        check(results(x, **kind), by_definition(x, monkeypatch, **kind), kind)
    scales = samples.generator("given").integers(0, 256, (70, 10), dtype=np.uint8)
    kind = {"format": "mxfp8_e5m2", "offset": "float16", "scales": scales}
    x = numbers((70, 320), dtype)
    check(results(x, **kind), by_definition(x, monkeypatch, **kind), kind)
    assert len(finished) >= 2 * len(cases) + 1


def test_values_that_are_not_exact_go_by_codes(monkeypatch):
    added = []
    loop = add_offsets_to_rows()
    monkeypatch.setattr(asymmetric, "add_offsets_to_rows", lambda: lambda *a: added.append(loop(*a)) or added[-1])
    x, kind = numbers((40, 320)) * np.float32(2.0**-130), {"format": "mxfp8_e4m3", "offset": "float16"}
    check(results(x, **kind), by_definition(x, monkeypatch, **kind), kind)
    assert len(added) == 1
    assert added[0] > 0


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(walk, "ELEMENTS_PER_THREAD", 2048)
    x = numbers((24, 1000))
    x[9, 500] = np.inf
    for more in ({}, {"rounding": "sr", "seed": 4, "offset_range": "half"}):
        kind = {"format": "mxfp6_e3m2", "offset": "float16", **more}
        want = results(x, threads=1, **kind)
        for threads in (2, 3, 7):
            check(results(x, threads=threads, **kind), want, (threads, kind))


def test_large_arrays_are_taken_in_parts(monkeypatch):
    run = count(monkeypatch, asymmetric, "_run_rows")
    x = np.resize(numbers((70, 96)), (3, 400_000))
    kind = {"format": "mxfp4_e2m1", "offset": "float16", "rounding": "sr", "seed": 4}
    whole = [mx.quantize(x, **kind).codes, mx.fake_quantize(x, **kind)]
    few = len(run)
    assert few >= 2 * 9
    monkeypatch.setattr(asymmetric, "CHUNK", 1 << 15)
    pieces = [mx.quantize(x, **kind).codes, mx.fake_quantize(x, **kind)]
    assert len(run) - few > 3 * few
    for mine, its in zip(pieces, whole, strict=True):
        assert np.array_equal(mine, its)


def test_offsets_are_added_to_marked_groups():
    shape, bounds = (70, 32, 1, 70), (0, 2, 0, 3)
    values = np.arange(140, dtype=np.float32)
    scales = np.array([127, 255, 127, 9, 127, 127], np.uint8)
    offsets = np.array([1, 1, 1, 1, 2, 3], np.float16)
    marked = np.array([1, 1, 0, 1, 1, 1], np.uint8)
    arguments = values.view(np.int32), scales, offsets.view(np.uint16), shape, bounds, marked, 10, 200
    want = values.copy()
    want[:32] += 1  # then a NaN scale, a group without a mark, and a scale below the bounds
    want[102:134] += 2
    want[134:] += 3
    assert add_offsets_to_rows()(*arguments) == 1
    assert np.array_equal(values, want)


@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp4_e2m1", "mxint8"])
@pytest.mark.parametrize(("length", "size"), [(320, 32), (323, 32), (320, 16), (300, 17), (400, 200)])
def test_offsets_are_added_where_values_are_made(name, length, size, monkeypatch):
    """With NaN among scales and offsets that no sum is right for: those blocks alone go another way."""
    loop, left = decode_rows_with_offsets, []

    def counted(*kind):
        run = loop(*kind)
        return lambda *arguments: left.append(run(*arguments)) or left[-1]

    monkeypatch.setattr(asymmetric, "decode_rows_with_offsets", counted)
    q = mx.quantize(numbers((70, length)), name, block_size=size, offset="float16")
    q.scales[5, 1] = q.scales[69] = 255
    for offsets, scales, is_left in ((0, 127, False), (np.nan, 127, True), (np.inf, 127, True), (0, 1, True)):
        q.offsets[9, 1], q.scales[9, 1] = offsets, scales
        got = q.dequantize()
        want = np.empty_like(got)
        definition.dequantize(q.codes, q.scales, q.offsets, q.format.element, q.blocks, FLOATS["float32"], want)
        samples.assert_same(f"{offsets} {scales}", None, got.view(np.uint32), want.view(np.uint32))
        assert left[-1] - left[0] == is_left  # blocks of one number have the least scale

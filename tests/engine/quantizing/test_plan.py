"""Tests that cached plans do not change results and do not keep arrays alive."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.quantizing import host, plan
from tests import samples
from tests.engine.machine.test_float_environment import DOWNWARD, FLUSH_TO_ZERO, control_bits
from tests.engine.machine.test_float_environment import pytestmark as where_the_environment_can_be_set


def numbers(shape, *key, dtype=np.float32):
    """Return numbers of many magnitudes, a few of them NaN.

    The NaNs are there because the fast loops leave blocks with NaN to other loops.
    """
    rng = samples.generator("plans", shape, *key)
    with np.errstate(over="ignore"):
        x = (rng.standard_normal(shape) * np.exp2(rng.integers(-30, 30, shape))).astype(dtype)
    x.reshape(-1)[:: max(x.size // 3, 1)] = np.nan
    return x


@pytest.fixture
def in_parts(monkeypatch):
    """Return a function that calls `function` while the engine cuts every array into parts."""

    def in_parts(function):
        with monkeypatch.context() as patch:
            for find in (host.to_codes_plan, host.to_values_plan, host.from_codes_plan):
                find.cache_clear()
            patch.setattr(plan.Plan, "_around_packed", lambda self, walk: None)
            made = function()
        for find in (host.to_codes_plan, host.to_values_plan, host.from_codes_plan):
            find.cache_clear()
        return made

    return in_parts


@pytest.fixture
def direct_only(monkeypatch):
    """Return a function that makes the engine raise an error if it cuts an array into parts."""

    def refuse(*arguments, **options):
        raise AssertionError("in parts")

    return lambda: monkeypatch.setattr(plan.Plan, "_run_in_parts", refuse)


def results(x, fmt, **options):
    """Return the results of all operations that have a plan, in new and in existing arrays."""
    made = {"values": mx.fake_quantize(x, fmt, **options)}
    made["values, out="] = mx.fake_quantize(x, fmt, **options, out=np.full_like(x, 7))
    for packed in (False, True):
        q = mx.quantize(x, fmt, packed=packed, **options)
        again = mx.quantize(np.zeros_like(x), fmt, packed=packed, **options)
        assert mx.quantize(x, fmt, packed=packed, **options, out=again) is again
        for name, array in (("", q), (", out=", again)):
            made |= {f"bytes{name} {packed}": array.pack(), f"scales{name} {packed}": array.scales}
            made |= {f"decoded{name} {packed} {kind}": array.dequantize(kind) for kind in ("float32", "bfloat16")}
            into = np.full(x.shape, 7, np.float32)
            assert array.dequantize(out=into) is into
            made[f"decoded, out={name} {packed}"] = into
    layout = {name: options[name] for name in ("axis", "block_size", "block_shape", "scale_rule") if name in options}
    made["scales alone"] = mx.shared_scale(x, fmt, **layout)
    made["scales alone, out="] = np.full_like(made["scales alone"], 7)
    mx.shared_scale(x, fmt, **layout, out=made["scales alone, out="])
    return {name: (array.shape, array.dtype, array.tobytes()) for name, array in made.items()}


@pytest.mark.parametrize(
    ("name", "dtype", "options"),
    [
        ("mxfp8_e4m3", np.float32, {}),
        ("mxfp4_e2m1", np.float32, {"rounding": "rtz", "scale_rule": "even", "overflow": "ieee", "threads": 2}),
        ("mxfp6_e2m3", ml_dtypes.bfloat16, {}),
        ("mxfp4_e2m1", np.float32, {"rounding": "sr", "seed": 5, "stream": 1 << 40}),
        ("mxfp4_e2m1", np.float32, {"rounding": "sr", "random_bits": np.arange(192, dtype=np.uint32).reshape(3, 64)}),
    ],
    ids=["e4m3", "rtz", "bfloat16", "seed", "words"],
)
def test_plans_give_the_bits_of_arrays_cut_into_parts(name, dtype, options, in_parts, direct_only):
    x = numbers((3, 64), name, dtype=dtype)
    want = in_parts(lambda: results(x, name, **options))
    direct_only()
    for _ in range(2):
        assert results(x, name, **options) == want


@pytest.mark.parametrize(
    ("shape", "options"),
    [((64, 6), {"axis": 0}), ((100,), {}), ((), {}), ((0, 32), {})],
    ids=str,
)
def test_other_layouts(shape, options, in_parts):
    x = numbers(shape) if shape else np.float32(3.3)
    want = in_parts(lambda: results(np.asarray(x), "mxfp4_e2m1", **options))
    for _ in range(2):
        assert results(np.asarray(x), "mxfp4_e2m1", **options) == want


def test_large_arrays_in_threads(in_parts):
    x = numbers((1 << 11, 1 << 10))
    want = in_parts(lambda: results(x, "mxfp4_e2m1", threads=1))
    assert results(x, "mxfp4_e2m1", threads=3) == want


@pytest.mark.skipif(where_the_environment_can_be_set.args[0], reason="cannot set the SSE control register")
@pytest.mark.parametrize("bits", [FLUSH_TO_ZERO, DOWNWARD], ids=hex)
def test_a_plan_asks_for_the_environment_each_time(bits, direct_only):
    x = numbers((4, 64)) * np.float32(2.0**-100)
    want = {name: results(x, name) for name in ("mxfp8_e4m3", "mxfp4_e2m1")}
    direct_only()
    for name, expected in want.items():
        with control_bits(bits):
            got = results(x, name)
        assert got == expected


def test_one_plan_takes_arrays_that_lie_anywhere():
    x = numbers((4, 64))
    want = mx.fake_quantize(x, "mxfp8_e4m3")
    q = mx.quantize(x, "mxfp8_e4m3")
    twice = np.empty((4, 128), np.float32)
    assert np.array_equal(mx.fake_quantize(x, "mxfp8_e4m3", out=twice[:, ::2]), want, equal_nan=True)
    assert np.array_equal(q.dequantize(out=twice[:, 1::2]), want, equal_nan=True)
    assert np.array_equal(mx.fake_quantize(np.asfortranarray(x), "mxfp8_e4m3"), want, equal_nan=True)
    assert np.array_equal(mx.fake_quantize(x.astype(">f4"), "mxfp8_e4m3"), want, equal_nan=True)
    assert np.array_equal(mx.fake_quantize(x.view(np.recarray), "mxfp8_e4m3"), want, equal_nan=True)
    moving = np.concatenate([x.reshape(-1), x.reshape(-1)])
    mx.fake_quantize(moving[:256].reshape(4, 64), "mxfp8_e4m3", out=moving[64:320].reshape(4, 64))
    assert np.array_equal(moving[64:320].reshape(4, 64), want, equal_nan=True)
    assert mx.fake_quantize(x, "mxfp8_e4m3", out=x) is x
    assert np.array_equal(x, want, equal_nan=True)


def test_errors_are_the_same_with_a_plan():
    x = numbers((4, 64))
    locked = np.empty_like(x)
    locked.flags.writeable = False
    q = mx.quantize(x, "mxfp8_e4m3")
    for _ in range(2):
        mx.fake_quantize(x, "mxfp8_e4m3")
        with pytest.raises(ValueError, match=r"Argument 'out' must be of shape \(4, 64\), not \(4, 32\)"):
            mx.fake_quantize(x, "mxfp8_e4m3", out=np.empty((4, 32), np.float32))
        with pytest.raises(ValueError, match="Argument 'out' must be of dtype float32"):
            mx.fake_quantize(x, "mxfp8_e4m3", out=np.empty((4, 64)))
        with pytest.raises(ValueError, match="Argument 'out' must be writable, not 'a read-only array'"):
            mx.fake_quantize(x, "mxfp8_e4m3", out=locked)
        with pytest.raises(ValueError, match="Argument 'out' must be writable, not 'a read-only array'"):
            q.dequantize(out=locked)
        with pytest.raises(TypeError, match="Argument 'out' must be a numpy array, not 'list'"):
            q.dequantize(out=[1.0])
        with pytest.raises(ValueError, match="Argument 'threads' must be at least 1, not 0"):
            mx.fake_quantize(x, "mxfp8_e4m3", threads=0)
        with pytest.raises(ValueError, match="Argument 'seed' must be left out"):
            mx.fake_quantize(x, "mxfp8_e4m3", seed=1)
    q.scales.flags.writeable = False
    with pytest.raises(ValueError, match="Argument 'out' must be writable"):
        mx.quantize(x, "mxfp8_e4m3", out=q)
    assert q.dequantize().shape == x.shape  # read-only scales are allowed, because `dequantize` does not write them
    with pytest.raises(ValueError, match="'x'"):
        mx.quantize(x, "mxfp8_e4m3", nonfinite="raise")


def test_one_plan_serves_threads_at_once():
    inputs = [numbers((16, 64), i) for i in range(8)]
    for packed in (False, True):
        want = [mx.quantize(x, "mxfp4_e2m1", packed=packed) for x in inputs]

        def work(index, packed=packed, want=want):
            for _ in range(200):
                assert mx.quantize(inputs[index], "mxfp4_e2m1", packed=packed).equals(want[index])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


def test_a_plan_is_found_again_and_keeps_no_array():
    x, out = np.ones((7, 64), np.float32), np.empty((7, 64), np.float32)
    before = host.to_values_plan.cache_info()
    mx.fake_quantize(x, "mxfp8_e4m3", out=out)
    mx.fake_quantize(x, "mxfp8_e4m3", rounding=mx.Rounding.RNE, axis=-1)
    mx.fake_quantize(x, "mxfp8_e4m3", out=out)
    after = host.to_values_plan.cache_info()
    assert after.misses - before.misses == 2  # calls with and without `out` have different plans
    assert after.hits - before.hits == 1
    # Arrays in another memory order use the same plan.
    mx.fake_quantize(np.asfortranarray(x), "mxfp8_e4m3", out=np.asfortranarray(out))
    assert host.to_values_plan.cache_info().misses == after.misses
    kept = [weakref.ref(array) for array in (x, out)]
    del x, out
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_contiguous_arrays_go_to_the_loops_uncut():
    def is_direct(shape, blocks, *, packed=False, offset=None):
        asked = mx.ops.checked_settings(mx.ops.Choices("mxfp4_e2m1", shape, "float32", blocks=blocks, offset=offset))
        return host.to_codes_plan(asked, packed, None).direct is not None

    assert is_direct((4, 64), (1, 32))
    assert is_direct((4, 64), (1, 32), packed=True)
    assert is_direct((4, 64), (4, 1), offset="float16")
    assert not is_direct((4, 4, 4), (2, 2, 2))
    assert not is_direct((0, 64), (1, 32))
    assert is_direct((512, 1024), (1, 32), packed=True)
    assert is_direct((512, 1056), (1, 32), packed=True)
    assert not is_direct((512, 512), (1, 32), offset="float16")

"""Tests that results without numba equal those of the compiled engine."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import dispatch, uncompiled
from tests import samples


def numbers(shape):
    x = np.asarray(samples.generator("uncompiled").standard_normal(shape), np.float32)
    x.flat[:1] = -7e5
    return x


WAYS = [
    {"format": "mxfp8_e4m3"},
    {"format": "mxfp6_e2m3", "packed": True, "axis": 0},
    {"format": "mxint4", "packed": True, "scale_rule": "even"},
    {"format": "mxfp4_e2m1", "rounding": "sr", "seed": 5, "stream": 3, "sr_bits": 9},
    {"format": "mxfp4_e2m1", "offset": "float16", "nonfinite": "element"},
    # With `nonfinite="element"`, int8 needs a scan for NaN. The engine `uncompiled` leaves such
    # calls to the compiled engine.
    {"format": "mxint8", "nonfinite": "element", "overflow": "ieee"},
    {"format": "nvfp4", "packed": True},  # float scales: the compiled engine runs this call, too
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["format"])
# Regression: arrays without rows could not be packed.
@pytest.mark.parametrize("shape", [(5, 45), (), (0, 5), (5, 0)])
def test_arrays_bytes_and_values_are_the_same(way, shape):
    x = numbers(shape)
    want = mx.quantize(x, **way)
    with dispatch.uncompiled():
        got = mx.quantize(x, **way)
        packed = got.pack()
        values = got.dequantize()
        assert dispatch.engine(x=x) is dispatch.host_engine() is uncompiled
    assert dispatch.host_engine() is not uncompiled
    assert got.equals(want)
    assert got.is_packed == want.is_packed
    assert packed.dtype == np.uint8
    assert np.array_equal(packed, want.pack())
    assert values.dtype == np.float32
    assert values.tobytes() == want.dequantize().tobytes()


def test_random_words_scales_and_out_that_are_given():
    x, words = numbers((2, 40)), samples.generator("words").integers(0, 1 << 32, (2, 40), dtype=np.uint32)
    options = {"rounding": "sr", "random_bits": words, "scales": np.array([[120, 125], [130, 255]], np.uint8)}
    want = mx.quantize(x, "mxfp4_e2m1", **options)
    with dispatch.uncompiled():
        assert mx.quantize(x, "mxfp4_e2m1", **options).equals(want)
        out = mx.quantize(x, "mxfp4_e2m1")
        assert mx.quantize(x, "mxfp4_e2m1", **options, out=out) is out
        packed, values = np.empty((2, 20), np.uint8), np.empty((2, 40), np.float32)
        assert np.array_equal(out.pack(out=packed), want.pack())
        assert np.array_equal(out.dequantize(out=values), want.dequantize(), equal_nan=True)
    assert out.equals(want)


def test_what_is_refused_is_refused():
    with dispatch.uncompiled(), pytest.raises(ValueError, match="free of NaN for int8"):
        mx.quantize([1.0, np.nan], "mxint8", nonfinite="element")
    assert mx.quantize([1.0], "mxint8").size == 1  # after the `with` block, the compiled engine runs again


@pytest.mark.parametrize("options", [[], ["--values"], ["-f", "mxfp6_e3m2", "--rounding", "sr", "--seed", "1"]])
def test_the_command_loads_no_numba_for_few_numbers(tmp_path, options):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    np.save(tmp_path / "x.npy", numbers((4, 64)))
    target = tmp_path / ("y.npy" if options == ["--values"] else "y.npz")
    script = """
import sys
from mxnum.cli.main import main
status = main(sys.argv[1:])
assert status == 0 and not {"numba", "rich.console"} & set(sys.modules), status
"""
    arguments = ["quantize", tmp_path / "x.npy", target, *options]
    subprocess.run([sys.executable, "-c", script, *map(str, arguments)], check=True)
    assert target.exists()

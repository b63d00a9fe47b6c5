from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("typer", reason="the extra cli is not installed")

import mxnum as mx
from mxnum.cli import command_quantize, inputs
from tests import samples


@pytest.fixture
def x(tmp_path):
    array = samples.generator("command quantize").standard_normal((40, 70)).astype(np.float32)
    np.save(tmp_path / "x.npy", array)
    return array


@pytest.mark.parametrize("piece", [100, 1 << 24])
@pytest.mark.parametrize("axis", [0, 1])
def test_codes_and_scales(run, tmp_path, x, axis, piece, monkeypatch):
    monkeypatch.setattr(command_quantize, "_PIECE", piece)
    options = ["--axis", axis, "--scale-rule", "even", "--rounding", "rtz"]
    run("quantize", tmp_path / "x.npy", tmp_path / "q.npz", "-f", "mxfp6_e2m3", *options)
    expected = mx.quantize(x, "mxfp6_e2m3", axis=axis, scale_rule="even", rounding="rtz")
    assert mx.MXArray.load(tmp_path / "q.npz").equals(expected)


def test_values_and_seed(run, tmp_path, x):
    options = ["--values", "--rounding", "sr", "--seed", "5", "--sr-bits", "8"]
    facts = run.json("quantize", tmp_path / "x.npy", tmp_path / "y.npy", *options)
    assert facts["shape"] == [40, 70]
    expected = mx.fake_quantize(x, "mxfp8_e4m3", rounding="sr", seed=5, sr_bits=8)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)


def test_nothing_half_written_is_left(run, tmp_path, x):
    for arguments in (
        ["x.npy", "q.npy"],
        ["x.npy", "q.npz", "--rounding", "sr"],
        ["missing.npy", "q.npz"],
        ["x.npy", "no/such/directory/q.npz"],
        ["x.npy", "q.npz", "-f", "mxfp4"],
    ):
        source, target, *rest = arguments
        message = run("quantize", tmp_path / source, tmp_path / target, *rest, status=2)
        assert message.count("\n") == 1, message
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_safetensors(run, tmp_path, x):
    run("quantize", tmp_path / "x.npy", tmp_path / "q.safetensors", "-f", "mxint8")
    assert inputs.read(tmp_path / "q.safetensors", "x").equals(mx.quantize(x, "mxint8"))
    assert run.json("inspect", tmp_path / "q.safetensors")["format"] == "mxint8"

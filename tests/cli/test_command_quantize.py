from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("typer", reason="the extra cli is not installed")

import mxnum as mx
from mxnum.cli import command_quantize, inputs
from mxnum.interop import safetensors
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


def test_error_gives_the_index_of_a_nan_in_the_whole_array(run, tmp_path, monkeypatch):
    # Regression: for an array quantized in pieces, the message gave the index within the piece.
    monkeypatch.setattr(command_quantize, "_PIECE", 100)
    x = np.zeros((40, 70), np.float32)
    x[33, 5] = np.nan
    np.save(tmp_path / "x.npy", x)
    for policy in ("element", "raise"):
        options = ["-f", "mxfp4_e2m1", "--nonfinite", policy]
        assert "at index (33, 5)" in run("quantize", tmp_path / "x.npy", tmp_path / "q.npz", *options, status=2)


def test_values_and_seed(run, tmp_path, x):
    options = ["--values", "--rounding", "sr", "--seed", "5", "--sr-bits", "8"]
    facts = run.json("quantize", tmp_path / "x.npy", tmp_path / "y.npy", *options)
    assert facts["shape"] == [40, 70]
    expected = mx.fake_quantize(x, "mxfp8_e4m3", rounding="sr", seed=5, sr_bits=8)
    assert np.array_equal(np.load(tmp_path / "y.npy"), expected)


def test_failures_leave_no_partial_files(run, tmp_path, x):
    for arguments in (
        ["x.npy", "q.npy"],
        ["x.npy", "q.npz", "--rounding", "sr"],
        ["missing.npy", "q.npz"],
        ["x.npy", "no/such/directory/q.npz"],
        ["x.npy", "q.npz", "-f", "mxfp9"],
    ):
        source, target, *rest = arguments
        message = run("quantize", tmp_path / source, tmp_path / target, *rest, status=2)
        assert message.count("\n") == 1, message
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_an_array_without_axes(run, tmp_path):
    np.save(tmp_path / "x.npy", np.float32(3))
    told = run("quantize", tmp_path / "x.npy", tmp_path / "q.safetensors", status=2)
    assert "'OUT' must be a .npz file for an array without axes" in told
    run("quantize", tmp_path / "x.npy", tmp_path / "q.npz")
    assert mx.MXArray.load(tmp_path / "q.npz").dequantize() == 3


def test_safetensors(run, tmp_path, x):
    run("quantize", tmp_path / "x.npy", tmp_path / "q.safetensors", "-f", "mxint8")
    assert inputs.read(tmp_path / "q.safetensors", "x").equals(mx.quantize(x, "mxint8"))
    assert run.json("inspect", tmp_path / "q.safetensors")["format"] == "mxint8"
    run("quantize", tmp_path / "x.npy", tmp_path / "n.safetensors", "-f", "nvfp4")
    assert inputs.read(tmp_path / "n.safetensors", "x").equals(mx.quantize(x, "nvfp4"))


def test_a_file_is_overwritten_only_if_asked_for(run, tmp_path, x):
    # Regression: existing files were overwritten without --force.
    source, target = tmp_path / "x.npy", tmp_path / "q.npz"
    before = source.read_bytes()
    (tmp_path / "again.npy").hardlink_to(source)
    (tmp_path / "link.npy").symlink_to(source)
    for same in ("x.npy", "again.npy", "link.npy", f"../{tmp_path.name}/x.npy"):
        told = run("quantize", source, tmp_path / same, "--values", status=2)
        assert f"OUT must be a new file unless --force is given: '{tmp_path / same}' exists." in told
        assert source.read_bytes() == before
    run("quantize", source, target)
    first = target.read_bytes()
    assert "--force" in run("quantize", source, target, "-f", "mxint8", status=2)
    assert target.read_bytes() == first
    run("quantize", source, target, "-f", "mxint8", "--force")
    assert mx.MXArray.load(target).equals(mx.quantize(x, "mxint8"))
    target.chmod(0o600)
    run("quantize", source, target, "--force")
    assert target.stat().st_mode & 0o777 == 0o600
    run("quantize", source, tmp_path / "link.npy", "--values", "--force")
    assert (tmp_path / "link.npy").is_symlink()
    assert np.array_equal(np.load(source), mx.fake_quantize(x, "mxfp8_e4m3"))
    assert (tmp_path / "again.npy").read_bytes() == before


@pytest.mark.parametrize("name", ["m.safetensors", "m.npz"])
def test_a_file_with_other_tensors_is_not_replaced(run, tmp_path, x, name):
    # Regression: the other tensors of the file were lost.
    safetensors.save(tmp_path / "m.safetensors", {"a": x, "b": x})
    np.savez(tmp_path / "m.npz", a=x, b=x)
    before = (tmp_path / name).read_bytes()
    told = run("quantize", tmp_path / name, tmp_path / name, "--tensor", "a", "--force", status=2)
    assert "'OUT' must be another file than IN, which holds 2 tensors" in told
    assert (tmp_path / name).read_bytes() == before


def test_unwritable_targets_raise_before_quantizing(run, tmp_path, x, monkeypatch):
    monkeypatch.setattr(command_quantize, "_quantized", None)
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    told = {
        "folder.npz": "Is a directory: '{}'.",
        "loop.npz": "Too many levels of symbolic links: '{}'.",
        "no/where.npz": "No such folder: '{}'.",
    }
    for name, message in told.items():
        place = (tmp_path / name).parent if "no/" in name else tmp_path / name
        assert message.format(place) in run("quantize", tmp_path / "x.npy", tmp_path / name, status=2)


def test_a_fifo_gets_the_whole_file(run, tmp_path, x):
    import os
    import threading

    got = []
    for name, options in (("q.npz", ()), ("q.safetensors", ()), ("y.npy", ("--values",))):
        path = tmp_path / name
        os.mkfifo(path)
        reader = threading.Thread(target=lambda path=path: got.append(path.read_bytes()), daemon=True)
        reader.start()
        run("quantize", tmp_path / "x.npy", path, *options)
        reader.join(10)
        assert path.is_fifo()
    (tmp_path / "got.npz").write_bytes(got[0])
    (tmp_path / "got.safetensors").write_bytes(got[1])
    (tmp_path / "got.npy").write_bytes(got[2])
    want = mx.quantize(x, "mxfp8_e4m3")
    assert mx.MXArray.load(tmp_path / "got.npz").equals(want)
    assert inputs.read(tmp_path / "got.safetensors", "x").equals(want)
    assert np.array_equal(np.load(tmp_path / "got.npy"), want.dequantize())

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.cli import summary


def test_floats(run, tmp_path):
    x = np.array([[1.0, 500.0, 0.0, np.nan], [3.0, -2.0, 1.0, 0.5]], np.float32)
    np.save(tmp_path / "x.npy", x)
    facts = run.json("inspect", tmp_path / "x.npy", "-f", "mxfp8_e4m3", "--block-size", 2)
    wanted = {"blocks": 4, "blocks with an element beyond max": 1, "elements beyond max": 1, "blocks of NaN": 1}
    assert {name: facts[name] for name in wanted} == wanted
    assert facts["SQNR in dB"] == pytest.approx(mx.analysis.measure(x, "mxfp8_e4m3", block_size=2).sqnr_db)
    assert facts["exponents"] == {"-1": 1, "0": 2, "1": 2, "8": 1}
    printed = run("inspect", tmp_path / "x.npy", "-f", "mxfp8_e4m3", "--axis", 0)
    assert "elements clamped" in printed
    assert "█" in printed


def test_quantized(run, tmp_path):
    mx.quantize(np.ones((4, 64), np.float32), "mxint8").save(tmp_path / "q.npz")
    assert run.json("inspect", tmp_path / "q.npz")["exponents"] == {"0": 8}
    assert "mxint8" in run("inspect", tmp_path / "q.npz")
    assert "is quantized already" in run("inspect", tmp_path / "q.npz", "-f", "mxint8", status=2)


def test_scales_that_are_floats(run, tmp_path, monkeypatch):
    x = np.repeat(np.float32([[1], [2.0**-6], [2.0**-16], [0]]), 16, axis=1)
    x[1, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    facts = run.json("inspect", tmp_path / "x.npy", "-f", "nvfp4")
    wanted = {
        "tensor scale": float(np.float32(1 / 2688)), "blocks": 4, "blocks of NaN": 1, "blocks of scale 0": 1,
        "blocks of a subnormal scale": 1, "blocks of the largest scale": 1,
    }  # fmt: skip
    assert {name: facts[name] for name in wanted} == wanted
    # An array that is read in pieces still gets the tensor scale of the whole array.
    monkeypatch.setattr(summary, "PIECE", 16)
    assert run.json("inspect", tmp_path / "x.npy", "-f", "nvfp4") == facts
    assert "blocks of scale code 0" not in run("inspect", tmp_path / "x.npy", "-f", "nvfp4", "--scale-rule", "rceil")
    mx.quantize(x, "nvfp4").save(tmp_path / "q.npz")
    quantized = run.json("inspect", tmp_path / "q.npz")
    del wanted["blocks"]
    assert {name: quantized[name] for name in wanted} == wanted
    assert (quantized["scale exponents"], quantized["exponents"]) == ("-8 to 8", {"-8": 1, "8": 1})
    mx.quantize(x, "e4m3:block=16,scale=float32").save(tmp_path / "wide.npz")
    quantized = run.json("inspect", tmp_path / "wide.npz")
    assert (quantized["blocks of NaN"], quantized["blocks of scale 0"]) == (1, 1)
    assert "tensor scale" not in quantized
    assert "must be one of ['nearest', 'rceil'" in run(
        "inspect", tmp_path / "x.npy", "-f", "nvfp4", "--scale-rule", "floor", status=2
    )


def test_empty(run, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 4), np.float32))
    for name in ("mxint8", "nvfp4"):
        assert run.json("inspect", tmp_path / "x.npy", "-f", name)["elements"] == 0


def test_options_without_effect_raise(run, tmp_path):
    # Regression: the command silently ignored options without effect, even `--scale-rule nonsense`.
    np.save(tmp_path / "x.npy", np.ones((4, 64), np.float32))
    mx.quantize(np.ones((4, 64), np.float32), "mxint8").save(tmp_path / "q.npz")
    of_quantizing = (("--axis", 0), ("--block-size", 4), ("--scale-rule", "rceil"))
    for option in of_quantizing:
        told = run("inspect", tmp_path / "x.npy", *option, status=2)
        assert f"Option {option[0]} must be left out: this option needs --format" in told
    for option in (*of_quantizing, ("--as", "bfloat16"), ("--format", "mxint8")):
        told = run("inspect", tmp_path / "q.npz", *option, status=2)
        assert f"Option {option[0]} must be left out: " in told
        assert "is quantized already" in told
    for file in ("x.npy", "q.npz"):
        told = run("inspect", tmp_path / file, "--tensor", "a", status=2)
        assert "Option --tensor must be left out for" in told


def test_the_weights_of_a_checkpoint_are_listed(run, tmp_path):
    from mxnum.interop import safetensors
    from mxnum.interop.checkpoints import to_tensors

    q = mx.quantize(np.linspace(-3, 3, 64).reshape(2, 32), "nvfp4")
    tensors = {**to_tensors("a.weight", q, "modelopt"), "norm.weight": np.ones(4, np.float32)}
    safetensors.save(tmp_path / "x.safetensors", tensors)
    for path in (tmp_path, tmp_path / "x.safetensors"):
        assert run.json("inspect", path)["weights"] == {"a.weight": "nvfp4 modelopt", "norm.weight": "plain"}
    assert "norm.weight" in run("inspect", tmp_path)
    assert "must name one of" in run("inspect", tmp_path, "-f", "nvfp4", status=2)

from __future__ import annotations

import numpy as np

import mxnum as mx


def test_floats(run, tmp_path):
    x = np.array([[1.0, 500.0, 0.0, np.nan], [3.0, -2.0, 1.0, 0.5]], np.float32)
    np.save(tmp_path / "x.npy", x)
    facts = run.json("inspect", tmp_path / "x.npy", "-f", "mxfp8_e4m3", "--block-size", 2)
    assert (
        facts["blocks"],
        facts["blocks with an element beyond max"],
        facts["elements beyond max"],
        facts["blocks of NaN"],
    ) == (
        4,
        1,
        1,
        1,
    )
    assert facts["exponents"] == {"-1": 1, "0": 2, "1": 2, "8": 1}
    printed = run("inspect", tmp_path / "x.npy", "-f", "mxfp8_e4m3", "--axis", 0)
    assert "elements clamped" in printed
    assert "█" in printed


def test_quantized(run, tmp_path):
    mx.quantize(np.ones((4, 64), np.float32), "mxint8").save(tmp_path / "q.npz")
    assert run.json("inspect", tmp_path / "q.npz")["exponents"] == {"0": 8}
    assert "mxint8" in run("inspect", tmp_path / "q.npz")
    assert "is quantized already" in run("inspect", tmp_path / "q.npz", "-f", "mxint8", status=2)


def test_empty(run, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 4), np.float32))
    assert run.json("inspect", tmp_path / "x.npy", "-f", "mxint8")["elements"] == 0

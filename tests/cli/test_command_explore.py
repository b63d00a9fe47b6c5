from __future__ import annotations

import csv

import numpy as np
import pytest

from mxnum.analysis import design_space, explore, synthetic

FEW = ("--format", "mxfp4_e2m1", "-f", "mxint4", "--rounding", "rne", "--block-size", 32, "--no-offset")
CHOICES = {"formats": ["mxfp4_e2m1", "mxint4"], "roundings": ["rne"], "block_sizes": [32], "asymmetric": [False]}


@pytest.fixture
def weights(tmp_path):
    x = synthetic.weights(64, 96)
    np.save(tmp_path / "x.npy", x)
    return x


def test_json_is_the_ranking(run, tmp_path, weights):
    want = explore(weights, **CHOICES)
    got = run.json("explore", tmp_path / "x.npy", *FEW)
    assert [c["normalized_rmse"] for c in got["candidates"]] == [c.normalized_rmse for c in want.ranked()]
    assert (got["complete"], got["total"], got["measured"]) == (True, 24, weights.size)
    front = run.json("explore", tmp_path / "x.npy", *FEW, "--frontier")["frontier"]
    assert [c["bits_per_element"] for c in front] == [c.bits_per_element for c in want.frontier()]


def test_table(run, tmp_path, weights):
    printed = run("explore", tmp_path / "x.npy", *FEW, "--top", 3)
    best, lines = explore(weights, **CHOICES).best(), printed.splitlines()
    assert lines[0].strip() == "24 candidates; all elements"
    assert [line.split()[0] for line in lines if line.strip().startswith("mx")] == [best.format] * 3
    assert f"{best.normalized_rmse:.3g}" in printed
    for top in (1, 2):
        front = run("explore", tmp_path / "x.npy", *FEW, "--block-size", 16, "--frontier", "--top", top)
        assert sum(line.strip().startswith("mx") for line in front.splitlines()) == top
    assert "3072 of 6144 elements" in run("explore", tmp_path / "x.npy", *FEW, "--sample", 2048)
    assert (
        len([s for s in run("explore", tmp_path / "x.npy", *FEW, "--top", 0).splitlines() if s.strip()[:2] == "mx"])
        == 24
    )


def test_files(run, tmp_path, weights):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    run("explore", tmp_path / "x.npy", *FEW, "--csv", tmp_path / "all.csv", "--plot", tmp_path / "all.png")
    with (tmp_path / "all.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 24
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.csv", "all.png", "x.npy"]
    for option, name in (("--csv", "all.csv"), ("--plot", "all.png"), ("--csv", "x.npy")):
        told = run("explore", tmp_path / "x.npy", *FEW, option, tmp_path / name, status=2)
        assert f"Option {option} must be a new file unless --force is given" in told


def test_interrupting_prints_what_was_measured(run, tmp_path, weights, monkeypatch):
    real, calls = design_space._measured, []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(design_space, "_measured", interrupted)
    printed = run("explore", tmp_path / "x.npy", *FEW, status=130)
    assert "2 candidates of 24, interrupted" in printed


def test_safetensors(run, tmp_path, weights):
    safetensors = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    import ml_dtypes

    tensors = {"w": weights, "v": weights.astype(ml_dtypes.bfloat16), "codes": np.ones(3, np.int8)}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    for name in ("w", "v"):
        got = run.json("explore", tmp_path / "x.safetensors", *FEW, "--tensor", name)
        assert got["candidates"][0]["normalized_rmse"] == explore(tensors[name], **CHOICES).best().normalized_rmse
    assert "must name one of" in run("explore", tmp_path / "x.safetensors", *FEW, status=2)
    assert "not int8" in run("explore", tmp_path / "x.safetensors", *FEW, "--tensor", "codes", status=2)
    assert "did you mean" in run("explore", tmp_path / "x.safetensors", "--tensor", "code", status=2)
    whole = (tmp_path / "x.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:100])
    assert "must be a whole safetensors file" in run("explore", tmp_path / "cut.safetensors", status=2)
    assert "No such file" in run("explore", tmp_path / "none.safetensors", status=2)


def test_blocks_that_have_no_tile(run, tmp_path, weights):
    told = run("explore", tmp_path / "x.npy", *FEW[:-3], "--block-size", 17, "--organisation", "tile", status=2)
    assert "because 17 elements cannot form a tile" in told


def test_an_offset_where_scales_are_floats(run, tmp_path):
    # Regression: the error message named the Python argument, not the option of the command.
    np.save(tmp_path / "x.npy", np.ones((4, 64), np.float32))
    told = run("explore", tmp_path / "x.npy", "-f", "nvfp4", "--offset", status=2)
    assert "Option --offset must be" in told
    assert "because nvfp4 has no offsets" in told

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("quantize x.npy y.npz --rounding sr", "Option --seed must be given with --rounding sr."),
        ("quantize x.npy y.npz --seed 1", "Option --seed must be left out unless --rounding sr."),
        ("quantize x.npy y.npz --nonfinite raise", "File 'x.npy' must be finite everywhere with --nonfinite raise; "),
        ("quantize x.npy y.npz --nonfinite no", "Option --nonfinite must be one of ['block', 'element', 'raise'], "),
        ("quantize x.npy y.npz -f e4m3", "Option --format must be "),
        ("quantize x.npy y.npz --block-size 0", "Option --block-size must be at least 1, not 0."),
        ("quantize x.npy y.dat", "Argument 'OUT' must be a file that ends in .npz or .safetensors, not 'y.dat'."),
        ("explore x.npy --organisation foo", "Option --organisation must be one of ['row', 'column', 'tile'], "),
        ("explore x.npy --format e4m4", "Option --format must be "),
        ("inspect x.npy --as float8", "Option --as must be one of ['bfloat16'], not 'float8'"),
        ("vectors quantize --block-size 5000", "Option --block-size must be between 1 and 4096, not 5000."),
        ("vectors encod", "Argument 'operation' must be one of "),
        ("explain 1 --scale 256", "Option --scale must be between 0 and 255, not 256."),
        ("reproduce --quick --full", "Option --quick must not be given together with --full."),
        ("formats e4m4", "Argument 'name' must be one of "),
    ],
)
def test_errors_name_options_as_users_type_them(run, call, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.array([[1, np.nan]], np.float32))
    printed = run(*call.split(), status=2)
    assert printed.startswith(f"Error: {told}"), printed
    assert printed.count("\n") == 1


def test_errors_about_the_name_of_a_tensor(run, tmp_path):
    gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor("w", np.zeros((1, 17), np.uint8), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.add_tensor("norm", np.ones(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    told = run("inspect", path, "--tensor", "v", status=2)
    assert told == "Error: Option --tensor must be one of ['w'], not 'v'.\n"
    # Regression: the message did not say that the tensor exists but has another type.
    assert "must hold 'norm' as MXFP4, NVFP4, Q8_0 or Q4_0, not as F32" in run(
        "inspect", path, "--tensor", "norm", status=2
    )


def test_errors_in_a_file_keep_the_names_of_the_file(run, tmp_path):
    (tmp_path / "mine.toml").write_text("seeds = 0\n[arms.plain]\n")
    assert "mine.toml': Argument 'seeds' must be between 1" in run("lab", "sweep", tmp_path / "mine.toml", status=2)


def test_options_that_were_typed(run):
    told = run("vectors", "encode", "--block-size", 32, status=2)
    assert told == "Error: Option --block-size must be left out for 'encode'; it is for quantize, scale, dot or mma.\n"

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.cli import inputs


def test_numpy_files(tmp_path):
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "two.npz", a=x, b=x[0])
    assert np.array_equal(inputs.read_array(tmp_path / "x.npy"), x)
    assert np.array_equal(inputs.read_array(tmp_path / "two.npz", "b"), x[0])
    with pytest.raises(ValueError, match=r"--tensor must name one of \['a', 'b'\]"):
        inputs.read_array(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="'tensor' must be one of"):
        inputs.read_array(tmp_path / "two.npz", "c")


def test_bfloat16_has_to_be_named(tmp_path):
    x = np.array([1, -2.5], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match="add --as bfloat16"):
        inputs.read_array(tmp_path / "x.npy")
    assert np.array_equal(inputs.read_array(tmp_path / "x.npy", as_dtype="bfloat16"), x)
    np.save(tmp_path / "y.npy", np.zeros(2))
    with pytest.raises(ValueError, match="2 bytes"):
        inputs.read_array(tmp_path / "y.npy", as_dtype="bfloat16")


def test_bfloat16_in_the_other_byte_order_and_float16(tmp_path):
    """Check that big-endian bfloat16 words are read, and that float16 is not read as bfloat16."""
    x = np.array([1, -2.5], ml_dtypes.bfloat16)
    np.save(tmp_path / "big.npy", x.view(np.uint16).astype(">u2"))
    assert np.array_equal(inputs.read_array(tmp_path / "big.npy", as_dtype="bfloat16"), x)
    np.save(tmp_path / "half.npy", np.ones(2, np.float16))
    with pytest.raises(ValueError, match=r"must have elements of 2 bytes \(not float16\) for --as bfloat16"):
        inputs.read_array(tmp_path / "half.npy", as_dtype="bfloat16")


def test_quantized_files(tmp_path):
    q = mx.quantize(np.ones(40, np.float32), "mxfp4_e2m1")
    q.save(tmp_path / "q.npz")
    assert inputs.read(tmp_path / "q.npz").equals(q)
    with pytest.raises(ValueError, match="already quantized"):
        inputs.read_array(tmp_path / "q.npz")
    # Regression: any npz file with a member called "description" was taken for an MX array.
    np.savez(tmp_path / "x.npz", description=np.array("of what is here"), w=np.ones(3))
    assert np.array_equal(inputs.read(tmp_path / "x.npz", "w"), np.ones(3))


def test_what_cannot_be_read_says_why(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1000.0))
    whole = (tmp_path / "x.npy").read_bytes()
    for name, content, message in [
        ("cut.npy", whole[:500], "cannot be read"),
        ("head.npy", whole[:50], "cannot be read"),
        ("empty.npy", b"", "cannot be read"),
        ("text.npy", b"1 2 3\n", "cannot be read"),
        ("text.npz", b"1 2 3\n", "not an .npz archive"),
        ("x.csv", b"1,2\n", "must end in .npy, .npz, .safetensors or .gguf"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            inputs.read_array(tmp_path / name)
    np.save(tmp_path / "int.npy", np.arange(3))
    with pytest.raises(ValueError, match="must hold float64, float32, bfloat16 or float16, not int64"):
        inputs.read_array(tmp_path / "int.npy")
    (tmp_path / "dir.npy").mkdir()
    with pytest.raises(ValueError, match=r"Folder .* must hold files that end in \.safetensors; it has none"):
        inputs.read_array(tmp_path / "dir.npy")
    with pytest.raises(FileNotFoundError):
        inputs.read_array(tmp_path / "missing.npy")
    with pytest.raises(FileNotFoundError):
        inputs.read_array(tmp_path / "missing.npz")
    with pytest.raises(FileNotFoundError):
        inputs.read_array(tmp_path / "missing")


def test_a_truncated_archive(tmp_path):
    mx.quantize(np.ones(4000, np.float32), "mxfp4_e2m1").save(tmp_path / "q.npz")
    whole = (tmp_path / "q.npz").read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cannot be read|must be one that MXArray.save wrote"):
            inputs.read(tmp_path / "cut.npz")


def test_safetensors(tmp_path):
    from mxnum.interop import gpt_oss, safetensors

    q = mx.quantize(np.linspace(-3, 3, 64), "mxfp4_e2m1")
    blocks, scales = gpt_oss.to_gpt_oss(q)
    path = tmp_path / "x.safetensors"
    x = np.arange(4, dtype=np.float32)
    safetensors.save(path, {"q": q, "x": x, "w.blocks": blocks, "w.scales": scales})
    assert inputs.read(path, "q").equals(q)
    assert inputs.read(path, "w").equals(q)
    assert np.array_equal(inputs.read_array(path, "x"), x)
    with pytest.raises(ValueError, match="Option --tensor must name one of"):
        inputs.read(path)
    with pytest.raises(ValueError, match="'tensor' must be one of"):
        inputs.read(path, "nope")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="must be a whole safetensors file"):
        inputs.read(path, "q")


def test_checkpoints_of_other_programs_are_read(tmp_path):
    from mxnum.interop import safetensors
    from mxnum.interop.checkpoints import to_tensors

    q, other = (mx.quantize(np.linspace(-3, 3, 64).reshape(2, 32), fmt) for fmt in ("nvfp4", "e4m3:scale=float32"))
    tensors = {**to_tensors("a.weight", q, "modelopt"), **to_tensors("b.weight", other, "compressed_tensors")}
    safetensors.save(tmp_path / "x.safetensors", tensors)
    for path in (tmp_path, tmp_path / "x.safetensors"):
        assert inputs.read(path, "a.weight").equals(q)
        assert np.array_equal(inputs.read(path, "b.weight").dequantize(), other.dequantize())
        with pytest.raises(ValueError, match=r"Option --tensor must name one of \['a.weight', 'b.weight'\]"):
            inputs.read(path)
    assert np.array_equal(inputs.read_array(tmp_path / "x.safetensors", "b.weight_scale"), other.scales)


def test_gguf(tmp_path):
    gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
    from mxnum.interop.gguf import from_gguf_blocks

    kind = gguf.GGMLQuantizationType.Q4_0
    blocks = gguf.quants.quantize(np.linspace(-3, 3, 64, dtype=np.float32).reshape(2, 32), kind)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("w", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert inputs.read(tmp_path / "m.gguf").equals(from_gguf_blocks(blocks, kind="Q4_0"))


def test_a_numpy_file_that_is_cut(tmp_path):
    whole = tmp_path / "x.npy"
    np.save(whole, np.ones(1000))
    (tmp_path / "cut.npy").write_bytes(whole.read_bytes()[:2000])
    (tmp_path / "empty.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cut\.npy' cannot be read: it is truncated\.$"):
        inputs.read(tmp_path / "cut.npy")
    with pytest.raises(ValueError, match=r"empty\.npy' cannot be read: it is empty\.$"):
        inputs.read(tmp_path / "empty.npy")


def test_errors_do_not_repeat_numpys_advice(tmp_path):
    # Regression: for pickles and some damaged archives, the errors repeated numpy's advice to
    # change arguments of numpy's functions, which the user does not call.
    import pickle
    import zipfile

    objects = np.array([{"a": 1}, None], object)
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "objects.npz", x=objects)
    np.savez(tmp_path / "description.npz", description=objects)
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps([1, 2]))
    (tmp_path / "text.npy").write_text("1 2 3")
    np.savez(tmp_path / "x.npz", x=np.ones(3))
    (tmp_path / "archive.npy").write_bytes((tmp_path / "x.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "raw.npz", "w") as archive:
        archive.writestr("x", b"no array")
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as archive:
        archive.writestr("x.npy", b"")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,), }"
    huge = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "huge.npy").write_bytes(huge)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("x.npy", huge)
    for path in sorted(tmp_path.iterdir()):
        if path.name == "x.npz":
            continue
        with pytest.raises(ValueError, match=r"File '.*' (cannot be read|must )") as raised:
            inputs.read_array(path)
        told = str(raised.value)
        assert str(path) in told
        assert "pickle" not in told.replace("pickle.npy", "")
        assert ". " not in told, told
        assert told.endswith(".")
        with pytest.raises(ValueError, match=r"File '.*' must be one that MXArray.save wrote: "):
            mx.MXArray.load(path)


@pytest.mark.parametrize("suffix", ["npy", "npz", "mx.npz"])
def test_changed_bytes_give_one_sentence_or_arrays(tmp_path, suffix):
    rng, path = np.random.default_rng(19), tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, np.ones((2, 5), np.float32))
    elif suffix == "npz":
        np.savez(path, x=np.ones(5, np.float32))
    else:
        mx.quantize(np.ones((2, 40)), "mxfp4_e2m1").save(path)
    whole = path.read_bytes()
    for _ in range(600):
        content = bytearray(whole)
        for place in rng.integers(0, len(whole) if suffix != "npy" else 128, rng.integers(1, 4)):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        told = None
        try:
            inputs.read(path)
        except ValueError as problem:
            told = str(problem)
        assert told is None or told.startswith((f"File {str(path)!r} ", "Option --tensor must")), told

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import safetensors
from tests import samples


def example(fmt, shape=(4, 70), **options):
    return mx.quantize(samples.generator("safetensors", fmt).standard_normal(shape).astype(np.float32), fmt, **options)


@pytest.mark.parametrize("fmt", mx.formats.names())
def test_there_and_back(tmp_path, fmt):
    q = example(fmt)
    plain = {"bias": np.arange(5, dtype=np.float32), "half": np.ones((2, 2), ml_dtypes.bfloat16), "n": np.array(3)}
    safetensors.save(tmp_path / "x.safetensors", {"w": q, "t": q.T, **plain}, {"made": "here"})
    back = safetensors.load(tmp_path / "x.safetensors")
    assert back["w"].equals(q)
    assert back["t"].equals(mx.MXArray.from_parts(q.codes.T.copy(), q.scales.T.copy(), q.format, blocks=q.T.blocks))
    for name, array in plain.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)
    assert safetensors.File(tmp_path / "x.safetensors").metadata["made"] == "here"


def test_user_made_formats_and_offsets(tmp_path):
    element = mx.ElementFormat("e3m1", exponent_bits=3, mantissa_bits=1, bias=3)
    q = mx.quantize(np.linspace(5, 6, 45), mx.MXFormat(element, block=9), offset="float16")
    safetensors.save(tmp_path / "x.safetensors", {"w": q})
    assert safetensors.load(tmp_path / "x.safetensors")["w"].equals(q)


def test_the_real_library_reads_it(tmp_path):
    library = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from safetensors.torch import load_file

    q = example("mxfp8_e4m3")
    safetensors.save(tmp_path / "x.safetensors", {"w": q, "f": example("mxfp4_e2m1"), "b": np.arange(6.0)})
    tensors = load_file(tmp_path / "x.safetensors")
    assert tensors["w.elements"].dtype == torch.float8_e4m3fn
    assert tensors["w.scales"].dtype == torch.float8_e8m0fnu
    assert np.array_equal(tensors["w.elements"].view(torch.uint8).numpy(), q.codes)
    assert np.array_equal(tensors["w.scales"].view(torch.uint8).numpy(), q.scales)
    assert np.array_equal(tensors["b"].numpy(), np.arange(6.0))
    library.save_file({"x": np.arange(7, dtype=np.int16)}, tmp_path / "y.safetensors", {"k": "v"})
    file = safetensors.File(tmp_path / "y.safetensors")
    assert np.array_equal(file.tensor("x"), np.arange(7, dtype=np.int16))
    assert file.metadata == {"k": "v"}


def test_files_of_torch(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    save_file = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed").save_file
    from mxnum.interop.torch import as_array, to_torch
    from mxnum.interop.views import from_views

    q = example("mxfp8_e5m2", (4, 64))
    tensors = to_torch(q)
    half = torch.randn(5, dtype=torch.bfloat16)
    save_file({"e": tensors.elements, "s": tensors.scales, "h": half}, tmp_path / "x.safetensors")
    file = safetensors.File(tmp_path / "x.safetensors")
    assert from_views(file.tensor("e"), file.tensor("s")).equals(q)
    assert np.array_equal(file.tensor("h"), as_array(half))
    assert (file.dtype("e"), file.dtype("s"), file.dtype("h")) == ("F8_E5M2", "F8_E8M0", "BF16")


def test_damaged_files_say_so(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save(path, {"w": example("mxfp4_e2m1"), "b": np.zeros(100)})
    whole = path.read_bytes()
    header = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
    cases = {
        b"": "header is cut off",
        whole[:20]: "header is cut off",
        whole[:-1]: "ends before the data of 'b'",
        (5).to_bytes(8, "little") + b"hello": "header is not JSON",
        (2).to_bytes(8, "little") + b"[]": "not a table",
        (12).to_bytes(8, "little") + b'{"x":{"a":1}': "not JSON",
        (13).to_bytes(8, "little") + b'{"x":{"a":1}}': "the entry of 'x' makes no sense",
    }
    for content, message in cases.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"must be a whole safetensors file: .*{message}"):
            safetensors.load(path)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ValueError, match="shape of 'x' does not fit"):
        safetensors.load(path)


def test_mistakes(tmp_path):
    with pytest.raises(TypeError, match=r"must hold float64.*not complex128 \('c'\)"):
        safetensors.save(tmp_path / "x", {"c": np.zeros(2, complex)})
    with pytest.raises(ValueError, match="at least one axis"):
        safetensors.save(tmp_path / "x", {"c": mx.quantize(np.float32(1.0), "mxint8")})
    assert list(tmp_path.iterdir()) == []
    safetensors.save(tmp_path / "x", {"c": np.zeros(2)})
    with pytest.raises(ValueError, match=r"'name' must be one of \['c'\]"):
        safetensors.File(tmp_path / "x").tensor("d")

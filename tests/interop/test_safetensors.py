from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import safetensors
from tests import float_scale_cases, samples


def example(fmt, shape=(4, 70), **options):
    return mx.quantize(samples.generator("safetensors", fmt).standard_normal(shape).astype(np.float32), fmt, **options)


@pytest.mark.parametrize("fmt", mx.formats.names("e8m0"))
def test_saved_arrays_are_loaded_back(tmp_path, fmt):
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


@pytest.mark.parametrize("fmt", float_scale_cases.FORMATS)
def test_scales_that_are_floats(tmp_path, fmt):
    x = samples.generator("safetensors", fmt).standard_normal((4, 70)).astype(np.float32)
    by_rows = {"tensor_scale": "row"} if mx.formats.get(fmt).tensor_scale else {}
    q, rows = (float_scale_cases.made_by_the_reference(x, fmt, **options) for options in ({}, by_rows))
    safetensors.save(tmp_path / "x.safetensors", {"w": q, "rows": rows, "b": np.zeros(2, np.float32)})
    back = safetensors.load(tmp_path / "x.safetensors")
    assert set(back) == {"w", "rows", "b"}
    assert back["w"].equals(q)
    assert back["rows"].equals(rows)
    kind = {"e4m3": "F8_E4M3", "ue5m3": "U8", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}
    file = safetensors.File(tmp_path / "x.safetensors")
    assert file.dtype("w.scales") == kind[q.format.scale.name]
    assert ("w.tensor_scale" in file.names()) == (q.tensor_scale is not None)
    assert file.plain_names() == ["b"]


def test_user_made_formats_and_offsets(tmp_path):
    element = mx.ElementFormat("e3m1", exponent_bits=3, mantissa_bits=1, bias=3)
    q = mx.quantize(np.linspace(5, 6, 45), mx.MXFormat(element, block=9), offset="float16")
    safetensors.save(tmp_path / "x.safetensors", {"w": q})
    assert safetensors.load(tmp_path / "x.safetensors")["w"].equals(q)


@pytest.mark.parametrize("element", ["e4m3:bias=8", "e2m1:bias=2", "canonical"])
def test_elements_with_unusual_values_are_stored_as_bytes(tmp_path, element):
    # Regression: an E4M3 element with an unusual bias was stored as F8_E4M3, and canonical_nan was
    # read as False.
    own = mx.ElementFormat("e5m2", 5, 2, 15, "ieee", canonical_nan=True)
    q = mx.quantize(np.ones((2, 64)), mx.MXFormat(own) if element == "canonical" else element)
    safetensors.save(tmp_path / "x", {"w": q})
    assert safetensors.File(tmp_path / "x").dtype("w.elements") == "U8"
    assert safetensors.load(tmp_path / "x")["w"].equals(q)


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
    from mxnum.interop.torch import to_torch
    from mxnum.interop.views import from_views
    from mxnum.memory.tensors import host_array

    q = example("mxfp8_e5m2", (4, 64))
    tensors = to_torch(q)
    half = torch.randn(5, dtype=torch.bfloat16)
    save_file({"e": tensors.elements, "s": tensors.scales, "h": half}, tmp_path / "x.safetensors")
    file = safetensors.File(tmp_path / "x.safetensors")
    assert from_views(file.tensor("e"), file.tensor("s")).equals(q)
    assert np.array_equal(file.tensor("h"), host_array("half", half))
    assert (file.dtype("e"), file.dtype("s"), file.dtype("h")) == ("F8_E5M2", "F8_E8M0", "BF16")


def test_damaged_files_say_so(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save(path, {"w": example("mxfp4_e2m1"), "b": np.zeros(100)})
    whole = path.read_bytes()
    header = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
    cases = {
        b"": "header is cut off",
        whole[:20]: "header is cut off, or it is another kind of file",
        whole[:-1]: "ends before the end of the data of 'b'",
        (5).to_bytes(8, "little") + b"hello": "header is not JSON",
        (2).to_bytes(8, "little") + b"[]": "not a JSON object",
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


def file_of(header, data=b""):
    """Return the bytes of a file with the given header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


F32 = {"x": entry("F32", [2], 0, 8)}
#: Damaged files, each with the error that it must raise. Other tests cover truncated files.
CRAFTED = [
    (file_of(b"[" * 100_000), "its header is nested too deeply"),
    # Python 3.14 accepts nesting this deep, and then finds that the text is not JSON.
    (file_of(b'{"x":' * 50_000), "its header is (nested too deeply|not JSON)"),
    (file_of(json.dumps(F32).encode("utf-16"), bytes(8)), "its header is not JSON"),
    (file_of(b'{"x":' + json.dumps(F32["x"]).encode() + b',"x":' + json.dumps(F32["x"]).encode() + b"}", bytes(8)),
     "not JSON, or repeats a name"),
    (file_of({"__metadata__": 3}), "its metadata are not strings"),
    (file_of({"__metadata__": {"k": 3}}), "its metadata are not strings"),
    (file_of({"__metadata__": ["k"]}), "its metadata are not strings"),
    (file_of({"x": entry("F32", [2.0], 0, 8)}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": entry("F32", [True, 2], 0, 8)}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": entry("F32", [2], False, 8)}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": entry("F32", "2", 0, 8)}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": entry(["F32"], [2], 0, 8)}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": {**F32["x"], "data_offsets": [0, 4, 8]}}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": entry("U8", [1 << 32, 1 << 32], 0, 0)}), "shape of 'x' does not fit"),
    (file_of({"x": entry("U8", [0, 1 << 70], 0, 0)}), "numpy cannot make an array with the shape of 'x'"),
    (file_of({"x": entry("U8", [1] * 100, 0, 1)}, bytes(1)), "numpy cannot make an array with the shape of 'x'"),
    (file_of({"x": entry("F4", [4], 0, 3)}, bytes(3)), "shape of 'x' does not fit"),
    (file_of({**F32, "y": entry("U8", [8], 0, 8)}, bytes(8)), "data of 'y' begin at 0, not at 8, where"),
    (file_of({**F32, "y": entry("U8", [8], 4, 12)}, bytes(12)), "data of 'y' begin at 4"),
    (file_of({"x": entry("U8", [8], 4, 12)}, bytes(12)), "data of 'x' begin at 4, not at 0, where"),
    (file_of(F32, bytes(11)), "3 bytes at the end of the file belong to no tensor"),
    # The safetensors library raises an error for these files, so mxnum must raise an error, too.
    *((file_of({"__metadata__": notes, **F32}, bytes(8)), "its metadata are not strings") for notes in ([], 0, "")),
    (file_of({"x": entry("F7", [8], 0, 8)}, bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"x": {**F32["x"], "y": float("nan")}}, bytes(8)), "its header is not JSON"),
    (file_of(json.dumps(F32).replace("[0,", "[-0,").encode(), bytes(8)), "entry of 'x' makes no sense"),
    (file_of({"\ud800": F32["x"]}, bytes(8)), "its header is not JSON"),
    (file_of({"__metadata__": {"k": "\udc00"}, **F32}, bytes(8)), "its header is not JSON"),
    (file_of({"w": entry("U8", [0], 0, 0), "__metadata__": {"mxnum.w": "{}"}}), "'w' is the name of both a tensor"),
]  # fmt: skip


def test_types_that_numpy_lacks_are_bytes(tmp_path):
    for kind, bits in safetensors.PACKED.items():
        (tmp_path / "x").write_bytes(file_of({"x": entry(kind, [8], 0, bits)}, bytes(range(bits))))
        assert safetensors.File(tmp_path / "x").dtype("x") == kind
        assert safetensors.load(tmp_path / "x")["x"].tolist() == list(range(bits))


@pytest.mark.parametrize(("content", "message"), CRAFTED, ids=[message for _, message in CRAFTED])
def test_crafted_files_say_so(tmp_path, content, message):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        safetensors.load(path)
    assert str(raised.value).startswith(f"File {str(path)!r} must be a whole safetensors file: ")


def test_no_header_gives_another_error(tmp_path):
    """Check that damaged headers (changed bytes, wrong types) raise only mxnum's errors."""
    path, rng = tmp_path / "x.safetensors", np.random.default_rng(19)
    safetensors.save(path, {"w": example("mxfp4_e2m1"), "v": example("mxfp8_e4m3"), "b": np.zeros(3)}, {"k": "v"})
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header, read = json.loads(whole[8:end]), 0
    odd = [None, True, -1, 1 << 64, 2.5, "", "F32", [], [0], {}, "[" * 5000, [[]], "\ud800", float("nan"), 1e400]

    def replaced(value):
        """Return a copy in which one value is replaced by a value of another type."""
        if rng.random() < 0.3 or not value or not isinstance(value, dict | list):
            return odd[rng.integers(len(odd))]
        key = list(value)[rng.integers(len(value))] if isinstance(value, dict) else int(rng.integers(len(value)))
        if isinstance(value, dict):
            return {**value, key: replaced(value[key])}
        return [*value[:key], replaced(value[key]), *value[key + 1 :]]

    def noted():
        """Return a header whose description of an MX array is damaged."""
        notes = header["__metadata__"]
        note = replaced(json.loads(notes["mxnum.w"]))
        return {**header, "__metadata__": {**notes, "mxnum.w": json.dumps(note)}}

    for round_ in range(1500):
        if round_ % 3 == 0:
            content = bytearray(whole)
            for place in rng.integers(0, end, rng.integers(1, 4)):
                content[place] = rng.integers(256)
        else:
            content = file_of(replaced(header) if round_ % 3 == 1 else noted(), whole[end:])
        path.write_bytes(content)
        told = None
        try:
            safetensors.load(path)
            read += 1
        except ValueError as problem:
            told = str(problem)
        assert told is None or told.startswith(f"File {str(path)!r} must be a whole safetensors file: "), told
    assert read < 750


def test_big_endian_arrays_are_stored_little_endian(tmp_path):
    # Regression: the bytes of big-endian arrays were stored without swapping.
    official = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    arrays = {kind: np.array([[1, 2, 3], [4, 5, 6]]).astype(kind) for kind in (">f4", ">i8", "<f8", ">u2", ">f2", "?")}
    strided = {
        "t": np.arange(12.0).reshape(3, 4).T[::2],
        "empty": np.zeros((0, 3), ">f4"),
        "scalar": np.array(7, ">i4"),
    }
    safetensors.save(tmp_path / "x", {**arrays, **strided})
    for back in (safetensors.load(tmp_path / "x"), official.load_file(tmp_path / "x")):
        for name, array in {**arrays, **strided}.items():
            assert np.array_equal(back[name], array)
            assert back[name].shape == array.shape
            assert back[name].dtype == array.dtype.newbyteorder("=")


def test_tensors_of_torch_are_stored(tmp_path):
    # Regression: `save` failed with numpy's error message for a bfloat16 tensor of torch.
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    x = torch.arange(6.0).reshape(2, 3)
    tensors = {"h": x.to(torch.bfloat16).T, "e": x.to(torch.float8_e4m3fn), "q": mx.quantize(x, "mxfp4_e2m1")}
    safetensors.save(tmp_path / "x", tensors)
    back = safetensors.load(tmp_path / "x")
    assert np.array_equal(back["h"].astype(np.float32), x.T.numpy())
    assert np.array_equal(back["e"].astype(np.float32), x.numpy())
    assert back["q"].equals(tensors["q"])


def test_tensors_of_torch_are_loaded(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    model = torch.nn.Linear(4, 3).bfloat16()
    others = {
        "none": torch.zeros(0, 3), "one": torch.tensor(True), "byte": torch.arange(3, dtype=torch.uint8),
        "e5m2": torch.ones(2, 2).to(torch.float8_e5m2), "long": torch.tensor([[-1, 1 << 40]]),
    }  # fmt: skip
    q = mx.quantize(np.ones((2, 32)), "mxint8")
    safetensors.save(tmp_path / "x", {**model.state_dict(), **others, "q": q})
    back = safetensors.load(tmp_path / "x", arrays="torch")
    assert back.pop("q").equals(q)
    for name, tensor in {**model.state_dict(), **others}.items():
        assert (back[name].dtype, back[name].shape) == (tensor.dtype, tensor.shape)
        assert back[name].tolist() == tensor.tolist()
    torch.nn.Linear(4, 3).load_state_dict({name: back[name] for name in ("weight", "bias")})
    with pytest.raises(ValueError, match="'arrays' must be one of"):
        safetensors.load(tmp_path / "x", arrays="jax")


def test_tensors_that_would_be_lost_raise(tmp_path):
    # If these calls did not raise, each would write a file that lacks a tensor or cannot be read.
    q, x = example("mxfp4_e2m1"), np.zeros(3)
    wrong = [
        ({"w": q, "w.scales": x}, None, "not use the name 'w.scales', which belongs to a part of an MX array"),
        ({"w.elements": x, "w": q}, None, "not use the name 'w.elements', which belongs to a part"),
        ({"w": q, "w.offsets": x}, None, "not use the name 'w.offsets', which belongs to a part"),
        ({"w.tensor_scale": x, "w": q}, None, "not use the name 'w.tensor_scale', which belongs to a part"),
        ({"__metadata__": x}, None, "not use the name '__metadata__', which belongs to the file's metadata"),
        ({"x": x}, {"mxnum.w": "{}"}, "'metadata' must not have the key 'mxnum.w', which describes an MX array"),
        ({"w": q}, {"mxnum.w": "{}"}, "'metadata' must not have the key 'mxnum.w'"),
        ({"x": x}, {"k": "\ud800"}, "'metadata' must be a mapping whose names and texts are valid Unicode"),
        ({"\ud800": x}, None, "'tensors' must be a mapping whose names and texts are valid Unicode"),
    ]
    for tensors, metadata, message in wrong:
        with pytest.raises(ValueError, match=message):
            safetensors.save(tmp_path / "x", tensors, metadata)
    for tensors, metadata in (({3: x}, None), ({"x": x}, {"k": 3}), ({"x": x}, {3: "k"}), ({"x": x}, {"k": None})):
        with pytest.raises(TypeError, match="a mapping whose names and texts are strings, not"):
            safetensors.save(tmp_path / "x", tensors, metadata)
    for tensors, metadata in (([x], None), ({"x": x}, "k")):
        with pytest.raises(TypeError, match="must be a mapping"):
            safetensors.save(tmp_path / "x", tensors, metadata)
    assert list(tmp_path.iterdir()) == []
    safetensors.save(tmp_path / "x", {"w": q}, {"k": "v"})
    file = safetensors.File(tmp_path / "x")
    # `save` accepts `metadata` with the description of an MX array, if this array is saved, too.
    safetensors.save(tmp_path / "x", safetensors.load(tmp_path / "x"), file.metadata)
    assert safetensors.File(tmp_path / "x").metadata == file.metadata


def test_parts_of_other_types_are_not_taken_for_codes(tmp_path):
    safetensors.save(tmp_path / "x", {"w": mx.quantize(np.ones((4, 64)), "mxfp8_e4m3")})
    file = safetensors.File(tmp_path / "x")
    parts = {name: file.tensor(name) for name in file.names()}
    other = {"w.elements": parts["w.elements"].view(np.uint8), "w.scales": parts["w.scales"].view(np.uint16)}
    safetensors.save(tmp_path / "y", other)
    whole = (tmp_path / "y").read_bytes()
    header = {**json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")]), "__metadata__": file.metadata}
    (tmp_path / "y").write_bytes(file_of(header, whole[8 + int.from_bytes(whole[:8], "little") :]))
    with pytest.raises(ValueError, match=r"'w.scales' must be stored in bytes, not 'U16'"):
        safetensors.load(tmp_path / "y")


def test_mistakes(tmp_path):
    with pytest.raises(TypeError, match=r"must hold float64.*not complex128 \('c'\)"):
        safetensors.save(tmp_path / "x", {"c": np.zeros(2, complex)})
    with pytest.raises(ValueError, match="at least one axis"):
        safetensors.save(tmp_path / "x", {"c": mx.quantize(np.float32(1.0), "mxint8")})
    assert list(tmp_path.iterdir()) == []
    safetensors.save(tmp_path / "x", {"c": np.zeros(2)})
    with pytest.raises(ValueError, match=r"'name' must be one of \['c'\]"):
        safetensors.File(tmp_path / "x").tensor("d")

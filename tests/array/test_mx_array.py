"""Tests of MXArray: parts, packing, views, files and errors."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.array.mx_array import held_parts
from tests import samples


def example(fmt="mxfp8_e4m3", shape=(4, 70), dtype=np.float32, **options):
    """Quantize normally distributed numbers, and return the MX array."""
    x = samples.generator("array", fmt, shape).standard_normal(shape).astype(dtype)
    return mx.quantize(x, fmt, **options)


@pytest.mark.parametrize("fmt", mx.formats.names("e8m0"))
@pytest.mark.parametrize("shape", [(4, 70), (3, 5, 33), (1,), (2, 0), (0, 3)])
def test_packing_is_a_little_endian_bit_stream(fmt, shape):
    q = example(fmt, shape)
    w = q.format.element.bits
    packed = q.pack()
    assert packed.shape == (*shape[:-1], -(-shape[-1] * w // 8))
    for index in np.ndindex(shape[:-1]):
        stream = sum(int(c) << (w * i) for i, c in enumerate(q.codes[index]))
        assert packed[index].tobytes() == stream.to_bytes(packed.shape[-1], "little")
    again = mx.MXArray.from_packed(packed, q.scales, fmt, length=shape[-1])
    assert again.equals(q)
    assert q.packed_nbytes == packed.nbytes + q.scales.nbytes
    assert q.nbytes == q.codes.nbytes + q.scales.nbytes


def test_sizes():
    q = example("mxfp4_e2m1", (8, 64))
    assert (q.nbytes, q.packed_nbytes) == (512 + 16, 256 + 16)
    assert q.packed_nbytes * 8 / q.size == q.format.bits_per_element == 4.25
    q = example("mxint4", (8, 64), offset="float16")
    assert q.packed_nbytes == 256 + 16 + 32
    assert (q.shape, q.ndim, q.size, len(q)) == ((8, 64), 2, 512, 8)


def test_from_parts_wraps_without_copying():
    q = example()
    again = mx.MXArray.from_parts(q.codes, q.scales, "mxfp8_e4m3", axis=-1)
    assert again.equals(q)
    assert again.codes is q.codes
    assert again.scales is q.scales


def test_equality_looks_at_everything():
    q = example("mxint4", offset="float16")
    same = mx.MXArray.from_parts(q.codes.copy(), q.scales.copy(), "mxint4", offsets=q.offsets.copy())
    assert q.equals(same)
    same.offsets[0, 0] = -same.offsets[0, 0] + 1
    assert not q.equals(same)
    for part in ("codes", "scales"):
        other = mx.MXArray.from_parts(q.codes.copy(), q.scales.copy(), "mxint4", offsets=q.offsets.copy())
        getattr(other, part)[0, 0] ^= 1
        assert not q.equals(other)
    assert not q.equals(mx.MXArray.from_parts(q.codes, q.scales, "mxint4"))
    assert not q.equals(mx.MXArray.from_parts(q.codes, q.scales, "mxfp4_e2m1", offsets=q.offsets))
    assert not q.equals(q.codes)
    square = example(shape=(32, 32), block_shape=(32, 32))
    tiles = mx.MXArray.from_parts(square.codes, square.scales, "mxfp8_e4m3", blocks=(33, 33))
    assert not square.equals(tiles)


def test_transposes_are_views():
    x = samples.generator("T").standard_normal((4, 70)).astype(np.float32)
    q = mx.quantize(x, "mxfp8_e4m3")
    assert np.shares_memory(q.T.codes, q.codes)
    assert q.T.blocks == (32, 1)
    assert q.T.equals(mx.quantize(x.T, "mxfp8_e4m3", axis=0))
    assert np.array_equal(q.T.dequantize(), q.dequantize().T)
    cube = example(shape=(3, 4, 40), offset="float16")
    assert np.array_equal(cube.transpose(2, 0, -2).dequantize(), cube.dequantize().transpose(2, 0, 1))


@pytest.mark.parametrize(
    "key",
    [
        0, -1, slice(1, 3), slice(None, None, -1), (0, 1), (slice(None), 2), (..., slice(32, None)),
        (1, ..., slice(0, 64)), (slice(None), slice(None), slice(32, 64)), np.int64(1), (..., slice(64, 70)), (),
        (slice(2, 2),), (..., slice(0, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("offset", [None, "float16"])
def test_slices_are_views_of_whole_blocks(key, offset):
    q = example(shape=(3, 4, 70), offset=offset)
    part = q[key]
    assert np.array_equal(part.dequantize(), q.dequantize()[key])
    assert part.codes.size == 0 or np.shares_memory(part.codes, q.codes)
    parts = part.codes, part.scales, q.format
    assert part.equals(mx.MXArray.from_parts(*parts, blocks=part.blocks, offsets=part.offsets))


@pytest.mark.parametrize("key", [(0, 0, 5), (..., slice(1, 33)), (..., slice(0, 33)), (..., slice(None, None, 2))])
def test_slices_that_cut_blocks_are_refused(key):
    with pytest.raises(ValueError, match="must select whole blocks of 32 on axis 2"):
        example(shape=(3, 4, 70))[key]


@pytest.mark.parametrize("key", [None, [0, 1], 1.5, True, np.array([0])])
def test_other_keys_are_refused(key):
    with pytest.raises(TypeError, match="'key' must be made of integers, slices"):
        example()[key]


def test_too_many_indices():
    with pytest.raises(ValueError, match="at most 2 indices"):
        example()[0, 0, 0]


@pytest.mark.parametrize(
    "options",
    [{}, {"offset": "float16"}, {"block_shape": (2, 16)}, {"axis": 0}],
)
@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxfp6_e3m2", "mxfp4_e2m1"])
def test_files_keep_everything(tmp_path, fmt, options):
    q = example(fmt, **options)
    q.save(tmp_path / "q.npz")
    again = mx.MXArray.load(tmp_path / "q.npz")
    assert again.equals(q)
    assert [p.name for p in tmp_path.iterdir()] == ["q.npz"]


def test_files_of_scalars_empty_arrays_and_user_formats(tmp_path):
    for q in (
        mx.quantize(np.float32(1.3), "mxfp6_e2m3"),
        mx.quantize(np.float32(1.3), "mxint4", offset="float16"),
        example(shape=(0, 5)),
        example(mx.MXFormat(mx.ElementFormat("e4m1", 4, 1, 7), block=8)),
    ):
        q.save(tmp_path / "q.npz")
        assert mx.MXArray.load(tmp_path / "q.npz").equals(q)
    with pytest.raises(ValueError, match=r"'path' must be the path of an .npz file; mxnum.interop.safetensors.save"):
        q.save(tmp_path / "q.safetensors")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "q.npz"
    q = example()
    q.save(path)
    before = path.read_bytes()

    def broken(file, **parts):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        example("mxint8").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["q.npz"]


def test_files_that_are_not_ours(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    q = example()
    q.save(tmp_path / "cut.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:200])
    with np.load(tmp_path / "other.npz") as file:
        assert file.files == ["a"]
    description = {"element": {"name": "e4m3"}}
    np.savez(tmp_path / "partial.npz", description=np.array(json.dumps(description)))
    for name in ("other", "text", "cut", "partial"):
        with pytest.raises(ValueError, match=r"must be one that MXArray\.save wrote"):
            mx.MXArray.load(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError):
        mx.MXArray.load(Path(tmp_path / "missing.npz"))


def test_files_of_something_else_are_told_in_words(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"x.npy' must be one .* 'path' must be an archive, not 'one array'"):
        mx.MXArray.load(tmp_path / "x.npy")
    mx.quantize(np.ones((4, 96), np.float32), "mxfp4").save(tmp_path / "q.npz")
    with np.load(tmp_path / "q.npz") as file:
        parts = dict(file)
    np.savez(tmp_path / "few.npz", **(parts | {"scales": parts["scales"][:2]}))
    with pytest.raises(ValueError, match=r"few.npz' must be one .* 'scales' must be of shape \(4, 3\), not \(2, 3\)"):
        mx.MXArray.load(tmp_path / "few.npz")
    # Regression: a file of an unknown version was read as a file of version 1.
    later = json.loads(str(parts["description"])) | {"mxnum": 2}
    np.savez(tmp_path / "later.npz", **(parts | {"description": np.array(json.dumps(later))}))
    with pytest.raises(ValueError, match=r"later.npz' must be one .* 'mxnum' must be version 1 of .*, not 2\."):
        mx.MXArray.load(tmp_path / "later.npz")


def test_arrays_are_not_compared_with_signs():
    # Regression: == compared identities, so two arrays with equal content were unequal.
    x = np.ones(32, np.float32)
    a, b = mx.quantize(x, "mxfp4"), mx.quantize(x, "mxfp4")
    for compare in (lambda: a == b, lambda: a != b, lambda: a == x, lambda: x == a):
        with pytest.raises(TypeError, match=r"use a.equals\(b\)"):
            compare()
    assert len({a, b}) == 2


def test_elements_are_a_view_of_an_ml_dtypes_type():
    types = {"mxfp8_e4m3": ml_dtypes.float8_e4m3fn, "mxfp4_e2m1": ml_dtypes.float4_e2m1fn, "mxint8": np.int8}
    for fmt, dtype in types.items():
        q = example(fmt)
        assert q.elements.dtype == dtype
        assert np.shares_memory(q.elements, q.codes)
    q = example("mxfp6_e2m3", shape=(32,))
    scale = 2.0 ** (int(q.scales[0]) - 127)
    assert np.array_equal(q.elements.astype(np.float32) * scale, q.dequantize())
    for fmt in ("mxint4", "mxfp4_e3m0"):
        with pytest.raises(ValueError, match="Argument 'format' must be"):
            _ = example(fmt).elements


def test_arithmetic_on_codes_is_refused():
    q = example()
    for operation in (lambda: q + 1, lambda: np.ones(3) * q, lambda: np.exp(q)):
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(ValueError, match="'copy' must be True or None"):
        np.array(q, copy=False)


def test_repr_and_pickle():
    q = example("mxint4", (3, 64), offset="float16")
    assert repr(q) == "<MXArray mxint4 (3, 64), blocks (1, 32), float16 offsets: 114 bytes packed>"
    assert pickle.loads(pickle.dumps(q)).equals(q)


def test_dequantize_into_out():
    q = example()
    out = np.zeros((4, 70), np.float64)
    assert q.dequantize("float64", out=out) is out
    assert np.array_equal(out, q.dequantize("float64"))


@pytest.mark.parametrize("part", ["codes", "scales", "offsets"])
def test_parts_that_are_read_only_are_not_written_to(part):
    x = samples.generator("read-only").standard_normal((4, 64)).astype(np.float32)
    q = mx.quantize(x, "mxint8", offset="float16")
    getattr(q, part).flags.writeable = False
    before = [array.tobytes() for array in (q.codes, q.scales, q.offsets)]
    with pytest.raises(ValueError, match="'out' must be writable, not 'a read-only array'"):
        mx.quantize(-x, "mxint8", offset="float16", out=q)
    assert [array.tobytes() for array in (q.codes, q.scales, q.offsets)] == before


# Packed codes


def held(fmt="mxfp4_e2m1", shape=(3, 4, 96), **options):
    """Return the same MX array in two forms: with one byte for each code, and packed."""
    q = example(fmt, shape, **options)
    packed = example(fmt, shape, packed=True, **options)
    assert packed.is_packed
    assert not q.is_packed
    return q, packed


@pytest.mark.parametrize("options", [{}, {"offset": "float16"}, {"axis": 0}], ids=str)
@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", pytest.param("mxfp6_e3m2", marks=pytest.mark.full)])
@pytest.mark.parametrize("shape", [(3, 4, 96), (2, 37), (5,), (2, 0), (0, 3), ()])
def test_what_is_held_packed_is_the_same_array(fmt, shape, options, tmp_path):
    if options.get("axis") == 0 and not shape:
        return
    q, packed = held(fmt, shape, **options)
    assert packed.equals(q)
    assert q.equals(packed)
    assert np.array_equal(packed.dequantize("float64"), q.dequantize("float64"))
    assert (packed.shape, packed.ndim, packed.size, packed.packed_nbytes) == (q.shape, q.ndim, q.size, q.packed_nbytes)
    assert packed.nbytes == packed.pack().nbytes + packed.scales.nbytes + (0 if q.offsets is None else q.offsets.nbytes)
    assert np.array_equal(packed.codes, q.codes)
    assert np.array_equal(np.asarray(packed), np.asarray(q))
    for other in (pickle.loads(pickle.dumps(packed)), copy.copy(packed), copy.deepcopy(packed)):
        assert other.is_packed
        assert other.equals(q)
    packed.save(tmp_path / "q.npz")
    assert mx.MXArray.load(tmp_path / "q.npz").equals(q)
    assert packed.T.equals(q.T)
    assert packed.to_host() is packed
    assert mx.quantize(np.zeros(shape, np.float32), fmt, out=packed, **options) is packed
    assert not np.any(packed.dequantize())
    if shape:
        assert len(packed) == shape[0]


def test_codes_of_packed_ones_are_unpacked_each_time_and_cannot_be_written():
    _, packed = held()
    assert packed.codes is not packed.codes
    for codes in (packed.codes, packed.T.codes, packed[..., :32].codes):
        with pytest.raises(ValueError, match="read-only"):
            codes[0] = 1
    assert packed.unpacked().codes.flags.writeable


def test_ways_of_holding_become_each_other():
    q, packed = held("mxfp6_e2m3", (3, 37), offset="float16")
    assert packed.packed() is packed
    assert q.unpacked() is q
    assert q.packed().is_packed
    assert not packed.unpacked().is_packed
    for made in (q.packed(), packed.unpacked()):
        assert made.equals(q)
        assert made.scales is (q if made.is_packed else packed).scales
    byte = example("mxint8", packed=True)
    assert not byte.is_packed
    assert byte.packed() is byte
    bytes_ = mx.MXArray.from_packed(byte.codes, byte.scales, "mxint8", length=70)
    assert bytes_.codes is byte.codes


def test_packed_bytes_are_held_as_they_are():
    q, _ = held(shape=(4, 64))
    stream = q.pack()
    stream.flags.writeable = False
    packed = mx.MXArray.from_packed(stream, q.scales, q.format, length=64)
    assert packed.pack() is stream
    assert packed.scales is q.scales
    assert packed.nbytes == stream.nbytes + q.scales.nbytes
    out = np.zeros_like(stream)
    assert packed.pack(out=out) is out
    assert np.array_equal(out, stream)
    assert np.array_equal(packed.dequantize(), q.dequantize())
    with pytest.raises(ValueError, match="'out' must be writable"):
        mx.quantize(np.zeros((4, 64)), q.format, out=packed)
    dirty = example("mxfp4_e2m1", (3, 5), packed=True)
    clean = dirty.unpacked()
    dirty.pack()[:, -1] |= 0xF0  # set the padding bits at the end of each row
    assert dirty.equals(clean)
    assert np.array_equal(dirty.dequantize(), clean.dequantize())


@pytest.mark.parametrize(
    ("name", "length"), [("mxfp4_e2m1", 5), ("mxfp6_e3m2", 5), ("mxfp6_e3m2", 6), ("mxfp6_e3m2", 7)]
)
def test_bits_that_pad_a_row_are_zero_wherever_bytes_come_from(name, length, tmp_path):
    # Regression: the caller's padding bits were kept, so equal arrays had different bytes.
    q, clean = held(name, (3, length))
    stream = clean.pack()
    dirty = stream.copy()
    dirty[:, -1] |= 0xFF << (length * q.format.element.bits % 8) & 0xFF
    assert (dirty != stream).any()
    for part in (..., 1, slice(None, None, -1)):
        given = dirty[part]
        again = mx.MXArray.from_packed(given, clean[part].scales, name, length=length)
        assert again.equals(q[part])
        assert again.pack().tobytes() == stream[part].tobytes()
        assert not np.shares_memory(again.pack(), dirty)
        again.save(tmp_path / "again.npz")
        clean[part].save(tmp_path / "clean.npz")
        assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "clean.npz").read_bytes()
    rows = mx.MXArray.from_packed(stream[::2], clean.scales[::2], name, length=length)
    assert np.shares_memory(held_parts(rows)[0], stream)  # packed bytes with padding bits of 0 are not copied
    assert mx.MXArray.from_packed(dirty[:0], clean.scales[:0], name, length=length).shape == (0, length)


@pytest.mark.parametrize("name", ["mxfp4_e2m1", "mxfp6_e3m2"])
def test_packed_bytes_come_in_c_order(name):
    # Regression: `pack` returned the bytes of a view in the order of the view's memory.
    q, packed = held(name, (4, 6, 64))
    for view in (lambda a: a.transpose(1, 0, 2), lambda a: a[:, ::2, :32], lambda a: a.T, lambda a: a[::-1]):
        bytes_ = view(packed).pack()
        assert bytes_.flags.c_contiguous
        assert np.array_equal(bytes_, view(q).pack())
    assert packed[2].pack().base is not None  # `pack` does not copy a contiguous part of a packed array


@pytest.mark.parametrize("offset", [None, "float16"])
def test_parts_of_packed_ones_that_begin_and_end_at_bytes_are_views(offset):
    q, packed = held(offset=offset)
    for key in (1, -1, slice(0, 2), (0, 1), (slice(None), 2), (slice(None, None, -1), slice(1, 3)), ..., (),
                (..., slice(32, 64)), (1, 2, slice(0, 32)), (slice(1, 3), ..., slice(64, None))):  # fmt: skip
        part = packed[key]
        assert part.is_packed
        assert np.shares_memory(held_parts(part)[0], packed.pack())
        assert part.equals(q[key])
        assert part.shape == q[key].shape
        assert np.array_equal(part.dequantize(), q.dequantize()[key])
    assert packed[0, ..., :0].equals(q[0, ..., :0])
    assert packed.transpose(1, 0, 2).is_packed
    assert packed.transpose(1, 0, 2).equals(q.transpose(1, 0, 2))
    assert not packed.T.is_packed
    rows = example("mxfp4_e2m1", (4, 6), axis=0, packed=True)
    assert rows[:, 3].equals(example("mxfp4_e2m1", (4, 6), axis=0)[:, 3])
    assert rows[:, 3].ndim == 1
    other = example("mxfp4_e2m1", (4, 6), axis=0)
    for key, stays in ((slice(2, 4), True), (slice(2, None), True), (slice(1, 4), False), (slice(2, 5), False),
                       (slice(None, None, 2), False), (slice(4, 2), False)):  # fmt: skip
        assert rows[:, key].is_packed == stays
        assert rows[:, key].equals(other[:, key])
        assert np.array_equal(rows[:, key].dequantize(), other[:, key].dequantize())


def test_products_take_what_is_held_packed():
    q, packed = held(shape=(8, 64))
    want = mx.matmul(q, q.T, accumulate="block")
    assert np.array_equal(mx.matmul(packed, packed.T, accumulate="block"), want)


def test_repr_says_what_is_held_packed():
    assert repr(held(shape=(3, 64))[1]) == "<MXArray mxfp4_e2m1 (3, 64), blocks (1, 32): 102 bytes, held packed>"


def test_an_array_without_axes_has_no_length():
    for array in (example(shape=()), example("mxfp4_e2m1", shape=(), packed=True)):
        with pytest.raises(TypeError, match="without axes has no length"):
            len(array)


def test_slices_of_nothing():
    for length in (1, 31, 32, 40):
        q = mx.quantize(np.ones((2, length), np.float32), "mxfp4_e2m1")
        for empty in (q[:, length:], q[:, 64:], q[:, 5:5], q.packed()[:, 64:]):
            assert empty.shape == (2, 0)
            assert empty.dequantize().shape == (2, 0)


def test_axes_may_be_a_tuple():
    q = mx.quantize(np.ones((2, 3, 40), np.float32), "mxfp4_e2m1")
    assert q.transpose((2, 0, 1)).equals(q.transpose(2, 0, 1))
    assert q.transpose(()).equals(q.T)


def test_the_lowest_bit_of_padding_alone_is_cleared():
    codes = np.ones((1, 33), np.uint8)
    clean = mx.MXArray.from_parts(codes, np.full((1, 2), 127, np.uint8), "mxfp4_e2m1").pack()
    dirty = clean.copy()
    dirty[0, -1] |= 16
    again = mx.MXArray.from_packed(dirty, np.full((1, 2), 127, np.uint8), "mxfp4_e2m1", length=33)
    assert again.pack().tobytes() == clean.tobytes()

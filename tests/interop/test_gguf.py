from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import gguf as mx_gguf
from mxnum.interop import gpt_oss
from tests import samples


@pytest.fixture
def gguf():
    return pytest.importorskip("gguf", reason="the extra gguf is not installed")


def test_halves_share_a_byte():
    q = mx.MXArray.from_parts(np.arange(32, dtype=np.uint8) % 16, np.full(1, 130, np.uint8), "mxfp4_e2m1")
    blocks = mx_gguf.to_gguf_blocks(q)
    assert blocks.tolist() == [130, *[n | n << 4 for n in range(16)]]
    assert mx_gguf.from_gguf_blocks(blocks).equals(q)
    assert not np.array_equal(gpt_oss.to_gpt_oss(q)[0].ravel(), blocks[1:])


def test_the_real_library_reads_the_same_values(gguf):
    rng = samples.generator("gguf")
    blocks = rng.integers(0, 256, (4, 3 * 17), np.uint8)
    blocks[:, ::17] = rng.integers(0, 255, (4, 3), np.uint8)
    q = mx_gguf.from_gguf_blocks(blocks)
    want = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4)
    assert q.shape == want.shape == (4, 96)
    got = q.dequantize()
    assert np.array_equal(got, want)
    assert np.array_equal(mx_gguf.to_gguf_blocks(q), blocks)


def test_what_the_real_library_quantizes_we_read(gguf):
    x = samples.generator("gguf quantize").standard_normal((2, 64)).astype(np.float32)
    blocks = gguf.quants.quantize(x, gguf.GGMLQuantizationType.MXFP4)
    theirs, ours = mx_gguf.from_gguf_blocks(blocks), mx.quantize(x, "mxfp4_e2m1")
    assert np.array_equal(theirs.scales, ours.scales)
    # The codes may differ for -0, which gguf does not write, but the values are equal.
    assert np.array_equal(theirs.dequantize(), ours.dequantize())


def test_a_file_that_the_real_library_wrote(gguf, tmp_path):
    q = mx.quantize(samples.generator("gguf file").standard_normal((6, 64)), "mxfp4_e2m1")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("w", mx_gguf.to_gguf_blocks(q), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.add_tensor("b", np.zeros(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert mx_gguf.load_tensor(tmp_path / "m.gguf", "w").equals(q)
    with pytest.raises(ValueError, match=r"'name' must be one of \['w'\]"):
        mx_gguf.load_tensor(tmp_path / "m.gguf", "v")
    # Regression: the message did not say that the tensor exists but has another type.
    with pytest.raises(ValueError, match="must hold 'b' as MXFP4, NVFP4, Q8_0 or Q4_0, not as F32"):
        mx_gguf.load_tensor(tmp_path / "m.gguf", "b")


GROUPS = ["Q8_0", "Q4_0"]


def groups(kind):
    """Return a block of random integers for each finite scale d (for Q8_0: 0 <= d < 1024)."""
    rng = samples.generator("gguf groups", kind)
    d = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    d = d[(np.abs(d) < 1024) & ~np.signbit(d)] if kind == "Q8_0" else d[np.isfinite(d)]
    blocks = rng.integers(0, 256, (len(d), mx_gguf.KINDS[kind][2]), np.uint8)
    blocks[:, :2] = d.view(np.uint8).reshape(-1, 2)
    # Set one integer to -8, because mxnum may write -d for a block that contains no -8 and no 0.
    if kind == "Q4_0":
        blocks[:, 2] &= 0xF0
    return blocks


@pytest.mark.parametrize("kind", GROUPS)
def test_groups_of_integers_are_what_the_real_library_reads(gguf, kind):
    blocks = groups(kind)
    q = mx_gguf.from_gguf_blocks(blocks, kind=kind)
    assert q.format == mx.formats.get(mx_gguf.KINDS[kind][0])
    want = gguf.quants.dequantize(blocks, getattr(gguf.GGMLQuantizationType, kind))
    got = q.dequantize()
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
    assert np.array_equal(mx_gguf.to_gguf_blocks(q, kind=kind), blocks)


@pytest.mark.parametrize("kind", GROUPS)
def test_groups_that_the_real_library_quantizes_come_back(gguf, kind):
    rng = samples.generator("gguf quantizes", kind)
    x = (rng.standard_normal((300, 64)) * 2.0 ** rng.integers(-20, 8, (300, 1))).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = 0
    x[:4] = 0
    qtype = getattr(gguf.GGMLQuantizationType, kind)
    blocks = gguf.quants.quantize(x, qtype)
    q = mx_gguf.from_gguf_blocks(blocks, kind=kind)
    assert np.array_equal(mx_gguf.to_gguf_blocks(q, kind=kind), blocks)
    assert np.array_equal(q.dequantize().view(np.uint32), gguf.quants.dequantize(blocks, qtype).view(np.uint32))


@pytest.mark.parametrize(("kind", "fmt"), [("Q8_0", "int8"), ("Q4_0", "int4"), ("Q4_0", "int3"), ("Q8_0", "int4")])
def test_groups_that_are_quantized_here_the_real_library_reads(gguf, kind, fmt):
    x = samples.generator("gguf here", fmt).standard_normal((20, 96)).astype(np.float32)
    q = mx.quantize(x, f"{fmt}:block=32,scale=float16")
    blocks = mx_gguf.to_gguf_blocks(q, kind=kind)
    read = gguf.quants.dequantize(blocks, getattr(gguf.GGMLQuantizationType, kind))
    assert np.array_equal(read, q.dequantize())
    if (kind, fmt) == ("Q8_0", "int8"):
        assert mx_gguf.from_gguf_blocks(blocks, kind=kind).scales.tobytes() == q.scales.tobytes()


def test_nvfp4_is_what_the_real_library_reads(gguf):
    rng = samples.generator("gguf nvfp4")
    blocks = rng.integers(0, 256, (200, 2 * 36), np.uint8)
    scales = blocks.reshape(200, 2, 36)[:, :, :4]
    scales[...] = rng.integers(0, 0x7F, scales.shape)
    q = mx_gguf.from_gguf_blocks(blocks, kind="NVFP4")
    want = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.NVFP4)
    assert q.shape == want.shape == (200, 128)
    assert np.array_equal(q.dequantize(), want)  # == ignores the sign of zeros
    assert np.array_equal(mx_gguf.to_gguf_blocks(q, kind="NVFP4"), blocks)
    x = rng.standard_normal((4, 128)).astype(np.float32)
    made = mx_gguf.to_gguf_blocks(mx.quantize(x, "e2m1:block=16,scale=e4m3"), kind="NVFP4")
    read = gguf.quants.dequantize(made, gguf.GGMLQuantizationType.NVFP4)
    assert np.array_equal(read, mx.fake_quantize(x, "e2m1:block=16,scale=e4m3"))
    scales[0, 0, 0] = 0x7F  # gguf reads a NaN scale as zero
    with pytest.raises(ValueError, match="'blocks' must be an array whose scale codes are below 127, not 127"):
        mx_gguf.from_gguf_blocks(blocks, kind="NVFP4")
    wrong = mx.quantize(np.full((1, 64), np.nan), "e2m1:block=16,scale=e4m3")
    for q, message in [
        (mx.quantize(x, "nvfp4"), "without a tensor scale"), (mx.quantize(x[:, :32], wrong.format), "multiple of 64"),
        (wrong, "an array without NaN scales"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"'q' must be .*{message}"):
            mx_gguf.to_gguf_blocks(q, kind="NVFP4")


@pytest.mark.parametrize("kind", mx_gguf.KINDS)
def test_arrays_without_rows_are_converted(kind):
    # Regression: an array without elements raised numpy's error that it cannot infer a length.
    fmt, elements, size = mx_gguf.KINDS[kind]
    q = mx.quantize(np.zeros((0, 2 * elements), np.float32), fmt)
    blocks = mx_gguf.to_gguf_blocks(q, kind=kind)
    assert blocks.shape == (0, 2 * size)
    assert mx_gguf.from_gguf_blocks(blocks, kind=kind).equals(q)


def test_signs_of_zeros_and_of_scales():
    # Each case: a block's scale d and integers in a file, and what mxnum writes after reading them.
    # mxnum may write -d, because negating d and all integers can leave all values unchanged.
    two = np.float16(2)
    for d, n, written in [
        (-two, [-8, 0, 3], (-two, [-8, 0, 3])),
        (-two, [0, 1], (-two, [0, 1])),
        (-two, [1, -3], (two, [-1, 3])),  # both blocks have the same values
        (np.float16(-0.0), [0, 0], (np.float16(-0.0), [0, 0])),
        (np.float16(0.0), [0, 5], (np.float16(0.0), [0, 5])),
    ]:
        rows = [np.resize(np.array(each), 32) + 8 for each in (n, written[1])]
        given, want = (
            np.array([*np.array([number]).view(np.uint8), *(row[:16] | row[16:] << 4)], np.uint8)
            for number, row in zip((d, written[0]), rows, strict=True)
        )
        q = mx_gguf.from_gguf_blocks(given, kind="Q4_0")
        assert np.array_equal(mx_gguf.to_gguf_blocks(q, kind="Q4_0"), want)
        assert q.dequantize().tobytes() == mx_gguf.from_gguf_blocks(want, kind="Q4_0").dequantize().tobytes()


def test_values_without_an_exact_counterpart_raise():
    def block(d, *n):
        return np.array([*np.array([d], np.float16).view(np.uint8), *np.resize(n, 32)], np.uint8)

    for d in (-1.0, 1024.0, -0.0):
        with pytest.raises(
            ValueError, match=r"'blocks' must be an array of blocks whose scale d is below 1024 and has no minus sign"
        ):
            mx_gguf.from_gguf_blocks(block(d, 1), kind="Q8_0")
    fmt = "int8:block=32,scale=float16"
    small = mx.MXArray.from_parts(np.ones(32, np.uint8), np.full(1, 2.0**-20, np.float16), fmt)
    with pytest.raises(
        ValueError, match=r"'q' must be an array whose scales times 0.015625 are exact in float16, not 9.5"
    ):
        mx_gguf.to_gguf_blocks(small, kind="Q8_0")
    with pytest.raises(
        ValueError, match=r"'q' must be an array in which the integers of each block all lie in -8..7, or all in -7..8"
    ):
        mx_gguf.to_gguf_blocks(mx_gguf.from_gguf_blocks(block(1.0, 9), kind="Q8_0"), kind="Q4_0")
    for wrong in ("mxint8", "e4m3:block=32,scale=float16", "int8:block=32,scale=float32"):
        with pytest.raises(ValueError, match="'q' must be of integers and float16 scales, not"):
            mx_gguf.to_gguf_blocks(mx.quantize(np.ones(32), wrong), kind="Q8_0")
    with pytest.raises(ValueError, match=r"'kind' must be one of \['MXFP4', 'NVFP4', 'Q8_0', 'Q4_0'\]"):
        mx_gguf.from_gguf_blocks(block(1.0, 1), kind="Q5_K")


@pytest.mark.parametrize(("kind", "element"), [("Q8_0", "int8"), ("Q4_0", "int4")])
def test_groups_in_a_file_that_the_real_library_wrote(gguf, tmp_path, kind, element):
    q = mx.quantize(samples.generator("gguf").standard_normal((6, 64)), f"{element}:block=32,scale=float16")
    blocks = mx_gguf.to_gguf_blocks(q, kind=kind)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("w", blocks, raw_dtype=getattr(gguf.GGMLQuantizationType, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = mx_gguf.load_tensor(tmp_path / "m.gguf", "w")
    assert np.array_equal(read.dequantize(), q.dequantize())
    assert np.array_equal(mx_gguf.to_gguf_blocks(read, kind=kind), blocks)


@pytest.mark.parametrize(("kind", "fmt"), [("Q8_0", "int8"), ("Q4_0", "int4"), ("MXFP4", "e2m1")])
def test_files_of_big_endian_machines(gguf, tmp_path, kind, fmt):
    # Regression: in big-endian files, d was read as little-endian, because the gguf reader does not
    # swap the bytes of d.
    scale = "" if kind == "MXFP4" else ",scale=float16"
    q = mx.quantize(samples.generator("big").standard_normal((2, 6, 64)), f"{fmt}:block=32{scale}")
    blocks = mx_gguf.to_gguf_blocks(q, kind=kind)
    stored = blocks.reshape(-1, mx_gguf.KINDS[kind][2]).copy()
    if scale:
        stored[:, :2] = stored[:, :2][:, ::-1]
    big = gguf.GGUFEndian.BIG
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test", endianess=big)
    kinds = gguf.GGMLQuantizationType
    writer.add_tensor("w", stored.reshape(blocks.shape), raw_dtype=kinds[kind], tensor_endianess=big)
    finished(writer)
    read = mx_gguf.load_tensor(tmp_path / "m.gguf", "w")
    assert np.array_equal(mx_gguf.to_gguf_blocks(read, kind=kind), blocks)


def finished(writer):
    """Write all tensors and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("big", [False, True])
def test_the_tensor_scale_that_lies_beside_a_weight(gguf, tmp_path, big):
    # Regression: mxnum ignored the scale that llama.cpp stores as a tensor beside a weight.
    q = mx.quantize(samples.generator("beside").standard_normal((3, 4, 64)), "e2m1:block=16,scale=e4m3")
    order, kind = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE, gguf.GGMLQuantizationType.NVFP4
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test", endianess=order)
    of_experts = np.array([3, 0.5, 0.1], np.float32)
    weights = {"one": (q[0], of_experts[2:]), "each": (q, of_experts), "none": (q, None),
               "other": (q, of_experts.astype(np.float16)), "wrong": (q[0], of_experts)}  # fmt: skip
    for name, (weight, scale) in weights.items():
        blocks = mx_gguf.to_gguf_blocks(weight, kind="NVFP4")
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind, tensor_endianess=order)
        if scale is not None:
            writer.add_tensor(f"{name}.scale", scale.copy())
    blocks = mx_gguf.to_gguf_blocks(mx.quantize(np.ones((2, 64)), "mxfp4_e2m1"))
    writer.add_tensor("mx.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.MXFP4, tensor_endianess=order)
    writer.add_tensor("mx.scale", np.ones(1, np.float32))
    finished(writer)
    path = tmp_path / "m.gguf"
    assert mx_gguf.names(path) == [*(f"{name}.weight" for name in weights), "mx.weight"]
    for name in ("one", "each", "none"):
        weight, scale = weights[name]
        read = mx_gguf.load_tensor(path, f"{name}.weight")
        assert read.format.name == ("mx_e2m1_16_e4m3" if scale is None else "nvfp4")
        factor = np.float64(1 if scale is None else scale).reshape(-1, *(1,) * (weight.ndim - 1))
        assert np.array_equal(read.dequantize(), (weight.dequantize("float64") * factor).astype(np.float32))
    for name, why in (("other", "must be a float32 array"), ("wrong", "'tensor_scale' must be"), ("mx", "not 'MXFP4'")):
        of = rf"must hold '{name}.scale' as the float32 tensor scale of NVFP4: .*{why}"
        with pytest.raises(ValueError, match=of):
            mx_gguf.load_tensor(path, f"{name}.weight")


@pytest.fixture
def path(gguf, tmp_path):
    """Write a small GGUF file, and return the path of the file."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_array("tokens", ["a", "bb"])
    q = mx.quantize(np.ones((2, 64)), "mxfp4_e2m1")
    writer.add_tensor("w", mx_gguf.to_gguf_blocks(q), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "m.gguf"


#: A program that reads files in another process, so that a reader that hangs does not block the
#: tests.
READ = """
import sys
from mxnum.interop import gguf
for path in sys.argv[2:]:
    try:
        gguf.load_tensor(path, "w")
    except ValueError as problem:
        told = str(problem)
        assert told.startswith(f"File {path!r} must be a whole GGUF file: ") or told.startswith(sys.argv[1]), told
    else:
        assert "read" in path, path
"""


def test_damaged_files_say_so(path, tmp_path):
    # Past the end of a file, gguf's reader returns empty arrays and no error.
    whole, rng = path.read_bytes(), np.random.default_rng(19)
    # `start` is the position at which the length of an array of texts is stored. Two type numbers
    # of 4 bytes each precede the length.
    start = whole.index(b"tokens") + len(b"tokens") + 8
    damaged = {
        "empty": b"", "magic": b"GGML" + whole[4:], "cut": whole[:-40], "head": whole[:30],
        "tensors": whole[:8] + (1 << 60).to_bytes(8, "little") + whole[16:],
        "fields": whole[:16] + (1 << 60).to_bytes(8, "little") + whole[24:],
        "length": whole[:start] + (1 << 60).to_bytes(8, "little") + whole[start + 8 :],
        # An array of 2**60 bytes, which gguf's reader reads byte by byte.
        "bytes": whole[: start - 4] + bytes(4) + (1 << 60).to_bytes(8, "little") + whole[start + 8 :],
        "text": whole[: start + 8] + (1 << 63).to_bytes(8, "little") + whole[start + 16 :],
    }  # fmt: skip
    at = whole.rindex(b"w" + (2).to_bytes(4, "little")) + 5
    for name, value in (("rows", 1 << 32), ("row", 1 << 63), ("part of a block", 33)):
        place = at + 8 * (name == "rows")
        damaged[name] = whole[:place] + value.to_bytes(8, "little") + whole[place + 8 :]
    damaged["offset"] = whole[: at + 20] + ((1 << 64) - 32).to_bytes(8, "little") + whole[at + 28 :]
    for i in range(150):
        content = bytearray(whole)
        content[rng.integers(len(whole) - 68)] = rng.integers(256)
        # A random change may be harmless, so a file named "read N" may be read without an error.
        damaged[f"read {i}"] = bytes(content)
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    other = "Argument 'name' must be one of "  # a random change may hit the tensor's name
    arguments = [sys.executable, "-c", READ, other, *(str(tmp_path / name) for name in damaged)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_file_without_such_tensors_says_so(gguf, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor("b", np.zeros(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match=r"must hold tensors of type MXFP4, NVFP4, Q8_0 or Q4_0, but has none\.$"):
        mx_gguf.load_tensor(tmp_path / "m.gguf", "b")
    with pytest.raises(FileNotFoundError):
        mx_gguf.load_tensor(tmp_path / "none.gguf", "b")


def test_mistakes():
    with pytest.raises(ValueError, match="of whole blocks of 17 bytes along the last axis"):
        mx_gguf.from_gguf_blocks(np.zeros((2, 16), np.uint8))
    with pytest.raises(ValueError, match="'shape' must be of 2 blocks of 32"):
        mx_gguf.from_gguf_blocks(np.zeros(34, np.uint8), (3, 32))
    with pytest.raises(ValueError, match="a multiple of 32 elements"):
        mx_gguf.to_gguf_blocks(mx.quantize(np.ones(40), "mxfp4_e2m1"))


def test_every_scale_of_q8_0_is_written_exactly_or_not_at_all():
    """Check that every scale of Q8_0 is written exactly, as d = scale / 64, or raises an error."""
    patterns = np.arange(1, 0x7C00, dtype=np.uint16)
    scales = patterns.view(np.float16)
    d = (scales.astype(np.float64) / 64).astype(np.float16)
    fits = d.astype(np.float64) * 64 == scales
    fmt = "int8:block=32,scale=float16"

    def array(chosen):
        return mx.MXArray.from_parts(np.ones((len(chosen), 32), np.uint8), chosen[:, None], fmt)

    written = mx_gguf.to_gguf_blocks(array(scales[fits]), kind="Q8_0")
    assert np.array_equal(written[:, :2].copy().view(np.float16)[:, 0], d[fits])
    assert (~fits).sum() > 1000
    for scale in scales[~fits][::97]:
        with pytest.raises(ValueError, match=r"whose scales times 0\.015625 are exact in float16"):
            mx_gguf.to_gguf_blocks(array(np.array([scale])), kind="Q8_0")

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
    assert np.array_equal(theirs.dequantize(), ours.dequantize())  # -0 apart, which gguf does not write


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
        mx_gguf.load_tensor(tmp_path / "m.gguf", "b")


@pytest.fixture
def path(gguf, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_array("tokens", ["a", "bb"])
    q = mx.quantize(np.ones((2, 64)), "mxfp4_e2m1")
    writer.add_tensor("w", mx_gguf.to_gguf_blocks(q), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "m.gguf"


#: Run apart, since what reads on and on would not end here.
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
    # No test saw these: all were whole. Beyond the end the reader finds empty arrays, and counts on.
    whole, rng = path.read_bytes(), np.random.default_rng(19)
    start = whole.index(b"tokens") + len(b"tokens") + 8  # of the length of the array of texts, after two types
    damaged = {
        "empty": b"", "magic": b"GGML" + whole[4:], "cut": whole[:-40], "head": whole[:30],
        "tensors": whole[:8] + (1 << 60).to_bytes(8, "little") + whole[16:],
        "fields": whole[:16] + (1 << 60).to_bytes(8, "little") + whole[24:],
        "length": whole[:start] + (1 << 60).to_bytes(8, "little") + whole[start + 8 :],
        # An array of so many bytes, which are read one by one.
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
        damaged[f"read {i}"] = bytes(content)  # or not
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    other = "Argument 'name' must be one of "  # (its name was changed)
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
    with pytest.raises(ValueError, match=r"must hold tensors of MXFP4, and has none\.$"):
        mx_gguf.load_tensor(tmp_path / "m.gguf", "b")
    with pytest.raises(FileNotFoundError):
        mx_gguf.load_tensor(tmp_path / "none.gguf", "b")


def test_mistakes():
    with pytest.raises(ValueError, match="17 bytes a block"):
        mx_gguf.from_gguf_blocks(np.zeros((2, 16), np.uint8))
    with pytest.raises(ValueError, match="'shape' must be of 2 blocks of 32"):
        mx_gguf.from_gguf_blocks(np.zeros(34, np.uint8), (3, 32))
    with pytest.raises(ValueError, match="whole blocks of 32"):
        mx_gguf.to_gguf_blocks(mx.quantize(np.ones(40), "mxfp4_e2m1"))

from __future__ import annotations

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


def test_mistakes():
    with pytest.raises(ValueError, match="17 bytes a block"):
        mx_gguf.from_gguf_blocks(np.zeros((2, 16), np.uint8))
    with pytest.raises(ValueError, match="'shape' must be of 2 blocks of 32"):
        mx_gguf.from_gguf_blocks(np.zeros(34, np.uint8), (3, 32))
    with pytest.raises(ValueError, match="whole blocks of 32"):
        mx_gguf.to_gguf_blocks(mx.quantize(np.ones(40), "mxfp4_e2m1"))

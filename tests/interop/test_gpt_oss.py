from __future__ import annotations

import warnings

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import gpt_oss, safetensors
from tests import samples


def read_as_published(blocks, scales):
    """Decode as gpt-oss does.

    Low nibbles hold the elements with even indices, high nibbles the elements with odd indices.
    """
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    values = np.empty((*blocks.shape[:-1], 32))
    values[..., 0::2] = table[blocks & 15]
    values[..., 1::2] = table[blocks >> 4]
    values = np.ldexp(values, scales.astype(int)[..., None] - 127)
    return values.reshape(*blocks.shape[:-2], -1)


def test_values_and_round_trip():
    rng = samples.generator("gpt-oss")
    blocks = rng.integers(0, 256, (3, 5, 2, 16), np.uint8)
    scales = rng.integers(100, 140, (3, 5, 2), np.uint8)
    q = gpt_oss.from_gpt_oss(blocks, scales)
    assert q.shape == (3, 5, 64)
    assert np.array_equal(q.dequantize("float64"), read_as_published(blocks, scales))
    again = gpt_oss.to_gpt_oss(q)
    assert np.array_equal(again[0], blocks)
    assert np.array_equal(again[1], scales)


def test_values_are_those_that_transformers_reads():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns when it is imported
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    rng = samples.generator("transformers")
    blocks = rng.integers(0, 256, (3, 5, 2, 16), np.uint8)
    scales = rng.integers(100, 140, (3, 5, 2), np.uint8)
    read = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    got = gpt_oss.from_gpt_oss(blocks, scales).dequantize()
    want = read.numpy().swapaxes(-1, -2)  # transformers transposes the matrix of each expert
    assert np.array_equal(got.view(np.uint32), np.ascontiguousarray(want).view(np.uint32))
    q = mx.quantize(rng.standard_normal((3, 5, 64)).astype(np.float32), "mxfp4_e2m1")
    written = convert_moe_packed_tensors(*map(torch.from_numpy, gpt_oss.to_gpt_oss(q)), dtype=torch.float32)
    assert np.array_equal(written.numpy().swapaxes(-1, -2), q.dequantize())


@pytest.mark.parametrize("joint", [".", "_"])
def test_a_checkpoint_file(tmp_path, joint):
    q = mx.quantize(samples.generator("shard").standard_normal((2, 6, 96)), "mxfp4_e2m1")
    blocks, scales = gpt_oss.to_gpt_oss(q)
    name = "block.0.mlp.mlp1_weight"
    safetensors.save(tmp_path / "m.safetensors", {f"{name}{joint}blocks": blocks, f"{name}{joint}scales": scales})
    assert gpt_oss.load_tensor(tmp_path / "m.safetensors", name).equals(q)
    with pytest.raises(ValueError, match=r"'name' must be one of \['block.0.mlp.mlp1_weight'\]"):
        gpt_oss.load_tensor(tmp_path / "m.safetensors", "nope")


def test_checkpoints_that_lack_something(tmp_path):
    # In each checkpoint of this test, the requested weight is missing, or one of its two parts
    # (blocks and scales) is missing or wrong.
    path, blocks = tmp_path / "m.safetensors", np.zeros((2, 16), np.uint8)
    safetensors.save(
        path, {"w.blocks": blocks, "v_blocks": blocks, "v_scales": blocks, "u.blocks": blocks.astype(float)}
    )
    with pytest.raises(ValueError, match=r"must hold 'w\.scales' as well as 'w\.blocks'\.$"):
        gpt_oss.load_tensor(path, "w")
    with pytest.raises(
        ValueError, match=r"File '.*' must hold the tensor 'v' in the layout of gpt-oss: Argument 'scales' must be of"
    ):
        gpt_oss.load_tensor(path, "v")
    with pytest.raises(ValueError, match=r"'name' must be one of \['w', 'v', 'u'\], not 'x'"):
        gpt_oss.load_tensor(path, "x")
    safetensors.save(path, {"w": blocks})
    with pytest.raises(ValueError, match=r"File '.*' must hold tensors with gpt-oss names"):
        gpt_oss.load_tensor(path, "w")


def test_mistakes():
    with pytest.raises(ValueError, match=r"of shape \(\.\.\., groups, 16\)"):
        gpt_oss.from_gpt_oss(np.zeros((2, 8), np.uint8), np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match=r"'scales' must be of shape \(2,\)"):
        gpt_oss.from_gpt_oss(np.zeros((2, 16), np.uint8), np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="a multiple of 32 elements"):
        gpt_oss.to_gpt_oss(mx.quantize(np.ones(40), "mxfp4_e2m1"))
    with pytest.raises(ValueError, match="in whole blocks of 32 along the last axis"):
        gpt_oss.to_gpt_oss(mx.quantize(np.ones((32, 2)), "mxfp4_e2m1", axis=0))
    with pytest.raises(ValueError, match="of e2m1 elements"):
        gpt_oss.to_gpt_oss(mx.quantize(np.ones(32), "mxfp8_e4m3"))

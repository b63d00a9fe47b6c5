from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop.swizzle import swizzle_scales, unswizzle_scales
from mxnum.interop.torch import to_torch
from tests import samples


@pytest.mark.parametrize("shape", [(128, 4), (1, 1), (130, 5), (300, 17), (256, 8)])
def test_each_byte_where_the_formula_puts_it(shape):
    scales = samples.generator("swizzle", shape).integers(0, 256, shape, np.uint8)
    flat = swizzle_scales(scales)
    column_tiles = -(-shape[1] // 4)
    assert flat.size == -(-shape[0] // 128) * column_tiles * 512
    for (row, column), code in np.ndenumerate(scales):
        tile = (row // 128) * column_tiles + column // 4
        r, c = row % 128, column % 4
        assert flat[tile * 512 + (r % 32) * 16 + (r // 32) * 4 + c] == code
    assert np.array_equal(unswizzle_scales(flat, shape), scales)
    assert flat.sum(dtype=np.int64) == scales.sum(dtype=np.int64)  # padding has code 0


@pytest.mark.parametrize("shape", [(128, 4), (130, 5), (300, 17)])
def test_torchao_has_the_same_order(shape):
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    utils = pytest.importorskip("torchao.prototype.mx_formats.utils", reason="torchao is not installed")
    scales = samples.generator("swizzle torchao", shape).integers(0, 256, shape, np.uint8)
    assert np.array_equal(utils.to_blocked(torch.from_numpy(scales)).numpy(), swizzle_scales(scales))


def test_scales_may_have_8_bit_float_types():
    # Regression: `swizzle_scales` raised an error for scales that mxnum's own converters return.
    scales = np.arange(20, dtype=np.uint8).reshape(4, 5)
    expected = swizzle_scales(scales)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("float8_e8m0fnu", "float8_e4m3fn"):
        assert swizzle_scales(scales.view(getattr(ml_dtypes, name))).tobytes() == expected.tobytes()
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    tensors = to_torch(mx.quantize(np.linspace(-3, 900, 640, dtype=np.float32).reshape(4, 160), "mxfp8_e4m3"))
    assert torch.equal(swizzle_scales(tensors.scales), swizzle_scales(tensors.scales.view(torch.uint8)))


def test_mistakes():
    with pytest.raises(TypeError, match=r"must be the scales of the MXArray, q.scales, not 'MXArray'"):
        swizzle_scales(mx.quantize(np.ones((4, 32), np.float32), "mxfp4"))
    with pytest.raises(ValueError, match="two-dimensional"):
        swizzle_scales(np.zeros(4, np.uint8))
    with pytest.raises(TypeError, match="uint8"):
        swizzle_scales(np.zeros((4, 4)))
    with pytest.raises(ValueError, match="of 512 bytes"):
        unswizzle_scales(np.zeros(100, np.uint8), (4, 4))
    # Regression: for negative lengths in the shape, the function returned an array without rows.
    with pytest.raises(ValueError, match="'shape' must be between 0 and"):
        unswizzle_scales(np.zeros(0, np.uint8), (-5, 4))
    with pytest.raises(TypeError, match=r"'shape' must be an integer, not 2.0"):
        unswizzle_scales(np.zeros(512, np.uint8), (2.0, 4))

"""Tests that numpy quantizes a whole tensor if the loops cannot handle one of its blocks."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum import stacks
from mxnum.engine.quantizing import by_stack
from tests import samples

TORCHAO = stacks.STACKS["torchao"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_block_that_is_left_has_all_of_it_done_otherwise(packed):
    x = samples.generator("left").standard_normal((8, 64)).astype(np.float32)
    largest = by_stack.largest(x, None)
    assert largest == np.abs(x).max()
    of_tensor = TORCHAO.global_scale(np.asarray(largest)), largest

    def quantize():
        return by_stack.quantize(x, (1, 16), TORCHAO, *of_tensor, packed, None, lambda: None)

    made = quantize()
    assert made is not None
    codes, scales = made
    if packed:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(x.shape)
    want = stacks.quantize(x, TORCHAO, blocks=(1, 16), global_scale=of_tensor[0])
    assert np.array_equal(codes, want.codes)
    assert np.array_equal(scales, want.scales)
    x[5, 40] = np.inf
    assert quantize() is None

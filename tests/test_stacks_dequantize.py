"""Tests of the arithmetic of a stack, and of errors that `mxnum.stacks.dequantize` raises."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum import stacks


def test_dequantize_refuses_packed_codes_whatever_their_values():
    """Check that packed codes raise an error, even if all bytes are below 16."""
    few = np.zeros((2, 16), np.float32)
    few[:, 0] = 1
    for x in (few, np.zeros((2, 16), np.float32)):
        for blocks in (None, (1, 16), (2, 16)):
            packed = stacks.quantize(x, "vllm", blocks=blocks, packed=True)
            assert packed.codes.max() < 16
            with pytest.raises(ValueError, match="'made' must be unpacked, with one code in each byte, not 'packed'"):
                stacks.dequantize(packed, "vllm")
    with pytest.raises(ValueError, match="'made' must be unpacked, with codes and scales whose shapes fit blocks"):
        stacks.dequantize(stacks.quantize(few, "vllm", packed=True)._replace(packed=False), "vllm")
    with pytest.raises(ValueError, match="'made' must be unpacked, with codes below 16, not 34"):
        stacks.dequantize(stacks.quantize(few, "vllm")._replace(codes=np.full((2, 16), 34, np.uint8)), "vllm")


def test_dequantize_refuses_scales_of_another_shape():
    """Check that scales of a wrong shape raise an error, even if their number is right."""
    made = stacks.quantize(np.ones((2, 64), np.float32), "vllm", blocks=(1, 16))
    with pytest.raises(ValueError, match=r"whose shapes fit blocks \(1, 16\), not \(\(2, 64\), \(4, 2\)\)"):
        stacks.dequantize(made._replace(scales=made.scales.T), "vllm")


@pytest.mark.parametrize("given", [{"stream": 5}, {"first": 3}, {"sr_bits": 4}])
def test_random_bits_with_the_arithmetic_of_a_stack_raise(given):
    """Check that arguments about random bits raise an error with the arithmetic of a stack."""
    x = np.ones((1, 16), np.float32)
    for call in (mx.quantize, mx.fake_quantize):
        with pytest.raises(ValueError, match=f"'{next(iter(given))}' must be left out unless rounding='sr'"):
            call(x, "nvfp4", arithmetic="vllm", **given)

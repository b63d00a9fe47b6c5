"""Tests that `memo` reuses a result only for arguments of equal types and values."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.request import memo


def test_a_result_is_kept_for_equal_arguments_of_the_same_types():
    calls = []

    @memo
    def described(x, y):
        calls.append((x, y))
        return f"{x!r} {y!r}"

    assert [described(1, "a"), described(1, "a"), described(1.0, "a"), described(True, "a")] == [
        "1 'a'", "1 'a'", "1.0 'a'", "True 'a'"
    ]  # fmt: skip
    assert len(calls) == 3


def test_calls_without_a_hash_or_with_an_error_are_not_cached():
    calls = []

    @memo
    def total(values):
        calls.append(values)
        if not values:
            raise TypeError("no values")
        return sum(values)

    assert total([1, 2]) == total([1, 2]) == 3
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^no values$"):
            total(())
    assert len(calls) == 2 + 2 * 2


def test_errors_do_not_depend_on_earlier_calls():
    x = np.ones((4, 32), np.float32)
    for _ in range(2):
        mx.quantize(x, "mxfp4_e2m1", axis=1)
        for axis in (1.0, "1", [1]):
            with pytest.raises(TypeError, match="Argument 'axis' must be an integer"):
                mx.quantize(x, "mxfp4_e2m1", axis=axis)
        with pytest.raises(TypeError, match="Argument 'rounding' must be one of"):
            mx.quantize(x, "mxfp4_e2m1", rounding=["rne"])
        with pytest.raises(TypeError, match="Argument 'block_shape' must be a tuple of block lengths, not 4"):
            mx.quantize(x, "mxfp4_e2m1", block_shape=4)
        with pytest.raises(TypeError, match="Argument 'block_shape' must be an integer"):
            mx.quantize(x, "mxfp4_e2m1", block_shape=(2.0, 2))
    assert mx.quantize(x, "mxfp4_e2m1", block_shape=[2, 2]).blocks == (2, 2)

"""Tests that loops prefetch each cache line once, and may prefetch at any address."""

from __future__ import annotations

import re

import numba
import numpy as np
import pytest

from mxnum.engine.machine.jit import ask_for


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compiled loops")
@pytest.mark.parametrize(("dtype", "lines"), [("uint8", 1), ("int16", 1), ("int32", 2), ("int64", 4)])
def test_every_cache_line_is_prefetched_once(dtype, lines):
    """Check that each cache line of 32 elements is prefetched once, 2048 bytes ahead."""

    def loop(array, index):
        ask_for(array, index, 32, 2048)

    compiled = numba.njit((numba.types.Array(getattr(numba.types, dtype), 1, "C"), numba.int64))(loop)
    text = next(iter(compiled.inspect_llvm().values()))
    asked = re.findall(r"call void @llvm\.prefetch[.\w]*\(.*, i32 0, i32 3, i32 1\)", text)
    offsets = sorted({int(found) for found in re.findall(r"i64 (\d+)\n", text)} & set(range(2048, 2048 + 64 * 9, 64)))
    assert len(asked) == lines, text
    assert offsets == list(range(2048, 2048 + 64 * lines, 64))


def test_prefetching_outside_the_array_is_harmless():
    """Check that prefetching outside the array neither crashes nor writes."""
    x = np.arange(8, dtype=np.int32)

    def loop(array):
        for index in (0, 7, 1 << 12, 1 << 40, -(1 << 40)):
            ask_for(array, index, 32, 8192)

    loop(x)
    numba.njit(loop)(x)
    assert x.tolist() == list(range(8))

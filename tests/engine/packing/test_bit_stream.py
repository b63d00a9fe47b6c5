"""Tests of packing codes into a bit stream that starts at any byte of an array.

test_arrays tests the packing of whole rows.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.packing import bit_stream


@pytest.mark.parametrize("bits", range(1, 9))
def test_runs_begin_at_any_byte(bits):
    pack, unpack = (_compiled(make(bits)) for make in (bit_stream.make_pack_run, bit_stream.make_unpack_run))

    @given(st.lists(st.integers(0, (1 << bits) - 1), max_size=200), st.integers(0, 9), st.integers(0, 9))
    def check(values, first, into):
        codes, count = np.array([0] * first + values, np.uint8), len(values)
        length = -(-count * bits // 8)
        stream = np.full(into + length + 8, 0xEE, np.uint8)
        pack(codes, first, count, stream, into)
        number = sum(value << (bits * i) for i, value in enumerate(values))
        assert stream.tobytes() == b"\xee" * into + number.to_bytes(length, "little") + b"\xee" * 8
        again = np.full(first + count + 70, 0xEE, np.uint8)
        unpack(stream, into, count, again, first)
        assert again.tolist() == [0xEE] * first + values + [0xEE] * 70

    check()


def _compiled(step):
    def loop(source, first, other, second, third):
        step(source, first, other, second, third)

    return compile_loop(loop)

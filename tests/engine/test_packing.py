"""Bit streams of every width, against Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine import packing
from tests import samples


@pytest.mark.parametrize("bits", [3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8, 31, 64])
def test_rows_are_little_endian_streams(bits, length):
    codes = samples.generator("packing", bits, length).integers(0, 1 << bits, (3, length)).astype(np.uint8)
    packed = np.full((3, packing.packed_length(length, bits)), 0xAA, np.uint8)
    packing.pack_rows(bits)(codes, packed)
    for row, stream in zip(codes, packed, strict=True):
        value = sum(int(c) << (bits * i) for i, c in enumerate(row))
        assert stream.tobytes() == value.to_bytes(len(stream), "little")
    again = np.zeros_like(codes)
    packing.unpack_rows(bits)(packed, again)
    assert np.array_equal(again, codes)


def test_padding_bits_are_ignored_when_unpacking():
    codes = np.zeros((1, 3), np.uint8)
    packing.unpack_rows(6)(np.array([[0x41, 0x20, 0xFC]], np.uint8), codes)
    assert codes.tolist() == [[1, 1, 2]]

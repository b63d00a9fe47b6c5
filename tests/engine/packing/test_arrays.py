"""Tests that arrays of codes are packed to bit streams and unpacked, for every width of codes."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine.packing import arrays
from mxnum.layout import packed_length
from tests import samples


@pytest.mark.parametrize("bits", [3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8, 31, 64])
def test_rows_are_little_endian_streams(bits, length):
    codes = samples.generator("packing", bits, length).integers(0, 1 << bits, (3, length)).astype(np.uint8)
    into = np.full((3, packed_length(length, bits)), 0xAA, np.uint8)
    packed = arrays.pack(codes, bits, into)
    assert packed is into
    assert np.array_equal(arrays.pack(codes, bits), packed)
    for row, stream in zip(codes, packed, strict=True):
        value = sum(int(c) << (bits * i) for i, c in enumerate(row))
        assert stream.tobytes() == value.to_bytes(len(stream), "little")
    assert np.array_equal(arrays.unpack(packed, bits, length), codes)


def test_rows_of_whole_bytes_are_taken_as_one():
    codes = samples.generator("whole").integers(0, 64, (2, 5, 8)).astype(np.uint8)
    packed = arrays.pack(codes, 6)
    assert packed.shape == (2, 5, 6)
    assert np.array_equal(arrays.unpack(packed, 6, 8), codes)
    strided = np.zeros((2, 5, 12), np.uint8)[..., ::2]
    assert arrays.pack(codes[:, ::-1], 6, strided) is strided
    assert np.array_equal(strided, packed[:, ::-1])


def test_padding_bits_are_ignored_when_unpacking():
    assert arrays.unpack(np.array([[0x41, 0x20, 0xFC]], np.uint8), 6, 3).tolist() == [[1, 1, 2]]


def test_empty_rows():
    assert arrays.pack(np.zeros((3, 0), np.uint8), 6).shape == (3, 0)
    assert arrays.unpack(np.zeros((3, 0), np.uint8), 6, 0).shape == (3, 0)
    assert arrays.unpack(np.zeros((0, 3), np.uint8), 6, 4).shape == (0, 4)


@pytest.mark.parametrize("bits", [3, 4, 6, 8])
@pytest.mark.parametrize("shape", [(7, 9), (70, 90), (33, 1003), (1003, 33), (3, 70, 90), (700, 1200), (5000, 1)])
def test_codes_may_lie_anywhere(bits, shape):
    codes = samples.generator("anywhere", bits, shape).integers(0, 1 << bits, shape).astype(np.uint8)
    want = arrays.pack(codes, bits)
    into = np.zeros((*want.shape[:-1], 2 * want.shape[-1]), np.uint8)[..., ::2]
    for order in {tuple(range(codes.ndim)), tuple(range(codes.ndim))[::-1], (*range(1, codes.ndim), 0)}:
        turned = np.ascontiguousarray(codes.transpose(order)).transpose(np.argsort(order))
        for view in (turned, np.repeat(turned, 2, axis=0)[::2], np.repeat(turned, 2, axis=-1)[..., ::2]):
            assert np.array_equal(arrays.pack(view, bits), want)
            assert arrays.pack(view, bits, into) is into
            assert np.array_equal(into, want)
    assert np.array_equal(arrays.unpack(into, bits, shape[-1]), codes)
    assert np.array_equal(arrays.unpack(np.asfortranarray(want), bits, shape[-1]), codes)

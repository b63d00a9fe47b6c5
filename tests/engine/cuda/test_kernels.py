"""Tests of the random words of GPU kernels, and of blocks along any axes."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.definition.random import philox4x32
from tests.samples import generator


def test_drawn_words_are_those_of_the_generator():
    from mxnum.engine.cuda import kernels

    key = (0xDEADBEEF, 1, 0xFFFFFFFF, 7, 0)
    for counter in (0, 1, (1 << 32) - 1, 1 << 32, (1 << 40) + 5):
        want = philox4x32(counter & 0xFFFFFFFF, counter >> 32, key[2], key[3], key[0], key[1])
        assert tuple(int(word) & 0xFFFFFFFF for word in kernels.draw(counter, key)) == want


def test_the_index_decides_not_the_layout(device):
    x = np.full((8, 96), 1.1, np.float32)
    want = mx.encode(x, "e2m1", rounding="sr", seed=3, stream=9, sr_bits=7)
    there = device(x)
    # Every number is 1.1, so every block has the scale 1/4 in each layout. If codes differ between
    # layouts, the random words must be different.
    for layout in ({}, {"axis": 0}, {"block_shape": (3, 5)}):
        codes = mx.quantize(there, "mxfp4_e2m1", rounding="sr", seed=3, stream=9, sr_bits=7, **layout)
        assert np.array_equal(codes.to_host().codes, mx.quantize(x, "mxfp4_e2m1", rounding="sr", seed=3, stream=9,
                                                                 sr_bits=7).codes)  # fmt: skip
    assert np.array_equal(mx.encode(there, "e2m1", rounding="sr", seed=3, stream=9, sr_bits=7).copy_to_host(), want)


@pytest.mark.parametrize("first", [6, 8, (1 << 40) + 4])
def test_a_part_draws_the_bits_that_it_has_in_the_whole(device, first):
    x = np.full((2, 64), 1.1, np.float32)  # some layouts draw random words four at a time, others one by one
    for layout in ({}, {"block_size": 5}, {"offset": "float16"}):
        options = {"rounding": "sr", "seed": 3, "stream": 9, "first": first, **layout}
        want = mx.quantize(x, "mxfp4_e2m1", **options)
        assert mx.quantize(device(x), "mxfp4_e2m1", **options).to_host().equals(want)
        want = mx.fake_quantize(x, "mxfp4_e2m1", **options)
        assert np.array_equal(mx.fake_quantize(device(x), "mxfp4_e2m1", **options).copy_to_host(), want)
    want = mx.encode(x, "e2m1", rounding="sr", seed=3, first=first)
    assert np.array_equal(mx.encode(device(x), "e2m1", rounding="sr", seed=3, first=first).copy_to_host(), want)


@pytest.mark.parametrize("blocks", [(1, 1, 1), (2, 3, 5), (7, 1, 2), (1, 4, 1), (7, 9, 11), (100, 100, 100)])
def test_blocks_along_any_axes(device, blocks):
    x = generator("blocks", blocks).standard_normal((4, 6, 8)).astype(np.float32)
    x[1, 2, 3], x[3, 5, 7] = np.nan, np.inf
    for modes in ({}, {"offset": "float16"}):
        want = mx.quantize(x, "mxfp6_e2m3", blocks=blocks, **modes)
        assert mx.quantize(device(x), "mxfp6_e2m3", blocks=blocks, **modes).to_host().equals(want)

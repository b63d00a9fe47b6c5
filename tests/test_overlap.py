"""Tests of calls whose inputs (such as scales and random words) share memory with the results."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from tests import samples

SHAPE = (64, 96)
COUNT = 64 * 96
#: Byte offsets of the second array in a buffer whose first array begins at offset 0.
PLACES = (0, 192, 4000, 4 * COUNT - 192, 4 * COUNT)
FORMATS = ("mxfp8_e4m3", "mxfp4_e2m1")


class Memory:
    """A buffer of 16 * COUNT bytes, in which arrays are put at any offset."""

    def __init__(self) -> None:
        self.bytes = np.zeros(16 * COUNT, np.uint8)

    def put(self, values, place):
        """Store values at an offset, and return the array at this offset."""
        array = self.at(values.shape, values.dtype, place)
        array[...] = values
        return array

    def at(self, shape, dtype, place):
        """Return the array at an offset."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes[place : place + size].view(dtype).reshape(shape)


def numbers(*key):
    """Return an array whose blocks differ so much in magnitude that a wrong scale is noticed."""
    rng = samples.generator("overlap", *key)
    return (rng.standard_normal(SHAPE) * np.exp2(rng.integers(-20, 20, (64, 1)))).astype(np.float32)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("options", [{}, {"packed": True}, {"offset": "float16"}, {"block_size": 1}])
def test_values_over_scales_and_offsets(fmt, place, options):
    q = mx.quantize(numbers("values"), fmt, **options)
    want, codes, memory = q.dequantize(), q.codes.copy(), Memory()
    offsets = None if q.offsets is None else memory.put(q.offsets, place + 8192)
    scales, layout = memory.put(q.scales, place), {"block_size": q.blocks[-1], "offsets": offsets}
    if options.get("packed"):
        one = mx.MXArray.from_packed(q.pack().copy(), scales, fmt, length=SHAPE[1], **layout)
    else:
        one = mx.MXArray.from_parts(codes, scales, fmt, **layout)
    assert np.array_equal(one.dequantize(out=memory.at(SHAPE, np.float32, 0)), want)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "options", [{}, {"packed": True}, {"offset": "float16"}, {"axis": 0}, {"rounding": "sr", "seed": 3}]
)
def test_scales_and_offsets_over_numbers(fmt, place, options):
    x, memory = numbers("scales"), Memory()
    want = mx.quantize(x, fmt, **options)
    given = memory.put(x, 0)
    offsets = None if want.offsets is None else memory.at(want.offsets.shape, np.float16, place + 8192)
    scales, layout = memory.at(want.scales.shape, np.uint8, place), {"blocks": want.blocks, "offsets": offsets}
    if options.get("packed"):
        out = mx.MXArray.from_packed(np.zeros(want.pack().shape, np.uint8), scales, fmt, length=SHAPE[1], **layout)
    else:
        out = mx.MXArray.from_parts(np.zeros(SHAPE, np.uint8), scales, fmt, **layout)
    assert mx.quantize(given, fmt, out=out, **options).equals(want)
    assert np.array_equal(
        mx.shared_scale(memory.put(x, 0), fmt, out=memory.at((64, 3), np.uint8, place)), mx.shared_scale(x, fmt)
    )


@pytest.mark.parametrize("place", [0, 1, 192, 4000])
@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "mxfp6_e2m3", "e2m2:block=32"])
@pytest.mark.parametrize("order", "CF")
def test_bits_and_codes_over_what_they_are_made_of(fmt, place, order):
    x, memory = numbers("codes"), Memory()
    q = mx.quantize(x, fmt)
    want, codes = q.pack(), memory.put(q.codes if order == "C" else q.codes.T, 192)
    one = mx.MXArray.from_parts(codes if order == "C" else codes.T, q.scales, fmt)
    assert np.array_equal(one.pack(out=memory.at(want.shape, np.uint8, place)), want)
    given = memory.put(x, 192)
    into = mx.MXArray.from_packed(memory.at(want.shape, np.uint8, place), q.scales * 0, fmt, length=SHAPE[1])
    assert mx.quantize(given, fmt, out=into).equals(q)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_results_over_random_words_and_given_scales(fmt, place):
    x, memory = numbers("words"), Memory()
    words = samples.generator("overlap words").integers(0, 1 << 32, SHAPE, dtype=np.uint32)
    scales = mx.shared_scale(x, fmt, scale_rule="ceil")
    drawn = {"rounding": "sr", "random_bits": words}
    want, codes = mx.fake_quantize(x, fmt, **drawn), mx.encode(x, "e4m3", **drawn)
    out = memory.at(SHAPE, np.float32, 0)
    drawn["random_bits"] = memory.put(words, place)
    assert np.array_equal(mx.fake_quantize(x, fmt, out=out, **drawn), want)
    drawn["random_bits"] = memory.put(words, place)
    assert np.array_equal(mx.encode(x, "e4m3", out=memory.at(SHAPE, np.uint8, 0), **drawn), codes)
    q, want = mx.quantize(x, fmt, scales=scales), mx.fake_quantize(x, fmt, scales=scales)
    assert np.array_equal(mx.fake_quantize(x, fmt, scales=memory.put(scales, place), out=out), want)
    memory.bytes[:] = 0
    into = mx.MXArray.from_parts(memory.at(SHAPE, np.uint8, 0), np.zeros_like(scales), fmt)
    assert mx.quantize(x, fmt, scales=memory.put(scales, place), out=into).equals(q)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_square_array_into_its_own_transpose(fmt):
    """Check an output with the same address as the input, but with other strides."""
    x = samples.generator("square").standard_normal((512, 512)).astype(np.float32)
    want, b = mx.fake_quantize(x, fmt), x.copy()
    assert np.array_equal(mx.fake_quantize(b, fmt, out=b.T), want)
    assert np.array_equal(b.T, want)

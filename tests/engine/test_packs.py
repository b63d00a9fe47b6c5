"""Panels of codes and floats against tables and loops: every width, order, layout and edge."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import packs
from mxnum.formats import ELEMENTS
from tests import samples

USUAL = {name: element for name, element in ELEMENTS.items() if name in ("e4m3", "e5m2", "e2m1", "int8", "int4")}
#: One that no float16 is like, and one that has infinities where float16 has numbers.
MADE = {
    "e7m0": mx.ElementFormat("e7m0", 7, 0, 63),
    "e4m3 with infinity": mx.ElementFormat("e4m3", 4, 3, 7, specials="ieee"),
}


def matrix(element, rows, length, turned):
    codes = samples.generator("packs", element.name, rows, length).integers(
        0, 1 << element.bits, (rows, length), np.uint8
    )
    return codes, packs.Matrix(np.ascontiguousarray(codes.T), True) if turned else packs.Matrix(codes, False)


def values(element, codes):
    return mx.decode(codes, element, dtype="float64")


def unpacked(panels, rows):
    return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])[:rows]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("element", [*USUAL.values(), *MADE.values()], ids=[*USUAL, *MADE])
def test_codes_and_scales_apart(element, turned):
    rows, length, run = 71, 130, 32
    codes, source = matrix(element, rows, length, turned)
    scales = samples.generator("scales").integers(0, 256, (rows, 5), np.uint8)
    for word, width in product(("float32", "float64"), (1, 6, 8, 16, 32)):
        decoder, powers = packs.Decoder.of(element, word), packs.powers(word)
        assert (decoder.numbers is None) == (element in MADE.values())
        side = packs.Side(source, rows, length, scales, run, decoder, powers)
        with side.room(rows, width, word, apart=True) as room:
            room.panels[:] = 7
            panels, factors = side.pack(0, rows, room)
            assert panels.shape[1] == 160
            got, its_scales = unpacked(panels, rows), unpacked(factors, rows)
            assert np.array_equal(got[:, :length], values(element, codes), equal_nan=True)
            numbers = ~np.isnan(values(element, codes))
            assert np.array_equal(np.signbit(got[:, :length])[numbers], np.signbit(values(element, codes))[numbers])
            assert not got[:, length:].any()
            assert not unpacked(panels, None)[rows:].any()
            assert np.array_equal(its_scales, powers[scales], equal_nan=True)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("run", [1, 5, 16, 32, 200])
def test_values_under_their_scales(run, turned):
    rows, length, element = 40, 150, ELEMENTS["e5m2"]
    codes, source = matrix(element, rows, length, turned)
    scales = samples.generator("values", run).integers(0, 256, (rows, -(-length // run)), np.uint8)
    q = mx.MXArray.from_parts(codes, scales, mx.MXFormat(element, block=run))
    want = q.dequantize()
    for kind, width in product((element, None), (1, 8, 32, 9)):
        decoder = packs.Decoder.of(element, "float32")
        if kind is None:
            decoder = packs.Decoder(decoder.table, None, 1.0, False)
        side = packs.Side(source, rows, length, scales, run, decoder, packs.powers("float32"))
        with side.room(rows, width, "float32", apart=False) as room:
            got = unpacked(side.pack(0, rows, room)[0], rows)
            assert np.array_equal(got, want, equal_nan=True)
            some = unpacked(side.pack(3, 20, room, 7, 90)[0], 17)
            assert np.array_equal(some[:, :83], want[3:20, 7:90], equal_nan=True)


@pytest.mark.parametrize("turned", [False, True])
def test_floats(turned):
    x = samples.generator("floats").standard_normal((35, 50)).astype(np.float32)
    side = packs.Side(packs.Matrix.of(np.asfortranarray(x) if turned else x), 35, 50)
    assert side.source.turned == turned
    for width in (1, 8, 32):
        with side.room(35, width, "float32", apart=False) as room:
            room.panels[:] = 7
            panels, factors = side.pack(0, 35, room)
            assert factors is None
            assert np.array_equal(unpacked(panels, 35), x)
            assert not unpacked(panels, None)[35:].any()
            assert np.array_equal(unpacked(side.pack(2, 9, room, 4, 31)[0], 7)[:, :27], x[2:9, 4:31])


def test_room_is_used_again_and_never_by_two():
    side = packs.Side(packs.Matrix(np.zeros((4, 8), np.float32), False), 4, 8)
    with side.room(4, 8, "float32", apart=False) as first:
        with side.room(4, 8, "float32", apart=False) as second:
            assert not np.may_share_memory(first.panels, second.panels)
        with side.room(4, 8, "float32", apart=False) as third:
            assert np.may_share_memory(third.panels, second.panels)
    for _ in range(9):
        with side.room(1 << 24, 8, "float32", apart=False) as large:  # too large to keep; its pages are never touched
            assert large.panels.nbytes > packs.Room._SIZE
    assert sum(kept.nbytes for kept in packs.Room._kept) <= packs.Room._MOST * packs.Room._SIZE


def test_splitting():
    panels = np.array([[[1000.0], [-1000.0], [np.inf], [np.nan], [5.0], [1000.0]]])
    low = np.full_like(panels, 9)
    packs.split()(panels, low, np.array([1, 0, 1], np.uint8), 2, 16.0)
    assert panels[0, :2, 0].tolist() == [992, -992]
    assert low[0, :2, 0].tolist() == [8, -8]
    assert np.isnan(panels[0, 3, 0])
    assert (low[0, 2:4] == 9).all()
    assert (panels[0, 4:, 0].tolist(), low[0, 4:, 0].tolist()) == ([0, 992], [5, 8])

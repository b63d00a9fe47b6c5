"""Tests of packing codes or floats into panels, which hold a few rows side by side."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.products import panels
from mxnum.engine.products.by_floats import _POWERS
from mxnum.formats import ELEMENTS
from tests import samples

#: Element formats: one unlike float16, one with infinities where float16 has numbers, and one with
#: numbers where float16 has infinities. Regression: the largest numbers of the third format became
#: NaN.
MADE = {
    "e7m0": mx.ElementFormat("e7m0", 7, 0, 63),
    "e4m3 with infinity": mx.ElementFormat("e4m3", 4, 3, 7, specials="ieee"),
    "e5m2 without": mx.ElementFormat("e5m2", 5, 2, 15),
}


def lines(packed, rows=None):
    """Return the rows that are packed in panels."""
    return packed.transpose(0, 2, 1).reshape(-1, packed.shape[1])[:rows]


def as_stored(x, is_turned):
    return np.asfortranarray(x) if is_turned else x


@pytest.mark.parametrize("element", [*ELEMENTS.values(), *MADE.values()], ids=[*ELEMENTS, *MADE])
def test_every_code(element):
    """Check the value of every code in float32 and float64 panels, from both memory orders."""
    decoder, count = panels.decoder(element), 1 << element.bits
    assert decoder.fields.any() == (element not in MADE.values())
    codes = (np.arange(count + 3, dtype=np.uint16) % count).astype(np.uint8)
    values = np.array(element.values())[codes]
    numbers = ~np.isnan(values)
    for word, is_turned in product(("float32", "float64"), (False, True)):
        packed = panels.new_panels(17, codes.size, 16, word)
        panels.pack(as_stored(np.tile(codes, (17, 1)), is_turned), packed, decoder)
        for line in lines(packed, 17):
            assert np.array_equal(line, values, equal_nan=True)
            assert np.array_equal(np.signbit(line)[numbers], np.signbit(values)[numbers])


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("width", [6, 8, 16, 32])
@pytest.mark.parametrize("kind", ["codes", "scaled", "floats"])
def test_edges_are_zeros(kind, width, is_turned):
    rng = samples.generator("panels", width)
    for word, (rows, length) in product(("float32", "float64"), ((71, 130), (width, 8), (1, 7), (33, 1))):
        if (kind, word) == ("scaled", "float64"):
            continue
        decoder, scales = None if kind == "floats" else panels.decoder(ELEMENTS["e5m2"]), None
        if kind == "floats":
            given = values = rng.standard_normal((rows, length)).astype(np.float32)
        else:
            given = rng.integers(0, 256, (rows, length), np.uint8)
            values = decoder.table[given]
        packed = panels.new_panels(rows, length + 3, width, word)
        packed[:] = 7
        for run in (8, 5, 32) if kind == "scaled" else (1,):
            if kind == "scaled":
                powers = _POWERS[rng.integers(0, 256, (rows, -(-length // run)))]
                scales = panels.new_panels(rows, powers.shape[1], width, "float32")
                panels.pack(powers, scales)
                with np.errstate(all="ignore"):
                    want = values * np.repeat(powers, run, 1)[:, :length]
            else:
                want = values
            panels.pack(as_stored(given, is_turned), packed, decoder, scales, run if kind == "scaled" else 8)
            assert np.array_equal(lines(packed, rows)[:, :length], want, equal_nan=True)
            assert not packed[:, length:].any()
            assert not lines(packed)[rows:].any()


def test_rows_of_neither_order_are_copied():
    x = samples.generator("neither").standard_normal((9, 40)).astype(np.float32)[:, ::2]
    packed = panels.new_panels(9, 20, 8, "float32")
    panels.pack(x, packed)
    assert np.array_equal(lines(packed, 9), x)


def test_powers_by_scale_code():
    assert np.array_equal(_POWERS[:255].astype(np.float64), np.ldexp(1.0, np.arange(255) - 127))
    assert np.isnan(_POWERS[255])

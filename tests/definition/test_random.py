"""Tests that Philox equals its published vectors, numpy and the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum.definition.random import make_align_random, multiply_32x32, philox4x32
from mxnum.reference.random import philox4x32 as oracle

WORDS = st.integers(0, 0xFFFFFFFF)

#: The known answers of philox4x32 with 10 rounds, from the file kat_vectors of Random123.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN_ANSWERS)
def test_known_answers(counter, key, want):
    assert philox4x32(*counter, *key) == want


@given(st.tuples(WORDS, WORDS, WORDS, WORDS), st.tuples(WORDS, WORDS))
def test_philox_matches_the_oracle(counter, key):
    assert philox4x32(*counter, *key) == oracle(counter, key)


@given(WORDS, WORDS)
def test_products_are_exact_and_fit_int64_arrays(a, b):
    assert multiply_32x32(a, b) == ((a * b) >> 32, (a * b) & 0xFFFFFFFF)
    high, low = multiply_32x32(np.array([a], np.int64), np.int64(b))
    assert (int(high[0]), int(low[0])) == ((a * b) >> 32, (a * b) & 0xFFFFFFFF)


@given(st.integers(1, 30), WORDS, st.fractions(0, 1).filter(lambda f: f < 1))
def test_aligned_bits_decide_as_the_definition_does(r, word, delta):
    big_r = word & ((1 << r) - 1)
    by_definition = int(delta * 2**r) + big_r >= 2**r
    aligned = make_align_random(r)(word)
    assert 0 <= aligned < 1 << 30
    assert (int(delta * 2**30) + aligned >= 2**30) == by_definition

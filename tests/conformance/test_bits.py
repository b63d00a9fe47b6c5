from __future__ import annotations

import numpy as np

from mxnum.conformance.bits import Generator
from mxnum.formats import FLOATS


def test_random_words_are_the_same_everywhere():
    """Check random numbers against literals: if the generator changed, all vectors would change."""
    assert Generator(0).integers(0, 10**9, 3).tolist() == Generator(0).integers(0, 10**9, 3).tolist()
    assert Generator(1).integers(0, 10**9, 3).tolist() == FIRST


def test_ranges_and_shares():
    words = Generator(7)
    drawn = words.integers(-3, 4, 80000)
    counts = np.bincount(drawn + 3, minlength=8)
    assert (drawn.min(), drawn.max()) == (-3, 4)
    assert (abs(counts - 10000) < 5 * np.sqrt(10000)).all()
    assert abs(words.chance(0.25, 80000).mean() - 0.25) < 0.01
    bell = words.bell((50000,))
    assert abs(bell.mean()) < 0.02
    assert abs(bell.std() - 1) < 0.02


def test_patterns_of_every_width():
    for name, source in FLOATS.items():
        bits = Generator(3).patterns(source, (1000,))
        assert bits.dtype.itemsize * 8 == source.bits, name
        ones = sum(int(b).bit_count() for b in bits.tolist())
        assert abs(ones - 500 * source.bits) < 5 * np.sqrt(250 * source.bits)


FIRST = [303568034, 848708750, 156134778]

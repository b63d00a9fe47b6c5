"""Tests of the oracle's random words: published Philox vectors, and each element's counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxnum import reference
from mxnum.reference.random import philox4x32


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(counter: str, key: str, expected: str) -> None:
    def words(text: str) -> Any:
        return tuple(int(word, 16) for word in text.split())

    assert philox4x32(words(counter), words(key)) == words(expected)


def test_random_words() -> None:
    seed, stream = 0xA409382200000007, 0x0000000500000009
    words = reference.random_words((3, 7), seed=seed, stream=stream)
    assert words.dtype == np.uint32
    assert words.shape == (3, 7)
    for i in range(21):
        group = philox4x32((i // 4, 0, 9, 5), (7, 0xA4093822))
        assert words[i // 7, i % 7] == group[i % 4]
    assert reference.random_words(2, seed=0).tolist() == [0x6627E8D5, 0xE169C58D]
    assert reference.random_words((), seed=0) == 0x6627E8D5
    assert reference.random_words((0, 3), seed=0).shape == (0, 3)
    with pytest.raises(ValueError, match="'seed'"):
        reference.random_words(1, seed=2**64)

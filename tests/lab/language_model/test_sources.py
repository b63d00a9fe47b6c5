"""Tests of the sources of symbols: their entropies, their texts, and byte-pair encoding."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the extra torch is not installed")

from mxnum.lab.language_model import Markov, Setting, Text, pairs, source_of


@pytest.mark.parametrize(
    ("vocabulary", "order", "choices", "ratio"), [(64, 1, 4, 1.0), (7, 3, 3, 0.5), (4096, 2, 8, 0.9)]
)
def test_a_chain_has_the_entropy_that_it_says(vocabulary, order, choices, ratio):
    source = Markov(vocabulary, order, choices, ratio, seed=3)
    weights = [ratio**i for i in range(choices)]
    by_hand = -sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)
    assert source.entropy == pytest.approx((by_hand, by_hand))
    made = source.batch(np.random.default_rng(0), 64, 200)
    words = np.lib.stride_tricks.sliding_window_view(made, order, axis=1)[:, :-1]
    choice = source.next_of(words) == made[:, order:, None]
    assert (choice.sum(-1) == 1).all(), "each next symbol is exactly one of the choices"
    counts = choice.sum((0, 1)) / choice.sum()
    assert np.allclose(counts, source.probabilities, atol=0.02)


def test_choices_differ_between_words_and_seeds():
    every = np.arange(64)[:, None]
    first, second = (Markov(64, 1, 4, seed=seed).next_of(every) for seed in (0, 1))
    assert (first == second).mean() < 0.1
    assert len(np.unique(first[:, 0])) > 30


def test_words_of_a_class_have_the_same_choices():
    source = source_of(Setting(vocabulary=96, choices=4, classes=24))
    rows = source.next_of(np.arange(96)[:, None])
    classes = np.unique(np.sort(rows, axis=1), axis=0)
    assert len(classes) <= 24 < len(np.unique(Markov(96, 1, 4).next_of(np.arange(96)[:, None]), axis=0))
    assert len(classes) > 15
    assert len(np.unique(classes)) == classes.size, "classes share no symbol"
    assert source.entropy == pytest.approx((math.log(4), math.log(4)))
    with pytest.raises(ValueError, match=r"'classes' must be at most the vocabulary, 64"):
        Setting(classes=65)


def test_text_is_read_by_bytes(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(200)))
    made, held_out = (Text(path).batch(np.random.default_rng(0), 50, 11, part) for part in (False, True))
    assert made.shape == (50, 11)
    assert (np.diff(made, axis=1) == 1).all()
    assert made.max() <= 179
    assert held_out.min() >= 180
    with pytest.raises(ValueError, match="'text' must be a file with at least 21 symbols"):
        Text(path).batch(np.random.default_rng(0), 5, 21, held_out=True)
    with pytest.raises(ValueError, match=r"'vocabulary' must be 256 \(one symbol for each byte\) or more"):
        source_of(Setting(source="text", text=str(path)))


def test_text_in_pairs_of_bytes(tmp_path):
    path = tmp_path / "text"
    text = (" the cat sat on the mat; the hat is on the cat" * 40).encode()
    path.write_bytes(text)
    source = source_of(Setting(source="text", text=str(path), vocabulary=270))
    encoded = pairs.encode(text, 270)
    assert encoded.decode(encoded.symbols) == text
    assert source.bytes_per_symbol == len(text) / len(encoded.symbols) > 2
    assert source.batch(np.random.default_rng(0), 4, 20).max() < 270
    with pytest.raises(
        ValueError,
        match=r"'vocabulary' must be at most 2\d\d, because the text has no more pairs, not "
        r"4096",
    ):
        pairs.encode(text, 4096)


@given(st.binary(min_size=2, max_size=80), st.integers(1, 12))
def test_pairs_equal_those_of_a_naive_encoder(text, more):
    """Check byte-pair encoding against an encoder that counts all pairs again before each merge.

    Each merge replaces the commonest pair of symbols in all words, from left to right. If several
    pairs are equally common, the merge replaces the smallest pair.
    """
    words = [list(word) for word in re.findall(rb"\s*\S+|\s+", text)]
    for new in range(256, 256 + more):
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            with pytest.raises(ValueError, match="'vocabulary' must be at most"):
                pairs.encode(text, 256 + more)
            return
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        for word in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = [new]
                at += 1
    encoded = pairs.encode(text, 256 + more)
    assert encoded.symbols.tolist() == [symbol for word in words for symbol in word]
    assert encoded.decode(encoded.symbols) == text

"""Define the sources that language models learn: Markov chains of known entropy, and texts.

A batch is an int64 array of shape (sequences, length), and depends only on the given random
generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mxnum import errors
from mxnum.lab.language_model import pairs
from mxnum.lab.language_model.setting import Setting
from mxnum.memory.dtypes import Array
from mxnum.output.files import as_path


class Source(Protocol):
    """A source of batches."""

    vocabulary: int
    #: The number of previous symbols on which the next symbol depends.
    order: int

    @property
    def entropy(self) -> tuple[float, float] | None:
        """Bounds of the entropy of the next symbol in nats; None if the entropy is unknown.

        The bounds are equal if the entropy is known exactly.
        """

    def batch(self, random: np.random.Generator, sequences: int, length: int, held_out: bool = False) -> Array:
        """Return random sequences.

        With `held_out`, sequences of a text come from the part that training does not use.
        """


class Markov:
    """A Markov chain of any order, whose entropy is known exactly.

    A *word* is a sequence of `order` symbols. A hash of the word selects the `choices` symbols that
    can follow, so the chain stores no table of words. The probabilities of the choices are the same
    after every word, so the entropy of the chain is the entropy of `probabilities`. If `classes` is
    above 0, words are divided into this many classes, and all words of a class have the same
    possible next symbols. If there are exactly vocabulary / choices classes, no symbol can follow
    words of different classes.
    """

    def __init__(
        self, vocabulary: int, order: int = 1, choices: int = 4, ratio: float = 1.0, seed: int = 0, classes: int = 0
    ):
        self.vocabulary, self.order = vocabulary, order
        weights = np.power(ratio, np.arange(choices), dtype=np.float64)
        self.probabilities = weights / weights.sum()
        random = np.random.default_rng([seed, vocabulary, order, choices])
        #: `_symbols` has the symbols in shuffled order. A word's hash selects a position in
        #: `_symbols`, and `_apart` has the distances from there to the symbols that can follow.
        self._symbols, self._apart = random.permutation(vocabulary), random.permutation(vocabulary)[:choices]
        self._positions = classes or vocabulary
        if classes:
            self._apart = np.arange(choices) * (vocabulary // choices)
        self._multipliers = random.integers(1 << 62, size=order, dtype=np.uint64) * np.uint64(2) + np.uint64(1)

    @property
    def entropy(self) -> tuple[float, float]:
        exact = -math.fsum(p * math.log(p) for p in self.probabilities if p > 0)
        return exact, exact

    def next_of(self, words: Array) -> Array:
        """Return the symbols that can follow each word, in the order of `probabilities`.

        The last axis of `words` has the symbols of one word.
        """
        with np.errstate(over="ignore"):
            mixed = ((words.astype(np.uint64) + np.uint64(1)) * self._multipliers).sum(axis=-1, dtype=np.uint64)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the last step of splitmix64
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        positions = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(self._positions)).astype(np.int64)
        found: Array = self._symbols[(positions[..., None] + self._apart) % self.vocabulary]
        return found

    def batch(self, random: np.random.Generator, sequences: int, length: int, held_out: bool = False) -> Array:
        made = np.empty((sequences, length), np.int64)
        first = min(self.order, length)
        made[:, :first] = random.integers(self.vocabulary, size=(sequences, first))
        limits, drawn = np.cumsum(self.probabilities)[:-1], random.random((sequences, length))
        for t in range(first, length):
            which = np.searchsorted(limits, drawn[:, t], "right")
            made[:, t] = np.take_along_axis(self.next_of(made[:, t - self.order : t]), which[:, None], 1)[:, 0]
        return made


class Text:
    """A text file as symbols of one byte or more; its last tenth is held out."""

    order = 0
    entropy = None

    def __init__(self, path: str | Path, vocabulary: int = 256):
        self.vocabulary = vocabulary
        text = as_path(path).read_bytes()
        symbols, self.meanings = _encoded(text, vocabulary)
        self._parts = np.split(symbols, [len(symbols) - len(symbols) // 10])
        #: The mean number of bytes per symbol. Divide losses by this number to compare models of
        #: different vocabularies.
        self.bytes_per_symbol = len(text) / max(len(symbols), 1)

    def batch(self, random: np.random.Generator, sequences: int, length: int, held_out: bool = False) -> Array:
        symbols = self._parts[held_out]
        accepted = f"a file with at least {length} symbols in its last tenth (held out), and as many before that"
        errors.require(len(symbols) >= length, "text", accepted, f"one with {len(symbols)}")
        starts = random.integers(len(symbols) - length + 1, size=sequences)
        found: Array = symbols[starts[:, None] + np.arange(length)].astype(np.int64)
        return found


@lru_cache(2)
def _encoded(text: bytes, vocabulary: int) -> pairs.Encoded:
    """Return the encoded text, from a cache, because all runs of a study read the same text."""
    return pairs.encode(text, vocabulary)


def source_of(setting: Setting) -> Source:
    """Return the source that a setting describes."""
    if setting.source == "text":
        accepted = "256 (one symbol for each byte) or more (symbols for pairs too)"
        errors.require(setting.vocabulary >= 256, "vocabulary", accepted, setting.vocabulary)
        return Text(setting.text, setting.vocabulary)
    chain = setting.order, setting.choices, setting.ratio, setting.source_seed, setting.classes
    return Markov(setting.vocabulary, *chain)


#: Keys of a run's random streams: initial weights, training batches, evaluation batches.
START, TRAINING, EVALUATION = range(3)


def generator(seed: int, what: Sequence[int] | Any) -> np.random.Generator:
    """Return the random generator for a seed and a purpose, and for a batch index if given."""
    return np.random.default_rng([seed, *what])

"""Sources that language models learn: of known entropy, or any file by bytes or pairs.

A batch is int64 of shape (sequences, length), and depends only on the random generator that is
passed.
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
    #: The number of previous symbols that a reader needs to reach the entropy.
    order: int

    @property
    def entropy(self) -> tuple[float, float] | None:
        """The bounds of the next symbol's entropy in nats; None if nothing is known.

        The bounds are equal if the entropy is known exactly.
        """

    def batch(self, random: np.random.Generator, sequences: int, length: int, held_out: bool = False) -> Array:
        """Return random sequences; with `held_out`, from the part that training does not read."""


class Markov:
    """A Markov chain of any order, whose entropy is exact.

    After each word of `order` symbols come `choices` others, by probabilities that are the same for
    every word; which symbols these are looks random. So the entropy is that of the probabilities,
    whatever the words' frequencies are, and the chain needs no table of words. With `classes` above
    0 the choices of a word depend on its class alone; with vocabulary / choices classes, each
    symbol is a choice of one class.
    """

    def __init__(
        self, vocabulary: int, order: int = 1, choices: int = 4, ratio: float = 1.0, seed: int = 0, classes: int = 0
    ):
        self.vocabulary, self.order = vocabulary, order
        weights = np.power(ratio, np.arange(choices), dtype=np.float64)
        self.probabilities = weights / weights.sum()
        random = np.random.default_rng([seed, vocabulary, order, choices])
        #: The symbol at each position of a shuffled vocabulary, and the offsets of a word's choices
        #: from the position of the word.
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
        """Return the choices after each word, in the order of `probabilities`.

        Words lie along the last axis of `words`.
        """
        with np.errstate(over="ignore"):
            mixed = ((words.astype(np.uint64) + np.uint64(1)) * self._multipliers).sum(axis=-1, dtype=np.uint64)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finalizer of splitmix64
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
    """A file read from random positions, as symbols of one byte or more.

    The last tenth is held out.
    """

    order = 0
    entropy = None

    def __init__(self, path: str | Path, vocabulary: int = 256):
        self.vocabulary = vocabulary
        text = as_path(path).read_bytes()
        symbols, self.meanings = _encoded(text, vocabulary)
        self._parts = np.split(symbols, [len(symbols) - len(symbols) // 10])
        #: A loss in nats per symbol is divided by this to compare vocabularies.
        self.bytes_per_symbol = len(text) / max(len(symbols), 1)

    def batch(self, random: np.random.Generator, sequences: int, length: int, held_out: bool = False) -> Array:
        symbols = self._parts[held_out]
        accepted = f"a file of which each part has at least {length} symbols (the last tenth is held out)"
        errors.require(len(symbols) >= length, "text", accepted, f"one with {len(symbols)}")
        starts = random.integers(len(symbols) - length + 1, size=sequences)
        found: Array = symbols[starts[:, None] + np.arange(length)].astype(np.int64)
        return found


@lru_cache(2)
def _encoded(text: bytes, vocabulary: int) -> pairs.Encoded:
    """Return the encoded text, cached since all runs of a study read the same text."""
    return pairs.encode(text, vocabulary)


def source_of(setting: Setting) -> Source:
    """Return the source of a setting."""
    if setting.source == "text":
        accepted = "256 for the bytes of a text, or more for pairs of them"
        errors.require(setting.vocabulary >= 256, "vocabulary", accepted, setting.vocabulary)
        return Text(setting.text, setting.vocabulary)
    chain = setting.order, setting.choices, setting.ratio, setting.source_seed, setting.classes
    return Markov(setting.vocabulary, *chain)


#: Purposes of the random streams of a run.
START, TRAINING, EVALUATION = range(3)


def generator(seed: int, what: Sequence[int] | Any) -> np.random.Generator:
    """Return a run's random generator for one purpose, so that it can resume at any step."""
    return np.random.default_rng([seed, *what])

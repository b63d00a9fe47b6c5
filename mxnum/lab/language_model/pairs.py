"""Encode a text by byte pairs: repeatedly replace the commonest pair of symbols by a new symbol."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mxnum.memory.dtypes import Array

#: Matches a word with the white space before it; pairs are counted only within a match.
_WORD = re.compile(rb"\s*\S+|\s+")


class Encoded(NamedTuple):
    """A text as a sequence of symbols, and the bytes that each symbol represents."""

    symbols: Array
    meanings: tuple[bytes, ...]

    def decode(self, symbols: Array) -> bytes:
        """Return the bytes that the symbols represent."""
        return b"".join(self.meanings[symbol] for symbol in symbols)


def encode(text: bytes, vocabulary: int) -> Encoded:
    """Return the text encoded with `vocabulary` symbols; the first 256 symbols are the bytes.

    If several pairs are equally common, the lexicographically smallest pair of symbols is merged
    first. So the encoding of a text is the same on every machine.

    >>> encode(b"abab abab cab", 258).symbols.tolist()
    [257, 32, 257, 32, 99, 256]
    """
    order = _WORD.findall(text)
    counts = Counter(order)
    words = {word: list(word) for word in counts}
    pairs: Counter[tuple[int, int]] = Counter()
    words_with: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
    for word, symbols in words.items():
        for pair in pairwise(symbols):
            pairs[pair] += counts[word]
            words_with[pair].add(word)
    meanings = [bytes([value]) for value in range(256)]
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    while len(meanings) < vocabulary:
        count, pair = heapq.heappop(heap) if heap else (0, (0, 0))
        if count == 0:
            accepted = f"at most {len(meanings)}, because the text has no more pairs"
            raise ValueError(f"Argument 'vocabulary' must be {accepted}, not {vocabulary}.")
        if pairs[pair] != -count:
            continue  # this count is outdated; another entry of the heap has the current count
        new, changed = len(meanings), set()
        meanings.append(meanings[pair[0]] + meanings[pair[1]])
        for word in words_with.pop(pair):
            before, after = words[word], _merged(words[word], pair, new)
            for old in pairwise(before):
                pairs[old] -= counts[word]
                changed.add(old)
            for made in pairwise(after):
                pairs[made] += counts[word]
                words_with[made].add(word)
                changed.add(made)
            words[word] = after
        for each in changed:
            heapq.heappush(heap, (-pairs[each], each))
    parts = {word: np.array(symbols, np.int32) for word, symbols in words.items()}
    whole = np.concatenate([parts[word] for word in order]) if order else np.zeros(0, np.int32)
    return Encoded(whole, tuple(meanings))


def _merged(symbols: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """Return the symbols with each occurrence of the pair replaced by `new`, from the left."""
    made: list[int] = []
    at = 0
    while at < len(symbols):
        is_pair = tuple(symbols[at : at + 2]) == pair
        made.append(new if is_pair else symbols[at])
        at += 1 + is_pair
    return made

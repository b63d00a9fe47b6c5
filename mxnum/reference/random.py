"""The random words of stochastic rounding."""

from __future__ import annotations

import numpy as np

from mxnum import errors
from mxnum.reference.blocks import Array


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return four random 32-bit words, by Philox4x32-10 (Salmon et al. 2011).

    Each of ten rounds multiplies two words of the counter by constants and combines the halves of
    the 64-bit products with the other words and the key. The key increases by a constant from round
    to round.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def random_words(shape: int | tuple[int, ...], *, seed: int, stream: int = 0) -> Array:
    """Return the random words that stochastic rounding uses for an array of this shape.

    The words depend only on seed, stream and index. The word at C-order index i is word i mod 4 of
    the four words that Philox returns. The counter holds the low and the high half of i // 4, then
    the low and the high half of the stream. The key holds the low and the high half of the seed.
    """
    seed_high, seed_low = divmod(errors.integer("seed", seed, 0, 2**64 - 1), 2**32)
    stream_high, stream_low = divmod(errors.integer("stream", stream, 0, 2**64 - 1), 2**32)
    result: Array = np.zeros(shape, np.uint32)
    for i in range(result.size):
        group_high, group_low = divmod(i // 4, 2**32)
        result.flat[i] = philox4x32((group_low, group_high, stream_low, stream_high), (seed_low, seed_high))[i % 4]
    return result

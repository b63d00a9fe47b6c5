"""Other orders of the codes of a block, which mistakes in packing, unpacking and vector code produce."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mxnum.conformance.answers import unpacked
from mxnum.memory.dtypes import Array

Change = Callable[[Array], Array]


def orders(block: int, bits: int) -> Iterator[tuple[str, Change]]:
    """Yield the names of orders, and functions that put rows of codes in them. No two orders are the same."""
    straight = np.arange(block)
    seen = {straight.tobytes()}
    for name, order in _permutations(straight, bits):
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield name, _permuted(order)
    if bits < 8 and bits != 4:  # with four bits this order is the swapped nibbles above
        yield "the right codes packed from the highest bit of each byte", _packed_from_the_top(block, bits)


def _permuted(order: Array) -> Change:
    return lambda codes: codes[:, order]


def _packed_from_the_top(block: int, bits: int) -> Change:
    def change(codes: Array) -> Array:
        digits = (codes[:, :, None] >> np.arange(bits, dtype=np.uint8)[::-1]) & 1
        return unpacked(np.packbits(digits.reshape(len(digits), -1), axis=1), block, bits)

    return change


def _permutations(straight: Array, bits: int) -> Iterator[tuple[str, Array]]:
    """Yield the names of orders, and the index of the right code at each position."""
    block = len(straight)
    even = block % 2 == 0
    if even:
        how = "with the two nibbles of each byte swapped" if bits == 4 else "with neighbours swapped"
        yield f"the right codes {how}", straight.reshape(-1, 2)[:, ::-1].ravel()
    yield "the right codes of each block in reverse", straight[::-1].copy()
    if even:
        pairs = straight.reshape(-1, 2)[::-1].ravel()
        yield "the right codes of each block with its bytes in reverse (two codes a byte)", pairs
    for size in (4, 8, 16):
        if block % size == 0:
            within = straight.reshape(-1, size)[:, ::-1].ravel()
            yield f"the right codes with each group of {size} in reverse", within
    if block % 8 == 0:
        within = straight.reshape(-1, 4, 2)[:, ::-1].ravel()
        yield "the right codes with the bytes of each 4-byte word in reverse (two codes a byte)", within
    for rows in (2, block // 2, 4, 8, block // 4, block // 8):
        if rows > 1 and block % rows == 0:
            which = {2: "its two halves interleaved", block // 2: "its even places before its odd ones"}
            how = which.get(rows, f"its places as a transposed {rows} x {block // rows} table")
            yield f"the right codes of each block with {how}", straight.reshape(rows, -1).T.ravel()

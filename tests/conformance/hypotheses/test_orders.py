from __future__ import annotations

import numpy as np
import pytest

from mxnum.conformance.bits import unpacked
from mxnum.conformance.hypotheses.arrangements import orders


@pytest.mark.parametrize(("block", "bits"), [(32, 4), (32, 6), (32, 8), (7, 4), (2, 4), (1, 8), (16, 4)])
def test_orders_are_all_different(block, bits):
    codes = (np.random.default_rng(3).permutation(block * 40) % (1 << bits)).reshape(-1, block).astype(np.uint8)
    found = {name: change(codes) for name, change in orders(block, bits)}
    assert (
        len({answer.tobytes() for answer in [codes, *(a.astype(np.uint8) for a in found.values())]}) == len(found) + 1
    )
    for name, answer in found.items():
        if "highest bit" not in name:
            assert np.array_equal(np.sort(answer, axis=1), np.sort(codes, axis=1)), name


def test_names_of_orders_are_right():
    found = dict(orders(32, 4))
    codes = np.arange(32, dtype=np.uint8)[None] % 16
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    swapped = packed >> 4 | packed << 4
    assert np.array_equal(
        found["the right codes with the two nibbles of each byte swapped"](codes), unpacked(swapped, 32, 4)
    )
    halves = codes[:, :16] | codes[:, 16:] << 4
    assert np.array_equal(
        found["the right codes of each block with its two halves interleaved"](codes), unpacked(halves, 32, 4)
    )
    backwards = packed[:, ::-1]
    name = "the right codes of each block with its bytes in reverse (two codes a byte)"
    assert np.array_equal(found[name](codes), unpacked(backwards, 32, 4))
    words = packed.view(">u4").astype("<u4").view(np.uint8)
    name = "the right codes with the bytes of each 4-byte word in reverse (two codes a byte)"
    assert np.array_equal(found[name](codes), unpacked(words, 32, 4))

"""Tests that a request splits seed and stream into four 32-bit words."""

from __future__ import annotations

from mxnum.engine.request import RandomBits


def test_seed_and_stream_become_four_words():
    assert RandomBits(30, seed=1, stream=1 << 32).key == (1, 0, 0, 1)

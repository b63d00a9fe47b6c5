"""Tests that smaller blocks have larger errors only where claim B8 says so."""

from __future__ import annotations

from itertools import pairwise

from mxnum.lab.claims.rows import b08


def test_smaller_blocks_are_worse_only_where_scales_underflow():
    def rises(fmt, sigma):
        return any(small > large for small, large in pairwise(b08.relative_errors(fmt, sigma)))

    assert rises("e2m1:scale=e4m3", 2.0**-8)
    assert not rises("e2m1:scale=e4m3", 1.0)
    assert not rises("nvfp4", 2.0**-8)

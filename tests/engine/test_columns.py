"""Loops along bands of rows: which rows a band has."""

from __future__ import annotations

from mxnum.engine import columns


def test_bands_of_all_planes():
    shape = 70, 8, 32, 1, 8
    assert [columns.rows_of(band, shape) for band in range(6)] == [
        (0, 32), (32, 64), (64, 70), (70, 102), (102, 134), (134, 140),
    ]  # fmt: skip

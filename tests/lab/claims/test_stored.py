"""Tests of the run counts that are stored in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxnum.lab import storage
from mxnum.lab.claims import (
    stored,
)

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"


def test_the_counts_that_ship_are_those_of_the_stored_studies():
    command = "python -m mxnum.lab.claims.stored docs/lab/results"
    assert storage.read_json(stored.PATH) == stored.counted(RESULTS), f"out of date: run {command}"

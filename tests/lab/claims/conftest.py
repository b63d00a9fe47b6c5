"""Checks of claims whose answers several files look at are run once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mxnum.lab.claims import reproduce

RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"


@pytest.fixture(scope="session")
def checked():
    """The entry of a claim, by its name, from the stored results and the package as they are."""
    return cache(lambda id: reproduce([id], results=RESULTS)[id])

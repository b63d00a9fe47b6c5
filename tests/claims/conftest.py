"""Checks of claims whose answers several files look at are run once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mxnum.claims import reproduce

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="session")
def checked():
    """The entry of a claim, by its name, from the stored results and the package as they are."""
    return cache(lambda id: reproduce([id], results=RESULTS)[id])

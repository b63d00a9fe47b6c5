"""Fixtures that check a claim once for several test files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mxnum.lab.claims import CLAIMS, Context, losses, reproduce
from mxnum.lab.claims.rows import i10

RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"


@pytest.fixture(scope="session")
def checked():
    """Return a function that checks a claim on stored results, once, and returns its entry."""
    return cache(lambda id: reproduce([id], results=RESULTS)[id])


@pytest.fixture(scope="session")
def held(checked):
    """Return a function that maps a claim's id to a dictionary {statement: True if it holds}."""
    return lambda id: {s.what: s.holds for s in checked(id).evidence.statements}


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path)


@pytest.fixture
def fake(monkeypatch):
    """Return a function that replaces a claim's check, and lets the check use no files."""

    def replace(id, run, **changes):
        for name, value in {"run": run, "needs": (), "takes": (), **changes}.items():
            monkeypatch.setattr(CLAIMS[id], name, value)

    return replace


@pytest.fixture
def altered(monkeypatch):
    """Yield a function that applies a change to all published losses that checks read."""

    def alter(change):
        changed = tuple(change(run) for run in losses.runs())
        monkeypatch.setattr(losses, "runs", lambda: changed)
        i10.fit.cache_clear()

    yield alter
    i10.fit.cache_clear()

"""Checks of claims whose answers several files look at are run once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mxnum.lab.claims import CLAIMS, Context, losses, reproduce
from mxnum.lab.claims.rows import i10

RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"


@pytest.fixture(scope="session")
def checked():
    """The entry of a claim, by its name, from the stored results and the package as they are."""
    return cache(lambda id: reproduce([id], results=RESULTS)[id])


@pytest.fixture(scope="session")
def held(checked):
    """What a claim's statements say, and whether they hold."""
    return lambda id: {s.what: s.holds for s in checked(id).evidence.statements}


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path)


@pytest.fixture
def fake(monkeypatch):
    """Replaces the check of a claim, and what it needs."""

    def replace(id, run, **changes):
        for name, value in {"run": run, "needs": (), "takes": (), **changes}.items():
            monkeypatch.setattr(CLAIMS[id], name, value)

    return replace


@pytest.fixture
def altered(monkeypatch):
    """Makes checks see other published losses."""

    def alter(change):
        changed = tuple(change(run) for run in losses.runs())
        monkeypatch.setattr(losses, "runs", lambda: changed)
        i10.fit.cache_clear()

    yield alter
    i10.fit.cache_clear()

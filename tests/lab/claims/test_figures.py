"""Tests that figures need only stored results, and are valid parts of the report's page."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")

from mxnum.lab.claims import CLAIMS, figures
from mxnum.lab.claims.figures import inline
from mxnum.lab.claims.report_folder import ReportFolder

RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"
DRAWN = [id for id, claim in CLAIMS.items() if claim.figures and id != "M2"]


def figures_of(id, store):
    return figures.figures_of(CLAIMS[id], store.context())


@pytest.fixture
def store(tmp_path):
    """Return a report folder with the stored results and made-up layer-norm weights (gamma)."""
    store = ReportFolder(tmp_path)
    store.results.mkdir(parents=True)
    for path in RESULTS.glob("*.json"):
        (store.results / path.name).write_text(path.read_text())
    store.context().keep("clamped-block", {"master": np.ones((5, 3)), "value": np.ones((5, 3)), "losses": np.ones(5)})
    return store


@pytest.mark.parametrize("id", DRAWN)
def test_figures_are_part_of_the_page(store, id):
    found = figures_of(id, store)
    for figure in found:
        root = ElementTree.fromstring(figure.svg.replace("<svg", '<svg xmlns:x="x"', 1))
        assert root.get("role") == "img"
        assert root.get("aria-label") == figure.caption
        assert root.get("viewBox")
        assert root.get("width") is None
        assert "currentColor" in figure.svg
        assert "#010203" not in figure.svg
        assert len(figure.svg) < 200_000
    assert found or id in ("M1", "M10", "B6"), "no figure, although its results are stored"


def test_a_run_that_failed_does_not_cost_the_figure_of_the_others(store):
    """Check that a figure is drawn even if the FP32 arm lacks a seed that other arms have."""
    path = store.results / "recipes.json"
    table = json.loads(path.read_text())
    del table["arms"]["recipe FP32"]["runs"][0]
    path.write_text(json.dumps(table))
    assert len(figures_of("M1", store)) == 1
    del table["arms"]["recipe FP32"]
    path.write_text(json.dumps(table))
    assert figures_of("M1", store) == []


def test_without_results_there_is_no_figure(tmp_path):
    for id in ("I5", "I6c", "I7", "M1", "B2", "B3", "B6"):
        assert figures_of(id, ReportFolder(tmp_path)) == []


def test_figures_on_one_page_have_distinct_ids(store):
    import re

    first, second = (figures_of(id, store)[0].svg for id in ("I1", "I3"))
    names = [set(re.findall(r'<clipPath id="([^"]*)"', svg)) for svg in (first, second)]
    assert names[0]
    assert names[0].isdisjoint(names[1])


def test_rates_and_recipes(tmp_path):
    store = ReportFolder(tmp_path)
    store.results.mkdir(parents=True)
    runs = [{"seed": s, "diverged": None if s else 5, "steps": 10, "last_loss": 1.0 + s} for s in range(3)]
    arm = {"experiment": {"steps": 10, "rate": 0.012}, "runs": runs}
    for name, arms in {
        "critical-rate": ("FP32, rate 0.012", "E2M1, rate 0.012"), "recipes": ("recipe FP32", "recipe E2M1 floor"),
    }.items():  # fmt: skip
        (store.results / f"{name}.json").write_text(json.dumps({"arms": dict.fromkeys(arms, arm)}))
    assert [len(figures_of(id, store)) for id in ("B6", "M1", "M10")] == [1, 1, 1]


def test_descriptions_are_escaped():
    assert 'aria-label="a &quot;b&quot; &lt;"' in inline('<?xml?><svg width="3"><g/></svg>', 'a "b" <')

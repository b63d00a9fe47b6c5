"""What the checks of single formats find, and that they notice a wrong claim and a wrong kernel."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.claims import Verdict, elements, reproduce


@pytest.mark.parametrize("id", ["I1", "I2", "I3", "I4", "M9"])
def test_reproduced(id):
    entry = reproduce([id])[id]
    assert entry.verdict == Verdict.REPRODUCED, [str(item) for item in entry.evidence.comparisons]


def test_the_answer_of_i1_says_what_rounding_alone_gives():
    answer = reproduce(["I1"])["I1"].evidence.answer
    assert answer.startswith("All 5 weights become 448, though rounding alone would give 448 too. In")


def test_the_grid_of_mantissas_is_exact():
    f = elements.mantissas()
    assert np.array_equal(f.astype(np.float64), 1 + (np.arange(1 << 16) + 0.5) / (1 << 16))


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setitem(elements._OVERFLOW, "mxint8", ((1.56, 0.005), (1.15, 0.005), (0.78, 0.005)))
    entry = reproduce(["I2"])["I2"]
    assert entry.verdict == Verdict.DIFFERS
    assert [c.what for c in entry.evidence.comparisons if not c.agrees] == ["mxint8: overflow %, log-uniform"]


def test_a_wrong_scale_rule_is_noticed(monkeypatch):
    real = elements.measure
    monkeypatch.setattr(elements, "measure", lambda *a, **k: real(*a, **k, scale_rule="even"))
    assert reproduce(["I1"])["I1"].verdict == Verdict.DIFFERS

"""The rows about NVFP4: what they find, and that a wrong figure would be seen."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.claims import Verdict, float_scales, reproduce


@pytest.fixture(scope="module")
def report(checked):
    return {id: checked(id) for id in ("B7", "B8", "B9", "B10")}


def test_verdicts(report):
    found = {id: entry.verdict for id, entry in report.items()}
    assert found == {
        "B7": Verdict.CORRECTED, "B8": Verdict.REPRODUCED, "B9": Verdict.REPRODUCED, "B10": Verdict.REPRODUCED,
    }  # fmt: skip
    for entry in report.values():
        assert all(s.holds for s in entry.evidence.statements), [str(s) for s in entry.evidence.statements]


def test_only_last_digits_of_the_bias_differ(report):
    off = [c for c in report["B7"].evidence.comparisons if not c.agrees]
    assert len(off) == 4
    assert all(abs(c.found - c.claimed) < 1e-4 for c in off)


def test_smaller_blocks_are_worse_only_where_scales_underflow():
    assert float_scales._rising(float_scales.relative_errors("e2m1:scale=e4m3", 2.0**-8))
    assert not float_scales._rising(float_scales.relative_errors("e2m1:scale=e4m3", 1.0))
    assert not float_scales._rising(float_scales.relative_errors("nvfp4", 2.0**-8))
    assert float_scales._rising([1.0, 2.0, 1.9])


def test_the_transform_of_an_outlier():
    """One number alone in a block, and its copies: what is lost is a scale's rounding, a part in 17 at most."""
    x = np.zeros((4, 16), np.float32)
    x[:, 3] = 1, 2, 3, 5
    assert (float_scales.by_block(x, "nvfp4", False) < 1 / 17**2).all()
    assert (float_scales.by_block(x, "nvfp4", True) < 1 / 17**2).all()


def test_a_wrong_figure_is_noticed(monkeypatch):
    monkeypatch.setattr(float_scales, "_TENSOR_SCALE", float(np.float32(3 / 2688)))
    evidence = reproduce(["B9"])["B9"].evidence
    assert not evidence.comparisons[0].agrees

"""Every fast formulation has its evidence."""

from __future__ import annotations

import pytest

from mxnum.engine import paths
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding

pytest.importorskip("z3", reason="theorems are stated with z3")


@pytest.mark.parametrize("path", paths.PATHS, ids=lambda path: path.name)
def test_every_row_names_theorems_that_exist(path):
    from proofs.runner import collect

    theorems = collect().theorems
    assert path.evidence
    for element in path.elements:
        for name in path.evidence:
            assert theorems[name.format(element)].tier == "fast"


def test_dispatch_reads_the_table():
    float32, e4m3, e2m1 = FLOATS["float32"], ELEMENTS["e4m3"], ELEMENTS["e2m1"]
    assert paths.rounds_fast(float32, e4m3, Rounding.RNE, Overflow.SATURATE)
    assert paths.rounds_fast(float32, e2m1, Rounding.RNE, Overflow.IEEE)
    assert not paths.rounds_fast(float32, e4m3, Rounding.RNE, Overflow.IEEE)
    assert not paths.rounds_fast(FLOATS["float64"], e4m3, Rounding.RNE, Overflow.SATURATE)
    assert not paths.rounds_fast(float32, ELEMENTS["e3m0"], Rounding.RNE, Overflow.SATURATE)
    assert paths.decodes_fast(ELEMENTS["e3m0"], float32)
    assert not paths.decodes_fast(e4m3, FLOATS["bfloat16"])

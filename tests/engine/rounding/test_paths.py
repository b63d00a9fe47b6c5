"""Every fast formulation has its evidence."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from mxnum.engine.rounding import paths
from mxnum.formats import ELEMENTS, FLOATS, SCALES
from mxnum.modes import FloatScaleRule, Overflow, Rounding, ScaleRule

pytest.importorskip("z3", reason="theorems are stated with z3")


def scales(path):
    """(rule of E8M0, rule of floats, float) of a path."""
    if not path.scales:
        return [(rule, None, None) for rule in ScaleRule]
    return [(None, rule, scale) for rule in path.rules or [None] for scale in path.scales]


def cases(path):
    """What the braces in a path's evidence stand for."""
    for element, type_, rounding, overflow, (rule, float_rule, scale) in product(
        path.elements, path.float_types, path.roundings, Overflow, scales(path)
    ):
        if overflow == Overflow.SATURATE or ELEMENTS[element].specials != "none":
            modes = {"rounding": rounding, "overflow": overflow, "rule": rule}
            modes |= {"float_rule": float_rule, "scale": scale}
            yield {"element": element, "type": type_, "m": ELEMENTS[element].mantissa_bits, **modes}


@pytest.mark.parametrize("path", paths.PATHS, ids=lambda path: path.name)
def test_every_row_names_theorems_that_exist(path):
    from proofs.runner import collect

    theorems = collect().theorems
    names = {name.format(**case) for name in path.evidence for case in cases(path)}
    assert names
    assert names <= theorems.keys()
    slow = "magic/code/", "magic/value/", "magic/difference/", "magic/sum/"
    usual = {name for name in names if "/sr/" not in name and (not name.startswith(slow) or "/rne/" in name)}
    names_for_any = {
        name.format(**{**case, "m": m}) for name in path.evidence_for_any for case in cases(path) for m in range(7)
    }
    assert names_for_any <= theorems.keys()
    assert all(theorems[name].tier == "fast" for name in usual)


def test_dispatch_reads_the_table():
    float32, e4m3, e2m1 = FLOATS["float32"], ELEMENTS["e4m3"], ELEMENTS["e2m1"]
    rne, sr = Rounding.RNE, Rounding.SR
    assert paths.rounds_fast(float32, e4m3, rne)
    assert paths.rounds_fast(FLOATS["bfloat16"], ELEMENTS["e3m0"], rne)
    assert paths.rounds_fast(FLOATS["float64"], e2m1, sr)


def test_formats_of_users():
    float32, float64 = FLOATS["float32"], FLOATS["float64"]
    user = dataclasses.replace(ELEMENTS["e4m3"], bias=8)
    wide = dataclasses.replace(user, mantissa_bits=4)
    assert paths.rounds_fast(float32, user, Rounding.SR)
    assert paths.rounds_fast(float64, user, Rounding.RNE)
    assert not paths.rounds_fast(float64, user, Rounding.SR)
    assert not paths.rounds_fast(float32, wide, Rounding.RNE)
    canonical = dataclasses.replace(ELEMENTS["e5m2"], name="mine", canonical_nan=True)
    assert not paths.rounds_fast(float32, canonical, Rounding.RNE)
    assert not paths.decodes_fast(canonical, float32)
    assert not paths.has_values(user)
    assert paths.decodes_fast(user, float64)
    assert not paths.decodes_fast(wide, float64)
    assert not paths.reaches_all(float32, user)
    assert not paths.rounds_fast(dataclasses.replace(float32, bias=126), user, Rounding.RNE)


def test_a_rounding_that_is_not_proved_is_left_to_the_definition(monkeypatch):
    float32, e4m3 = FLOATS["float32"], ELEMENTS["e4m3"]
    assert list(paths.ROUNDINGS) == [*Rounding]
    monkeypatch.setitem(paths.ROUNDINGS, Rounding.RTO, False)
    assert not paths.rounds_fast(float32, e4m3, Rounding.RTO)
    assert not paths.reaches_all(float32, e4m3, Rounding.RTO)
    assert paths.rounds_fast(float32, e4m3, Rounding.RTZ)
    assert paths.reaches_all(float32, e4m3, Rounding.RTZ)


def test_dispatch_of_the_rest():
    float32, e4m3, e2m1 = FLOATS["float32"], ELEMENTS["e4m3"], ELEMENTS["e2m1"]
    assert paths.reaches_all(FLOATS["float16"], e2m1)
    assert not paths.reaches_all(FLOATS["float64"], e2m1)
    assert paths.decodes_fast(e4m3, FLOATS["float64"])
    assert not paths.decodes_fast(FLOATS["bfloat16"], float32)
    assert paths.subtracts_fast(FLOATS["float16"])
    assert not paths.subtracts_fast(FLOATS["float64"])
    assert paths.adds_fast(e2m1, float32)
    assert not paths.adds_fast(e2m1, FLOATS["bfloat16"])
    assert not paths.adds_fast(dataclasses.replace(e2m1, bias=2), float32)


def test_float_scales():
    float32, float64, e2m1, e4m3 = FLOATS["float32"], FLOATS["float64"], ELEMENTS["e2m1"], ELEMENTS["e4m3"]
    scale, rne = SCALES["e4m3"], Rounding.RNE
    assert paths.compares_fast(float32, e2m1, scale, rne)
    assert not paths.compares_fast(float32, e4m3, scale, rne)
    assert not paths.compares_fast(float32, e2m1, scale, Rounding.RTP)
    assert not paths.compares_fast(float32, e2m1, SCALES["e8m0"], rne)
    assert not paths.compares_fast(float32, dataclasses.replace(e2m1, bias=2), scale, rne)
    assert paths.divides_fast(float64, e4m3, SCALES["float32"], Rounding.RTN)
    assert not paths.divides_fast(float64, e4m3, scale, Rounding.SR)
    assert paths.multiplies_fast(e4m3, scale, float64)
    assert not paths.multiplies_fast(dataclasses.replace(e4m3, bias=8), scale, float64)
    assert paths.finds_fast(float32, e2m1, scale, FloatScaleRule.RCEIL)
    assert not paths.finds_fast(float32, e2m1, scale, FloatScaleRule.FOUR_OVER_SIX_SQUARED)
    assert not paths.finds_fast(float32, e2m1, dataclasses.replace(scale, nan_code=0), FloatScaleRule.NEAREST)

"""Tests that a theorem exists for every fast path and for every format and mode it covers."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from mxnum.engine.rounding import paths
from mxnum.formats import ELEMENTS, FLOATS, SCALES
from mxnum.modes import FloatScaleRule, Overflow, Rounding, ScaleRule

pytest.importorskip("z3", reason="theorems are stated with z3")

FLOOR = ScaleRule.FLOOR


def scales(path):
    """Return a fast path's scale settings: (E8M0 rule, float scale rule, float scale format)."""
    if not path.scales:
        return [(rule, None, None) for rule in path.rules or [None]]
    return [(None, rule, scale) for rule in path.rules or [None] for scale in path.scales]


def cases(path):
    """Yield the values that replace the placeholders in the theorem names of a fast path."""
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
    assert paths.rounds_fast(float32, e4m3, rne, FLOOR)
    assert paths.rounds_fast(FLOATS["bfloat16"], ELEMENTS["e3m0"], rne, FLOOR)
    assert paths.rounds_fast(FLOATS["float64"], e2m1, sr, FLOOR)


def test_formats_of_users():
    float32, float64 = FLOATS["float32"], FLOATS["float64"]
    user = dataclasses.replace(ELEMENTS["e4m3"], bias=8)
    wide = dataclasses.replace(user, mantissa_bits=4)
    assert paths.rounds_fast(float32, user, Rounding.SR, FLOOR)
    assert paths.rounds_fast(float64, user, Rounding.RNE, FLOOR)
    assert not paths.rounds_fast(float64, user, Rounding.SR, FLOOR)
    assert not paths.rounds_fast(float32, wide, Rounding.RNE, FLOOR)
    canonical = dataclasses.replace(ELEMENTS["e5m2"], name="mine", canonical_nan=True)
    assert not paths.rounds_fast(float32, canonical, Rounding.RNE, FLOOR)
    assert not paths.DECODING.covers(float32, canonical)
    assert not paths.VALUES.covers(float32, user)
    assert paths.DECODING.covers(float64, user)
    assert not paths.DECODING.covers(float64, wide)
    assert not paths.BEYOND.covers(float32, user)
    assert not paths.rounds_fast(dataclasses.replace(float32, bias=126), user, Rounding.RNE, FLOOR)


def test_what_is_new_is_left_to_the_definition(monkeypatch):
    """Check that no fast path covers new modes or elements, for which there are no proofs.

    Regression: every element in `ELEMENTS` counted as proved.
    """
    float32, e4m3 = FLOATS["float32"], ELEMENTS["e4m3"]
    new = str.__new__(Rounding, "new")
    assert not any(path.covers(float32, e4m3, rounding=new) for path in paths.PATHS)
    assert not paths.rounds_fast(float32, e4m3, new, FLOOR)
    assert not paths.rounds_fast(float32, e4m3, Rounding.RNE, str.__new__(ScaleRule, "new"))
    element = dataclasses.replace(ELEMENTS["e3m2"], name="new", mantissa_bits=4)
    monkeypatch.setitem(ELEMENTS, "new", element)
    proved_for_any = {path for path in paths.PATHS if path.evidence_for_any}
    assert {path for path in paths.PATHS for type_ in FLOATS.values() if path.covers(type_, element)} == proved_for_any
    assert not paths.rounds_fast(FLOATS["float64"], element, Rounding.SR, FLOOR)


def test_what_is_proved_is_used():
    from proofs import exhaustive
    from proofs.specs import conversions, tables

    assert {*paths.ROUNDING.elements} == {*tables.ELEMENTS}
    assert {*paths.ROUNDING.roundings} == {*conversions.ROUNDINGS}
    assert {*paths.ROUNDING.rules} == {*exhaustive.RULES}


def test_dispatch_of_the_rest():
    float32, e4m3, e2m1 = FLOATS["float32"], ELEMENTS["e4m3"], ELEMENTS["e2m1"]
    assert paths.BEYOND.covers(FLOATS["float16"], e2m1, rounding=Rounding.SR)
    assert not paths.BEYOND.covers(FLOATS["float64"], e2m1)
    assert paths.DECODING.covers(FLOATS["float64"], e4m3)
    assert not paths.DECODING.covers(float32, FLOATS["bfloat16"])
    assert paths.OFFSETS.covers(FLOATS["float16"])
    assert not paths.OFFSETS.covers(FLOATS["float64"])
    assert paths.OFFSETS.covers(float32, e2m1)
    assert not paths.OFFSETS.covers(float32, dataclasses.replace(e2m1, bias=2))


def test_float_scales():
    float32, float64, e2m1, e4m3 = FLOATS["float32"], FLOATS["float64"], ELEMENTS["e2m1"], ELEMENTS["e4m3"]
    scale, rne, by_places, quotients = SCALES["e4m3"], Rounding.RNE, paths.PLACES, paths.QUOTIENTS
    assert by_places.covers(float32, e2m1, scale=scale, rounding=rne)
    assert not by_places.covers(float32, e4m3, scale=scale, rounding=rne)
    assert not by_places.covers(float32, e2m1, scale=scale, rounding=Rounding.RTP)
    assert not by_places.covers(float32, e2m1, scale=SCALES["e8m0"], rounding=rne)
    assert not by_places.covers(float32, dataclasses.replace(e2m1, bias=2), scale=scale, rounding=rne)
    assert quotients.covers(float64, e4m3, scale=SCALES["float32"], rounding=Rounding.RTN)
    assert not quotients.covers(float64, e4m3, scale=scale, rounding=Rounding.SR)
    assert paths.MULTIPLIED.covers(float64, e4m3, scale=scale)
    assert not paths.MULTIPLIED.covers(float64, dataclasses.replace(e4m3, bias=8), scale=scale)
    assert paths.FOUND.covers(float32, e2m1, scale=scale, rule=FloatScaleRule.RCEIL)
    assert not paths.FOUND.covers(float32, e2m1, scale=scale, rule=FloatScaleRule.FOUR_OVER_SIX_SQUARED)
    other = dataclasses.replace(scale, nan_code=0)
    assert not paths.FOUND.covers(float32, e2m1, scale=other, rule=FloatScaleRule.NEAREST)
    assert paths.DRAWN.covers(float32, e2m1, scale=scale, rounding=Rounding.SR)
    assert not paths.DRAWN.covers(float32, e2m1, scale=scale, rounding=Rounding.RTZ)
    assert not paths.DRAWN.covers(float64, e2m1, scale=scale, rounding=Rounding.SR)
    assert not paths.DRAWN.covers(float32, ELEMENTS["int4"], scale=scale, rounding=Rounding.SR)

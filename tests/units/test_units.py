"""Tests of the list of matrix units: names, descriptions, checks of fields, and warnings."""

from __future__ import annotations

import re
import warnings

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.units import EvidenceWarning, MatrixUnit, unit


def test_names_in_any_spelling():
    assert mx.units.get("Hopper FP8") is mx.units.get("hopper_fp8")
    assert mx.units.get(mx.units.get("hopper_fp8")).name == "hopper_fp8"
    with pytest.raises(ValueError, match="did you mean 'hopper_fp8'"):
        mx.units.get("hoper_fp8")


def test_every_unit_is_described():
    table = mx.units.describe()
    for name in mx.units.names():
        assert name in table
        text = mx.units.describe(name)
        assert text.startswith(f"{name}: ")
        assert len(re.findall("^evidence: .* (replayed|published|assumed)", text, re.M)) == len(
            mx.units.get(name).clauses
        )


def test_units_of_your_own(monkeypatch):
    known = dict(mx.units._units())
    monkeypatch.setattr(mx.units, "_units", lambda: known)
    mine = mx.units.register(MatrixUnit("mine", ("float16",), (4,), terms=4, fraction_bits=3, result_bits=3))
    assert mx.units.register(mine) is mine
    x = np.float16([[1, 0.125, 0.25, 0.0625]])
    with pytest.warns(EvidenceWarning, match="alignment assumed"):
        assert mx.matmul(x, np.ones((4, 1), np.float16), accumulate="mine").tolist() == [[1.375]]
    with pytest.raises(ValueError, match="'unit' must be a unit with a name that is not yet registered"):
        mx.units.register(mine.but(fraction_bits=4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operands": ("e4m4",)}, "'operands' must be one of"),
        ({"rounding": "up"}, "'rounding' must be one of"),
        ({"terms": 64}, "'terms' must be between 1 and 32"),
        ({"group": 3}, "'terms' must be a multiple of group"),
        ({"fraction_bits": 60}, "'fraction_bits' must be between 1 and"),
        ({"result_bits": 24}, "'result_bits' must be between 1 and 23"),
        ({"rounding": "rne"}, "'result_bits' must be 23 with 'rne', not 13"),
        ({"order": (1, 2)}, "'order' must be a permutation"),
        ({"scales": (("e8m0", 16),)}, "'scales' must be in blocks with a length divisible by terms"),
        ({"promotion": 100}, "'promotion' must be a multiple of 32"),
        ({"promotion": 128, "accumulator": "float16", "result_bits": 10}, "'accumulator' must be 'float32' with"),
        ({"group": 8, "k": (36,), "operands": ("e2m1",)}, "'k' must be multiples of group (8), not (36,)"),
        ({"group": 2}, "'group' must be 1 for operands of more than 6 bits, not 2"),
        ({"order": tuple(range(32)), "scales": (("e8m0", 32),)}, "'order' must be () for a unit with scales"),
        ({"k": ()}, "'k' must be one or more positive lengths"),
        ({"k": (16, 8)}, "in ascending order, not (16, 8)"),
        ({"k": (0,)}, "'k' must be at least 1, not 0"),
        ({"k": ("32",)}, "'k' must be an integer, not '32'"),
        ({"k": 32}, "'k' must be a tuple, not 32"),
        ({"operands": "e4m3"}, "'operands' must be a tuple, not 'e4m3'"),
        ({"operands": ()}, "'operands' must be at least one format"),
        ({"scales": ("e8m0",)}, "'scales' must be pairs of a format and a block length, not 'e8m0'"),
        ({"scales": (("e8m0", "32"),)}, "'scales' must be pairs of a format and a block length"),
        ({"fraction_bits": 4.5}, "'fraction_bits' must be an integer"),
        ({"accumulator": "int32"}, "'accumulator' must be one of ['float32', 'float16'], not 'int32'"),
        ({"name": 3}, "'name' must be a string, not 3"),
        ({"fraction": 3}, "Name 'fraction' in a unit must be one of ["),
    ],
)
def test_wrong_fields_raise(changes, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        mx.units.get("hopper_fp8").but(**changes)


def test_a_unit_as_text_is_read_again():
    for name in mx.units.names():
        assert mx.units.notation(mx.units.get(name)) == name
        unit = mx.units.get(name).but(name="mine")
        assert mx.units.read(mx.units.notation(unit)) == unit.but(evidence=())
    with pytest.raises(ValueError, match="did you mean 'terms'"):
        mx.units.read('{"trems": 3}')


def test_a_clause_without_outputs_warns_once(monkeypatch):
    monkeypatch.setattr(unit, "_warned", set())
    x = np.ones((1, 64), ml_dtypes.float8_e4m3fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.matmul(x, x.T, accumulate="hopper_fp8")  # outputs of GPUs confirm the rules of this unit
    with pytest.warns(EvidenceWarning, match="addend published .*chains published") as caught:
        mx.matmul(x, x.T, accumulate="blackwell_fp8")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.matmul(x, x.T, accumulate="blackwell_fp8")
        mx.matmul(np.ones((1, 40), np.float16), np.ones((40, 1), np.float16), accumulate="hopper_float16")
    with pytest.warns(EvidenceWarning, match="special values published"):
        mx.matmul(np.full((1, 4), np.inf, np.float16), np.ones((4, 1), np.float16), accumulate="volta_float16")

"""Tests of the constants and symbolic floats in the theorems about NVFP4 arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import z3

from mxnum.definition.stack_arithmetic import STACKS
from mxnum.prove.solvers import _ask_bitwuzla
from proofs.machines.symbolic_floats import DTYPES, SORTS, Machine, Number
from proofs.specs import stack_statements as said
from proofs.theorems import stacks


def number(value: z3.FPRef) -> float:
    """Return the value of a constant z3 expression as a Python float."""
    value = z3.simplify(value)
    if z3.is_true(z3.simplify(z3.fpIsNaN(value))):
        return float("nan")
    if z3.is_true(z3.simplify(z3.fpIsInf(value))):
        return float("-inf") if value.isNegative() else float("inf")
    pattern = z3.simplify(z3.fpToIEEEBV(z3.fpFPToFP(z3.RNE(), value, z3.Float64()))).as_long()
    return float(np.uint64(pattern).view(np.float64))


def test_constants_are_what_they_are_called() -> None:
    named = {
        "ZERO": 0, "ONE": 1, "SIX": 6, "LARGEST": np.finfo(np.float32).max, "LARGEST_E4M3": 448,
        "LEAST_E4M3": 2**-9, "LEAST_NORMAL_E4M3": 2**-6, "BOTH": 2688, "HUNDRED_MILLION": 1e8,
    }  # fmt: skip
    assert all(number(getattr(said, name)) == value for name, value in named.items())
    for constant, inverse in ((said.SIXTH, 6), (said.BOTH_INVERSE, 2688)):
        value, unit = Fraction(number(constant)), Fraction(float(np.spacing(np.float32(number(constant)))))
        assert abs(value - Fraction(1, inverse)) < unit / 2
    places = [number(said.bits(pattern)) for pattern, _ in said.PLACES]
    assert places == [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]


def test_every_stack_is_stated() -> None:
    assert set(said.STATEMENTS) == set(STACKS)
    names = {theorem.name.split("/")[2] for theorem in stacks.theorems() if theorem.name.count("/") > 2}
    assert names == set(STACKS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_compute_as_numpy_does(dtype: str) -> None:
    machine, kind = Machine(), DTYPES[dtype].type
    values = [kind(v) for v in (0, 1 / 3, -5, 6e-8, 1000, float("inf"))]
    operations: list[Any] = [
        lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a + b,
        lambda a, b: kind(3) / a, lambda a, b: kind(3) * b, np.maximum,
        lambda a, b: np.where(np.isfinite(a), a, kind(1)), lambda a, b: b.astype(np.float32).astype(kind),
    ]  # fmt: skip
    for a, b in itertools.product(values, values):
        symbolic = [Number(machine, z3.FPVal(float(value), SORTS[dtype])) for value in (a, b)]
        for operation in operations:
            with np.errstate(all="ignore"):
                want = float(operation(a, b))
            got = operation(*symbolic)
            assert got.dtype == DTYPES[dtype]
            np.testing.assert_equal(number(got.value), want)
        assert z3.is_true(z3.simplify((symbolic[0] < symbolic[1]).holds)) == bool(a < b)


def test_numbers_of_two_types_do_not_meet() -> None:
    x = Number(Machine(), z3.FPVal(1.0, z3.Float32()))
    with pytest.raises(TypeError, match="float32 meets"):
        x * ml_dtypes.bfloat16(2)
    with pytest.raises(TypeError, match="float32 meets"):
        x * 0.1


def test_a_quotient_of_integers_is_asked_in_the_words_of_the_standard() -> None:
    """Check that bitwuzla can answer a question with bvudiv_i, an operator that only z3 has."""
    x = z3.BitVec("x", 8)
    question = z3.Then("simplify", "simplify")(z3.And(z3.UGT(x, 3), z3.UDiv(200, x) == 60))[0]
    goal = z3.Goal()
    goal.add(question.as_expr())
    assert "bvudiv_i" in goal.sexpr()
    assert _ask_bitwuzla(goal, 10) == "unsat"

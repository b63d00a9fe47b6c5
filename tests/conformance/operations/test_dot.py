from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from mxnum import reference
from mxnum.conformance import ConformanceError, check
from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import dot, make_task
from mxnum.reference import Blocked


@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxfp4_e2m1", "mxint8"])
def test_accumulations_can_be_told_apart(fmt):
    task = make_task("dot", fmt)
    inputs = dot.boundary_dots(task, Generator(0))
    answers = [
        expected(make_task("dot", fmt, accumulate=how), inputs)["value"] for how in ("block", "exact", "sequential")
    ]
    assert (answers[0] != answers[1]).any()
    assert (answers[0] != answers[2]).any()
    assert (answers[1] != answers[2]).any()


@pytest.mark.parametrize("fmt", ["nvfp4", "e5m2:block=16,scale=float32"])
def test_accumulations_under_float_scales_can_be_told_apart(fmt):
    inputs = dot.boundary_dots(make_task("dot", fmt), Generator(0))
    ways = "exact", "sequential", "block"
    answers = [expected(make_task("dot", fmt, accumulate=how), inputs)["value"] for how in ways]
    for one, other in combinations(answers, 2):
        assert 0.001 < (one != other).mean() < 0.9


def test_block_sums_under_float_scales_equal_the_reference():
    task = make_task("dot", "nvfp4", accumulate="block")
    inputs = dot.random_dots(task, Generator(1), 40)
    right = as_floats(expected(task, inputs)["value"], task.source)[:, 0]
    for row in range(40):
        sides = [
            Blocked(inputs[side][row], inputs[f"{side}_scale"][row], "nvfp4", 16, tensor_scale=np.float32(1))
            for side in ("a", "b")
        ]
        assert np.array_equal(reference.dot(*sides, accumulate="block"), right[row], equal_nan=True)


def test_sums_by_blocks_under_float_scales_are_named():
    task = make_task("dot", "nvfp4", accumulate="block")

    def by_blocks(*columns):
        inputs = dict(zip(("a", "a_scale", "b", "b_scale"), columns, strict=True))
        return as_floats(expected(task, inputs)["value"], task.source)[:, 0]

    with pytest.raises(ConformanceError, match="what accumulation block gives"):
        check(by_blocks, format="nvfp4", operation="dot", accumulate="exact", shrink=False)
    assert check(by_blocks, format="nvfp4", operation="dot", accumulate="block").is_equal


def test_default_accumulation_is_exact_for_float_scales():
    assert make_task("dot", "nvfp4").accumulate == "exact"
    assert make_task("dot", "mxfp4_e2m1").accumulate == "block"


@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "e5m2:block=32,scale=float32"])
def test_every_kind_of_result(fmt):
    task = make_task("dot", fmt)
    values = as_floats(expected(task, dot.boundary_dots(task, Generator(0)))["value"], task.source)
    assert np.isnan(values).any()
    assert (values == np.inf).any()
    assert (values == -np.inf).any()
    assert (values == 0).any()
    assert ((np.abs(values) > 0) & (np.abs(values) < task.source.min_normal)).any()


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "nvfp4", "e4m3:block=32,scale=bfloat16"])
def test_random_rows_are_mostly_finite(fmt):
    task = make_task("dot", fmt)
    values = as_floats(expected(task, dot.random_dots(task, Generator(0), 400))["value"], task.source)
    assert 0.85 < np.isfinite(values).mean() < 1


def test_every_order_of_the_blocks_can_be_told_apart():
    # Three blocks or more are needed, because a sum of two blocks has only one order.
    task = make_task("dot", "mxfp4_e2m1")
    inputs = dot.boundary_dots(task, Generator(0))
    values = np.array(task.element.values())
    products = (values[inputs["a"]] * values[inputs["b"]]).reshape(-1, 4, 32).sum(axis=2)
    exponents = inputs["a_scale"].astype(int) + inputs["b_scale"] - 254
    nan = (inputs["a_scale"] == 255) | (inputs["b_scale"] == 255)
    with np.errstate(all="ignore"):
        first, second, third, fourth = terms = np.where(nan, np.nan, np.ldexp(products, exponents)).astype(np.float32).T
        sums = {order: sum((terms[i] for i in order), np.float32(0)) for order in permutations(range(4))}
        pairwise = [(first + second) + (third + fourth), (first + third) + (second + fourth)]
    right = as_floats(expected(task, inputs)["value"][:, 0], task.source)
    same = {order for order, found in sums.items() if np.array_equal(found, right, equal_nan=True)}
    assert same == {(0, 1, 2, 3), (1, 0, 2, 3)}  # equal sums, because 0 + a + b is 0 + b + a
    assert not any(np.array_equal(found, right, equal_nan=True) for found in pairwise)


@pytest.mark.parametrize(("fmt", "dot_blocks"), [("mxfp4_e2m1", 4), ("mxint8", 3), ("mxfp8_e5m2", 1)])
def test_sum_in_float64_does_not_pass_as_exact(fmt, dot_blocks):
    """Check that a kernel that sums in float64 does not pass as exact: some sums need more bits."""
    task = make_task("dot", fmt, accumulate="exact", dot_blocks=dot_blocks)
    inputs = dot.boundary_dots(task, Generator(0))
    values = np.array(task.element.values())
    with np.errstate(all="ignore"):
        a, b = (
            values[inputs[side]] * np.repeat(np.exp2(inputs[f"{side}_scale"] - 127.0), task.block, axis=1)
            for side in ("a", "b")
        )
        sums = (np.cumsum(a * b, axis=1)[:, -1:] + 0.0).astype(np.float32)
    finite = np.isfinite(a).all(axis=1) & np.isfinite(b).all(axis=1)
    finite &= ((inputs["a_scale"] < 255) & (inputs["b_scale"] < 255)).all(axis=1)
    right = as_floats(expected(task, inputs)["value"], task.source)
    assert (sums != right)[finite].any()


@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "nvfp4"])
def test_the_exact_sum_has_no_order(fmt):
    task = make_task("dot", fmt, accumulate="exact")
    inputs = dot.boundary_dots(task, Generator(0))
    backwards = {
        name: column.reshape(len(column), 4, -1)[:, ::-1].reshape(column.shape) for name, column in inputs.items()
    }
    assert np.array_equal(expected(task, inputs)["value"], expected(task, backwards)["value"])

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import dot, make_task


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
    one, other = (expected(make_task("dot", fmt, accumulate=how), inputs)["value"] for how in ("exact", "sequential"))
    assert 0.001 < (one != other).mean() < 0.9


def test_what_float_scales_have_no_sum_for():
    assert make_task("dot", "nvfp4").accumulate == "exact"
    assert make_task("dot", "mxfp4_e2m1").accumulate == "block"
    with pytest.raises(ValueError, match="'accumulate' must be 'exact' or 'sequential' for nvfp4, whose scales are"):
        make_task("dot", "nvfp4", accumulate="block")


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
    # Three blocks or more are needed: two blocks have only one order.
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
    assert same == {(0, 1, 2, 3), (1, 0, 2, 3)}  # (0 + a + b is 0 + b + a)
    assert not any(np.array_equal(found, right, equal_nan=True) for found in pairwise)


@pytest.mark.parametrize(("fmt", "dot_blocks"), [("mxfp4_e2m1", 4), ("mxint8", 3), ("mxfp8_e5m2", 1)])
def test_an_exact_sum_is_not_one_in_float64(fmt, dot_blocks):
    """Regression: a unit that adds in float64 passed as exact: sums had at most 53 bits."""
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

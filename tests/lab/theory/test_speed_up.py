"""Tests that projected speed-ups agree with calculations by hand, and lie within their bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnum.lab.theory import Recipe, TransformerShape, project, project_range, project_shares
from mxnum.lab.theory.speed_up import RATES, SHAPES

TINY = TransformerShape(layers=2, width=8, mlp_width=16, heads=4, kv_heads=2, vocabulary=10, context=6)
precision = st.sampled_from(tuple(RATES))


def test_flops_are_those_of_the_matrices():
    # The three terms are for queries, for keys and values (with half as many heads), and for the
    # output.
    attention = 2 * (8 * 8 + 2 * 8 * 4 + 8 * 8)
    assert TINY.flops == {
        "mlp": 2.0 * 2 * 3 * 8 * 16,
        "attention": 2.0 * attention,
        "scores": 2.0 * 2 * 2 * 8 * 6 / 2,  # two products; a token sees half of the context on average
        "logits": 2.0 * 8 * 10,
    }
    ungated = TransformerShape(2, 8, 16, 4, 2, 10, 6, gated=False)
    assert ungated.flops["mlp"] == TINY.flops["mlp"] * 2 / 3


@pytest.mark.parametrize(
    ("name", "parameters"), [("llama-3-8b", 8.03e9), ("llama-3-70b", 70.6e9), ("llama-3-405b", 405.9e9)]
)
def test_the_shapes_have_the_parameters_that_their_names_say(name, parameters):
    shape = SHAPES[name]
    # `logits` counts twice, for the last layer and for the embedding, which has the same size.
    weights = (shape.flops["mlp"] + shape.flops["attention"] + 2 * shape.flops["logits"]) / 2
    assert weights == pytest.approx(parameters, rel=2e-3)


def test_amdahl():
    whole = {"mlp": 1.0}
    assert project_shares(whole, Recipe.of("fp4")).speed_up == 4
    assert project_shares(whole, Recipe.of("fp8", "bf16")).speed_up == pytest.approx(1.2)
    assert project_shares({"mlp": 0.5, "rest": 0.5}, Recipe.of("fp8")).speed_up == pytest.approx(4 / 3)
    assert project_shares(whole, Recipe.of("fp8", "bf16"), rates={"fp8": math.inf}).speed_up == pytest.approx(1.5)
    got = project_shares(
        {"mlp": 0.6, "attention": 0.2, "rest": 0.2}, Recipe.of("fp4", attention="bf16"), conversion=0.1
    )
    assert dict(got.times) == pytest.approx({"mlp": 0.15, "attention": 0.2, "rest": 0.2, "conversion": 0.06})
    assert got.speed_up == pytest.approx(1 / 0.61)
    three = Recipe("fp8", "fp4", "bf16")
    assert project_shares(whole, three).speed_up == pytest.approx(3 / (1 / 2 + 1 / 4 + 1))


@given(precision, precision, st.floats(0, 0.5), st.floats(0, 0.1))
def test_no_step_is_faster_than_its_fastest_product(forward, backward, other, conversion):
    recipe = Recipe.of(forward, backward)
    got = project("llama-3-405b", recipe, other=other, conversion=conversion)
    assert got.speed_up <= max(RATES[forward], RATES[backward]) * (1 + 1e-12)  # allow for rounding of the shares
    assert sum(got.times.values()) == pytest.approx(1 / got.speed_up)
    assert got.speed_up <= project("llama-3-405b", recipe, other=other).speed_up
    if forward == backward == "bf16":
        assert got.speed_up == pytest.approx(1)


@given(st.tuples(*(st.floats(0, 1) for _ in range(5))))
def test_a_range_holds_every_projection_within_it(at):
    ranges = {"fp8": (1.5, 2.0), "fp6": (1.5, 3.0), "fp4": (2.0, 4.0), "other": (0.0, 0.3), "conversion": (0.0, 0.2)}
    recipe = Recipe("fp6", "fp4", "fp8")
    values = {name: low + t * (high - low) for t, (name, (low, high)) in zip(at, ranges.items(), strict=True)}
    other, conversion = values.pop("other"), values.pop("conversion")
    got = project(TINY, recipe, rates=values, other=other, conversion=conversion).speed_up
    low, high = project_range(TINY, recipe, ranges)
    assert low - 1e-12 <= got <= high + 1e-12


def test_a_range_of_one_point_is_the_projection():
    point = {"fp8": (2, 2), "fp6": (2, 2), "fp4": (4, 4), "other": (0.1, 0.1), "conversion": (0, 0)}
    assert project_range(TINY, Recipe.of("fp4"), point) == (project(TINY, Recipe.of("fp4")).speed_up,) * 2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: project("llama-4", Recipe.of("fp8")), "'shape' must be one of"),
        (lambda: Recipe.of("fp5"), "'forward' must be one of .* 'fp8'"),
        (lambda: Recipe.of("fp8", attention="int8"), "'attention' must be one of"),
        (lambda: project(TINY, Recipe.of("fp8"), other=1), "'other' must be at least 0 and below 1"),
        (lambda: project(TINY, Recipe.of("fp8"), conversion=-1), "'conversion' must be at least 0"),
        (lambda: project(TINY, Recipe.of("fp8"), conversion=math.inf), "'conversion' must be at least 0 and finite"),
        (lambda: project_shares({}, Recipe.of("fp8")), "'shares' must be finite shares of at least 0"),
        (lambda: project_shares({"mlp": math.nan}, Recipe.of("fp8")), "'shares' must be finite shares"),
        (lambda: project(TINY, Recipe.of("fp8"), rates={"fp8": 0}), "'fp8' must be a positive rate, not 0"),
        (lambda: project(TINY, Recipe.of("fp8"), rates={"bf16": 2}), "'rates' must be one of"),
        (lambda: project_range(TINY, Recipe.of("fp8"), {"fp8": (2, 1)}), "a lower and an upper end"),
        (lambda: project_range(TINY, Recipe.of("fp8"), {"speed": (1, 2)}), "'ranges' must be one of"),
        (lambda: TransformerShape(0, 8, 16, 4, 2, 10, 6), "'layers' must be at least 1"),
        (lambda: TransformerShape(1, 8, 16, 2, 4, 10, 6), "'kv_heads' must be at most 2"),
    ],
)
def test_arguments_that_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_precision_in_place_of_a_recipe_raises():
    with pytest.raises(TypeError, match="'recipe' must be a Recipe, not 'fp8'"):
        project("llama-3-8b", "fp8")

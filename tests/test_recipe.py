"""Tests of recipes: the tensors that they round, their files and their names."""

from __future__ import annotations

import dataclasses
import json

import pytest

import mxnum as mx
from mxnum.recipe import BFLOAT16, FLOAT32, OPERANDS, Operand, Recipe

RECIPES = {
    "nothing": Recipe(),
    "uniform": Recipe.uniform("mxfp8_e4m3", vector="bfloat16"),
    "tiles": Recipe.uniform("mxfp4_e2m1", block_shape=(4, 8), scale_rule="rceil"),
    "mixed": Recipe("mxfp8_e4m3", "mxfp6_e2m3", gradients={"format": "mxfp8_e5m2", "rounding": "sr"}, gamma=BFLOAT16),
    "turned": Recipe(
        activations_backward={"format": "mxint8", "transform": "hadamard"},
        gradients_for_weights=Operand("mxint8", transform="hadamard", block_size=16),
    ),
    "own": Recipe.uniform(mx.MXFormat(mx.ElementFormat("e3m4", exponent_bits=3, mantissa_bits=4, bias=3), block=16)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_files_keep_all(name):
    recipe = RECIPES[name]
    read = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert read == Recipe.of(recipe.to_dict()) == recipe
    assert hash(read) == hash(recipe)


def test_every_field_is_in_the_file():
    changed = {"vector": "bfloat16", "vector_rounding": "rna", "round_activation": False, "vector_steps": True}
    changed |= {"unit": "hopper_fp8", "unit_backward": "hopper_fp8_promoted"}
    changed |= {name: Operand("mxint8", rounding="rtz", block_size=7 + i) for i, name in enumerate(OPERANDS)}
    assert set(changed) == {field.name for field in dataclasses.fields(Recipe)}
    assert Recipe.from_dict(json.loads(json.dumps(Recipe(**changed).to_dict()))) == Recipe(**changed)


@pytest.mark.parametrize("name", [*Recipe.names()])
def test_named_recipes(name):
    recipe = Recipe.named(name)
    assert Recipe.of(name) == recipe == Recipe.from_dict(recipe.to_dict())
    assert Recipe.names()[name].endswith(".")
    if name in ("uniform", "microxcaling", "torchao mxfp8", "nvidia mxfp8"):
        assert Recipe.named(name, "mxint8").gradients.format == "mxint8"


def test_nvfp4_as_nvidia_trains_with_it():
    recipe = Recipe.named("nvidia nvfp4")
    assert recipe.weights == recipe.weights_backward == Operand("nvfp4", block_shape=(16, 16))
    assert recipe.gradients == Operand("nvfp4", rounding="sr")
    assert recipe.gradients_for_weights.transform == recipe.activations_backward.transform == "hadamard"
    assert recipe.gradients.scale_rule == "nearest"
    assert (recipe.activations_backward.rounding, recipe.gradients_for_weights.rounding) == ("rne", "sr")


def test_parts_of_recipes():
    recipe = Recipe.uniform("mxfp4_e2m1", rounding="sr")
    forward = recipe.forward_only()
    assert (forward.weights, forward.activations, forward.gamma) == (recipe.weights,) * 3
    assert forward.gradients == forward.weights_backward == forward.activations_backward == FLOAT32
    assert recipe.weights_only() == Recipe(weights=recipe.weights, weights_backward=recipe.weights)
    assert recipe.gradients_for_weights is None
    assert Recipe.of("mxint8") == Recipe.uniform("mxint8", layer_norm="float32")
    assert Recipe.uniform("mxint8").gamma == Operand("mxint8")
    tiles = {"format": "mxint8", "block_shape": [4, 4]}
    assert Recipe.of({"uniform": tiles, "beta": "float32"}) == Recipe.uniform("mxint8", block_shape=(4, 4)).but(
        beta=FLOAT32
    )


def test_text_says_bfloat16_for_unrounded_operands_in_bfloat16():
    # Regression: the recipe's text said float32, although `mxnum.torch` multiplied bfloat16
    # numbers.
    assert str(Recipe.named("bfloat16")) == "bfloat16; vector operations in bfloat16"
    half = "mxfp8_e4m3; weights backward, activations backward, gradients bfloat16; vector operations in bfloat16"
    assert str(Recipe.named("forward only")) == half
    assert str(Recipe(vector="bfloat16", vector_rounding="rna")).startswith("bfloat16 rna; vector")
    assert str(Recipe(gamma=Operand(error="grid", step=0.5), vector="bfloat16")).count("multiples of 0.5") == 1
    assert str(Recipe()) == "float32"


WRONG = {
    "name": (lambda: Recipe.of("mxfp8_e4m4"), "Argument 'recipe' must be one of .* did you mean 'mxfp8_e4m3'"),
    "none": (lambda: Recipe.of(None), "Argument 'recipe' must be a Recipe, a name, a format or a mapping, not None"),
    "field": (lambda: Recipe.of({"weight": "mxint8"}), "did you mean 'weights'"),
    "operand": (lambda: Recipe(weights=3), "must be a format, 'float32', a mapping or an Operand, not 3"),
    "key": (lambda: Recipe(weights={"fmt": "mxint8"}), r"^Name 'fmt' in an operand must be one of \['format', "),
    "turned": (lambda: Recipe(weights=Operand("mxint8", transform="hadamard")), "'activations.transform' must be 'had"),
    "transform": (lambda: Operand("mxint8", transform="fourier"), "Argument 'transform' must be one of"),
    "two": (lambda: Operand("mxint8", block_size=2, block_shape=(2, 2)), "must not be given together"),
    "number": (lambda: Operand("mxint8", block_shape=16), "'block_shape' must be a tuple of block lengths, not 16"),
    "shape": (lambda: Operand("mxint8", block_shape=(2, 2, 2)), "Argument 'block_shape' must be two lengths"),
    "vector": (lambda: Recipe(vector="float16"), "Argument 'vector' must be one of"),
    "stochastic": (
        lambda: Recipe(gradients={"rounding": "sr"}),
        "^Argument 'format' must be an MX format if rounding='sr', not None.$",
    ),
    "rule": (lambda: Recipe.uniform("bfloat16", scale_rule="rceil"), "if scale_rule='rceil', not 'bfloat16'"),
    "block": (lambda: Operand(block_size=16), "must be an MX format if block_size=16, not None"),
    "tile": (lambda: Operand(block_shape=(4, 4)), r"must be an MX format if block_shape=\(4, 4\), not None"),
    "list": (lambda: Recipe.from_dict([]), r"Argument 'table' must be a mapping, not \[\]"),
    "meet": (
        lambda: Recipe("mxint8", activations_backward={"format": "mxint8", "transform": "hadamard"}),
        "Argument 'gradients.transform' must be 'hadamard', the transform of 'activations_backward'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(case):
    call, message = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_experiments_raise_for_transforms():
    from mxnum.lab.mlp import Experiment

    with pytest.raises(ValueError, match="'precision' must be a recipe without transforms"):
        Experiment(precision=RECIPES["turned"])

"""Recipes that papers and vendors use, with their sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mxnum import errors
from mxnum.formats import MXFormat
from mxnum.recipe.definition import BFLOAT16, FLOAT32, Operand, Recipe

Format = str | MXFormat


class Named(NamedTuple):
    """A recipe as a function of its format, made when a caller asks for it."""

    make: Callable[[Format], Recipe]
    #: The format that the source uses.
    format: str
    #: The paper or program from which the recipe comes.
    source: str


def named(name: str, format: Format | None = None) -> Recipe:
    """Return the recipe of that name, in `format` if given instead of the source's format."""
    entry = NAMED[errors.choose("name", name, tuple(NAMED))]
    return entry.make(entry.format if format is None else format)


def _microxcaling(format: Format) -> Recipe:
    """Make microxcaling's recipe.

    Ties go away from zero everywhere (`round="nearest"`); vector operations, gamma and beta are in
    bfloat16.
    """
    affine = Operand("bfloat16", rounding="rna")
    recipe = Recipe.uniform(format, rounding="rna", layer_norm=affine, vector="bfloat16")
    return recipe.but(vector_rounding="rna", vector_steps=True)


def _nvidia_nvfp4(format: Format) -> Recipe:
    """Make NVIDIA's recipe for NVFP4.

    Weights share scales in tiles of 16 x 16. Gradients are rounded stochastically. The operands of
    the weight's gradient are transformed.
    """
    weights, along = Operand.of({"format": format, "block_shape": (16, 16)}), Operand.of({"format": format})
    turned = Operand.of({"format": format, "transform": "hadamard"})
    stochastic = Operand.of({"format": format, "rounding": "sr"})
    turned_too = Operand.of({"format": format, "rounding": "sr", "transform": "hadamard"})
    return Recipe(weights, along, weights, turned, stochastic, gradients_for_weights=turned_too)


NAMED = {
    "float32": Named(lambda _: Recipe(), "mxfp8_e4m3", "Nothing is rounded."),
    "bfloat16": Named(
        lambda _: Recipe(gamma=BFLOAT16, beta=BFLOAT16, vector="bfloat16"),
        "mxfp8_e4m3",
        "Operands and results of products, and vector operations, in bfloat16: the baseline of arXiv 2506.20752.",
    ),
    "uniform": Named(
        lambda format: Recipe.uniform(format, vector="bfloat16"),
        "mxfp8_e4m3",
        "Everything in one format, layer norm too, and vector operations in bfloat16: arXiv 2506.20752.",
    ),
    "forward only": Named(
        lambda format: Recipe.uniform(format, vector="bfloat16").forward_only(),
        "mxfp8_e4m3",
        "The first mitigation of arXiv 2506.20752: gradients are not quantized.",
    ),
    "bfloat16 activations": Named(
        lambda format: Recipe(Operand.of(format), weights_backward=Operand.of(format), vector="bfloat16"),
        "mxfp8_e4m3",
        "The second mitigation of arXiv 2506.20752: activations, gradients and layer norm in bfloat16.",
    ),
    "weights only": Named(
        lambda format: Recipe.uniform(format).weights_only(),
        "mxfp4_e2m1",
        "Weights alone, as stored by formats for inference (gpt-oss: MXFP4 weights).",
    ),
    "microxcaling": Named(
        _microxcaling,
        "mxfp8_e4m3",
        "microsoft/microxcaling with bfloat=16, block_size=32 and its default rounding, ties away from zero.",
    ),
    "torchao mxfp8": Named(
        lambda format: Recipe.uniform(format, layer_norm=FLOAT32, scale_rule="rceil"),
        "mxfp8_e4m3",
        "torchao.prototype.moe_training.mxfp8_linear (0.18): ScaleCalculationMode.RCEIL, E4M3 in all three products.",
    ),
    "nvidia mxfp8": Named(
        lambda format: Recipe.uniform(format, layer_norm=FLOAT32, scale_rule="rceil"),
        "mxfp8_e4m3",
        "TransformerEngine's MXFP8BlockScaling and arXiv 2506.08027: E4M3 everywhere, scales rounded up.",
    ),
    "nvidia nvfp4": Named(
        _nvidia_nvfp4,
        "nvfp4",
        "TransformerEngine's NVFP4BlockScaling and arXiv 2509.25149: weights in tiles of 16 x 16, stochastic "
        "gradients, a Hadamard transform of 16 with fixed signs for the weight's gradient.",
    ),
}

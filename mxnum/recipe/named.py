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


#: Tiles that span every tensor: one scale for each.
_WHOLE = (1 << 30, 1 << 30)


def _hopper_fp8(format: Format) -> Recipe:
    """Make the recipe of FP8 with a scale for each tensor, on Hopper.

    Gradients are E5M2. The backward products promote, as use_split_accumulator does.
    """
    of_gradients = "e5m2:scale=float32" if format == _FP8 else format
    forward, backward = (Operand.of({"format": f, "block_shape": _WHOLE}) for f in (format, of_gradients))
    recipe = Recipe(forward, forward, forward, forward, backward, unit="hopper_fp8")
    return recipe.but(unit_backward="hopper_fp8_promoted")


def _deepseek_v3(format: Format) -> Recipe:
    """Make DeepSeek-V3's recipe: scales for 1 x 128 activations and gradients and 128 x 128 weights."""
    weights, rows = Operand.of({"format": format, "block_shape": (128, 128)}), Operand.of(format)
    return Recipe(weights, rows, weights, rows, rows, unit="hopper_fp8_promoted")


_FP8 = "e4m3:scale=float32"
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
    "hopper fp8": Named(
        _hopper_fp8,
        _FP8,
        "TransformerEngine's Float8CurrentScaling on Hopper: E4M3, gradients in E5M2, a float32 scale for each tensor. "
        "Unit hopper_fp8, and promotion every 128 products in the backward pass. Assumed: exact scales to nearest.",
    ),
    "deepseek v3": Named(
        _deepseek_v3,
        "e4m3:block=128,scale=float32",
        "DeepSeek-V3 (arXiv 2412.19437) and DeepGEMM: E4M3, float32 scales for 1 x 128 and 128 x 128 elements. Unit "
        "hopper_fp8_promoted: total = fma(scale * scale, accumulator, total). Assumed: that nvcc contracts to fma.",
    ),
    "blackwell mxfp8": Named(
        lambda format: Recipe.uniform(format, layer_norm=FLOAT32, scale_rule="rceil").but(unit="blackwell_mxfp8"),
        "mxfp8_e4m3",
        "'nvidia mxfp8' with the sums of unit blackwell_mxfp8, which MMA-Sim publishes. Assumed: K in index order.",
    ),
    "blackwell nvfp4": Named(
        lambda format: _nvidia_nvfp4(format).but(unit="blackwell_nvfp4"),
        "nvfp4",
        "'nvidia nvfp4' with the sums of unit blackwell_nvfp4, which MMA-Sim publishes. Assumed: tensor scales "
        "multiply the result in float32.",
    ),
}

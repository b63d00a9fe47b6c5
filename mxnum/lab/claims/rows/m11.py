"""M11: the parameters that published speed-ups imply, and if one model gives them all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement
from mxnum.lab.theory import Recipe, TransformerShape, project_range
from mxnum.lab.theory.speed_up import REASONABLE, SHAPES

CLAIM = Claim(
    "M11",
    "Projected speed-ups",
    "For a 405B model the projected step speed-ups are 2.73 times for MX4, 2.48 MLP only, 2.31 for MX6 weights "
    "and activations with MX4 gradients (2.11 at FP8's rate, 2.4 at FP4's), and 1.72 for FP8.",
    "`mxnum.lab.theory.project`, a model with stated rates, shares and costs, for the shape of Llama-3 405B: what the "
    "figures imply for its parameters, and which of them one set of parameters gives.",
    "The authors' model of the hardware, or the hardware.",
)
SHAPE = "llama-3-405b"
#: The published speed-ups, and half a unit of their last digits.
PUBLISHED = {
    "FP8": (1.72, 0.005), "MX4": (2.73, 0.005), "MLP only": (2.48, 0.005), "MX6, MX4 gradients": (2.31, 0.005),
    "the same at FP8's rate": (2.11, 0.005), "the same at FP4's rate": (2.4, 0.05),
}  # fmt: skip
FP8, MX4, MLP_ONLY, MX6, AT_FP8, AT_FP4 = (value for value, _ in PUBLISHED.values())
RECIPES = {
    "FP8": Recipe.of("fp8"), "MX4": Recipe.of("fp4"), "MLP only": Recipe.of("fp4", attention="bf16"),
    "MX6, MX4 gradients": Recipe.of("fp6", "fp4"),
}  # fmt: skip


class Calibration(NamedTuple):
    """Parameters under which the model gives 1.72 for FP8 and 2.73 for MX4 exactly."""

    what: str
    linear: float  # the share of the linear layers in the bf16 step
    fp8: float
    fp4: float
    conversion: float


def squared(fp8: float, mx4: float) -> Calibration:
    """Return the calibration in which FP4's rate is the square of FP8's, and conversion is free."""
    u, v = _saved(fp8), _saved(mx4)
    x = v / u - 1
    return Calibration("FP4's rate the square of FP8's", u / (1 - x), 1 / x, 1 / x**2, 0.0)


def nominal(fp8: float, mx4: float) -> Calibration:
    """Return the calibration with rates of 2 and 4, in which quantizing operands costs time."""
    u, v = _saved(fp8), _saved(mx4)
    linear = 4 * (v - u)
    return Calibration("rates 2 and 4", linear, 2.0, 4.0, 0.5 - u / linear)


def _saved(speed_up: float) -> float:
    """Return the share of the time in bf16 that is saved."""
    return 1 - 1 / speed_up


def rounded(function: Callable[..., float], *names: str) -> tuple[float, float, float]:
    """Return a function of published figures, and its extremes under their rounding."""
    figures = [PUBLISHED[name] for name in names]
    corners = itertools.product(*[(value - half, value + half) for value, half in figures])
    found = [function(*corner) for corner in corners]
    return function(*(value for value, _ in figures)), min(found), max(found)


def _mlp_alone(shape: TransformerShape, saved_in_attention: float, mx4: float) -> float:
    """Return the speed-up with MLPs at `mx4`, if attention saves this share of its time."""
    mlp = shape.mlp_share
    return 1 / (1 - mlp * _saved(mx4) - (1 - mlp) * saved_in_attention)


@CLAIM.check
def _check(context: Context) -> Evidence:
    shape, models = SHAPES[SHAPE], [squared(FP8, MX4), nominal(FP8, MX4)]
    statements = [_explained(models, shape), *_within(shape), _mlp(shape), *_six_bits(models)]
    alone, low, high = rounded(lambda mx4: _mlp_alone(shape, 0.0, mx4), "MX4")
    tolerance = PUBLISHED["MLP only"][1] + (high - low) / 2
    figure = Comparison("MX4 in the MLPs alone, bf16 in attention", MLP_ONLY, alone, tolerance)
    with_fp8 = rounded(lambda fp8, mx4: _mlp_alone(shape, _saved(fp8), mx4), "FP8", "MX4")
    note = (
        "The paper states no rates, shares or costs, so its figures can constrain a model and not be derived from "
        "one; the figure compared follows from 2.73 and the shape alone, and its tolerance has the rounding of both. A "
        "reading of ours that the paper does not give: with the linear layers of attention in FP8 instead of bf16, MLP "
        f"only is {with_fp8[0]:.3f} ({with_fp8[1]:.3f} to {with_fp8[2]:.3f} within the rounding of 1.72 and "
        "2.73), which 2.48 does not exclude."
    )
    answer = (
        f"{FP8:g} and {MX4:g} {'fit' if statements[0].holds else 'do not fit'} one model of rates and shares. MX4 in "
        f"the MLPs alone {'follows from it' if figure.agrees else 'does not'}: the shape gives {alone:.2f}, the paper "
        f"{MLP_ONLY:g}. Open: the authors' own model."
    )
    configuration = {
        "shape": SHAPE,
        "share of the MLPs": f"{shape.mlp_share:.4f}",
        "linear layers' share of the products": f"{shape.linear_share:.4f}",
        "reasonable": ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in REASONABLE.items()),
    }
    return Evidence([figure], statements, note, configuration, answer, f"{alone:.2f} against {MLP_ONLY:g}")


def _explained(models: list[Calibration], shape: TransformerShape) -> Statement:
    listed = "; ".join(
        f"{m.what}: FP8 {m.fp8:.3f} times bf16, FP4 {m.fp4:.3f}, the linear layers {m.linear:.1%} of the step, "
        f"conversion {m.conversion:.2%} of a product"
        for m in models
    )
    return Statement(
        f"1.72 and 2.73 follow together from rates and shares that Llama-3 405B can have (linear layers are "
        f"{shape.linear_share:.1%} of its products)",
        all(0 < m.linear <= shape.linear_share and m.conversion >= 0 for m in models),
        listed,
    )


def _within(shape: TransformerShape) -> list[Statement]:
    """Compare each figure with the interval of projections over reasonable parameters."""
    ranges = {name: project_range(shape, recipe) for name, recipe in RECIPES.items()}
    return [
        Statement(
            f"{name}: {PUBLISHED[name][0]} is among the projections for reasonable parameters",
            low <= PUBLISHED[name][0] <= high,
            f"{low:.2f} to {high:.2f}",
        )
        for name, (low, high) in ranges.items()
    ]


def _mlp(shape: TransformerShape) -> Statement:
    """Judge the MLPs' share of the linear layers, which two published figures imply."""
    share, low, high = rounded(lambda mlp_only, mx4: _saved(mlp_only) / _saved(mx4), "MLP only", "MX4")
    return Statement(
        "2.48 for the MLPs alone and 2.73 for all linear layers give the MLPs the share that they have in Llama-3 405B",
        low <= shape.mlp_share <= high,
        f"they need {share:.1%} of the linear layers ({low:.1%} to {high:.1%}) whatever the rates, the linear layers' "
        f"share and the cost of conversion are; by FLOPs it is {shape.mlp_share:.1%}, which gives "
        f"{_mlp_alone(shape, 0.0, MX4):.2f}",
    )


def _changing_share(at_fp8: float, at_fp4: float, fp8: float, mx4: float) -> float:
    """Return the share of the linear products whose rate changes between two of the figures."""
    return (1 / at_fp8 - 1 / at_fp4) / (1 / fp8 - 1 / mx4)


def _six_bits(models: list[Calibration]) -> list[Statement]:
    names = "the same at FP8's rate", "the same at FP4's rate"
    share, low, high = rounded(_changing_share, *names, "FP8", "MX4")
    third = 1 / (1 / AT_FP8 - (1 / FP8 - 1 / MX4) / 3)
    along = (1 / MX6 - 1 / AT_FP4) / (1 / AT_FP8 - 1 / AT_FP4)
    rates = ", ".join(f"{1 / (along / m.fp8 + (1 - along) / m.fp4):.2f} with {m.what}" for m in models)
    readings = [1 / ((3 - fast) / 3 / FP8 + fast / 3 / MX4) for fast in (2, 1, 0)]
    return [
        Statement(
            "2.11 at FP8's rate: the forward products at FP8's rate, those of the gradients at FP8's or FP4's, give it",
            any(abs(reading - AT_FP8) <= PUBLISHED[names[0]][1] + 0.005 for reading in readings),
            "with two, one and no product of the gradients at FP4's rate {:.2f}, {:.2f}, {:.2f}".format(*readings),
        ),
        Statement(
            "2.11 at FP8's rate and 2.4 at FP4's differ by the forward products, a third of the linear ones",
            low <= 1 / 3 <= high,
            f"{share:.1%} of them ({low:.1%} to {high:.1%}) would explain the difference; a third leads from 2.11 to "
            f"{third:.2f}",
        ),
        Statement(
            "2.4 at FP4's rate is the step of MX4",
            abs(AT_FP4 - MX4) <= PUBLISHED[names[1]][1] + PUBLISHED["MX4"][1],
            f"2.4 against 2.73: {1 / AT_FP4 - 1 / MX4:.1%} of the step in bf16 stay unexplained",
        ),
        Statement("2.31 is between the two: six bits have a rate of their own", 0 < along < 1, f"of {rates}"),
    ]

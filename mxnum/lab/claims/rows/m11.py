"""M11: the parameters that published speed-ups imply, and whether one model gives all speed-ups."""

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
    "For a 405B model, the speed-up of a training step over bf16 is 2.73 with MX4, 2.48 with MX4 in the MLPs only, "
    "and 1.72 with FP8. With MX6 weights and activations and MX4 gradients, the speed-up is 2.31 (2.11 if MX6 has "
    "FP8's rate, and 2.4 if MX6 has FP4's rate).",
    "`mxnum.lab.theory.project` computes a speed-up from given rates, shares and costs, here for the shape of Llama-3 "
    "405B. The check computes the parameters that the published numbers imply, and tests whether one set of "
    "parameters gives all these numbers.",
    "The authors' model of the hardware, or measurements on the hardware, would decide the claim.",
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
    """Parameters with which the model gives the paper's speed-ups, 1.72 (FP8) and 2.73 (MX4)."""

    what: str
    linear: float  # the share of the linear layers in the bf16 step
    fp8: float
    fp4: float
    conversion: float


def squared(fp8: float, mx4: float) -> Calibration:
    """Return the calibration in which FP4's rate is the square of FP8's and conversion is free."""
    u, v = _saved(fp8), _saved(mx4)
    x = v / u - 1
    return Calibration("FP4's rate equal to the square of FP8's", u / (1 - x), 1 / x, 1 / x**2, 0.0)


def nominal(fp8: float, mx4: float) -> Calibration:
    """Return the calibration with rates of 2 (FP8) and 4 (FP4), in which conversion costs time."""
    u, v = _saved(fp8), _saved(mx4)
    linear = 4 * (v - u)
    return Calibration("rates of 2 and 4", linear, 2.0, 4.0, 0.5 - u / linear)


def _saved(speed_up: float) -> float:
    """Return the share of the time in bf16 that a speed-up saves."""
    return 1 - 1 / speed_up


def rounded(function: Callable[..., float], *names: str) -> tuple[float, float, float]:
    """Return a function's value at the published numbers `names`, and its least and greatest value.

    The least and greatest value allow for the rounding of the published numbers.
    """
    figures = [PUBLISHED[name] for name in names]
    corners = itertools.product(*[(value - half, value + half) for value, half in figures])
    found = [function(*corner) for corner in corners]
    return function(*(value for value, _ in figures)), min(found), max(found)


def _mlp_alone(shape: TransformerShape, saved_in_attention: float, mx4: float) -> float:
    """Return the speed-up if the MLPs run in MX4 and attention saves a share of its own time."""
    mlp = shape.mlp_share
    return 1 / (1 - mlp * _saved(mx4) - (1 - mlp) * saved_in_attention)


@CLAIM.check
def _check(context: Context) -> Evidence:
    shape, models = SHAPES[SHAPE], [squared(FP8, MX4), nominal(FP8, MX4)]
    statements = [_explained(models, shape), *_within(shape), _mlp(shape), *_six_bits(models)]
    alone, low, high = rounded(lambda mx4: _mlp_alone(shape, 0.0, mx4), "MX4")
    tolerance = PUBLISHED["MLP only"][1] + (high - low) / 2
    figure = Comparison("MX4 in the MLPs only, bf16 in attention", MLP_ONLY, alone, tolerance)
    with_fp8 = rounded(lambda fp8, mx4: _mlp_alone(shape, _saved(fp8), mx4), "FP8", "MX4")
    note = (
        "The paper states no rates, shares or costs. So its speed-ups cannot be derived from a model; they only "
        "limit the parameters that a model can have. The speed-up that is compared with 2.48 follows from 2.73 and "
        "the shape of the model; the tolerance includes the rounding of 2.48 and 2.73. The paper does not state the "
        "format of attention. If attention's linear layers ran in FP8 instead of bf16, MX4 in the MLPs would give "
        f"the speed-up {with_fp8[0]:.3f} ({with_fp8[1]:.3f} to {with_fp8[2]:.3f} within the rounding of 1.72 and "
        "2.73). So 2.48 does not exclude FP8 in attention."
    )
    answer = (
        f"One model of rates and shares {'gives' if statements[0].holds else 'does not give'} the speed-ups "
        f"{FP8:g} and {MX4:g}. It {'also gives' if figure.agrees else 'does not give'} the paper's "
        f"{MLP_ONLY:g} for MX4 in the MLPs only (its value is {alone:.2f}). Undecided: whether the authors' own model "
        "gives these numbers."
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
        f"{m.what}: FP8 is {m.fp8:.3f} times and FP4 {m.fp4:.3f} times as fast as bf16, the linear layers take "
        f"{m.linear:.1%} of the bf16 step's time, and converting takes {m.conversion:.2%} of a bf16 product's time"
        for m in models
    )
    return Statement(
        "rates and shares that are possible for Llama-3 405B give both speed-ups, 1.72 and 2.73 (linear layers are "
        f"{shape.linear_share:.1%} of its products)",
        all(0 < m.linear <= shape.linear_share and m.conversion >= 0 for m in models),
        listed,
    )


def _within(shape: TransformerShape) -> list[Statement]:
    """Judge whether reasonable parameters can give each published number."""
    ranges = {name: project_range(shape, recipe) for name, recipe in RECIPES.items()}
    return [
        Statement(
            f"{name}: reasonable parameters can give the speed-up {PUBLISHED[name][0]}",
            low <= PUBLISHED[name][0] <= high,
            f"{low:.2f} to {high:.2f}",
        )
        for name, (low, high) in ranges.items()
    ]


def _mlp(shape: TransformerShape) -> Statement:
    """Judge whether two published speed-ups fit the share of the MLPs in the linear layers."""
    share, low, high = rounded(lambda mlp_only, mx4: _saved(mlp_only) / _saved(mx4), "MLP only", "MX4")
    return Statement(
        "the speed-ups 2.48 (MLPs only) and 2.73 (all linear layers) fit the share that the MLPs have in the linear "
        "layers of Llama-3 405B",
        low <= shape.mlp_share <= high,
        f"2.48 and 2.73 imply that the share of the MLPs is {share:.1%} ({low:.1%} to {high:.1%}), whatever the rates "
        f"and costs are; their true share of the FLOPs is {shape.mlp_share:.1%}, with which the speed-up would be "
        f"{_mlp_alone(shape, 0.0, MX4):.2f} instead of 2.48",
    )


def _changing_share(at_fp8: float, at_fp4: float, fp8: float, mx4: float) -> float:
    """Return the share of linear products whose change of rate explains two speed-ups.

    The speed-up rises from `at_fp8` to `at_fp4` if this share changes from FP8's rate to FP4's.
    """
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
            "forward products at FP8's rate, with gradient products at FP8's or FP4's rate, explain the speed-up "
            "2.11 that the paper states for MX6 at FP8's rate",
            any(abs(reading - AT_FP8) <= PUBLISHED[names[0]][1] + 0.005 for reading in readings),
            "the speed-up is {:.2f} with two gradient products at FP4's rate, {:.2f} with one, {:.2f} with none".format(
                *readings
            ),
        ),
        Statement(
            "a change of rate in the forward products, which are a third of the linear products, explains why the "
            "speed-up of MX6 is 2.11 at FP8's rate and 2.4 at FP4's rate",
            low <= 1 / 3 <= high,
            f"a change of rate in {share:.1%} of the linear products ({low:.1%} to {high:.1%}) raises the speed-up "
            f"from 2.11 to 2.4; a change in a third of them would raise it to {third:.2f}",
        ),
        Statement(
            "the speed-up 2.4 at FP4's rate equals the speed-up of MX4",
            abs(AT_FP4 - MX4) <= PUBLISHED[names[1]][1] + PUBLISHED["MX4"][1],
            "a step with speed-up 2.4 takes longer than a step with 2.73; the difference is "
            f"{1 / AT_FP4 - 1 / MX4:.1%} of a step in bf16",
        ),
        Statement(
            "the speed-up 2.31 lies between 2.11 and 2.4, so the rate of MX6 lies between FP8's and FP4's",
            0 < along < 1,
            f"the implied rates are {rates}",
        ),
    ]

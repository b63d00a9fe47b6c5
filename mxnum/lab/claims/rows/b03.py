"""B3: the weights of a clamped block move without effect, which is called a dead zone.

The check shows the dead zone in a short training run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, Whose, answered
from mxnum.lab.mlp import Experiment, Training
from mxnum.lab.mlp.loop import one_blas_thread
from mxnum.lab.mlp.operands import affine
from mxnum.lab.theory import dead_zone, dwell
from mxnum.output import palette
from mxnum.recipe import Operand, Recipe

CLAIM = Claim(
    "B3",
    "The dead zone of a clamped block",
    "The straight-through gradient keeps moving the weights of a clamped block while the loss does not change. "
    "When the largest weight crosses a power of two, every number of the block jumps by up to 1/7 of its value.",
    "`mxnum.lab.theory` derives how long the block stays clamped and how far it jumps; a run of `mxnum.lab.mlp` "
    "must show both.",
    whose=Whose.OURS,
)
RUN: dict[str, Any] = {"width": 64, "layers": 4, "batch": 256, "rate": 1e-3, "seed": 1, "block": "layer 0, 32 to 63"}


def clamped_block() -> dict[str, Any]:
    """Train a network whose gamma starts in E4M3's clamped range, and return one block's history.

    For each step, the result has the block's master weights, their quantized values and the loss.
    `crossing` is the first step at which the largest weight is at least 1, or None.
    """
    steps, rate, seed = 260, RUN["rate"], RUN["seed"]
    e4m3 = Operand("mxfp8_e4m3")
    precision = Recipe(gamma=e4m3, beta=e4m3, vector="bfloat16")
    training = Training(Experiment(rate=rate, gamma_start=(0.90, 0.95), precision=precision), (seed,))
    masters, values, losses = [], [], []
    with one_blas_thread():
        for step in range(steps):
            gamma = training.network.parameters.gamma
            masters.append(gamma[0, 0, 32:].copy())
            values.append(affine(gamma, e4m3, (seed,), step, 0)[0, 0, 32:])
            losses.append(float(training.advance()[0]))
    master = np.array(masters)
    beyond = master.max(axis=1) >= 1
    crossing = int(np.argmax(beyond)) if beyond.any() else None
    return {"master": master, "value": np.array(values), "losses": np.array(losses), "crossing": crossing, "rate": rate}


@CLAIM.check
def _check(context: Context) -> Evidence:
    context.tell("training a residual MLP with gamma in E4M3")
    with one_blas_thread():
        run, zone = clamped_block(), dead_zone("mxfp8_e4m3")
    context.keep("clamped-block", {name: run[name] for name in ("master", "value", "losses")})
    crossing, master, value = run["crossing"], run["master"], run["value"]
    if crossing is None:
        return Evidence(statements=[Statement("the block leaves its dead zone within the run", False)])
    before, after = value[crossing - 1], value[crossing]
    moved = float(np.abs(np.diff(master[:crossing], axis=0)).max())
    predicted = np.array([_after(zone.jumps, float(x)) for x in master[crossing]])
    jump, drift = float(after.mean() / before.mean() - 1), float(np.abs(master[crossing] - master[crossing - 1]).max())
    least, largest = dwell(float(master[0].max()), 1.0, run["rate"]), float(zone.largest_jump)
    statements = [
        Statement(
            "while the largest weight of the block is below 1, all quantized values of the block are 0.875, "
            "although the weights keep moving",
            (value[:crossing] == 0.875).all(),
            f"{crossing} steps; weights moved by up to {moved:.1g} a step",
        ),
        Statement(
            "the block stays clamped for at least (1 - largest weight) / rate steps, the time derived for Adam "
            "with a gradient of constant sign",
            crossing >= least,
            f"{crossing} against {least}",
        ),
        Statement(
            "when the largest weight crosses 1, every element gets the predicted value",
            np.array_equal(after, predicted.astype(np.float32)),
            f"the mean of the block jumps by {jump:.1%} in a step in which no weight moves by more than {drift:.1g}",
        ),
        Statement("no element jumps by more than 1/7 of its value", (after / before - 1).max() <= largest + 1e-6),
    ]
    answer = (
        f"All values of a clamped block are 0.875 for {crossing} steps while its weights move; then the block jumps by "
        f"{100 * jump:.1f} % in one step, as derived."
    )
    return answered(Evidence((), statements, "", RUN), answer, f"{100 * jump:.1f} % in one step")


def _after(jumps: Any, x: float) -> float:
    """Return the quantized value predicted for a weight `x` once the largest weight reaches 1."""
    within = (float(jump.after) for jump in jumps if jump.lower <= x <= jump.upper)
    return next(within, 0.875 if x < 1 else 1.0)


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str | None:
    run = context.kept("clamped-block")
    if run is None:
        return None
    ax.plot(run["master"], color="C0", lw=0.5, alpha=0.5)
    ax.plot(run["value"].mean(axis=1), color="C1", lw=1.6)
    ax.axhline(1, color=palette.COLOURS[6], lw=0.6)
    ax.set(xlabel="step", ylabel="gamma")
    return (
        "A block of 32 layer-norm weights in a training run. Blue: the weights that the optimizer moves. Red: the mean "
        "of "
        "their quantized values, which stays at 0.875 until the largest weight crosses 1."
    )

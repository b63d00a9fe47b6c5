"""Draw a scaling law on the axes `ax` or in a new figure; this needs the extra ``plots``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab.theory.scaling_law import ScalingFit
from mxnum.output.palette import COLOURS


def scaling_law(fit: ScalingFit, *, ax: Any = None) -> Any:
    """Draw, over compute, the loss of each run and the lowest loss that the law predicts."""
    table = fit.table
    ax = _axes(ax, 3.8)
    sizes = np.log10(table.parameters)
    dots = ax.scatter(table.flops, table.losses, s=16, c=sizes, cmap="cividis", edgecolors="0.3", linewidths=0.3)
    bar = ax.figure.colorbar(dots, ax=ax, label="parameters")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{10**value:.1e}")
    if fit.law.falls:
        flops = np.geomspace(table.flops.min(), table.flops.max(), 200)
        best = [fit.law(*fit.law.optimal(float(f))) for f in flops]
        ax.plot(flops, best, color=COLOURS[1], linewidth=1.6, label="the law at the best model size for each compute")
        ax.legend(fontsize=8)
    ax.set(xlabel="compute 6 N D, FLOP", ylabel="loss", xscale="log", yscale="log")
    for which in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        which("{x:g}")
    ax.tick_params(axis="y", which="both", labelsize=8)
    law = fit.law
    ax.set_title(
        f"L = {law.A:.4g} / N^{law.alpha:.3f} + {law.B:.4g} / D^{law.beta:.3f} + {law.E:.4g}, {len(table)} runs",
        fontsize=10,
    )
    return ax


def law_residuals(fit: ScalingFit, *, ax: Any = None) -> Any:
    """Draw the residual of each run, and the band in which the Huber loss is quadratic."""
    table = fit.table
    ax = _axes(ax, 3.0)
    delta = 100 * fit.delta
    if np.isfinite(delta):
        ax.axhspan(-delta, delta, color=COLOURS[2], alpha=0.25, linewidth=0, label=f"within {fit.delta:g}")
    ax.axhline(0, color="0.6", linewidth=0.8)
    thirds = np.searchsorted(np.quantile(table.parameters, [1 / 3, 2 / 3]), table.parameters)
    for i, name in enumerate(("small models", "middle", "large")):
        some = thirds == i
        ax.plot(
            table.flops[some], 100 * fit.residuals[some], "os^"[i], markersize=4, color=COLOURS[i], label=name,
            fillstyle="none",
        )  # fmt: skip
    ax.set(xlabel="compute 6 N D, FLOP", ylabel="above the law, %", xscale="log")
    ax.set_title(f"median miss {fit.typical_miss:.2%}", fontsize=10)
    ax.legend(fontsize=8, ncols=2)
    return ax


def _axes(ax: Any, height: float) -> Any:
    if ax is not None:
        return ax
    pyplot = errors.package("matplotlib.pyplot", "plots")
    return pyplot.subplots(figsize=(7.2, height), layout="constrained")[1]

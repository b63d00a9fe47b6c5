"""Draw the observations of a watched model: one row for each module, one column for each step."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors


def layers_by_steps(rows: list[dict[str, Any]], quantity: str, operand: str) -> Any:
    """Return a heat map with a row for each module and a column for each step.

    Missing values are white.
    """
    errors.package("matplotlib", "plots")
    from matplotlib.figure import Figure

    modules = list(dict.fromkeys(row["module"] for row in rows))
    steps = sorted({row["step"] for row in rows})
    values = np.full((len(modules), len(steps)), np.nan)
    for row in rows:
        values[modules.index(row["module"]), steps.index(row["step"])] = row[quantity]
    figure = Figure(figsize=(7.2, 1.4 + 0.28 * len(modules)), layout="constrained")
    ax = figure.subplots()
    image = ax.imshow(values, aspect="auto", interpolation="nearest", cmap="viridis")
    ax.set_yticks(range(len(modules)), [name or "the model" for name in modules], fontsize=8)
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 8)).astype(int))
    ax.set_xticks(shown, [str(steps[i]) for i in shown])
    ax.set_xlabel("step")
    ax.set_title(f"{quantity}: {operand}", fontsize=10)
    figure.colorbar(image, ax=ax)
    return figure

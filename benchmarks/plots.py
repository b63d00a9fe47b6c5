"""Draw a plot for each table from the saved measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.record import Measurement, Table
from mxnum.output import palette

#: The colours of Okabe and Ito, which colour-blind readers can distinguish, each with a marker.
STYLES = (
    (palette.BLUE, "o"), (palette.VERMILION, "s"), (palette.GREEN, "^"), (palette.PURPLE, "D"), (palette.SKY, "v"),
    (palette.ORANGE, "P"), (palette.BLACK, "X"), ("#999999", "*"),
)  # fmt: skip


#: A table with more than `MANY` rows gets a smaller plot.
MANY = 40


def draw(table: Table, measurements: list[Measurement], path: Path) -> bool:
    """Write an SVG of a table; return False if the table has nothing to draw."""
    shown = [m for m in measurements if m.median]
    if table.plot == "none" or not shown:
        return False
    import matplotlib
    from matplotlib.figure import Figure

    rows = len({m.row for m in shown})
    height = 4.0 if table.plot == "curve" else 1.1 + rows * (0.26 if rows <= MANY else 0.19)
    size = 9 if rows <= MANY else 7.5
    with matplotlib.rc_context({"svg.hashsalt": table.key, "svg.fonttype": "none", "font.size": size}):
        figure = Figure(figsize=(9, height), layout="constrained")
        axis = figure.subplots()
        (_curve if table.plot == "curve" else _dots)(axis, shown)
        axis.set_title(table.title, loc="left", fontsize=10, fontweight="bold")
        (axis.set_ylabel if table.plot == "curve" else axis.set_xlabel)(table.unit)
        axis.grid(visible=True, color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata, facecolor="white", dpi=100)
    return True


def _columns(shown: list[Measurement]) -> dict[str, list[Measurement]]:
    columns: dict[str, list[Measurement]] = {}
    for m in shown:
        columns.setdefault(m.column, []).append(m)
    return columns


def _spread(m: Measurement) -> tuple[float, float, float]:
    median = m.median or 0.0
    low, high = (median if end is None else end for end in (m.low, m.high))
    return median, max(0.0, median - low), max(0.0, high - median)


def _dots(axis: Any, shown: list[Measurement]) -> None:
    """Draw a marker with whiskers to the quartiles for each cell, and dashed lines at goals."""
    rows = list(dict.fromkeys(m.row for m in shown))
    columns = _columns(shown)
    step = 0.7 / max(1, len(columns))
    for i, (column, cells) in enumerate(columns.items()):
        colour, marker = STYLES[i % len(STYLES)]
        places = [rows.index(m.row) + (i - (len(columns) - 1) / 2) * step for m in cells]
        centres, below, above = zip(*map(_spread, cells), strict=True)
        axis.errorbar(
            centres, places, xerr=(below, above), fmt=marker, color=colour, markersize=4, elinewidth=1, label=column
        )
    for goal in {(m.row, m.limit) for m in shown if m.limit is not None}:
        place = rows.index(goal[0])
        axis.plot([goal[1]] * 2, [place - 0.45, place + 0.45], color="#444444", linewidth=1.5, linestyle=(0, (2, 1)))
    medians = [m.median for m in shown if m.median]
    if max(medians) > 15 * min(medians):
        axis.set_xscale("log")
        _plain_numbers(axis.xaxis)
    else:
        axis.set_xlim(left=0)
    if min(medians) <= 1.5:
        axis.axvline(1.0, color="#444444", linewidth=0.8)
    axis.set_yticks(range(len(rows)), rows)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)


def _curve(axis: Any, shown: list[Measurement]) -> None:
    """Draw each column as a curve over the sizes, with the quartiles shaded."""
    for i, (column, cells) in enumerate(_columns(shown).items()):
        colour, marker = STYLES[i % len(STYLES)]
        xs = [m.x for m in cells]
        axis.plot(xs, [m.median for m in cells], marker=marker, color=colour, markersize=4, label=column)
        axis.fill_between(xs, [m.low for m in cells], [m.high for m in cells], color=colour, alpha=0.2, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    _plain_numbers(axis.yaxis)
    axis.axhline(1.0, color="#444444", linewidth=0.8)
    axis.set_xlabel("elements")
    axis.legend(loc="upper right", frameon=False)


def _plain_numbers(axis: Any) -> None:
    """Label an axis with plain numbers: 1, 2, 5, 10, ..., or 1, 10, 100, ... on a long axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())

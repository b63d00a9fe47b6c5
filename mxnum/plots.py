"""Draw plots of quantization and its errors (extra ``plots``).

Each function draws into `ax`, or into a new figure, and returns the axes. ``axes.figure.savefig``
writes the figure to a file. The colours come from `mxnum.output.palette`. In a plot, each scale
rule also has its own marker or line style, for readers who cannot distinguish the colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.analysis import Exploration, Statistics, measure
from mxnum.analysis.design_space import USUAL_FLOAT_RULES, USUAL_RULES
from mxnum.definition.by_numpy import scale_numbers
from mxnum.formats import MXFormat
from mxnum.layout import resolve_blocks, scales_shape
from mxnum.memory.dtypes import Array, float_array
from mxnum.modes import FloatScaleRule, Rounding, ScaleRule
from mxnum.modes import scale_rules as known_rules
from mxnum.ops import shared_scale
from mxnum.output.palette import COLOURS, colour

#: Line styles, line widths and markers of scale rules. There are fewer line styles than markers,
#: because a plot with lines shows only the rules of one kind of scale.
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 3)))
_WIDTHS = (3.6, 2.4, 1.8, 1.2, 2.4, 1.2)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")

_MAPPED = {
    "normalized_rmse": "R-MSE / root mean square of the block",
    "max_error": "largest error",
    "bias": "mean error",
    "gain": "gain",
    "clamp_rate": "share clamped",
    "beyond_max_rate": "share beyond the largest value",
    "max_code_rate": "share at the largest code",
    "underflow_rate": "share that underflows to zero",
}


def histogram(x: Any, format: str | MXFormat, *, scale_rule: str | None = None, ax: Any = None, **layout: Any) -> Any:
    """Draw a histogram of the elements of a tensor, each divided by its scale, on a log axis.

    If the format has a tensor scale, elements are also divided by the tensor scale. `layout`
    consists of the arguments axis, block_size, block_shape or blocks of `mxnum.quantize`.

    The title shows the shares of elements that become zero or lie beyond the largest value. The
    histogram and the shares ignore NaN blocks and non-finite elements. Zeros and elements whose
    scale is zero are not drawn, but count in the shares.
    """
    fmt = formats.get(format)
    array, _ = float_array("x", x)
    blocks = resolve_blocks(array.shape, fmt.block, **layout)
    got = measure(array, fmt, scale_rule=scale_rule, blocks=blocks)
    factor = 1.0 if got.tensor_scale is None else got.tensor_scale
    scales = shared_scale(array, fmt, scale_rule=scale_rule, blocks=blocks, tensor_scale=got.tensor_scale)
    scale = _each(scale_numbers(scales, fmt.scale), blocks, array.shape) * factor
    wide = np.abs(array.astype(np.float64))
    shown = np.isfinite(wide) & (wide > 0) & (scale > 0)
    errors.require(bool(shown.any()), "x", "an array with a finite element other than zero", "one without")
    exponents = np.log2(wide[shown]) - np.log2(scale[shown])
    ax = _axes(ax, (7.2, 3.8))
    element = fmt.element
    smallest = element.min_subnormal if element.min_subnormal is not None else element.min_normal
    top, bottom = np.log2(element.max), np.log2(smallest)
    low = min(max(np.floor(np.quantile(exponents, 0.001)), bottom - 8), bottom - 2)
    edges = np.arange(low, np.ceil(max(exponents.max(), top)) + 0.5, 0.25)
    weights = np.full(exponents.shape, 100 / got.measured)
    ax.hist(
        np.maximum(exponents, low), edges, weights=weights, color=COLOURS[5], edgecolor="white", linewidth=0.3, zorder=2
    )
    marks = [
        (bottom, "smallest value", 1),
        (np.log2(element.min_normal), "smallest normal", 0),
        (top, "largest value", 1),
    ]
    height = ax.get_ylim()[1]
    for at, name, style in marks:
        if name == "smallest normal" and at == bottom:
            continue
        ax.axvline(at, color=COLOURS[6], linestyle=_LINES[1 - style], linewidth=1)
        ax.annotate(f"{name} ", (at, 1.16 * height), rotation=90, va="top", ha="right", fontsize=8)
    zones = [(edges[0], bottom - 1, COLOURS[3], "///", "to zero"), (top, edges[-1], COLOURS[1], "xxx", "beyond")]
    for start, end, shade, hatch, name in zones:
        ax.axvspan(
            start, end, facecolor=shade, edgecolor=shade, alpha=0.2, hatch=hatch, linewidth=0, label=name, zorder=1
        )
    ax.legend(fontsize=8, loc="center left")
    ax.set(
        xlim=(edges[0], edges[-1]),
        ylim=(0, 1.18 * height),
        xlabel="log2 of the magnitude / scale",
        ylabel="% of the elements",
    )
    rates = f"{got.beyond_max_rate:.2%} beyond the largest value, {got.underflow_rate:.2%} rounded to zero"
    ax.set_title(f"{fmt.name}, {_rule(fmt, scale_rule)}: {rates}", fontsize=10)
    return ax


def block_map(
    x: Any, format: str | MXFormat, *, quantity: str = "normalized_rmse", ax: Any = None, **options: Any
) -> Any:
    """Draw a coloured cell for each block of a matrix.

    By default, the colour shows the error of the block. `options` are keyword arguments of
    `mxnum.analysis.measure`.
    """
    errors.choose("quantity", quantity, tuple(_MAPPED))
    fmt = formats.get(format)
    array, _ = float_array("x", x)
    errors.require(array.ndim == 2, "x", "a matrix", f"an array of {array.ndim} axes")
    got: Statistics = measure(array, fmt, per="block", **options)
    values = np.asarray(getattr(got, quantity), np.float64)
    ax = _axes(ax, (7.2, 3.8))
    signed = quantity in ("bias", "gain")
    centre = 1.0 if quantity == "gain" else 0.0
    extent = float(np.nanmax(np.abs(values - centre), initial=0.0)) if signed else 0.0
    limits = {"vmin": centre - extent, "vmax": centre + extent} if signed else {"vmin": 0.0}
    image = ax.imshow(
        np.ma.masked_invalid(values),
        cmap="PuOr" if signed else "cividis",
        aspect="auto",
        interpolation="nearest",
        **limits,
    )
    ax.figure.colorbar(image, ax=ax, label=_MAPPED[quantity])
    layout = {name: options[name] for name in ("axis", "block_size", "block_shape", "blocks") if name in options}
    rows, columns = resolve_blocks(array.shape, fmt.block, **layout)
    ax.set(xlabel="column of blocks", ylabel="row of blocks")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.yaxis.get_major_locator().set_params(integer=True)
    rule = _rule(fmt, options.get("scale_rule"))
    ax.set_title(f"{fmt.name}, {rule}, blocks of {rows}x{columns}", fontsize=10)
    return ax


def sawtooth(
    format: str | MXFormat,
    *,
    scale_rules: Sequence[str] | None = None,
    rounding: str = "rne",
    binades: float = 2,
    points: int = 4096,
    ax: Any = None,
) -> Any:
    """Draw the relative error of a block whose numbers are all equal, against that number.

    The plot has one line for each scale rule. If the format has a tensor scale, the largest plotted
    number determines the tensor scale.
    """
    fmt = formats.get(format)
    mode = errors.choose_member("rounding", rounding, Rounding)
    errors.require(not mode.is_stochastic, "rounding", "deterministic", str(mode))
    errors.require_type(not isinstance(scale_rules, str), "scale_rules", "a list of choices", scale_rules)
    values = np.exp2(np.linspace(0, binades, points, endpoint=False)).astype(np.float32)
    ax = _axes(ax, (7.2, 3.8))
    ax.axhline(0, color="0.6", linewidth=0.8)
    usual = USUAL_RULES if fmt.scale.power_of_two else USUAL_FLOAT_RULES[:2]
    for i, rule in enumerate(usual if scale_rules is None else scale_rules):
        # In a block of one element, the mean error is the element's error.
        error = 100 * measure(values, fmt, block_size=1, per="block", scale_rule=rule, rounding=rounding).bias / values
        i %= len(_LINES)
        ax.plot(values, error, linestyle=_LINES[i], color=colour(str(rule)), linewidth=_WIDTHS[i], label=rule)
    ax.set_xscale("log", base=2)
    ax.set(xlim=(1, 2**binades), xlabel="value of every element of the block", ylabel="relative error, %")
    ax.set_xticks(_ticks(binades), [f"{t:g}" for t in _ticks(binades)])
    ax.set_xticks([], minor=True)
    ax.set_title(f"{fmt.name}: error of a block of equal values", fontsize=10)
    ax.legend(title="scale rule", fontsize=8, title_fontsize=8, loc="best", framealpha=0.9)
    return ax


def design_space(exploration: Exploration, *, ax: Any = None, **wanted: Any) -> Any:
    """Draw the errors of the candidates of an `Exploration`, with one row for each format.

    Each candidate is a marker, whose shape shows the scale rule. Markers of candidates with an
    offset are hollow. `wanted` selects candidates by their fields, for example
    ``rounding="rne", block="1x32"``.
    """
    ranked = exploration.ranked(**wanted)
    errors.require(bool(ranked), "wanted", "fields that some candidate has", wanted)
    chosen = [c for c in ranked if c.normalized_rmse > 0]
    accepted = "one with candidates whose error is above zero, because the axis is logarithmic"
    errors.require(bool(chosen), "exploration", accepted, {c.normalized_rmse for c in ranked})
    order = sorted(
        {c.format for c in chosen},
        key=lambda name: -min(c.normalized_rmse for c in chosen if c.format == name),
    )
    every = dict.fromkeys(str(rule) for rule in (*ScaleRule, *FloatScaleRule))
    rules = [rule for rule in every if any(c.scale_rule == rule for c in chosen)]
    ax = _axes(ax, (7.2, 0.9 + 0.5 * len(order) + 1))
    for i, rule in enumerate(rules):
        for offset in (False, True):
            some = [c for c in chosen if c.scale_rule == rule and c.asymmetric == offset]
            heights = [order.index(c.format) + 0.17 * (i - (len(rules) - 1) / 2) for c in some]
            shade, marker = colour(rule), _MARKERS[i % len(_MARKERS)]
            ax.scatter(
                [c.normalized_rmse for c in some], heights, s=26, marker=marker, facecolors="none" if offset else shade,
                edgecolors=shade, linewidths=1, label=None if offset else rule,
            )  # fmt: skip
    ax.set_xscale("log", subs=[1.5, 2, 3, 5, 7])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("{x:g}")
    ax.tick_params(axis="x", which="both", labelsize=8)
    ax.set_yticks(range(len(order)), order)
    for at in range(len(order) - 1):
        ax.axhline(at + 0.5, color="0.88", linewidth=0.8, zorder=0)
    ax.grid(axis="x", color="0.9", zorder=0)
    ax.set_axisbelow(True)
    ax.set(xlabel="R-MSE / root mean square of the tensor", ylim=(-0.6, len(order) - 0.4))
    selection = ", ".join(f"{name} {value}" for name, value in wanted.items())
    hollow = "; hollow: with an offset" if any(c.asymmetric for c in chosen) else ""
    ax.set_title(f"{len(chosen)} candidates{f' ({selection})' if selection else ''}{hollow}", fontsize=10)
    ax.legend(title="scale rule", fontsize=8, title_fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax


def _rule(fmt: MXFormat, asked: str | None) -> str:
    return str(known_rules(fmt)[0] if asked is None else asked)


def _ticks(binades: float) -> list[float]:
    inner = [t * 2**e for e in range(int(np.ceil(binades))) for t in (1.0, 1.25, 1.5, 1.75)]
    return [t for t in inner if t < 2**binades] + [2**binades]


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    """Return `ax`, or the axes of a new figure if `ax` is None."""
    if ax is not None:
        return ax
    pyplot = errors.package("matplotlib.pyplot", "plots")
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _each(per_block: Array, blocks: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Return an array that gives each element the value of its block."""
    assert per_block.shape == scales_shape(shape, tuple(blocks))
    for axis, (block, length) in enumerate(zip(blocks, shape, strict=True)):
        per_block = np.repeat(per_block, min(block, length), axis)
    return per_block[tuple(slice(length) for length in shape)]

"""The figures of the report as SVG that takes its colours from the page, so that it is readable in light and dark.

Each claim that has something to show has a function here; it draws from the stored results, never from anything else.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from mxnum import errors, plots
from mxnum.analysis import gamma_bias
from mxnum.lab.claims import design, language, losses
from mxnum.lab.claims.registry import Entry
from mxnum.lab.claims.report_folder import ReportFolder
from mxnum.lab.studies import interventions, report, studies
from mxnum.lab.theory import figures as law_figures
from mxnum.lab.theory.gaps import relative_gaps
from mxnum.output import palette

#: Inches. A telephone shows a figure of this width with letters as large as those of the text.
WIDTH = 4.6
#: Text, frames and black lines are drawn in this colour, which then becomes that of the page's text.
_INK = "#010203"


@dataclass(frozen=True)
class Figure:
    """A picture and what it shows."""

    svg: str
    caption: str


#: Draws on axes; what the figure shows comes back, or None where there is nothing to draw.
Draw = Callable[[Any, Entry, ReportFolder], str | None]
_FIGURES: dict[str, list[tuple[float, Draw]]] = {}


def figures_of(entry: Entry, store: ReportFolder) -> list[Figure]:
    """The figures of a claim that was checked."""
    drawn = [_drawn(height, draw, entry, store, i) for i, (height, draw) in enumerate(_FIGURES.get(entry.claim.id, []))]
    if any(not c.agrees for c in entry.evidence.comparisons) and len(entry.evidence.comparisons) >= 8:
        drawn.append(_drawn(2.4, _distances, entry, store, len(drawn)))
    return [figure for figure in drawn if figure is not None]


def _figure(id: str, height: float = 2.9) -> Callable[[Draw], Draw]:
    def register(draw: Draw) -> Draw:
        _FIGURES.setdefault(id, []).append((height, draw))
        return draw

    return register


def _drawn(height: float, draw: Draw, entry: Entry, store: ReportFolder, index: int) -> Figure | None:
    with _style(f"{entry.claim.id}-{index}"):
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
        caption = draw(canvas.subplots(), entry, store)
        if caption is None:
            return None
        written = io.StringIO()
        canvas.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Figure(inline(written.getvalue(), caption), caption)


@contextmanager
def _style(salt: str) -> Iterator[None]:
    mpl = errors.package("matplotlib", "plots")
    ink = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK)
    settings: dict[str, Any] = ink | {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": salt,  # names within a picture must not meet those of another on the same page
        "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 9, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#80808040",
        "axes.prop_cycle": mpl.rcsetup.cycler(color=list(palette.COLOURS[:6])),
    }  # fmt: skip
    with mpl.rc_context(settings):
        yield


def inline(svg: str, description: str) -> str:
    """An SVG file as part of a page: as wide as there is room, in the colours of the page, with a description."""
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height|version|xmlns:xlink)="[^"]*"', "", head)
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    text = f'{head} role="img" aria-label="{escape(description, quote=True)}">{rest}'
    for colour in (_INK, "#000000"):
        text = text.replace(colour, "currentColor")
    for index, colour in enumerate(palette.COLOURS[:6]):  # the page defines --c0 and so on for light and dark
        text = text.replace(colour.lower(), f"var(--c{index})")
    text = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 sans-serif", text)
    return re.sub(r"\s*\n\s*", "\n", text).replace("xlink:href", "href").strip()


@_figure("I1")
def _sawtooth(ax: Any, entry: Entry, store: ReportFolder) -> str:
    plots.sawtooth("mxfp8_e4m3", binades=1, ax=ax)
    ax.set_title("")
    return (
        "Error of an E4M3 block whose elements all have one value, under each scale rule. Above the mantissa 1.75 the "
        "floor rule lets them overflow: every value becomes 1.75."
    )


@_figure("I3", 2.4)
def _gaps(ax: Any, entry: Entry, store: ReportFolder) -> str:
    gaps = 100 * np.array([float(g) for g in relative_gaps("mxfp8_e4m3")])
    ax.step(np.arange(1, len(gaps) + 1), gaps, where="mid", lw=1)
    ax.set(xlabel="code", ylabel="relative gap to the next, %", yscale="log")
    ax.yaxis.set_major_formatter("{x:g}")
    return "The relative gap above each positive code of E4M3: the seven subnormals, then one tooth for each binade."


@_figure("I5")
def _zeta(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "confirm.json", "quick.json")
    if table is None:
        return None
    for index, name in enumerate(table["arms"]):
        if name not in ("E4M3", "E2M1", "E2M1, LN FP32", "LN E2M1"):
            continue
        for number, run in enumerate(table["arms"][name]["runs"]):
            pairs = [(t, v) for t, v in zip(run["measured_at"], run["measured"]["zeta"], strict=True) if v is not None]
            if pairs:
                label = None if number else name
                ax.plot(*zip(*pairs, strict=True), color=palette.colour(name, index), lw=0.8, label=label)
    ax.set(xlabel="step", ylabel="zeta", yscale="log")
    ax.legend(fontsize=8)
    return (
        "zeta, the change of the gradient by quantization relative to its size, on the parameters and batch of the "
        "run; one line for each seed, until it diverges or ends."
    )


@_figure("I6c", 3.2)
def _losses(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "quick.json")
    if table is None or not {"FP32", "E2M1"} <= set(table["arms"]):
        return None
    report.loss_figure(table, ["FP32", "E2M1"], axes=ax, colour=palette.colour, medians=True)
    return (
        "The loss of every run in FP32 and with everything in E2M1, from the same weights on the same inputs; thick: "
        "the median over runs. A run is lost if its loss jumps before step 4,000 and is not back at step 8,000."
    )


@_figure("I6c")
def _survival(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "quick.json")
    if table is None:
        return None
    report.survival_figure(table, axes=ax, colour=palette.colour)
    return (
        "The share of runs without a jump by a step (Kaplan-Meier, with 95 % confidence), for each precision; in "
        "brackets how many jumped, and how many of these were lost (dashed)."
    )


@_figure("I7", 3.6)
def _interventions(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "interventions.json")
    if table is None:
        return None
    rows = interventions.rows(table)[::-1]
    shares = [row.arm.events / row.arm.runs for row in rows]
    colours = [palette.COLOURS[6 if row.reading == "control" else 0] for row in rows]
    ax.barh([row.name for row in rows], shares, color=colours, height=0.6)
    ax.set(xlim=(0, 1), xlabel="share that rose while watched")
    ax.tick_params(axis="y", labelsize=8)
    return "What was changed shortly before a rise, and how many runs rose all the same; black: the controls."


@_figure("I9")
def _astray(ax: Any, entry: Entry, store: ReportFolder) -> str:
    arms = {"bf16": losses.BF16} | language.MITIGATED | language.THROUGHOUT | language.MIXED
    shown = [name for name in arms if any(run.astray for run in losses.arm(arms[name]))]
    for i, name in enumerate(shown):
        runs = losses.arm(arms[name])
        budgets = sorted({run.budget for run in runs})
        shares = [np.mean([run.astray for run in runs if run.budget == budget]) for budget in budgets]
        ax.plot(budgets, shares, "os^Dv*"[i % 6] + "-", ms=4, lw=1, label=name, color=palette.COLOURS[i % 7])
    ax.set(xlabel="FLOP", ylabel="share that ends above its least loss", xscale="log")
    ax.legend(fontsize=8)
    return (
        f"How many of the language models end more than {losses.ASTRAY} above their own least loss, by their compute; "
        "the arms that are not shown have none."
    )


@_figure("I10", 3.2)
def _law(ax: Any, entry: Entry, store: ReportFolder) -> str:
    law_figures.scaling_law(language.fit(language.BF16_ACTIVATIONS["E4M3"]), ax=ax)
    ax.set_title("")
    return (
        "The losses of E4M3 weights with bf16 activations by the compute of the runs, and the least loss for each "
        "compute by the law that was fitted to them."
    )


@_figure("M2", 3.6)
def _rules(ax: Any, entry: Entry, store: ReportFolder) -> str:
    rules, formats = ("floor", "even", "ceil", "rceil"), ("mxfp4_e2m1", "mxfp4_e3m0", "mxint4")
    rows = [(tensor, fmt) for tensor in design.tensors() for fmt in formats]
    for i, rule in enumerate(rules):
        found = [design.error(tensor, fmt, rule) for tensor, fmt in rows]
        ax.plot(
            found, np.arange(len(rows)) + 0.12 * (i - 1.5), "os^D"[i], ms=4.5, label=rule, color=palette.colour(rule)
        )
    ax.set_yticks(range(len(rows)), [f"{tensor}, {fmt.removeprefix('mx')}" for tensor, fmt in rows], fontsize=8)
    ax.invert_yaxis()
    ax.set(xlabel="R-MSE / root mean square of the tensor")
    ax.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1), handletextpad=0, columnspacing=0.8)
    return "Error of the 4-bit formats under each scale rule, on synthetic weights, activations and gradients."


@_figure("M1")
@_figure("M10")
def _recipes(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "recipes.json")
    if table is None:
        return None
    ends = {
        name: {r["seed"]: r["last_loss"] for r in arm["runs"] if r["last_loss"] is not None}
        for name, arm in table["arms"].items()
    }
    reference = ends.pop("recipe FP32", {})
    names = [name for name, of in ends.items() if of.keys() & reference.keys()][::-1]
    if not names:
        return None
    for at, name in enumerate(names):
        gaps = [100 * (loss / reference[seed] - 1) for seed, loss in ends[name].items() if seed in reference]
        ax.plot(gaps, [at] * len(gaps), "o", ms=3, alpha=0.5, color="C0")
        ax.plot([np.median(gaps)], [at], "|", ms=12, color="C1")
    ax.set_yticks(range(len(names)), [name.removeprefix("recipe ") for name in names], fontsize=8)
    ax.set(xlabel="loss at the end above FP32's, %")
    return "How far above FP32 each recipe ends: dots are seeds, lines medians."


@_figure("B1")
def _clusters(ax: Any, entry: Entry, store: ReportFolder) -> str:
    means = np.linspace(1, 2, 161)
    for deviation, line in ((0.005, "-"), (0.03, "--")):
        for rule in ("floor", "rceil"):
            bias = [100 * float(gamma_bias("mxfp8_e4m3", m, deviation, scale_rule=rule).bias) for m in means]
            ax.plot(means, bias, line, color=palette.colour(rule), lw=1.2, label=f"{rule}, deviation {deviation:g}")
    ax.set(xlabel="mean of the cluster", ylabel="bias, %")
    ax.legend(fontsize=8)
    return "The expected relative error of an E4M3 block of 32 numbers clustered around a mean, by the closed form."


@_figure("B2")
def _limits(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "sgd-limits.json")
    if table is None:
        return None
    for row in table["rows"]:
        colour, marker = ("C0", "o") if row["common"] or not row["deviation"] else ("C1", "s")
        ax.plot([row["predicted"]] * len(row["ratios"]), row["ratios"], marker, ms=4, alpha=0.7, color=colour)
    ends = [0.4, 2.1]
    ax.plot(ends, ends, color=palette.COLOURS[6], lw=0.8)
    ax.set(xlabel="predicted by the quadratic", ylabel="measured on the network", xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
    return (
        "The largest stable rate of SGD under noise in the gradient, relative to none; circles: noise common to all "
        "elements, or none; squares: drawn for each element. On the line they agree."
    )


@_figure("B3")
def _dead_zone(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    run = store.arrays("clamped-block")
    if run is None:
        return None
    ax.plot(run["master"], color="C0", lw=0.5, alpha=0.5)
    ax.plot(run["value"].mean(axis=1), color="C1", lw=1.6)
    ax.axhline(1, color=palette.COLOURS[6], lw=0.6)
    ax.set(xlabel="step", ylabel="gamma")
    return (
        "A block of 32 layer-norm weights in a real run. Blue: the weights that the optimizer moves. Red: the mean of "
        "what E4M3 makes of them, which stays at 0.875 until the largest weight crosses 1."
    )


@_figure("B6")
def _critical(ax: Any, entry: Entry, store: ReportFolder) -> str | None:
    table = _table(store, "critical-rate.json")
    if table is None:
        return None
    for i, kind in enumerate(sorted({name.rpartition(", rate ")[0] for name in table["arms"]})):
        rates = [r for r in studies.RATES if f"{kind}, rate {r:g}" in table["arms"]]
        arms = [report.arm_of(table, f"{kind}, rate {r:g}") for r in rates]
        ax.plot(
            rates,
            [a.events / a.runs for a in arms],
            "os^Dv*"[i % 6] + "-",
            ms=4,
            lw=1,
            label=kind,
            color=palette.colour(kind, i),
        )
    ax.set(xlabel="rate", ylabel="share that diverged", xscale="log")
    ax.legend(fontsize=8)
    return "How many of the runs diverge at each learning rate."


def _distances(ax: Any, entry: Entry, store: ReportFolder) -> str:
    """Every figure of the claim against its tolerance."""
    comparisons = entry.evidence.comparisons
    reach = 4.0
    found = np.array([_units(c.found - c.claimed, c.tolerance) for c in comparisons])
    agrees = np.array([c.agrees for c in comparisons])
    at = np.arange(1, len(found) + 1)
    ax.axhspan(-1, 1, color=palette.COLOURS[2], alpha=0.15, lw=0)
    for shown, marker, colour in ((agrees, "o", "C2"), (~agrees, "X", "C1")):
        ax.plot(at[shown], np.clip(found, -reach, reach)[shown], marker, ms=4.5, color=colour)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set(xlabel="figure, in the order listed", ylabel="distance / tolerance", ylim=(-reach - 0.4, reach + 0.4))
    return (
        "Each figure's distance from the one claimed, in units of its tolerance; inside the band they agree. Distances "
        f"beyond {reach:g} are drawn at {reach:g}."
    )


def _units(distance: float, tolerance: float) -> float:
    if not tolerance:
        return 0.0 if not distance else float(np.copysign(np.inf, distance))
    return distance / tolerance


def _table(store: ReportFolder, *names: str) -> Any:
    """The first of these results files that is there."""
    from mxnum.lab import storage

    path = next((store.results / name for name in names if (store.results / name).exists()), None)
    return None if path is None else storage.read_json(path)

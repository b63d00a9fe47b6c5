"""The figures of the report as SVG that takes its colours from the page, so that it is readable in light and dark.

The file of a claim draws its figures, from the stored results and never from anything else.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab.claims.claim import Context, Draw
from mxnum.lab.claims.verdicts import Entry
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


def figures_of(entry: Entry, context: Context) -> list[Figure]:
    """Draw the figures of a claim that was checked."""
    comparisons, draws = entry.evidence.comparisons, list(entry.claim.figures)
    if any(not c.agrees for c in comparisons) and len(comparisons) >= 8:
        draws.append((2.4, lambda ax, _: _distances(ax, entry)))
    drawn = [_drawn(*each, context, f"{entry.claim.id}-{index}") for index, each in enumerate(draws)]
    return [figure for figure in drawn if figure is not None]


def _drawn(height: float, draw: Draw, context: Context, salt: str) -> Figure | None:
    with _style(salt):
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
        caption = draw(canvas.subplots(), context)
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
    """Return an SVG file as part of a page: as wide as there is room, in the page's colours, with a description."""
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


def _distances(ax: Any, entry: Entry) -> str:
    """Draw every figure of the claim against its tolerance."""
    reach, comparisons = 4.0, entry.evidence.comparisons
    off, within = np.array([(c.found - c.claimed, c.tolerance) for c in comparisons]).T
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(off == 0, 0.0, off / within)
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

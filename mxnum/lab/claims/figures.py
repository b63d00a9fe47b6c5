"""Draw the figures of the report as SVG whose colours follow the page's light or dark theme.

The functions that draw a claim's figures are in the claim's file, and read only stored results.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

from mxnum import errors
from mxnum.lab.claims.claim import Claim, Context, Draw
from mxnum.output import palette

#: The width of a figure in inches. At this width the letters of a figure are as large on a phone as
#: the letters of the text.
WIDTH = 4.6
#: The colour of text, frames and black lines; `inline` replaces it by the page's text colour.
_INK = "#010203"


@dataclass(frozen=True)
class Figure:
    """A picture and its caption."""

    svg: str
    caption: str


def figures_of(claim: Claim, context: Context) -> list[Figure]:
    """Draw the figures of a claim that was checked."""
    drawn = [_drawn(*each, context, f"{claim.id}-{index}") for index, each in enumerate(claim.figures)]
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
        "svg.fonttype": "none",  # Text stays text.
        "svg.hashsalt": salt,  # Ids in a figure must differ from the ids in other figures on the page.
        "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 9, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#80808040",
        "axes.prop_cycle": mpl.rcsetup.cycler(color=list(palette.COLOURS[:6])),
    }  # fmt: skip
    with mpl.rc_context(settings):
        yield


def inline(svg: str, description: str) -> str:
    """Return an SVG file as part of a page, with the page's width and colours."""
    svg = svg[svg.index("<svg") :]
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height|version|xmlns:xlink)="[^"]*"', "", head)
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    text = f'{head} role="img" aria-label="{escape(description, quote=True)}">{rest}'
    for colour in (_INK, "#000000"):
        text = text.replace(colour, "currentColor")
    for index, colour in enumerate(palette.COLOURS[:6]):  # the style sheet defines --c0, --c1, ... for both themes
        text = text.replace(colour.lower(), f"var(--c{index})")
    text = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 sans-serif", text)
    return re.sub(r"\s*\n\s*", "\n", text).replace("xlink:href", "href").strip()

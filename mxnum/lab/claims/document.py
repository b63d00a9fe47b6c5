"""Write the report as one self-contained HTML file.

The page adapts to small and large screens, and to light and dark mode. The template
``report.html.jinja`` and the style sheet ``report.css`` are in the same folder as this module.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab.claims import figures, stored
from mxnum.lab.claims.claim import SOURCES, Context
from mxnum.lab.claims.evidence import MEANINGS, Verdict
from mxnum.lab.claims.page import headed, plain, sentences
from mxnum.lab.claims.verdicts import Report
from mxnum.lab.studies.sweep import duration

#: Claims whose figures may be shown at the top of the page. The page takes the first two of these
#: claims that have figures, and shows the first figure of each.
SHOWN = ("I6c", "I1", "B1", "M2", "I10")

#: If a claim has more than `FOLDED` statements, the page collapses the statements that hold. If a
#: claim has more than `FOLDED` numbers and all numbers agree, the page collapses them.
FOLDED = 8

_HERE = Path(__file__).parent
_CLASSES = {
    Verdict.REPRODUCED: "good", Verdict.DIFFERS: "odd", Verdict.NOT_REPRODUCED: "bad", Verdict.UNDECIDED: "none",
    Verdict.NOT_RUN: "none", Verdict.FAILED: "bad", Verdict.CONFIRMED: "good", Verdict.CORRECTED: "odd",
}  # fmt: skip
_UNCHECKED = (Verdict.NOT_RUN, Verdict.FAILED)
_MARKS = {True: ("✓", "good", "holds"), False: ("✗", "bad", "does not hold"), None: ("?", "none", "undecided")}


def html(report: Report, command: str, facts: Mapping[str, Any], context: Context) -> str:
    """Return the whole page."""
    errors.package("jinja2", "reproduce")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def code(text: str) -> Markup:
        """Return HTML in which the words between backticks are marked as code."""
        parts = escape(text).split("`")
        return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))

    draws = importlib.util.find_spec("matplotlib") is not None
    checked = [e.claim for e in report if draws and e.verdict not in _UNCHECKED]
    drawn = {claim.id: figures.figures_of(claim, context) for claim in checked}
    leading = [id for id in SHOWN if drawn.get(id)][:2]

    pages = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    pages.filters["code"] = code
    return pages.get_template("report.html.jinja").render(
        report=report, command=command, facts=facts, sources=SOURCES, meanings=MEANINGS, headed=headed,
        classes=_CLASSES, marks=_MARKS, folded=FOLDED, unchecked=_UNCHECKED, sentences=sentences(report),
        stored=stored.load(), leading=[(id, drawn[id][0]) for id in leading],
        style=(_HERE / "report.css").read_text(),
        draws=draws,  # the footer says if figures are missing
        plain=plain, duration=duration,
        figures={id: each[id in leading :] for id, each in drawn.items()},  # figures at the top are not repeated
    )  # fmt: skip

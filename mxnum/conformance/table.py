"""Compare installed libraries with the right answers and write a page of tables (``mxnum conformance``)."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

import mxnum
from mxnum.conformance.cases import cases
from mxnum.conformance.check import judge_all, smallest_failure
from mxnum.conformance.libraries import Peer, peers, version
from mxnum.conformance.report import Report
from mxnum.conformance.task import make_task
from mxnum.conformance.verdict import Judge

#: Number of wrong parts of a conversion for which the smallest input is searched.
PARTS = 4
#: Examples that hypothesis tries for each part. If none fails, the numbers of a known failure are
#: made simpler one by one.
EXAMPLES = 100


_HEAD = """# Conformance of other libraries

What other libraries answer, compared with the right answers: every rounding boundary and its neighbours, all special
values, all scale extremes (level 1 of the test vectors). *By choice* counts differences in what the standard leaves
open (see {doc}`/reference/test-vectors`); *wrong* counts those that no choice explains. Of a block with an infinity two
answers count as choices: NaN for the whole block, and the infinity alone, under the scale of the finite elements; a
third one counts as wrong, though the standard says nothing of it. A finding names the one hypothesis, where there is
one, that explains all wrong answers and all right ones. *Claims* are the modes that the call was taken to have. A
conversion written for another purpose (say, without subnormal scales) may be right for that purpose. For NVFP4 *wrong*
means only that an answer is not that of this library's exact definition, which no package computes; the finding says
whose arithmetic it is ({doc}`/explanation/which-nvfp4`). In a finding `[inf 1 0 x30]` is a block: infinity, 1 and 30
zeros; a class such as *tie* or *scale at its limit* says what kind of case it is. Where a call raises for a NaN for
which the element has no code, these cases are not counted.

Made by `mxnum conformance --force --out docs/reference/conformance.md`.

"""


@dataclass(frozen=True)
class Row:
    """The outcome for one conversion."""

    peer: Peer
    report: Report
    #: For each wrong part, the smallest failing input in words.
    smallest: dict[str, str]

    def cells(self) -> list[str]:
        """Return the cells of the conversion's row in the table."""
        r = self.report
        claims = ", ".join(f"{key} {value}" for key, value in self.peer.claims.items() if key != "source") or "–"
        named = [f"{name} ({count})" for name, count in sorted(r.choices.items())]
        choices = ", ".join([*named, *[f"NaN raises {r.refused}"] * bool(r.refused)]) or "–"
        return [
            self.peer.operation, r.task.format.name, f"`{self.peer.call}`", claims, str(r.cases), choices, str(r.bugs)
        ]  # fmt: skip

    def finding(self) -> str | None:
        """Return a paragraph that says what is wrong; None if nothing is."""
        r = self.report
        if not r.bugs:
            return None
        text = f"**{self.peer.operation}, {r.task.format.name}, `{self.peer.call}`**: {r.bugs} of {r.cases} cases"
        for explanation in r.explanations:
            text += f"; {explanation.claim}{explanation.doubt}"
        for name, (followed, kept) in r.inconsistent.items():
            text += f"; {followed} look like the choice {name}, which {kept} others do not follow"
        by_class = ", ".join(f"{name} {b} of {c}" for name, (c, b) in r.classes.items() if b)
        found = "".join(f"\n  - {part}: {words}" for part, words in self.smallest.items())
        return f"{text}. Wrong by class: {by_class or 'none but by choice'}.{found}"


def row_of(peer: Peer) -> Row:
    """Run level 1 on one conversion and return the outcome."""
    task = make_task(peer.operation, peer.format, **peer.claims)
    judge = Judge(task)
    judge_all(judge, peer.function, cases(task), "numpy", "plain")
    report = judge.report()
    smallest = {}
    for part, first in list(report.by_part.items())[:PARTS]:
        case = smallest_failure(peer.function, report, first, EXAMPLES)
        smallest[f"{part} ({report.parts[part]})"] = case.body(task)
    return Row(peer, report, smallest)


def rows_of(library: str, advance: Callable[[str], object] = lambda what: None) -> list[Row]:
    """Return the outcomes for all conversions of a library."""
    rows = []
    for peer in peers(library):
        advance(f"{library}: {peer.operation} {peer.format} {peer.call}")
        rows.append(row_of(peer))
    return rows


def section(library: str, rows: Iterable[Row]) -> str:
    """Return the part of the page about one library."""
    rows = list(rows)
    titles = ["operation", "format", "call", "claims", "cases", "by choice", "wrong"]
    lines = [f"## {library} {version(library)}", "", _line(titles), _line(["---"] * len(titles))]
    lines += [_line(row.cells()) for row in rows]
    findings = [finding for row in rows if (finding := row.finding())]
    if findings:
        lines += ["", "Findings, each with the smallest input found that shows it:", ""]
        lines += [f"- {finding}" for finding in findings]
    else:
        lines += ["", "Nothing is wrong."]
    return "\n".join(lines) + "\n"


def page(sections: Iterable[str]) -> str:
    """Return the whole page."""
    return _HEAD + (
        f"mxnum {mxnum.__version__}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"{platform.machine()}.\n\n" + "\n".join(sections)
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page_of(libraries: Iterable[str], advance: Callable[[str], object] = lambda what: None) -> str:
    """Return the page about some libraries. It says which of them are not installed."""
    sections = []
    for library in libraries:
        if version(library) is None:
            sections.append(f"## {library}\n\nIt was not installed where this page was made.\n")
        else:
            sections.append(section(library, rows_of(library, advance)))
    return page(sections)

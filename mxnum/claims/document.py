"""The report as one HTML file without anything from elsewhere: for a telephone and a screen, in light and dark."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mxnum.claims import figures
from mxnum.claims.evidence import Comparison, Evidence, Statement, Verdict
from mxnum.claims.ledger import SOURCES
from mxnum.claims.page import MEANINGS, plain
from mxnum.claims.registry import Entry, Report
from mxnum.claims.workshop import Workshop
from mxnum.experiments.sweep import duration

#: A longer list of figures that all agree is folded away.
FOLDED = 8

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --page: #fff; --card: #f6f8fa; --line: #d0d7de;
  --good: #1a7f37; --odd: #9a6700; --bad: #b42318; --none: #57606a; --link: #0969da;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #e69f00; --c4: #cc79a7; --c5: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --page: #0d1117; --card: #161b22;
  --line: #30363d; --good: #3fb950; --odd: #d29922; --bad: #f85149; --none: #9198a1; --link: #58a6ff;
  --c0: #3d9fdc; --c1: #f0803c; --c2: #2cc79a; --c3: #f2b53a; --c4: #dd94bb; --c5: #8ccbf2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 46rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2.5rem 0 0; }
h3 { font-size: 1.1rem; line-height: 1.3; margin: 0 0 .5rem; display: flex; gap: .5rem; align-items: baseline; }
h3 .title { flex: 1; } p { margin: .5rem 0; } code { font-size: .875em; overflow-wrap: anywhere; }
pre { background: var(--card); padding: .5rem .75rem; border-radius: .4rem; overflow-x: auto; }
.soft, figcaption, footer { color: var(--soft); font-size: .875rem; }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; padding: 0; list-style: none; }
.counts li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .3rem .75rem; }
.counts b { font-size: 1.3rem; display: block; line-height: 1.2; }
.verdict { font-size: .8rem; font-weight: 600; white-space: nowrap; }
.counts li { min-width: 5rem; }
.good { color: var(--good); } .odd { color: var(--odd); } .bad { color: var(--bad); } .none { color: var(--none); }
nav table { width: 100%; border-collapse: collapse; } nav td { padding: .25rem .4rem; border-top: 1px solid var(--line);
  vertical-align: baseline; } nav td:last-child { text-align: right; }
nav small { display: block; color: var(--soft); }
section { margin: 1.25rem 0; padding: 1rem; border: 1px solid var(--line); border-radius: .6rem; }
blockquote { margin: .5rem 0; padding-left: .75rem; border-left: 3px solid var(--line); }
ul.evidence { padding: 0; list-style: none; }
ul.evidence li { padding-left: 1.5rem; text-indent: -1.5rem; margin: .3rem 0; }
.mark { display: inline-block; width: 1.5rem; text-indent: 0; font-weight: 700; }
.wide { overflow-x: auto; } table.figures { border-collapse: collapse; font-size: .875rem; width: 100%; }
table.figures th, table.figures td { padding: .2rem .5rem .2rem 0; text-align: right;
  font-variant-numeric: tabular-nums; border-top: 1px solid var(--line); }
table.figures :first-child { text-align: left; }
table.figures th { color: var(--soft); font-weight: 500; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); font-size: .9rem; }
figure { margin: 1rem 0; } figure svg { display: block; width: 100%; max-width: 34rem; height: auto; }
"""

_CLASSES = {
    Verdict.REPRODUCED: "good", Verdict.DIFFERS: "odd", Verdict.NOT_REPRODUCED: "bad", Verdict.UNDECIDED: "none",
    Verdict.NOT_RUN: "none", Verdict.FAILED: "bad",
}  # fmt: skip
_MARKS = {True: ("✓", "good", "holds"), False: ("✗", "bad", "does not hold"), None: ("?", "none", "cannot be told")}


def html(report: Report, command: str, facts: Mapping[str, Any], shop: Workshop) -> str:
    """The whole page."""
    counts = "".join(
        f'<li class="{_CLASSES[Verdict(verdict)]}"><b>{number}</b>{verdict}</li>'
        for verdict, number in report.counts.items()
    )
    state = "<p><b>This report is not complete</b>: the run was interrupted, and the same command continues it.</p>"
    sections = []
    for letter, source in SOURCES.items():
        entries = [entry for entry in report if entry.claim.id[0] == letter]
        if entries:
            sections.append(f"<h2>[{letter}] {escape(source)}</h2>")
            sections += [_section(entry, command, shop) for entry in entries]
    body = [
        "<h1>Claims about training in MX formats, checked on this machine</h1>",
        f"<pre><code>{escape(command)}</code></pre>",
        f'<ul class="counts">{counts}</ul>',
        state if report.interrupted else "",
        _meanings(report),
        _contents(report),
        *sections,
        _footer(report, facts),
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>mxnum reproduce</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    return head + "\n".join(part for part in body if part) + "\n</body>\n</html>\n"


def _meanings(report: Report) -> str:
    listed = "".join(
        f'<li><b class="{_CLASSES[verdict]}">{verdict}</b>: {escape(text)}</li>' for verdict, text in MEANINGS.items()
    )
    return (
        "<details><summary>What the verdicts mean</summary><p>They follow from the evidence by rule; nobody types one "
        f"in.</p><ul>{listed}</ul></details>"
    )


def _contents(report: Report) -> str:
    rows = "".join(
        f'<tr><td><a href="#{e.claim.id}">{e.claim.id}</a></td>'
        f"<td>{escape(e.claim.title)}<small>{escape(e.evidence.counts)}</small></td>"
        f"<td>{_verdict(e)}</td></tr>"
        for e in report
    )
    return f"<nav><table>{rows}</table></nav>"


def _verdict(entry: Entry) -> str:
    return f'<span class="verdict {_CLASSES[entry.verdict]}">{entry.verdict}</span>'


def _section(entry: Entry, command: str, shop: Workshop) -> str:
    claim, evidence = entry.claim, entry.evidence
    checked = entry.verdict not in (Verdict.NOT_RUN, Verdict.FAILED)
    title = f'<span>{claim.id}</span><span class="title">{escape(claim.title)}</span>{_verdict(entry)}'
    parts = [f"<h3>{title}</h3>", f"<blockquote>{escape(claim.sentence)}</blockquote>"]
    if checked:
        parts.append(f'<p class="soft">How it is checked: {_code(claim.how)}</p>')
    if entry.remark:
        parts.append(f"<p>{_code(entry.remark)}</p>")
    parts += [_statements(evidence), _comparisons(evidence)]
    if evidence.note:
        parts.append(f'<p class="soft">{_code(evidence.note)}</p>')
    parts += [_figure(each, _only(command, claim.id)) for each in _figures(entry, shop)] if checked else []
    if claim.scale and claim.scale not in entry.remark and entry.verdict != Verdict.REPRODUCED:
        parts.append(f"<p><b>What would decide it:</b> {escape(claim.scale)}</p>")
    if evidence.configuration:
        listed = "; ".join(f"{name} {plain(value)}" for name, value in evidence.configuration.items())
        again = f"<p>Again: <code>{escape(_only(command, claim.id))}</code></p>"
        parts.append(f'<details class="soft"><summary>Configuration</summary><p>{escape(listed)}.</p>{again}</details>')
    return f'<section id="{claim.id}">\n' + "\n".join(part for part in parts if part) + "\n</section>"


def _figures(entry: Entry, shop: Workshop) -> list[figures.Figure]:
    try:
        return figures.figures_of(entry, shop)
    except ModuleNotFoundError:  # the footer says so
        return []


def _only(command: str, id: str) -> str:
    return f"{command.partition(' --only')[0]} --only {id}"


def _statements(evidence: Evidence) -> str:
    """Those that hold are folded away where they are many."""
    holding = [s for s in evidence.statements if s.holds]
    others = [s for s in evidence.statements if not s.holds]
    many = len(evidence.statements) > FOLDED
    shown = _listed(others if many else evidence.statements)
    if many and holding:
        shown += f"<details><summary>{len(holding)} statements hold</summary>{_listed(holding)}</details>"
    return shown


def _listed(statements: Sequence[Statement]) -> str:
    return f'<ul class="evidence">{"".join(map(_statement, statements))}</ul>' if statements else ""


def _statement(statement: Statement) -> str:
    sign, colour, word = _MARKS[statement.holds]
    numbers = f' <span class="soft">({escape(statement.numbers)})</span>' if statement.numbers else ""
    mark = f'<span class="mark {colour}" role="img" aria-label="{word}">{sign}</span>'
    return f"<li>{mark}{escape(statement.what)}{numbers}</li>"


def _comparisons(evidence: Evidence) -> str:
    if not evidence.comparisons:
        return ""
    agree = sum(c.agrees for c in evidence.comparisons)
    total = len(evidence.comparisons)
    head = "<tr><th>figure</th><th>claimed</th><th>found</th><th>tolerance</th><th></th></tr>"
    rows = "".join(map(_comparison, evidence.comparisons))
    table = f'<div class="wide"><table class="figures">{head}{rows}</table></div>'
    unfolded = " open" if total <= FOLDED or agree < total else ""
    return f"<details{unfolded}><summary>{agree} of {total} figures agree</summary>{table}</details>"


def _comparison(c: Comparison) -> str:
    sign, colour, word = _MARKS[c.agrees]
    mark = f'<td class="{colour}" aria-label="{word}">{sign}</td>'
    numbers = f"<td>{c.claimed:g}</td><td>{c.found:.6g}</td><td>±{c.tolerance:.2g}</td>"
    return f"<tr><td>{escape(c.what)}</td>{numbers}{mark}</tr>"


def _figure(figure: figures.Figure, command: str) -> str:
    made = f" Made by <code>{escape(command)}</code>."
    return f"<figure>{figure.svg}<figcaption>{escape(figure.caption)}{made}</figcaption></figure>"


def _code(text: str) -> str:
    """Text with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _footer(report: Report, facts: Mapping[str, Any]) -> str:
    environment = ", ".join(f"{key} {value}" for key, value in facts["environment"].items() if value)
    sympy = f", sympy {report.machine['sympy']}" if "sympy" in report.machine else ""
    lines = [
        f"Begun {facts['started']}, {duration(facts['seconds'])} of work. {environment}{sympy}. Seeds of training runs "
        f"count from {facts['first_seed']}; every other seed stands in the configuration of its claim.",
        "Beside this page: <code>claims.md</code>, the same as a table; <code>data/</code>, the evidence of each "
        "claim, one table for each study, and every run with its losses, configuration, versions and machine.",
    ]
    if importlib.util.find_spec("matplotlib") is None:
        lines.append("Figures are left out, because matplotlib is missing: <code>pip install 'mxnum[plots]'</code>.")
    return "<footer>" + "".join(f"<p>{line}</p>" for line in lines) + "</footer>"

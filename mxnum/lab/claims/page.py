"""The ledger as a page of the documentation: every claim, its evidence and its verdict."""

from __future__ import annotations

from mxnum.lab.claims import findings
from mxnum.lab.claims.evidence import Evidence, Verdict, Whose
from mxnum.lab.claims.ledger import SOURCES
from mxnum.lab.claims.registry import Entry, Report

COMMAND = "mxnum lab ledger"
PAGE = "docs/lab/claims.md"

#: What each verdict says.
MEANINGS = {
    Verdict.REPRODUCED: "every figure agrees and every statement holds.",
    Verdict.DIFFERS: "something does not; both numbers are given.",
    Verdict.NOT_REPRODUCED: "the claim makes statements, and none holds.",
    Verdict.CONFIRMED: "no paper claims it; what was expected here is so.",
    Verdict.CORRECTED: "no paper claims it; something that was expected here is not so.",
    Verdict.UNDECIDED: "what was run agrees where it can be compared, but cannot decide all of the claim.",
    Verdict.NOT_RUN: "nothing was run; the remark says what would.",
}
_MEANINGS = "\n".join(f"- **{verdict}**: {text}" for verdict, text in MEANINGS.items())

#: What stands above the part of the evidence that is somebody's.
HEADINGS = {
    Whose.PAPER: "What the paper says:",
    Whose.OURS: "What is ours, and no paper says:",
    Whose.KEPT: "Figures of ours that are kept so that a change is noticed:",
}

_TITLE = "# The claims ledger\n"
_HEAD = """What two papers on training in MX formats claim, and what neither shows, with what this library finds.
A paper's claim is *reproduced*, *differs* or is *not reproduced*; ours is *confirmed* (as expected) or
*corrected* (not as expected).
"""

_RULES = f"""## How to read it

`{COMMAND}` writes this page. The verdicts follow from the evidence by the rule in `mxnum.lab.claims.evidence`; nobody
types one in.

{_MEANINGS}

Where a paper says something of a row, the verdict is on that alone; what this library adds to it, and figures of its
own that are kept so that a change is noticed, stand apart.

A figure is followed by the one claimed and by how far apart they may be: half a unit of the last digit claimed, and
5 standard errors where ours comes from a sample.
"""


def markdown(report: Report) -> str:
    """The page."""
    versions = ", ".join(f"{name} {version}" for name, version in report.machine.items())
    runaways, *_, claims = findings.sentences(report)
    parts = [
        f"{_TITLE}\n{runaways.removeprefix('Yes. ')} {claims}\n",
        _HEAD,
        _table(report),
        _RULES,
        f"Made with {versions}. Verdicts: {_counted(report)}.\n",
    ]
    return "\n".join([*parts, *_sections(report)])


def summary(report: Report, command: str) -> str:
    """What a run on some machine found: a row for each claim with its evidence, then the sections."""
    versions = ", ".join(f"{name} {version}" for name, version in report.machine.items())
    parts = [f"# What `{command}` found\n"]
    if report.interrupted:
        parts.append("**Not complete**: the run was interrupted, and the same command continues it.\n")
    parts += [_table(report), _MEANINGS + "\n", f"Made with {versions}. Verdicts: {_counted(report)}.\n"]
    return "\n".join([*parts, *_sections(report)])


def headed(evidence: Evidence) -> list[tuple[str, Evidence]]:
    """The parts of the evidence with what stands above each: nothing, where all of it is a paper's."""
    alone = list(evidence.parts) == [Whose.PAPER]
    return [("" if alone else HEADINGS[whose], part) for whose, part in evidence.parts.items()]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _sections(report: Report) -> list[str]:
    parts = []
    for letter, source in SOURCES.items():
        entries = [entry for entry in report if entry.claim.id[0] == letter]
        if entries:
            parts.append(f"## [{letter}] {source}\n")
            parts += [_section(entry) for entry in entries]
    return parts


def _counted(report: Report) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in report.counts.items())


def _table(report: Report) -> str:
    """Return the table that opens the page: claim, verdict, one sentence, one number."""
    rows = "".join(
        f"| [{entry.claim.id}](#{_anchor(entry)}) | {entry.claim.title} | {entry.verdict} | "
        f"{_cell(entry.remark or entry.evidence.answer or entry.evidence.brief())} | "
        f"{_cell(entry.evidence.number)} |\n"
        for entry in report
    )
    return "| | claim | verdict | in one sentence | number |\n|---|---|---|---|---|\n" + rows


def _heading(entry: Entry) -> str:
    return f"{entry.claim.id}: {entry.claim.title}"


def _anchor(entry: Entry) -> str:
    """As MyST makes it from the heading."""
    kept = "".join(c for c in _heading(entry).lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _section(entry: Entry) -> str:
    claim, evidence = entry.claim, entry.evidence
    lines = [
        f'<a id="{claim.id.lower()}"></a>\n',
        f"### {_heading(entry)}\n",
        claim.sentence + "\n",
        f"*How it is checked.* {claim.how}\n",
    ]
    lines.append(f"*Verdict.* **{entry.verdict}**. {entry.remark or evidence.answer}".rstrip() + "\n")
    for heading, part in headed(evidence):
        lines += [f"{heading}\n"] * bool(heading) + [f"- {item}" for item in part.items] + [""]
    if evidence.note:
        lines.append(evidence.note + "\n")
    if claim.scale and claim.scale not in entry.remark:
        lines.append(f"*What would decide it.* {claim.scale}\n")
    if evidence.configuration:
        listed = "; ".join(f"{name} {plain(value)}" for name, value in evidence.configuration.items())
        lines.append(f"*Configuration.* {listed}.\n")
    return "\n".join(lines)


def plain(value: object) -> str:
    """A value of a configuration in words."""
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(each) for each in value) if not _is_shape(value) else "x".join(map(str, value))
    return str(value)


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, int) for each in value)

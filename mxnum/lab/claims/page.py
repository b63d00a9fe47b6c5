"""The ledger as a page of the documentation, and the sentences at the top of a report."""

from __future__ import annotations

from mxnum.lab.claims import stored
from mxnum.lab.claims.claim import SOURCES
from mxnum.lab.claims.evidence import MEANINGS, Evidence, Verdict, Whose, counted
from mxnum.lab.claims.verdicts import Entry, Report

COMMAND = "mxnum lab ledger"
PAGE = "docs/lab/claims.md"

_MEANINGS = "\n".join(f"- **{verdict}**: {text}" for verdict, text in MEANINGS.items())

#: The headings of the parts of the evidence.
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
    """Return the page of the ledger."""
    runaways, *_, claims = sentences(report)
    parts = [
        f"{_TITLE}\n{runaways.removeprefix('Yes. ')} {claims}\n",
        _HEAD,
        _table(report),
        _RULES,
        _made_with(report),
    ]
    return "\n".join([*parts, *_sections(report)])


def summary(report: Report, command: str) -> str:
    """Return a page on one run of a command: a table of claims, then their sections."""
    parts = [f"# What `{command}` found\n"]
    if report.interrupted:
        parts.append("**Not complete**: the run was interrupted, and the same command continues it.\n")
    parts += [_table(report), _MEANINGS + "\n", _made_with(report)]
    return "\n".join([*parts, *_sections(report)])


def headed(evidence: Evidence) -> list[tuple[str, Evidence]]:
    """Return the parts of the evidence with headings; "" if all of it is a paper's."""
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


def _made_with(report: Report) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report.machine.items())
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in report.counts.items())
    return f"Made with {versions}. Verdicts: {verdicts}.\n"


def _table(report: Report) -> str:
    """Return the table that opens the page: claim, verdict, one sentence, one number."""
    rows = "".join(
        f"| [{entry.claim.id}](#{_anchor(entry)}) | {entry.claim.title} | {entry.verdict} | "
        f"{_cell(entry.remark or entry.evidence.answer or entry.evidence.brief())} | "
        f"{_cell(entry.evidence.number)} |\n"
        for entry in report
    )
    return "| | claim | verdict | in one sentence | number |\n|---|---|---|---|---|\n" + rows


def _anchor(entry: Entry) -> str:
    """Return the anchor that MyST makes from the heading."""
    heading = f"{entry.claim.id}: {entry.claim.title}".lower()
    return "".join(c for c in heading if c.isalnum() or c in " -_").replace(" ", "-")


def _section(entry: Entry) -> str:
    claim, evidence = entry.claim, entry.evidence
    lines = [
        f'<a id="{claim.id.lower()}"></a>\n',
        f"### {claim.id}: {claim.title}\n",
        claim.sentence + "\n",
        f"*How it is checked.* {claim.how}\n",
        f"*Verdict.* **{entry.verdict}**. {entry.remark or evidence.answer}".rstrip() + "\n",
    ]
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
    """Return a value of a configuration in words; a tuple of integers is a shape."""
    if isinstance(value, tuple) and all(isinstance(each, int) for each in value):
        return "x".join(map(str, value))
    return ", ".join(map(plain, value)) if isinstance(value, (list, tuple)) else str(value)


#: Verdicts on a paper's claims, and on this project's own.
_DECIDED = (Verdict.REPRODUCED, Verdict.DIFFERS, Verdict.NOT_REPRODUCED)
_OURS = (Verdict.CONFIRMED, Verdict.CORRECTED)


def sentences(report: Report) -> list[str]:
    """Return the main answers of a report: on divergence, on the numbers, on all claims.

    The second sentence quotes stored studies that this run did not repeat.
    """
    entries = {entry.claim.id: entry for entry in report}
    runaways, numbers = (_on_runaways(entries.get("I6c")), _on_numbers(entries.get("I1")))
    return [runaways, stored.sentence(), numbers, _on_claims(report)]


def _on_claims(report: Report) -> str:
    papers = [entry for entry in report if entry.verdict in _DECIDED]
    ours = [entry for entry in report if entry.verdict in _OURS]
    left = len(report) - len(papers) - len(ours)
    if not papers and not ours:
        return f"None of the {counted(len(report), 'claim')} could be decided by what was run."
    of_papers = f"{counted(len(papers), 'claim')} of papers that could be decided came out as stated"
    parts = [_how_many(papers, Verdict.REPRODUCED, of_papers)] if papers else []
    parts += [_how_many(ours, Verdict.CONFIRMED, f"{len(ours)} of our own came out as expected")] if ours else []
    return "; ".join(parts) + (f"; {counted(left, 'claim')} could not be decided." if left else ".")


def _how_many(entries: list[Entry], good: Verdict, what: str) -> str:
    other = [entry.claim.id for entry in entries if entry.verdict != good]
    differing = f" ({', '.join(other)} {'does' if len(other) == 1 else 'do'} not)" if other else ""
    return f"{len(entries) - len(other)} of {what}{differing}"


def _on_numbers(entry: Entry | None) -> str:
    if entry is None or entry.verdict not in _DECIDED:
        return "What quantization does to single blocks was not checked."
    if entry.verdict != Verdict.REPRODUCED:
        return "Blocks under the floor rule did not do what was claimed (I1): look there first."
    return (
        "In E4M3 under the floor rule, a block whose largest number has a mantissa above 1.75 lies beyond the largest "
        "element and comes out up to an eighth too small (I1); under rceil none does."
    )


def _on_runaways(entry: Entry | None) -> str:
    if entry is None or not entry.evidence.answer:
        return "No training was run here that could show whether low precision makes a loss run away (I6c)."
    answer, yes = entry.evidence.answer.removesuffix("."), "Yes. " * (entry.verdict == Verdict.CONFIRMED)
    return f"{yes}{answer} (exact paired log-rank test, {entry.evidence.number}; row I6c)."

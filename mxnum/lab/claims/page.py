"""Write the claims ledger as a page of the documentation, and sum up a report in four texts."""

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
    Whose.PAPER: "What the paper states:",
    Whose.OURS: "What only this project states:",
    Whose.KEPT: "Numbers of this project that are recorded so that a change is noticed:",
}

_TITLE = "# The claims ledger\n"
_HEAD = """This page lists claims of papers on training in low precision, most of them of three papers, and claims of
this project. Each row says what this library finds. A paper's claim is *reproduced*, *differs* or is
*not reproduced*; a claim of this project is *confirmed* (as expected) or *corrected* (not as expected).
"""

_RULES = f"""## How to read it

`{COMMAND}` writes this page. The rule in `mxnum.lab.claims.evidence` computes the verdicts from the evidence.

{_MEANINGS}

If a paper states a part of a row, only this part decides the verdict. Statements that this project adds are listed
separately. A third list has numbers of this project that are recorded only so that a change is noticed.

Each number that was found is followed by the claimed number and by the allowed difference. The allowed difference is
half a unit of the last digit of the claimed number, plus 5 standard errors if the found number comes from a sample.
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
    """Return the results of `command` as a page: a table of all claims, then a section for each."""
    parts = [f"# What `{command}` found\n"]
    if report.interrupted:
        parts.append("**Not complete**: the run was interrupted; the same command continues it.\n")
    parts += [_table(report), _MEANINGS + "\n", _made_with(report)]
    return "\n".join([*parts, *_sections(report)])


def headed(evidence: Evidence) -> list[tuple[str, Evidence]]:
    """Return the parts of `evidence`, each with its heading from `HEADINGS`.

    The heading is "" if the paper states all items.
    """
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
    """Return the first table of the page: claim, verdict, one sentence, one number."""
    rows = "".join(
        f"| [{entry.claim.id}](#{_anchor(entry)}) | {entry.claim.title} | {entry.verdict} | "
        f"{_cell(entry.remark or entry.evidence.answer or entry.evidence.brief())} | "
        f"{_cell(entry.evidence.number)} |\n"
        for entry in report
    )
    return "| | claim | verdict | in one sentence | number |\n|---|---|---|---|---|\n" + rows


def _anchor(entry: Entry) -> str:
    """Return the anchor that MyST makes from the heading of an entry."""
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
    """Return a value of a configuration as text; a tuple of integers is written as a shape."""
    if isinstance(value, tuple) and all(isinstance(each, int) for each in value):
        return "x".join(map(str, value))
    return ", ".join(map(plain, value)) if isinstance(value, (list, tuple)) else str(value)


#: The verdicts on decided claims: of papers (`_DECIDED`), and of this project (`_OURS`).
_DECIDED = (Verdict.REPRODUCED, Verdict.DIFFERS, Verdict.NOT_REPRODUCED)
_OURS = (Verdict.CONFIRMED, Verdict.CORRECTED)


def sentences(report: Report) -> list[str]:
    """Return the four texts that sum up a report.

    The topics of the texts, in this order, are losses that run away, the stored studies, the errors
    of single blocks, and the verdicts on all claims.
    """
    entries = {entry.claim.id: entry for entry in report}
    runaways, numbers = (_on_runaways(entries.get("I6c")), _on_numbers(entries.get("I1")))
    return [runaways, stored.sentence(), numbers, _on_claims(report)]


def _on_claims(report: Report) -> str:
    papers = [entry for entry in report if entry.verdict in _DECIDED]
    ours = [entry for entry in report if entry.verdict in _OURS]
    left = len(report) - len(papers) - len(ours)
    if not papers and not ours:
        return f"The runs could decide none of the {counted(len(report), 'claim')}."
    of_papers = f"{counted(len(papers), 'decided claim')} of papers came out as stated"
    parts = [_how_many(papers, Verdict.REPRODUCED, of_papers)] if papers else []
    parts += (
        [
            _how_many(
                ours, Verdict.CONFIRMED, f"{counted(len(ours), 'decided claim')} of this project came out as expected"
            )
        ]
        if ours
        else []
    )
    return "; ".join(parts) + (f"; {counted(left, 'claim')} could not be decided." if left else ".")


def _how_many(entries: list[Entry], good: Verdict, what: str) -> str:
    other = [entry.claim.id for entry in entries if entry.verdict != good]
    differing = f" ({', '.join(other)} {'does' if len(other) == 1 else 'do'} not)" if other else ""
    return f"{len(entries) - len(other)} of {what}{differing}"


def _on_numbers(entry: Entry | None) -> str:
    if entry is None or entry.verdict not in _DECIDED:
        return "The effect of quantization on single blocks was not checked."
    if entry.verdict != Verdict.REPRODUCED:
        return "The error of blocks under the floor rule differs from the claimed error: read row I1 first."
    return (
        "In E4M3 under the floor rule, a block overflows if its largest number has a mantissa above 1.75, and this "
        "number becomes up to an eighth too small (row I1). Under rceil no block overflows."
    )


def _on_runaways(entry: Entry | None) -> str:
    if entry is None or not entry.evidence.answer:
        return "No training was run that could show whether low precision makes a loss run away (row I6c)."
    answer, yes = entry.evidence.answer.removesuffix("."), "Yes. " * (entry.verdict == Verdict.CONFIRMED)
    return f"{yes}{answer} (exact paired log-rank test, {entry.evidence.number}; row I6c)."

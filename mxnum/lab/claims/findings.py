"""What a report found, in a few sentences for its top, and which of its figures show that."""

from __future__ import annotations

from mxnum.lab.claims.evidence import Verdict
from mxnum.lab.claims.registry import Entry, Report

#: The claims whose first figures go to the top, where they have one: the first two of them.
SHOWN = ("I6c", "I1", "B1", "M2", "I10")

_DECIDED = (Verdict.REPRODUCED, Verdict.DIFFERS, Verdict.NOT_REPRODUCED)
_OURS = (Verdict.CONFIRMED, Verdict.CORRECTED)


def sentences(report: Report) -> list[str]:
    """Return the answer on runaway divergence first, then what was found of numbers and of all claims."""
    return [*_on_runaways(_of(report, "I6c")), _on_numbers(_of(report, "I1")), _on_claims(report)]


def _on_claims(report: Report) -> str:
    papers = [entry for entry in report if entry.verdict in _DECIDED]
    ours = [entry for entry in report if entry.verdict in _OURS]
    left = len(report) - len(papers) - len(ours)
    if not papers and not ours:
        return f"None of the {counted(len(report), 'claim')} could be decided by what was run."
    of_papers = f"{counted(len(papers), 'claim')} of papers that could be decided came out as stated"
    told = [_how_many(papers, Verdict.REPRODUCED, of_papers)] if papers else []
    told += [_how_many(ours, Verdict.CONFIRMED, f"{len(ours)} of our own came out as expected")] if ours else []
    return "; ".join(told) + (f"; {counted(left, 'claim')} could not be decided." if left else ".")


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


def _on_runaways(entry: Entry | None) -> list[str]:
    """Return what this run found, with its number, and what stored studies add that it did not repeat."""
    from mxnum.lab.claims import stored  # reads studies with packages that a report of other claims can do without

    if entry is None or not entry.evidence.answer:
        here = "No training was run here that could show whether low precision makes a loss run away (I6c)."
    else:
        evidence = entry.evidence
        yes = "Yes. " if entry.verdict == Verdict.CONFIRMED else ""
        here = f"{yes}{evidence.answer.removesuffix('.')} (exact paired log-rank test, {evidence.number}; row I6c)."
    return [here, stored.sentence()]


def counted(number: int, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def _of(report: Report, id: str) -> Entry | None:
    return next((entry for entry in report if entry.claim.id == id), None)

"""Check claims, and report the verdicts."""

from __future__ import annotations

import importlib.metadata
import platform
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mxnum
from mxnum import errors
from mxnum.lab.claims.claim import CLAIMS, Claim, Context, chosen
from mxnum.lab.claims.evidence import Evidence, Verdict, counted
from mxnum.output.files import as_path

#: A function that shows progress. Its arguments are the number of claims done, the number of all
#: claims, and a text about the current work.
Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Entry:
    """A claim and its verdict."""

    claim: Claim
    verdict: Verdict
    evidence: Evidence = field(default_factory=Evidence)
    #: The command to run if the check was not run, or the error if the check failed.
    remark: str = ""


@dataclass(frozen=True)
class Report:
    """Verdicts on claims, with their evidence."""

    entries: tuple[Entry, ...]
    #: The kind of machine, and the versions of packages.
    machine: dict[str, str]
    interrupted: bool = False

    def __getitem__(self, id: str) -> Entry:
        return next(e for e in self.entries if e.claim.id == id)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def counts(self) -> dict[str, int]:
        """The number of claims with each verdict."""
        verdicts = [e.verdict for e in self.entries]
        return {str(v): verdicts.count(v) for v in Verdict if v in verdicts}

    def as_dict(self) -> dict[str, Any]:
        """Return the whole report as plain data, for JSON."""
        names = ("id", "title", "sentence", "how", "scale", "whose")
        claims = [
            {name: getattr(e.claim, name) for name in names}
            | {"verdict": str(e.verdict), "remark": e.remark}
            | asdict(e.evidence)
            | {"comparisons": [asdict(c) | {"agrees": c.agrees} for c in e.evidence.comparisons]}
            for e in self.entries
        ]
        return {"machine": self.machine, "interrupted": self.interrupted, "claims": claims}

    def __repr__(self) -> str:
        """Return a sentence with the counts, then a line for each claim."""
        counts = ", ".join(f"{number} {verdict}" for verdict, number in self.counts.items())
        lines = [f"  {e.claim.id:<4}{e.verdict:<15} {e.claim.title}" for e in self.entries]
        return "\n".join([f"{counted(len(self), 'claim')}: {counts}.", *lines])


def reproduce(
    ids: Iterable[str] | None = None, *, results: str | Path = "docs/lab/results", progress: Progress | None = None
) -> Report:
    """Check claims (default: all), and return a report with a verdict for each.

    After Ctrl-C, the report has the verdicts so far; all other claims have the verdict "not run".
    """
    wanted = list(CLAIMS) if ids is None else chosen("ids", ids)
    folder, show = as_path(results, "results"), progress or (lambda done, total, what: None)
    entries: list[Entry] = []
    interrupted = False
    for done, id in enumerate(wanted):
        context = Context(folder, lambda text, done=done, id=id: show(done, len(wanted), f"{id}: {text}"))  # type: ignore[misc]
        try:
            context.tell(CLAIMS[id].title)
            entries.append(_entry(CLAIMS[id], context, interrupted))
        except KeyboardInterrupt:
            interrupted = True
            entries.append(_entry(CLAIMS[id], context, interrupted))
    show(len(wanted), len(wanted), "done")
    return Report(tuple(entries), machine(), interrupted)


def _entry(claim: Claim, context: Context, interrupted: bool) -> Entry:
    if interrupted:
        return Entry(claim, Verdict.NOT_RUN, remark="Interrupted; run the same command again.")
    if missing := claim.missing(context):
        files = errors.joined(missing)
        return Entry(claim, Verdict.NOT_RUN, remark=f"The check needs the results file {files}: run `{claim.command}`.")
    return judge(claim, context)


def judge(claim: Claim, context: Context) -> Entry:
    """Return the verdict of a claim's check; the results files that the check needs must exist."""
    try:
        evidence = claim.run(context).of(claim.whose)
    except Exception as problem:  # a check that fails must not prevent the checks of other claims
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        return Entry(claim, Verdict.FAILED, remark=f"{type(problem).__name__}: {problem} ({frame.name})")
    return Entry(claim, evidence.verdict, evidence)


def machine() -> dict[str, str]:
    """Return the kind of machine and the versions of packages, on which results may depend."""
    packages = {name: importlib.metadata.version(name) for name in ("numpy", "numba", "sympy")}
    python, kind = platform.python_version(), f"{platform.system()} {platform.machine()}"
    return {"mxnum": mxnum.__version__, "python": python, **packages, "machine": kind}

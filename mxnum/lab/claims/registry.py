"""Checks by claim, and running them.

A module that can decide claims registers functions and is named in `MODULES`:

    @check("M9")
    def bits_per_element(context: Context) -> Evidence: ...

    @check("I6c", needs=("quick.json",), command="mxnum reproduce --quick --only I6c")
    def in_four_bits(context: Context) -> Evidence:
        table = context.json("quick.json")

A check that needs results files is run where they all exist; otherwise its claim is "not run", with the command that
makes them. Of files in a tuple one is enough: ``needs=(("confirm.json", "quick.json"),)``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import platform
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mxnum
from mxnum import errors
from mxnum.lab.claims.evidence import Evidence, Verdict
from mxnum.lab.claims.ledger import CLAIMS, Claim, chosen
from mxnum.output.files import as_path

#: The modules that register checks; imported when checks are run.
MODULES: tuple[str, ...] = (
    "mxnum.lab.claims.elements",
    "mxnum.lab.claims.design",
    "mxnum.lab.claims.training",
    "mxnum.lab.claims.runaway",
    "mxnum.lab.claims.recipes",
    "mxnum.lab.claims.rates",
    "mxnum.lab.claims.normal",
    "mxnum.lab.claims.clusters",
    "mxnum.lab.claims.float_scales",
    "mxnum.lab.claims.prediction",
    "mxnum.lab.claims.language",
    "mxnum.lab.claims.logits",
    "mxnum.lab.claims.projection",
)

#: Called with the number of claims done, how many there are, and what is done now.
Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Context:
    """What a check may use."""

    #: The folder of results files.
    results: Path
    #: Says what is being done, for whoever waits.
    tell: Callable[[str], object] = lambda text: None
    #: Keeps arrays under a name, for figures and for readers.
    keep: Callable[[str, Mapping[str, Any]], object] = lambda name, arrays: None

    def json(self, name: str) -> Any:
        """A results file in JSON."""
        return json.loads((self.results / name).read_text())

    def has(self, name: str) -> bool:
        """Whether such a results file exists."""
        return (self.results / name).is_file()

    def first(self, *names: str) -> Any:
        """The first of these results files that exists."""
        return self.json(next((name for name in names if self.has(name)), names[-1]))


@dataclass(frozen=True)
class Check:
    """A registered function."""

    run: Callable[[Context], Evidence]
    #: Results files without which it is not run; of a tuple of them, one is enough.
    needs: tuple[str | tuple[str, ...], ...] = ()
    #: The command that makes those files.
    command: str = ""

    @property
    def alternatives(self) -> list[tuple[str, ...]]:
        """Each need as a tuple, the best file first."""
        return [(need,) if isinstance(need, str) else need for need in self.needs]

    def missing(self, context: Context) -> list[str]:
        """The best file of each need that is not met."""
        return [names[0] for names in self.alternatives if not any(context.has(name) for name in names)]


@dataclass(frozen=True)
class Entry:
    """A claim and what became of it."""

    claim: Claim
    verdict: Verdict
    evidence: Evidence = field(default_factory=Evidence)
    #: What would have to be run where nothing was; what broke where something did.
    remark: str = ""


_CHECKS: dict[str, Check] = {}


def check(
    id: str, *, needs: Iterable[str | tuple[str, ...]] = (), command: str = ""
) -> Callable[[Callable[[Context], Evidence]], Callable[[Context], Evidence]]:
    """Register a function as the check of a claim. A claim has one check."""
    errors.choose("id", id, tuple(CLAIMS))

    def register(function: Callable[[Context], Evidence]) -> Callable[[Context], Evidence]:
        known = _CHECKS.get(id)
        same = known is not None and (known.run.__module__, known.run.__qualname__) == (
            function.__module__, function.__qualname__,
        )  # fmt: skip
        if known is not None and not same:
            raise ValueError(f"Argument 'id' must be a claim without a check, not {id!r}, which {known.run!r} checks.")
        _CHECKS[id] = Check(function, tuple(needs), command)
        return function

    return register


def checks() -> dict[str, Check]:
    """Every registered check by claim."""
    for name in MODULES:
        importlib.import_module(name)
    return dict(_CHECKS)


def reproduce(
    ids: Iterable[str] | None = None, *, results: str | Path = "docs/lab/results", progress: Progress | None = None
) -> Report:
    """Check claims (default: all), and report a verdict for each, computed from what was run.

    Interrupting (Ctrl-C) gives the verdicts reached so far; the other claims are "not run".
    """
    wanted = list(CLAIMS) if ids is None else chosen("ids", ids)
    folder = as_path(results, "results")
    known, entries = checks(), []
    interrupted = False
    for done, id in enumerate(wanted):
        context = Context(folder, _teller(progress, done, len(wanted), id))
        try:
            context.tell(CLAIMS[id].title)
            entries.append(_entry(id, known.get(id), context, interrupted))
        except KeyboardInterrupt:
            interrupted = True
            entries.append(_entry(id, known.get(id), context, interrupted))
    if progress is not None:
        progress(len(wanted), len(wanted), "done")
    return Report(tuple(entries), machine(), interrupted)


def _teller(progress: Progress | None, done: int, total: int, id: str) -> Callable[[str], object]:
    def tell(text: str) -> None:
        if progress is not None:
            progress(done, total, f"{id}: {text}")

    return tell


def _entry(id: str, found: Check | None, context: Context, interrupted: bool) -> Entry:
    if found is not None and interrupted:
        return Entry(CLAIMS[id], Verdict.NOT_RUN, remark="Interrupted; run the same command again.")
    if found is not None and (missing := found.missing(context)):
        files = errors.joined(missing)
        return Entry(CLAIMS[id], Verdict.NOT_RUN, remark=f"Needs the results file {files}: run `{found.command}`.")
    return entry(id, found, context)


def entry(id: str, found: Check | None, context: Context) -> Entry:
    """Run a check whose files are there."""
    claim = CLAIMS[id]
    if found is None:
        return Entry(claim, Verdict.NOT_RUN, remark=f"No check of this claim exists here. {claim.scale}".strip())
    try:
        evidence = found.run(context).of(claim.whose)
    except Exception as problem:  # a broken check must not hide the verdicts of the others
        place = traceback.extract_tb(problem.__traceback__)[-1]
        return Entry(claim, Verdict.FAILED, remark=f"{type(problem).__name__}: {problem} ({place.name})")
    return Entry(claim, evidence.verdict, evidence)


@dataclass(frozen=True)
class Report:
    """Verdicts on claims, with what they rest on."""

    entries: tuple[Entry, ...]
    #: Versions and the kind of machine.
    machine: dict[str, str]
    interrupted: bool = False

    def __getitem__(self, id: str) -> Entry:
        return next(e for e in self.entries if e.claim.id == id)

    def __iter__(self) -> Any:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def counts(self) -> dict[str, int]:
        """How many claims got each verdict."""
        verdicts = [e.verdict for e in self.entries]
        return {str(v): verdicts.count(v) for v in Verdict if v in verdicts}

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        entries = [
            asdict(e.claim)
            | {"verdict": str(e.verdict), "remark": e.remark}
            | {
                "comparisons": [asdict(c) | {"agrees": c.agrees} for c in e.evidence.comparisons],
                "statements": [asdict(s) for s in e.evidence.statements],
                "note": e.evidence.note,
                "configuration": e.evidence.configuration,
                "answer": e.evidence.answer,
                "number": e.evidence.number,
            }
            for e in self.entries
        ]
        return {"machine": self.machine, "interrupted": self.interrupted, "claims": entries}

    def text(self) -> str:
        """A sentence with the counts, then a line for each claim."""
        return "\n".join([f"{self._summary}.", *self._lines])

    def __repr__(self) -> str:
        return "\n".join([f"<Report on {self._summary}", *self._lines]) + ">"

    @property
    def _summary(self) -> str:
        counts = ", ".join(f"{n} {v}" for v, n in self.counts.items())
        return f"{len(self)} claim{'s' * (len(self) != 1)}: {counts}"

    @property
    def _lines(self) -> list[str]:
        return [f"  {e.claim.id:<4}{e.verdict:<15} {e.claim.title}" for e in self.entries]


def machine() -> dict[str, str]:
    """The versions that numbers may depend on, and the kind of machine."""
    packages = {name: importlib.metadata.version(name) for name in ("numpy", "numba", "sympy")}
    return {
        "mxnum": mxnum.__version__,
        "python": platform.python_version(),
        **packages,
        "machine": f"{platform.system()} {platform.machine()}",
    }

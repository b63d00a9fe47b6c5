"""A claim as its file in `rows` declares it, and the context of its check and its figures.

A file makes a `Claim` from its id, title and sentence, and decorates its check with `Claim.check`,
which registers it, and each of its figures with `Claim.figure`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab.claims.evidence import Evidence, Whose

SOURCES = {
    "I": "Su et al.: Characterization and Mitigation of Training Instabilities in Microscaling Formats "
    "(arXiv 2506.20752)",
    "M": "Yang et al.: An Empirical Study of Microscaling Formats for Low-Precision LLM Training (ARITH 2025)",
    "B": "Beyond both papers: what neither shows",
}
#: Descriptions of checks that several claims share.
BY_TRAINING = "It takes training runs, which `mxnum.lab.mlp` makes and stores."
BY_FORMULA = (
    "The exact expectation from `mxnum.analysis`, which normal numbers through the real kernels must match within 5 "
    "standard errors."
)


@dataclass(frozen=True)
class Context:
    """The files and functions that a check and a figure may use."""

    #: The folder of results files.
    results: Path
    #: Reports the current work to the user.
    tell: Callable[[str], object] = lambda text: None
    #: Stores arrays under a name, for figures and for readers; `kept` returns them, or None.
    keep: Callable[[str, Mapping[str, Any]], object] = lambda name, arrays: None
    kept: Callable[[str], dict[str, Any] | None] = lambda name: None

    def json(self, name: str) -> Any:
        """Return the content of a results file."""
        return json.loads((self.results / name).read_text())

    def has(self, name: str) -> bool:
        """Return True if such a results file exists."""
        return (self.results / name).is_file()

    def first(self, *names: str) -> Any:
        """Return the content of the first of these results files that exists."""
        return self.json(next((name for name in names if self.has(name)), names[-1]))


Check = Callable[[Context], Evidence]
#: Draws on axes and returns the caption of the figure, or None if there is nothing to draw.
Draw = Callable[[Any, Context], str | None]


@dataclass(eq=False)
class Claim:
    """One row of the ledger."""

    id: str
    #: The title, in a few words.
    title: str
    #: The claim in a sentence or two, with the figures.
    sentence: str
    #: How the claim is checked here, or how it would be.
    how: str
    #: What would decide the claim, if the runs here cannot.
    scale: str = ""
    #: Who states the claim; the check marks parts that others state.
    whose: Whose = Whose.PAPER
    #: Results files that the check needs; one of a tuple of files is enough, the best first.
    needs: tuple[str | tuple[str, ...], ...] = ()
    #: Results files that the check uses if they exist.
    takes: tuple[str, ...] = ()
    #: The command that makes the files it needs.
    command: str = ""
    run: Check = field(init=False, repr=False)
    #: Drawing functions, each with the height of its figure in inches.
    figures: list[tuple[float, Draw]] = field(default_factory=list, init=False, repr=False)

    def check(self, function: Check) -> Check:
        """Make a function the check of this claim, and the claim a row of the ledger."""
        if CLAIMS.setdefault(self.id, self) is not self:
            raise ValueError(f"Argument 'id' must be that of a new claim, not {self.id!r}.")
        self.run = function
        return function

    def figure(self, height: float = 2.9) -> Callable[[Draw], Draw]:
        """Add a figure to the report of this claim."""

        def register(draw: Draw) -> Draw:
            self.figures.append((height, draw))
            return draw

        return register

    @property
    def alternatives(self) -> list[tuple[str, ...]]:
        """Each need as a tuple, the best file first."""
        return [(need,) if isinstance(need, str) else need for need in self.needs]

    def missing(self, context: Context) -> list[str]:
        """Return the best file of each need that is not met."""
        return [names[0] for names in self.alternatives if not any(map(context.has, names))]


#: Every claim by its id, in the order of the ledger.
CLAIMS: dict[str, Claim] = {}


def chosen(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the named claims, each once; "I6" names all ids that begin with it.

    >>> chosen("only", ["m9", " I6"])
    ('M9', 'I6a', 'I6b', 'I6c')
    """
    found: list[str] = []
    for name in names:
        plain = name.strip().lower()
        here = [id for id in CLAIMS if plain in (id.lower(), id.rstrip("abc").lower())]
        found += here or [errors.choose(option, name.strip(), tuple(CLAIMS))]
    return tuple(dict.fromkeys(found))

"""Define `Claim`, a row of the ledger, and `Context`, the results files that checks read.

Each file in `rows` defines one `Claim`. The decorator `Claim.check` registers the function that
checks the claim, and `Claim.figure` registers each function that draws a figure.
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
    "D": "DeepSeek-AI: DeepSeek-V3 Technical Report (arXiv 2412.19437), section 3.3",
    "B": "Beyond these papers: claims of other papers, and claims of this project",
}
#: Descriptions of checks that several claims share.
BY_TRAINING = "The check reads the stored results of training runs in `mxnum.lab`."
BY_FORMULA = (
    "`mxnum.analysis` gives the exact expectation. The mean over N(0, 1) numbers that the kernels quantize must "
    "match the expectation within 5 standard errors."
)


@dataclass(frozen=True)
class Context:
    """The results files and the functions that a check and a figure may use."""

    #: The folder that has the results files.
    results: Path
    #: `tell(text)` reports the current work to the user.
    tell: Callable[[str], object] = lambda text: None
    #: `keep(name, arrays)` stores arrays that figures show. `kept(name)` returns the stored arrays,
    #: or None.
    keep: Callable[[str, Mapping[str, Any]], object] = lambda name, arrays: None
    kept: Callable[[str], dict[str, Any] | None] = lambda name: None

    def json(self, name: str) -> Any:
        """Return the content of a results file."""
        return json.loads((self.results / name).read_text())

    def has(self, name: str) -> bool:
        """Return True if the results file `name` exists."""
        return (self.results / name).is_file()

    def first(self, *names: str) -> Any:
        """Return the content of the first results file in `names` that exists."""
        return self.json(next((name for name in names if self.has(name)), names[-1]))


Check = Callable[[Context], Evidence]
#: A function that draws on axes and returns the caption, or None if there is nothing to draw.
Draw = Callable[[Any, Context], str | None]


@dataclass(eq=False)
class Claim:
    """One row of the ledger."""

    id: str
    #: The title, in a few words.
    title: str
    #: The claim in one or two sentences, with its numbers.
    sentence: str
    #: How the claim is checked, or how it would be checked if there were runs.
    how: str
    #: The further runs that would decide the claim, if the stored runs leave it open.
    scale: str = ""
    #: The party that states the claim. Evidence that names no party is attributed to this party.
    whose: Whose = Whose.PAPER
    #: Results files that the check needs. A tuple lists alternative files, the best first.
    needs: tuple[str | tuple[str, ...], ...] = ()
    #: Results files that the check uses if they exist.
    takes: tuple[str, ...] = ()
    #: The command that makes the files in `needs`.
    command: str = ""
    run: Check = field(init=False, repr=False)
    #: Drawing functions, each with the height of its figure in inches.
    figures: list[tuple[float, Draw]] = field(default_factory=list, init=False, repr=False)

    def check(self, function: Check) -> Check:
        """Register a function as the check of this claim, and the claim as a row of the ledger."""
        if CLAIMS.setdefault(self.id, self) is not self:
            raise ValueError(f"Argument 'id' must be the id of a new claim, not {self.id!r}.")
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
        """The alternative files for each needed results file, the best first."""
        return [(need,) if isinstance(need, str) else need for need in self.needs]

    def missing(self, context: Context) -> list[str]:
        """Return the results files that are needed but do not exist.

        If no file of a group of alternatives exists, the list names only the best of them.
        """
        return [names[0] for names in self.alternatives if not any(map(context.has, names))]


#: Every claim by its id, in the order of the ledger.
CLAIMS: dict[str, Claim] = {}


def chosen(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the named claims without duplicates; "I6" means I6a, I6b and so on.

    >>> chosen("only", ["m9", " I6"])
    ('M9', 'I6a', 'I6b', 'I6c')
    """
    found: list[str] = []
    for name in names:
        plain = name.strip().lower()
        here = [id for id in CLAIMS if plain in (id.lower(), id.rstrip("abc").lower())]
        found += here or [errors.choose(option, name.strip(), tuple(CLAIMS))]
    return tuple(dict.fromkeys(found))

"""The outcome of a proof: proved, refuted by a counterexample, or still open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mxnum.prove.claims import Claim


@dataclass(frozen=True)
class ProofPart:
    """One question to a solver: a name, such as "element 3" or "all inputs", and the outcome."""

    name: str
    verdict: Literal["proved", "refuted", "open"]
    solver: str
    seconds: float


@dataclass(frozen=True)
class Counterexample:
    """An input for which the answer of an implementation differs from the definition's."""

    inputs: Mapping[str, int]
    #: For each output: `right` has the value by the definition, and `found` the implementation's
    #: value, or None if this value is undefined.
    right: Mapping[str, int]
    found: Mapping[str, int | None]
    #: The inputs and the answers, as text for reports.
    text: str
    #: A command that explains the right answer step by step; empty if there is none.
    reproduce: str = ""


@dataclass(frozen=True)
class Proof:
    """The outcome of `mxnum.conformance.prove`."""

    claim: Claim = field(repr=False)
    implementation: str
    verdict: Literal["proved", "refuted", "open"]
    parts: tuple[ProofPart, ...]
    assumptions: tuple[str, ...]
    counterexample: Counterexample | None = None

    @property
    def seconds(self) -> float:
        """The time that solvers took."""
        return sum(part.seconds for part in self.parts)

    @property
    def solver(self) -> str:
        """The names of the solvers that were asked."""
        return ", ".join(dict.fromkeys(part.solver for part in self.parts))

    def __bool__(self) -> bool:
        return self.verdict == "proved"

    def __str__(self) -> str:
        said = f"{self.implementation}: {self.claim.text}"
        if self.verdict == "proved":
            lines = [f"Proved for all inputs ({self.solver}, {self.seconds:.1f} s): {said}."]
        elif self.counterexample is not None:
            lines = [f"Refuted ({self.solver}, {self.seconds:.1f} s): {said}.", self.counterexample.text]
            if self.counterexample.reproduce:
                lines.append(f"To see why: {self.counterexample.reproduce}")
        else:
            lines = [f"Not decided within the time limit ({self.solver}, {self.seconds:.1f} s): {said}."]
        if len(self.parts) > 1:
            counted = Counter(part.verdict for part in self.parts if "condition" in part.name)
            told = [part for part in self.parts if part.verdict == "refuted" or "condition" not in part.name]
            lines += [f"  {part.verdict} ({part.seconds:.1f} s): {part.name}" for part in told]
            for verdict in ("proved", "open"):
                if count := counted[verdict]:
                    lines.append(f"  {verdict}: {count} conditions that rule out undefined behaviour")
        return "\n".join([*lines, *self.assumptions])

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as a dictionary for scripts."""
        example = self.counterexample
        return {
            "claim": self.claim.text,
            "implementation": self.implementation,
            "verdict": self.verdict,
            "solver": self.solver,
            "seconds": round(self.seconds, 2),
            "parts": [vars(part) for part in self.parts],
            "assumptions": list(self.assumptions),
            "counterexample": None
            if example is None
            else {
                "inputs": dict(example.inputs),
                "right": dict(example.right),
                "found": dict(example.found),
                "text": example.text,
                "reproduce": example.reproduce,
            },
        }

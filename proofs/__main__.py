"""``python -m proofs``: check the theorems, show a table, fail if anything is not proved."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from proofs import ledger
from proofs.runner import Collection, check_all, choose, collect
from proofs.theorem import Outcome, Theorem

#: The interval, in seconds, at which a run writes the ledger.
SAVED_EVERY = 120.0


class Progress:
    """Shows progress on the terminal: a line for each failure, and one updated status line."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.started = time.perf_counter()
        self.last_line = 0.0
        self.live = sys.stderr.isatty()

    def __call__(self, theorem: Theorem, outcome: Outcome) -> None:
        self.done += 1
        now = time.perf_counter() - self.started
        line = f"[{self.done}/{self.total}] {now:4.0f} s  {outcome.verdict} {theorem.name} ({outcome.seconds:.1f} s)"
        if outcome.verdict != "proved":
            self._print(f"{line}: {outcome.detail}", "\n")
        elif self.live:
            self._print(line, "")
        elif now - self.last_line >= 5 or self.done == self.total:
            self._print(line, "\n")
            self.last_line = now

    def _print(self, line: str, end: str) -> None:
        print(f"\r\033[K{line}" if self.live else line, end=end, file=sys.stderr, flush=True)


def table(outcomes: dict[str, Outcome], theorems: dict[str, Theorem]) -> str:
    """Return the outcomes as a table of text."""
    rows = [("theorem", "kernels", "solver", "seconds", "verdict")]
    for name, outcome in sorted(outcomes.items()):
        kernels = theorems[name].kernels
        about = kernels[0] if len(kernels) == 1 else f"{kernels[0]} and {len(kernels) - 1} more" if kernels else "-"
        rows.append((name, about, outcome.solver, f"{outcome.seconds:.2f}", outcome.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser(prog="python -m proofs", description=__doc__)
    parser.add_argument(
        "--tier", choices=("fast", "full"), default="fast", help="full adds the slow theorems and sweeps"
    )
    parser.add_argument("--only", metavar="PATTERN", help="only theorems whose name matches this glob or contains it")
    parser.add_argument("--stale", action="store_true", help="only theorems without a current proof in the ledger")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes (default: all cores)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes to this file as well")
    parser.add_argument("--ledger", action="store_true", help="record the outcomes and rewrite proofs/LEDGER.md")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    return options


def main(arguments: list[str] | None = None, get: Callable[[], Collection] = collect) -> int:
    """Check theorems and return the exit status.

    The exit status is 0 if all theorems are proved, 1 if a theorem is not proved, and 2 for invalid
    arguments.
    """
    options = parse(arguments)
    collection = get()
    chosen = choose(collection.theorems.values(), options.tier, options.only)
    if not chosen:
        print(f"no theorem in the {options.tier} tier matches {options.only!r}", file=sys.stderr)
        return 2
    if options.stale:
        chosen = ledger.stale(chosen)
    started = time.perf_counter()
    progress, found = Progress(len(chosen)), dict[str, Outcome]()
    saved = started

    def keep(theorem: Theorem, outcome: Outcome) -> None:
        """Show an outcome, and save regularly, so that an interrupted run keeps its proofs."""
        nonlocal saved
        progress(theorem, outcome)
        found[theorem.name] = outcome
        if options.ledger and time.perf_counter() - saved > SAVED_EVERY:
            ledger.update(collection, found)
            saved = time.perf_counter()

    outcomes = check_all(chosen, options.jobs, keep, ledger.recorded_seconds(), get)
    elapsed = time.perf_counter() - started
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(table(outcomes, collection.theorems))
    for module, reason in collection.skipped.items():
        print(f"SKIPPED {module}, its theorems are not checked: {reason}")
    failed = [name for name, outcome in outcomes.items() if outcome.verdict != "proved"]
    work = sum(outcome.seconds for outcome in outcomes.values())
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} proved in {elapsed:.0f} s ({work:.0f} s of work)")
    for name in failed:
        print(f"NOT PROVED {name}: {outcomes[name].verdict}, {outcomes[name].detail}")
    if options.json:
        report = {
            "tier": options.tier,
            "versions": ledger.versions(),
            "seconds": elapsed,
            "skipped": collection.skipped,
            "theorems": [
                {
                    "name": name,
                    "statement": collection.theorems[name].statement,
                    "hypotheses": collection.theorems[name].hypotheses,
                    "kernels": collection.theorems[name].kernels,
                    "solver": outcome.solver,
                    "seconds": outcome.seconds,
                    "verdict": outcome.verdict,
                    "detail": outcome.detail,
                }
                for name, outcome in sorted(outcomes.items())
            ],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.ledger:
        ledger.update(collection, outcomes)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m mxnum.claims``: check the claims and write the ledger."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from mxnum.claims.evidence import Verdict
from mxnum.claims.page import COMMAND, markdown
from mxnum.claims.registry import Entry, reproduce
from mxnum.files import written_whole

PAGE = "docs/claims.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; 0 unless one of them broke, was interrupted, or could not be written."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=f"Check the claims about MX training and write {PAGE}, or what is asked for."
    )
    parser.add_argument("--only", metavar="IDS", help="claims to check, such as I1,M4; prints, and writes no page")
    parser.add_argument("--results", default="docs/results", help="the folder of results files of training runs")
    parser.add_argument("--output", metavar="FILE", help=f"where the page goes (default: {PAGE})")
    parser.add_argument("--json", metavar="FILE", help="write all evidence there, too")
    chosen = parser.parse_args(arguments)
    ids = None if chosen.only is None else [each.strip() for each in chosen.only.split(",")]
    try:
        report = reproduce(ids, results=chosen.results, progress=_show)
        broken = [entry for entry in report if entry.verdict == Verdict.FAILED]
        whole = not broken and not report.interrupted
        if whole and (ids is None or chosen.output):
            _write(Path(chosen.output or PAGE), markdown(report))
        if chosen.json:
            _write(Path(chosen.json), json.dumps(report.as_dict(), indent=1) + "\n")
    except (OSError, ValueError) as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 2
    shown = [report.text()]
    for entry in report if ids is not None else ():
        shown += [f"\n{entry.claim.id} {entry.verdict}. {entry.remark}".rstrip(), *_details(entry)]
    try:
        print("\n".join(shown))
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
    for entry in broken:
        print(f"Error: the check of {entry.claim.id} broke: {entry.remark}", file=sys.stderr)
    return 0 if whole else 2


def _details(entry: Entry) -> list[str]:
    return [f"  {item}" for item in (*entry.evidence.statements, *entry.evidence.comparisons)]


def _write(path: Path, text: str) -> None:
    if not path.parent.is_dir():
        raise ValueError(f"Folder {str(path.parent)!r} does not exist; run this where it does, or give another file.")
    with written_whole(path) as partial:
        partial.write_text(text)


def _show(done: int, total: int, what: str) -> None:
    end = "\n" if done == total else ""
    if sys.stderr.isatty():
        print(f"\r\x1b[K[{done}/{total}] {what}", end=end, file=sys.stderr, flush=True)

"""The command ``mxnum lab ledger``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def ledger(
    only: Annotated[
        str | None,
        typer.Option(metavar="IDS", help="Check only these claims, such as I6c,I7. A page is written only with --out."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of the results of training runs (default: docs/lab/results).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the page to this file (default: replace docs/lab/claims.md)."),
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Check claims about MX training against stored results, and write the page of claims.

    This command needs a checkout of mxnum, which contains the results and the page. The command
    `mxnum reproduce` works without a checkout: it trains the runs itself, and writes its report to
    any folder. The exit status is 0 if all checks ran, whatever the verdicts, and 2 if a check
    raised an error.

    Examples: `mxnum lab ledger`; `mxnum lab ledger --only I1,M4`; `mxnum lab ledger --out page.md`.
    """
    from mxnum.cli.console import print_json
    from mxnum.cli.main import FAILED
    from mxnum.cli.outputs import check_output
    from mxnum.lab.claims import Verdict, reproduce
    from mxnum.lab.claims.claim import chosen
    from mxnum.lab.claims.page import PAGE, headed, markdown
    from mxnum.output.files import written_whole

    check_output("Option --out", out, force)
    ids = None if only is None else chosen("only", only.split(","))
    if results is not None and not results.is_dir():
        raise ValueError(f"Option --results must be a folder, not {str(results)!r}.")
    page = out or Path(PAGE)
    writes = ids is None or out is not None
    if writes and not page.parent.is_dir():
        raise ValueError(
            f"Folder {str(page.parent)!r} does not exist; run this command in a checkout of mxnum, or give another "
            f"file with --out."
        )
    report = reproduce(ids, results=results or "docs/lab/results", progress=_show)
    broken = [entry for entry in report if entry.verdict == Verdict.FAILED]
    whole = not broken and not report.interrupted
    if whole and writes:
        with written_whole(page) as partial:
            partial.write_text(markdown(report))
    if as_json:
        print_json(report.as_dict())
    else:
        print(report)
        for entry in report if ids is not None else ():
            print(f"\n{entry.claim.id} {entry.verdict}. {entry.remark}".rstrip())
            for heading, part in headed(entry.evidence):
                print(*[heading] * bool(heading), *(f"  {item}" for item in part.items), sep="\n")
    for entry in broken:
        print(f"Error: the check of {entry.claim.id} raised an error: {entry.remark}", file=sys.stderr)
    if not whole:
        raise typer.Exit(FAILED)


def _show(done: int, total: int, what: str) -> None:
    end = "\n" if done == total else ""
    if sys.stderr.isatty():
        print(f"\r\x1b[K[{done}/{total}] {what}", end=end, file=sys.stderr, flush=True)

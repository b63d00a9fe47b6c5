"""The command ``mxnum reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.lab.claims.reproduction import Reproduction


def reproduce(
    quick: Annotated[
        bool, typer.Option("--quick", help="Check the claims that can be decided within minutes (default).")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Check all claims that can be decided, which takes many hours.")
    ] = False,
    only: Annotated[str | None, typer.Option(metavar="IDS", help="Check only these claims, such as I6c,I7.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the report and the data.")] = Path(
        "reproduce"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Train with new random seeds, in a separate folder.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of training processes (default: one for each core).")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check what papers claim about training in MX formats, on this machine, and write a report.

    Some claims need no training. To check claims that need training, the command trains for
    minutes, or for hours with --full. The command writes `report.html` (one file, with
    figures), `claims.md` and the data. The report also lists the claims that the command cannot
    decide, with the reason. If you run the same command again after Ctrl-C or a kill, it continues
    where it stopped and writes the report again. The output folder must be empty, or from an
    earlier run of this command.

    The exit status is 0 if all checks and training runs finish; it does not depend on the verdicts.
    The exit status is 1 if a check or a training run failed, and 130 after an interruption. An
    interrupted command also writes a report, with the results so far.

    Examples: `mxnum reproduce --quick`; `mxnum reproduce --only I6c,M4 --out mine`; `mxnum
    reproduce --full --only B2`.
    """
    from mxnum import errors
    from mxnum.cli.console import print_json
    from mxnum.cli.lab.watching import ended_by_signals, watching
    from mxnum.cli.main import DIFFERS, INTERRUPTED
    from mxnum.lab.claims.claim import chosen
    from mxnum.lab.claims.reproduction import reproduce_into

    if quick and full:
        raise errors.exclusive("quick", "full")
    ids = None if only is None else chosen("only", only.split(","))
    with ended_by_signals(), watching() as watch:
        found = reproduce_into(out, ids, full=full, fresh=fresh, processes=processes, watch=watch)
    if as_json:
        print_json(_as_dict(found))
    else:
        _print(found)
    if found.report.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.failures or found.broken:
        raise typer.Exit(DIFFERS)


def _print(found: Reproduction) -> None:
    from mxnum.cli.console import print_table
    from mxnum.lab.studies.sweep import duration

    report = found.report
    print_table("", ["id", "claim", "verdict"], [(e.claim.id, e.claim.title, str(e.verdict)) for e in report])
    print(", ".join(f"{number} {verdict}" for verdict, number in report.counts.items()) + ".")
    for failure in found.failures:
        print(f"Failed: {failure}; run the same command to try again.")
    for entry in found.broken:
        print(f"The check of {entry.claim.id} raised an error: {entry.remark}")
    state = "Interrupted; results so far" if report.interrupted else f"Done after {duration(found.seconds)}"
    print(f"{state}: {found.folder / 'report.html'}. The same folder has claims.md and data/.")


def _as_dict(found: Reproduction) -> dict[str, Any]:
    failures = [{"arm": f.arm, "seed": f.seed, "reason": f.reason} for f in found.failures]
    facts = {"folder": str(found.folder), "seconds": round(found.seconds, 1), "failures": failures}
    return found.report.as_dict() | facts | {"counts": found.report.counts}

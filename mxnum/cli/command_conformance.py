"""``mxnum conformance``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mxnum.cli import options


def conformance(
    library: Annotated[
        list[str] | None, typer.Option(help="Check only this library; repeatable (default: all installed libraries).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the page to this file (default: print it).")
    ] = None,
    force: options.Force = False,
) -> None:
    """Compare the conversions of installed libraries with the right answers, in tables.

    The command knows the libraries ml_dtypes, torch, torchao, compressed-tensors, nvidia-modelopt,
    gfloat, gguf and onnx. The command tests each installed library on every rounding boundary,
    special value and extreme scale. For each kind of difference, the page shows the smallest input
    that causes the difference.

    Examples: `mxnum conformance --library ml_dtypes`; `mxnum conformance --out page.md --force`.
    """
    from mxnum import errors
    from mxnum.cli.outputs import check_output
    from mxnum.conformance.libraries import LIBRARIES, page_of
    from mxnum.output.files import written_whole

    check_output("Option --out", out, force)
    chosen = [errors.choose("library", name, tuple(LIBRARIES)) for name in library or LIBRARIES]
    page = page_of(chosen, lambda what: print(what, file=sys.stderr, flush=True))
    if out is None:
        print(page)
    else:
        with written_whole(out) as partial:
            partial.write_text(page)

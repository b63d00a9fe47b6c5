"""Write the figures of commands to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.cli.outputs import check_output

SUFFIXES = (".png", ".svg", ".pdf")


def check_figure(path: Path | None, force: bool = False) -> None:
    """Raise an error if a figure cannot be written to `path`.

    A command calls this function first, so that a wrong path fails before a long computation.
    """
    check_output("Option --plot", path, force)
    if path is None:
        return
    errors.require(path.suffix in SUFFIXES, "plot", f"a {errors.joined(SUFFIXES)} file", str(path))
    errors.package("matplotlib", "plots")


def write_figure(path: Path, draw: Callable[[], Any]) -> None:
    """Draw a figure with `draw` and write it to `path`; an error leaves no incomplete file."""
    from mxnum.output.files import written_whole

    figure = draw()
    with written_whole(path) as partial:
        figure.savefig(partial, format=path.suffix[1:], dpi=150)

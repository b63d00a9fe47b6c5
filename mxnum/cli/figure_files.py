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

    A command calls this function before it starts its work.
    """
    check_output("Option --plot", path, force)
    if path is None:
        return
    errors.require(path.suffix in SUFFIXES, "plot", f"a {errors.joined(SUFFIXES)} file", str(path))
    errors.package("matplotlib", "plots")


def write_figure(path: Path, draw: Callable[[], Any]) -> None:
    """Write to `path` the figure that `draw` returns. Errors leave no incomplete file."""
    from mxnum.output.files import written_whole

    figure = draw()
    with written_whole(path) as partial:
        figure.savefig(partial, format=path.suffix[1:], dpi=150)

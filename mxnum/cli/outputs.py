"""Checks of the files that commands write, made before the work begins.

Neither work nor files are lost by a wrong path.
"""

from __future__ import annotations

from pathlib import Path


def check_output(name: str, path: Path | None, force: bool) -> None:
    """Raise ValueError unless a file can be written there without loss.

    An existing file needs `force`. `name` is the option's name on the command line.
    """
    from mxnum.output.files import is_stream, place_of

    if path is None or is_stream(path):
        return
    if str(path) == "-":
        raise ValueError(f"{name} must be a file, not '-'; /dev/stdout is standard output.")
    _, mode = place_of(path)
    if mode is not None and not force:
        raise ValueError(f"{name} must be a new file, or come with --force to overwrite one: {str(path)!r} exists.")

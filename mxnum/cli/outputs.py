"""Check the paths of output files before a command begins its work.

Because of this early check, a wrong path costs no computing time and overwrites no file.
"""

from __future__ import annotations

from pathlib import Path


def check_output(name: str, path: Path | None, force: bool) -> None:
    """Raise ValueError unless `path` can be written without losing a file.

    An existing file may be overwritten only with `force`. `name` is the option's name on the
    command line.
    """
    from mxnum.output.files import is_stream, place_of

    if path is None or is_stream(path):
        return
    if str(path) == "-":
        raise ValueError(f"{name} must be a file, not '-'; for standard output, give /dev/stdout.")
    _, mode = place_of(path)
    if mode is not None and not force:
        raise ValueError(f"{name} must be a new file unless --force is given: {str(path)!r} exists.")

"""Where commands write: looked at before the work begins, so that nothing is lost by it, neither work nor files."""

from __future__ import annotations

from pathlib import Path


def check_output(name: str, path: Path | None, force: bool) -> None:
    """An error unless a file can be written there, and overwriting one was asked for; `name` is what was typed for."""
    from mxnum.output.files import is_stream, place_of

    if path is None or is_stream(path):
        return
    if str(path) == "-":
        raise ValueError(f"{name} must be a file, not '-'; /dev/stdout is standard output.")
    _, mode = place_of(path)
    if mode is not None and not force:
        raise ValueError(f"{name} must be a new file, or come with --force to overwrite one: {str(path)!r} exists.")

"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the name `path` when the block ends, and is removed if it fails."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_abandoned(folder: Path) -> None:
    """Remove what `written_whole` of processes that no longer exist left in a folder and below: they were killed."""
    for partial in folder.rglob(".*.partial"):
        owner = partial.name.split(".")[-2]
        if owner.isdecimal() and not _exists(int(owner)):
            partial.unlink(missing_ok=True)


def _exists(process: int) -> bool:
    if os.name == "nt":  # there os.kill would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

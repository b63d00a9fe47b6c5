"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zipfile import BadZipFile


def as_path(path: str | os.PathLike[str], argument: str = "path") -> Path:
    """Return `path` as a `Path`; raise ValueError for "", which would mean the current folder."""
    if os.fspath(path) == "":
        raise ValueError(f"Argument {argument!r} must be the path of a file or a folder, not ''.")
    return Path(path)


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield another path to write to; when the block ends, what is there replaces `path`.

    A regular file is replaced in one step and keeps its mode. If `path` is a link, the file it
    points to is replaced. Bytes for FIFOs and devices are written when all are there. If the block
    fails, nothing has changed.
    """
    path = as_path(path)
    with _naming(path):
        if is_stream(path):
            with tempfile.TemporaryDirectory() as folder:
                whole = Path(folder) / "whole"
                yield whole
                with whole.open("rb") as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
            return
        target, mode = place_of(path)
        # The name is cut, lest it become too long. The token differs between threads and
        # containers.
        partial = target.with_name(f".{target.name[:50]}.{secrets.token_hex(4)}.{os.getpid()}.partial")
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode & 0o666))
        try:
            yield partial
            if mode is not None:
                partial.chmod(mode)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Return True if bytes written to a path leave the file system.

    That is so for a FIFO, a device, a socket and standard output.
    """
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    opened_already = str(path).startswith(("/dev/fd/", "/dev/stdout", "/dev/stderr"))
    return opened_already or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def place_of(path: Path) -> tuple[Path, int | None]:
    """Return the path that a file would be written to, behind links, and the mode of a file there.

    The mode is None if there is no file. Raise an error if the path cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent)) from None
        return target, None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return target, stat.S_IMODE(found)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make errors of the system name `path` where they name no file, or a temporary one."""
    try:
        yield
    except OSError as problem:
        known = problem.filename is not None and not str(problem.filename).endswith((".partial", "/whole"))
        if problem.errno is None or known:
            raise
        raise OSError(problem.errno, os.strerror(problem.errno), str(path)) from problem


@contextmanager
def reading(path: str | os.PathLike[str], what: str = "cannot be read") -> Iterator[None]:
    """Raise every error about a file's content as a ValueError of one sentence that names the file.

    The readers of numpy and of others raise many kinds of exceptions for damaged files, and some of
    their messages are advice for other callers.
    """
    named = f"{'Folder' if os.path.isdir(path) else 'File'} {str(path)!r} "
    try:
        yield
    except OSError as problem:
        if problem.filename is not None:
            raise
        raise ValueError(f"{named}{what}: {_why(problem)}.") from None
    except Exception as problem:
        if str(problem).startswith(named):
            raise
        raise ValueError(f"{named}{what}: {_why(problem)}.") from None


def _why(problem: Exception) -> str:
    said = " ".join(str(problem).split()).rstrip(".")
    if isinstance(problem, MemoryError):
        return "what it describes does not fit into memory"
    if isinstance(problem, BadZipFile):
        return "it is a damaged archive"
    if isinstance(problem, KeyError):
        return f"it lacks {said}"
    # numpy takes every unknown content for a pickle, and its message says how to load one.
    if "pickle" in said:
        return "it holds Python objects, or is no file of arrays"
    known = {"mmap length is greater than file size": "it is truncated", "No data left in file": "it is empty"}
    return known.get(said, said.split(". ")[0]) or type(problem).__name__


def remove_abandoned(folder: Path) -> None:
    """Remove partial files that killed processes left in `written_whole`, in a folder and below.

    A file written to in the last hour stays: its process may run on another machine that shares the
    folder.
    """
    for partial in folder.rglob(".*.partial"):
        own = re.search(r"\.[0-9a-f]{8}\.(\d+)\.partial$", partial.name)
        with suppress(FileNotFoundError):  # another process may have removed it meanwhile
            if own and not _exists(int(own[1])) and time.time() - partial.stat().st_mtime > 3600:
                partial.unlink()


def _exists(process: int) -> bool:
    if os.name == "nt":  # os.kill would end the process there
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

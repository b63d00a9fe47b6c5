"""Write files so that no reader ever sees an incomplete file."""

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
    """Return `path` as a `Path`; raise ValueError for "", which `Path` reads as "."."""
    if os.fspath(path) == "":
        raise ValueError(f"Argument {argument!r} must be the path of a file or a folder, not ''.")
    return Path(path)


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; when the `with` statement ends, the file there replaces `path`.

    A regular file is replaced in one step and keeps its mode. If `path` is a link, the file to
    which the link points is replaced. If `path` is a FIFO or a device, the content of the temporary
    file is copied to it at the end. If the body of the `with` statement raises an exception, `path`
    is unchanged.
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
        # The name is cut because file systems limit the length of names. Because of the random
        # token, two threads get different names, and so do two processes that have the same id in
        # different containers.
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
    """Return True for a FIFO, a device, a socket, standard output and standard error."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    opened_already = str(path).startswith(("/dev/fd/", "/dev/stdout", "/dev/stderr"))
    return opened_already or not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def place_of(path: Path) -> tuple[Path, int | None]:
    """Return the path with links resolved, and the mode of the file there (None if there is none).

    Raise an error if no file can be written there.
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
    """Replace the name of the temporary file by `path` in every OSError.

    Errors that name another file are not changed.
    """
    try:
        yield
    except OSError as problem:
        known = problem.filename is not None and not str(problem.filename).endswith((".partial", "/whole"))
        if problem.errno is None or known:
            raise
        raise OSError(problem.errno, os.strerror(problem.errno), str(path)) from problem


@contextmanager
def reading(path: str | os.PathLike[str], what: str = "cannot be read") -> Iterator[None]:
    """Replace every error about a file's content by a ValueError that names the file.

    The message is one sentence. For damaged files, numpy and other readers raise many kinds of
    exceptions, some with advice that does not help here.
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
        return "the array that it describes does not fit into memory"
    if isinstance(problem, BadZipFile):
        return "it is a damaged archive"
    if isinstance(problem, KeyError):
        return f"it lacks {said}"
    # If numpy does not recognise the content of a file, numpy's message mentions a pickle.
    if "pickle" in said:
        return "it contains Python objects, or is not a file of arrays"
    known = {"mmap length is greater than file size": "it is truncated", "No data left in file": "it is empty"}
    return known.get(said, said.split(". ")[0]) or type(problem).__name__


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of `written_whole` whose process has ended.

    The function searches the folder and all folders in it. It keeps a file that changed in the last
    hour, because the file's process may run on another machine that shares the folder.
    """
    for partial in folder.rglob(".*.partial"):
        own = re.search(r"\.[0-9a-f]{8}\.(\d+)\.partial$", partial.name)
        with suppress(FileNotFoundError):  # another process may have removed the file
            if own and not _exists(int(own[1])) and time.time() - partial.stat().st_mtime > 3600:
                partial.unlink()


def _exists(process: int) -> bool:
    if os.name == "nt":  # on Windows, os.kill would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

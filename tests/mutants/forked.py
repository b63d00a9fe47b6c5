"""Run pytest in forked processes, which save time because large packages are already imported."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: The largest number of bytes that the process of the tests may allocate. A planted mistake may
#: make the library allocate arbitrarily much memory.
MEMORY = 8 << 30


OPTIONS = ("-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def import_packages() -> None:
    """Import the packages that most tests use, except the library, and start numba's compiler."""
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # a fork copies no threads
    for package in ("hypothesis", "pytest", "scipy.stats", "torch"):
        with suppress(ImportError):
            importlib.import_module(package)
    import numba

    numba.njit(lambda x: x + 1)(1.0)
    gc.collect()
    gc.freeze()


def pytest_in(folder: Path, arguments: Sequence[str], compiled: Path, limit: float) -> tuple[int | None, str]:
    """Run pytest in a copy of the repository; return the exit status and the output.

    The status is None if the process did not end within `limit` seconds, and negative if a signal
    ended the process. `compiled` is the folder of numba's cache.
    """
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            try:
                status = _run(folder, arguments, compiled, output.fileno())
            except BaseException:
                traceback.print_exc()
                status = 99
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = _wait(child, limit)
        output.seek(0)
        return status, output.read()


def _run(folder: Path, arguments: Sequence[str], compiled: Path, output: int) -> int:
    os.setpgid(0, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(folder)
    os.environ.update(NUMBA_CACHE_DIR=str(compiled), PYTHONDONTWRITEBYTECODE="1", PYTEST_ADDOPTS="")
    os.environ["PYTHONPATH"] = sys.path[0] = str(folder)
    sys.dont_write_bytecode = True
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("tests", "mxnum", "pytest_mxnum", "conftest"):
            del sys.modules[name]
    warnings.resetwarnings()
    import numba
    import pytest

    numba.config.CACHE_DIR = str(compiled)
    return int(pytest.main([*OPTIONS, *arguments]))


def _wait(child: int, limit: float) -> int | None:
    """Return the exit status of a child process, or None if it runs longer than `limit` seconds."""
    until = time.monotonic() + limit
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        return None
    finally:  # kill all processes of the tests, even if the user interrupts the run
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)

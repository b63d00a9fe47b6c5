"""Fixtures for the tests of GPU kernels.

The tests run on a GPU or in numba's simulator, and are skipped if there is neither. This command
runs the tests in the simulator:

    NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 python -m pytest tests/engine/cuda

The tests compare results with those of the CPU's loops. With `NUMBA_DISABLE_JIT=1`, these loops run
uncompiled, because compiling them takes longer.
"""

from __future__ import annotations

import importlib.util
import os

import numpy as np
import pytest

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def reason_to_skip() -> str | None:
    """Return the reason why GPU tests cannot run, or None if they can."""
    if importlib.util.find_spec("numba_cuda") is None:
        return 'numba-cuda is missing: pip install -e ".[cuda]"'
    if SIMULATED:
        return None
    from numba import cuda

    try:
        available = bool(cuda.is_available())
    except Exception:
        available = False
    return None if available else "no GPU: NUMBA_ENABLE_CUDASIM=1 runs these tests in numba's simulator"


def pytest_collection_modifyitems(items):
    mine = [item for item in items if "engine/cuda" in item.path.as_posix()]
    reason = reason_to_skip() if mine else None
    for item in mine:
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _quiet_floats():
    """Silence numpy's warnings, which occur only if loops run uncompiled."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def device():
    """Return a function that copies a numpy array to the device, as a numba device array."""
    from benchmarks.cuda_bits import to_gpu

    return lambda array: to_gpu(np.ascontiguousarray(array) if array.ndim else array)

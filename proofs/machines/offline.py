"""Compile kernels for a GPU on a machine that has no GPU.

The functions import numba-cuda themselves, so this module loads without numba-cuda.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def offline(capability: tuple[int, int]) -> Iterator[None]:
    """Let numba-cuda compile for a compute capability within a `with` statement, without a GPU.

    numba-cuda compiles nested functions for the current device, so this function replaces the
    current device by an object that has the given capability.
    """
    from numba.cuda import dispatcher

    original = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = original


def ptx_of(kernel: Any, signature: tuple[Any, ...], capability: tuple[int, int]) -> str:
    """Return the PTX of a kernel for the given numba types."""
    from numba import cuda

    with offline(capability):
        text, _ = cuda.compile(kernel.py_func, signature, device=False, abi="numba", cc=capability, output="ptx")
    return str(text)

"""Choose the engine for an operation by the memory of its arrays: host memory or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from numpy import ndarray

from mxnum.memory.device import together

#: The engine for arrays in host memory. None means `quantizing.host`.
_chosen: ContextVar[Any] = ContextVar("chosen", default=None)


def engine(**arguments: Any) -> Any:
    """Return the engine for some arrays: `cuda.passes` for arrays on a GPU, else `host_engine()`.

    Arguments may be None. Raises an error unless all arrays are in host memory, or all on the same
    GPU.
    """
    for argument in arguments.values():
        if argument is not None and type(argument) is not ndarray:
            break
    else:
        return _chosen.get() or _compiled()
    if together(arguments.items()):
        from mxnum.engine.cuda import passes

        return passes
    return host_engine()


def engine_of(x: Any, scales: Any, random_bits: Any, out: Any) -> Any:
    """Return the engine that quantizes the array `x`.

    Fast path: if `x` is a numpy array, `out` is a numpy array or None, and no other array is given,
    `engine` is not called.
    """
    if type(x) is ndarray and scales is random_bits is None and (out is None or type(out) is ndarray):
        return _chosen.get() or _compiled()
    return engine(x=x, scales=scales, random_bits=random_bits, out=out)


def host_engine() -> Any:
    """Return the engine for arrays in host memory."""
    return _chosen.get() or _compiled()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run operations on arrays in host memory without numba, inside a `with` statement.

    For small arrays, loading numba takes longer than the whole computation with numpy.
    """
    from mxnum.engine import uncompiled

    before = _chosen.set(uncompiled)
    try:
        yield
    finally:
        _chosen.reset(before)


@cache
def _compiled() -> Any:
    """Import and return `quantizing.host`, which loads numba."""
    from mxnum.engine.quantizing import host

    return host

"""The choice of the engine that runs an operation, by the memory in which its arrays live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from numpy import ndarray

from mxnum.memory.device import together

#: The engine for arrays in host memory if it is not `quantizing.host`, else None.
_chosen: ContextVar[Any] = ContextVar("chosen", default=None)


def engine(**arguments: Any) -> Any:
    """Return the engine for some arrays: `host_engine()`, or `cuda.passes` for arrays on a GPU.

    Arguments may be None. Raises an error if an array lives elsewhere than the first one.
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
    """Return the engine for the arrays of a quantization.

    Fast path: if x is in host memory and there are no scales or random bits, this avoids the loop
    of `engine`.
    """
    if type(x) is ndarray and scales is random_bits is None and (out is None or type(out) is ndarray):
        return _chosen.get() or _compiled()
    return engine(x=x, scales=scales, random_bits=random_bits, out=out)


def host_engine() -> Any:
    """Return the engine for arrays in host memory."""
    return _chosen.get() or _compiled()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run the operations on host arrays without numba inside this context.

    For few numbers numba takes longer to load than numpy takes for all of the work.
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

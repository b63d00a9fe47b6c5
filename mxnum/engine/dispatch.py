"""Which engine runs an operation: the one for where its arrays live."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from numpy import ndarray

from mxnum.memory.device import together

#: What runs operations on arrays in host memory, where that is not `quantizing.host`.
_chosen: ContextVar[Any] = ContextVar("chosen", default=None)


def engine(**arguments: Any) -> Any:
    """`host_engine()`, or `cuda.passes` for arrays on a GPU; an error if the arrays given (not None) live apart.

    The first argument is the one that the others have to be with.
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
    """The same for the arrays of a quantization; asked soonest for arrays in host memory."""
    if type(x) is ndarray and scales is random_bits is None and (out is None or type(out) is ndarray):
        return _chosen.get() or _compiled()
    return engine(x=x, scales=scales, random_bits=random_bits, out=out)


def host_engine() -> Any:
    """The engine of the host."""
    return _chosen.get() or _compiled()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Few numbers are quantized and read here without numba, which takes longer to load than all of that takes."""
    from mxnum.engine import uncompiled

    before = _chosen.set(uncompiled)
    try:
        yield
    finally:
        _chosen.reset(before)


@cache
def _compiled() -> Any:
    """Numba is loaded with it."""
    from mxnum.engine.quantizing import host

    return host

"""Which engine runs an operation: the one for where its arrays live."""

from __future__ import annotations

from functools import cache
from typing import Any

from numpy import ndarray

from mxnum.device import together


def engine(**arguments: Any) -> Any:
    """`host`, or `cuda.passes` for arrays on a GPU; an error if the arrays given (not None) live apart.

    The first argument is the one that the others have to be with.
    """
    for argument in arguments.values():
        if argument is not None and type(argument) is not ndarray:
            break
    else:
        return host_engine()
    if together(arguments.items()):
        from mxnum.engine.cuda import passes

        return passes
    return host_engine()


@cache
def host_engine() -> Any:
    """The engine of the host; numba is loaded with it."""
    from mxnum.engine.quantizing import host

    return host

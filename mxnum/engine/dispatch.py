"""Which engine runs an operation: the one for where its arrays live."""

from __future__ import annotations

from typing import Any

from mxnum.device import together


def engine(**arguments: Any) -> Any:
    """`host`, or `cuda.passes` for arrays on a GPU; an error if the arrays given (not None) live apart.

    The first argument is the one that the others have to be with.
    """
    if together(arguments.items()):
        from mxnum.engine.cuda import passes

        return passes
    from mxnum.engine import host

    return host

"""MX arrays as other software can take them: checked before anything is written."""

from __future__ import annotations

from typing import Any

from mxnum import errors, formats
from mxnum.array import MXArray


def in_host_memory(argument: str, q: Any) -> MXArray:
    """An MX array made of arrays of numpy, on the same memory."""
    errors.require_type(isinstance(q, MXArray), argument, "an MXArray", type(q).__name__)
    if q.on_device:
        raise errors.on_gpu(argument, "call to_host() first")
    made: MXArray = q.to_host()
    return made


def without_offsets(argument: str, q: Any) -> MXArray:
    """An MX array whose codes and E8M0 scales say everything, which is all that most other software knows."""
    errors.require_type(isinstance(q, MXArray), argument, "an MXArray", type(q).__name__)
    formats.get_e8m0(q.format, "What other software reads")
    errors.require(q.offsets is None, argument, "without offsets", q)
    checked: MXArray = q
    return checked

"""Checks that the hardware float arithmetic of this thread follows the defaults of IEEE 754.

Flush-to-zero and the rounding direction are thread state that other libraries change (torch has a
switch for flush-to-zero). Code that adds or multiplies floats checks once per call. If the check
fails, it computes with integers.
"""

from __future__ import annotations

import struct

import numba


def _number(bits: int) -> float:
    """Return the float64 number of a bit pattern.

    Arithmetic would depend on the floating-point environment at import time.
    """
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


#: 1 and the next float64 number; then 1/2 and 3/4 of the distance between the two.
_ONE, _NEXT = _number(1023 << 52), _number((1023 << 52) + 1)
_HALF_WAY, _NEARER = _number(970 << 52), _number((970 << 52) + (1 << 51))
#: The least positive normal number (half of it is subnormal), 1/2 and 2.
_TINY, _HALF, _TWO = (_number(bits) for bits in (1 << 52, 1022 << 52, 1024 << 52))


def is_unchanged() -> bool:
    """Return True if float arithmetic follows the defaults of IEEE 754 on this thread.

    These are rounding to nearest even, and subnormals.

    Python's float64 arithmetic decides for float32 too: processors have one state for both widths.
    """
    return (
        # The sum is larger if the thread rounds up, and 1 if it rounds down or toward zero.
        _ONE + _HALF_WAY + _NEARER == _NEXT
        # The product is 0 if the thread flushes subnormal results or reads subnormal operands as 0.
        and _TINY * _HALF * _TWO == _TINY
    )


def is_default() -> bool:
    """Return True if compiled code may use float arithmetic: `is_unchanged()`, and numba compiles.

    With NUMBA_DISABLE_JIT=1 the loops that rely on float arithmetic cannot run.
    """
    return is_unchanged() and not numba.config.DISABLE_JIT

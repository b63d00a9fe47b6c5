"""Whether hardware float arithmetic can be trusted in this process, on this thread, now.

Flush-to-zero and rounding directions are thread state that other libraries change (torch has a switch for the first).
Code that adds or multiplies floats asks here once per call, and takes a path through integers if the answer is no.
"""

from __future__ import annotations

import struct

import numba


def _number(bits: int) -> float:
    """A float64 number by its bits: no arithmetic makes it, which would go by the environment of the import."""
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


#: 1 and the next number; half and three quarters of the way between them, alone.
_ONE, _NEXT = _number(1023 << 52), _number((1023 << 52) + 1)
_HALF_WAY, _NEARER = _number(970 << 52), _number((970 << 52) + (1 << 51))
#: The least positive normal number, half of which is subnormal, a half and 2.
_TINY, _HALF, _TWO = (_number(bits) for bits in (1 << 52, 1022 << 52, 1024 << 52))


def is_unchanged() -> bool:
    """Whether this thread rounds to nearest even and keeps subnormals, as IEEE 754 has it by default.

    Python's own float64 arithmetic tells: processors have one state for both widths.
    """
    return (
        _ONE + _HALF_WAY + _NEARER == _NEXT  # beyond it if rounding up, 1 if down or to zero
        and _TINY * _HALF * _TWO == _TINY  # 0 if subnormal results are flushed, or subnormal operands read as zero
    )


def is_default() -> bool:
    """The same for compiled code: without compilation (NUMBA_DISABLE_JIT=1) what relies on it cannot run."""
    return is_unchanged() and not numba.config.DISABLE_JIT

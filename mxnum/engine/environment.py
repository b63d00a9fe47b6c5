"""Whether hardware float arithmetic can be trusted in this process, on this thread, now.

Flush-to-zero and rounding directions are thread state that other libraries change (torch has a switch for the first).
Code that adds or multiplies floats asks here once per call, and takes a path through integers if the answer is no.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from mxnum.engine.jit import compile_loop

#: The least positive normal number.
_TINY = 2.0**-126


@cache
def _probe() -> Any:
    def probe(one):  # an argument, so that no compiler can compute with what is made of it
        whole, tiny = np.float32(one), np.float32(one * _TINY)
        return (
            whole + np.float32(one * 1.5 * 2.0**-24) == np.float32(1 + 2.0**-23)  # not so if rounding down or to zero
            and whole + np.float32(one * 2.0**-24) == whole  # not so if rounding up
            and tiny * np.float32(one * 0.5) != np.float32(0)  # not so if subnormal results are flushed
            and np.float32(one * _TINY / 2) * np.float32(one * 2) == tiny  # not so if subnormal operands read as zero
        )

    return (lambda one: False) if numba.config.DISABLE_JIT else compile_loop(probe)


def is_default() -> bool:
    """Whether this thread rounds to nearest even and keeps subnormals, as IEEE 754 has it by default.

    Without compilation (NUMBA_DISABLE_JIT=1) the answer is no: the code that relies on it cannot run.
    """
    return bool(_probe()(1.0))

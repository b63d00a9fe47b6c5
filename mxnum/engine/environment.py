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

_TINY = 2.0**-126
#: Operands of the probe; they are read from memory, so that no compiler can compute with them.
_OPERANDS = np.array([1.0, 1.5 * 2.0**-24, 2.0**-24, _TINY, 0.5, _TINY / 2, 2.0], np.float32)


@cache
def _probe() -> Any:
    def probe(x):
        return (
            x[0] + x[1] == np.float32(1 + 2.0**-23)  # not so if rounding down or toward zero
            and x[0] + x[2] == x[0]  # not so if rounding up
            and x[3] * x[4] != np.float32(0)  # not so if subnormal results are flushed
            and x[5] * x[6] == x[3]  # not so if subnormal operands read as zero
        )

    return compile_loop(probe)


def is_default() -> bool:
    """Whether this thread rounds to nearest even and keeps subnormals, as IEEE 754 has it by default.

    Without compilation (NUMBA_DISABLE_JIT=1) the answer is no: the code that relies on it cannot run.
    """
    return not numba.config.DISABLE_JIT and bool(_probe()(_OPERANDS))

"""The result of a symbolic execution, and the error for code that a machine cannot read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import z3


class UnsupportedCode(ValueError):
    """Raised where code holds something that the executor has no meaning for.

    `line` is the statement as the code has it, or the beginning of it.
    """

    def __init__(self, message: str, line: str = ""):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Execution:
    """The result of an execution: the value returned, and obligations.

    The code is undefined where an obligation does not hold.
    """

    result: z3.BitVecRef
    obligations: Sequence[z3.BoolRef] = ()

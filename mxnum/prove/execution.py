"""The result of a symbolic execution, and the error for code that cannot be executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import z3


class UnsupportedCode(ValueError):
    """Raised for code that a symbolic executor does not support.

    `line` is the text of the unsupported statement, or the beginning of this text; empty if
    unknown.
    """

    def __init__(self, message: str, line: str = ""):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Execution:
    """The returned value of an execution, and its obligations.

    Where an obligation does not hold, the behaviour of the code is undefined.
    """

    result: z3.BitVecRef
    obligations: Sequence[z3.BoolRef] = ()

"""The result of a symbolic execution, and the error for code that cannot be executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import z3


class UnsupportedCode(ValueError):
    """The error for code that a symbolic executor does not support.

    `line` is the text of the unsupported statement, or the beginning of this text. It is empty if
    the statement is unknown.
    """

    def __init__(self, message: str, line: str = ""):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Execution:
    """The value that the executed code returns, and the obligations of the code.

    For inputs that violate an obligation, the behaviour of the code is undefined.
    """

    result: z3.BitVecRef
    obligations: Sequence[z3.BoolRef] = ()

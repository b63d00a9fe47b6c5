"""The integer dialect, in which every function in `mxnum.definition` is written.

A dialect function works on signed integers with ``& | ^ << >> + -``, comparisons and `select`, and
nothing else, so that one function object means the same to every machine that runs it: Python ints,
numpy arrays, numba on CPU and CUDA, and symbolic bit-vectors. The rules:

- no branch on data (branches on factory constants are fine: they fold), no data-dependent loop;
- `select` evaluates both arms: write ``z = select(c, 16, 0); m = m << z``, never ``select(c, m <<
  16, m)``;
- every result of ``+ - <<`` and every shift amount fits the function's word (32 or 64 bits, see
  `word_bits`). That is what makes int32, int64 and Python ints agree, and it is proved, not
  assumed.

Bit patterns as wide as the word are signed (float32 -0.0 is -2**31); narrower ones are accepted
signed or unsigned. Helper functions come from cached factories, so all functions built from one
helper share one object, and a compiler compiles it once. Arithmetic on a numpy array has the
array's type, so the array must be at least as wide as the word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mxnum.formats import ElementFormat

Dialect = TypeVar("Dialect", bound=Callable[..., Any])

#: The function that chooses for each type of condition; plain booleans need no entry. Machines that
#: run arrays or solvers add their own function here.
SELECT: dict[type, Callable[[Any, Any, Any], Any]] = {np.ndarray: np.where}


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` where the condition holds, else `if_false`; both are evaluated."""
    machine = SELECT.get(type(condition))
    if machine is not None:
        return machine(condition, if_true, if_false)
    return if_true if condition else if_false


def dialect(function: Dialect) -> Dialect:
    """Mark a function as written in the dialect, so that a compiler may compile calls to it."""
    function.__dict__["dialect"] = True
    return function


def is_dialect(function: object) -> bool:
    """Return True if a function is marked as written in the dialect."""
    return getattr(function, "dialect", False) is True


def working_width(source: ElementFormat, target: ElementFormat) -> int:
    """Return the position of a significand's leading bit between unpacking `source` and packing.

    The width is at least one bit more than the target keeps, so that rounding always discards
    at least one bit.
    """
    return max(source.mantissa_bits, target.mantissa_bits + 1)


def word_bits(source: ElementFormat, target: ElementFormat) -> int:
    """Return the bits of a word that holds every intermediate result of a conversion.

    The word has 64 bits if source or target is float64, else 32.
    """
    return 64 if max(source.bits, target.bits) > 32 or working_width(source, target) > 28 else 32

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
signed or unsigned. Factories of the functions that others are built from are cached, so that a
compiler meets each of them once. A numpy array computes in its own type: give it at least the width
of the word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mxnum.formats import ElementFormat

Dialect = TypeVar("Dialect", bound=Callable[..., Any])

#: The function that chooses for each type of condition; plain booleans need no entry. Array
#: machines and solvers add theirs here.
SELECT: dict[type, Callable[[Any, Any, Any], Any]] = {np.ndarray: np.where}


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` where the condition holds, else `if_false`; both have been evaluated."""
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
    """Return where the leading bit of a significand is between unpacking `source` and packing.

    It is at least one bit above what the target keeps, so that rounding always discards something.
    """
    return max(source.mantissa_bits, target.mantissa_bits + 1)


def word_bits(source: ElementFormat, target: ElementFormat) -> int:
    """Return the word in which every intermediate of a conversion fits.

    It has 32 bits, or 64 where float64 takes part.
    """
    return 64 if max(source.bits, target.bits) > 32 or working_width(source, target) > 28 else 32

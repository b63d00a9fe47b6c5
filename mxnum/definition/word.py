"""The integer dialect, in which every function in `mxnum.definition` is written.

A dialect function uses only signed integers, ``& | ^ << >> + -``, comparisons and `select`. The
same function object therefore gives the same results with Python ints, numpy arrays, numba on CPU
and CUDA, and symbolic bit vectors. The rules are:

- there is no branch or loop that depends on data (a branch on a constant of the factory is fine);
- `select` evaluates both arms: write ``z = select(c, 16, 0); m = m << z``, never ``select(c, m <<
  16, m)``;
- every result of ``+ - <<`` and every shift amount fits the function's word (32 or 64 bits, see
  `word_bits`). Therefore int32, int64 and Python ints give the same results, which is proved, not
  assumed.

Bit patterns that are as wide as the word are signed (float32 -0.0 is -2**31). Bit patterns narrower
than the word may be signed or unsigned. Factories of helper functions are cached. So all functions
that call a helper share one function object, and a compiler compiles the helper once. The elements
of numpy arrays must be at least as wide as the word, because results have the type of the
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mxnum.formats import ElementFormat

Dialect = TypeVar("Dialect", bound=Callable[..., Any])

#: For each type of condition, the function that `select` calls; plain booleans need no entry. If a
#: compiler or a solver has its own type of condition, it adds a function to SELECT.
SELECT: dict[type, Callable[[Any, Any, Any], Any]] = {np.ndarray: np.where}


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` where the condition is true, else `if_false`; both are evaluated."""
    machine = SELECT.get(type(condition))
    if machine is not None:
        return machine(condition, if_true, if_false)
    return if_true if condition else if_false


def dialect(function: Dialect) -> Dialect:
    """Mark a function as written in the dialect; compilers and translators need the mark."""
    function.__dict__["dialect"] = True
    return function


def is_dialect(function: object) -> bool:
    """Return True if a function is marked as written in the dialect."""
    return getattr(function, "dialect", False) is True


def working_width(source: ElementFormat, target: ElementFormat) -> int:
    """Return the position of the leading bit of an unpacked significand during a conversion.

    The position is at least one higher than the leading bit's position in the target, so that
    rounding always discards at least one bit.
    """
    return max(source.mantissa_bits, target.mantissa_bits + 1)


def word_bits(source: ElementFormat, target: ElementFormat) -> int:
    """Return the number of bits of a word that can hold every intermediate result of a conversion.

    The word has 64 bits for formats of more than 32 bits or with long significands, else 32.
    """
    return 64 if max(source.bits, target.bits) > 32 or working_width(source, target) > 28 else 32

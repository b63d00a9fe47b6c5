"""The types that tell a loop how to convert each element.

They hold a function, and the numbers that select one conversion.

`formulation` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.word import dialect
from mxnum.engine.machine.lanes import lane, wide
from mxnum.engine.rounding.float_additions import Constants, Domain
from mxnum.memory.dtypes import Array


class Fast(NamedTuple):
    """A fast formulation, which serves all elements.

    It has a function, and the numbers that select one element.
    """

    #: `function(x, scale, random, constants)` converts one number.
    function: Callable[..., Any]
    #: The `Domain`, then the `Constants`, as a loop takes them.
    numbers: Array
    #: The function with its constants compiled in, for the most common conversions: at least a
    #: fifth faster.
    special: Callable[..., Any] | None = None


#: The numbers of a function that ignores limits and constants.
NO_NUMBERS = np.zeros(len(Domain._fields) + len(Constants._fields), np.int32)


@dataclass(frozen=True)
class Definition:
    """One conversion by the definition, for every x and every scale.

    It is `function(x, scale, random, constants)`.

    The conversions of `quantizing_anywhere` and `decoding_anywhere` equal the definition for finite
    x and every scale but NaN. Two conversions compare equal if one compiled loop serves both.
    """

    function: Callable[..., Any]
    #: True if every intermediate result fits 32 bits, so that a loop may run in lanes.
    in_lanes: bool
    #: The array from which the loop makes the constants.
    numbers: Array = field(default_factory=lambda: NO_NUMBERS, compare=False)

    @property
    def word(self) -> Callable[[Any], Any]:
        """The function that turns a scale or random bits into a word.

        The word has the type of the loaded x.
        """
        return lane if self.in_lanes else wide


@dialect
def numbers_given(numbers):
    """Return the domain and the constants that an array of `Fast.numbers` holds."""
    limits = Domain(int(numbers[0]), int(numbers[1]), int(numbers[2]))
    n = numbers
    return limits, Constants(
        int(n[3]), int(n[4]), int(n[5]), int(n[6]), int(n[7]), int(n[8]), int(n[9]), int(n[10]), int(n[11]),
        int(n[12]), int(n[13]), int(n[14]), int(n[15]), int(n[16]), int(n[17]), int(n[18]), int(n[19]),
        int(n[20]), int(n[21]), int(n[22]),
    )  # fmt: skip

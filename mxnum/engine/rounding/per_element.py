"""What a loop is given to compute for each element: a function, and the numbers that make it one conversion.

Which functions there are, `formulation` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.word import dialect
from mxnum.engine.machine.lanes import lane, wide
from mxnum.engine.rounding.float_additions import Constants
from mxnum.memory.dtypes import Array


class Limits(NamedTuple):
    """Where a fast formulation is right: scale codes, and bit patterns of |x| in float32. Bounds are included."""

    least_scale: int
    greatest_scale: int
    greatest_x: int


class Fast(NamedTuple):
    """A fast formulation: a function that serves all elements, and the numbers that make it one of them."""

    #: (x, scale, random, constants) -> result.
    function: Callable[..., Any]
    #: The limits, then the constants: what a loop is given.
    numbers: Array
    #: The same with its constants compiled in, for the commonest conversions and loops: a fifth faster or more.
    special: Callable[..., Any] | None = None


#: Where a function looks at no constants.
NO_NUMBERS = np.zeros(len(Limits._fields) + len(Constants._fields), np.int32)


@dataclass(frozen=True)
class Definition:
    """One conversion, (x, scale, random, constants) -> result: as it is defined, for every x and every scale.

    Or, from `quantizing_anywhere` and `decoding_anywhere`, what equals that for finite x and every scale but NaN. Two
    are equal that one loop serves.
    """

    function: Callable[..., Any]
    #: Whether every intermediate fits 32 bits, so that a loop may run in lanes.
    in_lanes: bool
    #: Of what the loop makes the constants.
    numbers: Array = field(default_factory=lambda: NO_NUMBERS, compare=False)

    @property
    def word(self) -> Callable[[Any], Any]:
        """What turns a scale or random bits into a word beside the loaded x."""
        return lane if self.in_lanes else wide


@dialect
def numbers_given(numbers):
    """Limits and constants from the array that a loop is given."""
    limits = Limits(int(numbers[0]), int(numbers[1]), int(numbers[2]))
    n = numbers
    return limits, Constants(
        int(n[3]), int(n[4]), int(n[5]), int(n[6]), int(n[7]), int(n[8]), int(n[9]), int(n[10]), int(n[11]),
        int(n[12]), int(n[13]), int(n[14]), int(n[15]), int(n[16]), int(n[17]), int(n[18]), int(n[19]),
        int(n[20]), int(n[21]), int(n[22]),
    )  # fmt: skip

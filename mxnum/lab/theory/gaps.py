"""The relative gaps between neighbouring values of an element."""

from __future__ import annotations

import itertools
from fractions import Fraction

from mxnum import ElementFormat, MXFormat, Rounding
from mxnum.analysis import PiecewiseQuantizer


def relative_gaps(format: str | MXFormat | ElementFormat) -> tuple[Fraction, ...]:
    """Return (next - value) / value for every positive value of the element except the largest, in order."""
    levels = [v for v in PiecewiseQuantizer.of(format, Rounding.SR).breakpoints if v > 0]
    return tuple(above / here - 1 for here, above in itertools.pairwise(levels))

"""A quantization that was asked for, with every argument checked and resolved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from mxnum.formats import ElementFormat, MXFormat
from mxnum.layout import Blocks, scales_shape
from mxnum.modes import Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule

#: What is made of floats: codes a byte each, packed codes, the values of codes in the type of the input, scales alone.
CODES, PACKED, VALUES, SCALES = "codes", "packed", "values", "scales"


@dataclass(frozen=True)
class RandomBits:
    """Where stochastic rounding takes its bits: an array of words, or a Philox seed and stream."""

    sr_bits: int
    words: Any = None
    seed: int = 0
    stream: int = 0
    #: Whether the words of a seed are those of a matrix of which loops see the transpose.
    is_turned: bool = False

    @property
    def key(self) -> tuple[int, int, int, int]:
        low = 0xFFFFFFFF
        return self.seed & low, self.seed >> 32, self.stream & low, self.stream >> 32


@dataclass(frozen=True, eq=False)
class Settings:
    """A quantization of arrays of one shape and type, whatever their numbers.

    Calls that ask for the same share one object, by which the engine remembers what it prepared.
    """

    format: MXFormat
    shape: tuple[int, ...]
    source: ElementFormat
    blocks: Blocks
    rounding: Rounding
    scale_rule: ScaleRule
    overflow: Overflow
    nonfinite: Nonfinite
    #: How the scale is found under asymmetric scaling; None without an offset.
    offset_range: OffsetRange | None
    #: Whether the caller chooses the scale codes.
    scales_given: bool

    @cached_property
    def element(self) -> ElementFormat:
        return self.format.element

    @cached_property
    def scales_shape(self) -> tuple[int, ...]:
        return scales_shape(self.shape, self.blocks)


class Request(NamedTuple):
    """Settings and the arrays of one call."""

    settings: Settings
    x: Any
    #: Scale codes that the caller chose.
    scales: Any = None
    #: Bits for stochastic rounding.
    random: RandomBits | None = None
    #: How many threads may work; None for as many as numba would use.
    threads: int | None = None


def must_look(element: ElementFormat, nonfinite: Nonfinite) -> bool:
    """Whether all numbers are looked at first, since some may be refused."""
    return nonfinite == Nonfinite.RAISE or (nonfinite == Nonfinite.ELEMENT and element.nan_code is None)

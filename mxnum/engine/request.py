"""A quantization that was asked for, with every argument checked and resolved."""

from __future__ import annotations

from dataclasses import dataclass

from mxnum.dtypes import Array
from mxnum.formats import ElementFormat
from mxnum.layout import Blocks
from mxnum.modes import Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule


@dataclass(frozen=True)
class RandomBits:
    """Where stochastic rounding takes its bits: an array of words, or a Philox seed and stream."""

    sr_bits: int
    words: Array | None = None
    seed: int = 0
    stream: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        low = 0xFFFFFFFF
        return self.seed & low, self.seed >> 32, self.stream & low, self.stream >> 32


@dataclass(frozen=True)
class Request:
    """A quantization, with every argument checked and resolved."""

    x: Array
    source: ElementFormat
    element: ElementFormat
    blocks: Blocks
    rounding: Rounding
    scale_rule: ScaleRule
    overflow: Overflow
    nonfinite: Nonfinite
    #: Scale codes that the caller chose.
    scales: Array | None
    #: How the scale is found under asymmetric scaling; None without an offset.
    offset_range: OffsetRange | None
    random: RandomBits | None
    #: How many threads may work; None for as many as numba would use.
    threads: int | None = None

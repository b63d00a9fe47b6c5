"""Descriptions of a call to quantize, or to decode an MX array.

Every argument is checked and resolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from mxnum.formats import E8M0, ElementFormat, MXFormat, ScaleFormat
from mxnum.layout import Blocks, scales_shape
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule


@dataclass(frozen=True)
class RandomBits:
    """The source of random bits for stochastic rounding.

    It is an array of words, or a Philox seed and stream.
    """

    sr_bits: int
    words: Any = None
    seed: int = 0
    stream: int = 0
    #: The Philox index of the first element.
    first: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        low = 0xFFFFFFFF
        return self.seed & low, self.seed >> 32, self.stream & low, self.stream >> 32


@dataclass(frozen=True, eq=False)
class Settings:
    """The shape, formats and modes of a quantization, without its arrays.

    Calls with equal settings share one object. The engine uses that object as the key of its
    caches.
    """

    format: MXFormat
    shape: tuple[int, ...]
    source: ElementFormat
    blocks: Blocks
    rounding: Rounding
    #: A `ScaleRule` if the scales of the format are powers of two, else a `FloatScaleRule`.
    scale_rule: ScaleRule | FloatScaleRule
    overflow: Overflow
    nonfinite: Nonfinite
    #: How asymmetric scaling computes the scale; None without offsets.
    offset_range: OffsetRange | None
    #: True if the caller gives the scale codes.
    scales_given: bool

    @cached_property
    def element(self) -> ElementFormat:
        return self.format.element

    @cached_property
    def by_powers_of_two(self) -> bool:
        """True if scales are powers of two. No format combines such scales with a tensor scale."""
        return self.format.scale.power_of_two

    @cached_property
    def power_rule(self) -> ScaleRule:
        """The scale rule, for formats whose scales are powers of two."""
        assert isinstance(self.scale_rule, ScaleRule)
        return self.scale_rule

    @cached_property
    def float_rule(self) -> FloatScaleRule:
        """The scale rule, for formats whose scales are floats."""
        assert isinstance(self.scale_rule, FloatScaleRule)
        return self.scale_rule

    @cached_property
    def scales_shape(self) -> tuple[int, ...]:
        return scales_shape(self.shape, self.blocks)

    @cached_property
    def must_look(self) -> bool:
        return must_look(self.element, self.nonfinite)


class Sides(NamedTuple):
    """The arrays of a call that belong to blocks.

    None stands for an array that the call has not.
    """

    scales: Any = None
    offsets: Any = None
    #: The tensor scale: one number, or one for each block.
    tensor_scale: Any = None
    #: The largest magnitude of each block as a bit pattern, if computing the tensor scale found it.
    maxima: Any = None

    @property
    def of_blocks(self) -> tuple[Any, ...]:
        """The scales and offsets, which are results or arguments.

        Each has one item for each block.
        """
        if self.offsets is None:  # Fast path: avoids a comprehension for the common single array.
            return () if self.scales is None else (self.scales,)
        return self.scales, self.offsets


@dataclass(slots=True, eq=False)
class Request:
    """The settings and the arrays of one quantization."""

    settings: Settings
    x: Any
    #: Scale codes that the caller gives; None if the engine computes them.
    scales: Any = None
    #: Bits for stochastic rounding.
    random: RandomBits | None = None
    #: The largest number of threads; None for as many as numba would use.
    threads: int | None = None
    #: True if the result holds packed codes.
    packed: bool = False
    #: The tensor scale: a float32 array that broadcasts with x. None if the format has none.
    tensor_scale: Any = None
    #: The largest magnitude of each block as a bit pattern, if computing the tensor scale found
    #: them.
    maxima: Any = None


@dataclass(frozen=True, eq=False)
class DecodingSettings:
    """The shape and formats of MX arrays to decode, without the arrays.

    Calls with equal settings share one object.
    """

    element: ElementFormat
    blocks: Blocks
    #: The shape of the codes before packing.
    shape: tuple[int, ...]
    packed: bool
    has_offsets: bool
    #: The float type of the values.
    target: ElementFormat
    scale: ScaleFormat = E8M0

    @cached_property
    def scales_shape(self) -> tuple[int, ...]:
        return scales_shape(self.shape, self.blocks)


decoding_settings = lru_cache(maxsize=4096)(DecodingSettings)


@dataclass(slots=True, eq=False)
class DecodingRequest:
    """The settings and the arrays of one call that decodes an MX array."""

    settings: DecodingSettings
    #: Codes, either one byte each or packed.
    stored: Any
    scales: Any
    offsets: Any = None
    threads: int | None = None
    #: See `Request.tensor_scale`.
    tensor_scale: Any = None


def must_look(element: ElementFormat, nonfinite: Nonfinite) -> bool:
    """Return True if inputs must be scanned for NaN and infinity before converting."""
    return nonfinite.by_error or (nonfinite.by_element and element.nan_code is None)

"""What is asked for, with every argument checked and resolved: a quantization, or the values of an MX array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from mxnum.formats import E8M0, ElementFormat, MXFormat, ScaleFormat
from mxnum.layout import Blocks, scales_shape
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule


@dataclass(frozen=True)
class RandomBits:
    """Where stochastic rounding takes its bits: an array of words, or a Philox seed and stream."""

    sr_bits: int
    words: Any = None
    seed: int = 0
    stream: int = 0
    #: The index that the first element counts from.
    first: int = 0

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
    #: The kind of rule that the scales of the format have.
    scale_rule: ScaleRule | FloatScaleRule
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
    def by_powers_of_two(self) -> bool:
        """Whether scales are powers of two; no format has a tensor scale beside these."""
        return self.format.scale.power_of_two

    @cached_property
    def power_rule(self) -> ScaleRule:
        """The rule where scales are powers of two."""
        assert isinstance(self.scale_rule, ScaleRule)
        return self.scale_rule

    @cached_property
    def float_rule(self) -> FloatScaleRule:
        """The rule where scales are floats."""
        assert isinstance(self.scale_rule, FloatScaleRule)
        return self.scale_rule

    @cached_property
    def scales_shape(self) -> tuple[int, ...]:
        return scales_shape(self.shape, self.blocks)

    @cached_property
    def must_look(self) -> bool:
        return must_look(self.element, self.nonfinite)


@dataclass(slots=True, eq=False)
class Request:
    """Settings and the arrays of one call."""

    settings: Settings
    x: Any
    #: Scale codes that the caller chose.
    scales: Any = None
    #: Bits for stochastic rounding.
    random: RandomBits | None = None
    #: How many threads may work; None for as many as numba would use.
    threads: int | None = None
    #: Whether codes are to be packed.
    packed: bool = False
    #: The tensor scale, where the format has one: a float32 array that broadcasts with x.
    tensor_scale: Any = None
    #: The largest magnitude of each block as a bit pattern, where they were looked at for the tensor scale.
    maxima: Any = None


@dataclass(frozen=True, eq=False)
class DecodingSettings:
    """MX arrays of one shape whose values are asked for; calls that ask for the same share one object."""

    element: ElementFormat
    blocks: Blocks
    #: Of the codes, also where they are held packed.
    shape: tuple[int, ...]
    packed: bool
    has_offsets: bool
    #: The type of the values.
    target: ElementFormat
    scale: ScaleFormat = E8M0

    @cached_property
    def scales_shape(self) -> tuple[int, ...]:
        return scales_shape(self.shape, self.blocks)


decoding_settings = lru_cache(maxsize=4096)(DecodingSettings)


@dataclass(slots=True, eq=False)
class DecodingRequest:
    """Such settings and the arrays of one call."""

    settings: DecodingSettings
    #: Codes, a byte each or packed.
    stored: Any
    scales: Any
    offsets: Any = None
    threads: int | None = None
    #: As in `Request`.
    tensor_scale: Any = None


def must_look(element: ElementFormat, nonfinite: Nonfinite) -> bool:
    """Whether all numbers are looked at first, since some may be refused."""
    return nonfinite.by_error or (nonfinite.by_element and element.nan_code is None)

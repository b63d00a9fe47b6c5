"""Classes that describe a call to quantize an array, or to decode an MX array.

`checked_settings` checks the arguments of a caller, and resolves them to `Settings`. A `Request`
holds the settings and the arrays of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

from mxnum import errors, formats
from mxnum.formats import E8M0, ElementFormat, MXFormat, ScaleFormat
from mxnum.layout import Blocks, block_lengths, resolve_blocks, scales_shape
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule, scale_rule_of

Result = TypeVar("Result")


@dataclass(frozen=True)
class RandomBits:
    """The source of random bits for stochastic rounding.

    The source is an array of random words, or a Philox seed and stream.
    """

    sr_bits: int
    words: Any = None
    seed: int = 0
    stream: int = 0
    #: The index of the first element in the Philox stream.
    first: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        low = 0xFFFFFFFF
        return self.seed & low, self.seed >> 32, self.stream & low, self.stream >> 32


@dataclass(frozen=True, eq=False)
class Settings:
    """The shape, formats and modes of a quantization, without its arrays.

    Calls with equal settings share one `Settings` object, which is the key of the engine's caches.
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
    #: How asymmetric scaling computes scales; None if scaling is symmetric, without offsets.
    offset_range: OffsetRange | None
    #: True if the caller gives the scale codes.
    scales_given: bool

    @cached_property
    def element(self) -> ElementFormat:
        return self.format.element

    @cached_property
    def by_powers_of_two(self) -> bool:
        """True if the format's scales are powers of two; such a format has no tensor scale."""
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


class Choices(NamedTuple):
    """The arguments of a call to quantize; a shape and a float type describe the array."""

    format: str | MXFormat
    shape: tuple[int, ...]
    #: The name of the input's float type.
    source: str
    axis: int | None = None
    block_size: int | None = None
    block_shape: Sequence[int] | None = None
    blocks: Sequence[int] | None = None
    rounding: str | Rounding = Rounding.RNE
    scale_rule: str | ScaleRule | FloatScaleRule | None = None
    overflow: str | Overflow = Overflow.SATURATE
    nonfinite: str | Nonfinite = Nonfinite.BLOCK
    offset: str | None = None
    offset_range: str | OffsetRange = OffsetRange.EXACT
    scales_given: bool = False


def checked_settings(asked: Choices) -> Settings:
    """Check the arguments of a caller and resolve them to `Settings`.

    Calls with equal arguments return the same object.
    """
    if asked.block_shape is not None or asked.blocks is not None:
        asked = asked._replace(
            block_shape=block_lengths("block_shape", asked.block_shape), blocks=block_lengths("blocks", asked.blocks)
        )
    return _resolved(*asked)


def memo(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return `function` with its results cached by the types and values of its arguments.

    A call is not cached if an argument is unhashable, or if `function` raises TypeError.
    """
    remembered = lru_cache(maxsize=4096, typed=True)(function)

    @wraps(function)
    def call(*arguments: Any) -> Result:
        try:
            return remembered(*arguments)
        except TypeError:
            pass
        return function(*arguments)

    return call


@memo
def _resolved(*fields: Any) -> Settings:
    """Check the fields of a `Choices`, and return the `Settings` that they describe.

    `memo` compares the types of arguments, but not of items in a tuple. So the fields are separate
    arguments: otherwise, the results for 1 and 1.0 could be confused.
    """
    asked = Choices(*fields)
    fmt = formats.get(asked.format)
    layout = resolve_blocks(
        asked.shape, fmt.block, axis=asked.axis, block_size=asked.block_size, block_shape=asked.block_shape,
        blocks=asked.blocks,
    )  # fmt: skip
    mode = errors.choose_member("rounding", asked.rounding, Rounding)
    if asked.offset is not None:
        errors.choose("offset", asked.offset, ("float16",))
    used_range = errors.choose_member("offset_range", asked.offset_range, OffsetRange)
    if asked.offset is not None and not fmt.scale.power_of_two:
        raise ValueError(
            f"Argument 'offset' must be left out for {fmt.name}, whose scales are {formats.scale_names(fmt)}."
        )
    if asked.scales_given and asked.scale_rule is not None:
        raise errors.exclusive("scale_rule", "scales")
    if asked.offset is None and used_range.is_half:
        raise ValueError("Argument 'offset_range' must be left out unless offset='float16' is given.")
    return Settings(
        format=fmt,
        shape=asked.shape,
        source=formats.FLOATS[asked.source],
        blocks=layout,
        rounding=mode,
        scale_rule=scale_rule_of(fmt, asked.scale_rule),
        overflow=errors.choose_member("overflow", asked.overflow, Overflow),
        nonfinite=errors.choose_member("nonfinite", asked.nonfinite, Nonfinite),
        offset_range=None if asked.offset is None else used_range,
        scales_given=asked.scales_given,
    )


@dataclass(slots=True, eq=False)
class Request:
    """The settings and the arrays of one quantization."""

    settings: Settings
    x: Any
    #: Scale codes that the caller gives; None if the engine computes them.
    scales: Any = None
    #: Bits for stochastic rounding.
    random: RandomBits | None = None
    #: The maximum number of threads; None for numba's default.
    threads: int | None = None
    #: True if the result holds packed codes.
    packed: bool = False
    #: The tensor scale: a float32 array that broadcasts with x, or None for formats without a
    #: tensor scale.
    tensor_scale: Any = None
    #: The bit pattern of the largest magnitude of each block, or None. The patterns are given only
    #: if they were computed together with the tensor scale.
    maxima: Any = None


@dataclass(frozen=True, eq=False)
class DecodingSettings:
    """The shape and formats of MX arrays to decode, without the arrays.

    Calls with equal settings share one `DecodingSettings` object.
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

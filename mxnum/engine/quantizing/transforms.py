"""Block transforms: how an MX array computes and uses scales and offsets.

A plan knows two things of a `BlockTransform`: its `sides`, which are the arrays with one item for
each block, and its operations on contiguous parts. `PowersOfTwo` has scales that are powers of two.
`Offsets` subtracts an offset from each block first, and then uses `PowersOfTwo`. Scales that are
floats have a module of their own, `float_scales`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, Protocol, assert_never

import numpy as np

from mxnum.definition.offset import difference_format
from mxnum.engine.loops import offsets as loops
from mxnum.engine.loops.random_bits import NO_DRAW, NO_WORDS, Draw
from mxnum.engine.machine import float_environment
from mxnum.engine.quantizing.conversion import (
    Conversion,
    Modes,
    from_codes,
    loops_along,
    modes_of,
    to_codes,
    to_values,
)
from mxnum.engine.quantizing.plan import Operation, Run
from mxnum.engine.request import DecodingSettings, Settings, Sides
from mxnum.engine.rounding import paths
from mxnum.engine.traversal.block_walk import Walk, walk_of
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array, numpy_dtype, signed_bits, stored_bits
from mxnum.modes import Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule

#: Loops convert elements without blocks as blocks of this length at scale 1.
_RUN_OF_ELEMENTS = 4096


class BlockTransform(Protocol):
    """Operations on the blocks of contiguous parts: quantize, quantize and decode, decode."""

    @property
    def sides(self) -> tuple[np.dtype[Any], ...]:
        """The dtypes of the arrays with one item for each block."""

    def apply(self, asked: Settings) -> Operation:
        """Return the operation that computes the sides of each block and makes codes."""

    def apply_and_undo(self, asked: Settings) -> Operation:
        """Return the operation that computes the sides and the values of codes.

        These have the type of the input.
        """

    def undo(self, asked: DecodingSettings) -> Operation:
        """Return the operation that makes values from codes and sides."""


def operation(conversion: Conversion, bits: int, shape: tuple[int, ...]) -> Operation:
    """Return the operation of a conversion on arrays of a shape, for codes of so many bits.

    Its loops read or write packed codes if each row and each block begins at a byte.
    """
    length, is_float = shape[-1] if shape else 1, conversion.has_float_scales
    has_whole_rows = length * bits % 8 == 0 or length == prod(shape)

    def along(walk: Walk, draw: Draw) -> Run:
        return loops_along(conversion, walk, draw)

    def packed(walk: Walk, draw: Draw) -> Run | None:
        begin_at_bytes = has_whole_rows and walk.run * bits % 8 == 0
        has_loops = begin_at_bytes and conversion.packs(walk, bits)
        return loops_along(conversion, replace(walk, bits=bits), draw) if has_loops else None

    quantizes = conversion.source is not None
    return Operation(along, packed, quantizes=quantizes, fills_with_zeros=quantizes and is_float)


class PowersOfTwo:
    """A transform with the scale 2**(code - 127) for each block.

    One loop computes and applies it.
    """

    sides = (np.dtype(np.uint8),)

    def apply(self, asked: Settings) -> Operation:
        return operation(to_codes(modes_of(asked)), asked.element.bits, asked.shape)

    def apply_and_undo(self, asked: Settings) -> Operation:
        return operation(to_values(modes_of(asked)), asked.element.bits, asked.shape)

    def undo(self, asked: DecodingSettings) -> Operation:
        return operation(from_codes(asked.element, asked.target), asked.element.bits, asked.shape)


class Offsets:
    """A transform that subtracts a float16 offset from each block.

    It scales the differences by a power of two.
    """

    sides = np.dtype(np.uint8), np.dtype(np.float16)

    def apply(self, asked: Settings) -> Operation:
        source, left = asked.source, difference_format(asked.source)
        in_halves = not asked.scales_given and takes_half(asked.offset_range)
        modes = modes_of(asked)._replace(source=left, scales_given=asked.scales_given or in_halves)
        quantize = to_codes(modes)

        def along(walk: Walk, draw: Draw) -> Run:
            of_differences, bands = loops_along(quantize, walk, draw), walk.in_bands
            share, subtracts_fast = (bands.shape, bands.whole), paths.OFFSETS.covers(source)

            def apply(x: Array, codes: Array, sides: Sides, words: Array, threads: int | None) -> None:
                (scales, offsets), numbers = _flat(sides), signed_bits(x.ravel())
                differences = np.empty(x.size, numpy_dtype(left))
                ends = np.empty((2, scales.size), loops.ordered_type(source))
                loops.find_offsets(source)((numbers, offsets, *ends), share)
                by_floats = subtracts_fast and float_environment.is_default()
                subtract = loops.subtract_offsets(source, by_floats)
                subtract((numbers, signed_bits(differences), offsets, offsets), share)
                if in_halves:
                    loops.half_range_scales(source, asked.element, asked.power_rule)(*ends, scales)
                of_differences(differences, codes, Sides(scales), words, threads)
                offsets[scales == E8M0.nan_code] = 0

            return apply

        return Operation(along, quantizes=True, needs_scratch=True)

    def apply_and_undo(self, asked: Settings) -> Operation:
        apply = self.apply(asked)
        undo = self.undo(DecodingSettings(asked.element, asked.blocks, asked.shape, False, True, asked.source))

        def along(walk: Walk, draw: Draw) -> Run:
            first, then = apply.along(walk, draw), undo.along(walk, NO_DRAW)

            def apply_and_undo(x: Array, out: Array, sides: Sides, words: Array, threads: int | None) -> None:
                codes = np.empty(x.size, np.uint8)
                first(x, codes, sides, words, threads)
                then(codes, out, sides, NO_WORDS, threads)

            return apply_and_undo

        return replace(apply, along=along)

    def undo(self, asked: DecodingSettings) -> Operation:
        element, target = asked.element, asked.target

        def along(walk: Walk, draw: Draw) -> Run:
            to_values, bands = loops_along(from_codes(element, target), walk, draw), walk.in_bands
            share = bands.shape, bands.whole
            adds_fast = target.name == "float32" and paths.OFFSETS.covers(target, element)

            def undo(codes: Array, out: Array, sides: Sides, words: Array, threads: int | None) -> None:
                (scales, offsets), values = _flat(sides), stored_bits(out.ravel())
                may_add = adds_fast and float_environment.is_default()
                if may_add and loops.may_add(scales, offsets, element):
                    to_values(codes, out, Sides(scales), words, threads)
                    loops.add_offsets()((values, values, scales, offsets), share)
                else:
                    decode = loops.decode_with_offsets(element, target)
                    decode((codes.ravel(), values, scales, offsets), share)

            return undo

        return Operation(along)


POWERS_OF_TWO, OFFSETS = PowersOfTwo(), Offsets()


def _flat(sides: Sides) -> tuple[Array, Array]:
    """Return the flat scales and the bits of the flat offsets."""
    return sides.scales.ravel(), sides.offsets.ravel().view(np.uint16)


def takes_half(offset_range: OffsetRange | None) -> bool:
    """Return True if a scale depends on the ends of its block's range.

    Other scales depend on the largest difference.
    """
    match offset_range:
        case OffsetRange.HALF:
            return True
        case OffsetRange.EXACT | None:
            return False
        case _:
            assert_never(offset_range)


def at_scale_one(conversion: Conversion) -> Operation:
    """Return the operation of a conversion on elements without blocks or sides, at scale 1."""

    def along(walk: Walk, draw: Draw) -> Run:
        flat = walk_of((walk.elements,), (_RUN_OF_ELEMENTS,))
        assert flat is not None
        run, count = loops_along(conversion, flat, draw), -(-walk.elements // _RUN_OF_ELEMENTS)

        def convert(x: Array, out: Array, sides: Sides, words: Array, threads: int | None) -> None:
            scales = np.empty(count, np.uint8)
            scales.fill(E8M0.bias)
            run(x, out, Sides(scales), words, threads)

        return convert

    return Operation(along)


@lru_cache(maxsize=1024)
def encoding(source: Any, target: Any, rounding: Rounding, overflow: Overflow) -> Operation:
    """Return the operation that makes codes of floats at scale 1."""
    return at_scale_one(to_codes(Modes(source, target, rounding, overflow, ScaleRule.FLOOR, Nonfinite.ELEMENT, True)))

"""The transform of blocks for asymmetric scaling: an offset, and a scale that is a power of two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, assert_never

import numpy as np

from mxnum.definition.offset import difference_format
from mxnum.engine.loops import offsets as loops
from mxnum.engine.loops.panels import Draw
from mxnum.engine.machine import workers
from mxnum.engine.quantizing.plan import Operation, Run, Sides, loops_along
from mxnum.engine.quantizing.powers_of_two import from_codes, modes_of, to_codes
from mxnum.engine.request import DecodingSettings, Settings
from mxnum.engine.rounding import paths
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array, numpy_dtype, signed_bits, stored_bits
from mxnum.modes import OffsetRange


class Offsets:
    """A transform that subtracts a float16 offset from each element of a block.

    The transform then divides the differences by a scale that is a power of two.
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

            def apply(x: Array, codes: Array, sides: Sides, *rest: Any) -> None:
                (scales, offsets), numbers = _flat(sides), signed_bits(x.ravel())
                differences = np.empty(x.size, numpy_dtype(left))
                ends = np.empty((2, scales.size), loops.ordered_type(source))
                loops.find_offsets(source)((numbers, offsets, *ends), share)
                by_floats = subtracts_fast and workers.may_use_floats()
                subtract = loops.subtract_offsets(source, by_floats)
                subtract((numbers, signed_bits(differences), offsets, offsets), share)
                if in_halves:
                    loops.half_range_scales(source, asked.element, asked.power_rule)(*ends, scales)
                of_differences(differences, codes, (scales,), *rest)
                offsets[scales == E8M0.nan_code] = 0

            return apply

        return Operation(along, quantizes=True, needs_scratch=True)

    def apply_and_undo(self, asked: Settings) -> Operation:
        apply = self.apply(asked)
        undo = self.undo(DecodingSettings(asked.element, asked.blocks, asked.shape, False, True, asked.source))

        def along(walk: Walk, draw: Draw) -> Run:
            first, then = apply.along(walk, draw), undo.along(walk, None)

            def apply_and_undo(x: Array, out: Array, sides: Sides, *rest: Any) -> None:
                codes = np.empty(x.size, np.uint8)
                first(x, codes, sides, *rest)
                then(codes, out, sides, *rest)

            return apply_and_undo

        return replace(apply, along=along)

    def undo(self, asked: DecodingSettings) -> Operation:
        element, target = asked.element, asked.target

        def along(walk: Walk, draw: Draw) -> Run:
            to_values, bands = loops_along(from_codes(element, target), walk, draw), walk.in_bands
            share = bands.shape, bands.whole
            adds_fast = target.name == "float32" and paths.OFFSETS.covers(target, element)

            def undo(codes: Array, out: Array, sides: Sides, *rest: Any) -> None:
                (scales, offsets), values = _flat(sides), stored_bits(out.ravel())
                may_add = adds_fast and workers.may_use_floats()
                if may_add and loops.may_add(scales, offsets, element):
                    to_values(codes, out, (scales,), *rest)
                    loops.add_offsets()((values, values, scales, offsets), share)
                else:
                    decode = loops.decode_with_offsets(element, target)
                    decode((codes.ravel(), values, scales, offsets), share)

            return undo

        return Operation(along)


OFFSETS = Offsets()


def _flat(sides: Sides) -> tuple[Array, Array]:
    """Return the scales, and the bit patterns of the offsets, as flat arrays."""
    scales, offsets = sides
    return scales.ravel(), offsets.ravel().view(np.uint16)


def takes_half(offset_range: OffsetRange | None) -> bool:
    """Return True if the scale is computed from half the range of a block's numbers.

    If False, the scale is computed from the largest magnitude after the offset is subtracted.
    """
    match offset_range:
        case OffsetRange.HALF:
            return True
        case OffsetRange.EXACT | None:
            return False
        case _:
            assert_never(offset_range)

"""Convert blocks under scales that are powers of two, and convert elements without blocks."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.loops import columns, marked, rows
from mxnum.engine.loops.marked import Finder
from mxnum.engine.loops.panels import Draw
from mxnum.engine.quantizing.plan import Bind, Conversion, Exact, Operation, Run, Sides, loops_along, operation
from mxnum.engine.request import DecodingSettings, Settings
from mxnum.engine.rounding import formulation
from mxnum.engine.rounding.formulation import Definition, Fast
from mxnum.engine.traversal.block_walk import USUAL_RUN, Walk, walk_of
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule

#: The loops treat elements without blocks as blocks of this length with the scale 1.
_RUN_OF_ELEMENTS = 4096


class Modes(NamedTuple):
    """The settings of a conversion under scales that are powers of two."""

    source: ElementFormat
    element: ElementFormat
    rounding: Rounding
    overflow: Overflow
    rule: ScaleRule
    nonfinite: Nonfinite
    scales_given: bool


def modes_of(asked: Settings) -> Modes:
    """Return the `Modes` of a call, which are some of the call's settings."""
    return Modes(
        asked.source, asked.element, asked.rounding, asked.overflow, asked.power_rule, asked.nonfinite,
        asked.scales_given,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def to_codes(modes: Modes) -> Conversion:
    """Return the conversion of floats to codes."""
    return _quantizing(modes, None)


@lru_cache(maxsize=4096)
def to_values(modes: Modes) -> Conversion:
    """Return the conversion of floats to quantized values in the same float type."""
    return _quantizing(modes, modes.source)


def _quantizing(modes: Modes, target: ElementFormat | None) -> Conversion:
    source, how = modes.source, (modes.source, modes.element, modes.rounding, modes.overflow)
    fast, nan_blocks = formulation.fast_quantizing(*how, modes.rule, target), modes.nonfinite.by_block

    @cache
    def exact(draw: Draw) -> Exact:
        scaling = None if modes.scales_given else formulation.scaling(source, modes.element, modes.rule)
        definition = formulation.quantizing(*how) if target is None else formulation.requantizing(*how, target)
        finder = marked.find_by(scaling, source, nan_blocks)
        return _exact(finder, definition, formulation.quantizing_anywhere(*how, target))

    if fast is None:
        return Conversion(source, False, None, exact)
    loop = partial(_fast_quantizing, fast, source, modes.scales_given)
    return Conversion(source, False, loop, exact, fast.numbers)


def _fast_quantizing(fast: Fast, source: ElementFormat, scales_given: bool, walk: Walk, draw: Draw) -> Bind:
    run = walk.constant_run
    is_common = run == (USUAL_RUN if walk.along_rows else 1) and not scales_given
    function = (fast.special if is_common else None) or fast.function
    if not walk.along_rows:
        return columns.quantize(function, source, scales_given, draw, run)
    # The most common loops inline their kernels, which saves a twentieth of their time.
    is_quick = draw is None and (source.bits == 16 or (source.bits == 32 and function is fast.special))
    return rows.quantize(function, source, scales_given, draw, run, walk.bits, inlined=is_common and is_quick)


@lru_cache(maxsize=4096)
def from_codes(element: ElementFormat, target: ElementFormat) -> Conversion:
    """Return the conversion of codes to values."""
    fast = formulation.fast_decoding(element, target)

    @cache
    def exact(draw: Draw) -> Exact:
        return _exact(None, formulation.decoding(element, target), formulation.decoding_anywhere(element, target))

    if fast is None:
        return Conversion(None, False, None, exact)
    return Conversion(None, False, partial(_fast_decoding, fast), exact, fast.numbers)


def _fast_decoding(fast: Fast, walk: Walk, draw: Draw) -> Bind:
    function, run = fast.special or fast.function, walk.constant_run
    return rows.decode(function, run, walk.bits) if walk.along_rows else columns.decode(function, run)


def _exact(finder: Finder | None, definition: Definition, anywhere: Definition | None) -> Exact:
    """Return the `Exact` that converts the panels which a fast loop leaves unconverted."""
    nan = definition.function(0, E8M0.nan_code, 0, None)
    exact = marked.convert_by(definition, nan, takes_mixed=True)
    at_any_scale = None if anywhere is None else marked.convert_by(anywhere, nan, takes_mixed=finder is None)
    return Exact(finder, exact, at_any_scale)


class PowersOfTwo:
    """A transform that divides each block by the scale 2**(code - 127).

    One loop computes the scales and converts the elements.
    """

    sides = (np.dtype(np.uint8),)

    def apply(self, asked: Settings) -> Operation:
        return operation(to_codes(modes_of(asked)), asked.element.bits, asked.shape)

    def apply_and_undo(self, asked: Settings) -> Operation:
        return operation(to_values(modes_of(asked)), asked.element.bits, asked.shape)

    def undo(self, asked: DecodingSettings) -> Operation:
        return operation(from_codes(asked.element, asked.target), asked.element.bits, asked.shape)


POWERS_OF_TWO = PowersOfTwo()


def at_scale_one(conversion: Conversion) -> Operation:
    """Return the operation that runs a conversion on elements without blocks, at scale 1."""

    def along(walk: Walk, draw: Draw) -> Run:
        flat = walk_of((walk.elements,), (_RUN_OF_ELEMENTS,))
        assert flat is not None
        run, count = loops_along(conversion, flat, draw), -(-walk.elements // _RUN_OF_ELEMENTS)

        def convert(x: Array, out: Array, sides: Sides, *rest: Any) -> None:
            scales = np.empty(count, np.uint8)
            scales.fill(E8M0.bias)
            run(x, out, (scales,), *rest)

        return convert

    return Operation(along)


@lru_cache(maxsize=1024)
def encoding(source: Any, target: Any, rounding: Rounding, overflow: Overflow) -> Operation:
    """Return the operation that converts floats to codes at scale 1."""
    return at_scale_one(to_codes(Modes(source, target, rounding, overflow, ScaleRule.FLOOR, Nonfinite.ELEMENT, True)))

"""Loops that redo marked panels, for all kinds of scale: they find scales, then convert.

The loops see the array as those of `columns` do: bands of rows in panels of columns, each with a
mark. Along rows a band is one row, and a panel is a group of `rows`. Arrays are (x, out, scales,
tensor scales). Kernels hold everything that depends on formats and modes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from mxnum.definition.word import select
from mxnum.engine.loops.panels import (
    SPARE,
    Draw,
    address_of,
    convert_panel,
    magnitude_type,
    make_panel_maxima,
    panel_at,
    panels,
)
from mxnum.engine.machine.jit import Kernel, call_kernel, compile_loop
from mxnum.engine.machine.lanes import integer, load, store
from mxnum.engine.rounding.formulation import NO_NUMBERS, Definition, numbers_given
from mxnum.engine.traversal.block_walk import FINITE, MIXED
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array

NAN_SCALE = E8M0.nan_code


@dataclass(frozen=True, eq=False)
class Finder:
    """How to find the scales of marked panels."""

    source: ElementFormat
    #: `(maxima, scales, tensor scales, _, numbers, (first scale, blocks, step, ...))` computes
    #: scales. None if the scales are there already.
    kernel: Kernel | None
    #: The scale code of blocks that hold a NaN or an infinity; -1 if only their finite elements
    #: count.
    nan_code: int
    #: Read by the kernel.
    numbers: Array

    def loop(self, x: Array, out: Array, scales: Array, tensor: Array) -> Callable[..., Any]:
        """Return the loop `(arrays, share, marks)` for arrays of these types."""
        magnitude, kernel = magnitude_type(self.source), 0
        if self.kernel is not None:
            kernel = self.kernel.for_types(magnitude, scales.dtype, tensor.dtype, np.int32, np.int64)
        return partial(_find_scales(self.source), (kernel, self.nan_code, self.numbers))


def find_by(definition: Definition | None, source: ElementFormat, nan_blocks: bool) -> Finder:
    """Return the finder of scales that are powers of two, or None if scales are given.

    It uses the definition.
    """
    kernel = None if definition is None else _power_scales(definition)
    numbers = np.zeros(2, np.int64) if definition is None else definition.numbers
    return Finder(source, kernel, NAN_SCALE if nan_blocks else -1, numbers)


@cache
def _power_scales(definition: Definition) -> Kernel:
    """Return the kernel of `Finder` for scales that are powers of two.

    Its numbers are those of `scale_constants`.
    """
    scale_of, word = definition.function, definition.word

    def kernel(maxima, scales, tensor, unused, numbers, where):
        place, blocks, _, _, _, _, _, _ = where
        bias, first_bumped = int(numbers[0]), int(numbers[1])
        for b in range(blocks):
            store(scales, place + b, integer(scale_of(word(integer(load(maxima, b))), bias, first_bumped)))

    return Kernel(kernel)


@cache
def _find_scales(source: ElementFormat) -> Any:
    """Return the loop that finds the scales of marked panels.

    The returned loop is called as `loop((kernel, NaN code, numbers), arrays, share, marks)`.

    It marks panels as FINITE unless one of their blocks holds a NaN or an infinity under a number
    as its scale.
    """
    MAX, Magnitude = source.max_code, magnitude_type(source)
    panel_maxima, finite_maxima = make_panel_maxima(source, False), make_panel_maxima(source, True)

    def loop(settings, arrays, share, marks):
        find, nan_code, numbers = settings
        x, _, scales, tensor = arrays
        shape, _ = share
        _, columns, _, run, width = shape
        step, unused = 1 if tensor.size > 1 else 0, np.zeros(1, np.int32)
        high, amax, specials = np.empty(width + run, Magnitude), np.empty(width, Magnitude), np.empty(width, np.uint8)
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            if marks[panel.number] == 0:
                continue
            panel_maxima(x, high, amax, panel, columns, run)
            has_specials = False
            for b in range(panel.blocks):
                specials[b] = amax[b] > MAX
                has_specials |= amax[b] > MAX
            if has_specials:
                finite_maxima(x, high, amax, panel, columns, run)
            if find != 0:
                where = panel.place, panel.blocks, step, 0, 0, 0, 0, 0
                call_kernel(find, amax, scales, tensor, unused, numbers, where)
            if has_specials and nan_code >= 0:
                for b in range(panel.blocks):
                    if specials[b] != 0:
                        store(scales, panel.place + b, nan_code)
            marks[panel.number] = MIXED if has_specials and nan_code < 0 else FINITE

    return compile_loop(loop)


@dataclass(frozen=True, eq=False)
class Converter:
    """How to convert marked panels whose scales are known, by kernels that do it block by block."""

    #: `(scales, tables, tensor scales, is_right, _, (first scale, blocks, step, stride of tables,
    #: run, ...))` computes what the second kernel needs to know of each block.
    prepare: Kernel
    #: `(x, out, tables, random bits, numbers, (first element, width, rows, columns, run, stride of
    #: tables, `given`, offset of random bits))` converts elements.
    elements: Kernel
    #: The type of an item of the tables, and their items for each block; 0 for one for each column.
    constant: Any
    constants: int
    #: An integer for the second kernel.
    given: int = 0
    numbers: Array = field(default_factory=lambda: NO_NUMBERS)
    #: True if this is right for NaN and infinities; else the loop leaves panels that may hold them.
    takes_mixed: bool = True

    def loop(self, draw: Draw, x: Array, out: Array, scales: Array, tensor: Array) -> Callable[..., int]:
        """Return the loop `(arrays, share, marks, words, numbers)` for arrays of these types."""
        kernels = (
            self.prepare.for_types(scales.dtype, self.constant, tensor.dtype),
            self.elements.for_types(x.dtype, out.dtype, self.constant),
            address_of(draw),
        )
        return partial(_convert(self.constant), (kernels, self.constants, self.given, int(self.takes_mixed)))


@cache
def _convert(constant: Any) -> Any:
    """Return the loop of `Converter` for tables of a type, which returns how many panels it left.

    Its first argument is ((prepare, elements, `address_of`), constants, given, takes mixed).
    """
    Constant = constant

    def loop(settings, arrays, share, marks, words, numbers):
        (prepare, elements, fill), constants, given, takes_mixed = settings
        x, out, scales, tensor = arrays
        shape, _ = share
        _, _, _, run, width = shape
        step, stride = 1 if tensor.size > 1 else 0, width // run + 1
        tables, unused = np.empty((constants if constants > 0 else run) * stride, Constant), np.zeros(1, np.int32)
        buffer, offset = np.zeros(width + SPARE, np.int32), np.zeros(1, np.int64)
        skipped = 0
        all_panels = panels(share)
        for i in range(all_panels.total):
            panel = panel_at(i, share, all_panels)
            if marks[panel.number] == 0:
                continue
            if marks[panel.number] == MIXED and not takes_mixed:
                skipped += 1
                continue
            marks[panel.number] = 0
            where = panel.place, panel.blocks, step, stride, run, 0, 0, 0
            call_kernel(prepare, scales, tables, tensor, unused, unused, where)
            at = stride, given
            convert_panel((elements, fill), x, out, tables, numbers, words, buffer, offset, panel, share, at)
        return skipped

    return compile_loop(loop)


def convert_by(definition: Definition, nan_result: int, takes_mixed: bool) -> Converter:
    """Return the converter for scales that are powers of two.

    `nan_result` is the result under the scale NaN.
    """
    elements = _power_elements(definition)
    return Converter(_spreading(), elements, np.int32, 0, nan_result, definition.numbers, takes_mixed)


@cache
def _spreading() -> Kernel:
    """Return the kernel `prepare` of `Converter` that stores the scale of each column."""

    def kernel(scales, spread, tensor, unused, unused_too, where):
        place, blocks, _, _, run, _, _, _ = where
        for b in range(blocks):
            for j in range(run):
                store(spread, b * run + j, integer(load(scales, place + b)))

    return Kernel(kernel)


@cache
def _power_elements(definition: Definition) -> Kernel:
    """Return the kernel `elements` of `Converter` for scales that are powers of two.

    `given` is the result under the scale NaN.
    """
    function, word = definition.function, definition.word

    def kernel(x, out, spread, drawn, numbers, where):
        _, e = numbers_given(numbers)
        first, width, rows, columns, _, _, nan, random = where
        for row in range(rows):
            base = first + row * columns
            for j in range(width):
                bits, scale = word(load(drawn, random + j)), word(integer(load(spread, j)))
                result = function(word(load(x, base + j)), scale, bits, e)
                store(out, base + j, select(scale == NAN_SCALE, word(nan), result))

    return Kernel(kernel)

"""Loops that redo the panels marked by fast loops, for all kinds of scale.

One loop finds the scales of marked panels, and a second loop converts the elements. As in
`columns`, a loop processes an array as bands of rows, and each band in panels of columns. Each
panel has a mark. If blocks lie along rows, a band is one row, and a panel is a group of blocks as
in `rows`. In all loops, the argument `arrays` is (x, out, scales, tensor scales). The loops call
kernels, which contain everything that depends on formats and modes.
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
    """The kernel and the settings by which a loop finds the scales of marked panels."""

    source: ElementFormat
    #: The kernel that computes scales; None if the caller gives the scales. Its arguments are
    #: (maxima, scales, tensor scales, _, numbers, (first scale, blocks, step, ...)).
    kernel: Kernel | None
    #: The scale code of blocks that hold a NaN or an infinity; -1 if the finite elements of these
    #: blocks determine the scale.
    nan_code: int
    #: The kernel receives this array as its argument `numbers`.
    numbers: Array

    def loop(self, x: Array, out: Array, scales: Array, tensor: Array) -> Callable[..., Any]:
        """Return the loop that finds scales, for arrays of these types.

        The loop is called as `loop(arrays, share, marks)`.
        """
        magnitude, kernel = magnitude_type(self.source), 0
        if self.kernel is not None:
            kernel = self.kernel.for_types(magnitude, scales.dtype, tensor.dtype, np.int32, np.int64)
        return partial(_find_scales(self.source), (kernel, self.nan_code, self.numbers))


def find_by(definition: Definition | None, source: ElementFormat, nan_blocks: bool) -> Finder:
    """Return the `Finder` for scales that are powers of two.

    `definition` computes scales; it is None if the caller gives the scales. If `nan_blocks`, blocks
    that hold a NaN or an infinity get the scale NaN.
    """
    kernel = None if definition is None else _power_scales(definition)
    numbers = np.zeros(2, np.int64) if definition is None else definition.numbers
    return Finder(source, kernel, NAN_SCALE if nan_blocks else -1, numbers)


@cache
def _power_scales(definition: Definition) -> Kernel:
    """Return the kernel of a `Finder` for scales that are powers of two.

    The kernel's argument `numbers` holds the result of `scale_constants`.
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

    The loop sets a panel's mark to MIXED if the panel holds a NaN or an infinity and the NaN code
    is -1. Otherwise, it sets the mark to FINITE.
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
    """The kernels and settings by which a loop converts marked panels whose scales are known."""

    #: The kernel that fills `tables` for the kernel `elements`. Its arguments are (scales, tables,
    #: tensor scales, is_right, _, (first scale, blocks, step, stride of tables, run, ...)).
    prepare: Kernel
    #: The kernel that converts elements. Its arguments are (x, out, tables, random bits, numbers,
    #: (first element, width, rows, columns, run, stride of tables, given, offset of random bits)).
    elements: Kernel
    #: The type of the numbers in `tables`.
    constant: Any
    #: The number of entries in `tables` for each block. 0 means that `tables` has one entry for
    #: each column instead.
    constants: int
    #: The result for the elements of a block whose scale is NaN; unused if scales are floats.
    given: int = 0
    numbers: Array = field(default_factory=lambda: NO_NUMBERS)
    #: True if the kernels convert NaN and infinities correctly. If False, the loop skips panels
    #: with the mark MIXED.
    takes_mixed: bool = True

    def loop(self, draw: Draw, x: Array, out: Array, scales: Array, tensor: Array) -> Callable[..., int]:
        """Return the loop that converts marked panels, for arrays of these types.

        The loop is called as `loop(arrays, share, marks, words, numbers)`.
        """
        kernels = (
            self.prepare.for_types(scales.dtype, self.constant, tensor.dtype),
            self.elements.for_types(x.dtype, out.dtype, self.constant),
            address_of(draw),
        )
        return partial(_convert(self.constant), (kernels, self.constants, self.given, int(self.takes_mixed)))


@cache
def _convert(constant: Any) -> Any:
    """Return the loop that converts marked panels.

    `constant` is the type of the numbers in `tables`. The loop returns the number of marked panels
    that it skipped. The loop's first argument is ((prepare, elements, result of `address_of`),
    constants, given, takes_mixed). Except for the result of `address_of`, these are fields of
    `Converter`.
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
    """Return the `Converter` for scales that are powers of two.

    `nan_result` is the result for the elements of a block whose scale is NaN.
    """
    elements = _power_elements(definition)
    return Converter(_spreading(), elements, np.int32, 0, nan_result, definition.numbers, takes_mixed)


@cache
def _spreading() -> Kernel:
    """Return a kernel `prepare` that copies the scale of each block to all columns of the block."""

    def kernel(scales, spread, tensor, unused, unused_too, where):
        place, blocks, _, _, run, _, _, _ = where
        for b in range(blocks):
            for j in range(run):
                store(spread, b * run + j, integer(load(scales, place + b)))

    return Kernel(kernel)


@cache
def _power_elements(definition: Definition) -> Kernel:
    """Return the kernel `elements` of a `Converter` for scales that are powers of two.

    `Converter.given` is the result for the elements of a block whose scale is NaN.
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

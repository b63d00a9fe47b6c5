"""Conversions of one contiguous array: a fast loop marks what it is not right for, other loops redo what is marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.engine.loops import columns, marked, rows
from mxnum.engine.loops.random_bits import NO_DRAW, Draw
from mxnum.engine.machine import float_environment
from mxnum.engine.machine.kernels import LoopOfKernel
from mxnum.engine.packing.arrays import pack, unpack
from mxnum.engine.request import Settings
from mxnum.engine.rounding import formulation
from mxnum.engine.rounding.per_element import Definition, Fast
from mxnum.engine.traversal.block_walk import MIXED, USUAL_RUN, Walk, in_threads
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import SIGNED, Array
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule

_BYTE = np.dtype(np.uint8)  # (numpy takes a dtype sooner than a type)

#: What is read and what is written, as integers, and the scales: contiguous, with one axis.
Flat = tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Conversion:
    """What becomes of the elements of blocks, and how scales are found; one object for all calls that ask for it."""

    #: The type of floats that are read; None where codes are.
    source: ElementFormat | None
    #: By float additions, in their domain; None where nothing beats the definition.
    fast: Fast | None
    #: Of finite numbers, wherever hardware floats are right; None as above.
    at_any_scale: Definition | None
    #: What all the others have to equal.
    definition: Definition
    #: How the scale of a block is found; None where it is read.
    find_scale: Definition | None = None
    #: Whether what is not finite makes the scale of its block NaN.
    nan_blocks: bool = False
    scales_given: bool = False

    def fast_loop(self, fast: Fast, walk: Walk, draw: Draw) -> LoopOfKernel:
        run = walk.constant_run
        if self.source is None:
            function = fast.special or fast.function
            return rows.decode(function, run, walk.bits) if walk.along_rows else columns.decode(function, run)
        is_common = run == (USUAL_RUN if walk.along_rows else 1) and not self.scales_given
        function = (fast.special if is_common else None) or fast.function
        if not walk.along_rows:
            return columns.quantize(function, self.source, self.scales_given, draw, run)
        # The commonest of all: there a call of a kernel for each group takes a twentieth of the
        # time.
        is_quick = draw is NO_DRAW and (self.source.bits == 16 or (self.source.bits == 32 and function is fast.special))
        how = self.source, self.scales_given, draw, run, walk.bits
        return rows.quantize(function, *how, inlined=is_common and is_quick)


class Loops:
    """The loops of a conversion along one walk, with everything looked up but the arrays; threads share them."""

    def __init__(self, conversion: Conversion, walk: Walk, draw: Draw) -> None:
        self.conversion, self.walk, self.draw = conversion, walk, draw
        self._groups = walk.groups
        #: Floats are read as integers of their size.
        self._reads = None if conversion.source is None else SIGNED[conversion.source.bits // 8]
        self._has_fast = conversion.fast is not None
        self._fast: Callable[..., int] | None = None
        if conversion.fast is not None:
            self._numbers, self._is_for_one = conversion.fast.numbers, walk.is_for_one
            self._way = walk.shape, walk.whole

    def __call__(self, x: Array, out: Array, sides: tuple[Array, ...], words: Any, threads: int | None) -> None:
        """Convert contiguous arrays; `words` are what random bits are drawn from."""
        self.run(self.flat(x, out, sides[0]), np.zeros(self._groups, _BYTE), words, threads)

    def flat(self, x: Array, out: Array, scales: Array) -> Flat:
        """Contiguous arrays as the loops take them."""
        x, out = x.ravel(), out.ravel()
        if self._reads is not None:
            x = x.view(self._reads)
        return x, out if out.dtype is _BYTE else out.view(SIGNED[out.itemsize]), scales.ravel()

    def marks(self) -> Array:
        """A mark for each group or panel, clear."""
        return np.zeros(self._groups, _BYTE)

    def run(self, flat: Flat, marks: Array, words: Any, threads: int | None) -> None:
        """Convert arrays, with marks that are clear, which they are again afterwards."""
        if self._has_fast and float_environment.is_default():
            fast = self._fast or self._bound_to(flat)
            if self._is_for_one:  # (sooner done than by way of threads)
                count = fast(*flat, *self._way, marks, words, self._numbers)
            else:
                count = self._in_threads(threads, flat, marks, words, self._numbers)
            if count == 0:
                return
        else:
            marks.fill(MIXED)
        bits, (read, written, scales) = self.walk.bits, flat
        if bits == 8:
            self._redo_marked(flat, marks, words, threads)
        elif self._reads is None:
            self._redo_marked((self._unpacked(read).ravel(), written, scales), marks, words, threads)
        else:  # codes that are not marked are right
            codes = self._unpacked(written)
            self._redo_marked((read, codes.ravel(), scales), marks, words, threads)
            pack(codes, bits, written.reshape(len(codes), -1))
        marks.fill(0)

    def _bound_to(self, flat: Flat) -> Callable[..., int]:
        """Compile the kernel of the fast loop when it is first called: types of arrays are the same in all calls."""
        assert self.conversion.fast is not None
        loop = self.conversion.fast_loop(self.conversion.fast, self.walk, self.draw).bound_to(*flat[:2])
        self._in_threads = in_threads(loop, self.walk)
        self._fast = loop
        return loop

    def _unpacked(self, packed: Array) -> Array:
        """Codes that the walk has packed, a byte each, in rows."""
        of_rows = packed.reshape(self.walk.planes * self.walk.rows, -1)
        return unpack(of_rows, self.walk.bits, self.walk.columns)

    def _redo_marked(self, flat: Flat, marks: Array, words: Any, threads: int | None) -> None:
        """Scales by the definition; elements at any scale, and what is still marked then by the definition."""
        done, walk = self.conversion, self.walk.redone
        if done.find_scale is not None:
            assert done.source is not None
            find = in_threads(marked.find_scales(done.find_scale, done.source), walk)
            find(threads, flat, marks, done.nan_blocks, done.find_scale.numbers)
        nan, count = done.definition.function(0, E8M0.nan_code, 0, None), 1
        if done.at_any_scale is not None and float_environment.is_default():
            greatest = None if done.source is None else done.source.max_code
            convert = in_threads(marked.convert(done.at_any_scale, self.draw, greatest), walk)
            count = convert(threads, flat, marks, words, nan, done.at_any_scale.numbers)
        if count > 0:
            convert = in_threads(marked.convert(done.definition, self.draw, None), walk)
            convert(threads, flat, marks, words, nan, done.definition.numbers)


loops_along = lru_cache(maxsize=4096)(Loops)


class Modes(NamedTuple):
    """How elements are made: all that a quantization says of them."""

    source: ElementFormat
    element: ElementFormat
    rounding: Rounding
    overflow: Overflow
    rule: ScaleRule
    nonfinite: Nonfinite
    scales_given: bool


def modes_of(asked: Settings) -> Modes:
    """Those of some settings."""
    return Modes(
        asked.source, asked.element, asked.rounding, asked.overflow, asked.power_rule, asked.nonfinite,
        asked.scales_given,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def to_codes(modes: Modes) -> Conversion:
    """Codes of floats, and scales."""
    return _quantizing(modes, None)


@lru_cache(maxsize=4096)
def to_values(modes: Modes) -> Conversion:
    """The values of those codes in the type of the floats."""
    return _quantizing(modes, modes.source)


def _quantizing(modes: Modes, target: ElementFormat | None) -> Conversion:
    source, how = modes.source, (modes.source, modes.element, modes.rounding, modes.overflow)
    if modes.scales_given:
        find_scale = formulation.keeping_scales(source)
    else:
        find_scale = formulation.scaling(source, modes.element, modes.rule)
    return Conversion(
        source,
        formulation.fast_quantizing(*how, modes.rule, target),
        formulation.quantizing_anywhere(*how, target),
        formulation.quantizing(*how) if target is None else formulation.requantizing(*how, target),
        find_scale,
        modes.nonfinite.by_block,
        modes.scales_given,
    )


@lru_cache(maxsize=4096)
def from_codes(element: ElementFormat, target: ElementFormat) -> Conversion:
    """Values of codes."""
    return Conversion(
        None,
        formulation.fast_decoding(element, target),
        formulation.decoding_anywhere(element, target),
        formulation.decoding(element, target),
    )

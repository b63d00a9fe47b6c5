"""Conversions of contiguous arrays.

A fast loop marks the panels that it leaves, and other loops redo these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import NamedTuple

import numpy as np

from mxnum.engine.loops import columns, marked, rows
from mxnum.engine.loops.marked import Converter, Finder
from mxnum.engine.loops.random_bits import NO_DRAW, Draw
from mxnum.engine.machine import float_environment
from mxnum.engine.packing.arrays import pack, unpack
from mxnum.engine.request import Settings, Sides
from mxnum.engine.rounding import formulation
from mxnum.engine.rounding.per_element import NO_NUMBERS, Definition, Fast
from mxnum.engine.traversal.block_walk import MIXED, USUAL_RUN, Walk, in_threads
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import SIGNED, Array, stored_bits
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule

#: numpy takes a dtype faster than a type.
_BYTE = np.dtype(np.uint8)
#: The bits of the tensor scale used for formats that have none.
_ONE = stored_bits(np.ones(1, np.float32))

#: Returns the loop for contiguous flat arrays like those given: see `loops.rows.quantize`.
Bind = Callable[..., Callable[..., int]]
#: (x, out, scales), and for scales that are floats also (tensor scales, maxima of blocks):
#: contiguous and flat, as integers.
Flat = tuple[Array, ...]


class Left(Exception):
    """Raised if fast loops leave a block and there is no loop for the definition.

    The output is then incomplete.
    """


class Exact(NamedTuple):
    """How to redo the panels that a fast loop leaves."""

    #: Finds their scales; None if codes are decoded.
    finder: Finder | None
    #: Converts them by the definition.
    definition: Converter
    #: The same at any scale, faster, wherever hardware floats are right; None if there is no such
    #: way.
    at_any_scale: Converter | None = None


@dataclass(frozen=True, eq=False)
class Conversion:
    """How to convert the elements of blocks and find their scales.

    Calls with the same settings share one object.
    """

    #: The float type of the input; None if the input holds codes.
    source: ElementFormat | None
    #: True if scales are floats. Loops then process bands of rows whatever the blocks.
    has_float_scales: bool
    #: Returns the fast loop; None if nothing is faster than the definition.
    fast: Callable[[Walk, Draw], Bind] | None
    #: Returns what redoes the panels that the fast loop leaves; None if there are no loops for
    #: that. Most calls leave no panel, so this is called only when needed.
    exact: Callable[[Draw], Exact] | None
    #: The numbers that the fast loop receives.
    numbers: Array = field(default_factory=lambda: NO_NUMBERS)
    #: Returns True if the fast loop reads or writes packed codes of so many bits along a walk.
    packs: Callable[[Walk, int], bool] = lambda walk, bits: walk.along_rows


class Loops:
    """The loops of a conversion along one walk, with everything but the arrays.

    Threads share them.
    """

    def __init__(self, conversion: Conversion, walk: Walk, draw: Draw) -> None:
        walk = walk.in_bands if conversion.has_float_scales else walk
        self.conversion, self.walk, self.draw, self._groups = conversion, walk, draw, walk.groups
        #: Floats are read as integers of their size.
        self._reads = None if conversion.source is None else SIGNED[conversion.source.bits // 8]
        self._has_fast, self._has_float_scales = conversion.fast is not None, conversion.has_float_scales
        self._fast: Callable[..., int] | None = None
        self._numbers, self._is_for_one, self._whole = conversion.numbers, walk.is_for_one, (walk.shape, walk.whole)

    def __call__(self, x: Array, out: Array, sides: Sides, words: Array, threads: int | None) -> None:
        """Convert contiguous arrays; `words` are the source of random bits."""
        self.run(self.flat(x, out, sides), np.zeros(self._groups, _BYTE), words, threads)

    def flat(self, x: Array, out: Array, sides: Sides) -> Flat:
        """Return contiguous arrays as the loops take them."""
        x, out, scales = x.ravel(), out.ravel(), sides.scales.ravel()
        if self._reads is not None:
            x = x.view(self._reads)
        out = out if out.dtype is _BYTE else stored_bits(out)
        if not self._has_float_scales:
            return x, out, scales
        tensor = _ONE if sides.tensor_scale is None else stored_bits(sides.tensor_scale.ravel())
        return x, out, stored_bits(scales), tensor, x[:0] if sides.maxima is None else sides.maxima

    def marks(self) -> Array:
        """Return a clear mark for each group or panel."""
        return np.zeros(self._groups, _BYTE)

    def run(self, flat: Flat, marks: Array, words: Array, threads: int | None) -> None:
        """Convert arrays. Marks must be clear, and are clear again afterwards."""
        if self._has_fast and float_environment.is_default():
            fast = self._fast or self._bind(flat)
            if self._is_for_one:  # Fast path: avoids the closures of `in_threads`.
                count = fast(flat, self._whole, marks, words, self._numbers)
            else:
                count = self._in_threads(threads, flat, marks, words, self._numbers)
            if count == 0:
                return
        else:
            marks.fill(MIXED)
        bits, (read, written, *others) = self.walk.bits, flat
        if bits == 8:
            self._redo_marked(flat, marks, words, threads)
        elif self._reads is None:
            self._redo_marked((self._unpacked(read).ravel(), written, *others), marks, words, threads)
        else:  # The codes of blocks without a mark are right already.
            codes = self._unpacked(written)
            self._redo_marked((read, codes.ravel(), *others), marks, words, threads)
            pack(codes, bits, written.reshape(len(codes), -1))
        marks.fill(0)

    def _bind(self, flat: Flat) -> Callable[..., int]:
        """Compile the kernels of the fast loop at its first call.

        Array types are the same in all calls.
        """
        assert self.conversion.fast is not None
        loop = self.conversion.fast(self.walk, self.draw)(*flat)
        self._in_threads = in_threads(loop, self.walk)
        self._fast = loop
        return loop

    def _unpacked(self, packed: Array) -> Array:
        """Return the packed codes of a walk with a byte for each code, in rows."""
        of_rows = packed.reshape(self.walk.planes * self.walk.rows, -1)
        return unpack(of_rows, self.walk.bits, self.walk.columns)

    def _redo_marked(self, flat: Flat, marks: Array, words: Array, threads: int | None) -> None:
        """Find the scales of marked panels, and convert these panels.

        The definition converts those for which there is nothing faster.
        """
        if self.conversion.exact is None:
            raise Left
        exact, walk = self.conversion.exact(self.draw), self.walk.redone
        arrays = flat[:4] if self._has_float_scales else (*flat, _ONE)
        if exact.finder is not None:
            in_threads(exact.finder.loop(*arrays), walk)(threads, arrays, marks)
        for converter in (exact.at_any_scale, exact.definition):
            if converter is not None and (converter is exact.definition or float_environment.is_default()):
                convert = in_threads(converter.loop(self.draw, *arrays), walk)
                if convert(threads, arrays, marks, words, converter.numbers) == 0:
                    return


loops_along = lru_cache(maxsize=4096)(Loops)


class Modes(NamedTuple):
    """The modes of a quantization to scales that are powers of two.

    Its conversion depends on nothing else.
    """

    source: ElementFormat
    element: ElementFormat
    rounding: Rounding
    overflow: Overflow
    rule: ScaleRule
    nonfinite: Nonfinite
    scales_given: bool


def modes_of(asked: Settings) -> Modes:
    """Return the modes of some settings."""
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
    """Return the conversion of floats to the values of their codes, in the type of the floats."""
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
    # The commonest loops of all have their kernels compiled in: that saves a twentieth of their
    # time.
    is_quick = draw is NO_DRAW and (source.bits == 16 or (source.bits == 32 and function is fast.special))
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
    """Return what redoes panels under scales that are powers of two."""
    nan = definition.function(0, E8M0.nan_code, 0, None)
    exact = marked.convert_by(definition, nan, takes_mixed=True)
    at_any_scale = None if anywhere is None else marked.convert_by(anywhere, nan, takes_mixed=finder is None)
    return Exact(finder, exact, at_any_scale)

"""The transform of blocks for scales that are floats, and the tensor scale of an array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.float_scale import make_float_scale, make_tensor_scale
from mxnum.engine.loops import float_scales as loops
from mxnum.engine.loops.random_bits import Draw
from mxnum.engine.loops.rows import greatest_magnitude
from mxnum.engine.machine import float_environment, vectors
from mxnum.engine.machine.workers import bounds, run_in_threads, worth
from mxnum.engine.packing.arrays import pack, unpack
from mxnum.engine.quantizing import choosing
from mxnum.engine.request import DecodingSettings, Request, Settings
from mxnum.engine.rounding import by_factors, paths, stochastic_over
from mxnum.engine.rounding import float_scales as formulation
from mxnum.engine.rounding.float_scales import Formulation
from mxnum.engine.traversal.block_walk import ELEMENTS_PER_THREAD, Walk, in_threads
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.memory.dtypes import Array, scale_dtype, signed_bits, stored_bits

#: The tensor scale used for formats that have none.
_ONE = np.ones(1, np.float32)
#: The number of side arrays without maxima, scales and tensor scale; and a dummy for unknown
#: maxima.
_SIDES, _NONE = 2, np.zeros(1, np.int32)
#: The number of elements of which `_largest_of_rows` makes a temporary copy at a time.
_PIECE = 1 << 18


class FloatScales:
    """A transform that divides each element by the float scale of its block times the tensor scale, if there is one."""

    needs_room = False

    def __init__(self, scale: ScaleFormat) -> None:
        self.sides = (scale_dtype(scale),)

    def apply(self, asked: Settings) -> Any:
        return self._quantizing(asked, None)

    def apply_and_undo(self, asked: Settings) -> Any:
        return self._quantizing(asked, asked.source)

    def _quantizing(self, asked: Settings, target: ElementFormat | None) -> Any:
        if asked.float_rule.error_power and not asked.scales_given:
            then = replace(asked, scales_given=True)
            return _after_choosing(asked, by_loops(_quantizing(then, target)))
        return by_loops(_quantizing(asked, target))

    def undo(self, asked: DecodingSettings) -> Any:
        return by_loops(_decoding(asked))

    def apply_packed(self, asked: Settings) -> Any:
        """Return `apply` for packed codes along the walks that allow it; None if codes must have a byte each first."""
        is_simple = asked.element.bits == 4 and (asked.scales_given or not asked.float_rule.error_power)
        return by_packed_loops(_quantizing(asked, None)) if is_simple else None

    def undo_packed(self, asked: DecodingSettings) -> Any:
        """Return `undo` for packed codes along the walks that allow it; None if codes must have a byte each first."""
        return by_packed_loops(_decoding(asked)) if asked.element.bits == 4 else None


transform = lru_cache(maxsize=None)(FloatScales)


class Left(Exception):
    """Raised if fast loops leave a block and there is no loop for the definition. The output is then incomplete."""


class Conversion(NamedTuple):
    """The functions of one conversion: for elements and for scales, each fast and by the definition."""

    #: The float type of the input; None if the input holds codes.
    source: ElementFormat | None
    fast: Formulation | None
    #: The formulation for blocks that `fast` leaves; if None, such a block raises `Left`.
    definition: Formulation | None
    #: The functions that compute scales; None if scales are given.
    find_fast: Callable[..., Any] | None
    find: Callable[..., Any] | None
    #: The scale code of blocks that hold NaN or infinity; 0 if such blocks get no special code.
    nan_code: int


def _finding(asked: Settings) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None, int]:
    scale = asked.format.scale
    nan_code = scale.nan_code if asked.nonfinite.by_block else 0
    if asked.scales_given:
        return None, None, nan_code
    how = asked.source, asked.element, scale, asked.float_rule
    defined = _defined_scale(*how)
    finds_fast = paths.FOUND.covers(asked.source, asked.element, scale=scale, rule=asked.float_rule)
    return (by_factors.make_scale(*how) if finds_fast else defined), defined, nan_code


_defined_scale = lru_cache(maxsize=1024)(make_float_scale)


def _quantizing(asked: Settings, target: ElementFormat | None) -> Conversion:
    how = asked.source, asked.element, asked.format.scale, asked.rounding, asked.overflow, target
    return Conversion(asked.source, _fast(asked, target), formulation.quantizing(*how), *_finding(asked))


def _fast(asked: Settings, target: ElementFormat | None) -> Formulation | None:
    source, element, scale = asked.source, asked.element, asked.format.scale
    if target is not None and not paths.MULTIPLIED.covers(target, element, scale=scale):
        return None
    if paths.DRAWN.covers(source, element, rounding=asked.rounding, scale=scale):
        return stochastic_over.by_products(source, element, scale, target)
    if paths.PLACES.covers(source, element, rounding=asked.rounding, scale=scale):
        return by_factors.by_places(source, element, scale, asked.rounding, target)
    if paths.QUOTIENTS.covers(source, element, rounding=asked.rounding, scale=scale):
        return by_factors.by_quotients(source, element, scale, asked.rounding, asked.overflow, target)
    return None


def _decoding(asked: DecodingSettings) -> Conversion:
    how = asked.element, asked.scale, asked.target
    multiplies_fast = paths.MULTIPLIED.covers(asked.target, asked.element, scale=asked.scale)
    fast = by_factors.decoding(*how) if multiplies_fast else None
    return Conversion(None, fast, formulation.decoding(*how), None, None, 0)


def by_packed_loops(conversion: Conversion) -> Any:
    """Return a function of (walk, draw) that gives the loops of a conversion for packed codes of four bits.

    It returns None along walks for which there are no such loops.
    """
    in_vectors = conversion.fast is not None and conversion.fast.in_vectors and vectors.available()

    @lru_cache(maxsize=256)
    def along(walk: Walk, draw: Draw) -> Any:
        has_loops = walk.k == 1 and 1 < walk.run in loops.RUNS and walk.columns % walk.run == 0
        return _PackedLoops(conversion, walk, draw) if in_vectors and has_loops else None

    return along


def by_loops(conversion: Conversion) -> Any:
    """Return a function of (walk, draw) that gives the loops of a conversion."""

    @lru_cache(maxsize=256)
    def along(walk: Walk, draw: Draw) -> Any:
        return Loops(conversion, walk, draw)

    return along


class Loops:
    """The loops of a conversion along one walk."""

    def __init__(self, conversion: Conversion, walk: Walk, draw: Draw) -> None:
        self.conversion, self.walk, self.draw = conversion, walk.in_bands, draw
        self._run = walk.run if walk.run in loops.RUNS else 0
        #: The fast loops for (packed codes, known maxima).
        self._fast_loops: dict[tuple[bool, bool], Callable[..., int]] = {}

    def __call__(self, x: Array, out: Array, sides: tuple[Array, ...], words: Any, threads: int | None) -> None:
        """Convert contiguous arrays.

        The sides are the scales, the tensor scale (one number, or one for each block), and the
        largest magnitudes of blocks if they are known.
        """
        done, arrays = self.conversion, self._flat(x, out, sides)
        marks = np.zeros(self.walk.groups, np.uint8)
        if done.fast is not None and float_environment.is_default():
            if self.run_loop(self.fast_loop(arrays, False, len(sides) > _SIDES), arrays, marks, words, threads) == 0:
                return
        else:
            marks.fill(loops.LEFT)
        if done.definition is None:
            raise Left
        # Most calls leave no block, so this loop is compiled only when needed.
        defined = loops.convert(done.definition, done.source, done.find, self.draw, -1, done.nan_code, 0)
        self.run_loop(defined(*arrays[:4]), arrays, marks, words, threads)

    def fast_loop(self, arrays: tuple[Array, ...], packed: bool, knows_maxima: bool) -> Callable[..., int]:
        """Return the fast loop. Its kernels are compiled once: array types are the same in all calls."""
        found = self._fast_loops.get((packed, knows_maxima))
        if found is None:
            done, run = self.conversion, self._run
            assert done.fast is not None
            limit = 0 if done.source is None else done.source.max_code
            how = done.fast, done.source, done.find_fast, self.draw, limit, done.nan_code, run, packed, knows_maxima
            found = self._fast_loops[packed, knows_maxima] = loops.convert(*how)(*arrays[:4])
        return found

    def _flat(self, x: Array, out: Array, sides: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the arrays as loops take them: flat, and floats as integers of their size."""
        scales, tensor = (*sides, _ONE)[:2]
        read = x.ravel() if self.conversion.source is None else signed_bits(x.ravel())
        maxima = sides[_SIDES] if len(sides) > _SIDES else _NONE
        return read, stored_bits(out.ravel()), stored_bits(scales.ravel()), stored_bits(tensor.ravel()), maxima

    def run_loop(self, loop: Any, arrays: Any, marks: Array, words: Any, threads: int | None) -> int:
        return in_threads(loop, self.walk)(threads, arrays, marks, words)


class _PackedLoops(Loops):
    """The loops of a conversion along one walk for packed codes of four bits, in rows of whole bytes."""

    def __call__(self, x: Array, out: Array, sides: tuple[Array, ...], words: Any, threads: int | None) -> None:
        """Convert contiguous arrays.

        If fast loops leave a block, convert all blocks again with a byte for each code in between.
        """
        if float_environment.is_default():
            arrays, marks = self._flat(x, out, sides), np.zeros(self.walk.groups, np.uint8)
            if self.run_loop(self.fast_loop(arrays, True, len(sides) > _SIDES), arrays, marks, words, threads) == 0:
                return
        count, reads = self.walk.elements, self.conversion.source is None
        codes = unpack(x.reshape(1, -1), 4, count) if reads else np.empty((1, count), np.uint8)
        super().__call__(codes if reads else x, out if reads else codes, sides, words, threads)
        if not reads:
            pack(codes, 4, out.reshape(1, -1))


def _after_choosing(asked: Settings, then: Any) -> Any:
    """Return the operation that chooses scales with `choosing` and then runs `then`, which takes given scales."""

    @lru_cache(maxsize=256)
    def along(walk: Walk, draw: Draw) -> Any:
        run = then(walk, draw)

        def choose_and_run(x: Array, out: Array, sides: tuple[Array, ...], words: Any, threads: int | None) -> None:
            scales, tensor = (*sides, _ONE)[:2]
            choosing.choose_scales(x, scales, tensor, walk, asked)
            run(x, out, sides, words, threads)

        return choose_and_run

    return along


def tensor_scale(request: Request, by_rows: bool) -> Array:
    """Return the tensor scale of an array, or of each row along its last axis, which then has length 1.

    If blocks are contiguous in memory, this also stores their largest magnitudes in the request.
    """
    x, asked = request.x, request.settings
    source, bits = asked.source, signed_bits(x)
    find = make_tensor_scale(source, asked.element, asked.format.scale)
    if by_rows:
        found = np.asarray(find(_largest_of_rows(bits, source)))
        return found.astype(np.uint32).view(np.float32)
    *others, run = asked.blocks or (1,)
    flat = bits.ravel(order="K")
    if run in loops.RUNS[1:] and x.flags.c_contiguous and x.shape[-1] % run == 0 and set(others) <= {1}:
        request.maxima = np.empty(x.size // run, bits.dtype)
        largest = _largest_of_blocks(flat, source, run, request.maxima, request.threads)
    else:
        largest = greatest(flat, source, request.threads)
    largest = largest if largest <= source.max_code else int(_finite(flat, source).max(initial=0))
    return np.array(find(largest)).astype(np.uint32).view(np.float32)


def _largest_of_blocks(flat: Array, source: ElementFormat, run: int, maxima: Array, threads: int | None) -> int:
    """Return the largest magnitude of a flat array, and write that of each block of `run` elements to `maxima`."""
    cuts = bounds(maxima.size, worth(flat.size, ELEMENTS_PER_THREAD, threads))
    loop = loops.block_maxima(source, run)
    pieces = [(flat[run * a : run * b], maxima[a:b]) for a, b in pairwise(cuts)]
    return int(max(run_in_threads(lambda piece: loop(*piece), pieces), default=0))


def greatest(bits: Array, source: ElementFormat, threads: int | None) -> int:
    """Return the bit pattern of the largest magnitude of a flat array; that of a NaN if it holds one."""
    cuts = bounds(bits.size, worth(bits.size, ELEMENTS_PER_THREAD, threads))
    return int(max(run_in_threads(greatest_magnitude(source), [bits[a:b] for a, b in pairwise(cuts)])))


def _finite(bits: Array, source: ElementFormat) -> Array:
    """Return the bit patterns of magnitudes, with 0 in place of NaN and infinity."""
    magnitude = bits & ((1 << (source.bits - 1)) - 1)
    return np.where(magnitude > source.max_code, 0, magnitude)


def _largest_of_rows(bits: Array, source: ElementFormat) -> Array:
    """Return the bit pattern of the largest finite magnitude of each row along the last axis."""
    rows = bits.reshape(prod(bits.shape[:-1]), bits.shape[-1])
    step = max(1, _PIECE // max(1, bits.shape[-1]))
    found = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), step):
        found[start : start + step] = _finite(rows[start : start + step], source).max(axis=1, initial=0)
    return found.reshape(*bits.shape[:-1], 1)

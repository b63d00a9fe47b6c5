"""The plan of a call: it caches everything that calls with the same settings share.

Every array reaches a loop through `Plan.run`. The loops of a plan take contiguous arrays of the
plan's shape directly. A plan splits other arrays into parts, makes each part contiguous, and writes
the results back (`traversal.parts`). Plans hold no arrays and no marks, so threads can share them.

A `Conversion` names a fast loop, and slower loops for blocks that the fast loop cannot convert.
`Loops` runs the loops of a conversion along one walk through an array. Most plans run a single
conversion (`operation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import starmap
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.pack import SR_BITS
from mxnum.engine.loops.marked import Converter, Finder
from mxnum.engine.loops.panels import NO_WORDS, Draw
from mxnum.engine.loops.random_bits import SeedWords, draw_from_words, words_of_key
from mxnum.engine.machine import workers
from mxnum.engine.packing.arrays import Packed, pack, unpack
from mxnum.engine.packing.bit_stream import codes_in_whole_bytes
from mxnum.engine.request import RandomBits
from mxnum.engine.rounding.formulation import NO_NUMBERS
from mxnum.engine.traversal.block_walk import MIXED, Walk, in_threads, walk_of
from mxnum.engine.traversal.parts import CHUNK, Arrays, Order, Part, Plain, memory_order
from mxnum.formats import ElementFormat
from mxnum.layout import Blocks, element_strides
from mxnum.memory.dtypes import SIGNED, Array, stored_bits

#: Fast path: numpy needs less time for a dtype object than for a scalar type.
_BYTE, _may_share = np.dtype(np.uint8), np.may_share_memory
#: The bits of the tensor scale 1, which is used for formats without a tensor scale.
_ONE = stored_bits(np.ones(1, np.float32))

#: The scales of blocks, and their offsets if there are any.
Sides = tuple[Array, ...]
#: `run(x, out, sides, tensor scale, maxima, words, threads)` converts one contiguous part. The
#: tensor scale is a single number, a number for each block, or None. The maxima are the largest
#: magnitudes of blocks as bit patterns, or None. `words` are random bits, or the key from which a
#: loop computes random bits.
Run = Callable[[Array, Array, Sides, "Array | None", "Array | None", Array, "int | None"], None]
#: The shape and the dtype of an array.
Kind = tuple[tuple[int, ...], np.dtype[Any]]

#: A function that takes contiguous, flat arrays and returns the loop that is compiled for the types
#: of these arrays (see `loops.rows.quantize`).
Bind = Callable[..., Callable[..., int]]
#: The arrays that a loop takes, contiguous, flat and viewed as integers: (x, out, scales), or for
#: float scales (x, out, scales, tensor scales, maxima of blocks).
Flat = tuple[Array, ...]


class Left(Exception):
    """Raised if a fast loop leaves blocks unconverted, and the conversion has no slower loop.

    After this error, the output array is incomplete.
    """


class Exact(NamedTuple):
    """The slower loops, which convert the panels that a fast loop leaves unconverted."""

    #: Finds the scales of panels; None if codes are decoded.
    finder: Finder | None
    #: Converts panels by the definition.
    definition: Converter
    #: Converts panels at any scale by float arithmetic, faster than `definition`. This converter
    #: may leave panels that hold NaN or infinities to `definition`. None if `definition` converts
    #: all panels.
    at_any_scale: Converter | None = None


@dataclass(frozen=True, eq=False)
class Conversion:
    """How to find the scales of blocks and convert their elements.

    Calls with the same settings share one `Conversion` object.
    """

    #: The float type of the input; None if the input holds codes.
    source: ElementFormat | None
    #: True if scales are floats, not powers of two. Loops for float scales process bands of rows,
    #: even if blocks lie along rows.
    has_float_scales: bool
    #: Returns the `Bind` of the fast loop for a walk; None if no loop is faster than the
    #: definition.
    fast: Callable[[Walk, Draw], Bind] | None
    #: Returns the `Exact` that redoes the panels left by the fast loop; None if no loop can redo
    #: them. In most calls the fast loop converts all panels, so `exact` is called only when needed.
    exact: Callable[[Draw], Exact] | None
    #: The constants that the fast loop receives.
    numbers: Array = field(default_factory=lambda: NO_NUMBERS)
    #: `packs(walk, bits)` is True if the fast loop along `walk` reads or writes packed codes of
    #: `bits` bits.
    packs: Callable[[Walk, int], bool] = lambda walk, bits: walk.along_rows


class Loops:
    """The loops of a conversion along one walk through an array, ready to be called with arrays.

    Threads share `Loops` objects.
    """

    def __init__(self, conversion: Conversion, walk: Walk, draw: Draw) -> None:
        walk = walk.in_bands if conversion.has_float_scales else walk
        self.conversion, self.walk, self.draw, self._groups = conversion, walk, draw, walk.groups
        #: Loops read floats as integers of this type; None if the input holds codes.
        self._reads = None if conversion.source is None else SIGNED[conversion.source.bits // 8]
        self._has_fast, self._has_float_scales = conversion.fast is not None, conversion.has_float_scales
        self._fast: Callable[..., int] | None = None
        self._numbers, self._is_for_one, self._whole = conversion.numbers, walk.is_for_one, (walk.shape, walk.whole)

    def __call__(
        self,
        x: Array,
        out: Array,
        sides: Sides,
        tensor_scale: Array | None,
        maxima: Array | None,
        words: Array,
        threads: int | None,
    ) -> None:
        """Convert contiguous arrays. `Run` describes the arguments."""
        self.run(self.flat(x, out, sides[0], tensor_scale, maxima), np.zeros(self._groups, _BYTE), words, threads)

    def flat(
        self, x: Array, out: Array, scales: Array, tensor_scale: Array | None = None, maxima: Array | None = None
    ) -> Flat:
        """Return contiguous arrays in the form that loops take: flat, and viewed as integers."""
        x, out, scales = x.ravel(), out.ravel(), scales.ravel()
        if self._reads is not None:
            x = x.view(self._reads)
        out = out if out.dtype is _BYTE else stored_bits(out)
        if not self._has_float_scales:
            return x, out, scales
        tensor = _ONE if tensor_scale is None else stored_bits(tensor_scale.ravel())
        return x, out, stored_bits(scales), tensor, x[:0] if maxima is None else maxima

    def marks(self) -> Array:
        """Return an array of zeros: a clear mark for each group or panel of the walk."""
        return np.zeros(self._groups, _BYTE)

    def run(self, flat: Flat, marks: Array, words: Array, threads: int | None) -> None:
        """Convert arrays.

        All marks must be clear before the call, and are clear after the call.
        """
        if self._has_fast and workers.may_use_floats():
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
        else:  # Unpack first: blocks without a mark already have the right codes.
            codes = self._unpacked(written)
            self._redo_marked((read, codes.ravel(), *others), marks, words, threads)
            pack(codes, bits, written.reshape(len(codes), -1))
        marks.fill(0)

    def _bind(self, flat: Flat) -> Callable[..., int]:
        """Compile the kernels of the fast loop for the types of the arrays, and return the loop.

        Later calls use the same loop, because they pass arrays of the same types.
        """
        assert self.conversion.fast is not None
        loop = self.conversion.fast(self.walk, self.draw)(*flat)
        self._in_threads = in_threads(loop, self.walk)
        self._fast = loop
        return loop

    def _unpacked(self, packed: Array) -> Array:
        """Return the codes as an array with one byte for each code, and with the walk's rows."""
        of_rows = packed.reshape(self.walk.planes * self.walk.rows, -1)
        return unpack(of_rows, self.walk.bits, self.walk.columns)

    def _redo_marked(self, flat: Flat, marks: Array, words: Array, threads: int | None) -> None:
        """Find the scales of marked panels, and convert these panels.

        The definition converts the panels that no faster loop converts.
        """
        if self.conversion.exact is None:
            raise Left
        exact, walk = self.conversion.exact(self.draw), self.walk.redone
        arrays = flat[:4] if self._has_float_scales else (*flat, _ONE)
        if exact.finder is not None:
            in_threads(exact.finder.loop(*arrays), walk)(threads, arrays, marks)
        for converter in (exact.at_any_scale, exact.definition):
            if converter is not None and (converter is exact.definition or workers.may_use_floats()):
                convert = in_threads(converter.loop(self.draw, *arrays), walk)
                if convert(threads, arrays, marks, words, converter.numbers) == 0:
                    return


loops_along = lru_cache(maxsize=4096)(Loops)


@dataclass(frozen=True, eq=False)
class Operation:
    """How a plan converts contiguous parts of arrays."""

    #: Returns the `Run` for a walk and a kernel that draws random bits.
    along: Callable[[Walk, Draw], Run]
    #: Returns a `Run` for packed codes, or None if the loops along the walk need unpacked codes.
    packed: Callable[[Walk, Draw], Run | None] = lambda walk, draw: None
    #: True if the operation quantizes and so writes scales and offsets. False if the operation
    #: decodes and so reads scales and offsets.
    quantizes: bool = False
    #: True if the operation needs a temporary array as large as a part, so parts must be small.
    needs_scratch: bool = False
    #: True if short blocks are padded with zeros when blocks are copied to rows: see `Arrays`.
    fills_with_zeros: bool = False


def operation(conversion: Conversion, bits: int, shape: tuple[int, ...]) -> Operation:
    """Return the operation that runs a conversion on arrays of `shape`, for codes of `bits` bits.

    The loops of the operation read or write packed codes if each row and each block begins at a
    byte boundary.
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


class Plan:
    """One operation on arrays of one shape, with any strides."""

    def __init__(
        self,
        shape: tuple[int, ...],
        blocks: Blocks,
        operation: Operation,
        draw: Draw,
        kinds: tuple[Kind, ...],
        packed_bits: int = 0,
        order: Order | None = None,
    ) -> None:
        """Make the plan of `operation` for arrays of a shape.

        `kinds` has a shape and a dtype for the result, for scales, and for offsets if there are
        any. Codes are packed if `packed_bits` is not 0. `order` is None unless the arrays are
        transposed views of the caller's arrays. Axis i of a view is axis `order[i]` of the caller's
        array.
        """
        self.shape, self.blocks, self.operation, self.draw, self.order = shape, blocks, operation, draw, order
        self.kinds, self.packed_bits, self.quantizes = kinds, packed_bits, operation.quantizes
        self.reads_packed, self.writes_packed = (0, packed_bits) if operation.quantizes else (packed_bits, 0)
        self.size, walk = prod(shape), walk_of(shape, blocks)
        self._has_scales_alone = len(kinds) == 2  # Fast path: avoids a comprehension if there are no offsets.
        self._turned: dict[Order, Plan] = {}
        self._whole_rows = codes_in_whole_bytes(packed_bits) if packed_bits else 1
        self._callers_order = order or tuple(range(len(shape)))
        self._callers_strides = element_strides(tuple(shape[self._callers_order.index(i)] for i in range(len(shape))))
        needs_scratch = operation.needs_scratch
        self._at_once = CHUNK if needs_scratch or not packed_bits else 4 * CHUNK
        self._fits = self.size <= self._at_once or not (needs_scratch or packed_bits)
        #: Converts whole arrays at once, if the arrays are in C order and inputs share no memory
        #: with outputs. If `direct` is None, every call converts its arrays in parts.
        self.direct: Run | None = None
        if walk is not None and self.size > 0:
            self.direct = operation.packed(walk, draw) if packed_bits else None
            if self.direct is None and self._fits:
                self.direct = self._around_packed(walk)

    def run(
        self,
        x: Array,
        out: Any = None,
        sides: Sides | None = None,
        given_scales: Array | None = None,
        random: RandomBits | None = None,
        threads: int | None = None,
        tensor_scale: Array | None = None,
        maxima: Array | None = None,
    ) -> tuple[Array, Sides]:
        """Convert `x`, and return the result and the sides: scales, and offsets if there are any.

        The plan writes results to the caller's arrays `out` and `sides`, or to new arrays. New
        arrays have the memory order of `x`, like the results of numpy's own functions. The tensor
        scale broadcasts with the scales. The plan ignores `maxima` if it converts `x` in parts.
        """
        direct, words = self.direct, NO_WORDS
        if not x.flags.c_contiguous:
            direct = None
            if not self.packed_bits:
                order = memory_order(x if out is None or out.itemsize <= x.itemsize else out)
                if any(axis != place for place, axis in enumerate(order)):
                    return self._run_turned(order, x, out, sides, given_scales, random, threads, tensor_scale)
        if out is None:
            out = np.empty(*self.kinds[0])
        elif not out.flags.c_contiguous or _may_share(x, out):
            direct = None
        if sides is None:
            sides = (np.empty(*self.kinds[1]),) if self._has_scales_alone else tuple(starmap(np.empty, self.kinds[1:]))
        else:
            for side in sides:
                is_apart = not (_may_share(side, out) or (self.quantizes and _may_share(x, side)))
                direct = direct if is_apart and side.flags.c_contiguous else None
        if random is not None:
            if random.words is None:
                words, direct = words_of_key(random.key, random.first), direct if self.order is None else None
            elif random.words.flags.c_contiguous:
                words = random.words.reshape(-1)
            else:
                direct = None
        if direct is None:
            self._run_in_parts(x, out, sides, given_scales, random, threads, tensor_scale)
            return out, sides
        if given_scales is not None:
            sides[0][...] = given_scales
        if tensor_scale is not None and tensor_scale.size > 1:
            tensor_scale = np.ascontiguousarray(np.broadcast_to(tensor_scale, sides[0].shape))
        direct(x, out, sides, tensor_scale, maxima, words, threads)
        return out, sides

    def _run_turned(
        self,
        order: Order,
        x: Array,
        out: Array | None,
        sides: Sides | None,
        given_scales: Array | None,
        random: RandomBits | None,
        threads: int | None,
        tensor_scale: Array | None,
    ) -> tuple[Array, Sides]:
        """Run a plan on transposed views of the arrays, and return results with axes as in `x`.

        The axes of the transposed views are in memory order.
        """

        def turned(array: Any) -> Any:
            return array if array is None or array.ndim == 0 else array.transpose(order)

        if order not in self._turned:
            shape, blocks = _in_order(order, self.shape), _in_order(order, self.blocks)
            kinds = tuple((_in_order(order, lengths), dtype) for lengths, dtype in self.kinds)
            self._turned[order] = Plan(shape, blocks, self.operation, self.draw, kinds, order=order)
        if random is not None and random.words is not None:
            random = RandomBits(random.sr_bits, words=random.words.transpose(order))
        made, new_sides = self._turned[order].run(
            turned(x), turned(out), None if sides is None else tuple(map(turned, sides)), turned(given_scales),
            random, threads, turned(tensor_scale),
        )  # fmt: skip
        original = tuple(order.index(axis) for axis in range(len(order)))
        if sides is None:
            sides = tuple(side.transpose(original) for side in new_sides)
        return made.transpose(original) if out is None else out, sides

    def _run_in_parts(
        self,
        x: Array,
        out: Array,
        sides: Sides,
        given_scales: Array | None,
        random: RandomBits | None,
        threads: int | None,
        tensor_scale: Array | None,
    ) -> None:
        """Convert arrays part by part, because the loops cannot take them directly."""
        if self.size == 0:
            return
        is_same = (x.ctypes.data, x.strides, x.dtype) == (out.ctypes.data, out.strides, out.dtype)
        in_place = is_same and self._fits and _may_share(x, out)
        written = (*(() if in_place else (out,)), *(sides if self.quantizes else ()))
        if any(_may_share(x, array) for array in written):
            x = x.copy(order="K")
        if given_scales is not None:
            sides[0][...] = given_scales
        if not self.quantizes:
            sides = tuple(side.copy() if _may_share(side, out) else side for side in sides)
        words = None if random is None else self._words_of(random)
        arrays = Arrays(
            self.shape,
            self.blocks,
            Packed(x, self.reads_packed, self.shape) if self.reads_packed else Plain(x),
            Packed(out, self.writes_packed, self.shape) if self.writes_packed else Plain(out),
            sides,
            words,
            None if tensor_scale is None else np.broadcast_to(tensor_scale, sides[0].shape),
            first_will_do=isinstance(words, SeedWords) and self.order is None,
            writes_sides=self.quantizes,
            whole_rows=self._whole_rows,
            in_place=in_place,
            fills_with_zeros=self.operation.fills_with_zeros,
            at_once=self._at_once,
        )
        arrays.run(partial(self._run_part, random), threads)

    def _words_of(self, random: RandomBits) -> SeedWords | Plain:
        """Return a source of the random words of all elements, which is read part by part."""
        if random.words is not None:
            return Plain(random.words)
        return SeedWords(random.key, random.sr_bits, self._callers_strides, self._callers_order, random.first)

    def _run_part(self, random: RandomBits | None, part: Part) -> None:
        draw, words = self.draw, NO_WORDS
        if random is not None and part.words is not None:
            draw = draw_from_words(SR_BITS) if random.words is None else self.draw
            words = part.words.reshape(-1)
        elif random is not None:
            assert part.first is not None
            words = words_of_key(random.key, random.first + part.first)
        run = self.operation.along(part.walk, draw)
        run(part.x, part.out, part.sides, part.tensor_scale, None, words, 1)

    def _around_packed(self, walk: Walk) -> Run:
        """Return a `Run` for contiguous arrays, whose codes may be packed.

        The `Run` unpacks packed codes to a temporary array before the loops read them, or packs the
        codes after the loops wrote them. The temporary array has a byte for each code.
        """
        run, reads, writes = self.operation.along(walk, self.draw), self.reads_packed, self.writes_packed
        if not (reads or writes):
            return run
        shape = self.shape or (1,)

        def around(x: Array, out: Array, *rest: Any) -> None:
            read = unpack(x, reads, shape[-1]) if reads else x
            codes = np.empty(shape, _BYTE) if writes else out
            run(read, codes, *rest)
            if writes:
                pack(codes, writes, out)

        return around


def _in_order(order: Order, lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(lengths[axis] for axis in order)

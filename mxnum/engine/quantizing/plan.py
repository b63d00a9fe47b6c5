"""The plan of a call: it caches everything that calls with the same settings share.

Every array reaches a loop through `Plan.run`. A plan has the loops for contiguous arrays of its
shape, and passes such arrays to them directly. It splits all other arrays into parts, makes each
part contiguous, and writes the results back (`traversal.parts`). Plans hold no arrays and no marks,
so threads can share them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.pack import SR_BITS
from mxnum.engine.loops.random_bits import NO_WORDS, Draw, SeedWords, draw_from_words, words_of_key
from mxnum.engine.packing.arrays import Packed, pack, unpack
from mxnum.engine.packing.bit_stream import codes_in_whole_bytes
from mxnum.engine.request import RandomBits, Sides
from mxnum.engine.traversal.block_walk import Walk, walk_of
from mxnum.engine.traversal.blocked_copy import Order, memory_order
from mxnum.engine.traversal.parts import CHUNK, Arrays, Part, Plain
from mxnum.layout import Blocks
from mxnum.memory.dtypes import Array

_BYTE, _may_share = np.dtype(np.uint8), np.may_share_memory

#: `run(x, out, sides, words, threads)` converts one contiguous part; `words` are the source of
#: random bits.
Run = Callable[[Array, Array, Sides, Array, "int | None"], None]
#: The shape and the dtype of an array.
Kind = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Operation:
    """What a plan does with contiguous parts."""

    #: Returns the `Run` for a walk and a way to draw random bits, with everything prepared but the
    #: arrays.
    along: Callable[[Walk, Draw], Run]
    #: The same for packed codes. Returns None along walks for which there are no such loops.
    packed: Callable[[Walk, Draw], Run | None] = lambda walk, draw: None
    #: True if it quantizes; then it writes scales and offsets, else it reads them.
    quantizes: bool = False
    #: True if it allocates another array as large as a part, so that parts must be small.
    needs_scratch: bool = False
    #: True if short blocks that become rows are padded with zeros: see `Arrays`.
    fills_with_zeros: bool = False


class Call(NamedTuple):
    """The arguments of a call of `Plan.run`."""

    x: Array
    out: Any = None
    #: Arrays for scales and offsets; None for new ones. The tensor scale and the maxima are read.
    sides: Sides | None = None
    given_scales: Array | None = None
    random: RandomBits | None = None
    threads: int | None = None
    #: Broadcasts with the scales.
    tensor_scale: Array | None = None
    #: See `Sides`. Only loops that take x directly receive them.
    maxima: Array | None = None


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

        `kinds` are those of the result and of the scales and offsets, if there are any. Codes are
        packed if `packed_bits` is not 0. A plan for transposed arrays has an `order`: for each of
        its axes, the axis of the caller's arrays.
        """
        self.shape, self.blocks, self.operation, self.draw, self.order = shape, blocks, operation, draw, order
        self.kinds, self.packed_bits, self.quantizes = kinds, packed_bits, operation.quantizes
        self.reads_packed, self.writes_packed = (0, packed_bits) if operation.quantizes else (packed_bits, 0)
        self.size, walk = prod(shape), walk_of(shape, blocks)
        self._has_scales_alone = len(kinds) == 2  # Fast path: avoids a comprehension for the common single array.
        self._turned: dict[Order, Plan] = {}
        needs_scratch = operation.needs_scratch
        self._at_once = CHUNK if needs_scratch or not packed_bits else 4 * CHUNK
        self._fits = self.size <= self._at_once or not (needs_scratch or packed_bits)
        #: The loops for arrays in C order whose inputs share no memory with their outputs; None if
        #: there are no such loops, so that every call works in parts.
        self.direct: Run | None = None
        if walk is not None and self.size > 0:
            self.direct = operation.packed(walk, draw) if packed_bits else None
            if self.direct is None and self._fits:
                self.direct = self._around_packed(walk)

    def run(self, call: Call) -> tuple[Array, Sides]:
        """Return the result and the sides, in arrays of the caller or in new ones.

        New arrays have their axes in the memory order of x, as those of numpy's own functions do.
        """
        x, out, sides, given_scales, random, threads, tensor_scale, maxima = call
        direct, words = self.direct, NO_WORDS
        if not x.flags.c_contiguous:
            direct = None
            if not self.packed_bits:
                order = memory_order(x if out is None or out.itemsize <= x.itemsize else out)
                if any(axis != place for place, axis in enumerate(order)):
                    return self._run_turned(order, call)
        if out is None:
            out = np.empty(*self.kinds[0])
        elif not out.flags.c_contiguous or _may_share(x, out):
            direct = None
        if sides is None:
            new = np.empty(*self.kinds[1]) if self._has_scales_alone else None
            sides = Sides(*starmap(np.empty, self.kinds[1:])) if new is None else Sides(new)
        else:
            for side in sides.of_blocks:
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
            self._run_in_parts(call._replace(out=out, sides=sides))
            return out, sides
        if given_scales is not None:
            sides.scales[...] = given_scales
        if tensor_scale is not None and tensor_scale.size > 1:
            tensor_scale = np.ascontiguousarray(np.broadcast_to(tensor_scale, sides.scales.shape))
        read = sides if tensor_scale is None else Sides(sides.scales, sides.offsets, tensor_scale, maxima)
        direct(x, out, read, words, threads)
        return out, sides

    def _run_turned(self, order: Order, call: Call) -> tuple[Array, Sides]:
        """Run the call on transposed views of its arrays, and return its results.

        The axes of these views are in memory order.
        """
        x, out, sides, given_scales, random, threads, tensor_scale, _ = call

        def turned(array: Any) -> Any:
            return array if array is None or array.ndim == 0 else array.transpose(order)

        if order not in self._turned:
            shape, blocks = _in_order(order, self.shape), _in_order(order, self.blocks)
            kinds = tuple((_in_order(order, lengths), dtype) for lengths, dtype in self.kinds)
            self._turned[order] = Plan(shape, blocks, self.operation, self.draw, kinds, order=order)
        if random is not None and random.words is not None:
            random = RandomBits(random.sr_bits, words=random.words.transpose(order))
        made, of_blocks = self._turned[order].run(
            Call(
                turned(x), turned(out), None if sides is None else Sides(*map(turned, sides)), turned(given_scales),
                random, threads, turned(tensor_scale),
            )
        )  # fmt: skip
        original = tuple(order.index(axis) for axis in range(len(order)))
        if sides is None:
            sides = Sides(*(side.transpose(original) for side in of_blocks.of_blocks))
        return made.transpose(original) if out is None else out, sides

    def _run_in_parts(self, call: Call) -> None:
        """Run the call part by part, for arrays that loops do not take directly."""
        x, out, sides, given_scales, random, threads, tensor_scale, _ = call
        if self.size == 0:
            return
        assert sides is not None
        of_blocks = sides.of_blocks
        is_same = (x.ctypes.data, x.strides, x.dtype) == (out.ctypes.data, out.strides, out.dtype)
        in_place = is_same and self._fits and _may_share(x, out)
        written = (*(() if in_place else (out,)), *(of_blocks if self.quantizes else ()))
        if any(_may_share(x, array) for array in written):
            x = x.copy(order="K")
        if given_scales is not None:
            sides.scales[...] = given_scales
        if not self.quantizes:
            of_blocks = tuple(side.copy() if _may_share(side, out) else side for side in of_blocks)
        words = None if random is None else self._words_of(random)
        arrays = Arrays(
            self.shape,
            self.blocks,
            Packed(x, self.reads_packed, self.shape) if self.reads_packed else Plain(x),
            Packed(out, self.writes_packed, self.shape) if self.writes_packed else Plain(out),
            of_blocks,
            words,
            None if tensor_scale is None else np.broadcast_to(tensor_scale, sides.scales.shape),
            first_will_do=isinstance(words, SeedWords) and self.order is None,
            writes_sides=self.quantizes,
            whole_rows=codes_in_whole_bytes(self.packed_bits or 8),
            in_place=in_place,
            fills_with_zeros=self.operation.fills_with_zeros,
            at_once=self._at_once,
        )
        arrays.run(partial(self._run_part, random), threads)

    def _words_of(self, random: RandomBits) -> SeedWords | Plain:
        """Return the random words of all elements, to be read part by part."""
        if random.words is not None:
            return Plain(random.words)
        order = self.order or tuple(range(len(self.shape)))
        shape = tuple(self.shape[order.index(axis)] for axis in range(len(order)))
        return SeedWords(random.key, random.sr_bits, shape, order, random.first)

    def _run_part(self, random: RandomBits | None, part: Part) -> None:
        draw, words = self.draw, NO_WORDS
        if random is not None and part.words is not None:
            draw = draw_from_words(SR_BITS) if random.words is None else self.draw
            words = part.words.reshape(-1)
        elif random is not None:
            assert part.first is not None
            words = words_of_key(random.key, random.first + part.first)
        sides = Sides(*part.sides)._replace(tensor_scale=part.tensor_scale)
        self.operation.along(part.walk, draw)(part.x, part.out, sides, words, 1)

    def _around_packed(self, walk: Walk) -> Run:
        """Return the operation on contiguous arrays, for packed codes too.

        These are unpacked to temporary bytes, one for each code.
        """
        run, reads, writes = self.operation.along(walk, self.draw), self.reads_packed, self.writes_packed
        if not (reads or writes):
            return run
        shape = self.shape or (1,)

        def around(x: Array, out: Array, sides: Sides, words: Array, threads: int | None) -> None:
            read = unpack(x, reads, shape[-1]) if reads else x
            codes = np.empty(shape, _BYTE) if writes else out
            run(read, codes, sides, words, threads)
            if writes:
                pack(codes, writes, out)

        return around


def _in_order(order: Order, lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(lengths[axis] for axis in order)

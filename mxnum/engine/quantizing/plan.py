"""The plan of a call: it caches everything that calls with the same settings share.

Every array reaches a loop through `Plan.run`. A plan has the loops for contiguous arrays of its
shape, and passes such arrays to them directly. It splits all other arrays into parts, makes each
part contiguous, and writes the results back (`traversal.parts`). Plans hold no arrays and no marks,
so threads can share them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mxnum.definition.pack import SR_BITS
from mxnum.engine.loops.random_bits import Draw, SeedWords, draw_from_words
from mxnum.engine.packing.arrays import Packed, pack, unpack
from mxnum.engine.packing.bit_stream import codes_in_whole_bytes
from mxnum.engine.request import RandomBits
from mxnum.engine.traversal.block_walk import Walk, walk_of
from mxnum.engine.traversal.blocked_copy import Order, memory_order
from mxnum.engine.traversal.parts import CHUNK, Arrays, Part, Plain
from mxnum.layout import Blocks
from mxnum.memory.dtypes import Array

_BYTE, _may_share = np.dtype(np.uint8), np.may_share_memory
#: Passed to loops in place of the source of random bits if they draw none.
NO_WORDS: Any = 0

#: `run(x, out, sides, words, threads)` converts one contiguous part. The sides hold one item for
#: each block, and `words` is the source of random bits.
Run = Callable[[Array, Array, "tuple[Array, ...]", Any, "int | None"], None]
#: Returns the `Run` for a walk and a way to draw random bits, with everything prepared but the
#: arrays.
Operation = Callable[[Walk, Draw], Run]

#: An `Operation` on packed codes, which returns None along walks for which there are no such loops.
PackedOperation = Callable[[Walk, Draw], "Run | None"]
#: The shape and the dtype of an array.
Kind = tuple[tuple[int, ...], np.dtype[Any]]


class Call(NamedTuple):
    """The arguments of a call of `Plan.run` whose arrays loops do not take directly."""

    x: Array
    out: Any
    sides: Any
    given_scales: Array | None
    random: RandomBits | None
    threads: int | None
    tensor_scale: Array | None


class Plan:
    """One operation on arrays of one shape, with any strides."""

    def __init__(
        self,
        shape: tuple[int, ...],
        blocks: Blocks,
        operation: Operation,
        draw: Draw,
        out: Kind,
        sides: tuple[Kind, ...] = (),
        *,
        writes_sides: bool = False,
        reads_packed: int = 0,
        writes_packed: int = 0,
        needs_room: bool = False,
        fills_with_zeros: bool = False,
        packed_operation: PackedOperation | None = None,
        order: Order | None = None,
    ) -> None:
        """Make the plan of `operation` for arrays of a shape.

        `out` and `sides` are the kinds of the result and of the arrays with one item for each
        block. `reads_packed` and `writes_packed` are the bits of packed codes, or 0. A
        `packed_operation` works on packed codes without a temporary array of bytes, and may be None
        along a walk. A plan for transposed arrays has an `order`: for each of its axes, the axis of
        the caller's arrays.
        """
        self.shape, self.blocks, self.operation, self.draw = shape, blocks, operation, draw
        self.out, self.sides, self.writes_sides, self.needs_room = out, sides, writes_sides, needs_room
        self.reads_packed, self.writes_packed, self.order = reads_packed, writes_packed, order
        self.fills_with_zeros = fills_with_zeros
        self.size, walk = prod(shape), walk_of(shape, blocks)
        self._has_one_side = len(sides) == 1  # Fast path: avoids `starmap` for the common single array.
        self._turned: dict[Order, Plan] = {}
        self._at_once = CHUNK if needs_room or not (reads_packed or writes_packed) else 4 * CHUNK
        self._has_room = self.size <= self._at_once or not (needs_room or reads_packed or writes_packed)
        #: The loops for arrays in C order whose inputs share no memory with their outputs; None if
        #: there are no such loops, so that every call works in parts.
        self.direct: Run | None = None
        if walk is not None and self.size > 0 and packed_operation is not None:
            self.direct = packed_operation(walk, draw)
        if walk is not None and self.size > 0 and self._has_room and self.direct is None:
            self.direct = self._around_packed(walk)

    def run(
        self,
        x: Array,
        out: Array | None = None,
        sides: tuple[Array, ...] | None = None,
        given_scales: Array | None = None,
        random: RandomBits | None = None,
        threads: int | None = None,
        tensor_scale: Array | None = None,
        maxima: Array | None = None,
    ) -> tuple[Array, tuple[Array, ...]]:
        """Return the result and the sides, in arrays of the caller or in new ones.

        New arrays have their axes in the memory order of x, as those of numpy's own functions do.
        The `tensor_scale` is passed to loops after the sides, and broadcasts with them. `maxima`
        only reach loops that take x directly.
        """
        direct, words = self.direct, NO_WORDS
        if not x.flags.c_contiguous:
            direct = None
            if not (self.reads_packed or self.writes_packed):
                order = memory_order(x if out is None or out.itemsize <= x.itemsize else out)
                if any(axis != place for place, axis in enumerate(order)):
                    return self._run_turned(order, Call(x, out, sides, given_scales, random, threads, tensor_scale))
        if out is None:
            out = np.empty(*self.out)
        elif not out.flags.c_contiguous or _may_share(x, out):
            direct = None
        if sides is None:
            sides = (np.empty(*self.sides[0]),) if self._has_one_side else tuple(starmap(np.empty, self.sides))
        else:
            for side in sides:
                is_apart = not (_may_share(side, out) or (self.writes_sides and _may_share(x, side)))
                direct = direct if is_apart and side.flags.c_contiguous else None
        if random is not None:
            if random.words is None:
                words, direct = (*random.key, random.first), direct if self.order is None else None
            elif random.words.flags.c_contiguous:
                words = random.words.reshape(-1)
            else:
                direct = None
        if direct is None:
            self._run_in_parts(Call(x, out, sides, given_scales, random, threads, tensor_scale))
            return out, sides
        if given_scales is not None:
            sides[0][...] = given_scales
        if tensor_scale is None:
            direct(x, out, sides, words, threads)
            return out, sides
        if tensor_scale.size > 1:
            tensor_scale = np.ascontiguousarray(np.broadcast_to(tensor_scale, sides[0].shape))
        known = () if maxima is None else (maxima,)
        direct(x, out, (*sides, tensor_scale, *known), words, threads)
        return out, sides

    def _run_turned(self, order: Order, call: Call) -> tuple[Array, tuple[Array, ...]]:
        """Run the call on transposed views of its arrays whose axes are in memory order, and return its results."""
        x, out, sides, given_scales, random, threads, tensor_scale = call

        def turned(array: Any) -> Any:
            return array if array is None or array.ndim == 0 else array.transpose(order)

        if order not in self._turned:
            shape, blocks = _in_order(order, self.shape), _in_order(order, self.blocks)
            kind = _in_order(order, self.out[0]), self.out[1]
            kinds = tuple((_in_order(order, lengths), dtype) for lengths, dtype in self.sides)
            self._turned[order] = Plan(
                shape, blocks, self.operation, self.draw, kind, kinds,
                writes_sides=self.writes_sides, needs_room=self.needs_room, order=order,
                fills_with_zeros=self.fills_with_zeros,
            )  # fmt: skip
        if random is not None and random.words is not None:
            random = RandomBits(random.sr_bits, words=random.words.transpose(order))
        made, of_blocks = self._turned[order].run(
            turned(x), turned(out), None if sides is None else tuple(map(turned, sides)), turned(given_scales),
            random, threads, turned(tensor_scale),
        )  # fmt: skip
        original = tuple(order.index(axis) for axis in range(len(order)))
        if out is None:
            out = made.transpose(original)
        return out, tuple(side.transpose(original) for side in of_blocks) if sides is None else sides

    def _run_in_parts(self, call: Call) -> None:
        """Run the call part by part, for arrays that loops do not take directly."""
        x, out, sides, given_scales, random, threads, tensor_scale = call
        if self.size == 0:
            return
        is_same = (x.ctypes.data, x.strides, x.dtype) == (out.ctypes.data, out.strides, out.dtype)
        in_place = is_same and self._has_room and _may_share(x, out)
        written = (*(() if in_place else (out,)), *(sides if self.writes_sides else ()))
        if any(_may_share(x, array) for array in written):
            x = x.copy(order="K")
        if given_scales is not None:
            sides[0][...] = given_scales
        if not self.writes_sides:
            sides = tuple(side.copy() if _may_share(side, out) else side for side in sides)
        into = Packed(out, self.writes_packed, self.shape) if self.writes_packed else Plain(out)
        words: SeedWords | Plain | None = None
        if random is not None:
            order = self.order or tuple(range(len(self.shape)))
            shape = tuple(self.shape[order.index(axis)] for axis in range(len(order)))
            of_seed = SeedWords(random.key, random.sr_bits, shape, order, random.first)
            words = of_seed if random.words is None else Plain(random.words)
        arrays = Arrays(
            self.shape,
            self.blocks,
            Packed(x, self.reads_packed, self.shape) if self.reads_packed else Plain(x),
            into,
            sides,
            words,
            None if tensor_scale is None else np.broadcast_to(tensor_scale, sides[0].shape),
            first_will_do=isinstance(words, SeedWords) and self.order is None,
            writes_sides=self.writes_sides,
            whole_rows=codes_in_whole_bytes(self.reads_packed or self.writes_packed or 8),
            in_place=in_place,
            fills_with_zeros=self.fills_with_zeros,
            at_once=self._at_once,
        )

        def work(part: Part) -> None:
            draw, drawn_from = self.draw, NO_WORDS
            if random is not None and part.words is not None:
                draw = draw_from_words(SR_BITS) if random.words is None else self.draw
                drawn_from = part.words.reshape(-1)
            elif random is not None:
                assert part.first is not None
                drawn_from = (*random.key, random.first + part.first)
            self.operation(part.walk, draw)(part.x, part.out, part.sides, drawn_from, 1)

        arrays.run(work, threads)

    def _around_packed(self, walk: Walk) -> Run:
        """Return the operation on contiguous arrays, with packed codes unpacked to temporary bytes, one per code."""
        run, reads, writes = self.operation(walk, self.draw), self.reads_packed, self.writes_packed
        if not (reads or writes):
            return run
        shape = self.shape or (1,)

        def around(x: Array, out: Array, sides: tuple[Array, ...], words: Any, threads: int | None) -> None:
            read = unpack(x, reads, shape[-1]) if reads else x
            codes = np.empty(shape, _BYTE) if writes else out
            run(read, codes, sides, words, threads)
            if writes:
                pack(codes, writes, out)

        return around


def _in_order(order: Order, lengths: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(lengths[axis] for axis in order)

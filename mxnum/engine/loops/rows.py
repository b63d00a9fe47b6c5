"""Loops for blocks along contiguous rows.

A loop processes a row in groups of blocks. To quantize a group, a loop first computes all scales
and then all elements, so that the compiler can vectorize both phases. A loop marks each group for
which its fast formulation is not right, and the loops of `marked` redo the marked groups.

Arrays are flat and contiguous. A call of a loop processes the rows `first` to `last`, and in each
row the blocks `begin` to `end`. `begin` is a multiple of the number of blocks in a group. The
functions of this module have the same names and arguments as the functions of `columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from mxnum.definition.word import dialect, select
from mxnum.engine.loops.panels import SPARE, Draw, address_of, magnitude_type, of_blocks
from mxnum.engine.machine.jit import (
    LONG_PART,
    PART,
    READ_AHEAD,
    WRITE_AHEAD,
    Kernel,
    ask_for,
    call_kernel,
    compile_loop,
    others_apart,
)
from mxnum.engine.machine.lanes import integer, lane, load, store, wide
from mxnum.engine.packing.bit_stream import make_pack_run, make_unpack_run
from mxnum.engine.rounding import as_float32, float_additions
from mxnum.engine.rounding.formulation import numbers_given
from mxnum.engine.traversal.block_walk import MIXED, PIECE, SHORT_RUN
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array

NAN_SCALE = E8M0.nan_code


@dialect
def group_of(row, at, shape):
    """Return (number, blocks, width) of the group that begins at block `at` of a row.

    `number` is the index of the group among all groups, `blocks` is the number of its blocks, and
    `width` is the length of each block.
    """
    length, run, group = shape
    full = length // run
    per_row = (full + group - 1) // group + (1 if full * run < length else 0)
    if at >= full:  # The short block at the end of the row.
        return row * per_row + per_row - 1, 1, length - full * run
    return row * per_row + at // group, min(group, full - at), run


@dialect
def scales_lie(scales, place, count, limits):
    """Return True if `count` scales, beginning at index `place`, lie within `limits`."""
    least, greatest = lane(NAN_SCALE), lane(0)
    for b in range(place, place + count):
        scale = load(scales, b)
        least, greatest = select(scale < least, scale, least), select(scale > greatest, scale, greatest)
    return least >= limits.least_scale and greatest <= limits.greatest_scale


@cache
def make_fast_scales(source: ElementFormat) -> Callable[..., Any]:
    """Return a function that computes the scales of consecutive blocks by a fast formulation.

    The function is called as `fast_scales(amax, used, scales, place, blocks, scales_given, limits,
    e)`. `fast_scales` computes scales from the largest magnitudes in `amax`, or reads given scales
    from `scales`, and stores the scales in `used`. `fast_scales` returns True if the fast
    formulation is right for all of the blocks. If `fast_scales` returns True, it has also stored
    the computed scales in `scales`.
    """
    widen, fast_scale = as_float32.make_widen(source), float_additions.fast_scale
    Magnitude, word = magnitude_type(source), wide if source.bits > 32 else lane
    i32 = np.int32

    @dialect
    def fast_scales(amax, used, scales, place, blocks, scales_given, limits, e):
        most = Magnitude(0)
        for b in range(blocks):
            most = Magnitude(max(most, amax[b]))
        least, greatest = i32(NAN_SCALE), i32(0)
        for b in range(blocks):
            magnitude = widen(word(amax[b]))
            if scales_given:
                scale = i32(integer(load(scales, place + b)))
            else:
                scale = i32(integer(fast_scale(magnitude, e)))
                amax[b] = scale
            # A block of zeros gets the same codes under every scale except NaN, so use a scale that
            # lies within `limits`.
            scale = i32(limits.least_scale) if integer(magnitude) == 0 and scale < NAN_SCALE else scale
            used[b] = scale
            least, greatest = i32(min(least, scale)), i32(max(greatest, scale))
        is_right = least >= limits.least_scale and greatest <= limits.greatest_scale
        is_right = is_right and integer(widen(word(most))) <= limits.greatest_x
        if is_right and not scales_given:
            for b in range(blocks):
                store(scales, place + b, amax[b])
        return is_right

    return fast_scales


@cache
def quantize(
    function: Callable[..., Any],
    source: ElementFormat,
    scales_given: bool,
    draw: Draw,
    constant_run: int,
    bits: int = 8,
    inlined: bool = False,
) -> Callable[..., Any]:
    """Return a function that returns the quantizing loop for arrays of given types.

    The returned function is called as `bind(x, out, *others)`. The loop is called as
    `loop(arrays, ((length, run, group), (first, last, begin, end)), marks, words, numbers)`. For
    each group, the loop computes the scales and the results by a fast formulation, or marks the
    group if the formulation is not right for it. The loop returns the number of groups that it
    marked. If `constant_run` is not 0, it is the block length, as a compile-time constant, and the
    loop also marks the short block at the end of a row. Codes of fewer than eight bits are packed,
    and each block begins at a new byte. If `inlined`, the kernels are compiled into the loop. The
    loop then takes longer to compile, and runs in 5 percent less time.
    """
    elements = _quantizing_kernel(function, draw is not None, constant_run, bits == 8)
    maxima = of_blocks(source, constant_run)
    loop = _quantize(source, bits, (maxima.function, elements.function) if inlined else None)
    flags = int(scales_given), int(constant_run > 0)

    def bind(x: Array, out: Array, *others: Array) -> Callable[..., int]:
        kernels: tuple[Any, ...] = (0, 0)
        if not inlined:
            kernels = maxima.for_types(x.dtype, magnitude_type(source)), elements.for_types(x.dtype, out.dtype)
        return partial(loop, (*kernels, address_of(draw), *flags))

    return bind


@cache
def _quantize(source: ElementFormat, bits: int, within: tuple[Callable[..., Any], Callable[..., Any]] | None) -> Any:
    """Return the compiled loop of `quantize`; one loop serves all conversion functions.

    The loop's first argument has five items: two kernels, `address_of(draw)`, and two flags.

    If the two kernels are compiled into the loop, `within` holds their Python functions. Otherwise,
    `within` is None.
    """
    Magnitude, fast_scales = magnitude_type(source), make_fast_scales(source)
    PACKED, INLINED = bits < 8, within is not None
    pack_run: Any = make_pack_run(bits) if PACKED else None
    maxima_of: Any
    convert: Any
    maxima_of, convert = within or (None, None)

    def loop(settings, arrays, share, marks, words, numbers):
        find_maxima, elements, fill, scales_given, leaves_rest = settings
        x, out, scales = arrays
        shape, (first, last, begin, end) = share
        limits, e = numbers_given(numbers)
        length, run, group = shape
        per_row = (length + run - 1) // run
        amax, used = np.empty(group, Magnitude), np.empty(group, np.int32)
        buffer, offset = np.empty(PIECE + SPARE if fill != 0 else 1, np.int32), np.zeros(1, np.int64)
        # The codes of a group stay in the first-level cache until the whole group is packed.
        codes = np.empty(group * run, np.uint8) if PACKED else out
        skipped = 0
        for row in range(first, last):
            at = begin
            while at < end:
                number, blocks, width = group_of(row, at, shape)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                if leaves_rest and width != run:
                    marks[number] = MIXED
                    skipped += 1
                    continue
                where = base, blocks, width, 0, 0, 0, 0, 0
                if INLINED:
                    maxima_of(x, amax, used, used, numbers, where)
                else:
                    call_kernel(find_maxima, x, amax, used, used, numbers, where)
                if not fast_scales(amax, used, scales, place, blocks, scales_given, limits, e):
                    marks[number] = MIXED
                    skipped += 1
                    continue
                stop, codes_base = base + blocks * width, base if PACKED else 0
                if PACKED:
                    for part in range(base, stop, PART):
                        ask_for(out, part * bits // 8, PART, WRITE_AHEAD)
                for piece in range(base, stop, blocks * width if blocks > 1 else PIECE):
                    size = min(width, stop - piece, PIECE)  # Blocks longer than `PIECE` are converted in pieces.
                    if fill != 0:
                        where = piece, blocks * size, 0, 0, 0, 0, 0, 0
                        call_kernel(fill, words, buffer, offset, buffer, buffer, where)
                    where = piece, blocks, size, codes_base, offset[0] - piece, 0, 0, 0
                    if INLINED:
                        convert(x, codes, used, buffer, numbers, where)
                    else:
                        call_kernel(elements, x, codes, used, buffer, numbers, where)
                if PACKED:
                    pack_run(codes, 0, blocks * width, out, base * bits // 8)
        return skipped

    return compile_loop(loop)


@cache
def _quantizing_kernel(function: Callable[..., Any], draws: bool, constant_run: int, asks_for_out: bool) -> Kernel:
    """Return the kernel that converts the elements of blocks.

    The kernel's arguments are (x, out, scales, random bits, numbers, where). `where` holds (first
    element, blocks, width, index of the element stored in out[0], offset of random bits, ...).
    """

    @dialect
    def kernel(x, out, scales, drawn, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        first, blocks, width, out_base, random, _, _, _ = where
        for b in range(blocks):
            scale = lane(load(scales, b))
            if constant_run > 0:
                start = first + b * constant_run
                ask_for(x, start, constant_run, READ_AHEAD)
                if asks_for_out:
                    ask_for(out, start, constant_run, WRITE_AHEAD)
                for i in range(start, start + constant_run):
                    bits = lane(load(drawn, random + i)) if draws else lane(0)
                    store(out, i - out_base, function(load(x, i), scale, bits, e))
            else:
                start = first + b * width
                for part in range(start, start + width, PART):
                    ask_for(x, part, PART, READ_AHEAD)
                    if asks_for_out:
                        ask_for(out, part, PART, WRITE_AHEAD)
                    for i in range(part, min(part + PART, start + width)):
                        bits = lane(load(drawn, random + i)) if draws else lane(0)
                        store(out, i - out_base, function(load(x, i), scale, bits, e))

    return Kernel(kernel)


@cache
def decode(function: Callable[..., Any], constant_run: int, bits: int = 8) -> Callable[..., Any]:
    """Return a function that returns the decoding loop for arrays of given types.

    The returned function is called as `bind(codes, out, *others)`. The loop computes values by a
    fast formulation. The loop takes the same arguments as the loop of `quantize`, and returns the
    number of groups that it marked. Codes of fewer than eight bits are packed, and each block
    begins at a new byte.
    """
    kernel, loop = _decoding_kernel(function, constant_run), _decode(bits)

    def bind(codes: Array, out: Array, *others: Array) -> Callable[..., int]:
        return partial(loop, (kernel.for_types(np.uint8, out.dtype, np.uint8), int(constant_run > 0)))

    return bind


@cache
def _decode(bits: int) -> Any:
    """Return the compiled loop of `decode`; one loop serves all conversion functions.

    The loop's first argument is (kernel, flag). If the flag is 1, the loop marks the short block at
    the end of a row instead of decoding it.
    """
    PACKED = bits < 8
    unpack_run: Any = make_unpack_run(bits) if PACKED else None

    def loop(settings, arrays, share, marks, unused, numbers):
        kernel, leaves_rest = settings
        codes, out, scales = arrays
        shape, (first, last, begin, end) = share
        limits, _ = numbers_given(numbers)
        length, run, _ = shape
        per_row, full = (length + run - 1) // run, length // run
        most = max(1, PIECE // run) if PACKED else full
        unpacked = np.empty(most * run if PACKED else 1, np.uint8)
        skipped = 0
        for row in range(first, last):
            at = begin
            all_right = scales_lie(scales, row * per_row + begin, end - begin, limits)
            while at < end:
                number, blocks, width = group_of(row, at, shape)
                if all_right and at < full:  # No group needs a mark, so one call converts several groups.
                    blocks = min(min(end, full) - at, most)
                base, place = row * length + at * run, row * per_row + at
                at += blocks
                is_right = all_right or scales_lie(scales, place, blocks, limits)
                if not is_right or (leaves_rest and width != run):
                    marks[number] = MIXED
                    skipped += 1
                    continue
                if PACKED:
                    unpack_run(codes, base * bits // 8, blocks * width, unpacked, 0)
                    where = place, 0, base, blocks, width, 0, 0, 0
                    call_kernel(kernel, unpacked, out, scales, numbers, numbers, where)
                else:
                    where = place, base, base, blocks, width, 0, 0, 0
                    call_kernel(kernel, codes, out, scales, numbers, numbers, where)
        return skipped

    return compile_loop(loop)


@cache
def _decoding_kernel(function: Callable[..., Any], constant_run: int) -> Kernel:
    """Return the kernel that decodes consecutive blocks.

    The kernel is called as `(codes, out, scales, _, numbers, (first scale, first code, first
    element of out, blocks, width, ...))`.
    """
    PAIR = 2 * SHORT_RUN

    def kernel(codes, out, scales, unused, numbers, where):
        others_apart()
        _, e = numbers_given(numbers)
        place, first_code, first, blocks, width, _, _, _ = where
        back = first_code - first
        alone = 0
        if constant_run == SHORT_RUN:  # Convert two blocks at a time: compilers do not vectorize a loop over 16 codes.
            alone = blocks & ~1
            for b in range(0, alone, 2):
                one, other = load(scales, place + b), load(scales, place + b + 1)
                start = first + b * SHORT_RUN
                ask_for(out, start, PAIR, WRITE_AHEAD)
                for i in range(PAIR):
                    scale = select((i & SHORT_RUN) == 0, one, other)
                    store(out, start + i, function(load(codes, back + start + i), scale, 0, e))
        for b in range(alone, blocks):
            scale = load(scales, place + b)
            if constant_run > 0:
                start = first + b * constant_run
                ask_for(out, start, constant_run, WRITE_AHEAD)
                for i in range(start, start + constant_run):
                    store(out, i, function(load(codes, back + i), scale, 0, e))
            elif width < LONG_PART:
                for i in range(first + b * width, first + (b + 1) * width):
                    store(out, i, function(load(codes, back + i), scale, 0, e))
            else:
                stop = first + (b + 1) * width
                for part in range(first + b * width, stop, LONG_PART):
                    ask_for(out, part, LONG_PART, WRITE_AHEAD)
                    for i in range(part, min(part + LONG_PART, stop)):
                        store(out, i, function(load(codes, back + i), scale, 0, e))

    return Kernel(kernel)

"""Packed codes made and read without a byte for each of them in memory: by the loops along rows, a group at a time.

The groups that those loops leave, and the arrays that they do not take, go through one byte per code, in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mxnum.dtypes import Array, signed_bits
from mxnum.engine.draws import Draw
from mxnum.engine.jobs import (
    Decoding,
    Flat,
    Quantization,
    Steps,
    codes_flat,
    decoding_loop,
    drawn_in_line,
    is_in_line,
    quantizing_loop,
    words_from,
)
from mxnum.engine.packing import pack, unpack
from mxnum.engine.pieces import in_pieces
from mxnum.engine.request import RandomBits
from mxnum.engine.rows import PIECE
from mxnum.engine.storage import packed_in_rows
from mxnum.engine.walk import CHUNK, Walk, chunks, in_threads, plan, shares
from mxnum.layout import Blocks, packed_length

#: Groups between two that are left which are done again with them, rather than both in calls of their own.
_BETWEEN = 8


class _Span(NamedTuple):
    """Elements of some rows, or of a part of one, with what belongs to them in flat arrays."""

    walk: Walk
    elements: slice
    blocks: slice
    bytes: slice


def quantize(
    job: Quantization,
    blocks: Blocks,
    x: Array,
    packed: Array,
    scales: Array,
    bits: int,
    threads: int | None,
    random: RandomBits | None = None,
) -> bool:
    """Run a job whose codes go to `packed`; False, with nothing done, where no fast loop goes that way."""
    walk = way(x.shape, blocks, bits) if _are_in_line(x, packed, scales) else None
    if walk is None or job.fast is None or np.may_share_memory(x, packed) or not is_in_line(random):
        return False
    draw, words = drawn_in_line(random)
    quantizing_steps(job, walk, bits, draw).run(x, packed, scales, words, threads)
    return True


def dequantize(
    job: Decoding, blocks: Blocks, packed: Array, values: Array, scales: Array, bits: int, threads: int | None
) -> bool:
    """Run a job over the codes in `packed`; False, with nothing done, where no fast loop goes that way."""
    walk = way(values.shape, blocks, bits) if _are_in_line(packed, values, scales) else None
    if walk is None or job.fast is None or np.may_share_memory(packed, values):
        return False
    decoding_steps(job, walk, bits).run(packed, values, scales, 0, threads)
    return True


def quantizing_steps(job: Quantization, walk: Walk, bits: int, draw: Draw) -> Steps:
    """What a job that has a fast loop does whose codes are held packed."""
    assert job.fast is not None
    numbers, storage = job.fast.numbers, packed_in_rows(bits)
    loop = _in_loops(partial(quantizing_loop, job, True, draw=draw, storage=storage), walk)

    def quantize(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
        return loop(threads, flat, left, words, numbers)

    def finish(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
        x, packed, scales = flat

        def again(span: _Span) -> None:
            codes = np.empty((span.walk.rows, span.walk.columns), np.uint8)
            some = words_from(words, span.elements.start)
            job.steps(span.walk, draw).run(x[span.elements], codes, scales[span.blocks], some, 1)
            pack(codes, bits, packed[span.bytes].reshape(len(codes), -1))

        _each(again, list(_left(walk, left, bits)), threads)
        return 0

    return Steps(walk, _numbers_flat, quantize, finish)


def decoding_steps(job: Decoding, walk: Walk, bits: int) -> Steps:
    """The inverse."""
    assert job.fast is not None
    numbers = job.fast.numbers
    loop = _in_loops(partial(decoding_loop, job.fast, storage=packed_in_rows(bits)), walk)

    def decode(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
        return loop(threads, flat, left, numbers)

    def finish(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
        packed, values, scales = flat

        def again(span: _Span) -> None:
            codes = unpack(packed[span.bytes].reshape(span.walk.rows, -1), bits, span.walk.columns)
            steps = job.steps(span.walk)
            steps.run_flat((codes.ravel(), values[span.elements], scales[span.blocks]), steps.marks(), words, 1)

        _each(again, list(_left(walk, left, bits)), threads)
        return 0

    return Steps(walk, codes_flat, decode, finish)


def _numbers_flat(x: Array, packed: Array, scales: Array) -> Flat:
    return signed_bits(x.ravel()), packed.ravel(), scales.ravel()


def each_part(shape: tuple[int, ...], blocks: Blocks, bits: int) -> Iterator[tuple[Any, Any, Any]]:
    """Where parts of an array are that are worth copying, their bytes, and what belongs to their blocks."""
    everything = (..., ..., ...)
    if not shape or 0 in shape:
        yield everything
        return
    whole_bytes = 8 // math.gcd(8, bits)
    sizes = (*blocks[:-1], math.lcm(blocks[-1], whole_bytes))
    made = chunks(shape, sizes)
    if made is None:
        yield everything
        return
    for chunk in made:
        where = [slice(*part.indices(length)) for part, length in zip(chunk.where, shape, strict=True)]
        row = slice(packed_length(where[-1].start, bits), packed_length(where[-1].stop, bits))
        sides = [slice(part.start // k, -(-part.stop // k)) for part, k in zip(where, blocks, strict=True)]
        yield tuple(where), (*where[:-1], row), tuple(sides)


def way(shape: tuple[int, ...], blocks: Blocks, bits: int) -> Walk | None:
    """How loops along rows go through contiguous arrays, if blocks of packed codes begin and end at bytes there."""
    walk = plan(shape, blocks) if shape and 0 not in shape else None
    if walk is None or not walk.along_rows or walk.run > PIECE or walk.run * bits % 8 != 0:
        return None
    return walk if walk.columns == shape[-1] or shape[-1] * bits % 8 == 0 else None


def _are_in_line(*arrays: Array) -> bool:
    return all(array.flags.c_contiguous for array in arrays)


def _in_loops(make_loop: Callable[[int], Any], walk: Walk) -> Callable[..., int]:
    """(threads, flat, left, *rest) -> groups left by loops that go through all of a walk; they are made for a run."""
    main = in_threads(make_loop(walk.constant_run), walk)
    full, rows = walk.columns // walk.run, walk.planes * walk.rows
    if walk.constant_run == 0 or full * walk.run == walk.columns:
        return main
    of_tails = make_loop(0)  # the loop for blocks of constant length leaves the short last blocks of rows

    def run(threads: int | None, flat: Flat, left: Array, *rest: Any) -> int:
        count = main(threads, flat, left, *rest)
        left.reshape(rows, -1)[:, -1] = 0

        def work(some: Sequence[int]) -> Any:
            return of_tails(*flat, walk.shape, (some[0], some[-1] + 1, full, full + 1), left, *rest)

        tails: int = sum(in_pieces(work, shares(range(rows), walk.elements, threads)))
        return count - rows + tails

    return run


def _left(walk: Walk, left: Array, bits: int) -> Iterator[_Span]:
    """Spans that hold all of the marked groups: of whole rows where these are short."""
    count, columns, run = walk.planes * walk.rows, walk.columns, walk.run
    groups_per_row, blocks_per_row = walk.groups // count, -(-columns // run)
    marked = np.flatnonzero(left)
    if columns <= CHUNK:
        for first, stop in _runs(np.unique(marked // groups_per_row), 1, CHUNK // columns):
            yield _span(first, stop - first, 0, columns, columns, blocks_per_row, run, bits)
        return
    full = columns // run
    for row in np.unique(marked // groups_per_row).tolist():
        here = marked[marked // groups_per_row == row] % groups_per_row
        for first, stop in _runs(here, _BETWEEN, CHUNK // (walk.group * run)):
            begin = min(first * walk.group, full) * run
            end = columns if stop == groups_per_row else min(stop * walk.group, full) * run
            yield _span(row, 1, begin, end, columns, blocks_per_row, run, bits)


def _span(row: int, rows: int, begin: int, end: int, columns: int, per_row: int, run: int, bits: int) -> _Span:
    """Those columns of some rows: all of them if there is more than one."""
    row_bytes, last = packed_length(columns, bits), row + rows - 1
    return _Span(
        Walk(1, rows, end - begin, 1, run),
        slice(row * columns + begin, last * columns + end),
        slice(row * per_row + begin // run, last * per_row - (-end // run)),
        slice(row * row_bytes + begin * bits // 8, last * row_bytes + packed_length(end, bits)),
    )


def _runs(numbers: Array, between: int, most: int) -> Iterator[tuple[int, int]]:
    """(first, stop) of runs of ascending numbers that leave out no more than so many in a row, each at most so long."""
    first = stop = -1
    for number in numbers.tolist():
        if first >= 0 and number - stop <= between and number - first < max(most, 1):
            stop = number + 1
            continue
        if first >= 0:
            yield first, stop
        first, stop = number, number + 1
    if first >= 0:
        yield first, stop


def _each(work: Callable[[_Span], None], spans: Sequence[_Span], threads: int | None) -> None:
    def some(share: Sequence[_Span]) -> None:
        for span in share:
            work(span)

    in_pieces(some, shares(spans, sum(span.elements.stop - span.elements.start for span in spans), threads))

"""Packed codes made and read without a byte for each of them in memory: by the loops along rows, a group at a time.

The groups that those loops leave, and the arrays that they do not take, go through one byte per code, in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mxnum.dtypes import Array, signed_bits
from mxnum.engine import environment
from mxnum.engine.draws import NO_DRAW
from mxnum.engine.jobs import Decoding, Quantization, decoding_loop, drawn, quantizing_loop
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
    walk = _walk(x.shape, blocks, bits, x, packed, scales)
    if walk is None or job.fast is None or np.may_share_memory(x, packed):
        return False
    if random is not None and random.words is not None and not random.words.flags.c_contiguous:
        return False
    draw, words = (NO_DRAW, 0) if random is None else drawn(random, 0, walk)
    x, packed, scales, left = x.reshape(-1), packed.reshape(-1), scales.reshape(-1), np.zeros(walk.groups, np.uint8)

    def loop(constant_run: int) -> Any:
        return quantizing_loop(job, True, constant_run, draw, packed_in_rows(bits))

    if _in_loops(loop, walk, threads, signed_bits(x), packed, scales, left, words, job.fast.numbers) == 0:
        return True

    def again(span: _Span) -> None:
        some, first = random, span.elements.start
        if random is not None and random.words is not None:
            some, first = RandomBits(random.sr_bits, words=random.words.reshape(-1)[span.elements]), 0
        codes = np.empty((span.walk.rows, span.walk.columns), np.uint8)
        job.run(span.walk, x[span.elements], codes, scales[span.blocks], 1, some, first)
        pack(codes, bits, packed[span.bytes].reshape(len(codes), -1))

    _each(again, list(_left(walk, left, bits)), threads)
    return True


def dequantize(
    job: Decoding, blocks: Blocks, packed: Array, values: Array, scales: Array, bits: int, threads: int | None
) -> bool:
    """Run a job over the codes in `packed`; False, with nothing done, where no fast loop goes that way."""
    walk = _walk(values.shape, blocks, bits, packed, values, scales)
    if walk is None or job.fast is None or np.may_share_memory(packed, values):
        return False
    fast, left = job.fast, np.zeros(walk.groups, np.uint8)
    packed, values, scales = packed.reshape(-1), values.reshape(-1), scales.reshape(-1)

    def loop(constant_run: int) -> Any:
        return decoding_loop(fast, constant_run, packed_in_rows(bits))

    if _in_loops(loop, walk, threads, packed, signed_bits(values), scales, left, fast.numbers) == 0:
        return True

    def again(span: _Span) -> None:
        codes = unpack(packed[span.bytes].reshape(span.walk.rows, -1), bits, span.walk.columns)
        job.run(span.walk, codes, values[span.elements], scales[span.blocks], 1)

    _each(again, list(_left(walk, left, bits)), threads)
    return True


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


def _walk(shape: tuple[int, ...], blocks: Blocks, bits: int, *arrays: Array) -> Walk | None:
    """How loops along rows go through contiguous arrays, if blocks of packed codes begin and end at bytes there."""
    if not shape or 0 in shape or not all(array.flags.c_contiguous for array in arrays):
        return None
    walk = plan(shape, blocks)
    if walk is None or not walk.along_rows or walk.run > PIECE or walk.run * bits % 8 != 0:
        return None
    is_row = walk.columns == shape[-1] or shape[-1] * bits % 8 == 0
    return walk if is_row and environment.is_default() else None


def _in_loops(make_loop: Callable[[int], Any], walk: Walk, threads: int | None, *arguments: Any) -> int:
    """Run loops over all of a walk: groups left. The marks come after three arrays."""
    count = in_threads(make_loop(walk.constant_run), walk, threads, *arguments)
    full = walk.columns // walk.run
    if walk.constant_run == 0 or full * walk.run == walk.columns:
        return count
    rows = walk.planes * walk.rows  # whose short last blocks are left by the loop for blocks of constant length
    arguments[3].reshape(rows, -1)[:, -1] = 0
    loop = make_loop(0)

    def work(some: Sequence[int]) -> Any:
        return loop(*arguments[:3], walk.shape, (some[0], some[-1] + 1, full, full + 1), *arguments[3:])

    rest: int = sum(in_pieces(work, shares(range(rows), walk.elements, threads)))
    return count - rows + rest


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

"""How the fast loops do an operation on a contiguous part of an array, and on arrays of any strides part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mxnum.dtypes import SIGNED, Array
from mxnum.engine import columns, environment, rows
from mxnum.engine.draws import (
    NO_DRAW,
    TALLEST,
    Draw,
    draw_from_seed,
    draw_from_turned_seed,
    draw_from_turned_words,
    draw_from_words,
)
from mxnum.engine.formulation import (
    Definition,
    Fast,
    decoding,
    decoding_anywhere,
    fast_decoding,
    fast_quantizing,
    keeping_scales,
    quantizing,
    quantizing_anywhere,
    requantizing,
    scaling,
)
from mxnum.engine.parts import NOTHING, Parts, cut
from mxnum.engine.pieces import in_pieces
from mxnum.engine.request import RandomBits, Settings
from mxnum.engine.storage import DIRECT, Storage
from mxnum.engine.turning import SQUARE, in_line
from mxnum.engine.walk import Chunk, Walk, in_threads, plan
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule

#: Elements alone are done as blocks of this length at scale 1.
RUN_OF_ELEMENTS = 4096
_BYTE = np.dtype(np.uint8)  # (numpy takes a dtype sooner than a type)


#: What is read and what is written, as integers, and the scales: contiguous, with one axis.
Flat = tuple[Array, Array, Array]
#: (flat, left, words, threads) -> groups left.
Step = Callable[[Flat, Array, Any, int | None], int]


class Steps(NamedTuple):
    """What a job does along one walk, with everything looked up but the arrays."""

    walk: Walk
    #: (what is read, what is written, scales), all contiguous -> the same as the loops take them.
    flat: Callable[[Array, Array, Array], Flat]
    #: The fast loop, which marks in `left` what it leaves; None where nothing beats the definition.
    fast: Step | None
    #: What is marked, by other loops.
    finish: Step

    def run(self, x: Array, out: Array, scales: Array, words: Any, threads: int | None) -> None:
        """All of some arrays; words are what random bits are drawn from."""
        self.run_flat(self.flat(x, out, scales), self.marks(), words, threads)

    def run_flat(self, flat: Flat, left: Array, words: Any, threads: int | None) -> None:
        """The same with marks that are clear, which they are again afterwards."""
        if self.fast is not None and environment.is_default():
            if self.fast(flat, left, words, threads) == 0:
                return
        else:
            left.fill(rows.MIXED)
        self.finish(flat, left, words, threads)
        left.fill(0)

    def marks(self) -> Array:
        """A mark for each group, clear."""
        return np.zeros(self.walk.groups, _BYTE)


def numbers_flat(x: Array, out: Array, scales: Array) -> Flat:
    """Floats, and codes or floats made of them."""
    return in_line(x).view(SIGNED[x.itemsize]), out.ravel().view(SIGNED[out.itemsize]), scales.ravel()


def codes_flat(codes: Array, out: Array, scales: Array) -> Flat:
    """Codes, and floats made of them."""
    return in_line(codes), out.ravel().view(SIGNED[out.itemsize]), scales.ravel()


@dataclass(frozen=True, eq=False)
class Quantization:
    """How codes, values or scales are made of floats. A job is one object for all calls that ask for the same."""

    source: ElementFormat
    #: What the fast loops do; None where there is nothing that beats the definition.
    fast: Fast | None
    #: How a scale is found; scales that were given are kept.
    scaling: Definition
    #: What the results are of finite numbers, where `fast` is not right but hardware floats are; None as above.
    anywhere: Definition | None
    #: What the results are; None where scales are all that is wanted.
    definition: Definition | None
    nan_blocks: bool
    scales_given: bool

    def run(
        self,
        walk: Walk,
        x: Array,
        out: Array,
        scales: Array,
        threads: int | None,
        random: RandomBits | None = None,
        first: int = 0,
    ) -> None:
        """One contiguous part, whose first element has that C-order index."""
        draw, words = drawn(random, first, walk)
        self.steps(walk, draw).run(x, out, scales, words, threads)

    def steps(self, walk: Walk, draw: Draw = NO_DRAW) -> Steps:
        def finish(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
            return self.finish(walk, flat, left, draw, words, threads)

        if self.fast is None:
            return Steps(walk, numbers_flat, None, finish)
        loop = in_threads(quantizing_loop(self, walk.along_rows, walk.constant_run, draw), walk)
        numbers = self.fast.numbers

        def quantize(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
            return loop(threads, flat, left, words, numbers)

        return Steps(walk, numbers_flat, quantize, finish)

    def finish(self, walk: Walk, flat: Flat, left: Array, draw: Draw, words: Any, threads: int | None) -> int:
        """The marked groups or panels of a contiguous part."""
        scale = (rows.scale_rows if walk.along_rows else columns.scale_columns)(self.scaling, self.source)
        in_threads(scale, walk)(threads, flat, left, self.nan_blocks)
        if self.definition is None:
            return 0
        return _convert(self.anywhere, self.definition, draw, self.source.max_code, walk, flat, left, words, threads)


@dataclass(frozen=True, eq=False)
class Decoding:
    """How values are made of codes."""

    fast: Fast | None
    #: What the values are wherever hardware floats are right; None where nothing beats the definition.
    anywhere: Definition | None
    definition: Definition

    def run(
        self,
        walk: Walk,
        codes: Array,
        out: Array,
        scales: Array,
        threads: int | None,
        random: RandomBits | None = None,
        first: int = 0,
    ) -> None:
        """One contiguous part; the last two arguments are those of a quantization."""
        self.steps(walk).run(codes, out, scales, 0, threads)

    def steps(self, walk: Walk) -> Steps:
        def finish(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
            return _convert(self.anywhere, self.definition, NO_DRAW, None, walk, flat, left, words, threads)

        if self.fast is None:
            return Steps(walk, codes_flat, None, finish)
        if walk.along_rows:
            loop = decoding_loop(self.fast, walk.constant_run)
        else:
            loop = columns.decode_columns(self.fast.special or self.fast.function, walk.constant_run)
        loop, numbers = in_threads(loop, walk), self.fast.numbers

        def decode(flat: Flat, left: Array, words: Any, threads: int | None) -> int:
            return loop(threads, flat, left, numbers)

        return Steps(walk, codes_flat, decode, finish)


def _convert(
    anywhere: Definition | None,
    definition: Definition,
    draw: Draw,
    greatest: int | None,
    walk: Walk,
    flat: Flat,
    left: Array,
    words: Any,
    threads: int | None,
) -> int:
    """What the fast loops have left."""
    nan = definition.function(0, E8M0.nan_code, 0)
    count = 1
    if anywhere is not None and environment.is_default():
        if walk.along_rows:
            convert = rows.convert_rows(anywhere, draw, greatest, walk.constant_run)
        else:
            convert = columns.convert_columns(anywhere, draw, greatest)
        count = in_threads(convert, walk)(threads, flat, left, words, nan)
    if count > 0:
        convert = (rows.convert_rows if walk.along_rows else columns.convert_columns)(definition, draw, None)
        in_threads(convert, walk)(threads, flat, left, words, nan)
    return 0


@lru_cache(maxsize=4096)
def quantizing_job(asked: Settings, values: bool) -> Quantization:
    """Codes, or with `values` the values of codes in the type of the input."""
    source, element, modes = asked.source, asked.element, (asked.rounding, asked.overflow)
    target = source if values else None
    return Quantization(
        source=source,
        fast=fast_quantizing(source, element, *modes, asked.scale_rule, target),
        anywhere=quantizing_anywhere(source, element, *modes, target),
        scaling=keeping_scales(source) if asked.scales_given else scaling(source, element, asked.scale_rule),
        definition=requantizing(source, element, *modes, source) if values else quantizing(source, element, *modes),
        nan_blocks=asked.nonfinite == Nonfinite.BLOCK,
        scales_given=asked.scales_given,
    )


@lru_cache(maxsize=4096)
def scaling_job(asked: Settings) -> Quantization:
    """Scales alone."""
    scale = scaling(asked.source, asked.element, asked.scale_rule)
    return Quantization(asked.source, None, scale, None, None, asked.nonfinite == Nonfinite.BLOCK, False)


@lru_cache(maxsize=1024)
def encoding_job(source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow) -> Quantization:
    """Codes of elements alone, at scales that are given."""
    fast = fast_quantizing(source, target, rounding, overflow, ScaleRule.FLOOR, None)
    anywhere = quantizing_anywhere(source, target, rounding, overflow, None)
    made = quantizing(source, target, rounding, overflow)
    return Quantization(source, fast, keeping_scales(source), anywhere, made, False, True)


@lru_cache(maxsize=1024)
def decoding_job(element: ElementFormat, target: ElementFormat) -> Decoding:
    """Values of codes."""
    return Decoding(fast_decoding(element, target), decoding_anywhere(element, target), decoding(element, target))


@lru_cache(maxsize=4096)
def quantizing_loop(
    job: Quantization, along_rows: bool, constant_run: int, draw: Draw, storage: Storage = DIRECT
) -> Any:
    """The fast loop of a job that has one; only loops along rows take another storage."""
    assert job.fast is not None
    narrows = along_rows and constant_run > 0 and job.fast.narrowed is not None
    fast = (job.fast.narrowed if narrows else None) or job.fast
    function, special = fast.function, fast.special
    is_common = constant_run == (rows.USUAL_RUN if along_rows else 1)
    if special is not None and is_common and not job.scales_given and (draw is NO_DRAW or draw.buffered):
        function = special
    kind = function, job.source, job.scales_given, draw, constant_run
    return rows.quantize_rows(*kind, storage, narrows) if along_rows else columns.quantize_columns(*kind)


def decoding_loop(fast: Fast, constant_run: int, storage: Storage = DIRECT) -> Any:
    """The fast loop along rows."""
    return rows.decode_rows(fast.special or fast.function, constant_run, storage)


def drawn(random: RandomBits | None, first: int, walk: Walk) -> tuple[Draw, Any]:
    """How random bits are drawn on a walk, and from what."""
    if random is not None and random.is_turned:
        return draw_from_turned_seed(random.sr_bits), (*random.key, walk.rows, walk.columns)
    if random is None or is_in_line(random):
        return drawn_in_line(random, first)
    words, tall, phase = random.words.T.reshape(-1), min(-(-walk.k // SQUARE) * SQUARE, TALLEST), 0
    if walk.panel >= walk.columns:  # a row is one part: those turned together need not be those of a band
        tall, phase = TALLEST, words.ctypes.data // words.itemsize % SQUARE
    return draw_from_turned_words(random.sr_bits), (words, walk.rows, tall, phase)


def drawn_in_line(random: RandomBits | None, first: int = 0) -> tuple[Draw, Any]:
    """The same from words that are in line, or a seed."""
    if random is None:
        return NO_DRAW, 0
    if random.words is not None:
        return draw_from_words(random.sr_bits), random.words.reshape(-1)
    return draw_from_seed(random.sr_bits), (*random.key, first)


def words_from(words: Any, start: int) -> Any:
    """What `drawn_in_line` returned, for a loop that begins at a later element."""
    if isinstance(words, tuple):
        *key, first = words
        return (*key, first + start)
    return words if isinstance(words, int) else words[start:]


def in_parts(
    job: Quantization | Decoding,
    blocks: Blocks,
    x: Array,
    results: Array | None,
    scales: Array,
    threads: int | None,
    random: RandomBits | None = None,
) -> bool:
    """Run a job over arrays of any strides; False, with nothing done, where no fast loop goes that way."""
    if x.size == 0:
        return True
    out = NOTHING if results is None else results
    in_line = x.flags.c_contiguous and out.flags.c_contiguous and scales.flags.c_contiguous
    walk = plan(x.shape, blocks) if in_line and is_in_line(random) else None
    if walk is not None and not walk.is_narrow and not np.may_share_memory(x, out):
        job.run(walk, x, out, scales, threads, random)
        return True
    parts = cut(blocks, x, results, (scales,), random, writes_sides=isinstance(job, Quantization), apart=True)
    if parts is None:
        if walk is None or walk.is_narrow:
            return False
        job.run(walk, x, out, scales, threads, random)  # in place, in blocks too large to copy
        return True

    def work(some: Sequence[Chunk], threads: int | None = 1) -> None:
        for part in parts.each(some):
            job.run(part.walk, part.x, part.out, part.sides[0], threads, part.random, part.first)

    _share(parts, work, threads)
    return True


def elements_in_parts(
    job: Quantization | Decoding, x: Array, out: Array, threads: int | None, random: RandomBits | None = None
) -> bool:
    """The same for elements alone."""
    if x.size == 0:
        return True
    if x.flags.c_contiguous and out.flags.c_contiguous and is_in_line(random):
        _run_elements(job, x, out, threads, random, 0)
        return True
    parts = cut((1,) * x.ndim, x, out, random=random)
    if parts is None:
        return False

    def work(some: Sequence[Chunk], threads: int | None = 1) -> None:
        for part in parts.each(some):
            _run_elements(job, part.x, part.out, threads, part.random, part.first)

    _share(parts, work, threads)
    return True


def _run_elements(
    job: Quantization | Decoding, x: Array, out: Array, threads: int | None, random: RandomBits | None, first: int
) -> None:
    walk = plan((x.size,), (RUN_OF_ELEMENTS,))
    assert walk is not None
    job.run(walk, x, out, unit_scales(-(-x.size // RUN_OF_ELEMENTS)), threads, random, first)


def _share(parts: Parts, work: Callable[..., None], threads: int | None) -> None:
    """Either the only part by all threads, or every thread its share of the chunks."""
    if parts.is_whole:
        work(parts.chunks, threads)
    else:
        in_pieces(work, parts.shares(threads))


def is_in_line(random: RandomBits | None) -> bool:
    """Whether random words, if they are given, can be read one after the other."""
    if random is None or random.words is None:
        return True
    return isinstance(random.words, np.ndarray) and random.words.flags.c_contiguous


def unit_scales(count: int) -> Array:
    """As many scales of 1."""
    scales = np.empty(count, _BYTE)
    scales.fill(E8M0.bias)  # (sooner done than `np.full`)
    return scales

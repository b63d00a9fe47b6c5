"""The operations on numpy arrays: fast loops where they go that way, the definition where they do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array, code_dtype, numpy_dtype, signed_bits
from mxnum.engine import columns, definition, environment, rows
from mxnum.engine.draws import NO_DRAW, Draw, draw_from_seed, draw_from_words
from mxnum.engine.formulation import (
    Definition,
    Fast,
    decoding,
    fast_decoding,
    fast_quantizing,
    keeping_scales,
    quantizing,
    requantizing,
    scaling,
)
from mxnum.engine.packing import pack, unpack
from mxnum.engine.request import RandomBits, Request, Settings
from mxnum.engine.walk import Walk, chunks, in_threads, overlaps_partly, plan
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule

__all__ = [
    "decode",
    "dequantize",
    "encode",
    "equal",
    "fake_quantize",
    "largest",
    "pack",
    "quantize",
    "shared_scale",
    "unpack",
]

#: Elements alone are done as blocks of this length at scale 1.
_RUN_OF_ELEMENTS = 4096

_NO_RESULTS = np.empty(1, np.uint8)

#: What to take of an array; None for all of it.
Where = tuple[slice, ...] | None
#: Codes, scales, and offsets with asymmetric scaling.
Quantized = tuple[Array, Array, Array | None]


def quantize(request: Request, out: Quantized | None = None) -> Quantized:
    """Codes, scales and offsets (None without asymmetric scaling) of an array of floats."""
    asked = request.settings
    if out is None:
        offsets = None if asked.offset_range is None else np.empty(asked.scales_shape, np.float16)
        out = np.empty(asked.shape, np.uint8), np.empty(asked.scales_shape, np.uint8), offsets
    codes, scales, offsets = out
    if offsets is not None or not _quantize_fast(request, codes, scales, values=False):
        definition.quantize(request, codes, scales, offsets)
    return out


def fake_quantize(request: Request, out: Array | None = None) -> Array:
    """The values of the quantized array in the type of the input."""
    asked, x = request.settings, request.x
    values = np.empty(asked.shape, x.dtype) if out is None else out
    if asked.offset_range is None and (out is None or not overlaps_partly(x, out)):
        scales = np.empty(asked.scales_shape, np.uint8)
        if _quantize_fast(request, values, scales, values=True):
            return values
    parts = quantize(request)
    return dequantize(*parts, asked.element, asked.blocks, asked.source, values, request.threads)


def shared_scale(request: Request, out: Array | None = None, threads: int | None = None) -> Array:
    """The E8M0 code of each block."""
    asked, x = request.settings, request.x
    scales = np.empty(asked.scales_shape, np.uint8) if out is None else out
    if asked.nonfinite == Nonfinite.RAISE:
        _check_finite(x, asked.source, asked.element, asked.nonfinite)
    if not _in_parts(_scaling_job(asked), asked.blocks, x, None, scales, threads):
        definition.shared_scale(x, asked.source, asked.element, asked.blocks, asked.scale_rule, asked.nonfinite, scales)
    return scales


def encode(
    x: Array,
    source: ElementFormat,
    target: ElementFormat,
    *,
    rounding: Rounding,
    overflow: Overflow,
    nonfinite: Nonfinite,
    random: RandomBits | None,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Codes of `target` for the elements alone, at scale 1."""
    codes = np.empty(x.shape, code_dtype(target.bits)) if out is None else out
    _check_finite(x, source, target, nonfinite)
    job = _encoding_job(source, target, rounding, overflow)
    if overlaps_partly(x, codes) or not _elements_in_parts(job, x, codes, threads, random):
        definition.encode(x, source, target, _one_block(x.shape), _unit_scales(1), codes, rounding, overflow, random)
    return codes


def dequantize(
    codes: Array,
    scales: Array,
    offsets: Array | None,
    element: ElementFormat,
    blocks: Blocks,
    target: ElementFormat,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Values of an MX array in `target`; without `out` a new contiguous array."""
    values = np.empty(codes.shape, numpy_dtype(target)) if out is None else out
    scales = np.ascontiguousarray(scales)
    job = _decoding_job(element, target)
    if offsets is not None or not _in_parts(job, blocks, codes, values, scales, threads):
        definition.dequantize(codes, scales, offsets, element, blocks, target, values)
    return values


def decode(
    codes: Array, element: ElementFormat, target: ElementFormat, out: Array | None = None, threads: int | None = None
) -> Array:
    """Values of element codes alone, at scale 1."""
    values = np.empty(codes.shape, numpy_dtype(target)) if out is None else out
    job = _decoding_job(element, target)
    if not _elements_in_parts(job, codes, values, threads):
        definition.dequantize(codes, _unit_scales(1), None, element, _one_block(codes.shape), target, values)
    return values


def largest(codes: Array) -> int:
    """The largest code."""
    return int(codes.max())


def equal(a: Array, b: Array) -> bool:
    """Whether shapes and bits are the same."""
    return np.array_equal(a.view(code_dtype(8 * a.itemsize)), b.view(code_dtype(8 * b.itemsize)))


@dataclass(frozen=True, eq=False)
class _Quantization:
    """How codes, values or scales are made of floats. A job is one object for all calls that ask for the same."""

    source: ElementFormat
    #: What the fast loops do; None where there is nothing that beats the definition.
    fast: Fast | None
    #: How a scale is found; scales that were given are kept.
    scaling: Definition
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
        where: Where = None,
        first: int = 0,
    ) -> None:
        """One contiguous part, found at `where` in the whole array, whose first element has the C-order index."""
        draw, words = _drawn(random, where, first)
        flat = signed_bits(x).reshape(-1), signed_bits(out).reshape(-1), scales.reshape(-1)
        if self.fast is not None and environment.is_default():
            left = np.zeros(walk.groups, np.uint8)
            loop = _quantizing_loop(self, walk.along_rows, walk.is_usual, walk.constant_run, draw)
            if in_threads(loop, walk, threads, *flat, left, words, self.fast.numbers) == 0:
                return
        else:
            left = np.ones(walk.groups, np.uint8)
        scale = rows.scale_rows if walk.along_rows else columns.scale_columns
        in_threads(scale(self.scaling, self.source, self.nan_blocks), walk, threads, *flat, left)
        if self.definition is not None:
            convert = rows.convert_rows if walk.along_rows else columns.convert_columns
            in_threads(convert(self.definition, draw), walk, threads, *flat, left, words)


@dataclass(frozen=True, eq=False)
class _Decoding:
    """How values are made of codes."""

    fast: Fast | None
    definition: Definition

    def run(
        self,
        walk: Walk,
        codes: Array,
        out: Array,
        scales: Array,
        threads: int | None,
        random: RandomBits | None = None,
        where: Where = None,
        first: int = 0,
    ) -> None:
        """One contiguous part; the last three arguments are those of a quantization."""
        flat = codes.reshape(-1), signed_bits(out).reshape(-1), scales.reshape(-1)
        if self.fast is not None and environment.is_default():
            left = np.zeros(walk.groups, np.uint8)
            if walk.along_rows:
                loop = rows.decode_rows(self.fast.function, walk.is_usual)
            else:
                loop = columns.decode_columns(self.fast.function, walk.constant_run)
            if in_threads(loop, walk, threads, *flat, left, self.fast.numbers) == 0:
                return
        else:
            left = np.ones(walk.groups, np.uint8)
        convert = rows.convert_rows if walk.along_rows else columns.convert_columns
        in_threads(convert(self.definition, NO_DRAW), walk, threads, *flat, left, 0)


@lru_cache(maxsize=4096)
def _quantizing_job(asked: Settings, values: bool) -> _Quantization:
    """Codes, or with `values` the values of codes in the type of the input."""
    source, element, modes = asked.source, asked.element, (asked.rounding, asked.overflow)
    target = source if values else None
    return _Quantization(
        source=source,
        fast=fast_quantizing(source, element, *modes, asked.scale_rule, target),
        scaling=keeping_scales(source) if asked.scales_given else scaling(source, element, asked.scale_rule),
        definition=requantizing(source, element, *modes, source) if values else quantizing(source, element, *modes),
        nan_blocks=asked.nonfinite == Nonfinite.BLOCK,
        scales_given=asked.scales_given,
    )


@lru_cache(maxsize=4096)
def _scaling_job(asked: Settings) -> _Quantization:
    scale = scaling(asked.source, asked.element, asked.scale_rule)
    return _Quantization(asked.source, None, scale, None, asked.nonfinite == Nonfinite.BLOCK, False)


@lru_cache(maxsize=1024)
def _encoding_job(
    source: ElementFormat, target: ElementFormat, rounding: Rounding, overflow: Overflow
) -> _Quantization:
    fast = fast_quantizing(source, target, rounding, overflow, ScaleRule.FLOOR, None)
    made = quantizing(source, target, rounding, overflow)
    return _Quantization(source, fast, keeping_scales(source), made, False, True)


@lru_cache(maxsize=1024)
def _decoding_job(element: ElementFormat, target: ElementFormat) -> _Decoding:
    return _Decoding(fast_decoding(element, target), decoding(element, target))


@lru_cache(maxsize=4096)
def _quantizing_loop(job: _Quantization, along_rows: bool, is_usual: bool, constant_run: int, draw: Draw) -> Any:
    assert job.fast is not None
    kind = job.fast.function, job.source, job.scales_given, draw
    return rows.quantize_rows(*kind, is_usual) if along_rows else columns.quantize_columns(*kind, constant_run)


def _drawn(random: RandomBits | None, where: Where, first: int) -> tuple[Draw, Any]:
    """How random bits are drawn, and from what."""
    if random is None:
        return NO_DRAW, 0
    if random.words is not None:
        words = random.words if where is None else random.words[where]
        return draw_from_words(random.sr_bits), np.ascontiguousarray(words).reshape(-1)
    return draw_from_seed(random.sr_bits), (*random.key, first)


def _quantize_fast(request: Request, results: Array, scales: Array, *, values: bool) -> bool:
    """Fill `results` with codes, or with values in the type of the input, and the scales.

    False, with nothing done, where no fast loop goes that way.
    """
    asked = request.settings
    _check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    if request.scales is not None:
        scales[...] = request.scales
    job = _quantizing_job(asked, values)
    return _in_parts(job, asked.blocks, request.x, results, scales, request.threads, request.random)


def _in_parts(
    job: _Quantization | _Decoding,
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
    walk = plan(x.shape, blocks)
    if walk is None or not scales.flags.c_contiguous:
        return False
    out = _NO_RESULTS if results is None else results
    if x.flags.c_contiguous and out.flags.c_contiguous:
        job.run(walk, x, out, scales, threads, random)
        return True
    parts = chunks(x.shape, blocks)
    if parts is None:
        return False
    for where, blocks_where, first in parts:
        some = np.ascontiguousarray(x[where])
        walk = plan(some.shape, blocks)
        assert walk is not None
        if results is None or out.flags.c_contiguous:
            into = out if results is None else out[where]
            job.run(walk, some, into, scales[blocks_where], threads, random, where, first)
        else:
            into = np.empty(some.shape, out.dtype)
            job.run(walk, some, into, scales[blocks_where], threads, random, where, first)
            out[where] = into
    return True


def _elements_in_parts(
    job: _Quantization | _Decoding, x: Array, out: Array, threads: int | None, random: RandomBits | None = None
) -> bool:
    """The same for elements alone."""
    if x.size == 0:
        return True
    parts: Any = [(None, None, 0)]
    if not (x.flags.c_contiguous and out.flags.c_contiguous):
        parts = chunks(x.shape, (1,) * x.ndim)
    if parts is None:
        return False
    for where, _, first in parts:
        some = np.ascontiguousarray(x if where is None else x[where]).reshape(-1)
        walk = plan(some.shape, (_RUN_OF_ELEMENTS,))
        assert walk is not None
        into = out.reshape(-1) if where is None else out[where]
        target = into if into.flags.c_contiguous else np.empty(into.shape, into.dtype)
        scales = _unit_scales(-(-some.size // _RUN_OF_ELEMENTS))
        job.run(walk, some, target.reshape(-1), scales, threads, random, where, first)
        if target is not into:
            into[...] = target
    return True


def _one_block(shape: tuple[int, ...]) -> Blocks:
    return tuple(max(1, length) for length in shape)


def _unit_scales(count: int) -> Array:
    return np.full(count, E8M0.bias, np.uint8)


def _check_finite(x: Array, source: ElementFormat, element: ElementFormat, nonfinite: Nonfinite) -> None:
    """Raise where the policy, or an element that has no NaN, says so."""
    must_look = nonfinite == Nonfinite.RAISE or (nonfinite == Nonfinite.ELEMENT and element.nan_code is None)
    if must_look and not _all_finite(x, source):
        _, state = definition.extents(x, source, _one_block(x.shape))
        definition.check_state(x, source, state, element, nonfinite)


def _all_finite(x: Array, source: ElementFormat) -> bool:
    loop = rows.greatest_magnitude(source)
    if x.flags.c_contiguous:
        return bool(loop(signed_bits(x).reshape(-1)) <= source.max_code)
    parts = chunks(x.shape, (1,) * x.ndim)
    return parts is not None and all(
        loop(signed_bits(np.ascontiguousarray(x[where])).reshape(-1)) <= source.max_code for where, _, _ in parts
    )

"""The operations on numpy arrays: fast loops where they go that way, the definition where they do not."""

from __future__ import annotations

from dataclasses import dataclass
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
from mxnum.engine.request import RandomBits, Request
from mxnum.engine.walk import Walk, chunks, in_threads, overlaps_partly, plan
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks, scales_shape
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

#: Codes, scales, and offsets with asymmetric scaling.
Quantized = tuple[Array, Array, Array | None]


def quantize(request: Request, out: Quantized | None = None) -> Quantized:
    """Codes, scales and offsets (None without asymmetric scaling) of an array of floats."""
    if out is None:
        shape = scales_shape(request.x.shape, request.blocks)
        offsets = None if request.offset_range is None else np.empty(shape, np.float16)
        out = np.empty(request.x.shape, np.uint8), np.empty(shape, np.uint8), offsets
    codes, scales, offsets = out
    if offsets is not None or not _quantize_fast(request, codes, scales, None):
        definition.quantize(request, codes, scales, offsets)
    return out


def fake_quantize(request: Request, out: Array | None = None) -> Array:
    """The values of the quantized array in the type of the input."""
    values = np.empty(request.x.shape, request.x.dtype) if out is None else out
    if request.offset_range is None and not overlaps_partly(request.x, values):
        scales = np.empty(scales_shape(request.x.shape, request.blocks), np.uint8)
        if _quantize_fast(request, values, scales, request.source):
            return values
    parts = quantize(request)
    return dequantize(*parts, request.element, request.blocks, request.source, values, request.threads)


def shared_scale(
    x: Array,
    source: ElementFormat,
    element: ElementFormat,
    blocks: Blocks,
    scale_rule: ScaleRule,
    nonfinite: Nonfinite,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """The E8M0 code of each block."""
    scales = np.empty(scales_shape(x.shape, blocks), np.uint8) if out is None else out
    if nonfinite == Nonfinite.RAISE:
        _check_finite(x, source, element, nonfinite)
    nan_blocks = nonfinite == Nonfinite.BLOCK
    job = _Quantization(source, None, scaling(source, element, scale_rule), None, nan_blocks, False, None)
    if not _in_parts(job, blocks, x, None, scales, threads):
        definition.shared_scale(x, source, element, blocks, scale_rule, nonfinite, scales)
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
    fast = fast_quantizing(source, target, rounding, overflow, ScaleRule.FLOOR, None)
    made = quantizing(source, target, rounding, overflow)
    job = _Quantization(source, fast, keeping_scales(source), made, False, True, random)
    if overlaps_partly(x, codes) or not _elements_in_parts(job, x, codes, threads):
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
    job = _Decoding(fast_decoding(element, target), decoding(element, target))
    if offsets is not None or not _in_parts(job, blocks, codes, values, scales, threads):
        definition.dequantize(codes, scales, offsets, element, blocks, target, values)
    return values


def decode(
    codes: Array, element: ElementFormat, target: ElementFormat, out: Array | None = None, threads: int | None = None
) -> Array:
    """Values of element codes alone, at scale 1."""
    values = np.empty(codes.shape, numpy_dtype(target)) if out is None else out
    job = _Decoding(fast_decoding(element, target), decoding(element, target))
    if not _elements_in_parts(job, codes, values, threads):
        definition.dequantize(codes, _unit_scales(1), None, element, _one_block(codes.shape), target, values)
    return values


def largest(codes: Array) -> int:
    """The largest code."""
    return int(codes.max())


def equal(a: Array, b: Array) -> bool:
    """Whether shapes and bits are the same."""
    return np.array_equal(a.view(code_dtype(8 * a.itemsize)), b.view(code_dtype(8 * b.itemsize)))


@dataclass(frozen=True)
class _Quantization:
    """How codes, values or scales are made of floats, and from what random bits."""

    source: ElementFormat
    #: What the fast loops do; None where there is nothing that beats the definition.
    fast: Fast | None
    #: How a scale is found; scales that were given are kept.
    scaling: Definition
    #: What the results are; None where scales are all that is wanted.
    definition: Definition | None
    nan_blocks: bool
    scales_given: bool
    random: RandomBits | None

    def run(
        self, walk: Walk, x: Array, out: Array, scales: Array, where: tuple[slice, ...], first: int, threads: int | None
    ) -> None:
        """One contiguous part, found at `where` in the whole array, whose first element has the C-order index."""
        draw, words = self._draw(where, first)
        flat = signed_bits(x).reshape(-1), signed_bits(out).reshape(-1), scales.reshape(-1)
        if self.fast is not None and environment.is_default():
            left = np.zeros(walk.groups, np.uint8)
            kind = self.fast.function, self.source, self.scales_given, draw
            if walk.along_rows:
                loop = rows.quantize_rows(*kind, walk.is_usual)
            else:
                loop = columns.quantize_columns(*kind, walk.constant_run)
            if in_threads(loop, walk, threads, *flat, left, words, self.fast.numbers) == 0:
                return
        else:
            left = np.ones(walk.groups, np.uint8)
        scale = rows.scale_rows if walk.along_rows else columns.scale_columns
        in_threads(scale(self.scaling, self.source, self.nan_blocks), walk, threads, *flat, left)
        if self.definition is not None:
            convert = rows.convert_rows if walk.along_rows else columns.convert_columns
            in_threads(convert(self.definition, draw), walk, threads, *flat, left, words)

    def _draw(self, where: tuple[slice, ...], first: int) -> tuple[Draw, Any]:
        if self.random is None:
            return NO_DRAW, 0
        if self.random.words is not None:
            words = np.ascontiguousarray(self.random.words[where]).reshape(-1)
            return draw_from_words(self.random.sr_bits), words
        return draw_from_seed(self.random.sr_bits), (*self.random.key, first)


@dataclass(frozen=True)
class _Decoding:
    """How values are made of codes."""

    fast: Fast | None
    definition: Definition

    def run(
        self, walk: Walk, codes: Array, out: Array, scales: Array, where: Any, first: int, threads: int | None
    ) -> None:
        """One contiguous part."""
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


def _quantize_fast(request: Request, results: Array, scales: Array, target: ElementFormat | None) -> bool:
    """Fill `results` with codes, or with values in `target`, and the scales; False where no fast loop goes that way."""
    x, source, element = request.x, request.source, request.element
    _check_finite(x, source, element, request.nonfinite)
    modes = request.rounding, request.overflow
    made = quantizing(source, element, *modes) if target is None else requantizing(source, element, *modes, target)
    given = request.scales is not None
    if given:
        scales[...] = request.scales
    job = _Quantization(
        source=source,
        fast=fast_quantizing(source, element, *modes, request.scale_rule, target),
        scaling=keeping_scales(source) if given else scaling(source, element, request.scale_rule),
        definition=made,
        nan_blocks=request.nonfinite == Nonfinite.BLOCK,
        scales_given=given,
        random=request.random,
    )
    return _in_parts(job, request.blocks, x, results, scales, request.threads)


def _in_parts(
    job: _Quantization | _Decoding, blocks: Blocks, x: Array, results: Array | None, scales: Array, threads: int | None
) -> bool:
    """Run a job over arrays of any strides; False, with nothing done, where no fast loop goes that way."""
    if x.size == 0:
        return True
    whole = (slice(None),) * x.ndim
    out = np.empty(1, np.uint8) if results is None else results
    if not scales.flags.c_contiguous:
        return False
    if x.flags.c_contiguous and out.flags.c_contiguous:
        walk = plan(x.shape, blocks)
        if walk is not None:
            job.run(walk, x, out, scales, whole, 0, threads)
        return walk is not None
    parts = chunks(x.shape, blocks)
    if parts is None or plan(x.shape, blocks) is None:
        return False
    for where, blocks_where, first in parts:
        some = np.ascontiguousarray(x[where])
        walk = plan(some.shape, blocks)
        assert walk is not None
        if results is None or out.flags.c_contiguous:
            into = out if results is None else out[where]
            job.run(walk, some, into, scales[blocks_where], where, first, threads)
        else:
            into = np.empty(some.shape, out.dtype)
            job.run(walk, some, into, scales[blocks_where], where, first, threads)
            out[where] = into
    return True


def _elements_in_parts(job: _Quantization | _Decoding, x: Array, out: Array, threads: int | None) -> bool:
    """The same for elements alone."""
    if x.size == 0:
        return True
    parts: Any = [((slice(None),) * x.ndim, None, 0)]
    if not (x.flags.c_contiguous and out.flags.c_contiguous):
        parts = chunks(x.shape, (1,) * x.ndim)
    if parts is None:
        return False
    for where, _, first in parts:
        some = np.ascontiguousarray(x[where]).reshape(-1)
        walk = plan(some.shape, (_RUN_OF_ELEMENTS,))
        assert walk is not None
        into = out.reshape(-1) if out.ndim == 0 else out[where]
        target = into if into.flags.c_contiguous else np.empty(into.shape, into.dtype)
        job.run(walk, some, target.reshape(-1), _unit_scales(-(-some.size // _RUN_OF_ELEMENTS)), where, first, threads)
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

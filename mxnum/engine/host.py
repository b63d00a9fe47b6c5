"""The operations on numpy arrays: fast loops where they go that way, the definition where they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mxnum.dtypes import Array, code_dtype, numpy_dtype, signed_bits
from mxnum.engine import asymmetric, definition, packed, rows
from mxnum.engine.jobs import (
    decoding_job,
    elements_in_parts,
    encoding_job,
    in_parts,
    quantizing_job,
    scaling_job,
    unit_scales,
)
from mxnum.engine.packing import pack, unpack
from mxnum.engine.parts import cut, new_beside
from mxnum.engine.pieces import in_pieces
from mxnum.engine.plans import dequantize_as_planned, quantize_as_planned
from mxnum.engine.request import RandomBits, Request, must_look
from mxnum.engine.walk import overlaps_partly, plan, shares
from mxnum.formats import ElementFormat
from mxnum.layout import Blocks, packed_length
from mxnum.modes import Nonfinite, Overflow, Rounding

__all__ = [
    "decode",
    "dequantize",
    "dequantize_as_planned",
    "dequantize_packed",
    "encode",
    "equal",
    "fake_quantize",
    "fake_quantizer",
    "largest",
    "pack",
    "quantize",
    "quantize_as_planned",
    "quantize_packed",
    "shared_scale",
    "unpack",
]

#: Codes, scales, and offsets with asymmetric scaling.
Quantized = tuple[Array, Array, Array | None]


def quantize(request: Request, out: Quantized | None = None) -> Quantized:
    """Codes, scales and offsets (None without asymmetric scaling) of an array of floats, in the order of its memory."""
    asked = request.settings
    if out is None:
        x, side = request.x, asked.scales_shape
        offsets = None if asked.offset_range is None else new_beside(x, side, np.float16)
        if x.flags.c_contiguous:  # (a call costs more than what it would ask here)
            out = np.empty(asked.shape, np.uint8), np.empty(side, np.uint8), offsets
        else:
            out = new_beside(x, asked.shape, np.uint8), new_beside(x, side, np.uint8), offsets
    codes, scales, offsets = out
    if offsets is not None:
        _check_finite(request.x, asked.source, asked.element, asked.nonfinite)
        done = asymmetric.quantize(request, codes, scales, offsets)
    else:
        done = _quantize_fast(request, codes, scales, values=False)
    if not done:
        definition.quantize(request, codes, scales, offsets)
    return out


def quantize_packed(request: Request, out: Quantized | None = None) -> Quantized:
    """The same with codes as `pack` makes them, in C order."""
    asked, x, bits = request.settings, request.x, request.settings.element.bits
    if out is None:
        length = asked.shape[-1] if asked.shape else 1
        row = np.empty((*asked.shape[:-1], packed_length(length, bits)), np.uint8)
        offsets = None if asked.offset_range is None else np.empty(asked.scales_shape, np.float16)
        out = row, np.empty(asked.scales_shape, np.uint8), offsets
    codes, scales, offsets = out
    if offsets is None:
        _check_finite(x, asked.source, asked.element, asked.nonfinite)
        if request.scales is not None:
            scales[...] = request.scales
        job = quantizing_job(asked, False)
        if packed.quantize(job, asked.blocks, x, codes, scales, bits, request.threads, request.random):
            return out
    unpacked, _, _ = quantize(request, (new_beside(x, asked.shape, np.uint8), scales, offsets))
    pack(unpacked if asked.shape else unpacked[np.newaxis], bits, codes)
    return out


def fake_quantize(request: Request, out: Array | None = None) -> Array:
    """The values of the quantized array in the type of the input."""
    asked, x = request.settings, request.x
    values = new_beside(x, asked.shape, x.dtype) if out is None else out
    if asked.offset_range is not None:
        _check_finite(x, asked.source, asked.element, asked.nonfinite)
        if asymmetric.fake_quantize(request, values):
            return values
    elif out is None or not overlaps_partly(x, out):
        scales = new_beside(x, asked.scales_shape, np.uint8)
        if _quantize_fast(request, values, scales, values=True):
            return values
    parts = quantize(request)
    return dequantize(*parts, asked.element, asked.blocks, asked.source, values, request.threads)


def fake_quantizer(request: Request, out: Array) -> Callable[[], Array]:
    """`fake_quantize` of the numbers that the array has when called, without random bits, offsets and given scales."""
    asked, x = request.settings, request.x
    walk = plan(asked.shape, asked.blocks) if x.size else None
    is_plain = x.flags.c_contiguous and out.flags.c_contiguous and not np.may_share_memory(x, out)
    if walk is None or walk.is_narrow or not is_plain or must_look(asked.element, asked.nonfinite):
        return partial(fake_quantize, request, out)
    scales = np.empty(asked.scales_shape, np.uint8)
    steps, threads = quantizing_job(asked, True).steps(walk), request.threads
    flat, left = steps.flat(x, out, scales), steps.marks()

    def fake_quantize_again() -> Array:
        steps.run_flat(flat, left, 0, threads)
        return out

    return fake_quantize_again


def shared_scale(request: Request, out: Array | None = None, threads: int | None = None) -> Array:
    """The E8M0 code of each block."""
    asked, x = request.settings, request.x
    scales = new_beside(x, asked.scales_shape, np.uint8) if out is None else out
    if asked.nonfinite == Nonfinite.RAISE:
        _check_finite(x, asked.source, asked.element, asked.nonfinite)
    if not in_parts(scaling_job(asked), asked.blocks, x, None, scales, threads):
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
    codes = new_beside(x, x.shape, code_dtype(target.bits)) if out is None else out
    _check_finite(x, source, target, nonfinite)
    job = encoding_job(source, target, rounding, overflow)
    if overlaps_partly(x, codes) or not elements_in_parts(job, x, codes, threads, random):
        definition.encode(x, source, target, _one_block(x.shape), unit_scales(1), codes, rounding, overflow, random)
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
    """Values of an MX array in `target`; without `out` a new array in the order of the memory of the codes."""
    values = new_beside(codes, codes.shape, numpy_dtype(target)) if out is None else out
    if offsets is not None:
        done = asymmetric.dequantize(codes, scales, offsets, element, blocks, target, values)
    else:
        done = in_parts(decoding_job(element, target), blocks, codes, values, scales, threads)
    if not done:
        definition.dequantize(codes, scales, offsets, element, blocks, target, values)
    return values


def dequantize_packed(
    codes: Array,
    shape: tuple[int, ...],
    scales: Array,
    offsets: Array | None,
    element: ElementFormat,
    blocks: Blocks,
    target: ElementFormat,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """The same of packed codes that have that shape."""
    values = np.empty(shape, numpy_dtype(target)) if out is None else out
    job, bits = decoding_job(element, target), element.bits
    if offsets is None and packed.dequantize(job, blocks, codes, values, scales, bits, threads):
        return values
    if np.may_share_memory(codes, values):
        codes = codes.copy()

    parts = list(packed.each_part(shape, blocks, bits))

    def work(some: Sequence[Any]) -> None:
        for where, bytes_where, sides in some:
            part = values[where]
            unpacked = unpack(codes[bytes_where], bits, part.shape[-1] if shape else 1).reshape(part.shape)
            beside = None if offsets is None else offsets[sides]
            at_once = threads if len(parts) == 1 else 1
            dequantize(unpacked, scales[sides], beside, element, blocks, target, part, at_once)

    in_pieces(work, shares(parts, values.size, threads))
    return values


def decode(
    codes: Array, element: ElementFormat, target: ElementFormat, out: Array | None = None, threads: int | None = None
) -> Array:
    """Values of element codes alone, at scale 1."""
    values = new_beside(codes, codes.shape, numpy_dtype(target)) if out is None else out
    job = decoding_job(element, target)
    if not elements_in_parts(job, codes, values, threads):
        definition.dequantize(codes, unit_scales(1), None, element, _one_block(codes.shape), target, values)
    return values


def largest(codes: Array) -> int:
    """The largest code."""
    return int(codes.max())


def equal(a: Array, b: Array) -> bool:
    """Whether shapes and bits are the same."""
    return np.array_equal(a.view(code_dtype(8 * a.itemsize)), b.view(code_dtype(8 * b.itemsize)))


def _quantize_fast(request: Request, results: Array, scales: Array, *, values: bool) -> bool:
    """Fill `results` with codes, or with values in the type of the input, and the scales.

    False, with nothing done, where no fast loop goes that way.
    """
    asked = request.settings
    _check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    if request.scales is not None:
        scales[...] = request.scales
    job = quantizing_job(asked, values)
    return in_parts(job, asked.blocks, request.x, results, scales, request.threads, request.random)


def _one_block(shape: tuple[int, ...]) -> Blocks:
    return tuple(max(1, length) for length in shape)


def _check_finite(x: Array, source: ElementFormat, element: ElementFormat, nonfinite: Nonfinite) -> None:
    """Raise where the policy, or an element that has no NaN, says so."""
    if must_look(element, nonfinite) and not _all_finite(x, source):
        _, state = definition.extents(x, source, _one_block(x.shape))
        definition.check_state(x, source, state, element, nonfinite)


def _all_finite(x: Array, source: ElementFormat) -> bool:
    loop = rows.greatest_magnitude(source)
    if x.flags.c_contiguous:
        return bool(loop(signed_bits(x).reshape(-1)) <= source.max_code)
    parts = cut((1,) * x.ndim, x)
    return parts is not None and all(loop(signed_bits(part.x).reshape(-1)) <= source.max_code for part in parts.each())

"""The passes over numpy arrays that make up each operation, in terms of the loops of `cpu`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from threading import Thread
from typing import Any

import numba
import numpy as np

from mxnum import errors
from mxnum.dtypes import Array, code_dtype, numpy_dtype, signed_bits, stored_bits
from mxnum.engine import cpu, environment, paths, rows
from mxnum.engine.packing import pack_rows, packed_length, unpack_rows
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks, collapse, element_strides, scales_shape
from mxnum.modes import Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule
from mxnum.scalar.offset import difference_format

#: Below this many elements a thread costs more than it saves.
ELEMENTS_PER_THREAD = 1 << 19

_UNIT_SCALE = np.array([E8M0.bias], np.uint8)


@dataclass(frozen=True)
class RandomBits:
    """Where stochastic rounding takes its bits: an array of words, or a Philox seed and stream."""

    sr_bits: int
    words: Array | None = None
    seed: int = 0
    stream: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        low = 0xFFFFFFFF
        return self.seed & low, self.seed >> 32, self.stream & low, self.stream >> 32


@dataclass(frozen=True)
class Request:
    """A quantization, with every argument checked and resolved."""

    x: Array
    source: ElementFormat
    element: ElementFormat
    blocks: Blocks
    rounding: Rounding
    scale_rule: ScaleRule
    overflow: Overflow
    nonfinite: Nonfinite
    #: Scale codes that the caller chose.
    scales: Array | None
    #: How the scale is found under asymmetric scaling; None without an offset.
    offset_range: OffsetRange | None
    random: RandomBits | None

    @property
    def is_fast(self) -> bool:
        """Whether the row loops cover it: blocks along contiguous rows, nothing out of the ordinary asked for."""
        return (
            paths.rounds_fast(self.source, self.element, self.rounding, self.overflow)
            and self.nonfinite == Nonfinite.BLOCK
            and self.scales is None
            and self.offset_range is None
            and are_rows(self.blocks, self.x)
        )


def quantize(request: Request) -> tuple[Array, Array, Array | None]:
    """Codes, scales and offsets (None without asymmetric scaling) of an array of floats."""
    if request.is_fast:
        codes = np.empty(request.x.shape, np.uint8)
        scales = _quantize_rows(rows.quantize_rows(request.element, request.scale_rule), request, codes)
        return codes, scales, None
    return _quantize_by_definition(request)


def fake_quantize(request: Request, out: Array | None = None) -> Array:
    """The values of the quantized array in the type of the input."""
    if request.is_fast and (out is None or _may_be_written_while_reading(request.x, out)):
        values = np.empty(request.x.shape, request.x.dtype) if out is None else out
        loop = rows.fake_quantize_rows(request.element, request.scale_rule)
        _quantize_rows(loop, request, values.view(np.int32))
        return values
    codes, scales, offsets = quantize(request)
    return dequantize(codes, scales, offsets, request.element, request.blocks, request.source, out)


def _quantize_by_definition(request: Request) -> tuple[Array, Array, Array | None]:
    x, source, element, blocks = request.x, request.source, request.element, request.blocks
    scale_rule, nonfinite, offset_range = request.scale_rule, request.nonfinite, request.offset_range
    given_scales = request.scales
    amax, state = _extents(x, source, blocks)
    _check_state(x, source, state, element, nonfinite)
    scales = np.empty(amax.shape, np.uint8)
    offsets = None
    if offset_range is not None:
        largest, smallest = _range(x, source, blocks)
        offsets = np.empty(amax.shape, np.uint16)
        cpu.offsets_from_range(source)(largest.ravel(), smallest.ravel(), offsets.ravel())
        x = _differences(x, source, blocks, offsets)
        if offset_range == OffsetRange.HALF and given_scales is None:
            fill = cpu.scales_from_half_range(source, element, scale_rule)
            fill(largest.ravel(), smallest.ravel(), scales.ravel())
        source = difference_format(source)
        amax, _ = _extents(x, source, blocks)
    if given_scales is not None:
        scales[...] = given_scales
    elif offset_range != OffsetRange.HALF:
        cpu.scales_from_amax(source, element, scale_rule)(amax.ravel(), scales.ravel())
    if nonfinite == Nonfinite.BLOCK:
        scales[state != 0] = E8M0.nan_code
    if offsets is not None:
        offsets[scales == E8M0.nan_code] = 0
        offsets = offsets.view(np.float16)
    codes = np.empty(x.shape, np.uint8)
    _encode(x, source, element, blocks, scales, codes, request.rounding, request.overflow, request.random)
    return codes, scales, offsets


def shared_scale(
    x: Array, source: ElementFormat, element: ElementFormat, blocks: Blocks, scale_rule: ScaleRule, nonfinite: Nonfinite
) -> Array:
    """The E8M0 code of each block."""
    amax, state = _extents(x, source, blocks)
    if nonfinite == Nonfinite.RAISE:
        _check_state(x, source, state, element, nonfinite)
    scales = np.empty(amax.shape, np.uint8)
    cpu.scales_from_amax(source, element, scale_rule)(amax.ravel(), scales.ravel())
    if nonfinite == Nonfinite.BLOCK:
        scales[state != 0] = E8M0.nan_code
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
) -> Array:
    """Codes of `target` for the elements alone, at scale 1."""
    whole = _one_block(x.shape)
    _, state = _extents(x, source, whole)
    _check_state(x, source, state, target, nonfinite)
    codes = np.empty(x.shape, code_dtype(target.bits))
    _encode(x, source, target, whole, _UNIT_SCALE, codes, rounding, overflow, random)
    return codes


def dequantize(
    codes: Array,
    scales: Array,
    offsets: Array | None,
    element: ElementFormat,
    blocks: Blocks,
    target: ElementFormat,
    out: Array | None = None,
) -> Array:
    """Values of an MX array in `target`; without `out` a new contiguous array."""
    result = np.empty(codes.shape, numpy_dtype(target)) if out is None else out
    if offsets is None and paths.decodes_fast(element, target) and are_rows(blocks, codes, result):
        _in_rows(rows.dequantize_rows(element), blocks, np.ascontiguousarray(scales), codes, signed_bits(result))
        return result
    (elements, values), blocks, strides = _aligned(blocks, codes, stored_bits(result))
    flat = np.ascontiguousarray(scales).ravel()
    if offsets is None:
        cpu.decode_elements(element, target)(elements, blocks, strides, flat, values, 0)
    else:
        bits = np.ascontiguousarray(offsets).ravel().view(np.uint16)
        cpu.decode_elements_offset(element, target)(elements, blocks, strides, flat, values, bits)
    return result


def decode(codes: Array, element: ElementFormat, target: ElementFormat, out: Array | None = None) -> Array:
    """Values of element codes alone, at scale 1."""
    return dequantize(codes, _UNIT_SCALE, None, element, _one_block(codes.shape), target, out)


def pack(codes: Array, bits: int) -> Array:
    """Each row along the last axis as a little-endian bit stream."""
    length = codes.shape[-1]
    packed = np.empty((*codes.shape[:-1], packed_length(length, bits)), np.uint8)
    count = codes.size // length if length else 0
    pack_rows(bits)(np.ascontiguousarray(codes).reshape(count, length), packed.reshape(count, packed.shape[-1]))
    return packed


def unpack(packed: Array, bits: int, length: int) -> Array:
    """The inverse of `pack` for rows of `length` codes."""
    codes = np.empty((*packed.shape[:-1], length), np.uint8)
    count = codes.size // length if length else 0
    unpack_rows(bits)(np.ascontiguousarray(packed).reshape(count, packed.shape[-1]), codes.reshape(count, length))
    return codes


def largest(codes: Array) -> int:
    """The largest code."""
    return int(codes.max())


def equal(a: Array, b: Array) -> bool:
    """Whether shapes and bits are the same."""
    return np.array_equal(a.view(code_dtype(8 * a.itemsize)), b.view(code_dtype(8 * b.itemsize)))


def are_rows(blocks: Blocks, *arrays: Array) -> bool:
    """Whether blocks lie along contiguous rows of all the arrays."""
    return all(block == 1 for block in blocks[:-1]) and all(array.flags.c_contiguous for array in arrays)


def _may_be_written_while_reading(x: Array, out: Array) -> bool:
    """Whether each element of `out` can be stored as soon as that of `x` is read: apart, or exactly in place."""
    return out.flags.c_contiguous and (out.ctypes.data == x.ctypes.data or not np.may_share_memory(x, out))


def _quantize_rows(loop: Any, request: Request, out: Array) -> Array:
    scales = np.empty(scales_shape(request.x.shape, request.blocks), np.uint8)
    _in_rows(loop, request.blocks, scales, signed_bits(request.x), out, environment.is_default())
    return scales


def _in_rows(loop: Any, blocks: Blocks, scales: Array, source: Array, target: Array, *extra: Any) -> None:
    """Run a row loop over all of `source`, in as few rows as the blocks allow and as many threads as are worth it.

    Threads are made for the call: they inherit its floating-point environment.
    """
    if source.size == 0:
        return
    run = blocks[-1] if blocks else 1
    length = source.shape[-1] if source.ndim else 1
    if length % run == 0:  # no short block: all rows are one
        length = source.size
    count, per_row = source.size // length, -(-length // run)
    source, target, scales = (
        source.reshape(count, length),
        target.reshape(count, length),
        scales.reshape(count, per_row),
    )
    threads = min(numba.get_num_threads(), source.size // ELEMENTS_PER_THREAD)
    if threads <= 1:
        loop(source, run, scales, target, *extra)
        return
    pieces = []
    if count >= threads:
        bounds = [count * t // threads for t in range(threads + 1)]
        pieces = [(slice(a, b), slice(None), slice(None)) for a, b in pairwise(bounds)]
    else:
        bounds = [per_row * t // threads for t in range(threads + 1)]
        pieces = [(slice(None), slice(a * run, b * run), slice(a, b)) for a, b in pairwise(bounds)]
    workers = [
        Thread(target=loop, args=(source[r, c], run, scales[r, s], target[r, c], *extra)) for r, c, s in pieces[1:]
    ]
    for worker in workers:
        worker.start()
    r, c, s = pieces[0]
    loop(source[r, c], run, scales[r, s], target[r, c], *extra)
    for worker in workers:
        worker.join()


def _one_block(shape: tuple[int, ...]) -> Blocks:
    return tuple(max(1, length) for length in shape)


def _aligned(blocks: Blocks, *arrays: Array) -> tuple[list[Array], Blocks, tuple[int, ...]]:
    """The arrays with at least two axes, collapsed where memory allows, with their blocks and block strides."""
    shape = arrays[0].shape
    if all(array.flags.c_contiguous for array in arrays):
        new_shape, new_blocks = collapse(shape, blocks)
    else:
        missing = (1,) * (2 - len(shape))
        new_shape, new_blocks = (*missing, *shape), (*missing, *blocks)
    strides = element_strides(scales_shape(new_shape, new_blocks))
    return [array.reshape(new_shape) for array in arrays], new_blocks, strides


def _extents(x: Array, source: ElementFormat, blocks: Blocks) -> tuple[Array, Array]:
    bits = signed_bits(x)
    shape = scales_shape(x.shape, blocks)
    amax, state = np.zeros(shape, bits.dtype), np.zeros(shape, np.uint8)
    (elements,), blocks, strides = _aligned(blocks, bits)
    cpu.block_extents(source)(elements, blocks, strides, amax.ravel(), state.ravel())
    return amax, state


def _range(x: Array, source: ElementFormat, blocks: Blocks) -> tuple[Array, Array]:
    bits = signed_bits(x)
    shape = scales_shape(x.shape, blocks)
    infinity = source.max_code + 1
    largest, smallest = np.full(shape, -infinity, bits.dtype), np.full(shape, infinity, bits.dtype)
    (elements,), blocks, strides = _aligned(blocks, bits)
    cpu.block_range(source)(elements, blocks, strides, largest.ravel(), smallest.ravel())
    return largest, smallest


def _differences(x: Array, source: ElementFormat, blocks: Blocks, offsets: Array) -> Array:
    result = np.empty(x.shape, numpy_dtype(difference_format(source)))
    (elements, values), blocks, strides = _aligned(blocks, signed_bits(x), stored_bits(result))
    cpu.differences(source)(elements, blocks, strides, offsets.ravel(), values, 0)
    return result


def _encode(
    x: Array,
    source: ElementFormat,
    target: ElementFormat,
    blocks: Blocks,
    scales: Array,
    codes: Array,
    rounding: Rounding,
    overflow: Overflow,
    random: RandomBits | None,
) -> None:
    bits, flat, codes = signed_bits(x), scales.ravel(), stored_bits(codes)
    if target.specials == "none":  # nothing to overflow to: both choices are one kernel
        overflow = Overflow.SATURATE
    modes = source, target, rounding, overflow
    if random is None:
        (elements, out), blocks, strides = _aligned(blocks, bits, codes)
        cpu.encode_elements(*modes, None)(elements, blocks, strides, flat, out, 0)
    elif random.words is not None:
        (elements, out, words), blocks, strides = _aligned(blocks, bits, codes, random.words)
        cpu.encode_elements(*modes, random.sr_bits)(elements, blocks, strides, flat, out, words)
    else:
        (elements, out), blocks, strides = _aligned(blocks, bits, codes)
        cpu.encode_elements_seeded(*modes, random.sr_bits)(elements, blocks, strides, flat, out, random.key)


def _check_state(x: Array, source: ElementFormat, state: Array, element: ElementFormat, nonfinite: Nonfinite) -> None:
    """Raise where the policy says so, naming the first index in C order."""
    if nonfinite == Nonfinite.RAISE and state.any():
        where = _first_index(x, source, 0)
        raise errors.nonfinite("x", where, "finite everywhere with nonfinite='raise',", "nonfinite")
    if nonfinite == Nonfinite.ELEMENT and element.nan_code is None and (state & cpu.HAS_NAN).any():
        raise errors.nonfinite(
            "x", _first_index(x, source, 1), f"free of NaN for {element.name}, which has no NaN code,", "NaN"
        )


def _first_index(x: Array, source: ElementFormat, above_infinity: int) -> tuple[int, ...]:
    magnitude = signed_bits(x) & ((1 << (source.bits - 1)) - 1)
    found: Any = np.unravel_index(int(np.argmax(magnitude > source.max_code + above_infinity)), x.shape)
    return tuple(int(i) for i in found)

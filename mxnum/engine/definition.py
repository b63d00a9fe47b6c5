"""The passes over numpy arrays in terms of the loops of `cpu`: any layout, any strides, integers only.

What `host` does where no fast loop goes that way, and what the tests compare the fast loops with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.dtypes import Array, numpy_dtype, signed_bits, stored_bits
from mxnum.engine import cpu
from mxnum.engine.request import RandomBits, Request
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks, collapse, element_strides, scales_shape
from mxnum.modes import Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule
from mxnum.scalar.offset import difference_format


def quantize(request: Request, codes: Array, scales: Array, offsets: Array | None) -> None:
    """Fill codes, scales and, with asymmetric scaling, offsets (float16)."""
    asked, x, given_scales = request.settings, request.x, request.scales
    source, element, blocks = asked.source, asked.element, asked.blocks
    scale_rule, nonfinite, offset_range = asked.scale_rule, asked.nonfinite, asked.offset_range
    amax, state = extents(x, source, blocks)
    check_state(x, source, state, element, nonfinite)
    made = np.empty(amax.shape, np.uint8)
    if offsets is not None:
        largest, smallest = _range(x, source, blocks)
        bits = np.empty(amax.shape, np.uint16)
        cpu.offsets_from_range(source)(largest.ravel(), smallest.ravel(), bits.ravel())
        x = _differences(x, source, blocks, bits)
        if offset_range == OffsetRange.HALF and given_scales is None:
            fill = cpu.scales_from_half_range(source, element, scale_rule)
            fill(largest.ravel(), smallest.ravel(), made.ravel())
        source = difference_format(source)
        amax, _ = extents(x, source, blocks)
    if given_scales is not None:
        made[...] = given_scales
    elif offset_range != OffsetRange.HALF:
        cpu.scales_from_amax(source, element, scale_rule)(amax.ravel(), made.ravel())
    if nonfinite == Nonfinite.BLOCK:
        made[state != 0] = E8M0.nan_code
    if offsets is not None:
        bits[made == E8M0.nan_code] = 0
        offsets[...] = bits.view(np.float16)
    scales[...] = made
    encode(x, source, element, blocks, made, codes, asked.rounding, asked.overflow, request.random)


def dequantize(
    codes: Array,
    scales: Array,
    offsets: Array | None,
    element: ElementFormat,
    blocks: Blocks,
    target: ElementFormat,
    out: Array,
) -> None:
    """Fill `out` with the values of an MX array in `target`."""
    (elements, values), blocks, strides = _aligned(blocks, codes, stored_bits(out))
    flat = np.ascontiguousarray(scales).ravel()
    if offsets is None:
        cpu.decode_elements(element, target)(elements, blocks, strides, flat, values, 0)
    else:
        bits = np.ascontiguousarray(offsets).ravel().view(np.uint16)
        cpu.decode_elements_offset(element, target)(elements, blocks, strides, flat, values, bits)


def shared_scale(
    x: Array,
    source: ElementFormat,
    element: ElementFormat,
    blocks: Blocks,
    scale_rule: ScaleRule,
    nonfinite: Nonfinite,
    scales: Array,
) -> None:
    """Fill `scales` with the E8M0 code of each block."""
    amax, state = extents(x, source, blocks)
    made = np.empty(amax.shape, np.uint8)
    cpu.scales_from_amax(source, element, scale_rule)(amax.ravel(), made.ravel())
    if nonfinite == Nonfinite.BLOCK:
        made[state != 0] = E8M0.nan_code
    scales[...] = made


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


def extents(x: Array, source: ElementFormat, blocks: Blocks) -> tuple[Array, Array]:
    """The largest finite magnitude of each block, and what else it holds."""
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


def encode(
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
    """Fill `codes`, every element with the scale of its block."""
    bits, flat, codes = signed_bits(x), np.ascontiguousarray(scales).ravel(), stored_bits(codes)
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


def check_state(x: Array, source: ElementFormat, state: Array, element: ElementFormat, nonfinite: Nonfinite) -> None:
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

"""Functions that quantize single elements on a GPU, for formats whose scales are floats.

Each function computes, with integer operations, what `definition.float_scale` defines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mxnum.definition.float_scale import (
    make_decode_over,
    make_encode_over,
    make_factor,
    make_float_scale,
    make_tensor_scale,
)
from mxnum.definition.word import dialect
from mxnum.engine.cuda.driver import compile_kernel, cuda
from mxnum.engine.cuda.functions import stored, wide
from mxnum.engine.machine.lanes import store
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding


@cache
def make_scale_of(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rule: FloatScaleRule
) -> Callable[..., Any]:
    """Return `scale_of(amax, tensor)`, which returns the scale code of a block.

    `amax` is the largest finite magnitude of the block, and `tensor` is the tensor scale.
    """
    float_scale = make_float_scale(source, element, scale, rule)

    @dialect
    def scale_of(amax, tensor):
        return float_scale(wide(amax), wide(tensor))

    return scale_of


@cache
def make_tensor_scale_of(source: ElementFormat, element: ElementFormat, scale: ScaleFormat) -> Callable[..., Any]:
    """Return `tensor_scale_of(amax, tensor)`, which returns the float32 bits of a tensor scale.

    `amax` is the largest finite magnitude of a tensor or of one of its rows. `tensor` is ignored;
    kernels pass it because other functions that compute scales need it.
    """
    tensor_scale = make_tensor_scale(source, element, scale)

    @dialect
    def tensor_scale_of(amax, tensor):
        return tensor_scale(wide(amax))

    return tensor_scale_of


@cache
def make_quantized(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, overflow: Overflow
) -> Callable[..., Any]:
    """Return `quantized(x, code, tensor, random)`, which returns the element code of `x`.

    `code` is the scale code of the element's block, and `tensor` is the tensor scale.
    """
    STORED = stored(element)
    factor, encode = make_factor(scale), make_encode_over(source, element, scale, rounding, overflow)

    @dialect
    def quantized(x, code, tensor, random):
        exponent, significand, kind = factor(wide(code), wide(tensor))
        return encode(wide(x), exponent, significand, kind, wide(random)) & STORED

    return quantized


@cache
def make_dequantized(element: ElementFormat, scale: ScaleFormat, target: ElementFormat) -> Callable[..., Any]:
    """Return `dequantized(x, code, tensor, random)`, which decodes an element code.

    `dequantized` returns a bit pattern in the format `target`. `x` is the element code, and `code`
    is the scale code of its block. The argument `random` is ignored.
    """
    STORED = stored(target)
    factor, decode = make_factor(scale), make_decode_over(element, scale, target)

    @dialect
    def dequantized(x, code, tensor, random):
        exponent, significand, kind = factor(wide(code), wide(tensor))
        return decode(wide(x), exponent, significand, kind) & STORED

    return dequantized


@cache
def make_fake_quantized(
    source: ElementFormat, element: ElementFormat, scale: ScaleFormat, rounding: Rounding, overflow: Overflow
) -> Callable[..., Any]:
    """Return `fake_quantized(x, code, tensor, random)`, which quantizes and dequantizes an element.

    `fake_quantized` returns a bit pattern in the format `source`. `code` is the scale code of the
    element's block.
    """
    quantized = make_quantized(source, element, scale, rounding, overflow)
    dequantized = make_dequantized(element, scale, source)

    @dialect
    def fake_quantized(x, code, tensor, random):
        return dequantized(quantized(x, code, tensor, random), code, tensor, 0)

    return fake_quantized


@cache
def largest_magnitude(source: ElementFormat) -> Any:
    """Return a kernel that finds the largest finite magnitude of an array, as a bit pattern.

    The kernel stores the magnitude in `found[0]`, unless `found[0]` is already larger.
    """
    MAGNITUDE_MASK, MAX = (1 << (source.bits - 1)) - 1, source.max_code

    def run(count, shape, source, source_at, source_by, found):
        index, step = cuda.grid(1), cuda.gridsize(1)
        largest = 0
        while index < count:
            rest, of_source = index, source_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                of_source += (rest - whole * shape[axis]) * source_by[axis]
                rest = whole
            magnitude = int(source[of_source]) & MAGNITUDE_MASK
            if magnitude <= MAX:
                largest = max(largest, magnitude)
            index += step
        cuda.atomic.max(found, 0, largest)

    return compile_kernel(run)


@cache
def apply_once(function: Callable[..., Any]) -> Any:
    """Return a kernel that computes out[0] = function(found[0], 0) in one thread."""

    def run(count, found, out):
        if cuda.grid(1) < count:
            store(out, 0, function(int(found[0]), 0))

    return compile_kernel(run)

"""Functions that compute scales and tensor scales on a GPU, and quantize with float scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxnum import errors
from mxnum.definition import float_scale
from mxnum.engine.cuda import arrays, driver, float_scales, kernels
from mxnum.engine.cuda.functions import make_power_of_two
from mxnum.engine.cuda.launches import by_blocks, flat, map_over, padded, queue, random_source
from mxnum.engine.request import Request
from mxnum.memory.device import DeviceArray
from mxnum.memory.dtypes import Array, scale_dtype


def fill_scales(
    request: Request, x: DeviceArray, scales: DeviceArray, offsets: DeviceArray | None, stream: int | None
) -> None:
    """Store the scale of each block in `scales`; if `offsets` is given, store the offsets there."""
    asked, source, element = request.settings, request.settings.source, request.settings.element
    scale, nan_code, asymmetric = asked.format.scale, -1, None
    if asked.nonfinite.by_block:
        nan_code = scale.nan_code
    if scale.power_of_two:
        scale_of = make_power_of_two(source, element, asked.power_rule)
    else:
        rule, has_one = asked.float_rule, request.scales is not None or not asked.float_rule.error_power
        errors.require(has_one, "scale_rule", "'nearest' or 'rceil' for arrays on a GPU", str(rule))
        scale_of = float_scales.make_scale_of(source, element, scale, rule)
    if asked.offset_range is not None:
        asymmetric = kernels.Asymmetric(element, asked.power_rule, asked.offset_range.is_half)
    kernel = kernels.block_scales(source, scale_of, nan_code, request.scales is not None, asymmetric)
    given = scales if request.scales is None else request.scales
    tensor = scales if scale.power_of_two else over_blocks(request.tensor_scale, scales, stream)
    by_blocks(kernel, asked.blocks, x, given, tensor, scales, offsets, stream)


def run_over(request: Request, out: DeviceArray, stream: int | None, *, values: bool) -> DeviceArray:
    """Quantize to a format with float scales, and return the scales.

    `out` receives the codes, or the values of the codes if `values` is True.
    """
    asked, x, (how, sr_bits, key) = request.settings, request.x, random_source(request.random)
    scale = asked.format.scale
    make = float_scales.make_fake_quantized if values else float_scales.make_quantized
    function = make(asked.source, asked.element, scale, asked.rounding, asked.overflow)
    words = x if request.random is None or request.random.words is None else request.random.words
    scales = arrays.empty(x, asked.scales_shape, scale_dtype(scale))
    fill_scales(request, x, scales, None, stream)
    tensor = over_blocks(request.tensor_scale, scales, stream)
    kernel = kernels.map_with_tensor(function, how, sr_bits)
    map_over(kernel, asked.blocks, (x, scales, tensor), out, stream, words=words, key=key)
    return scales


def tensor_scale(request: Request, by_rows: bool) -> tuple[DeviceArray, None]:
    """Return (tensor scale, None): one scale for the array, or one for each row if `by_rows`.

    If `by_rows`, the last axis of the tensor scale has length 1. The second result is None, because
    only the engine for host memory returns the largest magnitudes of blocks.
    """
    x, asked = request.x, request.settings
    source, element, scale = asked.source, asked.element, asked.format.scale
    function = float_scales.make_tensor_scale_of(source, element, scale)
    with queue(x) as stream:
        if by_rows:
            blocks = (*(1,) * (x.ndim - 1), max(1, x.shape[-1]))
            found = arrays.empty(x, (*x.shape[:-1], 1), np.float32)
            if x.shape[-1]:
                kernel = kernels.block_scales(source, function, -1, False, None)
                by_blocks(kernel, blocks, x, found, found, found, None, stream)
            else:
                driver.launch(kernels.fill(), found.size, stream, found.size, flat(found), float_scale.ONE)
            return found, None
        found, largest = arrays.empty(x, (), np.float32), arrays.scalar(x, 0)
        memory, at = driver.memory(x, signed=True)
        shape, by = padded(x.shape, 1), padded(arrays.steps_of(x), 0)
        of_largest = driver.memory(largest, signed=True)[0]
        driver.launch(float_scales.largest_magnitude(source), x.size, stream, x.size, shape, memory, at, by, of_largest)
        driver.launch(float_scales.apply_once(function), 1, stream, 1, of_largest, flat(found))
        return found, None


def beside(value: Array, like: DeviceArray) -> DeviceArray:
    """Return a float32 number as an array without axes, on the GPU of `like`."""
    with queue(like) as stream:
        made = arrays.empty(like, (), np.float32)
        driver.launch(kernels.fill(), 1, stream, 1, flat(made), int(value.view(np.uint32)))
        return made


def over_blocks(tensor: DeviceArray | None, scales: DeviceArray, stream: int | None) -> DeviceArray:
    """Return the tensor scale, or 1 if `tensor` is None, broadcast to the shape of `scales`."""
    if tensor is None:
        tensor = arrays.empty(scales, (), np.float32)
        driver.launch(kernels.fill(), 1, stream, 1, flat(tensor), float_scale.ONE)
    strides = tensor.strides or (0,) * scales.ndim
    is_one = [n == 1 for n in tensor.shape] or [True] * scales.ndim
    spread = tuple(0 if one else step for one, step in zip(is_one, strides, strict=True))
    return replace(tensor, shape=scales.shape, strides=spread)

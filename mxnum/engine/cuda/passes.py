"""The operations on arrays in GPU memory, run by CUDA kernels.

The operations take the same checked requests as the operations of `engine.quantizing.host`, but
with `DeviceArray` objects in place of numpy arrays. A `DeviceArray` describes an array on a GPU. An
operation queues all its work on the stream of its first array. The work starts after the earlier
work on the streams of the other arrays. The host waits for the GPU only to read data: to find a NaN
or infinity that must raise an error, to check the caller's codes, and to compare arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import errors
from mxnum.engine.cuda import arrays, driver, float_scales, kernels, vectors
from mxnum.engine.cuda.functions import make_dequantized, make_fake_quantized, make_quantized
from mxnum.engine.cuda.launches import flat, map_over, padded, queue, random_source, refuse, words_of
from mxnum.engine.cuda.scale_passes import beside as beside
from mxnum.engine.cuda.scale_passes import fill_scales, over_blocks, run_over
from mxnum.engine.cuda.scale_passes import tensor_scale as tensor_scale
from mxnum.engine.request import DecodingRequest, Request
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks, packed_length
from mxnum.memory.device import DeviceArray, described
from mxnum.memory.dtypes import code_dtype, numpy_dtype, scale_dtype
from mxnum.modes import Nonfinite, Overflow, Rounding


def quantize(request: Request, out: None = None) -> tuple[Any, Any, Any]:
    """Return codes, scales and offsets as arrays of the input's library.

    Without asymmetric scaling, offsets are None.
    """
    refuse(out=out)
    with queue(request.x, request.scales, words_of(request.random), request.tensor_scale) as stream:
        codes = arrays.empty(request.x, request.x.shape, np.uint8)
        scales, offsets = _run(request, codes, stream, values=False)
        stored = codes.owner
        assert scales is not None
    if request.packed:
        stored = pack(codes if codes.shape else codes.reshaped((1,)), request.settings.element.bits)
    return stored, scales.owner, None if offsets is None else offsets.owner


def fake_quantize(request: Request, out: DeviceArray | None = None) -> Any:
    """Return the values of the quantized array in the type of the input.

    The values are stored in `out` if it is given, otherwise in a new array.
    """
    with queue(request.x, request.scales, words_of(request.random), out, request.tensor_scale) as stream:
        result = arrays.empty(request.x, request.x.shape, request.x.dtype) if out is None else out
        if out is not None and _overlap(request.x, out) and not _in_place(request.x, out):
            aside = arrays.empty(request.x, request.x.shape, request.x.dtype)
            _run(request, aside, stream, values=True)
            copy(aside, out, stream)
        else:
            _run(request, result, stream, values=True)
        return result.owner


def _run(
    request: Request, out: DeviceArray, stream: int | None, *, values: bool
) -> tuple[DeviceArray | None, DeviceArray | None]:
    """Store codes in `out`, or values if `values` is True, and return (scales, offsets).

    The scales are None if the kernel does not store them. The offsets are None without asymmetric
    scaling.
    """
    asked, x, random = request.settings, request.x, request.random
    source, element, blocks, nonfinite = asked.source, asked.element, asked.blocks, asked.nonfinite
    _check(x, source, element, nonfinite, stream)
    if not asked.format.scale.power_of_two:
        return run_over(request, out, stream, values=values), None
    modes = source, element, asked.rounding, asked.overflow.of(element.specials)
    how, sr_bits, key = random_source(random)
    words = x if random is None or random.words is None else random.words
    function = (make_fake_quantized if values else make_quantized)(*modes, nonfinite)
    if asked.offset_range is None and key[4] % 4 == 0 and _are_quads(blocks, source, x, out, words):
        given = request.scales
        if given is not None and not given.is_contiguous:
            given, strided = arrays.empty(x, given.shape, np.uint8), given
            copy(strided, given, stream)
        scaling = vectors.Scaling(source, element, asked.power_rule, nonfinite, given is not None)
        kernel = vectors.quantize_rows(blocks[-1], scaling, (how, sr_bits), function, values)
        quads = x.size // 4
        target = flat(out) if values else driver.at_address(out.pointer, quads, "u4", out.owner)
        scales = None if values else arrays.empty(x, asked.scales_shape, np.uint8)
        written = driver.at_address(out.pointer, 0, "u1", out.owner) if scales is None else flat(scales)
        read = written if given is None else flat(given)
        driver.launch(kernel, quads, stream, quads, flat(x, signed=True), read, written, flat(words), key, target)
        return scales, None
    scales, offsets = arrays.empty(x, asked.scales_shape, np.uint8), None
    if asked.offset_range is not None:
        offsets = arrays.empty(x, scales.shape, np.float16)
    fill_scales(request, x, scales, offsets, stream)
    if offsets is None:
        kernel = kernels.map_elements(function, how, sr_bits)
    elif values:
        kernel = kernels.fake_quantize_with_offset(*modes, how, sr_bits)
    else:
        kernel = kernels.quantize_with_offset(*modes, how, sr_bits)
    map_over(kernel, blocks, (x, scales, offsets), out, stream, words=words, key=key)
    return scales, offsets


def copied(array: DeviceArray) -> DeviceArray:
    """Return a contiguous copy."""
    with queue(array) as stream:
        made = arrays.empty(array, array.shape, array.dtype)
        copy(array, made, stream)
        return made


def shared_scale(request: Request, out: None = None) -> Any:
    """Return the scale of each block."""
    refuse(out=out, threads=request.threads)
    asked, x = request.settings, request.x
    with queue(x, request.tensor_scale) as stream:
        if asked.nonfinite.by_error:
            _check(x, asked.source, asked.element, asked.nonfinite, stream)
        scales = arrays.empty(x, asked.scales_shape, scale_dtype(asked.format.scale))
        fill_scales(request, x, scales, None, stream)
        return scales.owner


def encode(
    x: DeviceArray,
    source: ElementFormat,
    target: ElementFormat,
    *,
    rounding: Rounding,
    overflow: Overflow,
    nonfinite: Nonfinite,
    random: Any,
) -> Any:
    """Return the code of each number in the format `target`, without scales."""
    with queue(x, words_of(random)) as stream:
        _check(x, source, target, nonfinite, stream)
        overflow = overflow.of(target.specials)
        how, sr_bits, key = random_source(random)
        function = make_quantized(source, target, rounding, overflow, nonfinite)
        codes = arrays.empty(x, x.shape, code_dtype(target.bits))
        words = x if random is None or random.words is None else random.words
        unit = _unit_scale(x, stream)
        kernel = kernels.map_elements(function, how, sr_bits)
        map_over(kernel, _whole(x), (x, unit, None), codes, stream, words=words, key=key)
        return codes.owner


def dequantize(request: DecodingRequest, out: DeviceArray | None = None) -> Any:
    """Return the values of an MX array, in `out` or in a new contiguous array."""
    refuse(threads=request.threads)
    asked, codes = request.settings, request.stored
    if asked.packed:
        length = asked.shape[-1] if asked.shape else 1
        codes = described("codes", unpack(codes, asked.element.bits, length)).reshaped(asked.shape)
    if not asked.scale.power_of_two:
        with queue(codes, request.scales, request.tensor_scale, out) as stream:
            result = arrays.empty(codes, codes.shape, numpy_dtype(asked.target)) if out is None else out
            function = float_scales.make_dequantized(asked.element, asked.scale, asked.target)
            kernel = kernels.map_with_tensor(function, kernels.NOWHERE, 0)
            tensor = over_blocks(request.tensor_scale, request.scales, stream)
            map_over(kernel, asked.blocks, (codes, request.scales, tensor), result, stream)
            return result.owner
    return values_of(codes, request.scales, request.offsets, asked.element, asked.blocks, asked.target, out)


def values_of(
    codes: DeviceArray,
    scales: DeviceArray,
    offsets: DeviceArray | None,
    element: ElementFormat,
    blocks: Blocks,
    target: ElementFormat,
    out: DeviceArray | None,
) -> Any:
    """Return the values of codes that are not packed, in `out` or in a new contiguous array."""
    with queue(codes, scales, offsets, out) as stream:
        result = arrays.empty(codes, codes.shape, numpy_dtype(target)) if out is None else out
        if offsets is not None:
            kernel = kernels.dequantize_with_offset(element, target)
            map_over(kernel, blocks, (codes, scales, offsets), result, stream)
            return result.owner
        function = make_dequantized(element, target)
        if scales.is_contiguous and _are_quads(blocks, None, codes, result):
            quads = codes.size // 4
            kernel = vectors.dequantize_rows(blocks[-1], function)
            words = driver.at_address(codes.pointer, quads, "u4", codes.owner)
            driver.launch(kernel, quads, stream, quads, words, flat(scales), flat(result, _signed(target)))
        else:
            map_over(kernels.map_values(function), blocks, (codes, scales, None), result, stream)
        return result.owner


def decode(codes: DeviceArray, element: ElementFormat, target: ElementFormat, out: DeviceArray | None = None) -> Any:
    """Return the values of element codes under a scale of 1."""
    with queue(codes, out) as stream:
        unit = _unit_scale(codes, stream)
        return values_of(codes, unit, None, element, _whole(codes), target, out)


def pack(codes: DeviceArray, bits: int) -> Any:
    """Return packed codes: each row along the last axis is a little-endian bit stream."""
    with queue(codes) as stream:
        length = codes.shape[-1]
        packed = arrays.empty(codes, (*codes.shape[:-1], packed_length(length, bits)), np.uint8)
        _by_rows(kernels.pack_rows(bits), packed, codes, packed, stream)
        return packed.owner


def unpack(packed: DeviceArray, bits: int, length: int) -> Any:
    """Return rows of `length` codes, unpacked from the result of `pack`."""
    with queue(packed) as stream:
        codes = arrays.empty(packed, (*packed.shape[:-1], length), np.uint8)
        _by_rows(kernels.unpack_rows(bits), codes, packed, codes, stream)
        return codes.owner


def _by_rows(kernel: Any, counted: DeviceArray, source: DeviceArray, out: DeviceArray, stream: int | None) -> None:
    """Run a kernel that packs or unpacks rows.

    `counted` is the output array. A thread computes one of its elements at a time: a packed byte or
    an unpacked code.
    """
    if not source.is_contiguous:
        source, strided = arrays.empty(source, source.shape, source.dtype), source
        copy(strided, source, stream)
    rows = source.shape[-1], out.shape[-1]
    driver.launch(kernel, counted.size, stream, counted.size, *rows, flat(source), flat(out))


def copy(source: DeviceArray, out: DeviceArray, stream: int | None) -> None:
    """Copy the elements of `source` to `out`, an array of the same type and shape on the device."""
    map_elements(kernels.copy_elements(), source, out, stream, signed=True)


def map_elements(
    kernel: Any, source: DeviceArray, out: DeviceArray, stream: int | None, *, signed: bool | None = None
) -> None:
    """Run a kernel that processes one element at a time, with a scale of 1."""
    map_over(kernel, _whole(source), (source, _unit_scale(source, stream), None), out, stream, signed=signed)


def largest(codes: DeviceArray) -> int:
    """Return the largest code. The host waits."""
    with queue(codes) as stream:
        found = arrays.scalar(codes, 0)
        memory, at = driver.memory(codes, signed=False)
        shape, by = padded(codes.shape, 1), padded(arrays.steps_of(codes), 0)
        found_at = driver.memory(found, signed=True)[0]
        driver.launch(kernels.largest(), codes.size, stream, codes.size, shape, memory, at, by, found_at)
        return arrays.read_scalar(found)


# Checks of data


def _check(
    x: DeviceArray, source: ElementFormat, element: ElementFormat, nonfinite: Nonfinite, stream: int | None
) -> None:
    """Raise ValueError if `nonfinite` forbids an element of `x`.

    The error names the index of the first forbidden element in C order. The host waits for the
    stream, unless `nonfinite` allows all NaN and infinities.
    """
    if nonfinite.by_error:
        what = "finite everywhere with nonfinite='raise'", "a NaN or infinity"
        above_infinity = 0
    elif nonfinite.by_element and element.nan_code is None:
        what = f"free of NaN for {element.name}, which has no NaN code", "a NaN"
        above_infinity = 1
    else:
        return
    found = arrays.scalar(x, x.size)
    memory, at = driver.memory(x, signed=True)
    kernel = kernels.find_first(source, above_infinity)
    shape, by = padded(x.shape, 1), padded(arrays.steps_of(x), 0)
    driver.launch(kernel, x.size, stream, x.size, shape, memory, at, by, driver.memory(found, signed=True)[0])
    first = arrays.read_scalar(found)
    if first < x.size:
        index: Any = np.unravel_index(first, x.shape)
        raise errors.nonfinite("x", tuple(int(i) for i in index), *what)


# Arguments of kernels


def _signed(target: ElementFormat) -> bool:
    return target.bits > 32


def _are_quads(blocks: Blocks, source: ElementFormat | None, *views: DeviceArray) -> bool:
    """Return True if the kernels of the module `vectors` can process these arrays.

    The arrays must be contiguous and aligned to 16 bytes, with whole blocks along rows.
    """
    if source is not None and source.bits > 32:
        return False
    return (
        len(blocks) > 0
        and all(block == 1 for block in blocks[:-1])
        and blocks[-1] in vectors.RUNS
        and views[0].shape[-1] % blocks[-1] == 0
        and all(view.is_contiguous and view.pointer % 16 == 0 for view in views)
    )


def _whole(x: DeviceArray) -> Blocks:
    return tuple(max(1, length) for length in x.shape)


def _unit_scale(like: DeviceArray, stream: int | None) -> DeviceArray:
    """Return an array, on the GPU of `like`, with one scale code: the code of the scale 1."""
    unit = arrays.empty(like, (1,) * like.ndim, np.uint8)
    driver.launch(kernels.fill(), 1, stream, 1, flat(unit), E8M0.bias)
    return unit


def _overlap(x: DeviceArray, out: DeviceArray) -> bool:
    """Return True if two arrays may share memory."""
    (low_x, high_x), (low_out, high_out) = _ends(x), _ends(out)
    return low_x < high_out and low_out < high_x


def _ends(view: DeviceArray) -> tuple[int, int]:
    if view.size == 0:
        return 0, 0
    reach = [(length - 1) * stride for length, stride in zip(view.shape, view.strides, strict=True)]
    low, high = sum(end for end in reach if end < 0), sum(end for end in reach if end > 0) + 1
    width = view.dtype.itemsize
    return view.pointer + low * width, view.pointer + high * width


def _in_place(x: DeviceArray, out: DeviceArray) -> bool:
    """Return True if elements of `x` and `out` with the same index share the same memory.

    Returns False if elements of one array share memory with each other.
    """
    same = (x.pointer, x.strides_matter) == (out.pointer, out.strides_matter)
    return same and all(stride != 0 or length <= 1 for stride, length in zip(x.strides, x.shape, strict=True))


def equal(a: DeviceArray, b: DeviceArray) -> bool:
    """Return True if two arrays of integers have the same shape and elements. The host waits."""
    if a.shape != b.shape:
        return False
    with queue(a, b) as stream:
        found = arrays.scalar(a, a.size)
        arguments: list[Any] = [padded(a.shape, 1)]
        for view in (a, b):
            memory, at = driver.memory(view, signed=False)
            arguments += [memory, at, padded(arrays.steps_of(view), 0)]
        found_at = driver.memory(found, signed=True)[0]
        driver.launch(kernels.first_difference(), a.size, stream, a.size, *arguments, found_at)
        return arrays.read_scalar(found) == a.size

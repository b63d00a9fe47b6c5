"""Asymmetric scaling on numpy arrays: blocks along rows in one go; of other blocks, what offsets leave is quantized."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array, numpy_dtype, signed_bits
from mxnum.engine import environment, paths
from mxnum.engine.draws import Draw
from mxnum.engine.jobs import Quantization, decoding_job, drawn, quantizing_job
from mxnum.engine.magic import decoding_domain
from mxnum.engine.offset_rows import (
    add_offsets_to_rows,
    decode_left_with_offsets,
    decode_rows_with_offsets,
    quantize_rows_with_offsets,
)
from mxnum.engine.offsets import (
    CONSTANT_RUNS,
    add_offsets,
    clear_offsets,
    decode_with_offsets,
    half_range,
    half_range_scales,
    may_add,
    ordered_type,
    subtract_offsets,
)
from mxnum.engine.parts import Part, cut, new_beside
from mxnum.engine.request import Request, Settings
from mxnum.engine.rows import PIECE, USUAL_RUN
from mxnum.engine.walk import CHUNK, Walk, in_threads
from mxnum.formats import FLOATS, ElementFormat
from mxnum.layout import Blocks
from mxnum.modes import OffsetRange
from mxnum.scalar.offset import difference_format

_FLOAT32_NAN = FLOATS["float32"].nan_code


def quantize(request: Request, codes: Array, scales: Array, offsets: Array) -> bool:
    """Fill codes, scales and offsets; False, with nothing done, where no fast loop goes that way."""
    return _quantized(request, codes, scales, offsets, values=False)


def fake_quantize(request: Request, values: Array) -> bool:
    """Fill values in the type of the input; False where no fast loop goes that way, or not all of it."""
    asked, x = request.settings, request.x
    if not paths.adds_fast(asked.element, asked.source) or np.may_share_memory(x, values):
        return False
    scales, offsets = (new_beside(x, asked.scales_shape, dtype) for dtype in (np.uint8, np.float16))
    return _quantized(request, values, scales, offsets, values=True)


def _quantized(request: Request, results: Array, scales: Array, offsets: Array, *, values: bool) -> bool:
    """Fill results with codes, or values, and scales and offsets; False where that cannot be, or not for all."""
    asked, x = request.settings, request.x
    if x.size == 0:
        return True
    job = _job(asked, values)
    parts = cut(asked.blocks, x, results, (scales, offsets), request.random, writes_sides=True, most=CHUNK)
    if parts is None or not environment.is_default():
        return False
    if request.scales is not None:
        scales[...] = request.scales
    room = np.empty(min(x.size, CHUNK), numpy_dtype(job.source))
    for part in parts.each():
        if part.x.size > room.size:  # of one long block
            room = np.empty(part.x.size, room.dtype)
        run = _run_rows if _in_one_go(job, asked, part.walk) else _run
        if not run(job, asked, part, room[: part.x.size], values, request.threads):
            return False
    return True


def _in_one_go(job: Quantization, asked: Settings, walk: Walk) -> bool:
    """Whether the loop of `offset_rows` takes it."""
    return job.fast is not None and paths.subtracts_fast(asked.source) and walk.along_rows and walk.run <= PIECE


def _run_rows(job: Quantization, asked: Settings, part: Part, room: Array, values: bool, threads: int | None) -> bool:
    """One part by the loop that does all; what that leaves is in `room`, less its offsets, and is done from there."""
    assert job.fast is not None
    walk, (scales, bits), out = part.walk, _sides(part), signed_bits(part.out).reshape(-1)
    differences, left = signed_bits(room), np.zeros(walk.groups, np.uint8)
    draw, words = drawn(part.random, part.first, walk)
    loop, numbers = _loop(job, asked, values, walk.constant_run, draw)
    x = signed_bits(part.x).reshape(-1)
    if in_threads(loop, walk)(threads, (x, out, scales), left, words, numbers, bits, differences) == 0:
        return True
    marked = left.copy()
    job.finish(walk, (differences, out, scales), left, draw, words, threads)
    if values:
        domain = decoding_domain(asked.element)
        return in_threads(add_offsets_to_rows(), walk)(threads, (out, scales, bits), marked, *domain) == 0
    clear_offsets()(scales, bits)
    return True


def _run(job: Quantization, asked: Settings, part: Part, room: Array, values: bool, threads: int | None) -> bool:
    """One part, loop after loop."""
    (scales, bits), run = _sides(part), part.walk.run
    ends = np.empty((2, scales.size), ordered_type(asked.source))
    loop = subtract_offsets(asked.source, part.walk.k == 1, run if run in CONSTANT_RUNS else 0)
    loop(signed_bits(part.x).reshape(-1), signed_bits(room), bits, *part.walk.bands, *ends)
    if _is_half_range(asked):
        half_range_scales(asked.source, asked.element, asked.scale_rule)(*ends, scales)
    job.run(part.walk, room, part.out, scales, 1, part.random, part.first)
    if not values:
        clear_offsets()(scales, bits)
        return True
    out = signed_bits(part.out).reshape(-1)
    if not may_add(scales, bits, asked.element):
        return False
    add_offsets()(out, out, bits, *part.walk.bands)
    return True


def dequantize(
    codes: Array,
    scales: Array,
    offsets: Array,
    element: ElementFormat,
    blocks: Blocks,
    target: ElementFormat,
    values: Array,
) -> bool:
    """Fill `values`; False, with nothing done, where no fast loop goes that way."""
    if codes.size == 0:
        return True
    parts = cut(blocks, codes, values, (scales, offsets), most=CHUNK)
    if parts is None:
        return False
    job = decoding_job(element, target)
    fast = paths.adds_fast(element, target) and environment.is_default()
    for part in parts.each():
        (side, bits), out, walk = _sides(part), signed_bits(part.out).reshape(-1), part.walk
        flat = part.x.reshape(-1), out, side
        if fast and walk.along_rows and job.fast is not None:
            loop = decode_rows_with_offsets(job.fast.special or job.fast.function, walk.constant_run)
            left, way = np.zeros(side.size, np.uint8), (walk.shape, walk.whole)
            if loop(*flat, *way, job.fast.numbers, bits, left, _FLOAT32_NAN) > 0:
                decode_left_with_offsets(element, target)(*flat, *way, bits, left)
        elif fast and may_add(side, bits, element):
            job.run(walk, part.x, part.out, side, 1)
            add_offsets()(out, out, bits, *walk.bands)
        else:
            decode_with_offsets(element, target)(*flat, *walk.bands, bits)
    return True


@lru_cache(maxsize=4096)
def _job(asked: Settings, values: bool) -> Quantization:
    """How differences are quantized: to codes or to values."""
    given = asked.scales_given or _is_half_range(asked)
    settings = replace(asked, source=difference_format(asked.source), offset_range=None, scales_given=given)
    return quantizing_job(settings, values)


@lru_cache(maxsize=4096)
def _loop(job: Quantization, asked: Settings, values: bool, constant_run: int, draw: Draw) -> tuple[Any, Array]:
    """The loop of `offset_rows`, and its numbers."""
    assert job.fast is not None
    function, special, numbers = job.fast.function, job.fast.special, job.fast.numbers.copy()
    if special is not None and constant_run == USUAL_RUN and not asked.scales_given:
        function = special
    if values:  # have to be exact before offsets are added
        least, greatest = decoding_domain(asked.element)
        numbers[0], numbers[1] = max(numbers[0], least), min(numbers[1], greatest)
    ends = half_range(asked.source, asked.element, asked.scale_rule) if _is_half_range(asked) else None
    given = asked.scales_given
    return quantize_rows_with_offsets(function, asked.source, ends, given, values, draw, constant_run), numbers


def _is_half_range(asked: Settings) -> bool:
    """Whether scales are made of the ends of blocks."""
    return asked.offset_range == OffsetRange.HALF and not asked.scales_given


def _sides(part: Part) -> tuple[Array, Array]:
    """The scales and the bits of the offsets, flat."""
    scales, offsets = part.sides
    return scales.reshape(-1), offsets.view(np.uint16).reshape(-1)

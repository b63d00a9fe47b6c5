"""Asymmetric scaling on numpy arrays: what is left when offsets are taken away is quantized as any array is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from mxnum.dtypes import Array, numpy_dtype, signed_bits
from mxnum.engine import environment, paths
from mxnum.engine.jobs import Quantization, decoding_job, quantizing_job
from mxnum.engine.offsets import (
    CONSTANT_RUNS,
    add_offsets,
    clear_offsets,
    decode_with_offsets,
    half_range_scales,
    may_add,
    ordered_type,
    subtract_offsets,
)
from mxnum.engine.parts import Part, cut, new_beside
from mxnum.engine.request import Request, Settings
from mxnum.engine.walk import CHUNK
from mxnum.formats import ElementFormat
from mxnum.layout import Blocks
from mxnum.modes import OffsetRange
from mxnum.scalar.offset import difference_format


def quantize(request: Request, codes: Array, scales: Array, offsets: Array) -> bool:
    """Fill codes, scales and offsets; False, with nothing done, where no fast loop goes that way."""
    done = _quantized_parts(request, codes, scales, offsets, values=False)
    if done is None:
        return False
    for _ in done:
        pass
    return True


def fake_quantize(request: Request, values: Array) -> bool:
    """Fill values in the type of the input; False where no fast loop goes that way, or not all of it."""
    asked, x = request.settings, request.x
    scales, offsets = (new_beside(x, asked.scales_shape, dtype) for dtype in (np.uint8, np.float16))
    done = None
    if paths.adds_fast(asked.element, asked.source) and not np.may_share_memory(x, values):
        done = _quantized_parts(request, values, scales, offsets, values=True)
    if done is None:
        return False
    for part in done:
        (side, bits), out = _sides(part), signed_bits(part.out).reshape(-1)
        if not may_add(side, bits, asked.element):
            return False
        add_offsets()(out, out, bits, *part.walk.bands)
    return True


def _quantized_parts(
    request: Request, results: Array, scales: Array, offsets: Array, *, values: bool
) -> Iterator[Part] | None:
    """The parts, each with its differences quantized to codes or values; None where no fast loop goes that way."""
    asked, x, random = request.settings, request.x, request.random
    sides = scales, offsets
    if x.size == 0:
        return iter(())
    parts = cut(asked.blocks, x, results, sides, random, writes_sides=True, small=True)
    if parts is None or not environment.is_default():
        return None
    if request.scales is not None:
        scales[...] = request.scales
    job = _job(asked, values)
    in_halves = asked.offset_range == OffsetRange.HALF and not asked.scales_given

    def run() -> Iterator[Part]:
        room = np.empty(min(x.size, CHUNK), numpy_dtype(job.source))
        for part in parts.each():
            scales, bits = _sides(part)
            differences, ends = room[: part.x.size], np.empty((2, scales.size), ordered_type(asked.source))
            run = part.walk.run
            loop = subtract_offsets(asked.source, part.walk.k == 1, run if run in CONSTANT_RUNS else 0)
            loop(signed_bits(part.x).reshape(-1), signed_bits(differences), bits, *part.walk.bands, *ends)
            if in_halves:
                half_range_scales(asked.source, asked.element, asked.scale_rule)(*ends, scales)
            job.run(part.walk, differences, part.out, scales, 1, part.random, part.first)
            if not values:  # (where offsets are results)
                clear_offsets()(scales, bits)
            yield part

    return run()


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
    parts = cut(blocks, codes, values, (scales, offsets), small=True)
    if parts is None:
        return False
    job = decoding_job(element, target)
    fast = paths.adds_fast(element, target) and environment.is_default()
    for part in parts.each():
        (side, bits), out = _sides(part), signed_bits(part.out).reshape(-1)
        if fast and may_add(side, bits, element):
            job.run(part.walk, part.x, part.out, side, 1)
            add_offsets()(out, out, bits, *part.walk.bands)
        else:
            decode_with_offsets(element, target)(part.x.reshape(-1), out, side, *part.walk.bands, bits)
    return True


@lru_cache(maxsize=4096)
def _job(asked: Settings, values: bool) -> Quantization:
    """How differences are quantized: to codes or to values."""
    given = asked.scales_given or asked.offset_range == OffsetRange.HALF
    settings = replace(asked, source=difference_format(asked.source), offset_range=None, scales_given=given)
    return quantizing_job(settings, values)


def _sides(part: Part) -> tuple[Array, Array]:
    """The scales and the bits of the offsets, flat."""
    scales, offsets = part.sides
    return scales.reshape(-1), offsets.view(np.uint16).reshape(-1)

"""Asymmetric scaling on numpy arrays: what is left when offsets are taken away is quantized as any array is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mxnum.dtypes import Array, numpy_dtype, signed_bits
from mxnum.engine import environment, paths
from mxnum.engine.jobs import Quantization, decoding_job, quantizing_job
from mxnum.engine.offsets import (
    CONSTANT_RUNS,
    add_offsets,
    decode_with_offsets,
    half_range_scales,
    may_add,
    ordered_type,
    subtract_offsets,
)
from mxnum.engine.request import Request, Settings
from mxnum.engine.walk import CHUNK, Walk, chunks, plan, rows_joined
from mxnum.formats import E8M0, ElementFormat
from mxnum.layout import Blocks, scales_shape
from mxnum.modes import OffsetRange
from mxnum.scalar.offset import difference_format


class _Part(NamedTuple):
    """A chunk of all arrays, each contiguous and flat, and where it lies in the array of `_Layout`."""

    walk: Walk
    x: Array
    out: Array
    scales: Array
    offsets: Array
    where: tuple[slice, ...]
    first: int


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
    asked = request.settings
    scales, offsets = np.empty(asked.scales_shape, np.uint8), np.empty(asked.scales_shape, np.float16)
    done = None
    if paths.adds_fast(asked.element, asked.source) and not np.may_share_memory(request.x, values):
        done = _quantized_parts(request, values, scales, offsets, values=True)
    if done is None:
        return False
    for part in done:
        if not may_add(part.scales, part.offsets, asked.element):
            return False
        out = signed_bits(part.out)
        add_offsets()(out, out, part.offsets.view(np.uint16), *part.walk.bands)
    return True


def _quantized_parts(
    request: Request, results: Array, scales: Array, offsets: Array, *, values: bool
) -> Iterator[_Part] | None:
    """The parts, each with its differences quantized to codes or values; None where no fast loop goes that way."""
    asked, x, random = request.settings, request.x, request.random
    shape, blocks = _layout(x, asked.blocks)
    parts = _parts(shape, blocks, x, results, scales, offsets)
    if parts is None or not environment.is_default():
        return None
    if request.scales is not None:
        scales[...] = request.scales
    if random is not None and random.words is not None:
        random = replace(random, words=np.ascontiguousarray(random.words).reshape(shape))
    job = _job(asked, values)
    in_halves = asked.offset_range == OffsetRange.HALF and not asked.scales_given

    def run() -> Iterator[_Part]:
        room = np.empty(min(x.size, CHUNK), numpy_dtype(job.source))
        for part in parts:
            differences, ends = room[: part.x.size], np.empty((2, part.scales.size), ordered_type(asked.source))
            bits, run = part.offsets.view(np.uint16), part.walk.run
            loop = subtract_offsets(asked.source, part.walk.k == 1, run if run in CONSTANT_RUNS else 0)
            loop(signed_bits(part.x), signed_bits(differences), bits, *part.walk.bands, *ends)
            if in_halves:
                half_range_scales(asked.source, asked.element, asked.scale_rule)(*ends, part.scales)
            job.run(part.walk, differences, part.out, part.scales, 1, random, part.where, part.first)
            bits[part.scales == E8M0.nan_code] = 0
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
    shape, blocks = _layout(codes, blocks)
    parts = _parts(shape, blocks, codes, values, scales, offsets)
    if parts is None:
        return False
    job = decoding_job(element, target)
    fast = paths.adds_fast(element, target) and environment.is_default()
    for part in parts:
        bits, out = part.offsets.view(np.uint16), signed_bits(part.out)
        if fast and may_add(part.scales, part.offsets, element):
            job.run(part.walk, part.x, part.out, part.scales, 1)
            add_offsets()(out, out, bits, *part.walk.bands)
        else:
            decode_with_offsets(element, target)(part.x, out, part.scales, *part.walk.bands, bits)
    return True


@lru_cache(maxsize=4096)
def _job(asked: Settings, values: bool) -> Quantization:
    """How differences are quantized: to codes or to values."""
    given = asked.scales_given or asked.offset_range == OffsetRange.HALF
    settings = replace(asked, source=difference_format(asked.source), offset_range=None, scales_given=given)
    return quantizing_job(settings, values)


def _layout(x: Array, blocks: Blocks) -> tuple[tuple[int, ...], Blocks]:
    return rows_joined(x.shape, blocks) if x.flags.c_contiguous else (x.shape, blocks)


def _parts(
    shape: tuple[int, ...], blocks: Blocks, x: Array, out: Array, scales: Array, offsets: Array
) -> Iterator[_Part] | None:
    """The chunks of an array seen in that shape; None where no loop goes that way."""
    if plan(shape, blocks) is None or not all(array.flags.c_contiguous for array in (out, scales, offsets)):
        return None
    whole = (slice(None),) * len(shape)
    pieces = iter([(whole, whole, 0)]) if x.size <= CHUNK else chunks(shape, blocks)
    if pieces is None:
        return None
    side = scales_shape(shape, blocks)
    x, out, scales, offsets = x.reshape(shape), out.reshape(shape), scales.reshape(side), offsets.reshape(side)

    def parts() -> Iterator[_Part]:
        for where, blocks_where, first in pieces:
            some = np.ascontiguousarray(x[where])
            walk = plan(some.shape, blocks)
            assert walk is not None
            into, scale, offset = (
                array.reshape(-1) for array in (out[where], scales[blocks_where], offsets[blocks_where])
            )
            yield _Part(walk, some.reshape(-1), into, scale, offset, where, first)

    return parts() if x.size else iter(())

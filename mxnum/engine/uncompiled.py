"""An engine for small arrays, which applies the definition with numpy instead of numba.

This engine passes calls that it does not support to the engine `quantizing.host`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum.definition import by_numpy
from mxnum.definition.chunks import positions, random_words
from mxnum.engine.request import DecodingRequest, Request
from mxnum.memory.dtypes import Array, numpy_dtype


def __getattr__(name: str) -> Any:
    """Return an attribute of the engine `host`, whose import loads numba."""
    from mxnum.engine.quantizing import host

    return getattr(host, name)


def quantize(request: Request, out: Any = None) -> Any:
    """Quantize an array, as `host.quantize` does."""
    asked, random = request.settings, request.random
    if out is not None or asked.must_look or not asked.by_powers_of_two:
        return __getattr__("quantize")(request, out)
    modes = by_numpy.Settings(
        asked.rounding, asked.overflow, asked.power_rule, asked.nonfinite, asked.offset_range,
        *(() if random is None else (random.sr_bits,)),
    )  # fmt: skip
    words = None
    if random is not None:
        index = positions(tuple(slice(0, length) for length in asked.shape), asked.shape)
        drawn = random.words is None
        words = random_words(index + random.first, random.seed, random.stream) if drawn else random.words
    codes, *sides = by_numpy.quantize(request.x, asked.format, asked.blocks, modes, request.scales, words)
    return (pack(codes, asked.element.bits) if request.packed else codes, *sides)


def dequantize(request: DecodingRequest, out: Array | None = None) -> Array:
    """Decode an MX array, as `host.dequantize` does."""
    asked = request.settings
    if out is not None or asked.packed or asked.has_offsets or not asked.scale.power_of_two:
        values: Array = __getattr__("dequantize")(request, out)
        return values
    patterns = by_numpy.dequantize(
        request.stored, request.scales, asked.element, asked.scale, asked.blocks, asked.target
    )
    return patterns.view(numpy_dtype(asked.target))


def pack(codes: Array, bits: int, out: Array | None = None) -> Array:
    """Pack codes into a bit stream, as `host.pack` does."""
    if out is not None:
        packed: Array = __getattr__("pack")(codes, bits, out)
        return packed
    stream = np.unpackbits(codes[..., np.newaxis], axis=-1, count=bits, bitorder="little")
    rows = stream.reshape(*codes.shape[:-1], math.prod(codes.shape[-1:]) * bits)
    return np.packbits(rows, axis=-1, bitorder="little")

"""Dask arrays, quantized chunk by chunk: arrays larger than memory, on one machine or many (extra ``distributed``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import mxnum as mx
from mxnum import errors, formats
from mxnum.dtypes import as_array
from mxnum.formats import MXFormat
from mxnum.layout import resolve_blocks


class MXChunks(NamedTuple):
    """Codes and scales as dask arrays whose chunks belong together."""

    codes: Any
    scales: Any
    format: MXFormat
    blocks: tuple[int, ...]

    def compute(self) -> mx.MXArray:
        """All of it in memory."""
        dask = errors.package("dask", "distributed")
        codes, scales = dask.compute(self.codes, self.scales)
        return mx.MXArray.from_parts(codes, scales, self.format, blocks=self.blocks)


def quantize(x: Any, format: str | MXFormat, **options: Any) -> MXChunks:
    """`mxnum.quantize` of a dask array, lazily. Blocks must not straddle chunks: each inner chunk holds whole blocks.

    Takes the keywords of `mxnum.quantize` except `offset`, `scales`, `out`, and `seed`: which random word an element
    gets would depend on the chunks. `random_bits` may be a dask array of uint32. Mistakes raise here, but for what only
    the numbers tell (``nonfinite="raise"``).
    """
    array, options, blocks = _checked(x, options, format)
    words = options.pop("random_bits", None)
    count = tuple(tuple(-(-n // b) for n in chunks) for chunks, b in zip(array.chunks, blocks, strict=True))
    inputs = (array,) if words is None else (array, words)
    fmt = formats.get_e8m0(format, "mxnum.interop.dask")
    settings = {**options, "blocks": blocks}
    codes = _map(_codes, inputs, fmt, settings, np.uint8, array.chunks)
    scales = _map(_scales, inputs, fmt, settings, np.uint8, count)
    return MXChunks(codes, scales, fmt, blocks)


def fake_quantize(x: Any, format: str | MXFormat, **options: Any) -> Any:
    """`mxnum.fake_quantize` of a dask array, lazily; keywords as in `quantize`."""
    array, options, blocks = _checked(x, options, format)
    words = options.pop("random_bits", None)
    inputs = (array,) if words is None else (array, words)
    settings = {**options, "blocks": blocks}
    fmt = formats.get_e8m0(format, "mxnum.interop.dask")
    return _map(_values, inputs, fmt, settings, array.dtype.newbyteorder("="), array.chunks)


def _checked(x: Any, options: dict[str, Any], format: str | MXFormat) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
    array_module = errors.package("dask.array", "distributed")
    errors.require_type(isinstance(x, array_module.Array), "x", "a dask array", type(x).__name__)
    known = all(length == length for chunks in x.chunks for length in chunks)  # (those that are not are NaN)
    errors.require(known, "x", "of chunks whose lengths are known (x.compute_chunk_sizes())", x.chunks)
    fmt = formats.get_e8m0(format, "mxnum.interop.dask")
    options = dict(options)
    for name in ("seed", "offset", "scales", "out"):
        if options.pop(name, None) is not None:
            instead = " (give random_bits instead)" if name == "seed" else ""
            raise ValueError(f"Argument {name!r} must be left out for a dask array{instead}.")
    layout = {name: options.pop(name, None) for name in ("axis", "block_size", "block_shape", "blocks")}
    blocks = resolve_blocks(x.shape, fmt.block, **layout)
    for axis, (chunks, block) in enumerate(zip(x.chunks, blocks, strict=True)):
        whole = all(length % block == 0 for length in chunks[:-1])
        errors.require(whole, "x", f"in chunks of whole blocks of {block} along axis {axis} (x.rechunk)", chunks)
    words, nothing = options.get("random_bits"), (0,) * x.ndim
    if words is not None:
        if not isinstance(words, array_module.Array):
            words = array_module.from_array(as_array("random_bits", words, anywhere=False))
        errors.require(words.shape == x.shape, "random_bits", f"of shape {x.shape}", words.shape)
        options["random_bits"] = words.rechunk(x.chunks)
    # What is wrong with the rest is said now, not when it is computed.
    of_nothing = {} if words is None else {"random_bits": np.empty(nothing, words.dtype)}
    mx.quantize(np.empty(nothing, x.dtype), fmt, **{**options, "blocks": blocks, **of_nothing})
    return x, options, blocks


def _map(function: Any, inputs: Any, fmt: MXFormat, settings: dict[str, Any], dtype: Any, chunks: Any) -> Any:
    array_module = errors.package("dask.array", "distributed")
    return array_module.map_blocks(
        function,
        *inputs,
        fmt=fmt,
        settings=settings,
        dtype=dtype,
        chunks=chunks,
        meta=np.empty((0,) * inputs[0].ndim, dtype),
    )


def _quantized(x: Any, words: Any, fmt: MXFormat, settings: dict[str, Any]) -> mx.MXArray:
    random: dict[str, Any] = {} if words is None else {"random_bits": np.asarray(words)}
    return mx.quantize(np.asarray(x), fmt, **settings, **random)


def _codes(x: Any, words: Any = None, *, fmt: MXFormat, settings: dict[str, Any]) -> Any:
    return _quantized(x, words, fmt, settings).codes


def _scales(x: Any, words: Any = None, *, fmt: MXFormat, settings: dict[str, Any]) -> Any:
    if settings.get("rounding", "rne") == "sr":  # the scale does not depend on how elements are rounded
        settings = {**settings, "rounding": "rne"}
        settings.pop("sr_bits", None)
        words = None
    return _quantized(x, words, fmt, settings).scales


def _values(x: Any, words: Any = None, *, fmt: MXFormat, settings: dict[str, Any]) -> Any:
    random: dict[str, Any] = {} if words is None else {"random_bits": np.asarray(words)}
    return mx.fake_quantize(np.asarray(x), fmt, **settings, **random)

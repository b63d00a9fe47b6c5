"""Quantize dask arrays chunk by chunk, on one machine or many (extra ``distributed``).

Dask arrays may be larger than memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import mxnum as mx
from mxnum import errors, formats
from mxnum.formats import MXFormat
from mxnum.layout import resolve_blocks
from mxnum.memory.dtypes import as_array, scale_dtype


class MXChunks(NamedTuple):
    """A quantized array: dask arrays of codes and scales, and the tensor scale.

    Each chunk of codes has a chunk of scales. All chunks share the tensor scale, which is None if
    the format has no tensor scale.
    """

    codes: Any
    scales: Any
    format: MXFormat
    blocks: tuple[int, ...]
    tensor_scale: Any = None

    def compute(self) -> mx.MXArray:
        """Compute all chunks and return them as one `MXArray` in memory."""
        dask = errors.package("dask", "distributed")
        codes, scales, tensor = dask.compute(self.codes, self.scales, self.tensor_scale)
        tensor = None if tensor is None else np.asarray(tensor)
        return mx.MXArray.from_parts(codes, scales, self.format, blocks=self.blocks, tensor_scale=tensor)


def quantize(x: Any, format: str | MXFormat, **options: Any) -> MXChunks:
    """Quantize a dask array lazily.

    Every block must lie in one chunk, so every chunk but the last along an axis must hold whole
    blocks. The keywords are those of `mxnum.quantize` except `arithmetic`, `offset`, `scales`,
    `out`, `packed` and `seed`. `seed` is excluded because its random words would depend on the
    chunks. `random_bits` may be a dask array of uint32. For ``nvfp4``, all chunks share one tensor
    scale; without `tensor_scale`, an extra pass over the array computes it. Wrong arguments raise
    an error when `quantize` is called. A number in `x` that is not accepted raises an error when
    its chunk is computed. With ``nonfinite="raise"``, the error message gives the number's index
    within its chunk.
    """
    inputs, tensor, settings, fmt, array = _prepared(x, options, format)
    blocks = settings["blocks"]
    count = tuple(tuple(-(-n // b) for n in chunks) for chunks, b in zip(array.chunks, blocks, strict=True))
    codes = _map(_codes, inputs, fmt, settings, np.uint8, array.chunks)
    scales = _map(_scales, inputs, fmt, settings, scale_dtype(fmt.scale), count)
    return MXChunks(codes, scales, fmt, blocks, tensor)


def fake_quantize(x: Any, format: str | MXFormat, **options: Any) -> Any:
    """Quantize and dequantize a dask array lazily. The keywords are those of `quantize`."""
    inputs, _, settings, fmt, array = _prepared(x, options, format)
    return _map(_values, inputs, fmt, settings, array.dtype.newbyteorder("="), array.chunks)


def _prepared(x: Any, options: dict[str, Any], format: str | MXFormat) -> Any:
    """Check the arguments; return `inputs` for `_map`, tensor scale, settings, format and `x`."""
    array, options, blocks = _checked(x, options, format)
    fmt, inputs, tensor = formats.get(format), [array], None
    options["has_words"], options["has_tensor"] = "random_bits" in options, fmt.tensor_scale is not None
    if options["has_words"]:
        inputs.append(options.pop("random_bits"))
    if fmt.tensor_scale is not None:
        tensor = _tensor_scale(array, fmt, options.pop("tensor_scale", None))
        inputs.append(tensor)
    return inputs, tensor, {**options, "blocks": blocks}, fmt, array


def _tensor_scale(array: Any, fmt: MXFormat, given: Any) -> Any:
    """Return one tensor scale for all chunks, as a dask array without axes."""
    array_module = errors.package("dask.array", "distributed")
    if array.size == 0:
        given = 1
    if given is not None:
        return array_module.from_array(np.asarray(given, np.float32))
    largest = array.map_blocks(_finite_magnitudes, dtype=np.float64, meta=np.empty((0,) * array.ndim)).max()
    return largest.map_blocks(_scale_of_largest, fmt=fmt, dtype=np.float32, meta=np.empty((), np.float32))


def _finite_magnitudes(x: Any) -> Any:
    wide = np.abs(np.asarray(x, np.float64))
    return np.where(np.isfinite(wide), wide, 0)


def _scale_of_largest(largest: Any, *, fmt: MXFormat) -> Any:
    return np.asarray(mx.quantize(np.asarray(largest, np.float64).reshape(1), fmt).tensor_scale)


def _checked(x: Any, options: dict[str, Any], format: str | MXFormat) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
    array_module = errors.package("dask.array", "distributed")
    errors.require_type(isinstance(x, array_module.Array), "x", "a dask array", type(x).__name__)
    # The length of a chunk is NaN if it is unknown, and NaN is not equal to itself.
    known = all(length == length for chunks in x.chunks for length in chunks)
    errors.require(known, "x", "an array whose chunk lengths are known (call x.compute_chunk_sizes())", x.chunks)
    fmt, options = formats.get(format), dict(options)
    exact = options.pop("arithmetic", "exact") == "exact"
    errors.require(exact, "arithmetic", "'exact' for a dask array", "the name of a stack")
    options["packed"] = options.get("packed") or None
    for name in ("seed", "offset", "scales", "out", "packed"):
        if options.pop(name, None) is not None:
            instead = " (give random_bits instead)" if name == "seed" else ""
            raise ValueError(f"Argument {name!r} must be left out for a dask array{instead}.")
    layout = {name: options.pop(name, None) for name in ("axis", "block_size", "block_shape", "blocks")}
    blocks = resolve_blocks(x.shape, fmt.block, **layout)
    for axis, (chunks, block) in enumerate(zip(x.chunks, blocks, strict=True)):
        whole = all(length % block == 0 for length in chunks[:-1])
        errors.require(whole, "x", f"in chunks of whole blocks of {block} along axis {axis} (x.rechunk)", chunks)
    words, nothing = options.pop("random_bits", None), (0,) * x.ndim
    if words is not None:
        if not isinstance(words, array_module.Array):
            words = array_module.from_array(as_array("random_bits", words, anywhere=False))
        errors.require(words.shape == x.shape, "random_bits", f"of shape {x.shape}", words.shape)
        options["random_bits"] = words.rechunk(x.chunks)
    # Quantizing an empty array checks all arguments that are not checked above. Without this call,
    # a wrong argument would raise an error only when chunks are computed.
    tensor = options.get("tensor_scale")
    one = tensor is None or (not isinstance(tensor, str) and np.ndim(tensor) == 0)
    errors.require(one, "tensor_scale", "one number for a dask array", tensor)
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


def _options(rest: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of `mxnum.quantize` for a chunk.

    `rest` holds the chunk's random words and then the tensor scale; either may be missing.
    """
    options, arrays = dict(settings), iter(rest)
    if options.pop("has_words"):
        options["random_bits"] = np.asarray(next(arrays))
    if options.pop("has_tensor"):
        options["tensor_scale"] = np.asarray(next(arrays), np.float32).reshape(())
    return options


def _codes(x: Any, *rest: Any, fmt: MXFormat, settings: dict[str, Any]) -> Any:
    return mx.quantize(np.asarray(x), fmt, **_options(rest, settings)).codes


def _scales(x: Any, *rest: Any, fmt: MXFormat, settings: dict[str, Any]) -> Any:
    options = _options(rest, settings)
    if mx.Rounding(options.get("rounding", "rne")).is_stochastic and fmt.scale.power_of_two:
        options["rounding"] = "rne"  # E8M0 scales do not depend on the rounding of elements
        for name in ("sr_bits", "random_bits"):
            options.pop(name, None)
    return mx.quantize(np.asarray(x), fmt, **options).scales


def _values(x: Any, *rest: Any, fmt: MXFormat, settings: dict[str, Any]) -> Any:
    return mx.fake_quantize(np.asarray(x), fmt, **_options(rest, settings))

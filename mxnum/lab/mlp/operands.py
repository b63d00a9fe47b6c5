"""Round the operands of products and the layer-norm parameters, through the public API."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import mxnum as mx
from mxnum.lab.mlp import kernels
from mxnum.lab.mlp.data import AFFINE, generator
from mxnum.recipe import Operand

Array = Any


class Buffers(dict[Any, Array]):
    """Arrays that are allocated once and overwritten at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.quantizers: dict[Any, tuple[Array, Operand, Callable[[], Array]]] = {}

    def get_like(self, name: Any, shape: tuple[int, ...]) -> Array:
        """Return a float32 array, which is uninitialized at the first call for its name and shape.

        Later calls with the same name and shape return the same array.
        """
        key = (name, shape)
        if key not in self:
            self[key] = np.empty(shape, np.float32)
        return self[key]

    def quantized(self, name: Any, buffer: Any, x: Array, operand: Operand, axis: int) -> Array:
        """Quantize x into the named `buffer`.

        The quantizer called `name` is prepared again only when x or the operand changes.
        """
        made = self.quantizers.get(name)
        if made is None or made[0] is not x or made[1] is not operand:
            out = self.get_like(buffer, x.shape)
            again = mx.fake_quantizer(x, operand.mx_format, out=out, threads=1, **operand.keywords(axis))
            made = self.quantizers[name] = x, operand, again
        return made[2]()

    def clear(self) -> None:
        super().clear()
        self.quantizers.clear()


def is_repeatable(operand: Operand) -> bool:
    """Return True if the rounding depends only on the numbers, not on seed or step.

    `Buffers.quantized` prepares the quantizer of a repeatable operand only once.
    """
    is_quantization = operand.is_mx and operand.error == "quantize" and operand.scale_rule != "released_bump"
    return is_quantization and operand.rounding != "sr" and not operand.matched


def rounded(
    x: Array,
    operand: Operand,
    axis: int,
    out: Array,
    *,
    seeds: tuple[int, ...] = (),
    stream: int = 0,
    already_bf16: bool = False,
) -> Array:
    """Return x rounded along `axis` (-1 or -2) in `out`, or x itself if no rounding is needed.

    For stochastic rounding, the third axis of x from the end has one entry for each run, and
    `seeds` has one seed for each run. The random bits of a run come from its own seed, so they do
    not depend on the other runs. The function uses one thread, because several processes train at
    the same time.
    """
    if operand.format is None or (operand.format == "bfloat16" and already_bf16):
        return x
    if operand.format == "bfloat16":
        source = np.ascontiguousarray(x).reshape(-1).view(np.int32)
        kernels.round_bf16(source, out.reshape(-1).view(np.int32), 1 if operand.rounding == "rne" else 2)
        return out
    if operand.scale_rule == "released_bump":
        return _released_bump(x, operand, axis, out)
    keywords: dict[str, Any] = {"threads": 1, **operand.keywords(axis)}
    if operand.rounding == "sr":
        for run, seed in enumerate(seeds):
            part = np.ascontiguousarray(x[..., run, :, :])
            out[..., run, :, :] = mx.fake_quantize(part, operand.mx_format, seed=seed, stream=stream, **keywords)
        return out
    return mx.fake_quantize(x, operand.mx_format, out=out, **keywords)


def _released_bump(x: Array, operand: Operand, axis: int, out: Array) -> Array:
    """Round x by the scale rule of the paper's released code, which searches along the wrong axis.

    For each position within a block, the rule finds the largest magnitude at this position over all
    blocks of the row. If the mantissa of this magnitude exceeds the mantissa of the largest value
    of the element format, the rule doubles the scales of the numbers at this position. So numbers
    of the same block can have different scales.
    """
    fmt, along = operand.mx_format, axis % x.ndim
    block, length = operand.block_size or fmt.block, x.shape[along]
    if length % block:
        raise ValueError(f"Scale rule 'released_bump' needs rows of whole blocks of {block}, not {length} elements.")
    offsets = (-1, length // block, block * math.prod(x.shape[along + 1 :]))  # axes: rows, blocks, places in a block
    parts = np.ascontiguousarray(x).reshape(offsets)
    largest = np.empty((len(parts), offsets[2]), np.int32)
    kernels.largest_of_blocks(parts.view(np.int32), largest)
    is_higher = 2 * np.frexp(largest.view(np.float32))[0] > _ratio(fmt)
    scales = mx.shared_scale(x, fmt, axis=axis, block_size=block)
    given: dict[str, Any] = {"rounding": operand.rounding, "axis": axis, "block_size": block, "threads": 1}
    higher = mx.fake_quantize(x, fmt, scales=np.minimum(scales, 253) + np.uint8(1), **given)
    kept = np.ascontiguousarray(mx.fake_quantize(x, fmt, scales=scales, out=out, **given))
    kernels.take_where(kept.reshape(offsets), higher.reshape(offsets), is_higher)
    return kept


def _ratio(fmt: mx.MXFormat) -> float:
    """Return the largest value of an element format divided by the greatest power of two below it.

    For E4M3 the result is 448 / 256 = 1.75.
    """
    return float(fmt.element.max) / 2.0**fmt.element.emax


def affine(x: Array, operand: Operand, seeds: tuple[int, ...], step: int, tensor: int) -> Array:
    """Return gamma or beta with the kind of error that `operand.error` names.

    The shape of x is (layers, runs, features).
    """
    if operand.error == "grid":
        return (np.rint(x / np.float32(operand.step)) * np.float32(operand.step)).astype(np.float32)
    if operand.format is None:
        return x
    if operand.matched:
        return _matched(x, operand, seeds, step, tensor)
    if operand.error == "clamp":
        return _clamped(x, operand)
    if operand.rounding == "sr":
        value = np.empty_like(x)
        for run, seed in enumerate(seeds):
            part = np.ascontiguousarray(x[:, run])
            stream = step << 8 | tensor
            value[:, run] = mx.fake_quantize(
                part, operand.mx_format, seed=seed, stream=stream, threads=1, **operand.keywords(-1)
            )
    else:
        value = rounded(x, operand, -1, np.empty_like(x))
    if operand.error == "quantize":
        return value
    error = value - x
    if operand.error == "one_sided":
        return x - np.abs(error)
    for run, seed in enumerate(seeds):
        rng = generator(seed, AFFINE, tensor, step)
        if operand.error == "random_sign":
            signs = rng.integers(0, 2, error[:, run].shape, np.int8) * np.float32(2) - np.float32(1)
            error[:, run] *= signs
        else:
            order = rng.permuted(np.broadcast_to(np.arange(x.shape[-1]), error[:, run].shape), axis=-1)
            error[:, run] = np.take_along_axis(error[:, run], order, axis=-1)
    return x + error


def _matched(x: Array, operand: Operand, seeds: tuple[int, ...], step: int, tensor: int) -> Array:
    """Return gamma or beta with the kind of error that `operand.error` names.

    The error is scaled to the RMS error of rounding under the floor rule.
    """
    floor = affine(x, Operand(operand.format, block_size=operand.block_size), seeds, step, tensor)
    size = _size(floor - x)
    if operand.error == "clamp":
        limit = _cut(np.abs(x), size)
        return np.clip(x, -limit, limit)
    error = affine(x, replace(operand, matched=False), seeds, step, tensor) - x
    own = _size(error)
    return x + error * np.where(own > 0, size / np.where(own > 0, own, 1), 0).astype(np.float32)


def _size(error: Array) -> Array:
    """Return the root mean square of each row."""
    return np.sqrt(np.square(error).mean(axis=-1, keepdims=True, dtype=np.float64))


def _cut(magnitudes: Array, size: Array) -> Array:
    """Return, for each row, the threshold at which clipping has the RMS error `size`.

    The threshold is 0 if the error stays below `size` even when all numbers are clipped to 0.

    Let S1 be the sum of the k largest of n magnitudes, and S2 the sum of their squares. If these k
    magnitudes are clipped at c, the squared errors sum to S2 - 2 c S1 + k c^2. This sum must equal
    n size^2, and the equation gives a threshold c for each k. The threshold is right if it clips
    exactly k magnitudes, that is, if c is at least the next smaller magnitude. The function uses
    the least k with a right threshold.
    """
    largest = np.flip(np.sort(magnitudes, axis=-1), axis=-1).astype(np.float64)
    count = np.arange(1, magnitudes.shape[-1] + 1)
    first, second = np.cumsum(largest, axis=-1), np.cumsum(np.square(largest), axis=-1)
    wanted = np.square(size) * magnitudes.shape[-1]
    spread = np.maximum(np.square(first) - count * (second - wanted), 0)
    cuts = (first - np.sqrt(spread)) / count
    following = np.concatenate([largest[..., 1:], np.zeros_like(largest[..., :1])], axis=-1)
    fits = cuts >= following
    fits[..., -1] = True
    found = np.argmax(fits, axis=-1)[..., None]
    return np.maximum(np.take_along_axis(cuts, found, axis=-1), 0).astype(np.float32)


def _clamped(x: Array, operand: Operand) -> Array:
    """Clip x to the range of its blocks, without rounding."""
    limit = _largest(x, operand, str(operand.scale_rule))
    return np.clip(x, -limit, limit)


def in_last_bin(x: Array, operand: Operand) -> Array:
    """Return, for each number, True if it exceeds the range of its block under the floor rule."""
    return np.abs(x) > _largest(x, operand, "floor")


def _largest(x: Array, operand: Operand, scale_rule: str) -> Array:
    """Return, for each element, the largest magnitude that its block can represent."""
    fmt = operand.mx_format
    block = operand.block_size or fmt.block
    scales = mx.shared_scale(x, fmt, scale_rule=scale_rule, block_size=block)
    limit = np.ldexp(np.full(scales.shape, fmt.element.max, np.float32), scales.astype(np.int32) - 127)
    return np.repeat(limit, block, axis=-1)[..., : x.shape[-1]].astype(np.float32)

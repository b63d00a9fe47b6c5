"""The right answers, computed with numpy by the definition (tests compare them with `mxnum.reference`).

Nothing has to be compiled before the first case. No code is shared with the compiled loops, which
may be what is judged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import mxnum as mx
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.task import Columns, Task
from mxnum.definition import by_numpy
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.dtypes import Array, code_dtype, numpy_dtype, scale_dtype
from mxnum.modes import Nonfinite, Rounding


def as_floats(bits: Array, source: ElementFormat) -> Array:
    """Return bit patterns viewed as floats."""
    return np.ascontiguousarray(bits).view(numpy_dtype(source))


def as_bits(values: Any, source: ElementFormat) -> Array:
    """Return floats viewed as bit patterns."""
    return np.ascontiguousarray(values).view(f"u{source.bits // 8}")


def expected(task: Task, inputs: Columns) -> Columns:
    """Return the right outputs of every case: arrays of shape (cases, fields)."""
    match task.operation:
        case "encode":
            return {"code": element_codes(task, inputs["x"], None, inputs.get("random"))}
        case "quantize":
            q = _quantized(task, inputs, inputs.get("random"))
            return {"scale": unsigned(q.scales), "codes": q.codes}
        case "scale":
            return {"scale": unsigned(_quantized(replace(task, rounding=Rounding.RNE), inputs, None).scales)}
        case "dequantize":
            how = task.element, task.format.scale, (1, 1), task.source, tensor_scales(inputs)
            return {"value": by_numpy.dequantize(inputs["code"], inputs["scale"], *how)}
        case _:
            tensor = None if task.format.tensor_scale is None else 1.0
            scales = (inputs[name][:, None, :].view(scale_dtype(task.format.scale)) for name in ("a_scale", "b_scale"))
            codes = (inputs[name][:, None, :] for name in ("a", "b"))
            sides = zip(codes, scales, strict=True)
            a, b = (mx.MXArray.from_parts(*side, task.format, tensor_scale=tensor) for side in sides)
            value = mx.matmul(a, b.transpose(0, 2, 1), accumulate=task.accumulate)
            return {"value": as_bits(value[:, :, 0], task.source)}


def _quantized(task: Task, inputs: Columns, words: Array | None) -> by_numpy.Quantized:
    """Return the quantized inputs, with each row as one block."""
    x, blocks, tensor, scales = as_floats(inputs["x"], task.source), (1, task.block), tensor_scales(inputs), None
    if by_numpy.looks_at_elements(task.scale_rule):
        how: Any = {"scale_rule": task.scale_rule, "nonfinite": task.nonfinite, "tensor_scale": tensor}
        scales = mx.shared_scale(x, task.format, blocks=blocks, **how)
    return by_numpy.quantize(x, task.format, blocks, _settings(task), scales, words, tensor)


def tensor_scales(inputs: Columns) -> Array | None:
    """Return the tensor scale of each row; None if the format has none."""
    bits = inputs.get("tensor_scale")
    return None if bits is None else np.ascontiguousarray(bits).view(np.float32)


def with_tensor(task: Task, inputs: Columns) -> Columns:
    """Return the inputs with the largest magnitude and the scale of each row's tensor, if the format needs them.

    Each row is a part of a tensor. The tensor's largest finite magnitude is that of the row, or the
    one in ``largest`` if it is larger.
    """
    if not task.has_tensor:
        return inputs
    largest = inputs.get("largest", np.zeros((1, 1), np.int64)).astype(np.int64)
    if "x" in inputs:
        largest = np.maximum(largest, by_numpy.largest_of(as_floats(inputs["x"], task.source), 1))
    tensor = by_numpy.tensor_scale(largest, task.source, task.format)
    return {**inputs, "largest": largest.astype(code_dtype(task.source.bits)), "tensor_scale": tensor.view(np.uint32)}


def unsigned(scales: Array) -> Array:
    """Return scales viewed as their integer codes."""
    return np.ascontiguousarray(scales).view(f"u{scales.itemsize}")


def element_codes(
    task: Task, x: Array, scales: Array | None, random: Array | None, tensor: Array | None = None
) -> Array:
    """Return element codes by the element policy, at scale 1 or at the scale code and tensor scale of each row.

    A NaN for an element without NaN, for which the library raises, becomes the largest value here:
    callers leave it out.
    """
    floats = as_floats(x, task.source)
    if task.element.nan_code is None:
        with np.errstate(invalid="ignore"):
            floats = np.where(np.isnan(floats), floats.dtype.type(np.inf), floats)
    asked = _settings(replace(task, nonfinite=Nonfinite.ELEMENT))
    blocks, fmt, kept = (1, max(1, x.shape[1])), task.format, tensor
    if scales is None:  # at scale 1, in E8M0, which every element can have
        fmt, scales, kept = mx.MXFormat(task.element), np.full((len(x), 1), E8M0.bias, np.uint8), None
    held = np.ascontiguousarray(scales.reshape(-1, 1).astype(f"u{fmt.scale.bits // 8}"))
    return by_numpy.quantize(floats, fmt, blocks, asked, held, random, kept).codes


def scaled(task: Task, x: Array, scales: Array | None, tensor: Array | None = None) -> Array:
    """Return |x| over the scale and the tensor scale of its row, in float64; without scales, |x| itself.

    The quotients compare with values of the element as the exact quotients do.
    """
    if scales is None or task.format.scale.power_of_two:
        return as_magnitudes(x, task.source, scales)
    held = np.broadcast_to(scales.astype(f"u{task.format.scale.bits // 8}"), x.shape)
    return by_numpy.quotients(as_floats(x, task.source), task.format.scale, held, tensor)


def scale_numbers(task: Task, scales: Array) -> Array:
    """Return the values of scale codes in float64."""
    scale = task.format.scale
    if scale.number is None:
        return np.where(scales == scale.nan_code, np.nan, np.ldexp(1.0, scales.astype(np.int64) - scale.bias))
    held = np.ascontiguousarray(scales.astype(f"u{scale.bits // 8}"))
    return by_numpy.scale_numbers(held if scale.bits == 8 else held.view(numpy_dtype(scale.number)), scale)


def is_nan_scale(task: Task, scales: Array) -> Array:
    """Return for each scale code whether it is NaN."""
    scale = task.format.scale
    if scale.number is None:
        return np.asarray(scales == scale.nan_code)
    return np.asarray(scales > scale.number.max_code + (scale.number.infinity_code is not None))


def replace_block(task: Task, block: int) -> mx.MXFormat:
    """Return the task's format in blocks of another length."""
    fmt = task.format
    return mx.MXFormat(task.element, fmt.scale, max(1, block), fmt.name, fmt.tensor_scale)


def _settings(task: Task) -> by_numpy.Settings:
    return by_numpy.Settings(
        task.rounding,
        task.overflow,
        task.scale_rule,
        task.nonfinite,
        sr_bits=task.sr_bits if task.is_stochastic else 30,
    )

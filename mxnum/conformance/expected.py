"""The right answers, from the compiled kernels (tests compare them with `mxnum.reference`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import mxnum as mx
from mxnum.conformance.task import Columns, Task
from mxnum.dtypes import Array, numpy_dtype
from mxnum.formats import ElementFormat
from mxnum.modes import Nonfinite


def as_floats(bits: Array, source: ElementFormat) -> Array:
    """Bit patterns seen as floats."""
    return np.ascontiguousarray(bits).view(numpy_dtype(source))


def as_bits(values: Any, source: ElementFormat) -> Array:
    """Floats seen as bit patterns."""
    return np.ascontiguousarray(values).view(f"u{source.bits // 8}")


def expected(task: Task, inputs: Columns) -> Columns:
    """The outputs of every case: arrays of shape (cases, fields)."""
    match task.operation:
        case "encode":
            return {"code": element_codes(task, inputs["x"], None, inputs.get("random"))}
        case "quantize":
            q = mx.quantize(as_floats(inputs["x"], task.source), task.format, **_options(task, inputs))
            return {"scale": q.scales, "codes": q.codes}
        case "scale":
            x = as_floats(inputs["x"], task.source)
            scales = mx.shared_scale(x, task.format, scale_rule=task.scale_rule, nonfinite=task.nonfinite)
            return {"scale": scales}
        case "dequantize":
            fmt = replace_block(task, 1)
            q = mx.MXArray.from_parts(inputs["code"], inputs["scale"], fmt)
            return {"value": as_bits(q.dequantize(task.source.name), task.source)}
        case _:
            a = mx.MXArray.from_parts(inputs["a"][:, None, :], inputs["a_scale"][:, None, :], task.format)
            b = mx.MXArray.from_parts(inputs["b"][:, None, :], inputs["b_scale"][:, None, :], task.format)
            value = mx.matmul(a, b.transpose(0, 2, 1), accumulate=task.accumulate)
            return {"value": as_bits(value[:, :, 0], task.source)}


def element_codes(task: Task, x: Array, scales: Array | None, random: Array | None) -> Array:
    """Codes of elements by the element policy, at scale 1 or at the scale code of each row.

    A NaN for an element without NaN, which the library refuses, becomes the largest value: callers leave it aside.
    """
    floats = as_floats(x, task.source)
    if task.element.nan_code is None:
        floats = np.where(np.isnan(floats), floats.dtype.type(np.inf), floats)
    if scales is None:
        scales = np.full((len(x), 1), 127, np.uint8)
    inputs = {} if random is None else {"random": random}
    fmt = replace_block(task, x.shape[1])
    options = _options(replace(task, nonfinite=Nonfinite.ELEMENT), inputs)
    return mx.quantize(floats, fmt, scales=scales.reshape(-1, 1), **options).codes


def replace_block(task: Task, block: int) -> mx.MXFormat:
    """The task's format in blocks of another length."""
    return mx.MXFormat(task.element, task.format.scale, max(1, block), task.format.name)


def _options(task: Task, inputs: Columns) -> dict[str, Any]:
    options: dict[str, Any] = {
        "rounding": task.rounding,
        "scale_rule": task.scale_rule,
        "overflow": task.overflow,
        "nonfinite": task.nonfinite,
    }
    if task.is_stochastic:
        options |= {"random_bits": np.ascontiguousarray(inputs["random"]), "sr_bits": task.sr_bits}
    return options

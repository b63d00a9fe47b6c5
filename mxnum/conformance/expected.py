"""The right answers, by the definition as numpy runs it (tests compare them with `mxnum.reference`).

Nothing is compiled for the first case, and nothing is shared with the loops where they are what is judged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import mxnum as mx
from mxnum import by_numpy
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
            x = as_floats(inputs["x"], task.source)
            q = by_numpy.quantize(x, task.format, (1, task.format.block), _settings(task), None, inputs.get("random"))
            return {"scale": q.scales, "codes": q.codes}
        case "scale":
            x = as_floats(inputs["x"], task.source)
            return {"scale": by_numpy.quantize(x, task.format, (1, task.format.block), _settings(task)).scales}
        case "dequantize":
            return {"value": by_numpy.dequantize(inputs["code"], inputs["scale"], task.element, (1, 1), task.source)}
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
    asked = _settings(replace(task, nonfinite=Nonfinite.ELEMENT))
    blocks = 1, max(1, x.shape[1])
    return by_numpy.quantize(floats, task.format, blocks, asked, scales.reshape(-1, 1), random).codes


def replace_block(task: Task, block: int) -> mx.MXFormat:
    """The task's format in blocks of another length."""
    return mx.MXFormat(task.element, task.format.scale, max(1, block), task.format.name)


def _settings(task: Task) -> by_numpy.Settings:
    return by_numpy.Settings(
        task.rounding,
        task.overflow,
        task.scale_rule,
        task.nonfinite,
        sr_bits=task.sr_bits if task.is_stochastic else 30,
    )

"""Compute the right answers with numpy, by the definition.

Because numpy computes the answers, no time is spent on compilation. The module does not run the
compiled loops, which may be the implementation under test. There is one exception: compiled loops
compute the scales of the rules "four over six", which depend on all elements of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

import mxnum as mx
from mxnum.conformance.bits import as_floats
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.task import Columns, Task
from mxnum.definition import by_numpy
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array, code_dtype, numpy_dtype
from mxnum.modes import FloatScaleRule, Nonfinite, Rounding

_Answers = TypeVar("_Answers", Array, Columns)


class Remembering(dict[str, Array]):
    """The inputs of a batch, with a cache of the right answers, which many hypotheses need."""

    def __init__(self, inputs: Columns) -> None:
        super().__init__(inputs)
        #: The cached right answers, by the name of the function and the task that computed them.
        #: Callers must not change these arrays.
        self.found: dict[tuple[str, Task], Any] = inputs.found if isinstance(inputs, Remembering) else {}


def with_answers(inputs: Columns, answers: Array) -> Columns:
    """Return the inputs with new answers of the implementation; keep cached right answers."""
    # Right answers do not depend on the answers of the implementation.
    made = Remembering(inputs) if isinstance(inputs, Remembering) else {**inputs}
    made["answered"] = answers
    return made


def _once(name: str, task: Task, inputs: Columns, answer: Callable[[Task, Columns], _Answers]) -> _Answers:
    """Return `answer(task, inputs)`; if the inputs have a cache, compute the answer only once."""
    if not isinstance(inputs, Remembering):
        return answer(task, inputs)
    if (name, task) not in inputs.found:
        made: Any = answer(task, inputs)
        for array in made.values() if isinstance(made, dict) else (made,):
            array.flags.writeable = False
        inputs.found[name, task] = made
    stored: _Answers = inputs.found[name, task]
    return stored


def expected(task: Task, inputs: Columns) -> Columns:
    """Return the right outputs of every case: arrays of shape (cases, fields)."""
    return _once("expected", task, inputs, task.operation.expected)


def right(task: Task, inputs: Columns, field: str) -> Array:
    """Return the right answers for one output field.

    Codes of blocks are computed at the scales in `inputs`, even if these scales are wrong.
    """
    if field == "codes":
        return _once("codes", task, inputs, _codes_at_given_scales)
    return expected(task, inputs)[field]


def _codes_at_given_scales(task: Task, inputs: Columns) -> Array:
    return element_codes(task, inputs["x"], inputs["scale"], inputs.get("random"), tensor_scales(inputs))


def right_blocks(task: Task, inputs: Columns) -> Columns:
    """Return the right scale and codes of each block."""
    q = _quantized(task, inputs, inputs.get("random"))
    return {"scale": unsigned(q.scales), "codes": q.codes}


def right_scales(task: Task, inputs: Columns) -> Array:
    """Return the right scale code of each block."""
    return _once("scales", replace(task, rounding=Rounding.RNE), inputs, _scales)


def _scales(task: Task, inputs: Columns) -> Array:
    return unsigned(_quantized(task, inputs, None).scales)


def _quantized(task: Task, inputs: Columns, random: Array | None) -> by_numpy.Quantized:
    """Return the quantized inputs, with each row as one block."""
    x, blocks, tensor, scales = as_floats(inputs["x"], task.source), (1, task.block), tensor_scales(inputs), None
    if by_numpy.looks_at_elements(task.scale_rule):
        how: Any = {"scale_rule": task.scale_rule, "nonfinite": task.nonfinite, "tensor_scale": tensor}
        scales = mx.shared_scale(x, task.format, blocks=blocks, **how)
    return by_numpy.quantize(x, task.format, blocks, _settings(task), scales, random, tensor)


def nearby_scales(task: Task, x: Array, tensor: Array | None) -> Array:
    """Return the scale code of each row of numbers, computed from the row's maximum alone.

    If the task's scale rule depends on all elements of a block, the rule `nearest` replaces it.
    """
    chooses = by_numpy.looks_at_elements(task.scale_rule)
    rule = FloatScaleRule.NEAREST if chooses else task.scale_rule
    asked = by_numpy.Settings(scale_rule=rule, nonfinite=Nonfinite.ELEMENT)
    made = by_numpy.quantize(as_floats(x, task.source), task.format, (1, x.shape[1]), asked, tensor_scale=tensor)
    return unsigned(made.scales)


def tensor_scales(inputs: Columns) -> Array | None:
    """Return the tensor scale of each row, or None if the format has no tensor scale."""
    bits = inputs.get("tensor_scale")
    return None if bits is None else np.ascontiguousarray(bits).view(np.float32)


def with_tensor(task: Task, inputs: Columns) -> Columns:
    """Return the inputs with the columns ``largest`` and ``tensor_scale``.

    Each row is a part of a tensor. The new column ``largest`` holds the largest finite magnitude of
    the row's tensor: the larger of the row's own maximum and the old value of ``largest``. If the
    format has no tensor scale, the inputs are returned unchanged.
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


def held(task: Task, scales: Array) -> Array:
    """Return scale codes in the integer type of the format's scales."""
    return np.ascontiguousarray(scales.astype(f"u{task.format.scale.bits // 8}"))


def element_codes(
    task: Task, x: Array, scales: Array | None, random: Array | None, tensor: Array | None = None
) -> Array:
    """Return the element codes of each row at the row's scale, with ``nonfinite="element"``.

    If `scales` is None, all scales are 1. If the element format has no code for NaN, a NaN does not
    raise an error, as it does in the rest of the library. Instead it gets the code of the largest
    value, which callers ignore.
    """
    floats = as_floats(x, task.source)
    if task.element.nan_code is None:
        with np.errstate(invalid="ignore"):
            floats = np.where(np.isnan(floats), floats.dtype.type(np.inf), floats)
    asked = _settings(replace(task, nonfinite=Nonfinite.ELEMENT))
    if scales is None:  # every element format allows E8M0 scales, so use the E8M0 scale 1
        task = replace(task, format=mx.MXFormat(task.element))
        scales, tensor = np.full(len(x), E8M0.bias), None
    blocks, rows = (1, max(1, x.shape[1])), held(task, scales.reshape(-1, 1))
    return by_numpy.quantize(floats, task.format, blocks, asked, rows, random, tensor).codes


def scaled(task: Task, x: Array, scales: Array | None, tensor: Array | None = None) -> Array:
    """Return abs(x) divided by the scale of its row and by the tensor scale, in float64.

    The returned quotient may be rounded. But rounding never moves the quotient onto or across an
    element value, or the midpoint of two neighbouring element values.
    """
    if scales is None or task.format.scale.power_of_two:
        return as_magnitudes(x, task.source, scales)
    rows = np.broadcast_to(held(task, scales), x.shape)
    return by_numpy.quotients(as_floats(x, task.source), task.format.scale, rows, tensor)


def quotients(task: Task, inputs: Columns) -> Array:
    """Return the result of `scaled` for the numbers and the scales in `inputs`."""
    return _once("quotients", task, inputs, _quotients)


def _quotients(task: Task, inputs: Columns) -> Array:
    return scaled(task, inputs["x"], inputs.get("scale"), tensor_scales(inputs))


def scale_numbers(task: Task, scales: Array) -> Array:
    """Return the values of scale codes in float64."""
    scale = task.format.scale
    if scale.number is None:
        return np.where(scales == scale.nan_code, np.nan, np.ldexp(1.0, scales.astype(np.int64) - scale.bias))
    rows = held(task, scales)
    return by_numpy.scale_numbers(rows if scale.bits == 8 else rows.view(numpy_dtype(scale.number)), scale)


def is_nan_scale(task: Task, scales: Array) -> Array:
    """Return True for each scale code that is NaN."""
    scale = task.format.scale
    if scale.number is None:
        return np.asarray(scales == scale.nan_code)
    return np.asarray(scales > scale.number.max_code + (scale.number.infinity_code is not None))


def _settings(task: Task) -> by_numpy.Settings:
    random_bits = task.sr_bits if task.is_stochastic else 30
    return by_numpy.Settings(task.rounding, task.overflow, task.scale_rule, task.nonfinite, sr_bits=random_bits)

"""The answers of each stack in `mxnum.stacks`, for blocks that are parts of tensors.

Each block comes with the largest magnitude of its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mxnum import stacks
from mxnum.conformance.bits import as_floats, with_one_nan
from mxnum.conformance.judging.right import scale_numbers
from mxnum.conformance.task import Answer, Columns, Task, number_of
from mxnum.definition import by_numpy
from mxnum.formats import ELEMENTS
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import Overflow, Rounding
from mxnum.stacks import Stack

_NVFP4 = "e2m1", "e4m3"
_SOURCES = "float32", "bfloat16", "float16"


def applicable(task: Task) -> Iterator[Stack]:
    """Yield the stacks that compute what a task asks for."""
    fmt = task.format
    if (fmt.element.name, fmt.scale.name) != _NVFP4 or fmt.element != ELEMENTS["e2m1"]:
        return
    if not task.operation.in_tensors or task.source.name not in _SOURCES:
        return
    if (task.rounding, task.overflow) != (Rounding.RNE, Overflow.SATURATE):
        return
    for stack in stacks.STACKS.values():
        takes = task.source.name in stack.takes or task.takes_codes  # whose source is the type of the result
        if takes and (fmt.tensor_scale is not None or stack.direction == "none"):
            yield stack


def answer(stack: Stack, field: str) -> Answer:
    """Return a function that gives the stack's answers in a field; its codes are those for the scales answered."""
    made = {"scale": _scales, "codes": _codes, "value": _values}[field]

    def answered(task: Task, inputs: Columns) -> Array:
        with np.errstate(all="ignore"):
            if field == "value":
                return made(stack, task, inputs, _largest(task, inputs))
            x = as_floats(inputs["x"], task.source).astype(np.float32)
            finite = _largest(task, inputs)
            found = made(stack, task, inputs, finite)
            # The largest magnitude of a tensor with an infinity may be the infinity. For a tensor
            # with a NaN, no answer counts as wrong.
            infinite = made(stack, task, inputs, np.where(np.isinf(x).any(axis=1, keepdims=True), np.inf, finite))
            given = inputs["answered"]
            is_open = (given == infinite).all(axis=1) | np.isnan(x).any(axis=1)
            return np.where(is_open[:, None], given, found)

    return answered


def _largest(task: Task, inputs: Columns) -> Array:
    """Return the largest magnitude of each row's tensor; 1 without a tensor scale, where it does not matter."""
    if "largest" not in inputs:
        return np.ones((number_of(inputs), 1), np.float32)
    return as_floats(inputs["largest"], task.source)


def _global(stack: Stack, task: Task, largest: Array) -> Array:
    own = numpy_dtype(task.source) if stack.block_scale_in else np.dtype(np.float32)
    return np.asarray(stack.global_scale(largest.astype(own)), np.float32)


def _scales(stack: Stack, task: Task, inputs: Columns, largest: Array) -> Array:
    x = as_floats(inputs["x"], task.source)
    of_blocks = np.abs(x.astype(np.float32)).max(axis=1, keepdims=True)
    found = np.asarray(stacks.block_scale_of(stack, x.dtype)(of_blocks, _global(stack, task, largest)), np.float32)
    code = by_numpy.encode(np.abs(found), ELEMENTS["e4m3"])
    return np.where(code == 0, stack.for_zero, code)


def _codes(stack: Stack, task: Task, inputs: Columns, largest: Array) -> Array:
    x = as_floats(inputs["x"], task.source).astype(np.float32)
    scales = scale_numbers(task, inputs["scale"]).astype(np.float32)
    factor = np.asarray(stack.factor(scales, _global(stack, task, largest)), np.float32)
    scaled = x / factor if stack.divides else x * factor
    code = by_numpy.encode(np.where(np.isnan(scaled), np.float32(0), scaled), ELEMENTS["e2m1"], task.rounding)
    if not stack.keeps_negative_zero:
        code = np.where(scaled == 0, 0, code)
    if stack.nan_element is None:  # the hardware decides, by the sign of the NaN that it makes
        return np.where(np.isnan(scaled), inputs["answered"], code)
    return np.where(np.isnan(scaled), stack.nan_element, code)


def _values(stack: Stack, task: Task, inputs: Columns, largest: Array) -> Array:
    element = np.array(task.element.values())[inputs["code"]].astype(np.float32)
    scales = scale_numbers(task, inputs["scale"]).astype(np.float32)
    of_all = largest.astype(np.float32)
    value = np.asarray(stack.decoded(element, scales, _global(stack, task, largest), of_all), np.float32)
    return with_one_nan(value.astype(numpy_dtype(task.source)), task.source)

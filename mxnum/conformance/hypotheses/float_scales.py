"""Mistakes in float scales: other rules, other orders of operations, and other tensor scales.

In the names of hypotheses, m is the largest magnitude of a block, s the block's scale, t the tensor
scale (or 1) and x a number. A is the largest magnitude of the tensor, L the largest element and S
the largest scale. A stack of `mxnum.stacks` is software with its own NVFP4 arithmetic;
`answer_of_stack` computes the answers of a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from mxnum import stacks
from mxnum.conformance.bits import as_floats, with_one_nan
from mxnum.conformance.hypotheses.scales import maxima, shifted
from mxnum.conformance.judging.right import expected, right, right_scales, scale_numbers, tensor_scales
from mxnum.conformance.task import Answer, Columns, Task, number_of
from mxnum.definition import by_numpy
from mxnum.formats import ELEMENTS
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import FloatScaleRule, Overflow, Rounding
from mxnum.stacks import Stack

_NVFP4 = "e2m1", "e4m3"
_SOURCES = "float32", "bfloat16", "float16"


def applicable_stacks(task: Task) -> Iterator[Stack]:
    """Yield the stacks (software in `mxnum.stacks`) that can do a task."""
    fmt = task.format
    if (fmt.element.name, fmt.scale.name) != _NVFP4 or fmt.element != ELEMENTS["e2m1"]:
        return
    if not task.operation.in_tensors or task.source.name not in _SOURCES:
        return
    if (task.rounding, task.overflow) != (Rounding.RNE, Overflow.SATURATE):
        return
    for stack in stacks.STACKS.values():
        # `stack.takes` lists the accepted types of inputs. The list does not apply if the inputs
        # are codes, because `task.source` is then the type of the result.
        takes = task.source.name in stack.takes or task.takes_codes
        if takes and (fmt.tensor_scale is not None or stack.direction == "none"):
            yield stack


def answer_of_stack(stack: Stack, field: str) -> Answer:
    """Return a function that computes the values of a field with the arithmetic of `stack`.

    For the field "codes", the function computes the codes of the stack from the scales of the
    implementation under test.
    """
    made = {"scale": _scales_of_stack, "codes": _codes_of_stack, "value": _values_of_stack}[field]

    def answered(task: Task, inputs: Columns) -> Array:
        with np.errstate(all="ignore"):
            if field == "value":
                return made(stack, task, inputs, _largest(task, inputs))
            x = as_floats(inputs["x"], task.source).astype(np.float32)
            finite = _largest(task, inputs)
            found = made(stack, task, inputs, finite)
            # If a tensor has an infinity, software may use infinity or the largest finite number as
            # the tensor's largest magnitude, so both answers are accepted. If a tensor has a NaN,
            # every answer is accepted.
            infinite = made(stack, task, inputs, np.where(np.isinf(x).any(axis=1, keepdims=True), np.inf, finite))
            given = inputs["answered"]
            is_open = (given == infinite).all(axis=1) | np.isnan(x).any(axis=1)
            return np.where(is_open[:, None], given, found)

    return answered


def _largest(task: Task, inputs: Columns) -> Array:
    """Return the largest magnitude of each row's tensor, or 1 if there are no tensor scales."""
    if "largest" not in inputs:
        return np.ones((number_of(inputs), 1), np.float32)
    return as_floats(inputs["largest"], task.source)


def _global(stack: Stack, task: Task, largest: Array) -> Array:
    own = numpy_dtype(task.source) if stack.block_scale_in else np.dtype(np.float32)
    return np.asarray(stack.global_scale(largest.astype(own)), np.float32)


def _scales_of_stack(stack: Stack, task: Task, inputs: Columns, largest: Array) -> Array:
    x = as_floats(inputs["x"], task.source)
    of_blocks = np.abs(x.astype(np.float32)).max(axis=1, keepdims=True)
    found = np.asarray(stacks.block_scale_of(stack, x.dtype)(of_blocks, _global(stack, task, largest)), np.float32)
    code = by_numpy.encode(np.abs(found), ELEMENTS["e4m3"])
    return np.where(code == 0, stack.for_zero, code)


def _codes_of_stack(stack: Stack, task: Task, inputs: Columns, largest: Array) -> Array:
    x = as_floats(inputs["x"], task.source).astype(np.float32)
    scales = scale_numbers(task, inputs["scale"]).astype(np.float32)
    factor = np.asarray(stack.factor(scales, _global(stack, task, largest)), np.float32)
    scaled = x / factor if stack.divides else x * factor
    code = by_numpy.encode(np.where(np.isnan(scaled), np.float32(0), scaled), ELEMENTS["e2m1"], task.rounding)
    if not stack.keeps_negative_zero:
        code = np.where(scaled == 0, 0, code)
    if stack.nan_element is None:  # the code of a NaN depends on the hardware, so every code is accepted
        return np.where(np.isnan(scaled), inputs["answered"], code)
    return np.where(np.isnan(scaled), stack.nan_element, code)


def _values_of_stack(stack: Stack, task: Task, inputs: Columns, largest: Array) -> Array:
    element = np.array(task.element.values())[inputs["code"]].astype(np.float32)
    scales = scale_numbers(task, inputs["scale"]).astype(np.float32)
    of_all = largest.astype(np.float32)
    value = np.asarray(stack.decoded(element, scales, _global(stack, task, largest), of_all), np.float32)
    return with_one_nan(value.astype(numpy_dtype(task.source)), task.source)


_ONE = np.float32(1)

#: Ways to compute a block's scale m / (L t) in float32 (m: block maximum, L: largest element, t:
#: tensor scale).
_SCALE_ORDERS: dict[str, Callable[..., Array]] = {
    "m / L / t": lambda m, L, t: (m / L) / t,
    "m / t / L": lambda m, L, t: (m / t) / L,
    "m / (L t)": lambda m, L, t: m / (L * t),
    "m * (1 / L) / t": lambda m, L, t: (m * (_ONE / L)) / t,
    "m / L * (1 / t)": lambda m, L, t: (m / L) * (_ONE / t),
    "m * (1 / (L t))": lambda m, L, t: m * (_ONE / (L * t)),
}
_ELEMENT_ORDERS: dict[str, Callable[..., Array]] = {
    "x / (s t)": lambda x, s, t: x / (s * t),
    "x * (1 / (s t))": lambda x, s, t: x * (_ONE / (s * t)),
    "x / s / t": lambda x, s, t: (x / s) / t,
    "x / t / s": lambda x, s, t: (x / t) / s,
    "x * (1 / s / t)": lambda x, s, t: x * ((_ONE / s) / t),
    "x * (1 / t / s)": lambda x, s, t: x * ((_ONE / t) / s),
}


def scales(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in scale codes, and functions that give the resulting codes."""
    for rule in FloatScaleRule:
        if rule != task.scale_rule and (not rule.error_power or task.element == ELEMENTS["e2m1"]):
            yield f"scale rule {rule}", _by_rule(rule)
    yield "rounding scales down", _rounded_down
    letters = "(m: block maximum, L: largest element, t: tensor scale)"
    for name, order in _SCALE_ORDERS.items():
        if task.has_tensor or ("(L t)" not in name and "/ t" not in name):
            yield f"{name} in float32 {letters}", partial(_in_order, order, Rounding.RNE)
            if task.scale_number.mantissa_bits < 23:  # a scale in float32 needs no further rounding
                yield f"{name} in float32, rounded down {letters}", partial(_in_order, order, Rounding.RTZ)
    for name, change in _other_tensors(task):
        yield name, _changed(_scale, change)
    yield "a scale that is not divided by the largest element", _without_largest
    least = 1 << task.scale_number.mantissa_bits

    def below_before_rounding(task: Task, inputs: Columns) -> Array:
        return np.where(_rounded_down(task, inputs) < least, 0, _scale(task, inputs))

    yield "the smallest normal scale in place of smaller scales", lambda t, i: np.maximum(_scale(t, i), least)
    yield "flushing subnormal scales to zero", lambda t, i: np.where(_scale(t, i) < least, 0, _scale(t, i))
    yield "flushing scales below the smallest normal scale to zero before rounding", below_before_rounding
    yield "a smallest scale code of 1", lambda t, i: np.maximum(_scale(t, i), 1)
    yield "a scale code that is 1 higher", shifted(1)
    yield "a scale code that is 1 lower", shifted(-1)


def codes(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in codes, given the implementation's scales."""
    for name, change in _other_tensors(task):
        yield name, _changed(lambda t, i: right(t, i, "codes"), change)
    if task.is_stochastic:
        return
    for name, order in _ELEMENT_ORDERS.items():
        if task.has_tensor or ("(s t)" in name):
            yield f"{name} in float32 (x: number, s: scale, t: tensor scale)", partial(_element_in_order, order)
    yield "multiplying by the scale", partial(_element_in_order, lambda x, s, t: x * s * t)


def values(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in dequantized values."""
    for name, change in _other_tensors(task):
        yield name, _changed(lambda t, i: expected(t, i)["value"], change)

    def product_first(task: Task, inputs: Columns) -> Array:
        s, t = _factor(task, inputs)
        with np.errstate(all="ignore"):
            value = np.array(task.element.values())[inputs["code"]].astype(np.float32) * (s * t)
        return with_one_nan(value.astype(numpy_dtype(task.source)), task.source)

    if task.has_tensor:
        yield "a product of scale and tensor scale that is rounded to float32", product_first


def _changed(answer: Answer, change: Callable[[Columns], Columns]) -> Answer:
    return lambda task, inputs: answer(task, change(inputs))


def _by_rule(rule: FloatScaleRule) -> Answer:
    return lambda task, inputs: _scale(replace(task, scale_rule=rule), inputs)


def _scale(task: Task, inputs: Columns) -> Array:
    return right_scales(task, inputs).astype(np.int64)


def _tensor(inputs: Columns) -> Array:
    found = tensor_scales(inputs)
    return np.ones((1, 1), np.float32) if found is None else found


def _rounded_down(task: Task, inputs: Columns) -> Array:
    decides, m = maxima(task, inputs)
    up = _scale(replace(task, scale_rule=FloatScaleRule.RCEIL), inputs)
    most = scale_numbers(task, up) * task.element.max * _tensor(inputs).astype(np.float64)  # this product is exact
    return np.where(decides & (most > m), np.maximum(up - 1, 0), up)


def _in_order(order: Callable[..., Array], rounding: Rounding, task: Task, inputs: Columns) -> Array:
    decides, m = maxima(task, inputs)
    with np.errstate(all="ignore"):
        found = order(m.astype(np.float32), np.float32(task.element.max), _tensor(inputs))
    return np.where(decides, _encoded_scale(task, found, rounding), _scale(task, inputs))


def _without_largest(task: Task, inputs: Columns) -> Array:
    decides, m = maxima(task, inputs)
    return np.where(decides, _encoded_scale(task, m / _tensor(inputs)), _scale(task, inputs))


def _encoded_scale(task: Task, found: Array, rounding: Rounding = Rounding.RNE) -> Array:
    with np.errstate(invalid="ignore"):
        return by_numpy.encode(np.abs(found), task.scale_number, rounding)


def _other_tensors(task: Task) -> Iterator[tuple[str, Callable[[Columns], Columns]]]:
    """Yield names of mistakes in the tensor scale, and functions that replace the tensor scale."""
    if not task.has_tensor:
        return

    def computed(change: Callable[[Array, Array], Array]) -> Callable[[Columns], Columns]:
        """Return a function that replaces the tensor scale t by `change(tensor maximum, t)`."""

        def replace_it(inputs: Columns) -> Columns:
            largest = as_floats(inputs["largest"], task.source).astype(np.float64)
            with np.errstate(all="ignore"):
                t = np.asarray(change(largest, _tensor(inputs)), np.float32)
            t = np.where((t == 0) & (largest > 0), np.float32(2.0**-149), t)
            t = np.where((t > 0) & np.isfinite(t), t, _ONE)
            return {**inputs, "tensor_scale": t.view(np.uint32)}

        return replace_it

    yield "a tensor scale of 1", computed(lambda A, t: np.ones_like(t))
    yield "the reciprocal of the tensor scale", computed(lambda A, t: _ONE / t)
    F, L, S = np.float32, np.float32(task.element.max), np.float32(task.scale_number.max)
    yield "a tensor scale that is not divided by the largest scale", computed(lambda A, t: A / L)
    yield "a tensor scale that is not divided by the largest element", computed(lambda A, t: A / S)
    yield (
        "a tensor scale of A / L / S in float32 (A: tensor maximum, L: largest element, S: largest scale)",
        computed(lambda A, t: A.astype(F) / L / S),
    )
    yield (
        "a tensor scale of A / S / L in float32 (A: tensor maximum, L: largest element, S: largest scale)",
        computed(lambda A, t: A.astype(F) / S / L),
    )
    yield (
        "a tensor scale of A * (1 / (L S)) in float32 (A: tensor maximum, L: largest element, S: largest scale)",
        computed(lambda A, t: A.astype(F) * (_ONE / (L * S))),
    )
    yield (
        "a tensor scale of 1 / (L S / A) in float32 (A: tensor maximum, L: largest element, S: largest scale)",
        computed(lambda A, t: _ONE / (L * S / A.astype(F))),
    )


def _x(task: Task, inputs: Columns) -> Array:
    with np.errstate(all="ignore"):
        return as_floats(inputs["x"], task.source).astype(np.float32)


def _factor(task: Task, inputs: Columns) -> tuple[Array, Array]:
    return scale_numbers(task, inputs["scale"]).astype(np.float32), _tensor(inputs)


def _element_in_order(order: Callable[..., Array], task: Task, inputs: Columns) -> Array:
    """Return the codes that result from the float32 operations of `order`.

    If a scale is zero, return the right codes unless the answers equal the codes of `order`.
    """
    scale, tensor = _factor(task, inputs)
    with np.errstate(all="ignore"):
        found = _encoded(task, order(_x(task, inputs), scale, tensor))
    return np.where((scale == 0) & (inputs["answered"] != found), right(task, inputs, "codes"), found)


def _encoded(task: Task, scaled: Array) -> Array:
    """Return the codes of numbers that were divided by their scales; a NaN becomes zero."""
    known = np.where(np.isnan(scaled), np.float32(0), scaled)
    return by_numpy.encode(known, task.element, task.rounding, task.overflow)

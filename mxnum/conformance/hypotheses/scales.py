"""Mistakes in power-of-two scale codes, and in the choice of elements that decide a scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mxnum.conformance.bits import sign_bits
from mxnum.conformance.cases.grid import as_magnitudes, threshold
from mxnum.conformance.hypotheses.elements import inputs_read_otherwise, moved, read_as
from mxnum.conformance.judging.right import is_nan_scale, right_scales
from mxnum.conformance.task import Answer, Columns, Task
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array
from mxnum.modes import ScaleRule

#: Rare scale rules. If a rare rule and a wrong comparison in another rule give the same answers,
#: reports name the wrong comparison first.
_SELDOM = (ScaleRule.HALF_UP, ScaleRule.FLOOR_PLUS_ONE)
#: Scale rules that do not compare the maximum with a threshold.
_WITHOUT_THRESHOLD = (ScaleRule.FLOOR, ScaleRule.FLOOR_PLUS_ONE)
#: Scale rules that add one to the exponent of every maximum at or above the rule's threshold. All
#: other rules with a threshold add one only to the exponents of maxima above the threshold.
_FROM_THEIR_THRESHOLD = (ScaleRule.EVEN, ScaleRule.HALF_UP)


def scales(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in scale codes, and functions that give the resulting codes."""

    def by_rule(rule: ScaleRule) -> Answer:
        return lambda t, i: right_scales(replace(t, scale_rule=rule), i)

    def compared_otherwise(rule: ScaleRule) -> Answer:
        return lambda t, i: _compared_otherwise(replace(t, scale_rule=rule), i)

    def capped(task: Task, inputs: Columns) -> Array:
        code = right_scales(task, inputs)
        return np.where(code == 254, 253, code)

    others = [rule for rule in ScaleRule if rule != task.scale_rule]
    for rule in others:
        if rule not in _SELDOM:
            yield f"scale rule {rule}", by_rule(rule)
    for rule in ScaleRule:
        if rule not in _WITHOUT_THRESHOLD:
            written, meant = (">", ">=") if rule in _FROM_THEIR_THRESHOLD else (">=", ">")
            yield f"`{written}` in place of `{meant}` in scale rule {rule}", compared_otherwise(rule)
    if task.scale_rule not in _WITHOUT_THRESHOLD:
        for step, where in ((1, "one ulp too low"), (-1, "one ulp too high"), (2, "two ulps too low")):
            yield f"a threshold of scale rule {task.scale_rule} that is {where}", moved(right_scales, step)
    for rule in others:
        if rule in _SELDOM:  # wrong comparisons come first, because they are likelier than rare rules
            yield f"scale rule {rule}", by_rule(rule)
    yield "an exponent from a logarithm in float32", _by_logarithm
    yield "a logarithm in float32 of the maximum divided by the largest element", _by_logarithm_of_quotient
    yield "using the largest scale for a block with infinity", lambda t, i: _of_infinity(t, i, E8M0.bias)
    yield "reading infinity as 2^128", lambda t, i: _of_infinity(t, i, 128 - t.element.emax)
    yield "a smallest scale code of 0x01", lambda t, i: np.maximum(right_scales(t, i), 1)
    if task.source.emax - task.element.emax >= E8M0.bias:  # then the largest input needs scale code 0xFE
        yield "a largest scale code of 0xFD", capped
    yield "a scale code that is 1 higher", shifted(1)
    yield "a scale code that is 1 lower", shifted(-1)
    if task.element.emax:
        yield "a scale exponent from which emax is not subtracted", shifted(task.element.emax)
    yield from scales_of_others(task)


def shifted(step: int) -> Answer:
    """Return a function that adds `step` to right scale codes, clipped to the range of codes."""

    def shift(task: Task, inputs: Columns) -> Array:
        code = right_scales(task, inputs).astype(np.int64)
        return np.where(is_nan_scale(task, code), code, np.clip(code + step, 0, task.format.scale.max_code))

    return shift


def scales_of_others(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each wrong choice of the elements that decide the scale."""

    def all_but_last(_: Task, x: Array) -> Array:
        return np.concatenate([x[:, :-1], x[:, :1] if x.shape[1] > 1 else 0 * x], axis=1)

    def positive(task: Task, x: Array) -> Array:
        return np.where(sign_bits(x, task.source), x.dtype.type(0), x)

    first_only = read_as(lambda _, x: np.repeat(x[:, :1], x.shape[1], axis=1), right_scales)
    yield "a scale computed from the first element alone", first_only
    yield "a scale computed from all elements but the last", read_as(all_but_last, right_scales)
    yield "a scale computed from the positive elements alone", read_as(positive, right_scales)
    yield from inputs_read_otherwise(task, right_scales)


def maxima(task: Task, inputs: Columns) -> tuple[Array, Array]:
    """Return a mask of the blocks that are finite and not all zero, and the maximum of each block.

    The maxima are in float64.
    """
    x = as_magnitudes(inputs["x"], task.source)
    largest = np.where(np.isfinite(x), x, 0).max(axis=1, keepdims=True, initial=0)
    return np.isfinite(x).all(axis=1, keepdims=True) & (largest > 0), largest


def _code(exponent: Array) -> Array:
    """Return the scale code of an exponent, clipped to the range of scales."""
    return np.asarray(np.clip(exponent, -E8M0.bias, E8M0.bias) + E8M0.bias)


def _compared_otherwise(task: Task, inputs: Columns) -> Array:
    """Return the scale codes of a rule that confuses `>` and `>=` at its threshold."""
    assert isinstance(task.scale_rule, ScaleRule)
    decides, largest = maxima(task, inputs)
    half, exponent = np.frexp(largest)
    at = decides & (2 * half == threshold(task.element, task.scale_rule))
    wanted = exponent.astype(np.int64) - 1 - task.element.emax + (task.scale_rule not in _FROM_THEIR_THRESHOLD)
    return np.where(at, _code(wanted), right_scales(task, inputs))


def _by_logarithm(task: Task, inputs: Columns) -> Array:
    """Return the scales of the rule floor, computed with a float32 logarithm.

    Rounding the logarithm to float32 moves some maxima up to the next power of two.
    """
    decides, largest = maxima(task, inputs)
    with np.errstate(all="ignore"):
        logarithm = np.floor(np.log2(largest).astype(np.float32))
    code = _code(np.where(decides, logarithm, 0) - task.element.emax)
    plain = right_scales(replace(task, scale_rule=ScaleRule.FLOOR), inputs)
    return np.where(decides, code, plain).astype(np.int64)


def _by_logarithm_of_quotient(task: Task, inputs: Columns) -> Array:
    """Return the scales of the rule rceil, computed with a float32 quotient and its logarithm.

    A block with infinity gets the largest scale.
    """
    decides, largest = maxima(task, inputs)
    with np.errstate(all="ignore"):
        quotient = (largest / task.element.max).astype(np.float32).astype(np.float64)
        logarithm = np.ceil(np.log2(quotient).astype(np.float32))
    code = _code(np.where(decides, logarithm, 0))
    return np.where(decides, code, _of_infinity(task, inputs, E8M0.bias)).astype(np.int64)


def _of_infinity(task: Task, inputs: Columns, exponent: int) -> Array:
    """Return right scale codes, except for blocks that have an infinity and no NaN.

    The scale code of these blocks is the code of 2**exponent.
    """
    magnitude = as_magnitudes(inputs["x"], task.source)
    rows = np.isinf(magnitude).any(axis=1, keepdims=True) & ~np.isnan(magnitude).any(axis=1, keepdims=True)
    return np.where(rows, int(_code(np.array(exponent))), right_scales(task, inputs))

"""Mistakes in dequantizing and dot products: misread scales, misread subnormals, and other sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mxnum.conformance.judging.right import as_bits, as_floats, expected, scale_numbers
from mxnum.conformance.task import Columns, Task
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import Accumulate

Answer = Callable[[Task, Columns], Array]


def values(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in dequantized values, and functions that give the resulting values."""

    def with_zero(task: Task, inputs: Columns) -> Array:
        bits = _right(task, inputs)
        return np.where(inputs["scale"] == 0, bits & bits.dtype.type(1 << (task.source.bits - 1)), bits)

    yield from without_subnormals(task)
    yield "reading scale 0x00 as zero", with_zero
    yield from _ends_of_scales_misread()
    yield "a scale that is 1 higher", _at_scales(lambda s: np.where(s < 254, s + 1, s))
    yield "a scale that is 1 lower", _at_scales(lambda s: np.where((s > 0) & (s < 255), s - 1, s))
    yield "no scale at all", _at_scales(lambda s: np.full_like(s, E8M0.bias))
    yield "a scale code read as a signed byte", _product(lambda s: np.ldexp(1.0, s.astype(np.int8) - E8M0.bias))
    yield "halving all values", _product(lambda s: _power(s) / 2)
    yield "doubling all values", _product(lambda s: _power(s) * 2)
    yield "reading scale 0xFF as infinity", _product(lambda s: np.where(s == E8M0.nan_code, np.inf, _power(s)))
    yield "a scale code as the exponent bits of a float32 (0x00 is zero, 0xFF infinity)", _product(_exponent_bits)
    yield "losing all signs", lambda task, inputs: _right(task, inputs) & ((1 << (task.source.bits - 1)) - 1)
    if task.element.integer:
        yield "codes read as unsigned", _product(_power, lambda code, sign: code)
        in_signs = _product(_power, lambda code, sign: np.where(code < sign, code, -1.0 * (code - sign)))
        yield "sign and magnitude in place of two's complement", in_signs


def _at_scales(change: Callable[[Array], Array]) -> Answer:
    """Return `answer(task, inputs)`, which gives the right values at changed scales (of both operands in dots)."""

    def answer(task: Task, inputs: Columns) -> Array:
        names = {"scale", "a_scale", "b_scale"} & set(inputs)
        others = {name: change(inputs[name].astype(np.int64)).astype(np.uint8) for name in names}
        return _right(task, {**inputs, **others})

    return answer


def _ends_of_scales_misread() -> Iterator[tuple[str, Answer]]:
    yield "reading scale 0x00 as 2^-126", _at_scales(lambda s: np.maximum(s, 1))
    yield "reading scale 0xFF as 2^127", _at_scales(lambda s: np.minimum(s, 254))


def _product(factor: Callable[[Array], Array], integer: Callable[[Array, int], Array] | None = None) -> Answer:
    """Return `answer(task, inputs)`, which multiplies codes by factors that `factor` makes of the scale codes.

    `integer(code, sign)` reads the integer of a code; without it, codes have their right values.
    """

    def answer(task: Task, inputs: Columns) -> Array:
        e, code = task.element, inputs["code"].astype(np.int64)
        with np.errstate(all="ignore"):
            values = np.array(e.values())[code]
            if integer is not None:
                values = np.ldexp(integer(code, 1 << (e.bits - 1)), -e.mantissa_bits)
            values = values * factor(inputs["scale"].astype(np.int64))
            return _as_answers(task, values.astype(numpy_dtype(task.source)))

    return answer


def _power(scale: Array) -> Array:
    return np.where(scale == E8M0.nan_code, np.nan, np.ldexp(1.0, scale - E8M0.bias))


def _exponent_bits(scale: Array) -> Array:
    return (scale.astype(np.uint32) << 23).view(np.float32).astype(np.float64)


def without_subnormals(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes that lose subnormal codes or results, and functions that give the resulting values."""

    def flushed(task: Task, inputs: Columns, sign_bit: int = 1 << (task.source.bits - 1)) -> Array:
        bits = _right(task, inputs)
        magnitude = bits & bits.dtype.type((1 << (task.source.bits - 1)) - 1)
        return np.where(magnitude < (1 << task.source.mantissa_bits), bits & bits.dtype.type(sign_bit), bits)

    def subnormal_codes_as_zero(task: Task, inputs: Columns) -> Array:
        sign = 1 << (task.element.bits - 1)
        changed = {}
        for name in {"code", "a", "b"} & set(inputs):
            code = inputs[name]
            small = (code & (sign - 1)) < (1 << task.element.mantissa_bits)
            changed[name] = np.where(small, code & sign, code).astype(code.dtype)
        return _right(task, {**inputs, **changed})

    yield "flushing subnormal results to zero", flushed
    yield "flushing subnormal results to zero without a sign", lambda t, i: flushed(t, i, 0)
    if not task.element.integer:
        yield "reading subnormal codes as zero", subnormal_codes_as_zero


def dots(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in sums of products, and functions that give the resulting values."""

    def with_first_scale(task: Task, inputs: Columns) -> Array:
        first = {s: np.repeat(inputs[s][:, :1], task.dot_blocks, axis=1) for s in ("a_scale", "b_scale")}
        return _right(task, {**inputs, **first})

    def accumulated(mode: Accumulate) -> Answer:
        return lambda t, i: _right(replace(t, accumulate=mode), i)

    def with_zero(task: Task, inputs: Columns) -> Array:
        zero = {side: np.repeat(inputs[f"{side}_scale"] == 0, task.block, axis=1) for side in ("a", "b")}
        return _right(task, {**inputs, **{side: np.where(zero[side], np.uint8(0), inputs[side]) for side in zero}})

    yield from without_subnormals(task)
    if task.format.scale.power_of_two:
        yield "reading scale 0x00 as zero", with_zero
        yield from _ends_of_scales_misread()
    for mode in (Accumulate.EXACT, Accumulate.BLOCK, Accumulate.SEQUENTIAL):
        if mode != task.accumulate and (task.format.scale.power_of_two or not mode.by_block):
            yield f"accumulation {mode}", accumulated(mode)
    yield "sums in reverse order", lambda t, i: _right(t, {name: column[:, ::-1] for name, column in i.items()})
    if task.accumulate.by_block and task.dot_blocks > 3:  # a tree adds fewer blocks in the same order
        yield "sums of blocks added in pairs (a tree)", _in_pairs
    small, large = (pick(abs(v) for v in task.element.values() if 0 < abs(v) < np.inf) for pick in (min, max))
    if task.accumulate.by_block and task.block * (large / small) ** 2 >= 1 << 24:  # else float32 sums are exact
        yield "sums within each block in float32, in order", _blocks_in_float32
    yield "sums in float64, in order", _in_type(np.float64)
    yield "sums in float32 without fused multiply-add, in order", _in_type(np.float32)
    yield "the scales of the first block for all", with_first_scale
    yield "the scales of a in place of those of b", lambda t, i: _right(t, {**i, "b_scale": i["a_scale"]})
    yield "the scales of b in place of those of a", lambda t, i: _right(t, {**i, "a_scale": i["b_scale"]})


def _in_pairs(task: Task, inputs: Columns) -> Array:
    """Return dot products whose block sums are added in pairs, then the pair sums in pairs, and so on."""
    single, sides = replace(task, dot_blocks=1), {name: inputs[name] for name in ("a", "b", "a_scale", "b_scale")}
    parts = [
        {name: np.split(column, task.dot_blocks, axis=1)[i] for name, column in sides.items()}
        for i in range(task.dot_blocks)
    ]
    sums = [as_floats(_right(single, part), task.source) for part in parts]
    with np.errstate(all="ignore"):
        while len(sums) > 1:
            sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
    return _as_answers(task, sums[0])


def _blocks_in_float32(task: Task, inputs: Columns) -> Array:
    values, shape = np.array(task.element.values(), np.float32), (-1, task.dot_blocks, task.block)
    with np.errstate(all="ignore"):
        sums = np.cumsum((values[inputs["a"]] * values[inputs["b"]]).reshape(shape), axis=2)[:, :, -1]
        factor = scale_numbers(task, inputs["a_scale"]) * scale_numbers(task, inputs["b_scale"])
        terms = (sums * factor).astype(np.float32)
        return _as_answers(task, np.cumsum(terms, axis=1)[:, -1:] + np.float32(0))


def _in_type(dtype: type[np.floating[Any]]) -> Answer:
    """Return `answer(task, inputs)`, which rounds values, products and running sums to a type.

    The result is rounded to float32.
    """

    def answer(task: Task, inputs: Columns) -> Array:
        values = np.array(task.element.values())
        with np.errstate(all="ignore"):
            a, b = (
                (values[inputs[side]] * np.repeat(scale_numbers(task, inputs[f"{side}_scale"]), task.block, axis=1))
                for side in ("a", "b")
            )
            total = np.cumsum(a.astype(dtype) * b.astype(dtype), axis=1)[:, -1:] + dtype(0)
            return _as_answers(task, total.astype(np.float32))

    return answer


def _as_answers(task: Task, values: Array) -> Array:
    bits = as_bits(values, task.source)
    return np.where(np.isnan(values), bits.dtype.type(task.source.nan_code or 0), bits)


def _right(task: Task, inputs: Columns) -> Array:
    answers: Array = expected(task, inputs)["value"]
    return answers

"""What a wrong dequantizer or a wrong unit for dot products may have done: scales or subnormals misread, other sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from mxnum.conformance.expected import as_bits, expected
from mxnum.conformance.task import Columns, Task
from mxnum.dtypes import Array, numpy_dtype
from mxnum.formats import E8M0
from mxnum.modes import Accumulate

Answer = Callable[[Task, Columns], Array]


def values(task: Task) -> Iterator[tuple[str, Answer]]:
    """Other values of codes at scales."""

    def with_zero(task: Task, inputs: Columns) -> Array:
        bits = _right(task, inputs)
        return np.where(inputs["scale"] == 0, bits & bits.dtype.type(1 << (task.source.bits - 1)), bits)

    yield from without_subnormals(task)
    yield "reading scale 0x00 as zero", with_zero
    yield from _ends_of_scales_misread()
    yield "a scale that is 1 higher", _at_scales(lambda s: np.where(s < 254, s + 1, s))
    yield "a scale that is 1 lower", _at_scales(lambda s: np.where((s > 0) & (s < 255), s - 1, s))
    yield "no scale at all", _at_scales(lambda s: np.full_like(s, E8M0.bias))
    yield "a scale code read as a signed byte", _at_signed_scales


def _at_scales(change: Callable[[Array], Array]) -> Answer:
    """The right values at other scales, in dot products of both operands."""

    def answer(task: Task, inputs: Columns) -> Array:
        names = {"scale", "a_scale", "b_scale"} & set(inputs)
        others = {name: change(inputs[name].astype(np.int64)).astype(np.uint8) for name in names}
        return _right(task, {**inputs, **others})

    return answer


def _ends_of_scales_misread() -> Iterator[tuple[str, Answer]]:
    yield "reading scale 0x00 as 2^-126", _at_scales(lambda s: np.maximum(s, 1))
    yield "reading scale 0xFF as 2^127", _at_scales(lambda s: np.minimum(s, 254))


def _at_signed_scales(task: Task, inputs: Columns) -> Array:
    exponent = inputs["scale"].view(np.int8).astype(np.int64) - E8M0.bias
    with np.errstate(all="ignore"):
        values = np.ldexp(np.array(task.element.values())[inputs["code"]], exponent)
        return as_bits(values.astype(numpy_dtype(task.source)), task.source)


def without_subnormals(task: Task) -> Iterator[tuple[str, Answer]]:
    """Values without what is subnormal, in codes or results."""

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
    """Other sums of products."""

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
    yield "the scales of the first block for all", with_first_scale
    yield "the scales of a in place of those of b", lambda t, i: _right(t, {**i, "b_scale": i["a_scale"]})
    yield "the scales of b in place of those of a", lambda t, i: _right(t, {**i, "a_scale": i["b_scale"]})


def _right(task: Task, inputs: Columns) -> Array:
    answers: Array = expected(task, inputs)["value"]
    return answers

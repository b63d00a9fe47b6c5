"""The operations decode and dequantize, whose answers are floats, and implementations' mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from mxnum.conformance.bits import Generator, magnitude_bits, sign_bits, with_one_nan
from mxnum.conformance.cases import float_scales
from mxnum.conformance.cases.batches import COUNTED_BITS
from mxnum.conformance.hypotheses import float_scales as float_scale_hypotheses
from mxnum.conformance.judging import describe
from mxnum.conformance.judging.judge import VALUE_CLASSES, Judgement, Tallies, classify_values, float_labels
from mxnum.conformance.judging.right import expected, tensor_scales
from mxnum.conformance.operations.rounding import of_field
from mxnum.conformance.task import Answer, Columns, Field, Operation, Task
from mxnum.definition import by_numpy
from mxnum.formats import E8M0
from mxnum.memory.dtypes import Array, numpy_dtype


class ValueOperation(Operation):
    """An operation whose answer is one float, with its judge and description."""

    gives = ("value",)

    def outputs(self, task: Task) -> tuple[Field, ...]:
        return (Field("value", task.source.bits, 1, "float"),)

    def labels(self, task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: Tallies) -> Columns:
        return {"value": float_labels(task.source, answers["value"], want["value"], tallies)}

    def class_names(self, task: Task) -> tuple[str, ...]:
        return VALUE_CLASSES

    def classify(self, task: Task, inputs: Columns, want: Columns) -> Array:
        return classify_values(task.source, want["value"][:, 0])

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        return found.want["value"][:, 0], {}

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        return f"{self.given(task, inputs)}: {describe.value(task.source, got, want)}"


class Dequantize(ValueOperation):
    """Turn a scale code and an element code into a number."""

    name = "dequantize"
    settings = ("source",)
    takes, level_2, is_flat, in_tensors = ("code", "scale"), 1_000_000, True, True
    type_key = "result"

    def inputs(self, task: Task) -> list[Field]:
        return [Field("scale", task.scale_bits, 1, "scale"), Field("code", task.element.bits, 1, "element")]

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        if not task.format.scale.power_of_two:
            return float_scales.boundary_pairs(task, rng)
        return self.samples(task, rng, 256 << task.element.bits, 0)

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        if not task.format.scale.power_of_two:
            return float_scales.random_pairs(task, rng, size, start)
        index, codes = np.arange(start, start + size).reshape(-1, 1), 1 << task.element.bits
        return {"scale": (index // codes % 256).astype(np.uint8), "code": (index % codes).astype(np.uint8)}

    def possible(self, task: Task) -> tuple[str, int | None]:
        bits = task.scale_bits + task.element.bits
        is_counted = bits <= COUNTED_BITS and not task.has_tensor
        return "pairs of a scale code and an element code", bits if is_counted else None

    def expected(self, task: Task, inputs: Columns) -> Columns:
        how = task.element, task.format.scale, (1, 1), task.source, tensor_scales(inputs)
        return {"value": by_numpy.dequantize(inputs["code"], inputs["scale"], *how)}

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        named = {"scale code": "scale", "element code": "code"}
        return found.want["value"][:, 0], {
            name: found.inputs[field][:, 0].astype(object) for name, field in named.items()
        }

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        if task.format.scale.power_of_two:
            return of_field("value", _mistakes(task))
        return of_field("value", chain(float_scale_hypotheses.values(task), without_subnormals(task)))

    def given(self, task: Task, inputs: Columns) -> str:
        code, scale = int(inputs["code"][0, 0]), int(inputs["scale"][0, 0])
        meaning = describe.plain(task.element.value(code))
        of_code = f"code {describe.hexadecimal(code, task.element.bits)} ({meaning})"
        return f"{of_code} at scale {describe.scale_text(task, scale)}{describe.of_tensor(inputs)}"


class Decode(ValueOperation):
    """Turn an element code into a number, without a scale."""

    name = "decode"
    settings = ("source",)
    takes, level_2, is_flat = ("code",), 1_000_000, True
    type_key = "result"

    def inputs(self, task: Task) -> list[Field]:
        return [Field("code", task.element.bits, 1, "element")]

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        return self.samples(task, rng, 1 << task.element.bits, 0)

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        codes = np.arange(start, start + size) % (1 << task.element.bits)
        return {"code": codes.astype(np.uint8).reshape(-1, 1)}

    def possible(self, task: Task) -> tuple[str, int | None]:
        return "element codes", task.element.bits

    def expected(self, task: Task, inputs: Columns) -> Columns:
        ones = np.full_like(inputs["code"], E8M0.bias)
        return {"value": by_numpy.dequantize(inputs["code"], ones, task.element, E8M0, (1, 1), task.source, None)}

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        return found.want["value"][:, 0], {"element code": found.inputs["code"][:, 0].astype(object)}

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        inputs = self.samples(task, Generator(0), 1 << task.element.bits, 0)
        right = right_values(task, inputs)
        differing = ((name, answer) for name, answer in _misread(task, _one) if (answer(task, inputs) != right).any())
        return of_field("value", differing)

    def given(self, task: Task, inputs: Columns) -> str:
        return f"code {describe.hexadecimal(int(inputs['code'][0, 0]), task.element.bits)}"


def _mistakes(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each mistake in dequantized values, and a function that makes it."""

    def with_zero(task: Task, inputs: Columns) -> Array:
        bits = right_values(task, inputs)
        return np.where(inputs["scale"] == 0, sign_bits(bits, task.source), bits)

    yield from _misread(task, lambda inputs: _power(inputs["scale"].astype(np.int64)))
    yield "reading scale 0x00 as zero", with_zero
    yield from ends_of_scales_misread()
    yield "a scale code that is 1 higher", partial(_at_scales, lambda s: np.where(s < 254, s + 1, s))
    yield "a scale code that is 1 lower", partial(_at_scales, lambda s: np.where((s > 0) & (s < 255), s - 1, s))
    yield "no scale at all", partial(_at_scales, lambda s: np.full_like(s, E8M0.bias))
    yield "a scale code read as a signed byte", _of_scale(lambda s: np.ldexp(1.0, s.astype(np.int8) - E8M0.bias))
    yield "reading scale 0xFF as infinity", _of_scale(lambda s: np.where(s == E8M0.nan_code, np.inf, _power(s)))
    yield "a scale code as the exponent bits of a float32 (0x00 is zero, 0xFF infinity)", _of_scale(_exponent_bits)


def _misread(task: Task, factor: Callable[[Columns], Any]) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each mistake in the values of codes, and a function that makes it.

    `factor(inputs)` returns the scale by which the value of each code is multiplied.
    """

    def times(other: float) -> Answer:
        return _product(lambda inputs: factor(inputs) * other)

    yield from without_subnormals(task)
    yield "halving all values", times(0.5)
    yield "doubling all values", times(2)
    yield "losing all signs", lambda task, inputs: magnitude_bits(right_values(task, inputs), task.source)
    if task.element.integer:
        yield "codes read as unsigned", _product(factor, lambda code, sign: code)
        in_signs = _product(factor, lambda code, sign: np.where(code < sign, code, -1.0 * (code - sign)))
        yield "sign and magnitude in place of two's complement", in_signs


def _at_scales(change: Callable[[Array], Array], task: Task, inputs: Columns) -> Array:
    """Return the right values with `change` applied to every scale code."""
    names = {"scale", "a_scale", "b_scale"} & set(inputs)
    others = {name: change(inputs[name].astype(np.int64)).astype(np.uint8) for name in names}
    return right_values(task, {**inputs, **others})


def ends_of_scales_misread() -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each way to misread the smallest scale code or the NaN code."""
    yield "reading scale 0x00 as 2^-126", partial(_at_scales, lambda s: np.maximum(s, 1))
    yield "reading scale 0xFF as 2^127", partial(_at_scales, lambda s: np.minimum(s, 254))


def _of_scale(factor: Callable[[Array], Array]) -> Answer:
    """Return a function that multiplies values by `factor(scale codes)`."""
    return _product(lambda inputs: factor(inputs["scale"].astype(np.int64)))


def _product(factor: Callable[[Columns], Any], integer: Callable[[Array, int], Array] | None = None) -> Answer:
    """Return a function that multiplies the values of codes by `factor(inputs)`.

    `integer(code, sign)` reads a code as an integer; `sign` is the code with only the sign bit set.
    If `integer` is None, the function multiplies the right values of the codes.
    """

    def answer(task: Task, inputs: Columns) -> Array:
        e, code = task.element, inputs["code"].astype(np.int64)
        with np.errstate(all="ignore"):
            values = np.array(e.values())[code]
            if integer is not None:
                values = np.ldexp(integer(code, 1 << (e.bits - 1)), -e.mantissa_bits)
            values = values * factor(inputs)
            return with_one_nan(values.astype(numpy_dtype(task.source)), task.source)

    return answer


def _one(inputs: Columns) -> float:
    return 1.0


def _power(scale: Array) -> Array:
    return np.where(scale == E8M0.nan_code, np.nan, np.ldexp(1.0, scale - E8M0.bias))


def _exponent_bits(scale: Array) -> Array:
    return (scale.astype(np.uint32) << 23).view(np.float32).astype(np.float64)


def without_subnormals(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake that loses subnormal codes or results."""

    def flushed(task: Task, inputs: Columns, keeps_sign: bool = True) -> Array:
        bits = right_values(task, inputs)
        is_small = magnitude_bits(bits, task.source) < (1 << task.source.mantissa_bits)
        return np.where(is_small, sign_bits(bits, task.source) * keeps_sign, bits)

    def subnormal_codes_as_zero(task: Task, inputs: Columns) -> Array:
        sign = 1 << (task.element.bits - 1)
        changed = {}
        for field in task.inputs:
            if field.kind == "element":
                code = inputs[field.name]
                small = (code & (sign - 1)) < (1 << task.element.mantissa_bits)
                changed[field.name] = np.where(small, code & sign, code).astype(code.dtype)
        return right_values(task, {**inputs, **changed})

    yield "flushing subnormal results to zero", flushed
    yield "flushing subnormal results to +0", lambda t, i: flushed(t, i, False)
    if not task.element.integer:
        yield "reading subnormal codes as zero", subnormal_codes_as_zero


def right_values(task: Task, inputs: Columns) -> Array:
    """Return the right floats of every case."""
    return expected(task, inputs)["value"]

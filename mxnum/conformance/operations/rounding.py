"""The operations that round numbers: encode, quantize, and scale (a block's scale alone)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.cases import blocks, float_scales
from mxnum.conformance.cases.grid import PLACES, as_magnitudes, places
from mxnum.conformance.hypotheses import float_scales as float_scale_hypotheses
from mxnum.conformance.hypotheses.elements import at_other_scales, conversions, elements, in_other_orders
from mxnum.conformance.hypotheses.scales import scales, scales_of_others
from mxnum.conformance.judging import describe, judge
from mxnum.conformance.judging.judge import Judgement, Tallies, direction, or_none, place_of_largest, wrong_codes
from mxnum.conformance.judging.right import element_codes, is_nan_scale, right_blocks, right_scales, tensor_scales
from mxnum.conformance.task import Answer, Columns, Field, Operation, Task
from mxnum.memory.dtypes import Array


def of_field(field: str, named: Iterable[tuple[str, Answer]]) -> Iterator[tuple[str, str, Answer]]:
    """Yield (field, name, function) for each pair (name, function) in `named`."""
    return ((field, name, answer) for name, answer in named)


class Encode(Operation):
    """Round a number to an element code, with a scale of 1."""

    name = "encode"
    settings = ("source", "rounding", "overflow", "sr_bits")
    takes, gives, level_2, is_flat = ("x",), ("code",), 1_000_000, True

    def inputs(self, task: Task) -> list[Field]:
        return [Field("x", task.source.bits, 1, "float")]

    def outputs(self, task: Task) -> tuple[Field, ...]:
        return (Field("code", task.element.bits, 1, "element"),)

    def takes_nan(self, task: Task) -> bool:
        return task.element.nan_code is not None

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        x = np.unique(blocks.boundary_numbers(task)).reshape(-1, 1)
        return blocks.with_random(task, rng, {"x": x}, every_kind=True)

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        x = blocks.random_numbers(task, rng, (size, 1), np.full((size, 1), 127))
        return blocks.with_random(task, rng, {"x": x})

    def possible(self, task: Task) -> tuple[str, int | None]:
        return f"{task.source.name} patterns", task.source.bits

    def expected(self, task: Task, inputs: Columns) -> Columns:
        return {"code": element_codes(task, inputs["x"], None, inputs.get("random"))}

    def labels(self, task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: Tallies) -> Columns:
        random = inputs.get("random")
        return {"code": judge.element_labels(task, inputs["x"], None, random, answers["code"], want["code"], tallies)}

    def class_names(self, task: Task) -> tuple[str, ...]:
        return PLACES

    def classify(self, task: Task, inputs: Columns, want: Columns) -> Array:
        return places(as_magnitudes(inputs["x"], task.source), task.element)[:, 0]

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        got, right = found.answers["code"][:, 0], found.want["code"][:, 0]
        return found.inputs["x"][:, 0], {"direction": direction(task, got, right)}

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        return of_field("code", elements(task))

    def given(self, task: Task, inputs: Columns) -> str:
        return describe.number_text(task, int(inputs["x"][0, 0]), describe.random_word(inputs, 0))

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        x, random = int(inputs["x"][0, 0]), describe.random_word(inputs, 0)
        return describe.element(task, x, None, random, int(got["code"][0, 0]), int(want["code"][0, 0]))


class Convert(Encode):
    """Convert codes of one element format to codes of another, under the name "encode"."""

    def inputs(self, task: Task) -> list[Field]:
        return [Field("x", task.source.bits, 1, "code")]

    def title(self, task: Task) -> str:
        return f"{super().title(task)} from {task.source.name}"

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        x = np.arange(1 << task.source.bits, dtype=np.uint8).reshape(-1, 1)
        return blocks.with_random(task, rng, {"x": x}, every_kind=True)

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        codes = np.arange(1 << task.source.bits, dtype=np.uint8)
        codes = codes[task.takes_nan | ~np.isnan(as_floats(codes, task.source))]
        x = codes[np.arange(start, start + size) % len(codes)].reshape(-1, 1)
        return blocks.with_random(task, rng, {"x": x})

    def possible(self, task: Task) -> tuple[str, int | None]:
        return f"{task.source.name} codes", task.source.bits

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        return of_field("code", conversions(task))


class Scale(Operation):
    """Find the scale code of a block of numbers."""

    name = "scale"
    settings: tuple[str, ...] = ("source", "scale_rule", "nonfinite", "block")
    gives: tuple[str, ...] = ("scale",)
    takes, level_2, in_tensors = ("x",), 100_000, True

    def inputs(self, task: Task) -> list[Field]:
        return [Field("x", task.source.bits, task.block, "float")]

    def outputs(self, task: Task) -> tuple[Field, ...]:
        return (Field("scale", task.scale_bits, 1, "scale"),)

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        if not task.format.scale.power_of_two:
            return float_scales.boundary_blocks(task, rng)
        return {"x": blocks.scale_blocks(task, rng)}

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        if not task.format.scale.power_of_two:
            return float_scales.random_blocks(task, rng, size)
        return {"x": blocks.random_blocks(task, rng, size)}

    def possible(self, task: Task) -> tuple[str, int | None]:
        return f"blocks of {task.block} {task.source.name} numbers", None

    def expected(self, task: Task, inputs: Columns) -> Columns:
        return {"scale": right_scales(task, inputs)}

    def labels(self, task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: Tallies) -> Columns:
        return {"scale": judge.scale_labels(task, inputs, answers["scale"], want["scale"], tallies)}

    def class_names(self, task: Task) -> tuple[str, ...]:
        return judge.BLOCK_CLASSES if task.format.scale.power_of_two else judge.FLOAT_SCALE_CLASSES

    def classify(self, task: Task, inputs: Columns, want: Columns) -> Array:
        return judge.classify_blocks(task, inputs)

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        got, right, x = found.answers["scale"][:, 0].astype(np.int64), found.want["scale"][:, 0], found.inputs["x"]
        decides = x[np.arange(len(right)), place_of_largest(task, x)]
        return decides, {"scale code": right.astype(object), "direction": np.sign(got - right).astype(object)}

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        if task.format.scale.power_of_two:
            return of_field("scale", scales(task))
        return of_field("scale", chain(float_scale_hypotheses.scales(task), scales_of_others(task)))

    def given(self, task: Task, inputs: Columns) -> str:
        return describe.block_text(task, describe.without_padding(inputs)) + describe.of_tensor(inputs)

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        return f"{self.given(task, inputs)}: {describe.scale(task, inputs, got, want)}"


class Quantize(Scale):
    """Round a block of numbers to a scale code and element codes."""

    name = "quantize"
    settings = ("source", "rounding", "scale_rule", "overflow", "nonfinite", "sr_bits", "block")
    gives = ("codes", "scale")

    def outputs(self, task: Task) -> tuple[Field, ...]:
        return *super().outputs(task), Field("codes", task.element.bits, task.block, "element")

    def takes_nan(self, task: Task) -> bool:
        return not task.nonfinite.by_element or task.element.nan_code is not None

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        if not task.format.scale.power_of_two:
            return blocks.with_random(task, rng, float_scales.boundary_blocks(task, rng))
        return blocks.with_random(task, rng, {"x": blocks.boundary_blocks(task, rng)})

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        return blocks.with_random(task, rng, super().samples(task, rng, size, start))

    def expected(self, task: Task, inputs: Columns) -> Columns:
        return right_blocks(task, inputs)

    def labels(self, task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: Tallies) -> Columns:
        return judge.block_labels(task, inputs, answers, want, tallies)

    def causes(self, task: Task, found: Judgement) -> tuple[Array, Columns]:
        bad, rows = wrong_codes(found.labels["codes"]), np.arange(len(found.verdicts))
        wrong, place = np.asarray(bad.any(axis=1)), bad.argmax(axis=1)
        of_scale, more = super().causes(task, found)
        of_code = direction(task, found.answers["codes"][rows, place], found.want["codes"][rows, place])
        return np.where(wrong, found.inputs["x"][rows, place], of_scale), {
            "scale code": more["scale code"],
            "element": or_none(wrong, place),
            "direction": np.where(wrong, of_code, more["direction"]),
        }

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        yield from super().hypotheses(task)
        if not task.format.scale.power_of_two:
            yield from of_field("codes", float_scale_hypotheses.codes(task))
        yield from of_field("codes", elements(task))
        if task.format.scale.power_of_two:
            yield from of_field("codes", at_other_scales(task))
        yield from of_field("codes", in_other_orders(task))

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        start, scale, e = self.given(task, inputs), int(got["scale"][0, 0]), task.element
        labels = judge.block_labels(task, inputs, got, right_blocks(task, inputs), Tallies())["codes"]
        wrong = np.flatnonzero(wrong_codes(labels[0]))
        codes, right = got["codes"][0], want["codes"][0]
        has_meaning = 0 <= scale < 1 << task.scale_bits and not bool(is_nan_scale(task, np.array(scale)))
        if scale != int(want["scale"][0, 0]):
            if not wrong.size or not has_meaning:
                return f"{start}: {describe.scale(task, inputs, got, want)}"
            right = element_codes(task, inputs["x"], got["scale"], inputs.get("random"), tensor_scales(inputs))[0]
            is_nan = is_nan_scale(task, want["scale"])[0, 0]
            start += " (by choice, the scale is not NaN)" if is_nan else " (by choice, the scale differs)"
        if not wrong.size:  # the codes differ only by legitimate choices
            differing = np.flatnonzero(codes != right)
            wrong = differing[:1] if differing.size else np.zeros(1, np.int64)
        # Show an element with a wrong value rather than a zero with a wrong sign.
        zeros = {0, 0 if e.integer else 1 << (e.bits - 1)}
        valued = [i for i in wrong if not {int(codes[i]), int(right[i])} <= zeros]
        place = int(valued[0] if valued else wrong[0])
        code, wanted, x = int(codes[place]), int(right[place]), int(inputs["x"][0, place])
        if has_meaning:
            random, tensor = describe.random_word(inputs, place), describe.tensor_of(inputs)
            about = describe.element(task, x, scale, random, code, wanted, tensor)
            at = f"element {place} at scale {describe.scale_text(task, scale)}, {about}"
        elif not 0 <= code < 1 << e.bits:
            at = f"element {place}: got {describe.misfit(code, e.bits)}, want 0x{wanted:X}."
        else:
            at = f"this is a block of NaN, and element {place} has the code 0x{code:X}."
        size = describe.without_padding(inputs).size
        several = f"{len(wrong)} of its {size} codes are wrong; " if len(wrong) > 1 else ""
        return f"{start}: {several}{at}"

"""The operation dot: its cases (cancellation, overflow, underflow), and mistakes in sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np

import mxnum as mx
from mxnum.conformance.bits import Generator, as_bits, as_floats, with_one_nan
from mxnum.conformance.judging import describe
from mxnum.conformance.judging.right import scale_numbers
from mxnum.conformance.operations.rounding import of_field
from mxnum.conformance.operations.values import ValueOperation, ends_of_scales_misread, right_values, without_subnormals
from mxnum.conformance.task import Answer, Columns, Field, Task
from mxnum.memory.dtypes import Array, code_dtype, scale_dtype
from mxnum.modes import Accumulate


class Dot(ValueOperation):
    """The dot product of two rows of blocks, in float32."""

    name = "dot"
    settings = ("accumulate", "dot_blocks", "block")
    takes, level_2 = ("a", "a_scale", "b", "b_scale"), 100_000

    def inputs(self, task: Task) -> list[Field]:
        fields = []
        for side in ("a", "b"):
            fields.append(Field(f"{side}_scale", task.scale_bits, task.dot_blocks, "scale"))
            fields.append(Field(side, task.element.bits, task.block * task.dot_blocks, "element"))
        return fields

    def result_bits(self, task: Task) -> int | None:
        return task.source.mantissa_bits

    def boundaries(self, task: Task, rng: Generator) -> Columns:
        return boundary_dots(task, rng)

    def samples(self, task: Task, rng: Generator, size: int, start: int) -> Columns:
        return random_dots(task, rng, size)

    def possible(self, task: Task) -> tuple[str, int | None]:
        return f"pairs of rows of {task.dot_blocks} blocks", None

    def expected(self, task: Task, inputs: Columns) -> Columns:
        tensor = None if task.format.tensor_scale is None else 1.0
        scales = (inputs[name][:, None, :].view(scale_dtype(task.format.scale)) for name in ("a_scale", "b_scale"))
        sides = zip((inputs[name][:, None, :] for name in ("a", "b")), scales, strict=True)
        a, b = (mx.MXArray.from_parts(*side, task.format, tensor_scale=tensor) for side in sides)
        value = mx.matmul(a, b.transpose(0, 2, 1), accumulate=task.accumulate)
        return {"value": as_bits(value[:, :, 0], task.source)}

    def hypotheses(self, task: Task) -> Iterator[tuple[str, str, Answer]]:
        return of_field("value", _mistakes(task))

    def given(self, task: Task, inputs: Columns) -> str:
        digits, bits = 2 * ((task.scale_bits + 7) // 8), task.element.bits
        scales = [" ".join(f"{int(s):0{digits}X}" for s in inputs[name][0]) for name in ("a_scale", "b_scale")]
        codes = [
            describe.shortened([describe.hexadecimal(int(c), bits)[2:] for c in inputs[name][0]]) for name in ("a", "b")
        ]
        return f"a = {codes[0]} at scales {scales[0]}, b = {codes[1]} at {scales[1]}"

    def describe(self, task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
        return f"{super().describe(task, inputs, got, want)} with accumulation {task.accumulate}"


def boundary_dots(task: Task, rng: Generator) -> Columns:
    """Return hand-made rows: products, cancellation across blocks, ties, NaNs and infinities.

    For every pair of blocks, there are rows in which the sums of these two blocks cancel. The
    results of these rows depend on the order in which block sums are added.
    """
    element, k, count = task.element, task.block, task.dot_blocks
    largest = element.max_code
    one = min(range(largest + 1), key=lambda code: abs(element.value(code) - 1))  # the code of the value nearest to 1
    sign = 1 << (element.bits - 1)
    smallest = 1
    length = k * count
    rows: list[Columns] = []

    def add(a: Any, b: Any, a_scale: Any = powers(task, 0), b_scale: Any = powers(task, 0)) -> None:
        row: Columns = {}
        for name, scales, codes in (("a", a_scale, a), ("b", b_scale, b)):
            row[f"{name}_scale"] = np.broadcast_to(scales, count).astype(code_dtype(task.scale_bits))
            row[name] = np.broadcast_to(codes, length).astype(np.uint8)
        rows.append(row)

    first = np.arange(length) == 0
    halves = np.arange(length) < length // 2

    def negative(code: int) -> int:
        return (-code) % (1 << element.bits) if element.integer else code ^ sign

    for sa in ends(task, (-127, -126, -63, -7, -1, 0, 1, 33, 127)):
        for sb in [*ends(task, (-127, -74, 0, 73, 127)), *specials(task)]:
            add(largest, largest, sa, sb)
            add(np.where(first, smallest, 0), np.where(first, one, 0), sa, sb)
            add(largest, np.where(halves, one, negative(one)), sa, sb)
            add(np.where(first, negative(smallest), 0), one, sa, sb)
            add(0, largest, sa, sb)
    rising = np.arange(count)
    for gap in range(0, 40, 1):  # each block sum is smaller than the last, so float32 addition rounds
        add(one, np.where(first, one, 0), powers(task, gap - rising * gap))
        add(np.where(halves, largest, negative(largest)), largest, powers(task, 23 - rising * gap))
    place, block = np.arange(length) % k, np.arange(length) // k
    for i, j in combinations(range(count), 2):  # blocks i and j cancel; smaller terms added between them are lost
        large = np.where((rising == i) | (rising == j), 12, -12 - rising)
        opposite = np.where(block == j, negative(one), one)
        add(np.where(place == 0, one, 0), opposite, powers(task, large), powers(task, large))
    # Each of these rows sums three terms in different blocks: 1, half of the last place of 1 in
    # float32 (a tie), and a term that breaks the tie. A sum in float64 loses the term that breaks
    # the tie.
    for places in permutations({0, count // 2, count - 1}, 3):
        far = np.select([rising == each for each in places], [0, -24, -100], -127)
        add(np.where(place == 0, one, 0), one, powers(task, far))
    # If the range of the elements is wide enough, this row sums three terms in one block: a large
    # term, a term that makes a tie, and a term that breaks the tie.
    codes = {value: code for code, value in enumerate(element.values())}
    powers_of_two = element.emax, element.emax - 12, element.emin - element.mantissa_bits
    wide = np.select([place == at for at in (0, k // 2, k - 1)], [codes.get(2.0**p, 0) for p in powers_of_two], 0)
    add(wide, np.where(block == 0, wide, 0))
    for code in range(1 << element.bits):
        add(np.where(first, code, one), one)
        add(np.where(first, code, 0), 0)  # 0 times NaN or infinity
        add(np.where(first, code, one), np.where(halves, code, sign if not element.integer else 0))
    if element.infinity_code is not None:
        inf = element.infinity_code
        add(np.where(halves, inf, inf + sign), one)
        add(np.where(first, inf, one), np.where(first, negative(one), one))
    fixed = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    loose = random_dots(task, rng, 512)
    return {name: np.concatenate([fixed[name], loose[name]]) for name in fixed}


def powers(task: Task, exponents: Any) -> Any:
    """Return the scale codes of powers of two, with exponents clipped to the format's range."""
    number = task.format.scale.number
    if number is None:
        return np.clip(np.asarray(exponents) + task.format.scale.bias, 0, 254)
    return (np.clip(exponents, number.emin, number.emax) + number.bias) << number.mantissa_bits


def ends(task: Task, exponents: tuple[int, ...]) -> list[int]:
    """Return the scale codes of 2**e for each e in `exponents`, without duplicates.

    For float scales, the list also has the two smallest codes, the largest code, and the code of
    the number just below 1.
    """
    number = task.format.scale.number
    more = [] if number is None else [0, 1, powers(task, 0) - 1, number.max_code]
    return list(dict.fromkeys(int(code) for code in [*powers(task, np.array(exponents)), *more]))


def specials(task: Task) -> list[int]:
    """Return scale codes that are NaN or infinite."""
    scale, number = task.format.scale, task.format.scale.number
    return [scale.nan_code] if number is None else [number.max_code + 1, (1 << task.scale_bits) - 1]


def random_dots(task: Task, rng: Generator, size: int) -> Columns:
    """Return rows of random codes and scales.

    In most rows the scales are close together and the codes are finite. One row in eight has
    arbitrary scales, and about 1 % of its codes are arbitrary.
    """
    element = task.element
    finite = np.array([code for code, v in enumerate(element.values()) if abs(v) <= element.max], np.uint8)
    result: Columns = {}
    wild = rng.chance(0.125, (size, 1))
    for side in ("a", "b"):
        near = powers(task, rng.integers(-6, 6, (size, task.dot_blocks)))
        if task.format.scale.number is not None:  # give float scales random fraction bits
            near = near + rng.integers(0, (1 << task.format.scale.number.mantissa_bits) - 1, near.shape)
        anywhere = rng.integers(0, (1 << task.scale_bits) - 1, (size, task.dot_blocks))
        result[f"{side}_scale"] = np.where(wild, anywhere, near).astype(code_dtype(task.scale_bits))
        codes = rng.choice(finite, (size, task.block * task.dot_blocks))
        any_code = rng.integers(0, (1 << element.bits) - 1, codes.shape).astype(np.uint8)
        result[side] = np.where(wild & rng.chance(0.01, codes.shape), any_code, codes)
    return result


def _mistakes(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield the name of each mistake in sums of products, and a function that makes the mistake."""

    def with_first_scale(task: Task, inputs: Columns) -> Array:
        first = {s: np.repeat(inputs[s][:, :1], task.dot_blocks, axis=1) for s in ("a_scale", "b_scale")}
        return right_values(task, {**inputs, **first})

    def accumulated(mode: Accumulate) -> Answer:
        return lambda t, i: right_values(replace(t, accumulate=mode), i)

    def with_zero(task: Task, inputs: Columns) -> Array:
        changed = {
            side: np.where(np.repeat(inputs[f"{side}_scale"] == 0, task.block, axis=1), np.uint8(0), inputs[side])
            for side in ("a", "b")
        }
        return right_values(task, {**inputs, **changed})

    yield from without_subnormals(task)
    if task.format.scale.power_of_two:
        yield "reading scale 0x00 as zero", with_zero
        yield from ends_of_scales_misread()
    for mode in (Accumulate.EXACT, Accumulate.BLOCK, Accumulate.SEQUENTIAL):
        if mode != task.accumulate:
            yield f"accumulation {mode}", accumulated(mode)
    yield "sums in reverse order", lambda t, i: right_values(t, {name: column[:, ::-1] for name, column in i.items()})
    if task.accumulate.by_block and task.dot_blocks > 3:  # a tree adds up to three blocks in order
        yield "sums of blocks added in pairs (a tree)", _in_pairs
    small, large = (pick(abs(v) for v in task.element.values() if 0 < abs(v) < np.inf) for pick in (min, max))
    # If the sum of a block's products fits in 24 bits, adding in float32 is exact, not a mistake.
    if task.accumulate.by_block and task.block * (large / small) ** 2 >= 1 << 24:
        yield "sums within each block in float32, in order", _blocks_in_float32
    yield "sums in float64, in order", partial(_in_type, np.float64)
    yield "sums in float32 without fused multiply-add, in order", partial(_in_type, np.float32)
    yield "the scales of the first block for all blocks", with_first_scale
    yield "the scales of a in place of the scales of b", lambda t, i: right_values(t, {**i, "b_scale": i["a_scale"]})
    yield "the scales of b in place of the scales of a", lambda t, i: right_values(t, {**i, "a_scale": i["b_scale"]})


def _in_pairs(task: Task, inputs: Columns) -> Array:
    """Return dot products whose block sums are added pairwise, as in a binary tree."""
    single, sides = replace(task, dot_blocks=1), {name: inputs[name] for name in ("a", "b", "a_scale", "b_scale")}
    parts = [
        {name: np.split(column, task.dot_blocks, axis=1)[i] for name, column in sides.items()}
        for i in range(task.dot_blocks)
    ]
    sums = [as_floats(right_values(single, part), task.source) for part in parts]
    with np.errstate(all="ignore"):
        while len(sums) > 1:
            sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
    return with_one_nan(sums[0], task.source)


def _blocks_in_float32(task: Task, inputs: Columns) -> Array:
    values, shape = np.array(task.element.values(), np.float32), (-1, task.dot_blocks, task.block)
    with np.errstate(all="ignore"):
        sums = np.cumsum((values[inputs["a"]] * values[inputs["b"]]).reshape(shape), axis=2)[:, :, -1]
        factor = scale_numbers(task, inputs["a_scale"]) * scale_numbers(task, inputs["b_scale"])
        terms = (sums * factor).astype(np.float32)
        return with_one_nan(np.cumsum(terms, axis=1)[:, -1:] + np.float32(0), task.source)


def _in_type(dtype: type[np.floating[Any]], task: Task, inputs: Columns) -> Array:
    """Return dot products whose products and running sums are rounded to `dtype`.

    The result is rounded to float32.
    """
    values = np.array(task.element.values())
    with np.errstate(all="ignore"):
        a, b = (
            (values[inputs[side]] * np.repeat(scale_numbers(task, inputs[f"{side}_scale"]), task.block, axis=1))
            for side in ("a", "b")
        )
        total = np.cumsum(a.astype(dtype) * b.astype(dtype), axis=1)[:, -1:] + dtype(0)
        return with_one_nan(total.astype(np.float32), task.source)

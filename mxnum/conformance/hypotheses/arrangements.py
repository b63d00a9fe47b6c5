"""Mistakes in the order of the codes of a block, or of the elements of an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mxnum.conformance.bits import fits, unpacked
from mxnum.conformance.cases.arrays import as_memory, from_blocks, laid, to_blocks
from mxnum.conformance.judging.judge import BUG, judge
from mxnum.conformance.judging.right import element_codes, tensor_scales
from mxnum.conformance.task import Columns, Task, number_of, select
from mxnum.interop.swizzle import swizzle_scales, unswizzle_scales
from mxnum.layout import Blocks, scales_shape
from mxnum.memory.dtypes import Array

Change = Callable[[Array], Array]


def orders(block: int, bits: int) -> Iterator[tuple[str, Change]]:
    """Yield the name of each order, and a function that puts rows of codes in that order.

    All yielded orders are different.
    """
    straight = np.arange(block)
    seen = {straight.tobytes()}
    for name, order in _permutations(straight, bits):
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield name, _permuted(order)
    if bits < 8 and bits != 4:  # with 4 bits, this order is the same as swapped nibbles
        yield "the right codes packed from the highest bit of each byte", partial(_packed_from_the_top, block, bits)


def _permuted(order: Array) -> Change:
    return lambda codes: codes[:, order]


def _packed_from_the_top(block: int, bits: int, codes: Array) -> Array:
    digits = (codes[:, :, None] >> np.arange(bits, dtype=np.uint8)[::-1]) & 1
    return unpacked(np.packbits(digits.reshape(len(digits), -1), axis=1), block, bits)


def _permutations(straight: Array, bits: int) -> Iterator[tuple[str, Array]]:
    """Yield the name of each order, and an array of indices.

    Entry i of the array is the index of the right code that the order puts at position i.
    """
    block = len(straight)
    even = block % 2 == 0
    if even:
        how = "with the two nibbles of each byte swapped" if bits == 4 else "with neighbours swapped"
        yield f"the right codes {how}", straight.reshape(-1, 2)[:, ::-1].ravel()
    yield "the right codes of each block in reverse", straight[::-1].copy()
    if even:
        pairs = straight.reshape(-1, 2)[::-1].ravel()
        yield "the right codes of each block with its bytes in reverse (two codes a byte)", pairs
    for size in (4, 8, 16):
        if block % size == 0:
            within = straight.reshape(-1, size)[:, ::-1].ravel()
            yield f"the right codes with each group of {size} in reverse", within
    if block % 8 == 0:
        within = straight.reshape(-1, 4, 2)[:, ::-1].ravel()
        yield "the right codes with the bytes of each 4-byte word in reverse (two codes a byte)", within
    for rows in (2, block // 2, 4, 8, block // 4, block // 8):
        if rows > 1 and block % rows == 0:
            which = {2: "with its two halves interleaved", block // 2: "with even indices before odd indices"}
            how = which.get(rows, f"transposed as a {rows} x {block // rows} table")
            yield f"the right codes of each block {how}", straight.reshape(rows, -1).T.ravel()


#: The numbers of cases in the first batch and in each later batch. The first batch is small,
#: because a few cases are enough to rule out most wrong arrangements.
FIRST, BATCH = 64, 8192


@dataclass(frozen=True)
class Answered:
    """The inputs of one array, and the implementation's answers to them."""

    #: The input arrays: ``x`` (and ``random`` if rounding is stochastic), or ``codes`` and
    #: ``scales``.
    inputs: dict[str, Array]
    #: The answers: ``scale`` (and ``codes`` if the operation returns codes), or ``value``.
    answers: dict[str, Array]
    blocks: Blocks
    layout: str
    wrong: int
    #: The largest magnitude and the tensor scale of the array, as columns with one row. Empty if
    #: the format has no tensor scale.
    tensor: Columns = field(default_factory=dict)


#: A function that reads an array and its answers in another order. The function returns cases and
#: answers, or None if the order does not apply to the array.
Arranged = Callable[[Answered], tuple[Columns, Columns] | None]
#: A function that puts the elements of an array in another order, or returns None if the order does
#: not apply to the array.
Reordered = Callable[[Array], Array | None]


def repeated(tensor: Columns, count: int) -> Columns:
    """Return the columns of a tensor, with their only row repeated `count` times."""
    return {name: np.repeat(column, count, axis=0) for name, column in tensor.items()}


def block_columns(inputs: dict[str, Array], answers: dict[str, Array], blocks: Blocks) -> tuple[Columns, Columns]:
    """Return the inputs and the answers of an array as columns, with one row for each block."""
    given = {name: array.reshape(-1, 1) for name, array in answers.items()}
    if "codes" in answers:
        given["codes"] = to_blocks(answers["codes"], blocks)
    return {name: to_blocks(array, blocks) for name, array in inputs.items()}, given


def element_columns(inputs: dict[str, Array], answers: dict[str, Array], blocks: Blocks) -> tuple[Columns, Columns]:
    """Return the inputs (scale and code) and answers of an array, with one row for each element."""
    rows, columns = inputs["codes"].shape
    scales = inputs["scales"].repeat(blocks[0], axis=0)[:rows].repeat(blocks[1], axis=1)[:, :columns]
    given = {"scale": scales.reshape(-1, 1), "code": inputs["codes"].reshape(-1, 1)}
    return given, {name: array.reshape(-1, 1) for name, array in answers.items()}


def _reordered(**changes: Reordered) -> Arranged:
    """Return an arrangement that reorders the named arrays of the inputs or answers."""

    def arrange(one: Answered) -> tuple[Columns, Columns] | None:
        arrays = {**one.inputs, **one.answers}
        changed = {name: change(arrays[name]) for name, change in changes.items() if name in arrays}
        known = {name: array for name, array in changed.items() if array is not None}
        if len(known) < len(changes):
            return None
        inputs, answers = ({name: known.get(name, some[name]) for name in some} for some in (one.inputs, one.answers))
        return (element_columns if "value" in answers else block_columns)(inputs, answers, one.blocks)

    return arrange


def _is_swizzled(scales: Array) -> bool:
    return scales.dtype == np.uint8 and swizzle_scales(scales).size == scales.size


def _unswizzled(scales: Array) -> Array | None:
    rows, columns = scales.shape
    return unswizzle_scales(scales.ravel(), (rows, columns)) if _is_swizzled(scales) else None


def _swizzled(scales: Array) -> Array | None:
    """Return the scales in swizzled order, or None if they have over 8 bits or need padding."""
    return swizzle_scales(scales).reshape(scales.shape) if _is_swizzled(scales) else None


def _by_columns(array: Array) -> Array:
    """Return the array that results from reading an array's memory in column-major order."""
    return array.ravel().reshape(array.shape[::-1]).T


def _everything_by_columns(one: Answered) -> tuple[Columns, Columns] | None:
    return _reordered(**dict.fromkeys(one.answers, _by_columns))(one)


def _memory(one: Answered) -> tuple[Columns, Columns] | None:
    seen = {name: np.ascontiguousarray(as_memory(laid(array, one.layout))) for name, array in one.inputs.items()}
    return block_columns(seen, one.answers, one.blocks)


def _other_axis(one: Answered) -> tuple[Columns, Columns] | None:
    blocks, scales = one.blocks[::-1], one.answers["scale"]
    if math.prod(scales_shape(one.inputs["x"].shape, blocks)) != scales.size:
        return None
    return block_columns(one.inputs, one.answers, blocks)


def _without_tails(zeros: bool, one: Answered) -> tuple[Columns, Columns] | None:
    """Return the cases and answers of all full blocks, without short last blocks.

    If `zeros` is True, return None unless all answers for short blocks are 0.
    """
    inputs, answers = block_columns(one.inputs, one.answers, one.blocks)
    whole = to_blocks(np.ones(one.inputs["x"].shape, np.uint8), one.blocks).all(axis=1)
    if zeros and any(column[~whole].any() for column in answers.values()):
        return None
    return select(inputs, whole), select(answers, whole)


def _previous(scales: Array) -> Array:
    """Return for each block the scale of the previous block in memory.

    The first block of an array keeps its own scale.
    """
    flat = scales.ravel()
    return np.concatenate([flat[:1], flat[:-1]]).reshape(scales.shape)


def _at_previous_scales(task: Task, one: Answered) -> tuple[Columns, Columns] | None:
    """Return the cases and answers, with corrected codes.

    The function corrects the blocks whose codes are right at the scale of the previous block. These
    blocks get the right codes at their own scale.
    """
    if "codes" not in one.answers:
        return None
    inputs, answers = block_columns(one.inputs, one.answers, one.blocks)
    tensor = tensor_scales(repeated(one.tensor, number_of(inputs)))
    numbers = inputs["x"], inputs.get("random"), tensor
    at_previous, at_own = (
        element_codes(task, numbers[0], scales, *numbers[1:])
        for scales in (_previous(answers["scale"]), answers["scale"])
    )
    is_previous = (answers["codes"] == at_previous).all(axis=1, keepdims=True)
    return inputs, answers | {"codes": np.where(is_previous, at_own, answers["codes"])}


#: The arrangements. Each key completes "all answers are right if ...".
ARRANGEMENTS: dict[str, Arranged] = {
    "scales are read in column-major order": _reordered(scale=_by_columns),
    "scales are read as swizzled": _reordered(scale=_unswizzled),
    "scales are read as plain, not as swizzled": _reordered(scale=_swizzled),
    "codes are read in column-major order": _reordered(codes=_by_columns),
    "codes and scales are read in column-major order": _everything_by_columns,
    "x is read as contiguous memory from its first element on": _memory,
    "blocks lie along the other axis": _other_axis,
    "short last blocks are left zero": partial(_without_tails, True),
    "short last blocks are left out": partial(_without_tails, False),
}


def _tried(task: Task) -> dict[str, Arranged]:
    if not task.takes_codes:
        return ARRANGEMENTS | {"codes are read at the scale of the previous block": partial(_at_previous_scales, task)}

    def in_rows(change: Change) -> Reordered:
        """Return a function that puts the codes within each block of an array in another order."""
        rows = 1, task.block
        return lambda codes: from_blocks(change(to_blocks(codes, rows)).astype(np.uint8), codes.shape, rows)

    named = orders(task.block, task.element.bits)
    found = {
        name.replace("the right", "the kernel reads the"): _reordered(codes=in_rows(change)) for name, change in named
    }
    return found | {
        "the kernel uses the scale of the previous block": _reordered(scales=_previous),
        "the kernel reads the scales in column-major order": _reordered(scales=_by_columns),
        "the kernel reads the scales as swizzled": _reordered(scales=_unswizzled),
        "the kernel reads the scales as plain, not as swizzled": _reordered(scales=_swizzled),
    }


def arrangements(task: Task, answered: list[Answered]) -> list[str]:
    """Return the names of the arrangements that make every answer right."""
    found = []
    for name, arrange in _tried(task).items():
        if all(_is_right(task, one, arrange) for one in answered):
            found.append(name)
    if "short last blocks are left zero" in found:  # this implies "left out"
        found.remove("short last blocks are left out")
    return found


def _is_right(task: Task, one: Answered, arrange: Arranged) -> bool:
    """Return True if an arrangement makes an array's answers right.

    If the arrangement does not apply to the array, the function judges the answers as they are.
    """
    arranged = arrange(one)
    if arranged is None:
        return one.wrong == 0
    answers = arranged[1]
    if any(not fits(answers[field.name], field.bits).all() for field in task.outputs):
        return False
    count = number_of(answers)
    starts = [slice(0, FIRST), *(slice(start, start + BATCH) for start in range(FIRST, count, BATCH))]
    for rows in starts:
        some, got = (select(columns, rows) for columns in arranged)
        size = number_of(got)
        some |= repeated(one.tensor, size)
        if size and (judge(task, some, got).verdicts & BUG).any():
            return False
    return True

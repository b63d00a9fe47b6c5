"""Cases for scales that are floats: maxima at every boundary of a scale, in tensors of many sizes.

With a tensor scale, the column ``largest`` holds the largest magnitude of each row's tensor. A
kernel is called once for each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mxnum.conformance.cases import grid
from mxnum.conformance.cases.blocks import few_values
from mxnum.conformance.cases.generator import Generator
from mxnum.conformance.judging.right import as_floats, scale_numbers, unsigned
from mxnum.conformance.task import Columns, Task
from mxnum.definition import by_numpy
from mxnum.memory.dtypes import Array, code_dtype
from mxnum.modes import FloatScaleRule, Nonfinite

#: The largest magnitudes of tensors: 2688, for which NVFP4's tensor scale is 1, a few plain
#: numbers, and the ends of float32.
LARGEST = (2688.0, 5.25, 12.0, 0.0073, 1.7e30, 3.3e38, 2.0**-116 * 1.37, 2.0**-128, 2.0**-147)
#: Every boundary of an 8-bit scale is tried for the first `WHOLE` of them; a sample for the others.
WHOLE = 3
#: Number of codes in a sample of scales, and number of rows of a tensor at level 2.
SAMPLE, ROWS = 24, 512


def boundaries(task: Task, words: Generator) -> Columns:
    """Return the cases of level 1."""
    if task.operation == "dequantize":
        codes = _scale_codes(task, words, 128)
        return _pairs(task, words, codes, np.arange(1 << task.element.bits), largest_of_tensors(task))
    made, tops = [], []
    for number, largest in enumerate(largest_of_tensors(task)):
        tensor = _tensor_scale(task, largest)
        everything = task.scale_bits <= 8 and number < WHOLE
        codes = np.arange(_most(task) + 1) if everything else _scale_codes(task, words, SAMPLE)
        anchors = _anchors(task, codes, tensor, largest)
        tops.append(anchors)
        made.append(_rows_of(task, words, anchors, tensor, largest))
        if number < WHOLE:
            made.append(_rows_of(task, words, anchors[:: max(1, len(anchors) // 6)], tensor, largest, whole=True))
    few = few_values(task, tops[0], words)
    made.append({"x": few, **({"largest": np.zeros((len(few), 1), few.dtype)} if task.has_tensor else {})})
    return joined(made)


def random(task: Task, words: Generator, size: int, start: int) -> Columns:
    """Return cases of level 2: tensors of any size, with bell-shaped blocks and blocks at boundaries."""
    if task.operation == "dequantize":
        return _random_pairs(task, words, size, start)
    made, source = [], task.source
    for first in range(0, size, ROWS):
        count = min(ROWS, size - first)
        top = max(min(source.emax, 120), 1)
        magnitude = np.ldexp(1.0, int(words.integers(-top, top - 8, 1)[0]))
        spread = np.exp2(words.integers(-2048, 0, (count, 1)) / 128.0)
        bell = grid.narrowed(words.bell((count, task.block)) * magnitude * spread, source)
        finite = bell & bell.dtype.type((1 << (source.bits - 1)) - 1)
        largest = int(min(finite.max(), source.max_code))
        tensor = _tensor_scale(task, largest)
        at = _around(task, words, np.minimum(finite.max(axis=1), largest), tensor)
        x = np.where(words.chance(0.5, (count, 1)), at, bell)
        rare = words.choice(grid.special_patterns(source), (count, task.block))
        x = np.where(words.chance(0.002, (count, 1)) & words.chance(0.1, (count, task.block)), rare, x)
        made.append(_of_tensor(task, x, largest))
    return joined(made)


def largest_of_tensors(task: Task) -> list[int]:
    """Return the bit patterns of the largest magnitudes of tensors.

    Without a tensor scale, return only the largest number of the source.
    """
    if not task.has_tensor:
        return [task.source.max_code]
    values = np.array([v for v in LARGEST if v <= task.source.max])
    bits = grid.narrowed(values, task.source).astype(np.int64)
    return [int(b) for b in dict.fromkeys(bits.tolist()) if b]


def joined(made: list[Columns]) -> Columns:
    """Return the rows of several batches as one batch."""
    return {name: np.concatenate([one[name] for one in made]) for name in made[0]}


def _of_tensor(task: Task, x: Array, largest: int) -> Columns:
    dtype = code_dtype(task.source.bits)
    return {"x": x, **({"largest": np.full((len(x), 1), largest, dtype)} if task.has_tensor else {})}


def _tensor_scale(task: Task, largest: int) -> Array | None:
    if not task.has_tensor:
        return None
    return by_numpy.tensor_scale(np.array(largest), task.source, task.format)


def _most(task: Task) -> int:
    number = task.format.scale.number
    assert number is not None
    return number.max_code


def _scale_codes(task: Task, words: Generator, count: int) -> Array:
    """Return about `count` codes of scales: the ends, those around the least normal one, and random ones.

    `dequantize` gets NaN and infinity too. If there are few scale codes, all of them are returned.
    """
    number = task.format.scale.number
    assert number is not None
    if task.scale_bits <= 8 and count >= 1 << (task.scale_bits - 1):
        return np.arange(1 << task.scale_bits)
    normal, most = 1 << number.mantissa_bits, number.max_code
    ends = [0, 1, 2, 3, normal - 1, normal, normal + 1, most - 1, most]
    if task.operation == "dequantize":
        ends += [most + 1, (1 << task.scale_bits) - 1]
    return np.unique(np.concatenate([ends, words.integers(0, most, count)]))


def _anchors(task: Task, codes: Array, tensor: Array | None, largest: int) -> Array:
    """Return bit patterns of maxima at these scales, halfway to the next scale, and beyond the largest.

    The neighbours of each are included.
    """
    source, most = task.source, _most(task)
    codes = codes[codes <= most]
    here, above = (scale_numbers(task, np.minimum(c, most)) for c in (codes, codes + 1))
    unit = task.element.max * (1.0 if tensor is None else float(tensor))
    end = scale_numbers(task, np.array([most]))
    values = np.concatenate([here, (here + above) / 2, end * 1.03125, end * 2]) * unit
    near = grid.with_neighbours(grid.narrowed(values[values <= float(source.max)], source), source).astype(np.int64)
    near = np.concatenate([near, [1, 2, 1 << source.mantissa_bits, largest - 1, largest]])
    return np.unique(near[(near > 0) & (near <= largest)]).astype(code_dtype(source.bits))


def _scales_for(task: Task, anchors: Array, tensor: Array | None) -> Array:
    """Return the factors (scale times tensor scale) of blocks with these maxima, in float64."""
    chooses = by_numpy.looks_at_elements(task.scale_rule)
    rule = FloatScaleRule.NEAREST if chooses else task.scale_rule
    asked = by_numpy.Settings(scale_rule=rule, nonfinite=Nonfinite.ELEMENT)
    x = as_floats(anchors.reshape(-1, 1), task.source)
    made = by_numpy.quantize(x, task.format, (1, 1), asked, tensor_scale=tensor)
    return scale_numbers(task, unsigned(made.scales)) * (1.0 if tensor is None else float(tensor))


def _rows_of(
    task: Task, words: Generator, anchors: Array, tensor: Array | None, largest: int, whole: bool = False
) -> Columns:
    """Return blocks for each maximum, with elements at boundaries of its scale.

    There is one block for each maximum; with `whole`, as many as all boundaries need.
    """
    if not whole or task.block == 1:
        return _of_tensor(task, _around(task, words, anchors, tensor), largest)
    points, rows = grid.points(task.element), []
    for anchor, factor in zip(anchors, _scales_for(task, anchors, tensor)[:, 0], strict=True):
        near = grid.with_neighbours(grid.narrowed(points * factor, task.source), task.source)
        near = near[(near & near.dtype.type((1 << (task.source.bits - 1)) - 1)) <= anchor]
        count = max(1, -(-len(near) // (task.block - 1)))
        near = np.resize(near if len(near) else np.zeros(1, near.dtype), (count, task.block - 1))
        rows.append(_with_anchors(words, near, np.full(count, anchor)))
    return _of_tensor(task, np.concatenate(rows), largest)


def _around(task: Task, words: Generator, anchors: Array, tensor: Array | None) -> Array:
    """Return a block for each maximum, with elements next to values and midpoints of the element at its scale."""
    if task.block == 1:
        return anchors.reshape(-1, 1)
    shape = len(anchors), task.block - 1
    points = words.choice(grid.points(task.element), shape) * _scales_for(task, anchors, tensor)
    near = grid.narrowed(points, task.source).astype(np.int64) + words.integers(-1, 1, shape)
    near = np.clip(near, 0, anchors[:, None].astype(np.int64)).astype(anchors.dtype)
    near |= np.where(words.chance(0.5, shape), near.dtype.type(1 << (task.source.bits - 1)), near.dtype.type(0))
    return _with_anchors(words, near, anchors)


def _with_anchors(words: Generator, near: Array, anchors: Array) -> Array:
    """Return the rows with the anchor of each at a random position in it."""
    rows = np.concatenate([near, anchors[:, None]], axis=1)
    place, each = words.integers(0, rows.shape[1] - 1, len(rows)), np.arange(len(rows))
    rows[each, -1], rows[each, place] = rows[each, place], anchors
    return rows


def _pairs(task: Task, words: Generator, scales: Array, codes: Array, tensors: Iterable[int]) -> Columns:
    """Return every element code at every one of these scales, in every one of these tensors."""
    made: list[Columns] = []
    for largest in tensors:
        pair = {
            "scale": np.repeat(scales, len(codes)).astype(code_dtype(task.scale_bits)).reshape(-1, 1),
            "code": np.tile(codes, len(scales)).astype(np.uint8).reshape(-1, 1),
        }
        made.append(pair | {k: v for k, v in _of_tensor(task, pair["code"], largest).items() if k != "x"})
    return joined(made)


def _random_pairs(task: Task, words: Generator, size: int, start: int) -> Columns:
    codes = 1 << task.element.bits
    index = np.arange(start, start + size)
    scales = index // codes % (1 << task.scale_bits)
    if task.scale_bits > 8:
        scales = words.integers(0, (1 << task.scale_bits) - 1, size)
    found = {
        "scale": scales.astype(code_dtype(task.scale_bits)).reshape(-1, 1),
        "code": (index % codes).astype(np.uint8).reshape(-1, 1),
    }
    if task.has_tensor:
        each = words.integers(1, task.source.max_code, -(-size // ROWS)).repeat(ROWS)[:size]
        found["largest"] = each.astype(code_dtype(task.source.bits)).reshape(-1, 1)
    return found

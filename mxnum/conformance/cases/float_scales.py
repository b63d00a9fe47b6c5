"""Cases for scales that are floats: block maxima near all thresholds of scales, in many tensors.

With a tensor scale, the column ``largest`` holds the largest magnitude of each row's tensor. The
check calls the kernel once for each tensor.
"""

from __future__ import annotations

import numpy as np

from mxnum.conformance.bits import Generator, magnitude_bits
from mxnum.conformance.cases import grid
from mxnum.conformance.cases.blocks import few_values, with_anchors
from mxnum.conformance.judging.right import nearby_scales, scale_numbers
from mxnum.conformance.task import Columns, Task
from mxnum.definition import by_numpy
from mxnum.memory.dtypes import Array, code_dtype

#: The largest magnitudes of tensors: 2688 (for which NVFP4's tensor scale is 1), three ordinary
#: numbers, and five numbers toward both ends of float32's range.
LARGEST = (2688.0, 5.25, 12.0, 0.0073, 1.7e30, 3.3e38, 2.0**-116 * 1.37, 2.0**-128, 2.0**-147)
#: The first `WHOLE` tensors of `LARGEST` are tested at every threshold of an 8-bit scale. The other
#: tensors are tested at a sample of the thresholds.
WHOLE = 3
#: The number of scale codes in a sample, and the number of rows in a tensor of level 2.
SAMPLE, ROWS = 24, 512


def boundary_pairs(task: Task, rng: Generator) -> Columns:
    """Return every element code at many scales, for each tensor magnitude in `LARGEST`."""
    codes = np.arange(1 << task.element.bits)
    scales = np.arange(1 << task.scale_bits) if task.scale_bits <= 8 else _scale_codes(task, rng, 128, nan=True)
    made: list[Columns] = []
    for largest in largest_of_tensors(task):
        pair = {
            "scale": np.repeat(scales, len(codes)).astype(code_dtype(task.scale_bits)).reshape(-1, 1),
            "code": np.tile(codes, len(scales)).astype(np.uint8).reshape(-1, 1),
        }
        made.append(pair | _largest(task, len(pair["code"]), largest))
    return joined(made)


def random_pairs(task: Task, rng: Generator, size: int, start: int) -> Columns:
    """Return pairs of a scale code and an element code for level 2, in tensors of any magnitude."""
    codes = 1 << task.element.bits
    index = np.arange(start, start + size)
    scales = index // codes % (1 << task.scale_bits)
    if task.scale_bits > 8:
        scales = rng.integers(0, (1 << task.scale_bits) - 1, size)
    found = {
        "scale": scales.astype(code_dtype(task.scale_bits)).reshape(-1, 1),
        "code": (index % codes).astype(np.uint8).reshape(-1, 1),
    }
    if task.has_tensor:
        each = rng.integers(1, task.source.max_code, -(-size // ROWS)).repeat(ROWS)[:size]
        found["largest"] = each.astype(code_dtype(task.source.bits)).reshape(-1, 1)
    return found


def boundary_blocks(task: Task, rng: Generator) -> Columns:
    """Return blocks with maxima near scale thresholds, for each tensor magnitude in `LARGEST`."""
    made, tops = [], []
    for number, largest in enumerate(largest_of_tensors(task)):
        tensor = _tensor_scale(task, largest)
        everything = task.scale_bits <= 8 and number < WHOLE
        codes = np.arange(task.scale_number.max_code + 1) if everything else _scale_codes(task, rng, SAMPLE)
        anchors = _anchors(task, codes, tensor, largest)
        tops.append(anchors)
        made.append(_of_tensor(task, _around(task, rng, anchors, tensor), largest))
        if number < WHOLE:
            some = anchors[:: max(1, len(anchors) // 6)]
            made.append(_of_tensor(task, _all_around(task, rng, some, tensor), largest))
    few = few_values(task, tops[0], rng)
    made.append({"x": few, **_largest(task, len(few), 0)})
    return joined(made)


def random_blocks(task: Task, rng: Generator, size: int) -> Columns:
    """Return blocks of level 2: random blocks and boundary blocks, in tensors of any magnitude."""
    made, source = [], task.source
    for first in range(0, size, ROWS):
        count = min(ROWS, size - first)
        top = max(min(source.emax, 120), 1)
        magnitude = np.ldexp(1.0, int(rng.integers(-top, top - 8, 1)[0]))
        spread = np.exp2(rng.integers(-2048, 0, (count, 1)) / 128.0)
        bell = grid.narrowed(rng.bell((count, task.block)) * magnitude * spread, source)
        finite = magnitude_bits(bell, source)
        largest = int(min(finite.max(), source.max_code))
        tensor = _tensor_scale(task, largest)
        at = _around(task, rng, np.minimum(finite.max(axis=1), largest), tensor)
        x = np.where(rng.chance(0.5, (count, 1)), at, bell)
        rare = rng.choice(grid.special_patterns(source), (count, task.block))
        x = np.where(rng.chance(0.002, (count, 1)) & rng.chance(0.1, (count, task.block)), rare, x)
        made.append(_of_tensor(task, x, largest))
    return joined(made)


def largest_of_tensors(task: Task) -> list[int]:
    """Return the largest magnitudes of tensors as bit patterns.

    If the format has no tensor scale, the list holds only the largest finite number of the input's
    float type.
    """
    if not task.has_tensor:
        return [task.source.max_code]
    values = np.array([v for v in LARGEST if v <= task.source.max])
    bits = grid.narrowed(values, task.source).astype(np.int64)
    return [int(b) for b in dict.fromkeys(bits.tolist()) if b]


def joined(made: list[Columns]) -> Columns:
    """Return the rows of several batches as one batch."""
    return {name: np.concatenate([one[name] for one in made]) for name in made[0]}


def _largest(task: Task, count: int, largest: int) -> Columns:
    """Return the column ``largest``, or no column if the format has no tensor scale."""
    return {"largest": np.full((count, 1), largest, code_dtype(task.source.bits))} if task.has_tensor else {}


def _of_tensor(task: Task, x: Array, largest: int) -> Columns:
    return {"x": x, **_largest(task, len(x), largest)}


def _tensor_scale(task: Task, largest: int) -> Array | None:
    return by_numpy.tensor_scale(np.array(largest), task.source, task.format) if task.has_tensor else None


def _scale_codes(task: Task, rng: Generator, count: int, nan: bool = False) -> Array:
    """Return about `count` scale codes: extremes, codes around the least normal, random codes."""
    number = task.scale_number
    normal, most = 1 << number.mantissa_bits, number.max_code
    ends = [0, 1, 2, 3, normal - 1, normal, normal + 1, most - 1, most]
    if nan:  # and infinity
        ends += [most + 1, (1 << task.scale_bits) - 1]
    return np.unique(np.concatenate([ends, rng.integers(0, most, count)]))


def _anchors(task: Task, codes: Array, tensor: Array | None, largest: int) -> Array:
    """Return bit patterns of block maxima near the thresholds of the scales `codes`.

    For most of the maxima, the scale before rounding is near one of `codes`, or near the midpoint
    of this code and the next one. Some of the maxima are too large for the largest scale.
    """
    source, most = task.source, task.scale_number.max_code
    here, above = (scale_numbers(task, np.minimum(c, most)) for c in (codes, codes + 1))
    unit = task.element.max * (1.0 if tensor is None else float(tensor))
    end = scale_numbers(task, np.array([most]))
    values = np.concatenate([here, (here + above) / 2, end * 1.03125, end * 2]) * unit
    near = grid.with_neighbours(grid.narrowed(values[values <= float(source.max)], source), source).astype(np.int64)
    near = np.concatenate([near, [1, 2, 1 << source.mantissa_bits, largest - 1, largest]])
    return np.unique(near[(near > 0) & (near <= largest)]).astype(code_dtype(source.bits))


def _factors(task: Task, anchors: Array, tensor: Array | None) -> Array:
    """Return the factors (scale times tensor scale) of blocks with the maxima `anchors`."""
    codes = nearby_scales(task, anchors.reshape(-1, 1), tensor)
    return scale_numbers(task, codes) * (1.0 if tensor is None else float(tensor))


def _all_around(task: Task, rng: Generator, anchors: Array, tensor: Array | None) -> Array:
    """Return blocks that hold, for each block maximum, all element boundaries at its scale."""
    if task.block == 1:
        return _around(task, rng, anchors, tensor)
    points, rows = grid.points(task.element), []
    for anchor, factor in zip(anchors, _factors(task, anchors, tensor)[:, 0], strict=True):
        near = grid.with_neighbours(grid.narrowed(points * factor, task.source), task.source)
        near = near[magnitude_bits(near, task.source) <= anchor]
        count = max(1, -(-len(near) // (task.block - 1)))
        near = np.resize(near if len(near) else np.zeros(1, near.dtype), (count, task.block - 1))
        rows.append(with_anchors(rng, near, np.full(count, anchor)))
    return np.concatenate(rows)


def _around(task: Task, rng: Generator, anchors: Array, tensor: Array | None) -> Array:
    """Return a block for each maximum, with elements near boundaries at the block's scale.

    The boundaries are the values and midpoints of the element.
    """
    if task.block == 1:
        return anchors.reshape(-1, 1)
    shape = len(anchors), task.block - 1
    points = rng.choice(grid.points(task.element), shape) * _factors(task, anchors, tensor)
    near = grid.narrowed(points, task.source).astype(np.int64) + rng.integers(-1, 1, shape)
    near = np.clip(near, 0, anchors[:, None].astype(np.int64)).astype(anchors.dtype)
    near |= np.where(rng.chance(0.5, shape), near.dtype.type(1 << (task.source.bits - 1)), near.dtype.type(0))
    return with_anchors(rng, near, anchors)

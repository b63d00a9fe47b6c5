"""Inputs of checks with power-of-two scales: numbers, blocks, and words of random bits."""

from __future__ import annotations

import numpy as np

from mxnum.conformance.bits import Generator, magnitude_bits, sign_bits
from mxnum.conformance.cases import grid
from mxnum.conformance.judging.right import nearby_scales, scaled, tensor_scales, with_tensor
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import Array
from mxnum.modes import ScaleRule


def boundary_numbers(task: Task) -> Array:
    """Return bit patterns to encode: all patterns of a type of 16 bits, else a selection.

    The selection contains special values, powers of two, boundaries between codes, and the
    neighbours of these powers and boundaries.
    """
    source = task.source
    if source.bits == 16:
        return np.arange(1 << 16, dtype=np.uint16)
    lowest = source.emin - source.mantissa_bits
    powers = np.ldexp(1.0, np.arange(max(lowest, -1074), source.emax + 1))
    points = np.concatenate([grid.points(task.element), powers, powers[1:] * 1.5])
    with np.errstate(over="ignore"):
        points = points[points <= float(source.max)]
    near = grid.with_neighbours(grid.narrowed(points, source), source, reach=2)
    return np.concatenate([near, grid.past_midpoints(task.element, source), grid.special_patterns(source)])


def boundary_blocks(task: Task, rng: Generator) -> Array:
    """Return blocks whose maxima are extreme numbers, or lie at thresholds of scale rules.

    The other elements of a block lie at boundaries, which are the element format's values and
    midpoints, times the scale of the block. The result also has the blocks of `few_values`.
    """
    k, source = task.block, task.source
    anchors = _anchors(task)
    codes = _floor_codes(task, anchors)
    points = grid.points(task.element)
    rows = []
    for anchor, code in zip(anchors.tolist(), codes.tolist(), strict=True):
        near = grid.with_neighbours(grid.narrowed(np.ldexp(points, code - 127), source), source)
        near = np.concatenate([near, grid.past_midpoints(task.element, source, code - 127)])
        near = near[magnitude_bits(near, source) <= anchor]
        # Blocks with a scale near 1 get elements at all boundaries. Blocks with a scale outside
        # 1/2..2 get a sample of the boundaries, to limit the number of cases.
        count = max(1, -(-len(near) // max(1, k - 1))) if code in (126, 127, 128) else 2
        if len(near) == 0:
            near = np.zeros(1, anchors.dtype)
        order = np.argsort(rng.integers(0, 1 << 40, len(near)))
        tops = np.full(count, anchor, near.dtype)
        if k > 1:
            chosen = np.resize(near[order], count * (k - 1)).reshape(count, k - 1)
            rows.append(with_anchors(rng, chosen, tops))
        else:
            rows.append(tops[:, None])
    return np.concatenate([few_values(task, anchors, rng), *rows])


def with_anchors(rng: Generator, near: Array, anchors: Array) -> Array:
    """Return the rows of `near`; each row also gets one item of `anchors`, at a random index."""
    rows = np.concatenate([near, anchors[:, None]], axis=1)
    place, each = rng.integers(0, rows.shape[1] - 1, len(rows)), np.arange(len(rows))
    rows[each, -1], rows[each, place] = rows[each, place], anchors
    return rows


def _anchors(task: Task) -> Array:
    """Return bit patterns of block maxima: extremes, and the thresholds of scale rules."""
    source, element = task.source, task.element
    top = source.emax - element.emax
    exponents = np.array(
        [-140, -128, -127, -126, -125, -64, -3, -2, -1, 0, 1, 2, 64, top - 1, top, 124, 125, 126, 127, 128]
    )
    values = np.ldexp(grid.fractions_of_rules(element), exponents[:, None] + element.emax).ravel()
    values = values[(values <= float(source.max)) & (values >= np.ldexp(1.0, source.emin - source.mantissa_bits))]
    normal, most = 1 << source.mantissa_bits, source.max_code
    bits = np.concatenate([grid.narrowed(values, source).astype(np.int64), [0, 1, 2, 3, normal - 1, normal]])
    bits = np.concatenate([bits, [most, most - 1]])
    around = grid.around_thresholds(element, source, [element.emax + 2, element.emax - 9])
    bits = np.unique(np.concatenate([bits - 1, bits, bits + 1, around]))
    return bits[(bits >= 0) & (bits <= most)].astype(f"u{source.bits // 8}")


def _floor_codes(task: Task, bits: Array) -> Array:
    """Return the scale code that the rule `floor` gives for each block maximum."""
    values = grid.as_magnitudes(bits, task.source)
    exponent = np.frexp(np.where(values > 0, values, 1))[1] - 1 - task.element.emax
    return np.where(values > 0, np.clip(exponent, -127, 127) + 127, 0)


def scale_blocks(task: Task, rng: Generator) -> Array:
    """Return blocks that test scales only, not elements.

    The block maxima have every exponent of the input's float type, combined with every fraction at
    which the result of a scale rule changes. In float64, only every seventh exponent outside
    -160..160 occurs.
    """
    source, k = task.source, task.block
    fractions = np.unique(
        [*grid.fractions_of_rules(task.element), *(grid.threshold(task.element, r) for r in ScaleRule)]
    )
    lowest = source.emin - source.mantissa_bits
    step = 1 if source.bits < 64 else 7
    exponents = np.unique([*range(lowest, source.emax + 1, step), *range(max(lowest, -160), min(source.emax, 160) + 1)])
    with np.errstate(over="ignore"):
        values = np.ldexp(fractions[None, :], exponents[:, None]).ravel()
    values = values[(values <= float(source.max)) & (values > 0)]
    near = grid.with_neighbours(grid.narrowed(values, source), source)
    around = grid.around_thresholds(task.element, source, [task.element.emax + 2, task.element.emax - 9])
    near = np.concatenate([near, grid.with_neighbours(around, source, reach=0)])
    rest = rng.patterns(source, (len(near), k))
    limit = magnitude_bits(near, source)[:, None]
    blocks = np.minimum(magnitude_bits(rest, source), limit) | sign_bits(rest, source)
    blocks[np.arange(len(near)), rng.integers(0, k - 1, len(near))] = near
    return np.concatenate([few_values(task, near[: len(near) // 2], rng), blocks])


def few_values(task: Task, anchors: Array, rng: Generator) -> Array:
    """Return blocks with few different values: zeros, one number, one NaN, falling powers of two.

    Quantizers often have separate code for such blocks. In the last blocks of the result, a single
    element decides the scale. This element is plus or minus the median of `anchors` (bit patterns
    of maxima), and there is a block for each of its positions. All other elements are a quarter of
    the median.
    """
    source, k = task.source, task.block
    dtype = anchors.dtype
    sign = dtype.type(1 << (source.bits - 1))
    one = grid.narrowed(np.array([1.0]), source)[0]
    alternating = np.where(np.arange(k) % 2, sign, dtype.type(0))
    rows = [np.zeros(k, dtype), np.full(k, sign), alternating]
    for special in grid.special_patterns(source):
        alone, first, last, inside, everywhere = (np.zeros(k, dtype) for _ in range(5))
        alone[k // 2] = special
        first[:], first[0] = one, special
        last[:], last[-1] = one, special
        inside[:] = rng.patterns(source, k)
        inside[k // 3] = special
        everywhere[:] = special
        rows += [alone, first, last, inside, everywhere]
    for top in (0, 8, -100, 100):
        falling = grid.narrowed(np.ldexp(np.ldexp(1.0, -np.arange(k)), top), source)
        rows += [falling, falling[::-1], falling ^ alternating]
    for anchor in anchors[:: max(1, len(anchors) // 64)]:
        constant, single = np.full(k, anchor), np.zeros(k, dtype)
        single[rng.integers(0, k - 1, 1)[0]] = anchor
        rows += [constant, single]
    middle = np.sort(anchors)[len(anchors) // 2]
    places = np.full((2 * k, k), max(int(middle) - (2 << source.mantissa_bits), 0), dtype)
    places[np.arange(2 * k), np.arange(2 * k) % k] = np.repeat([middle, middle | sign], k)
    return np.concatenate([np.stack(rows), places])


def random_numbers(task: Task, rng: Generator, shape: tuple[int, int], scales: Array) -> Array:
    """Return bit patterns of random numbers, half of which lie near boundaries.

    Most other numbers follow a bell curve, and the rest are arbitrary bit patterns. The boundaries
    are the element's values and midpoints, times the scales whose codes are in `scales`.
    """
    source = task.source
    points = rng.choice(grid.points(task.element), shape)
    near = grid.narrowed(np.ldexp(points, scales - 127), source).astype(np.int64)
    near = np.clip(near + rng.integers(-2, 2, shape), 0, source.max_code).astype(f"u{source.bits // 8}")
    near |= np.where(rng.chance(0.5, shape), near.dtype.type(1 << (source.bits - 1)), near.dtype.type(0))
    spread = np.ldexp(rng.bell(shape) * task.element.max / 4, scales - 127)
    kind = rng.integers(0, 9, shape)
    x = np.where(kind < 5, near, grid.narrowed(spread, source))
    return np.where(kind == 9, rng.patterns(source, shape), x)


def random_blocks(task: Task, rng: Generator, size: int) -> Array:
    """Return random blocks of numbers that follow a bell curve, or that lie near boundaries.

    Some blocks consist of arbitrary bit patterns. A few blocks also hold special values: NaNs,
    infinities, zeros and extreme numbers.
    """
    source, k = task.source, task.block
    lowest, highest = max(-127, source.emin - source.mantissa_bits), min(127, source.emax)
    scales = np.clip(rng.integers(lowest - task.element.emax, highest - task.element.emax, (size, 1)) + 127, 0, 254)
    boundaries = random_numbers(task, rng, (size, k), scales)
    wild = (magnitude_bits(boundaries, source) > source.max_code) | rng.chance(0.5, (size, 1))
    bell = grid.narrowed(np.ldexp(rng.bell((size, k)) * task.element.max / 4, scales - 127), source)
    x = np.where(wild, bell, boundaries)
    x = np.where(rng.chance(0.05, (size, 1)), rng.patterns(source, (size, k)), x)
    special = rng.choice(grid.special_patterns(source), (size, k))
    return np.where(rng.chance(0.02, (size, 1)) & rng.chance(0.1, (size, k)), special, x)


def with_random(task: Task, rng: Generator, inputs: Columns, every_kind: bool = False) -> Columns:
    """Return the inputs, with random words if rounding is stochastic.

    The lowest `sr_bits` bits of a word are of one of four kinds: the least value that rounds the
    number away from zero, this value minus 1, an arbitrary value, or all ones. If `every_kind` is
    True, each number occurs four times, once with each kind of word. Otherwise each number occurs
    once, with a word of a random kind.
    """
    if not task.is_stochastic:
        return inputs
    r, inputs = task.sr_bits, with_tensor(task, inputs)
    x, tensor = inputs["x"], tensor_scales(inputs)
    y = scaled(task, x, nearby_scales(task, x, tensor) if task.has_scales else None, tensor)
    known = np.where(np.isfinite(y), y, 0.0)
    below, above = grid.neighbours(known, task.element)
    inside = known < above
    with np.errstate(over="ignore"):
        delta = np.where(inside, (known - below) / np.where(above > below, above - below, 1), 0)
    at = (1 << r) - np.floor(delta * (1 << r)).astype(np.int64)

    variants = []
    for kind in range(4):
        any_low, all_ones = rng.integers(0, (1 << r) - 1, x.shape), np.full(x.shape, (1 << r) - 1)
        low = (at, at - 1, any_low, all_ones)[kind]
        high = rng.integers(0, (1 << (32 - r)) - 1, x.shape) << r  # rounding must ignore bits above the lowest r
        variants.append((np.clip(low, 0, (1 << r) - 1) | high).astype(np.uint32))
    if every_kind:
        return {"x": np.concatenate([x] * 4), "random": np.concatenate(variants)}
    kinds = rng.integers(0, 3, x.shape)
    return {**inputs, "random": np.choose(kinds, variants).astype(np.uint32)}

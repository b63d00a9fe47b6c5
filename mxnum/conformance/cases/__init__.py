"""The cases of each operation. Level 1: every boundary and its neighbours. Level 2: weighted random cases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mxnum import errors
from mxnum.conformance.cases import dots, grid
from mxnum.conformance.cases import float_scales as float_scale_cases
from mxnum.conformance.cases.blocks import few_values
from mxnum.conformance.cases.coverage import has_nan
from mxnum.conformance.cases.generator import Generator
from mxnum.conformance.judging.right import as_floats, scaled, tensor_scales, unsigned, with_tensor
from mxnum.conformance.task import Columns, Task
from mxnum.definition import by_numpy
from mxnum.memory.dtypes import Array
from mxnum.modes import FloatScaleRule, Nonfinite, ScaleRule

#: Number of cases of level 2, by operation, unless the caller gives a count.
LEVEL_2 = {"encode": 1_000_000, "quantize": 100_000, "scale": 100_000, "dequantize": 1_000_000, "dot": 100_000}
#: Number of cases in a batch.
BATCH = 8192


def cases(task: Task, *, level: int = 1, seed: int = 0, count: int | None = None) -> Iterator[Columns]:
    """Yield the inputs of the cases, in batches.

    The number of cases is fixed at level 1; `count` sets it at level 2. Where an element without
    NaN has no answer to a NaN, only level 1 has NaNs.
    """
    errors.require(level in (1, 2), "level", "1 or 2 (level 3 is check_arrays)", level)
    errors.integer("seed", seed, 0, (1 << 64) - 1)
    if level == 1:
        if count is not None:
            raise ValueError("Argument 'count' must be left out at level 1, whose cases are fixed.")
        whole = with_tensor(task, _level_1(task, Generator(seed)))
        # A function may raise for NaNs that have no answer, so their cases come last, in separate
        # batches.
        last = has_nan(task, whole) & (not task.takes_nan)
        for rows in (np.flatnonzero(~last), np.flatnonzero(last)):
            for start in range(0, len(rows), BATCH):
                yield {name: column[rows[start : start + BATCH]] for name, column in whole.items()}
        return
    left = number_of_cases(task, level=2, count=count)
    words = Generator(seed)
    start = 0
    while left > 0:
        size = min(left, BATCH)
        yield with_tensor(task, without_nan(task, _level_2(task, words, size, start)))
        left -= size
        start += size


def number_of_cases(task: Task, *, level: int = 1, seed: int = 0, count: int | None = None) -> int:
    """Return the number of cases that `cases` yields."""
    if level == 2:
        return LEVEL_2[task.operation] if count is None else errors.positive_integer("count", count)
    return sum(len(next(iter(batch.values()))) for batch in cases(task, level=level, seed=seed, count=count))


def without_nan(task: Task, inputs: Columns) -> Columns:
    """Return the inputs with NaNs made finite where the element has no answer for them."""
    if task.takes_nan or "x" not in inputs:
        return inputs
    x = inputs["x"]
    magnitude = x & x.dtype.type((1 << (task.source.bits - 1)) - 1)
    quiet_bit = x.dtype.type(1 << (task.source.bits - 2))
    inputs["x"] = np.where(magnitude > task.source.max_code + 1, x & ~quiet_bit, x)
    return inputs


def _level_1(task: Task, words: Generator) -> Columns:
    if task.operation not in ("encode", "dot") and not task.format.scale.power_of_two:
        made = float_scale_cases.boundaries(task, words)
        return _with_random(task, words, made) if task.operation == "quantize" else made
    match task.operation:
        case "encode":
            x = np.unique(_numbers(task)).reshape(-1, 1)
            return _with_random(task, words, {"x": x}, every_kind=True)
        case "quantize":
            return _with_random(task, words, {"x": _blocks(task, words)})
        case "scale":
            return {"x": _scale_blocks(task, words)}
        case "dequantize":
            return _every_pair(task, np.arange(256 << task.element.bits))
        case _:
            return dots.boundary_dots(task, words)


def _level_2(task: Task, words: Generator, size: int, start: int) -> Columns:
    if task.operation not in ("encode", "dot") and not task.format.scale.power_of_two:
        made = float_scale_cases.random(task, words, size, start)
        return _with_random(task, words, made) if task.operation == "quantize" else made
    match task.operation:
        case "encode":
            x = _random_numbers(task, words, (size, 1), np.full((size, 1), 127))
            return _with_random(task, words, {"x": x})
        case "quantize" | "scale":
            x = _random_blocks(task, words, size)
            if task.operation == "scale":
                return {"x": x}
            return _with_random(task, words, {"x": x})
        case "dequantize":
            return _every_pair(task, np.arange(start, start + size))
        case _:
            return dots.random_dots(task, words, size)


def _numbers(task: Task) -> Array:
    """Return bit patterns for encoding at scale 1: boundaries, powers of two, special values, neighbours.

    A source of 16 bits has all its patterns tried.
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


def _anchors(task: Task) -> tuple[Array, Array]:
    """Return bit patterns of block maxima, and the scale code that `floor` gives each of them.

    The maxima lie at all extremes and at the fractions where a scale rule changes.
    """
    source, element = task.source, task.element
    top = source.emax - element.emax
    wanted = np.array(
        [-140, -128, -127, -126, -125, -64, -3, -2, -1, 0, 1, 2, 64, top - 1, top, 124, 125, 126, 127, 128]
    )
    fractions = grid.fractions_of_rules(element)
    exponents = np.repeat(wanted + element.emax, len(fractions))
    values = np.ldexp(np.tile(fractions, len(wanted)), exponents)
    values = values[(values <= float(source.max)) & (values >= np.ldexp(1.0, source.emin - source.mantissa_bits))]
    extremes = [
        0,
        1,
        2,
        3,
        (1 << source.mantissa_bits) - 1,
        1 << source.mantissa_bits,
        source.max_code,
        source.max_code - 1,
    ]
    bits = np.concatenate([grid.narrowed(values, source).astype(np.int64), np.array(extremes)])
    around = grid.around_thresholds(element, source, [element.emax + 2, element.emax - 9])
    bits = np.unique(np.concatenate([bits - 1, bits, bits + 1, around]))
    bits = bits[(bits >= 0) & (bits <= source.max_code)].astype(f"u{source.bits // 8}")
    return bits, floor_codes(task, bits)


def floor_codes(task: Task, bits: Array) -> Array:
    """Return the scale code that `floor` gives to a block with each of these maxima."""
    values = grid.as_magnitudes(bits, task.source)
    exponent = np.frexp(np.where(values > 0, values, 1))[1] - 1 - task.element.emax
    return np.where(values > 0, np.clip(exponent, -127, 127) + 127, 0)


def _blocks(task: Task, words: Generator) -> Array:
    """Return blocks with maxima at every extreme and elements at every boundary for the block's scale."""
    k = task.block
    anchors, codes = _anchors(task)
    points = grid.points(task.element)
    points = points[points <= points.max()]
    rows = []
    for anchor, code in zip(anchors.tolist(), codes.tolist(), strict=True):
        near = grid.with_neighbours(grid.narrowed(np.ldexp(points, code - 127), task.source), task.source)
        near = np.concatenate([near, grid.past_midpoints(task.element, task.source, code - 127)])
        near = near[(near & near.dtype.type((1 << (task.source.bits - 1)) - 1)) <= anchor]
        # All boundaries where the scale is near 1; a sample of them elsewhere, to bound the number
        # of cases.
        count = max(1, -(-len(near) // max(1, k - 1))) if code in (126, 127, 128) else 2
        if len(near) == 0:
            near = np.zeros(1, anchors.dtype)
        order = np.argsort(words.integers(0, 1 << 40, len(near)))
        chosen = np.resize(near[order], (count, k))
        if k > 1:
            chosen = np.resize(near[order], count * (k - 1)).reshape(count, k - 1)
            chosen = np.concatenate([chosen, np.full((count, 1), anchor, chosen.dtype)], axis=1)
            place = words.integers(0, k - 1, count)
            at, last = chosen[np.arange(count), place].copy(), chosen[:, -1].copy()
            chosen[np.arange(count), place], chosen[:, -1] = last, at
        else:
            chosen[:] = anchor
        rows.append(chosen)
    return np.concatenate([few_values(task, anchors, words), *rows])


def _scale_blocks(task: Task, words: Generator) -> Array:
    """Return blocks for testing scales alone.

    Their maxima take every exponent of the source (in float64, every seventh far from 1) with every
    fraction at which a scale rule changes.
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
    rest = words.patterns(source, (len(near), k))
    limit = near & near.dtype.type((1 << (source.bits - 1)) - 1)
    magnitude = rest & rest.dtype.type((1 << (source.bits - 1)) - 1)
    sign = rest & rest.dtype.type(1 << (source.bits - 1))
    blocks = np.minimum(magnitude, limit[:, None]) | sign
    blocks[np.arange(len(near)), words.integers(0, k - 1, len(near))] = near
    return np.concatenate([few_values(task, near[: len(near) // 2], words), blocks])


def _random_numbers(task: Task, words: Generator, shape: tuple[int, ...], scales: Array) -> Array:
    """Return random bit patterns: half are next to a boundary at the scale codes, the rest bell-shaped or arbitrary."""
    source = task.source
    points = words.choice(grid.points(task.element), shape)
    near = grid.narrowed(np.ldexp(points, scales - 127), source).astype(np.int64)
    near = np.clip(near + words.integers(-2, 2, shape), 0, source.max_code).astype(f"u{source.bits // 8}")
    near |= np.where(words.chance(0.5, shape), near.dtype.type(1 << (source.bits - 1)), near.dtype.type(0))
    spread = np.ldexp(words.bell(shape) * task.element.max / 4, scales - 127)
    kind = words.integers(0, 9, shape)
    x = np.where(kind < 5, near, grid.narrowed(spread, source))
    return np.where(kind == 9, words.patterns(source, shape), x)


def _random_blocks(task: Task, words: Generator, size: int) -> Array:
    """Return random blocks: bell-shaped at any magnitude, near boundaries, or of arbitrary bits.

    A few of them have NaN or infinity.
    """
    source, k = task.source, task.block
    lowest, highest = max(-127, source.emin - source.mantissa_bits), min(127, source.emax)
    scales = np.clip(words.integers(lowest - task.element.emax, highest - task.element.emax, (size, 1)) + 127, 0, 254)
    boundaries = _random_numbers(task, words, (size, k), scales)
    finite = boundaries & boundaries.dtype.type((1 << (source.bits - 1)) - 1)
    wild = (finite > source.max_code) | words.chance(0.5, (size, 1))
    bell = grid.narrowed(np.ldexp(words.bell((size, k)) * task.element.max / 4, scales - 127), source)
    x = np.where(wild, bell, boundaries)
    x = np.where(words.chance(0.05, (size, 1)), words.patterns(source, (size, k)), x)
    special = words.choice(grid.special_patterns(source), (size, k))
    return np.where(words.chance(0.02, (size, 1)) & words.chance(0.1, (size, k)), special, x)


def _every_pair(task: Task, index: Array) -> Columns:
    """Return the pairs of a scale code and an element code with these numbers. The pairs repeat cyclically."""
    codes = 1 << task.element.bits
    return {
        "scale": (index // codes % 256).astype(np.uint8).reshape(-1, 1),
        "code": (index % codes).astype(np.uint8).reshape(-1, 1),
    }


def _with_random(task: Task, words: Generator, inputs: Columns, every_kind: bool = False) -> Columns:
    """Return the inputs, with random words if rounding is stochastic.

    The words are at the threshold of each number, one below it, arbitrary, or all ones.
    `every_kind` tries all four with every number, instead of one of them at random.
    """
    if not task.is_stochastic:
        return inputs
    r, inputs = task.sr_bits, with_tensor(task, inputs)
    x, tensor = inputs["x"], tensor_scales(inputs)
    y = scaled(task, x, _row_codes(task, x, tensor) if task.operation == "quantize" else None, tensor)
    known = np.where(np.isfinite(y), y, 0.0)
    below, above = grid.neighbours(known, task.element)
    inside = known < above
    delta = np.where(inside, (known - below) / np.where(above > below, above - below, 1), 0)
    at = (1 << r) - np.floor(delta * (1 << r)).astype(np.int64)
    variants = []
    for kind in range(4):
        any_low, all_ones = words.integers(0, (1 << r) - 1, x.shape), np.full(x.shape, (1 << r) - 1)
        low = (at, at - 1, any_low, all_ones)[kind]
        high = words.integers(0, (1 << (32 - r)) - 1, x.shape) << r  # bits that must not matter
        variants.append((np.clip(low, 0, (1 << r) - 1) | high).astype(np.uint32))
    if every_kind:
        return {"x": np.concatenate([x] * 4), "random": np.concatenate(variants)}
    kinds = words.integers(0, 3, x.shape)
    return {**inputs, "random": np.choose(kinds, variants).astype(np.uint32)}


def _row_codes(task: Task, x: Array, tensor: Array | None) -> Array:
    chooses = by_numpy.looks_at_elements(task.scale_rule)
    rule = FloatScaleRule.NEAREST if chooses else task.scale_rule
    asked = by_numpy.Settings(scale_rule=rule, nonfinite=Nonfinite.ELEMENT)
    made = by_numpy.quantize(as_floats(x, task.source), task.format, (1, task.block), asked, tensor_scale=tensor)
    return unsigned(made.scales)

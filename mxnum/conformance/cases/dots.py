"""Cases of dot products: accumulation, cancellation, overflow, underflow and special values."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np

from mxnum.conformance.cases.generator import Generator
from mxnum.conformance.task import Columns, Task
from mxnum.memory.dtypes import code_dtype


def boundary_dots(task: Task, words: Generator) -> Columns:
    """Return hand-made rows: one product, all products, cancellation across blocks, ties, NaN scales, specials.

    Blocks that cancel lie at every two positions, so that another order of summing blocks gives
    another result.
    """
    element, k, count = task.element, task.block, task.dot_blocks
    largest = element.max_code
    one = min(range(largest + 1), key=lambda code: abs(element.value(code) - 1))  # 1, or the nearest value
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
    for gap in range(0, 40, 1):  # a large block, then ever smaller ones, so that float32 addition rounds
        add(one, np.where(first, one, 0), powers(task, gap - rising * gap))
        add(np.where(halves, largest, negative(largest)), largest, powers(task, 23 - rising * gap))
    place, block = np.arange(length) % k, np.arange(length) // k
    for i, j in combinations(range(count), 2):  # opposites: smaller terms added between them are lost
        large = np.where((rising == i) | (rising == j), 12, -12 - rising)
        opposite = np.where(block == j, negative(one), one)
        add(np.where(place == 0, one, 0), opposite, powers(task, large), powers(task, large))
    # 1, half of the last place of a float32, and a term that breaks this tie and that a float64 sum
    # loses. The three terms are in three blocks,
    for places in permutations({0, count // 2, count - 1}, 3):
        far = np.select([rising == each for each in places], [0, -24, -100], -127)
        add(np.where(place == 0, one, 0), one, powers(task, far))
    # and in one block, if the elements have such a range.
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
    loose = random_dots(task, words, 512)
    return {name: np.concatenate([fixed[name], loose[name]]) for name in fixed}


def powers(task: Task, exponents: Any) -> Any:
    """Return codes of scales that are powers of two, clipped to the nearest that exist."""
    number = task.format.scale.number
    if number is None:
        return np.clip(np.asarray(exponents) + task.format.scale.bias, 0, 254)
    return (np.clip(exponents, number.emin, number.emax) + number.bias) << number.mantissa_bits


def ends(task: Task, exponents: tuple[int, ...]) -> list[int]:
    """Return codes of scales for these exponents, without duplicates.

    For float scales, add zero, the least and the largest number, and one with all its digits set.
    """
    number = task.format.scale.number
    more = [] if number is None else [0, 1, powers(task, 0) - 1, number.max_code]
    return list(dict.fromkeys(int(code) for code in [*powers(task, np.array(exponents)), *more]))


def specials(task: Task) -> list[int]:
    """Return codes of scales that are not numbers."""
    scale, number = task.format.scale, task.format.scale.number
    return [scale.nan_code] if number is None else [number.max_code + 1, (1 << task.scale_bits) - 1]


def random_dots(task: Task, words: Generator, size: int) -> Columns:
    """Return rows of random finite codes at random scales.

    The scales of a row are close together, or arbitrary in one row out of eight.
    """
    element = task.element
    finite = np.array([code for code, v in enumerate(element.values()) if abs(v) <= element.max], np.uint8)
    result: Columns = {}
    wild = words.chance(0.125, (size, 1))
    for side in ("a", "b"):
        near = powers(task, words.integers(-6, 6, (size, task.dot_blocks)))
        if task.format.scale.number is not None:  # float scales: set fraction bits too
            near = near + words.integers(0, (1 << task.format.scale.number.mantissa_bits) - 1, near.shape)
        anywhere = words.integers(0, (1 << task.scale_bits) - 1, (size, task.dot_blocks))
        result[f"{side}_scale"] = np.where(wild, anywhere, near).astype(code_dtype(task.scale_bits))
        codes = words.choice(finite, (size, task.block * task.dot_blocks))
        any_code = words.integers(0, (1 << element.bits) - 1, codes.shape).astype(np.uint8)
        result[side] = np.where(wild & words.chance(0.01, codes.shape), any_code, codes)
    return result

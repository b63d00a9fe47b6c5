"""Cases of dot products: what accumulation, cancellation, overflow, underflow and special values turn on."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.conformance.randomness import Words
from mxnum.conformance.task import Columns, Task


def boundary_dots(task: Task, words: Words) -> Columns:
    """Hand-made rows: one product, all products, cancellation across blocks, ties of the sum, NaN scales, specials."""
    element, k, count = task.element, task.block, task.dot_blocks
    largest = element.max_code
    one = min(range(largest + 1), key=lambda code: abs(element.value(code) - 1))  # 1, or what comes nearest
    sign = 1 << (element.bits - 1)
    smallest = 1
    length = k * count
    rows: list[Columns] = []

    def add(a: Any, b: Any, a_scale: Any = 127, b_scale: Any = 127) -> None:
        row = {"a_scale": np.zeros(count), "a": np.zeros(length), "b_scale": np.zeros(count), "b": np.zeros(length)}
        for name, value in (("a_scale", a_scale), ("a", a), ("b_scale", b_scale), ("b", b)):
            row[name][:] = value
        rows.append({name: column.astype(np.uint8) for name, column in row.items()})

    first = np.arange(length) == 0
    halves = np.arange(length) < length // 2

    def negative(code: int) -> int:
        return (-code) % (1 << element.bits) if element.integer else code ^ sign

    for sa in (0, 1, 64, 120, 126, 127, 128, 160, 254):
        for sb in (0, 53, 127, 200, 254, 255):
            add(largest, largest, sa, sb)
            add(np.where(first, smallest, 0), np.where(first, one, 0), sa, sb)
            add(largest, np.where(halves, one, negative(one)), sa, sb)
            add(np.where(first, negative(smallest), 0), one, sa, sb)
            add(0, largest, sa, sb)
    rising = np.arange(count)
    for gap in range(0, 40, 1):  # a large block, then ever smaller ones: where float32 addition rounds
        add(one, np.where(first, one, 0), np.clip(127 + gap - rising * gap, 0, 254), 127)
        add(np.where(halves, largest, negative(largest)), largest, np.clip(150 - rising * gap, 0, 254), 127)
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


def random_dots(task: Task, words: Words, size: int) -> Columns:
    """Finite codes, half of them from the upper binades; scales close together, or anywhere for one row in eight."""
    element = task.element
    finite = np.array([code for code, v in enumerate(element.values()) if abs(v) <= element.max], np.uint8)
    result: Columns = {}
    wild = words.chance(0.125, (size, 1))
    for side in ("a", "b"):
        near = 127 + words.integers(-6, 6, (size, task.dot_blocks))
        anywhere = words.integers(0, 255, (size, task.dot_blocks))
        result[f"{side}_scale"] = np.where(wild, anywhere, near).astype(np.uint8)
        codes = words.choice(finite, (size, task.block * task.dot_blocks))
        any_code = words.integers(0, (1 << element.bits) - 1, codes.shape).astype(np.uint8)
        result[side] = np.where(wild & words.chance(0.01, codes.shape), any_code, codes)
    return result

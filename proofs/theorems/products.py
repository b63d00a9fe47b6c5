"""Prove that float and integer instructions add the products of a block exactly.

Elements are integer multiples of the smallest step of their format. Float operations add integers
exactly, in any order and with fused or separate multiplication, as long as no partial sum needs
more bits than a significand has. So a sum of products is exact if the block length times the
largest product fits in the significand.

The library's function `exactness_of` decides how to add the products of two element formats. The
check computes the largest possible sum from the element values in `proofs/specs/tables.py`. If the
decision depends on the smallest and the largest magnitude of a block, the check covers all pairs of
these magnitudes.

Integer instructions add modulo 2**32, so only the final sum has to fit in 32 bits. The final sum is
converted to float32, so it may be at most 2**24 units, like a float32 sum. Some integer
instructions have operands or sums of 16 bits; the check also covers these.
"""

from __future__ import annotations

import inspect
import time
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from mxnum.engine.products import exactness, integers, panels
from mxnum.formats import ELEMENTS
from proofs.specs import tables
from proofs.theorem import Outcome, Theorem, Verdict

Array = np.ndarray[Any, Any]

STATEMENT = (
    "`exactness_of` plans how to add the products of two elements. In each plan, every element value is a whole number "
    "of units. No sum of products over a block exceeds 2**24 units in float32 or 2**53 units in float64, so hardware "
    "holds every partial sum exactly. Sums of 8-bit or 16-bit integers stay below the bound of float32, so 32 bits "
    "hold them. Each element fits in its 8 or 16 bits, and an 8-bit element still fits after the bias is added. "
    "Without VNNI, 16 bits hold the sum of products over half of a block, with the bias added to the elements of one "
    "operand. If the formats allow larger sums, the bounds hold for blocks that `may_be_wide` does not mark: the least "
    "and greatest magnitudes of these blocks limit the number of bits of each element. If the plan splits the elements "
    "of one operand, the bounds hold for both parts. Codes are unpacked to the values in the tables, as floats and as "
    "integers. If scales are floats, the type of the sum represents the product of the significands of any two scales "
    "exactly. If this type is float64, it also represents exactly the product of these two significands and any sum "
    "over a block."
)
#: The number of bits for each number type of the products: sums of up to 2**bits units are exact.
#: Sums of int8 or int16 products are converted to float32, so float32 limits these sums, too.
EXACT = {"float32": 24, "float64": 53, "int8": 24, "int16": 24}
INSTRUCTIONS = ("", "avx2", "vnni")
LONGEST = 1 << 12
#: The number of significand bits of each float format for scales. If scales are floats, the check
#: covers blocks of up to `LONGEST_WITH_FLOATS` elements.
SCALE_BITS = {"e4m3": 4, "ue5m3": 4, "bfloat16": 8, "float16": 11, "float32": 24}
LONGEST_WITH_FLOATS = 1 << 8


def check(a: str, b: str) -> Outcome:
    """Check how the library adds products of two element formats, for blocks of every length."""
    started = time.perf_counter()

    def outcome(verdict: Verdict, detail: str) -> Outcome:
        return Outcome(verdict, "arithmetic", time.perf_counter() - started, detail)

    first, second = tables.ELEMENTS[a], tables.ELEMENTS[b]
    for element in (first, second):
        if not unpacks(element):
            return outcome("refuted", f"{element.name}: a code is unpacked to a wrong value")
    planned = 0
    for run, instructions in product(range(1, LONGEST + 1), INSTRUCTIONS):
        how = exactness.exactness_of(ELEMENTS[a], ELEMENTS[b], run, instructions)
        if how is None:
            continue
        planned += 1
        largest = []
        for element, unit in ((first, how.unit_a), (second, how.unit_b)):
            # In two's complement, the magnitude of the most negative value exceeds the largest
            # positive value by one step.
            most = element.magnitudes[-1] + (1 if element.twos_complement else 0)
            if element.unit < unit:
                return outcome("refuted", f"{element.name} has values that are not multiples of 2**{unit}")
            largest.append(most << (element.unit - unit))
        pieces = [largest[0]] if how.always else []
        if how.if_split and not how.always:
            pieces = [largest[0] >> exactness.SPLIT, (1 << exactness.SPLIT) - 1]
        if max(pieces, default=0) * largest[1] * run > 1 << EXACT[how.word]:
            return outcome("refuted", f"blocks of {run}: sums can exceed 2**{EXACT[how.word]} units")
        if how.word in integers.IN_WORD and not adds_integers(first, second, run, how.word, instructions):
            return outcome("refuted", f"blocks of {run}: {how.word} does not hold every element or sum")
        if not how.always and run << exactness.bits_to_spare(run) > 1 << EXACT["float64"]:
            return outcome("refuted", f"blocks of {run}: `may_be_wide` accepts products of too many bits")
        most = largest[0] * largest[1]
    if not planned:
        return outcome("refuted", "no block length has a plan: nothing was checked")
    for run in range(1, LONGEST_WITH_FLOATS + 1):
        broken = wrong_extra(a, b, run, most * run)
        if broken:
            return outcome("refuted", f"blocks of {run}: {broken}")
    for element in (first, second):
        if not bounds_widths(element):
            return outcome("refuted", f"{element.name}: `bits_between` returns too few bits")
    return outcome("proved", f"block lengths 1 to {LONGEST}, {planned} plans")


def wrong_extra(a: str, b: str, run: int, total: int) -> str:
    """Describe the first sum that is inexact if scales are floats; return "" if all are exact.

    The check covers float scales of one operand and of both operands.
    """
    for bits_a, bits_b in product((1, *SCALE_BITS.values()), repeat=2):
        if bits_a == bits_b == 1:
            continue
        how = exactness.exactness_of(ELEMENTS[a], ELEMENTS[b], run, "vnni", bits_a + bits_b - 2)
        if how is None:
            continue
        scales = f"scales with {bits_a} and {bits_b} bits"
        if how.if_split and not how.always:
            return "an operand is split under scales that are floats"
        if how.word == "float64" and total << (bits_a + bits_b) > 1 << EXACT["float64"]:
            return f"sums times {scales} may be too long for float64"
        if how.word != "float64" and (bits_a + bits_b > EXACT["float32"] or total > 1 << EXACT[how.word]):
            return f"products of {scales} may be too long for float32, or sums for {how.word}"
    return ""


def adds_integers(a: tables.Element, b: tables.Element, run: int, word: str, instructions: str) -> bool:
    """Return True if integer instructions add the products of a block exactly.

    Every element must fit in the integer type `word`. If `word` is int8 and the processor lacks
    VNNI, a sum over half of a block must also fit in 16 bits.
    """
    least, most = zip(*(extremes(x) for x in (a, b)), strict=True)
    if not instructions or run % integers.IN_WORD[word]:
        return False
    if word == "int16":
        return all(-(1 << 15) <= low <= high < 1 << 15 for low, high in zip(least, most, strict=True))
    biases = [of(x).bias for x in (a, b)]
    for low, high, bias in zip(least, most, biases, strict=True):
        if low < -128 or high > 127 or not 0 <= low + bias <= high + bias <= 255:
            return False
    sums = [(most[i] + biases[i]) * max(most[1 - i], -least[1 - i]) * (run // 2) for i in (0, 1)]
    return instructions == "vnni" or all(total < 1 << 15 for total in sums)


def extremes(element: tables.Element) -> tuple[int, int]:
    """Return the smallest and the largest value of an element, in units of its smallest step."""
    largest = element.magnitudes[-1]
    return (-largest - 1 if element.twos_complement else -largest), largest


def of(element: tables.Element) -> integers.Integers:
    """Return the `Integers` of a format whose products integer instructions add."""
    found = integers.integers_of(ELEMENTS[element.name])
    assert found is not None
    return found


def bounds_widths(element: tables.Element) -> bool:
    """Return True if `bits_between` returns enough bits for the magnitudes of any block."""
    if element.twos_complement:
        return element.magnitudes[-1] + 1 <= 1 << ELEMENTS[element.name].bits
    for least in range(1, len(element.magnitudes)):
        # The largest power of two that divides the magnitudes of all codes >= `least`.
        step = min(m & -m for m in element.magnitudes[least:])
        greatest = np.arange(least, len(element.magnitudes))
        bits = exactness.bits_between(np.array(least - 1), greatest, element.mantissa).tolist()
        if any(element.magnitudes[g] >= step << b for g, b in zip(greatest.tolist(), bits, strict=True)):
            return False
    return int(exactness.bits_between(np.array(255), np.array(0), element.mantissa)) == 0


def unpacks(element: tables.Element) -> bool:
    """Return True if `panels.pack` converts each code to its value and keeps the signs of zeros."""
    codes = np.arange(1 << element.bits, dtype=np.uint8)
    decoder, width = panels.decoder(ELEMENTS[element.name]), 16
    for word in ("float32", "float64"):
        got = panels.new_panels(2 * width, codes.size, width, word)
        for rows in (np.tile(codes, (2 * width, 1)), np.tile(codes[:, None], 2 * width).T):
            panels.pack(rows, got, decoder)
            for line in (*got[0].T.tolist(), *got[1].T.tolist(), decoder.table.tolist()):
                if any(not same(x, value(element, code)) for code, x in enumerate(line)):
                    return False
    return unpacks_integers(element, codes)


def unpacks_integers(element: tables.Element, codes: np.ndarray[Any, Any]) -> bool:
    """Return True if `integers.pack` stores each code's value as a number of units.

    The function checks this for the left and for the right operand.
    """
    found = integers.integers_of(ELEMENTS[element.name])
    if found is None:
        return True
    want = [value(element, code) / 2.0**found.unit for code in range(codes.size)]
    if found.values.tolist() != want:
        return False
    words = [word for word in integers.IN_WORD if word == "int16" or max(map(abs, want)) <= 128]
    for word, is_turned, is_left in product(words if integers.instructions() else (), (False, True), (False, True)):
        rows = np.tile(codes, (64, 1))
        panels_ = integers.new_panels(64, codes.size, 64, word)
        starts = None if is_left else np.empty((1, codes.size // 4, 64), np.int32)
        integers.pack(np.asfortranarray(rows) if is_turned else rows, found, panels_, found.bias, starts)
        got = panels_.transpose(0, 2, 1, 3).reshape(64, -1).view(np.uint8 if is_left and word == "int8" else word)
        shift = found.bias if is_left and word == "int8" else 0
        if (got != np.array(want) + shift).any():
            return False
    return True


def value(element: tables.Element, code: int) -> float:
    """Return the value of a code."""
    half = 1 << (element.bits - 1)
    if element.twos_complement:
        return float((code - 2 * half if code >= half else code) * 2.0**element.unit)
    magnitude, sign = code % half, -1.0 if code >= half else 1.0
    if magnitude <= element.last:
        return sign * float(element.value(magnitude))
    return sign * float("inf") if magnitude == element.infinity else float("nan")


def same(x: float, y: float) -> bool:
    """Return True if two floats have equal values and signs, or if both are NaN."""
    return (np.isnan(x) and np.isnan(y)) or (x == y and bool(np.signbit(x) == np.signbit(y)))


def theorems() -> list[Theorem]:
    return [
        Theorem(
            name=f"products/{a}/{b}",
            statement=STATEMENT,
            kernels=("exactness_of", "panels.pack"),
            check=partial(check, a, b),
            hypotheses=(
                f"blocks have 1 to {LONGEST} elements, or 1 to {LONGEST_WITH_FLOATS} if scales are floats",
                "the product of two scales that are floats is in the range of float32 (each call checks this)",
            ),
            functions=(
                inspect.unwrap(exactness.exactness_of),
                exactness.held,
                integers.word_for,
                inspect.unwrap(integers.integers_of),
                integers.pack,
                exactness.bits_to_spare,
                exactness.widths,
                exactness.bits_between,
                inspect.unwrap(panels.decoder),
                panels.pack,
            ),
        )
        for a in tables.ELEMENTS
        for b in tables.ELEMENTS
    ]

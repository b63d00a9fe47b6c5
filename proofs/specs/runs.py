"""Exact references, stored as runs of bit patterns that have the same right answer.

For one sign and one scale, a larger magnitude never gets a smaller code. The exact reference for
2**32 patterns is therefore a list of a few hundred breakpoints. A breakpoint is the smallest
pattern that gets a new code; integer division computes it from a rational threshold. The patterns
between two breakpoints have the same code and form one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from proofs.specs.rationals import (
    ELEMENTS,
    FLOATS,
    RANDOM_BITS,
    SCALE_NAN,
    Element,
    decode,
    floor_magnitude,
    overflowed,
    rounds_up,
    scale_threshold,
    with_sign,
)

Array = npt.NDArray[Any]

SCALES = range(SCALE_NAN)


@dataclass(frozen=True)
class Random:
    """A fixed random word, of which stochastic rounding uses the low `bits` bits."""

    word: int = 0
    bits: int = RANDOM_BITS

    @property
    def value(self) -> int:
        return self.word % (1 << self.bits)


@lru_cache(maxsize=64)
def _floors(source: str, element: str, points: str, random: Random) -> tuple[Array, Array]:
    """Find one point in each gap between neighbouring magnitudes, for every scale.

    `points` selects the point: "start", "middle", "end" or "random". The point "random" is the
    smallest that stochastic rounding with the word `random` rounds up.

    Return two arrays [scale, gap]. The first array holds the largest pattern whose value is at most
    the point. The second array holds True where this value equals the point.
    """
    table = (*ELEMENTS[element].magnitudes, ELEMENTS[element].beyond)
    part = {
        "start": Fraction(0),
        "middle": Fraction(1, 2),
        "end": Fraction(1),
        "random": 1 - Fraction(random.value, 1 << random.bits),
    }[points]
    wanted = [low + (high - low) * part for low, high in pairwise(table)]
    found = [
        [floor_magnitude(FLOATS[source], t.numerator, t.denominator, scale - 127) for t in wanted] for scale in SCALES
    ]
    patterns = np.array([[pattern for pattern, _ in row] for row in found], np.int64)
    return patterns, np.array([[exact for _, exact in row] for row in found], bool)


def breakpoints(source: str, element: str, rounding: str, negative: bool, random: Random | None = None) -> Array:
    """Return the smallest pattern that gets a code above k, for each scale and magnitude code k."""
    if rounding == "sr":
        floor, exact = _floors(source, element, "random", random or Random())
        return np.where(exact, floor, floor + 1)
    rows = [_breakpoints(source, element, rounding, negative, is_odd) for is_odd in (False, True)]
    return np.where(np.arange(rows[0].shape[1]) % 2 == 1, rows[1], rows[0])


def _breakpoints(source: str, element: str, rounding: str, negative: bool, is_odd: bool) -> Array:
    """Return the breakpoint of each gap, if all lower codes of gaps are odd (`is_odd`) or even."""
    ups = [rounds_up(rounding, negative, is_odd, Fraction(quarters, 4)) for quarters in (1, 2, 3)]
    point = ("start", "middle", "middle", "end")[3 - sum(ups)]
    floor, exact = _floors(source, element, point, Random())
    # If the pattern `floor` is exactly the point, and the point rounds up, the breakpoint is
    # `floor`; otherwise it is `floor` + 1.
    return np.where(exact & (point == "end" or (point == "middle" and ups[1])), floor, floor + 1)


def position_codes(element: Element, rounding: str, overflow: str, negative: bool) -> list[int]:
    """Return a list of codes, indexed by the results of `rationals.rounded_position`."""
    beyond = overflowed(element, rounding, overflow, negative)
    return [with_sign(element, code, negative) for code in (*range(element.largest + 1), beyond)]


def special_codes(element: Element, overflow: str, negative: bool) -> tuple[int, int]:
    """Return the code of an infinite input and the code of a NaN."""
    infinite = with_sign(element, overflowed(element, "rne", overflow, negative), negative)
    return infinite, element.largest if element.nan is None else with_sign(element, element.nan, negative)


def expected(
    source: str, element: str, rounding: str, overflow: str, magnitudes: Array, negative: bool, random: Random | None
) -> Array:
    """Return the codes of magnitude patterns; the patterns of row i have the scale code i."""
    float_type, target = FLOATS[source], ELEMENTS[element]
    breaks = breakpoints(source, element, rounding, negative, random)
    codes = np.array(position_codes(target, rounding, overflow, negative), np.uint8)
    infinite, nan = special_codes(target, overflow, negative)
    result = np.empty(magnitudes.shape, np.uint8)
    for scale in SCALES:
        result[scale] = codes[np.searchsorted(breaks[scale], magnitudes[scale], side="right")]
    result[magnitudes == float_type.infinity] = infinite
    result[magnitudes > float_type.infinity] = nan
    return result


@dataclass(frozen=True)
class Runs:
    """Runs of equal values: run i starts at pattern `starts[i]` and has value `values[i]`."""

    starts: Array
    values: Array
    end: int

    @classmethod
    def of(cls, pieces: list[tuple[int, int]], end: int) -> Runs:
        """Make runs from sorted pairs (start, value), without empty runs."""
        kept = [
            piece for piece, following in zip(pieces, [*pieces[1:], (end, 0)], strict=True) if piece[0] < following[0]
        ]
        return cls(np.array([s for s, _ in kept], np.int64), np.array([v for _, v in kept], np.uint8), end)


def encode_runs(
    source: str, element: str, rounding: str, overflow: str, scale: int, random: Random | None = None
) -> Runs:
    """Return the code of every bit pattern of `source`, infinities and NaNs included."""
    float_type, target = FLOATS[source], ELEMENTS[element]
    end = 2 * float_type.sign_bit
    if scale == SCALE_NAN:
        return Runs.of([(0, 0)], end)
    pieces: list[tuple[int, int]] = []
    for negative in (False, True):
        first = float_type.sign_bit if negative else 0
        breaks = breakpoints(source, element, rounding, negative, random)[scale]
        codes = position_codes(target, rounding, overflow, negative)
        infinite, nan = special_codes(target, overflow, negative)
        pieces += [(first + start, code) for start, code in zip([0, *breaks.tolist()], codes, strict=True)]
        pieces += [(first + float_type.infinity, infinite), (first + float_type.infinity + 1, nan)]
    return Runs.of(pieces, end)


def scale_runs(source: str, element: str, rule: str) -> Runs:
    """Return the scale code of a block for each finite value of the block's largest magnitude."""
    float_type = FLOATS[source]
    pieces = [(0, 0)]
    for code in range(1, SCALE_NAN):
        threshold, inclusive = scale_threshold(ELEMENTS[element], rule, code)
        pattern, exact = floor_magnitude(float_type, threshold.numerator, threshold.denominator)
        pieces.append((pattern if exact and inclusive else pattern + 1, code))
    return Runs.of(pieces, float_type.infinity)


def decode_table(element: str, target: str) -> Array:
    """Return an array [scale, code] with the bit pattern of each decoded value."""
    rows = [
        [decode(ELEMENTS[element], FLOATS[target], code, scale) for code in range(1 << ELEMENTS[element].bits)]
        for scale in range(256)
    ]
    return np.array(rows, np.uint64)

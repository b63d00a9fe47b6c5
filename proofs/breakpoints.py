"""Check kernels at every breakpoint of the exact reference, for every scale code.

Between two neighbouring breakpoints the exact reference gives one code. So a monotone kernel is
right in a whole interval between breakpoints if it is right at both ends of the interval. Theorems
prove that the kernels are monotone, so a few hundred inputs for each scale suffice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs import loops
from proofs.loops import Machine
from proofs.specs.rationals import ELEMENTS, FLOATS, Float
from proofs.specs.runs import SCALES, Array, Random, breakpoints, decode_table, encode_runs, expected, scale_runs

#: Random words: stochastic rounding uses 30 bits of the first five words, and 8 bits of the last
#: word. The third word also has bits above the used bits.
WORDS = (Random(0), Random(1), Random(0xC0000000 | 0x12345678), Random(1 << 29), Random((1 << 30) - 1), Random(0x55, 8))


def landmarks(source: Float) -> list[int]:
    """Return the special magnitudes of a type.

    Special magnitudes are zero, the smallest and largest subnormal and normal numbers, infinity and
    NaNs.
    """
    normal = 1 << source.fraction_bits
    return [
        *(0, 1, 2, normal - 1, normal, normal + 1, source.largest - 1, source.largest),
        *(source.infinity, source.infinity + 1, source.nan, source.sign_bit - 1),
    ]


def points(source: str, element: str, rounding: str, negative: bool, random: Random | None) -> Array:
    """Return, for each scale, a row of patterns: breakpoints, their neighbours, and `landmarks`."""
    float_type = FLOATS[source]
    breaks = breakpoints(source, element, rounding, negative, random)
    near = [breaks + step for step in (-2, -1, 0, 1)]
    marks = np.broadcast_to(np.array(landmarks(float_type), np.int64), (len(SCALES), len(landmarks(float_type))))
    found: Array = np.clip(np.concatenate([*near, marks], axis=1), 0, float_type.sign_bit - 1)
    return found


def check_encode(
    machine: Machine, source: str, element: str, rounding: str, overflow: str, random: Random | None
) -> tuple[int, str]:
    """Check an encoder at every breakpoint.

    Return the number of inputs, and a text about the mismatches, which is "" if there are none.
    """
    float_type = FLOATS[source]
    magnitudes = [points(source, element, rounding, negative, random) for negative in (False, True)]
    right = np.concatenate(
        [
            expected(source, element, rounding, overflow, row, negative, random)
            for negative, row in zip((False, True), magnitudes, strict=True)
        ],
        axis=1,
    )
    unsigned = [row.astype(f"u{float_type.bits // 8}") for row in magnitudes]
    unsigned[1] |= unsigned[1].dtype.type(float_type.sign_bit)
    patterns = np.concatenate(unsigned, axis=1)
    # The 256th scale code is NaN, which gives code 0 for every input.
    patterns = np.concatenate([patterns, patterns[:1]])
    right = np.concatenate([right, np.zeros_like(right[:1])])
    rows = loops.encode_rows(machine, source, element, rounding, overflow, random)
    return _outcome(rows(patterns, np.arange(256, dtype=np.uint8)), right, patterns)


def check_all_patterns(
    machine: Machine, source: str, element: str, rounding: str, overflow: str, random: Random | None
) -> tuple[int, str]:
    """Check an encoder on every pattern of a 16-bit type under all 256 scale codes."""
    runs = [encode_runs(source, element, rounding, overflow, scale, random) for scale in range(256)]
    right = np.stack([np.repeat(run.values, np.diff(run.starts, append=run.end)) for run in runs])
    patterns = np.tile(np.arange(1 << FLOATS[source].bits, dtype=np.uint16), (256, 1))
    rows = loops.encode_rows(machine, source, element, rounding, overflow, random)
    return _outcome(rows(patterns, np.arange(256, dtype=np.uint8)), right, patterns)


def check_decode(machine: Machine, element: str, target: str) -> tuple[int, str]:
    """Check a decoder on every code under all 256 scale codes."""
    right = decode_table(element, target)
    codes = np.tile(np.arange(1 << ELEMENTS[element].bits, dtype=np.uint8), (256, 1))
    return _outcome(loops.decode_rows(machine, element, target)(codes, np.arange(256, dtype=np.uint8)), right, codes)


def check_scale(source: str, element: str, rule: str) -> tuple[int, str]:
    """Check the Python function of a scale rule around each of the 254 thresholds."""
    runs = scale_runs(source, element, rule)
    near = [runs.starts + step for step in (-2, -1, 0, 1)]
    marks = [mark for mark in landmarks(FLOATS[source]) if mark < runs.end]
    amax = np.unique(np.clip(np.concatenate([*near, marks]), 0, runs.end - 1))
    right = runs.values[np.searchsorted(runs.starts, amax, side="right") - 1]
    found = np.asarray(loops.scale_kernel(source, element, rule)(amax))
    return _outcome(found[None], right[None], amax[None])


def _outcome(found: Array, right: Array, inputs: Array) -> tuple[int, str]:
    wrong = found != right
    if not wrong.any():
        return found.size, ""
    place: Any = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return found.size, (
        f"{np.count_nonzero(wrong)} mismatches; first: input {int(inputs[place]):#x}, row {place[0]} "
        f"(the scale code), got {int(found[place]):#x}, expected {int(right[place]):#x}"
    )

"""Tests of float32 addition and fma by integers against the reference and the hardware."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.engine.products.float32_by_integers import make_add_float32, make_fma_float32
from mxnum.formats import FLOATS
from tests import samples

FLOAT32 = FLOATS["float32"]
add, fma = make_add_float32(), make_fma_float32()

SPECIAL = samples.special_patterns(FLOAT32).tolist()
patterns = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from(SPECIAL))


def value(bits):
    return np.array([bits], np.int64).astype(np.int32).view(np.float32)


def oracle(a, b, c):
    """Compute fma(a, b, c) with the reference: the sequential dot product of (c, a) and (1, b)."""
    return int(reference.dot(_pair(c, a), _pair(0x3F800000, b), accumulate="sequential").view(np.uint32))


def _pair(a, b):
    return np.array([a, b], np.int64).astype(np.int32).view(np.float32)


def same(got, want, *inputs):
    assert got == want, f"{[hex(i & 0xFFFFFFFF) for i in inputs]}: got {got:#x}, want {want:#x}"


@given(patterns, patterns, patterns, st.integers(-60, 60))
def test_fma_rounds_once(a, b, c, distance):
    fields = [(x >> 23) & 0xFF for x in (a, b, c)]
    # In most cases, change the exponent of c so that c and a * b overlap.
    if distance > -30 and not {0, 255} & set(fields):
        c = (c & ~(0xFF << 23)) | (min(max(fields[0] + fields[1] - 127 + distance, 0), 254) << 23)
    if c == -(1 << 31):
        c = 0  # the reference's sum starts at +0 and does not become -0 by adding -0
    same(fma(a, b, c) & 0xFFFFFFFF, oracle(a, b, c), a, b, c)


def test_fma_of_special_values():
    for a in SPECIAL:
        for b in SPECIAL[::2]:
            for c in (0, 1, 0x3F800000, -0x40800000, 0x7F7FFFFF, 0x7F800000, -0x800000, 0x7FC00000):
                same(fma(a, b, c) & 0xFFFFFFFF, oracle(a, b, c), a, b, c)
    assert fma(-(1 << 31), 0x3F800000, -(1 << 31)) & 0xFFFFFFFF == 1 << 31  # -0 * 1 + -0 is -0


@given(patterns, patterns)
def test_addition_is_the_hardware_s(a, b):
    with np.errstate(all="ignore"):
        total = value(a) + value(b)
    want = 0x7FC00000 if np.isnan(total[0]) else int(total.view(np.uint32)[0])
    same(add(a, b) & 0xFFFFFFFF, want, a, b)
    same(fma(a, 0x3F800000, b) & 0xFFFFFFFF, want, a, b)

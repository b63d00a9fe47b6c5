"""Tests that products by integer instructions equal the definition's, on several processors."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import numba
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.products import by_floats, integers
from mxnum.formats import ELEMENTS
from tests.engine.products.test_by_floats import ORDERS, check_blocks, laid
from tests.engine.products.test_terms import operand
from tests.test_products import codes_at_random

NARROW = ("mxfp4_e2m1", "mxint4", "mxint8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e3m0")
HAS_INTEGERS = bool(integers.instructions()) and not numba.config.DISABLE_JIT
compiled = pytest.mark.skipif(not HAS_INTEGERS, reason="no instructions for products of integers")


def filled(name, rows, length, block, *values):
    """Return an MX array whose elements repeat `values`, with scales of 1."""
    codes = np.resize(mx.encode(np.array(values), mx.formats.get(name).element), (rows, length))
    return mx.MXArray.from_parts(codes, np.full((rows, -(-length // block)), 127, np.uint8), name, block_size=block)


def check_integers(a, b, **how):
    held = check_blocks(a, b, **how)
    assert held.word in integers.IN_WORD
    return held.word


def check_pairs():
    """Check all pairs of formats and of memory orders, with and without incomplete tiles."""
    shapes = [(9, 70, 130, 32), (5, 67, 96, 16), (66, 5, 37, 64), (4, 16, 16, 8), (1, 70, 70, 32), (8, 129, 1100, 44)]
    words = set()
    for turn, pair in enumerate(product(NARROW, NARROW)):
        m, n, k, block = shapes[turn % len(shapes)]
        a, b = (codes_at_random(name, (rows, k), block, spread=3) for name, rows in zip(pair, (m, n), strict=True))
        a, b = (mx.MXArray.from_parts(x.codes, np.clip(x.scales, 100, 140), x.format, block_size=block) for x in (a, b))
        orders = list(ORDERS)
        words.add(check_integers(laid(a, orders[turn % 3]), laid(b, orders[turn // 3 % 3])))
    return words


def check_extremes():
    """Check the largest sums, of both signs, that are still computed in integers."""
    minus_two = mx.MXArray.from_parts(np.full((5, 2048), 0x80, np.uint8), np.full((5, 2), 127, np.uint8), "mxint8",
                                      block_size=1024)  # fmt: skip
    plus = filled("mxint8", 70, 2048, 1024, 127 / 64)
    for a, b in product((minus_two, plus), (minus_two, plus)):
        check_integers(operand(a), operand(b))
    for block in (224, 228):
        a, b = filled("mxfp4_e2m1", 5, 2 * block, block, 6.0), filled("mxfp4_e2m1", 70, 2 * block, block, -6.0)
        for left, right in product((a, b), (a, b)):
            check_integers(operand(left[:5]), operand(right))
    for name, block in (("mxfp6_e3m2", 82), ("mxfp6_e2m3", 4660)):
        largest = ELEMENTS[mx.formats.get(name).element.name].max
        for value in (largest, -largest):
            check_integers(
                operand(filled(name, 3, block, block, value)), operand(filled(name, 3, block, block, largest))
            )


@compiled
def test_pairs():
    assert check_pairs() == {"int8", "int16"}


@compiled
def test_extremes():
    check_extremes()


@compiled
def test_blocks_beyond_integers_are_exact():
    """Check a block whose sums just exceed 2**24 units, which mxnum computes in float64."""
    a = mx.MXArray.from_parts(
        np.full((5, 1028), 0x80, np.uint8), np.full((5, 1), 127, np.uint8), "mxint8", block_size=1028
    )
    a.codes[:, 0] = 1
    assert check_blocks(operand(a), operand(a)).word == "float64"


@compiled
def test_scales_that_are_nan_or_extreme():
    for name in NARROW:
        a, b = (codes_at_random(name, (rows, 96), 32, spread=3) for rows in (6, 70))
        scales = np.clip(a.scales, 100, 140)
        scales[1, 1], scales[2, 2] = 255, 20
        a = mx.MXArray.from_parts(a.codes, scales, a.format, block_size=32)
        b = mx.MXArray.from_parts(
            b.codes, np.where(b.scales > 200, 255, np.clip(b.scales, 100, 140)), b.format, block_size=32
        )
        check_integers(operand(a), operand(b))


@compiled
def test_threads_and_chunks_share_the_work(monkeypatch):
    monkeypatch.setattr(by_floats, "MULTIPLICATIONS_PER_THREAD", 1)
    for chunk, (m, n) in product((1, 1 << 14), ((40, 200), (70, 3), (3, 70), (130, 40))):
        monkeypatch.setattr(by_floats, "_CHUNK", chunk)
        a, b = (filled("mxint8", rows, 90, 32, *np.arange(-127, 128) / 64) for rows in (m, n))
        for threads in (1, 2, 3, 8):
            check_integers(operand(a), operand(b), threads=threads)


#: LLVM's names of processor features that most of the processors in `OTHERS` have.
COMMON = "+64bit,+avx,+avx2,+bmi,+bmi2,+cmov,+f16c,+fma,+lzcnt,+popcnt,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
OTHERS = {
    "avx2": ("haswell", COMMON, 8, "avx2"),
    "avx512": ("skylake-avx512", f"{COMMON},+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd", 16, "avx2"),
    "vnni of 256 bits": ("haswell", f"{COMMON},+avx512f,+avx512vl,+avx512vnni", 8, "vnni"),
    "none": ("nehalem", "+64bit,+cmov,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3", 0, ""),
}
CHILD = """
from mxnum.engine.products import integers
assert (integers.lanes(), integers.instructions()) == {expected}
from tests.engine.products import test_integers
{check}
"""


#: The processors in `OTHERS` that are also tested without `--tier full`. These are only two,
#: because compiling for one processor takes ten seconds.
SAMPLE = "avx2", "none"


@compiled
@pytest.mark.parametrize(
    "machine", [machine if machine in SAMPLE else pytest.param(machine, marks=pytest.mark.full) for machine in OTHERS]
)
def test_instructions_of_other_machines(machine, tmp_path):
    name, features, *expected = OTHERS[machine]
    for feature in features.replace("+64bit,", "").split(","):
        if not integers.has_feature(feature[1:]):
            pytest.skip(f"this machine has no {feature[1:]}")
    if (integers.lanes(), integers.instructions()) == tuple(expected):
        pytest.skip("the other tests run these instructions, which are this machine's own")
    check = "test_integers.check_pairs()\ntest_integers.check_extremes()" if expected[0] else ""
    code = CHILD.format(expected=tuple(expected), check=check)
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Tests that products have the same bits without compilation and in any float environment."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.products import sums
from mxnum.engine.products.operands import Operand
from mxnum.formats import FLOATS
from tests.test_float_environment import DENORMALS_ARE_ZERO, DOWNWARD, FLUSH_TO_ZERO, UPWARD, control_bits
from tests.test_float_environment import pytestmark as needs_control_register
from tests.test_products import codes_at_random, floats, with_float_scales

DEFINED = ("exact", "block", "sequential")


@cache
def float_scaled():
    """Return operands that are generated only once.

    In another float environment, numpy may generate different random numbers.
    """
    return [with_float_scales("nvfp4", (rows, 50), 16, spread=60, special=0.1) for rows in (5, 6)]


def everything():
    """Return the bytes of products of every kind; some terms and sums are subnormal."""
    parts = []
    for left, right in (("mxfp8_e4m3", "mxfp4_e2m1"), ("mxfp8_e5m2", "mxfp8_e5m2"), ("mxint8", "mxfp6_e3m2")):
        a, b = codes_at_random(left, (5, 50), 16, spread=60), codes_at_random(right, (6, 50), 16, spread=60)
        small = mx.MXArray.from_parts(a.codes, a.scales // 2, a.format, block_size=16)
        for accumulate in DEFINED:
            for out_dtype in ("float32", "bfloat16"):
                parts += [mx.matmul(x, b.T, accumulate=accumulate, out_dtype=out_dtype) for x in (a, small)]
            if accumulate != "block":
                parts.append(mx.matmul(codes_at_random(left, (5, 50), 16, offset=True), b.T, accumulate=accumulate))
                parts += [mx.matmul(a, floats(d, (50, 3)), accumulate=accumulate) for d in ("float64", "float16")]
    a, b = float_scaled()
    parts += [mx.matmul(a, b.T), mx.matmul(a, codes_at_random("mxint8", (6, 50), 16, spread=60).T)]
    stacks = [codes_at_random("mxfp4_e2m1", (3, rows, 50), 16, spread=60) for rows in (5, 6)]
    parts.append(mx.matmul(stacks[0], stacks[1].transpose(0, 2, 1)))
    y = floats("float32", (5, 50))
    sums.add_to_rows(y, y[0].copy())
    return [p.tobytes().hex() for p in (*parts, y)]


@needs_control_register
@pytest.mark.parametrize("bits", [FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, UPWARD, DOWNWARD], ids=hex)
def test_results_do_not_change_with_the_environment(bits):
    want = everything()
    with control_bits(bits):
        got = everything()
    assert got == want


def test_results_without_compilation_are_the_same():
    probe = "from tests.engine.products.test_sums import everything; print(*everything())"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", probe], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == everything()


def test_unknown_accumulation_raises():
    """Check that an unknown accumulation mode raises an error and runs no loop of another mode."""
    x, out = Operand(np.ones((2, 2), np.float32), FLOATS["float32"]), np.zeros((2, 2), np.float32)
    with pytest.raises(AssertionError, match="unreachable"):
        sums.matmul(x, x, "pairwise", out, 1, lambda x, threads: x.array)

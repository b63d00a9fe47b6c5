"""Tests that lanes, the 32-bit integers of compiled code, compute as Python integers do."""

from __future__ import annotations

import operator
import os
import platform
import subprocess
import sys

import numba
import numpy as np
import pytest

from mxnum.definition.convert import make_encode
from mxnum.definition.random import multiply_32x32
from mxnum.definition.word import select
from mxnum.engine.machine import lanes
from mxnum.engine.machine.jit import register
from mxnum.engine.machine.lanes import greatest_of, integer, lane, load, store, wide
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from tests import samples

OPERATORS = (
    operator.add, operator.sub, operator.and_, operator.or_, operator.xor, operator.lt, operator.le, operator.gt,
    operator.ge, operator.eq, operator.ne,
)  # fmt: skip


@pytest.mark.parametrize("function", OPERATORS)
def test_operators(function):
    compiled = numba.njit(lambda a, b: wide(function(lane(a), lane(b))))
    constant = numba.njit(lambda a: wide(function(lane(a), 7)))
    for a, b in samples.generator("lanes").integers(-(1 << 29), 1 << 29, (50, 2)).tolist():
        assert compiled(a, b) == function(a, b)
        assert constant(a) == function(a, 7)


def test_shifts_and_select():
    compiled = numba.njit(lambda a, n: (wide(lane(a) << lane(n)), wide(lane(a) >> n), wide(1 << lane(n))))
    for a, n in ((5, 3), (-5, 3), (-1, 20), (0, 0)):
        assert compiled(a, n) == (a << n, a >> n, 1 << n)
    chosen = numba.njit(lambda a, b: wide(select(lane(a) < lane(b), lane(a), 9)))
    assert [chosen(1, 2), chosen(2, 1)] == [1, 9]


def test_words_multiply_as_the_dialect_says():
    compiled = numba.njit(lambda a, b: multiply_32x32(lane(a), b))
    both = numba.njit(lambda a, b: (wide(compiled(a, b)[0]), wide(compiled(a, b)[1])))
    for a in (0, 1, 0xFFFFFFFF, 0x80000000, 123456789):
        high, low = both(a, 0xD2511F53)
        assert (high & 0xFFFFFFFF, low & 0xFFFFFFFF) == multiply_32x32(a, 0xD2511F53)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_the_greatest_of_some_elements(dtype):
    """Check that `greatest_of` finds the largest magnitude of 16 or 32 consecutive elements."""
    limits = np.iinfo(dtype)
    mask = int(limits.max) >> (1 if dtype == "uint8" else 0)
    x = samples.generator("greatest", dtype).integers(limits.min, limits.max, 200, dtype, endpoint=True)
    x[60:64] = limits.min
    for count in (16, 32):
        compiled = numba.njit(lambda x, start, count=count: greatest_of(x, start, count, mask))
        for start in range(150):
            want = max(int(v) & mask for v in x[start : start + count])
            assert compiled(x, start) == greatest_of(x, start, count, mask) == want


def test_float_primitives():
    one, three = 0x3F800000, 0x40400000
    assert lanes.add_float32(one, one) == 0x40000000
    assert lanes.subtract_float32(one, one) == 0
    assert lanes.truncate_float32(three + 0x1000) == 3
    compiled = numba.njit(
        lambda a, b: (
            wide(lanes.add_float32(lane(a), lane(b))),
            wide(lanes.subtract_float32(lane(a), lane(b))),
            wide(lanes.truncate_float32(lane(b))),
        )
    )
    assert compiled(one, three) == (0x40800000, 0xC0000000 - (1 << 32), 3)
    product = numba.njit(lambda a, b: wide(lanes.multiply_float32(lane(a), lane(b))))
    assert product(three, three) == lanes.multiply_float32(three, three) == 0x41100000
    quotient = numba.njit(lambda a, b: wide(lanes.divide_float32(lane(a), lane(b))))
    assert quotient(one, three) == lanes.divide_float32(one, three) == 0x3EAAAAAB


def test_float_conversions():
    """Check that compiled conversions between float types equal numpy's."""
    to_float64 = numba.njit(lambda a: lanes.float32_to_float64(lane(a)))
    to_float16 = numba.njit(lambda a: wide(lanes.float32_to_float16(lane(a))))
    from_float16 = numba.njit(lambda a: wide(lanes.float16_to_float32(lane(a))))
    for bits in (0, -(1 << 31), 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x00800000, 0x477FF000, 0x33000001):
        assert to_float64(bits) == lanes.float32_to_float64(bits)
        assert to_float16(bits) & 0xFFFF == lanes.float32_to_float16(bits) & 0xFFFF
    for bits in (0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7E00, 0xBC00, 0x8001):
        assert from_float16(bits) == lanes.float16_to_float32(bits)


HALVES = """
import numba, numpy as np
from mxnum.engine.machine import lanes
from mxnum.engine.machine.lanes import integer, lane
widen = numba.njit(lambda a: np.int64(integer(lanes.float16_to_float32(lane(a)))))
narrow = numba.njit(lambda a: np.int64(integer(lanes.float32_to_float16(lane(a)))))
halves = np.arange(1 << 16)
finite = halves[(halves & 0x7FFF) <= 0x7C00]
want = finite.astype(np.uint16).view(np.float16).astype(np.float32).view(np.int32)
assert [widen(h) for h in finite.tolist()] == want.tolist()
with np.errstate(over="ignore"):
    near = np.concatenate([want + d for d in (0, 1, -1, 0x0FFF, 0x1000, 0x1001)]).astype(np.int32)
    near = near[(near & 0x7FFFFFFF) <= 0x7F800000]
    want = near.view(np.float32).astype(np.float16).view(np.uint16)
assert [narrow(b) & 0xFFFF for b in near.tolist()] == want.tolist()
assert narrow(0x7FC00000) == 0x7E00
assert lanes._has_half() == %s
"""


def test_halves_of_a_processor_without_them():
    """Check float16 conversions on a processor that has no instructions for float16.

    On such a processor, LLVM's own conversions would crash the process, because they call library
    functions that are missing.
    """
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    expected = platform.machine() in ("aarch64", "arm64")
    subprocess.run([sys.executable, "-c", HALVES % expected], env=environment, check=True)


def test_halves_of_this_processor():
    subprocess.run([sys.executable, "-c", HALVES % "lanes._has_half()"], check=True)


def test_a_low_word():
    compiled = numba.njit(lambda a: wide(lanes.low_word(np.int64(a))))
    assert [compiled(a) for a in (5, -5, 0x7FFFFFFF)] == [lanes.low_word(a) for a in (5, -5, 0x7FFFFFFF)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
def test_memory(dtype):
    info = np.iinfo(dtype)
    source = np.array([0, 1, info.min, info.max, 77], dtype)

    def copy(x, out, words):
        for i in range(x.size):
            store(out, i, load(x, i))
            words[i] = wide(load(x, i))

    for function in (copy, numba.njit(copy)):
        out, words = np.zeros_like(source), np.zeros(source.size, np.int64)
        function(source, out, words)
        assert np.array_equal(out, source)
        # `words` shows all bits of the loaded numbers; `store` writes only their low bits.
        # Compiled lanes are signed, so uint32 numbers from 2**31 on appear negative in `words`.
        assert np.array_equal(words, source) or dtype is np.uint32


def test_without_compilation_a_lane_is_an_integer():
    assert (lane(np.int32(-3)), integer(5), wide(np.int32(7))) == (-3, 5, 7)


@pytest.mark.parametrize("name", ["e4m3", "int4"])
def test_a_function_on_lanes_is_the_function(name):
    encode = register(make_encode(FLOATS["float32"], ELEMENTS[name], Rounding.SR, Overflow.SATURATE))

    @numba.njit
    def on_lanes(x, scale, random):
        return integer(encode(lane(x), lane(scale), lane(random)))

    for x in samples.boundary_patterns(FLOATS["float32"], ELEMENTS[name]).tolist():
        for scale, random in ((127, 1 << 29), (0, 0), (255, 5)):
            assert on_lanes(x, scale, random) == encode(x, scale, random)
    assert on_lanes.nopython_signatures[0].return_type == numba.types.int32

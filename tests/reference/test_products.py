"""Tests of the oracle's products: rounded once, after each term, or after each block."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mxnum import formats, reference
from mxnum.reference import Blocked, dot, encode
from tests.reference.tables import INF, NAN, bits_of, f16, f32, value


def vector(*values: float) -> Any:
    return f32(values)


def test_exact_dot_rounds_once() -> None:
    a, b = vector(1e30, 1, -1e30), vector(1, 1, 1)
    assert dot(a, b) == 1
    assert dot(a, b, accumulate="sequential") == 0
    assert dot(vector(2**24, 1, 1), b) == 2**24 + 2
    assert dot(vector(2**24, 1, 1), b, accumulate="sequential") == 2**24
    assert dot(vector(3e38, -3e38), vector(10, 10)) == 0
    assert dot(vector(3e38, -3e38), vector(10, 10), accumulate="sequential") == INF
    assert dot(np.array([1 + 2.0**-40]), np.array([2.0**40])) == np.float32(2.0**40)
    # Operands in float64 are not rounded to float32.
    assert dot(np.array([1 + 2.0**-40, -1.0]), np.ones(2)) == 2.0**-40
    assert dot(np.array([1 + 2.0**-40, -1.0]), np.ones(2), accumulate="sequential") == 0
    assert dot(vector(1e-45), vector(0.75)) == np.float32(1e-45)  # subnormal numbers are not flushed


def test_sequential_is_a_fused_multiply_add() -> None:
    u = 1 + 2.0**-12
    assert dot(vector(-(1 + 2.0**-11), u), vector(1, u), accumulate="sequential") == 2.0**-24
    # A sum that is exactly zero is +0; a result that underflows keeps its sign.
    for accumulate in ("exact", "sequential"):
        assert bits_of(dot(vector(-0.0, 0.0), vector(1, -1), accumulate=accumulate)) == [0]
        assert bits_of(dot(vector(-1e-30), vector(1e-30), accumulate=accumulate)) == [0x80000000]


@pytest.mark.parametrize("accumulate", ["exact", "sequential"])
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([], [], 0x00000000),
        ([1, NAN], [1, 0], 0x7FC00000),
        ([INF, 1], [0, 1], 0x7FC00000),
        ([-0.0, 1], [INF, 1], 0x7FC00000),
        ([INF, -INF], [1, 1], 0x7FC00000),
        ([INF, INF], [-1, -2], 0xFF800000),
        ([3e38, INF, -3e38], [1, 1, 1], 0x7F800000),
        ([INF, INF, NAN], [1, -1, 1], 0x7FC00000),
        ([3e38, 3e38], [-1, -1], 0xFF800000),
    ],
)
def test_special_values_of_dot(accumulate: str, a: list[float], b: list[float], expected: int) -> None:
    assert bits_of(dot(vector(*a), vector(*b), accumulate=accumulate)) == [expected]


def blocked(name: str, values: list[float], scales: list[int], block: int, **options: Any) -> Blocked:
    """Return a vector in blocks; the format must represent the values exactly."""
    element = formats.get(name).element
    codes = np.array([encode(v, element, overflow="ieee") for v in values], np.uint8)
    assert all(value(int(c), element) == v or math.isnan(v) for c, v in zip(codes, values, strict=True))
    return Blocked(codes, np.array(scales, np.uint8), name, block, **options)


def test_dot_of_blocked_operands() -> None:
    a = blocked("mxfp8_e5m2", [4096, 1, 1], [127], 3)
    results = {how: float(dot(a, a, accumulate=how)) for how in ("exact", "block", "sequential")}
    assert results == {"exact": 2**24 + 2, "block": 2**24 + 2, "sequential": 2**24}
    # With one element in each block, the mode `block` rounds each product, and adds the products in
    # float32, in order.
    a = blocked("mxfp4_e2m1", [1, 1, 1], [151, 127, 127], 1)
    b = blocked("mxint8", [1, 1, 1], [127] * 3, 1)
    results = {how: float(dot(a, b, accumulate=how)) for how in ("exact", "block", "sequential")}
    assert results == {"exact": 2**24 + 2, "block": 2**24, "sequential": 2**24}
    # The mode `block` rounds a block's sum before adding it: 2**24 + 1 rounds to 2**24, so the sum
    # with -2**24 is 0, not 1.
    a = blocked("mxfp8_e5m2", [-4096, 0, 4096, 1], [127, 127], 2)
    b = blocked("mxfp8_e5m2", [4096, 0, 4096, 1], [127, 127], 2)
    assert dot(a, b, accumulate="block") == 0
    assert dot(a, b) == 1
    # The last block is short, the operands have different formats, and `sequential` decodes to
    # float32.
    a = blocked("mxfp4_e2m1", [1, 2, 3], [127, 129], 2)
    assert [float(dot(a, vector(1, 1, 1), accumulate=how)) for how in ("exact", "sequential")] == [15, 15]
    top, bottom = blocked("mxfp8_e4m3", [448], [254], 1), blocked("mxfp8_e4m3", [2.0**-9], [0], 1)
    assert float(dot(top, bottom)) == 448 * 2.0**-9
    assert dot(top, bottom, accumulate="sequential") == INF
    assert float(dot(top, bottom, accumulate="block")) == 448 * 2.0**-9


def test_special_values_of_block_accumulation() -> None:
    def run(a: Blocked, b: Blocked) -> int:
        return bits_of(dot(a, b, accumulate="block"))[0]

    ones = blocked("mxfp8_e5m2", [1, 1], [127, 127], 1)
    assert run(blocked("mxfp8_e5m2", [1, 1], [127, 255], 1), ones) == 0x7FC00000
    assert run(ones, blocked("mxfp4_e2m1", [0, 0], [255, 127], 1)) == 0x7FC00000
    assert run(blocked("mxfp8_e5m2", [1, NAN], [127, 127], 1), ones) == 0x7FC00000
    assert run(blocked("mxfp8_e5m2", [INF, 1], [127, 127], 1), ones) == 0x7F800000
    assert run(blocked("mxfp8_e5m2", [INF, -INF], [127, 127], 1), ones) == 0x7FC00000
    assert run(blocked("mxfp8_e5m2", [INF, 0], [127], 2), blocked("mxfp8_e5m2", [0, 1], [127], 2)) == 0x7FC00000
    assert run(blocked("mxfp8_e5m2", [], [], 4), blocked("mxfp8_e5m2", [], [], 4)) == 0
    assert run(blocked("mxfp8_e5m2", [-0.0, -0.0], [127, 127], 1), ones) == 0
    # In the mode `block`, the term of each block overflows or underflows separately.
    huge = blocked("mxfp8_e5m2", [1, 1], [254, 254], 1)
    assert run(huge, blocked("mxfp8_e5m2", [1, -1], [254, 254], 1)) == 0x7FC00000
    assert bits_of(dot(huge, blocked("mxfp8_e5m2", [1, -1], [254, 254], 1))) == [0]
    tiny = blocked("mxfp8_e5m2", [1, 1], [0, 0], 1)
    # Each term, 2**-150, is a tie and rounds to zero.
    assert run(tiny, blocked("mxfp8_e5m2", [1, 1], [127 - 23, 127 - 23], 1)) == 0
    assert bits_of(dot(tiny, blocked("mxfp8_e5m2", [1, 1], [127 - 23, 127 - 23], 1))) == [1]


def test_block_accumulation_needs_equal_blocks_without_offset() -> None:
    a = blocked("mxfp4_e2m1", [1, 2, 3], [127, 127], 2)
    plain = vector(1, 2, 3)
    shifted = dataclasses.replace(a, offsets=f16([1, 1]))
    other = blocked("mxfp4_e2m1", [1, 2, 3], [127], 3)
    for x, y in ((a, plain), (plain, a), (plain, plain), (a, shifted), (shifted, a), (a, other)):
        with pytest.raises(ValueError, match="'accumulate'"):
            dot(x, y, accumulate="block")
    assert dot(a, shifted) == dot(a, shifted, accumulate="sequential") == 2 + 6 + 12
    assert dot(a, other) == 14
    with pytest.raises(ValueError, match="'b'"):
        dot(plain, vector(1))
    with pytest.raises(ValueError, match="blas"):
        dot(plain, plain, accumulate="blas")


def test_out_dtype_rounds_once_more() -> None:
    a, b = vector(1, 2.0**-8, 2.0**-30), vector(1, 1, 1)
    assert dot(a, b).dtype == np.float32
    assert dot(a, b) == 1 + 2.0**-8
    result = dot(a, b, out_dtype="bfloat16")
    assert result.dtype == ml_dtypes.bfloat16
    assert float(result) == 1.0


def test_matmul() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(-9, 9, (3, 5)).astype(np.float32), rng.integers(-9, 9, (5, 2)).astype(np.float32)
    for accumulate in ("exact", "sequential"):
        result = reference.matmul(a, b, accumulate=accumulate)
        assert result.dtype == np.float32
        assert (result == a @ b).all()
    rows = [blocked("mxfp4_e2m1", [1, 2, 3], [127, 127], 2), blocked("mxfp4_e2m1", [0, 0, -6], [127, 128], 2)]
    columns = [blocked("mxint4", [1, 1, 1], [127, 127], 2)]
    assert reference.matmul(rows, columns, accumulate="block").tolist() == [[6], [-12]]
    assert reference.matmul(rows, b[:3], out_dtype="bfloat16").shape == (2, 2)

"""Tests that the reference rounds once, in every mode, with overflow, zeros and special values."""

from __future__ import annotations

import bisect
import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mxnum.reference import decode, encode
from tests.reference.tables import CANONICAL_NAN, ELEMENTS, INF, MODES, NAN, SIGN, TABLE, random_floats, rounded, value


@functools.cache
def unbounded_magnitudes(name: str) -> list[Fraction]:
    """Return the magnitudes of a format, extended by four binades past the largest magnitude."""
    m, emax, emin, *_ = TABLE[name]
    grid = [Fraction(q, 2**m) * Fraction(2) ** emin for q in range(2**m)]
    for exponent in range(emin, emax + 5):
        grid += [(1 + Fraction(q, 2**m)) * Fraction(2) ** exponent for q in range(2**m)]
    return grid


def by_table(x: Fraction, name: str, mode: str, overflow: str, random: int, r: int) -> float:
    """Round x with a list of magnitudes that extends four binades past the largest value.

    The function picks one of the two neighbours of x in the list, and then compares the chosen one
    with the largest value.
    """
    a, largest, grid = abs(x), TABLE[name][3], unbounded_magnitudes(name)
    i = bisect.bisect_right(grid, a) - 1
    low, high = grid[i], grid[i + 1]
    middle = (low + high) / 2
    even, odd = (low, high) if i % 2 == 0 else (high, low)
    y = low
    if a != low:
        directed = {"rtp": high if x > 0 else low, "rtn": low if x > 0 else high, "rtz": low, "rto": odd}
        nearest = {"rne": even, "rna": high}
        if mode in directed:
            y = directed[mode]
        elif mode in nearest:
            y = nearest[mode] if a == middle else low if a < middle else high
        else:
            share = (a - low) / (high - low) * 2**r
            y = high if share // 1 + random >= 2**r else low
    sign = -1.0 if x < 0 else 1.0
    if y <= largest:
        return math.copysign(float(y), 1.0 if y == 0 and name.startswith("int") else sign)
    to_max = mode in ("rtz", "rto") or (mode == "rtp" and x < 0) or (mode == "rtn" and x > 0)
    if overflow == "saturate" or to_max or name not in ("e4m3", "e5m2"):
        return sign * largest
    return sign * INF if name == "e5m2" else NAN


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_mode_against_the_table_of_values(name: str) -> None:
    m, emax, emin, *_ = TABLE[name]
    rng = np.random.default_rng(3)
    unit = Fraction(2) ** (emin - m)
    xs = [Fraction(v) for v in random_floats(rng, 60, emin - m - 3, emax + 3)]
    xs += [int(q) * unit / 8 for q in rng.integers(-(2**6), 2**6, 40)]  # numbers between subnormal values
    top = Fraction(2) ** (emax - m)
    # Numbers around the largest value.
    xs += [int(q) * top / 4 for q in rng.integers(-(2 ** (m + 5)), 2 ** (m + 5), 60)]
    for x in xs:
        for mode in MODES:
            r = int(rng.integers(1, 31))
            word = int(rng.integers(0, 2**32))
            for overflow in ("saturate", "ieee"):
                scale = int(rng.integers(0, 255))
                y = x * Fraction(2) ** (scale - 127)
                code = encode(y, name, rounding=mode, overflow=overflow, scale=scale, random_bits=word, sr_bits=r)
                expected = by_table(x, name, mode, overflow, word % 2**r, r)
                if x == 0:
                    expected = 0.0
                got = value(code, name)
                assert (got == expected and math.copysign(1, got) == math.copysign(1, expected)) or (
                    math.isnan(got) and math.isnan(expected) and (code >= 128) == (x < 0)
                ), (name, x, mode, overflow, word, r)


@pytest.mark.parametrize(
    ("x", "expected"), [(0.125, 0), (0.375, 0.5), (0.75, 0.5), (1.5, 2), (3, 2), (6, 8), (12, 8), (24, 16)]
)
def test_ties_in_e3m0_alternate_by_exponent(x: float, expected: float) -> None:
    assert rounded(x, "e3m0") == expected
    assert rounded(-x, "e3m0") == -expected


def test_ties() -> None:
    assert rounded(-5, "e2m1") == -4
    assert rounded(-5, "e2m1", "rna") == -6
    assert encode(0.0625, "e2m3") == 0
    assert encode(-0.0625, "e2m3") == 0x20
    assert rounded(0.0625, "e2m3", "rna") == 0.125
    assert rounded(0.75, "e2m1") == 1
    assert rounded(0.25, "e2m1") == 0
    assert rounded(np.nextafter(5.0, 9.0), "e2m1") == 6


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("e5m2", 61440.0, {"rne": INF, "rna": INF, "rtp": INF, "rtz": 57344.0, "rtn": 57344.0, "rto": 57344.0}),
        ("e5m2", -61440.0, {"rne": -INF, "rna": -INF, "rtp": -57344.0, "rtz": -57344.0, "rtn": -INF, "rto": -57344.0}),
        ("e4m3", 464.0, {"rne": 448.0, "rtz": 448.0, "rtn": 448.0, "rto": 448.0, "rna": NAN, "rtp": NAN}),
        ("e4m3", -464.0, {"rne": -448.0, "rtz": -448.0, "rtn": NAN, "rto": -448.0, "rna": NAN, "rtp": -448.0}),
    ],
)
def test_overflow_in_each_mode(name: str, x: float, expected: dict[str, float]) -> None:
    largest = math.copysign(TABLE[name][3], x)
    for mode, y in expected.items():
        code = encode(x, name, rounding=mode, overflow="ieee")
        assert value(code, name) == y or (math.isnan(y) and code == (0xFF if x < 0 else 0x7F))
        assert rounded(x, name, mode) == largest


def test_overflow_of_sr_and_to_odd() -> None:
    assert rounded(449, "e4m3", "rto") == 448
    # 447 lies between 416 (0x7D) and 448 (0x7E); rounding to odd gives the odd code.
    assert rounded(447, "e4m3", "rto") == 416
    # 464 is the midpoint of 448 and 480, so half of the random words make the number overflow.
    assert encode(464, "e4m3", rounding="sr", overflow="ieee", sr_bits=1, random_bits=0) == 0x7E
    assert encode(464, "e4m3", rounding="sr", overflow="ieee", sr_bits=1, random_bits=1) == 0x7F
    assert encode(464, "e4m3", rounding="sr", sr_bits=1, random_bits=1) == 0x7E
    assert encode(-61440, "e5m2", rounding="sr", overflow="ieee", sr_bits=1, random_bits=1) == 0xFC


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("mode", MODES)
def test_infinite_input(name: str, mode: str) -> None:
    largest, code = TABLE[name][3:5]
    assert encode(INF, name, rounding=mode, random_bits=0) == code
    assert value(encode(-INF, name, rounding=mode, random_bits=0), name) == -largest
    special = {"e4m3": (0x7F, 0xFF), "e5m2": (0x7C, 0xFC)}.get(name)
    for x, i in ((INF, 0), (-INF, 1)):
        got = encode(x, name, rounding=mode, overflow="ieee", scale=254, random_bits=0)
        assert got == (special[i] if special else encode(x, name))


@pytest.mark.parametrize("overflow", ["saturate", "ieee"])
def test_nan_input(overflow: str) -> None:
    for name in ELEMENTS:
        nan = 0x7F if name in ("e4m3", "e5m2") else None
        assert encode(NAN, name, overflow=overflow) == (nan or TABLE[name][4])
        negative = encode(math.copysign(NAN, -1.0), name, overflow=overflow)
        assert negative == (0xFF if nan else TABLE[name][4])


def test_zeros_keep_their_sign() -> None:
    for name in ELEMENTS:
        integer = name.startswith("int")
        for mode in ("rne", "rna", "rtz", "rtp"):
            for x in (-0.0, -1e-300):
                assert encode(x, name, rounding=mode) == (0 if integer else SIGN[name])
        assert encode(0.0, name, rounding="rtn") == encode(1e-300, name, rounding="rtn") == 0
        assert encode(1e-300, name, rounding="rtp") == encode(1e-300, name, rounding="rto") == 1
    assert decode(0x80, "e4m3", dtype="float32", scale=3) == 0x80000000


def test_most_negative_integer_is_never_produced() -> None:
    for mode in MODES:
        for x in (-1.9999, -2.0, -1e30, -INF):
            assert rounded(x, "int8", mode, random_bits=2**32 - 1) == -127 / 64
            assert encode(x, "int4", rounding=mode, overflow="ieee", random_bits=2**32 - 1) == 0x9
    assert rounded(-1.9999, "int8") == -1.984375
    assert encode(-0.25, "int4") == 0x0F


def test_stochastic_rounding_by_its_definition() -> None:
    # In e2m1, 2.25 lies at a quarter of the gap from 2 to 3. Of the four possible random words of 2
    # bits, only the largest makes 2.25 round up.
    assert [rounded(2.25, "e2m1", "sr", random_bits=r, sr_bits=2) for r in range(4)] == [2, 2, 2, 3]
    assert [rounded(-2.25, "e2m1", "sr", random_bits=r, sr_bits=2) for r in range(4)] == [-2, -2, -2, -3]
    # With one random bit, the fraction 1/4 is truncated to 0, so 2.25 never rounds up.
    assert [rounded(2.25, "e2m1", "sr", random_bits=r, sr_bits=1) for r in range(2)] == [2, 2]
    # The encoder uses only the low bits of the random word.
    assert rounded(2.25, "e2m1", "sr", random_bits=0xFFFFFFFC, sr_bits=2) == 2
    assert rounded(2.25, "e2m1", "sr", random_bits=0xFFFFFFFF, sr_bits=2) == 3
    # By default the encoder uses thirty random bits.
    just_up = Fraction(2) + Fraction(1, 2**30)
    assert rounded(just_up, "e2m1", "sr", random_bits=2**30 - 1) == 3
    assert rounded(just_up, "e2m1", "sr", random_bits=2**30 - 2) == 2
    assert rounded(Fraction(2) + Fraction(1, 2**31), "e2m1", "sr", random_bits=2**30 - 1) == 2


@pytest.mark.parametrize("name", ELEMENTS)
def test_stochastic_rounding_is_unbiased(name: str) -> None:
    """Check that the mean over all words is x truncated to r bits below the element's last bit."""
    m, emax, emin, *_ = TABLE[name]
    for exponent in {emin, max(emin, emax - 1)}:
        gap = Fraction(2) ** (exponent - m)
        for r in (1, 3, 5):
            for eighth in range(8):
                x = Fraction(2) ** exponent + gap * eighth / 8
                mean = sum(Fraction(rounded(x, name, "sr", random_bits=w, sr_bits=r)) for w in range(2**r)) / 2**r
                seen = Fraction(math.floor(Fraction(eighth, 8) * 2**r), 2**r)
                assert mean == Fraction(2) ** exponent + gap * seen


def test_scale_is_part_of_the_one_rounding() -> None:
    assert value(encode(3 * 2.0**-127, "e2m1", scale=0), "e2m1") == 3
    assert encode(5e-324, "e5m2", rounding="rtp", scale=254) == 1
    numpy_scale: Any = np.uint8(254)
    assert encode(2.0**127, "e4m3", scale=numpy_scale) == 0x38
    assert value(0x38, "e4m3", numpy_scale) == 2.0**127
    assert value(encode(1e308, "e4m3", scale=254), "e4m3") == 448
    # 5 + 2**-40 rounds to 6. After a rounding to float32 it would be the tie 5, which rounds to 4.
    assert rounded(5 + 2.0**-40, "e2m1") == 6
    assert [encode(x, "e4m3", scale=255, overflow="ieee") for x in (1.0, INF, NAN)] == [0, 0, 0]


def test_decode_rounds_the_product_once() -> None:
    assert decode(0x38, "e4m3", dtype="float32", scale=0) == 1 << 22  # 2**-127, which is subnormal in float32
    assert decode(0x38, "e4m3", dtype="float32", scale=254) == 254 << 23
    assert decode(0x40, "e4m3", dtype="float32", scale=254) == 0x7F800000
    assert decode(0xFE, "e4m3", dtype="bfloat16", scale=254) == 0xFF80
    assert value(0xFE, "e4m3", scale=254) == -448 * 2.0**127
    assert decode(1, "e5m2", dtype="float64", scale=0) == (1023 - 143) << 52
    # -7.5 times the smallest subnormal is a tie, which rounds to even.
    assert decode(0x3F, "e2m3", dtype="float16", scale=127 - 24) == 0x8008
    for name in ELEMENTS:
        for dtype, nan in CANONICAL_NAN.items():
            assert {decode(code, name, dtype=dtype, scale=255) for code in (0, 1, TABLE[name][4])} == {nan}

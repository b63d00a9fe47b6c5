"""The oracle against the page it implements: literal tables, every worked example, and other people's conversions.

Nothing here is computed from the descriptions in `mxnum.formats`; the tables are typed in.
"""

from __future__ import annotations

import ast
import bisect
import dataclasses
import functools
import inspect
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mxnum import formats, modes, reference
from mxnum.formats import ElementFormat, MXFormat
from mxnum.reference import Blocked, decode, dequantize, dot, encode, fake_quantize, quantize, shared_scale

INF, NAN = math.inf, math.nan
ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8", "e3m0", "int4")
MODES = ("rne", "rna", "rtz", "rtp", "rtn", "rto", "sr")
RULES = ("floor", "ceil", "even", "rceil", "half_up", "floor_plus_one")

# name: mantissa bits, emax, emin, max, its code, smallest normal and its code, smallest positive
TABLE: dict[str, tuple[int, int, int, float, int, float, int, float]] = {
    "e4m3": (3, 8, -6, 448.0, 0x7E, 2.0**-6, 0x08, 2.0**-9),
    "e5m2": (2, 15, -14, 57344.0, 0x7B, 2.0**-14, 0x04, 2.0**-16),
    "e3m2": (2, 4, -2, 28.0, 0x1F, 0.25, 0x04, 0.0625),
    "e2m3": (3, 2, 0, 7.5, 0x1F, 1.0, 0x08, 0.125),
    "e2m1": (1, 2, 0, 6.0, 0x07, 1.0, 0x02, 0.5),
    "int8": (6, 0, 0, 127 / 64, 0x7F, 1.0, 0x40, 2.0**-6),
    "e3m0": (0, 4, -2, 16.0, 0x07, 0.25, 0x01, 0.25),
    "int4": (2, 0, 0, 1.75, 0x07, 1.0, 0x04, 0.25),
}
SIGN = {"e4m3": 128, "e5m2": 128, "e3m2": 32, "e2m3": 32, "e2m1": 8, "int8": 128, "e3m0": 8, "int4": 8}
CANONICAL_NAN = {"float64": 0x7FF8000000000000, "float32": 0x7FC00000, "bfloat16": 0x7FC0, "float16": 0x7E00}
DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
ML_ELEMENTS: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


def f16(values: Any) -> Any:
    return np.array(values, np.float16)


def f32(values: Any) -> Any:
    return np.array(values, np.float32)


def u8(values: Any) -> Any:
    return np.array(values, np.uint8)


def vector(*values: float) -> Any:
    return f32(values)


def bits_of(array: Any) -> list[int]:
    array = np.asarray(array)
    return [int(v) for v in array.reshape(-1).view(f"uint{8 * array.dtype.itemsize}")]


def value(code: int, element: Any, scale: int = 127) -> float:
    return float(np.array([decode(code, element, scale=scale)], np.uint64).view(np.float64)[0])


def rounded(x: Any, element: Any, rounding: str = "rne", **options: Any) -> float:
    return value(encode(x, element, rounding=rounding, **options), element)


def random_floats(rng: np.random.Generator, n: int, low: float, high: float) -> list[float]:
    """Both signs, exponents spread evenly between two powers of two."""
    magnitude = np.exp2(rng.uniform(low, high, n))
    return [float(v) for v in magnitude * rng.choice([-1.0, 1.0], n)]


# Elements: what the codes mean ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ELEMENTS)
def test_table_of_elements(name: str) -> None:
    _, emax, emin, largest, largest_code, normal, normal_code, smallest = TABLE[name]
    assert value(largest_code, name) == largest
    assert value(normal_code, name) == normal == 2.0**emin
    assert 2.0**emax <= largest < 2.0 ** (emax + 1)
    assert value(1, name) == smallest
    assert bits_of(np.float64(0.0)) == [decode(0, name)]
    for x, code in ((largest, largest_code), (normal, normal_code), (smallest, 1)):
        for mode in MODES:
            assert encode(x, name, rounding=mode, random_bits=2**30 - 1) == code
    values = [value(code, name) for code in range(largest_code + 1)]
    assert values == sorted(set(values))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("e2m1", [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]),
        ("e3m0", [0, 0.25, 0.5, 1, 2, 4, 8, 16, -0.0, -0.25, -0.5, -1, -2, -4, -8, -16]),
        ("int4", [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, -2, -1.75, -1.5, -1.25, -1, -0.75, -0.5, -0.25]),
    ],
)
def test_full_tables(name: str, expected: list[float]) -> None:
    for dtype, numpy_type in DTYPES.items():
        assert [decode(code, name, dtype=dtype) for code in range(16)] == bits_of(np.array(expected, numpy_type))


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("e4m3", 0x38, 1.0),
        ("e4m3", 0x07, 7 * 2.0**-9),
        ("e4m3", 0xB9, -1.125),
        ("e4m3", 0xFE, -448.0),
        ("e5m2", 0x3C, 1.0),
        ("e5m2", 0x03, 3 * 2.0**-16),
        ("e5m2", 0xC1, -2.5),
        ("e5m2", 0x7C, INF),
        ("e5m2", 0xFC, -INF),
        ("e3m2", 0x0C, 1.0),
        ("e3m2", 0x03, 0.1875),
        ("e3m2", 0x3F, -28.0),
        ("e2m3", 0x07, 0.875),
        ("e2m3", 0x2F, -1.875),
        ("e2m3", 0x3F, -7.5),
        ("int8", 0x80, -2.0),
        ("int8", 0x81, -127 / 64),
        ("int8", 0xFF, -1 / 64),
        ("int8", 0x40, 1.0),
    ],
)
def test_spot_values(name: str, code: int, expected: float) -> None:
    assert value(code, name) == expected


def test_nan_codes() -> None:
    for name in ELEMENTS:
        nans = [code for code in range(2 * SIGN[name]) if math.isnan(value(code, name))]
        assert nans == {"e4m3": [0x7F, 0xFF], "e5m2": [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]}.get(name, [])
        for code in nans:
            assert [decode(code, name, dtype=dtype) for dtype in DTYPES] == list(CANONICAL_NAN.values())


def test_decode_exact() -> None:
    assert reference.decode_exact(0xB9, "e4m3").number == Fraction(-9, 8)
    assert reference.decode_exact(0x80, "e4m3") == reference.Exact("finite", True, Fraction(0))
    assert reference.decode_exact(0xFC, "e5m2") == reference.Exact("inf", True)
    assert reference.decode_exact(0xFF, "e4m3") == reference.Exact("nan", True)
    assert reference.decode_exact(0x80, "int8").number == -2
    assert reference.decode_exact(1, "float64").number == Fraction(1, 2**1074)
    with pytest.raises(ValueError, match="between 0 and 15"):
        reference.decode_exact(16, "int4")


@pytest.mark.parametrize("name", ML_ELEMENTS)
def test_decode_agrees_with_ml_dtypes(name: str) -> None:
    theirs = np.arange(2 * SIGN[name], dtype=np.uint8).view(ML_ELEMENTS[name])
    for dtype, numpy_type in DTYPES.items():
        for code, there in enumerate(theirs.astype(np.float32)):
            expected = CANONICAL_NAN[dtype] if math.isnan(there) else bits_of(numpy_type(there))[0]
            assert decode(code, name, dtype=dtype) == expected


@pytest.mark.parametrize("name", ML_ELEMENTS)
def test_encode_agrees_with_ml_dtypes(name: str) -> None:
    m, _, emin, largest, *_ = TABLE[name]
    rng = np.random.default_rng(1)
    x = np.array(random_floats(rng, 1500, emin - m - 3, math.log2(largest)), np.float32)
    steps = rng.integers(0, 2 ** (m + 3), 500) * 2.0 ** (emin - m - 1)  # exact values and ties
    x = np.concatenate([x, steps.astype(np.float32), f32([0.0, -0.0])])
    x = x[np.abs(x) <= largest]
    assert len(x) > 1500
    assert [encode(float(v), name) for v in x] == bits_of(x.astype(ML_ELEMENTS[name]))


def test_float_targets_agree_with_numpy() -> None:
    rng = np.random.default_rng(2)
    doubles = [float(v) for v in rng.integers(0, 2**64, 400, np.uint64).view(np.float64)]
    doubles += random_floats(rng, 600, -27, 17) + random_floats(rng, 600, -152, 129) + [0.0, -0.0, INF, -INF]
    doubles = [v for v in doubles if not math.isnan(v)]
    with np.errstate(over="ignore", under="ignore"):
        for name in ("float64", "float32", "float16"):
            expected = bits_of(np.array(doubles).astype(DTYPES[name]))
            assert [encode(v, name, overflow="ieee") for v in doubles] == expected
        singles = np.array(doubles).astype(np.float32)
        expected = bits_of(singles.astype(ml_dtypes.bfloat16))
        assert [encode(float(v), "bfloat16", overflow="ieee") for v in singles] == expected
    for name, bits in CANONICAL_NAN.items():
        assert encode(NAN, name) == encode(-NAN, name) == bits
        assert (
            encode(1e999, name, overflow="ieee")
            == bits - {52: 2**51, 23: 2**22, 7: 2**6, 10: 2**9}[formats.element(name).mantissa_bits]
        )


@pytest.mark.parametrize("name", ELEMENTS)
def test_decode_then_encode_is_the_identity(name: str) -> None:
    for code in range(2 * SIGN[name]):
        x = value(code, name)
        if math.isnan(x) or (x == -2 and name.startswith("int")):
            continue
        for mode in MODES:
            for scale in (0, 120, 254):
                y = Fraction(x) * Fraction(2) ** (scale - 127) if math.isfinite(x) and x else x
                assert encode(y, name, rounding=mode, overflow="ieee", scale=scale, random_bits=2**32 - 1) == code


# Elements: rounding --------------------------------------------------------------------------------------------------


@functools.cache
def unbounded_magnitudes(name: str) -> list[Fraction]:
    m, emax, emin, *_ = TABLE[name]
    grid = [Fraction(q, 2**m) * Fraction(2) ** emin for q in range(2**m)]
    for exponent in range(emin, emax + 5):
        grid += [(1 + Fraction(q, 2**m)) * Fraction(2) ** exponent for q in range(2**m)]
    return grid


def by_table(x: Fraction, name: str, mode: str, overflow: str, random: int, r: int) -> float:
    """The definition over again, from a list of magnitudes continued four binades past the largest: find the two
    neighbours by search, choose, and only then look at the largest."""
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
    xs += [int(q) * unit / 8 for q in rng.integers(-(2**6), 2**6, 40)]  # among the subnormals
    top = Fraction(2) ** (emax - m)
    xs += [int(q) * top / 4 for q in rng.integers(-(2 ** (m + 5)), 2 ** (m + 5), 60)]  # about the largest
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
    assert rounded(447, "e4m3", "rto") == 416  # the odd code below, where nothing overflows: 416 is 0x7D
    # 464 lies half way between 448 and 480: half of the words take it beyond.
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
    # e2m1: 2.25 lies a quarter of the way from 2 to 3. With 2 bits one of four words goes up, the largest.
    assert [rounded(2.25, "e2m1", "sr", random_bits=r, sr_bits=2) for r in range(4)] == [2, 2, 2, 3]
    assert [rounded(-2.25, "e2m1", "sr", random_bits=r, sr_bits=2) for r in range(4)] == [-2, -2, -2, -3]
    # One bit cannot see a quarter: floor(1/4 * 2) + 1 < 2.
    assert [rounded(2.25, "e2m1", "sr", random_bits=r, sr_bits=1) for r in range(2)] == [2, 2]
    # Only the low bits of the word count.
    assert rounded(2.25, "e2m1", "sr", random_bits=0xFFFFFFFC, sr_bits=2) == 2
    assert rounded(2.25, "e2m1", "sr", random_bits=0xFFFFFFFF, sr_bits=2) == 3
    # Thirty bits by default.
    just_up = Fraction(2) + Fraction(1, 2**30)
    assert rounded(just_up, "e2m1", "sr", random_bits=2**30 - 1) == 3
    assert rounded(just_up, "e2m1", "sr", random_bits=2**30 - 2) == 2
    assert rounded(Fraction(2) + Fraction(1, 2**31), "e2m1", "sr", random_bits=2**30 - 1) == 2


@pytest.mark.parametrize("name", ELEMENTS)
def test_stochastic_rounding_is_unbiased(name: str) -> None:
    """Over all words the mean is exactly x, for x on the grid the bits can see."""
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
    # Rounding first to float32 and then to the element would make this a tie: 4 instead of 6.
    assert rounded(5 + 2.0**-40, "e2m1") == 6
    assert [encode(x, "e4m3", scale=255, overflow="ieee") for x in (1.0, INF, NAN)] == [0, 0, 0]


def test_decode_rounds_the_product_once() -> None:
    assert decode(0x38, "e4m3", dtype="float32", scale=0) == 1 << 22  # 2**-127, a float32 subnormal
    assert decode(0x38, "e4m3", dtype="float32", scale=254) == 254 << 23
    assert decode(0x40, "e4m3", dtype="float32", scale=254) == 0x7F800000
    assert decode(0xFE, "e4m3", dtype="bfloat16", scale=254) == 0xFF80
    assert value(0xFE, "e4m3", scale=254) == -448 * 2.0**127
    assert decode(1, "e5m2", dtype="float64", scale=0) == (1023 - 143) << 52
    assert decode(0x3F, "e2m3", dtype="float16", scale=127 - 24) == 0x8008  # -7.5 subnormal units: tie to even
    for name in ELEMENTS:
        for dtype, nan in CANONICAL_NAN.items():
            assert {decode(code, name, dtype=dtype, scale=255) for code in (0, 1, TABLE[name][4])} == {nan}


# The shared scale ----------------------------------------------------------------------------------------------------


def clamp(s: int) -> int:
    return 127 + max(-127, min(127, s))


@pytest.mark.parametrize("name", ELEMENTS)
def test_scale_just_below_powers_of_two(name: str) -> None:
    emax = TABLE[name][1]
    for numpy_type, exponents in ((np.float32, range(-148, 129)), (np.float64, range(-160, 150, 3))):
        for k in exponents:
            below = float(np.nextafter(numpy_type(2.0**k) if k < 128 else numpy_type(INF), numpy_type(0)))
            if numpy_type is np.float64:
                below = math.nextafter(2.0**k, 0.0)
            if math.frexp(below)[0] < 1 - 2.0**-12:  # a float32 subnormal with few bits
                continue
            codes = [shared_scale([below], name, scale_rule=rule) for rule in RULES]
            assert codes == [clamp(k - 1 - emax)] + 5 * [clamp(k - emax)]
            assert shared_scale([below, -(2.0**k)], name) == clamp(k - emax)


@pytest.mark.parametrize("name", ELEMENTS)
def test_scale_rules_by_search(name: str) -> None:
    m, emax, _, largest, *_ = TABLE[name]
    rng = np.random.default_rng(4)
    edges = [largest, 1.0, 2 - 2.0 ** -(m + 1), 2 - 2.0 ** -(m + 2), 1.5, 1.75]
    edges += [math.nextafter(v, d) for v in edges for d in (0.0, 9e9)]
    for a in edges + [abs(v) for v in random_floats(rng, 60, -100, 100)]:
        exact = Fraction(a)
        exponent = next(k for k in range(-200, 200) if exact < Fraction(2) ** (k + 1))
        f = exact / Fraction(2) ** exponent
        carries = round(f * 2**m) == 2 ** (m + 1)  # Python rounds a Fraction to nearest, ties to even
        least = next(s for s in range(-300, 300) if exact <= Fraction(largest) * Fraction(2) ** s)
        floor = exponent - emax
        expected = [floor, floor + (f > 1), floor + carries, least, floor + (f >= 1.75), floor + 1]
        codes = [shared_scale([0.0, -a, a / 2], name, scale_rule=rule) for rule in RULES]
        assert codes == [clamp(s) for s in expected]


def test_scale_of_known_traps() -> None:
    assert fake_quantize(f32([7.9999995]), "mxfp8_e4m3").tolist() == [7.0]
    # int8 has emax 0.
    assert shared_scale([1.0], "int8") == 127
    assert fake_quantize(f32([-1.9999]), "mxint8").tolist() == [-1.984375]
    # The largest that still fits, and one float32 more.
    assert shared_scale([float.fromhex("0x1.cp-119")], "e4m3", scale_rule="rceil") == 0
    assert shared_scale([float.fromhex("0x1.c00002p-119")], "e4m3", scale_rule="rceil") == 1
    # The scale is clamped below, and the elements take up the rest exactly.
    q = quantize(f32([2.0**-120]), "mxfp8_e4m3")
    assert q.scales.tolist() == [0]
    assert value(int(q.codes[0]), "e4m3") == 128
    assert fake_quantize(f32([2.0**-120, -(2.0**-136), 2.0**-149]), "mxfp8_e4m3").tolist() == [
        2.0**-120,
        -(2.0**-136),
        0.0,
    ]


def test_scale_clamped_above_saturates_and_never_turns_nan() -> None:
    assert shared_scale([1e308], "int8") == 254
    assert [shared_scale([2.0**128], "int8", scale_rule=rule) for rule in RULES] == [254] * 6
    assert fake_quantize(np.array([2.0**128, 1e308]), "mxint8").tolist() == [127 / 64 * 2.0**127] * 2
    float_max = f32([np.finfo(np.float32).max])
    for rule in ("even", "ceil", "rceil"):
        q = quantize(float_max, "mxfp8_e4m3", scale_rule=rule)
        assert q.scales.tolist() == [247]
        assert dequantize(q.codes, q.scales, "mxfp8_e4m3", dtype="float64").tolist() == [2.0**128]
        assert dequantize(q.codes, q.scales, "mxfp8_e4m3").tolist() == [INF]
    assert fake_quantize(float_max, "mxfp8_e4m3").tolist() == [448 * 2.0**119]


def test_scale_of_nothing() -> None:
    for values in ([], [0.0, -0.0], [NAN], [INF, -INF, NAN]):
        for rule in RULES:
            assert shared_scale(values, "e4m3", scale_rule=rule) == 0
    assert shared_scale([NAN, 1.0, INF], "e4m3") == 119


# Arrays --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "blocks", "counts"),
    [
        ((), (), ()),
        ((0,), (4,), (0,)),
        ((3, 0), (2, 32), (2, 0)),
        ((5,), (4,), (2,)),
        ((5,), (9,), (1,)),
        ((3, 7), (2, 3), (2, 3)),
        ((2, 3, 4), (1, 3, 1), (2, 1, 4)),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_element_has_the_scale_of_its_block(
    shape: tuple[int, ...], blocks: tuple[int, ...], counts: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(DTYPES[dtype])
    words = rng.integers(0, 2**32, shape, np.uint32)
    options: dict[str, Any] = {"rounding": "sr", "overflow": "ieee", "sr_bits": 7}
    q = quantize(x, "mxfp8_e5m2", blocks=blocks, random_bits=words, scale_rule="even", **options)
    assert q.codes.dtype == q.scales.dtype == np.uint8
    assert q.offsets is None
    assert q.codes.shape == shape
    assert q.scales.shape == counts
    blocks_of: dict[tuple[int, ...], list[float]] = {place: [] for place in np.ndindex(*counts)}
    for i in np.ndindex(*shape):
        blocks_of[tuple(n // b for n, b in zip(i, blocks, strict=True))].append(float(x[i]))
    for place, members in blocks_of.items():
        assert q.scales[place] == shared_scale(members, "e5m2", scale_rule="even")
    back = dequantize(q.codes, q.scales, "mxfp8_e5m2", blocks=blocks, dtype=dtype)
    assert back.dtype == x.dtype
    assert back.shape == shape
    for i in np.ndindex(*shape):
        scale = int(q.scales[tuple(n // b for n, b in zip(i, blocks, strict=True))])
        assert q.codes[i] == encode(float(x[i]), "e5m2", scale=scale, random_bits=int(words[i]), **options)
        assert bits_of(back[i]) == [decode(int(q.codes[i]), "e5m2", dtype=dtype, scale=scale)]
    fake = fake_quantize(x, "mxfp8_e5m2", blocks=blocks, random_bits=words, scale_rule="even", **options)
    assert bits_of(fake) == bits_of(back)
    assert fake.dtype == x.dtype


def test_default_blocks_lie_along_the_last_axis() -> None:
    q = quantize(np.ones((2, 3, 65)), "mxint4")
    assert q.scales.shape == (2, 3, 3)
    assert quantize(np.float64(1.0), "mxint4").scales.shape == ()
    assert quantize(np.ones((2, 3)), MXFormat("e2m1", block=2)).scales.shape == (2, 2)


def test_short_block_is_as_if_padded_with_zeros() -> None:
    x = np.random.default_rng(6).standard_normal((5, 37)) * np.exp2(np.arange(37) - 18)
    padded = np.zeros((5, 64))
    padded[:, :37] = x
    short, full = quantize(x, "mxfp6_e3m2"), quantize(padded, "mxfp6_e3m2")
    assert (short.scales == full.scales).all()
    assert (short.codes == full.codes[:, :37]).all()


@pytest.mark.parametrize("name", formats.names("e8m0"))
@pytest.mark.parametrize("rule", RULES[:4])
def test_quantization_is_idempotent_in_values(name: str, rule: str) -> None:
    x = np.random.default_rng(7).standard_normal((2, 32)) * np.exp2(np.arange(32) / 4)
    once = fake_quantize(x, name, scale_rule=rule)
    assert (once != x).any()
    assert bits_of(fake_quantize(once, name, scale_rule=rule)) == bits_of(once)


def test_zero_block() -> None:
    q = quantize(f32([0.0, -0.0]), "mxfp4_e2m1")
    assert q.scales.tolist() == [0]
    assert q.codes.tolist() == [0, 8]
    assert bits_of(fake_quantize(f32([0.0, -0.0]), "mxfp4_e2m1")) == [0, 0x80000000]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("name", formats.names("e8m0"))
def test_policy_block(bad: float, name: str) -> None:
    x = f32([[1.0, bad, 2.0, 3.0], [1.0, 2.0, 4.0, -8.0]])
    for scales in (None, u8([[120, 127], [127, 127]])):
        q = quantize(x, name, blocks=(1, 2), scales=scales, overflow="ieee")
        assert q.scales[0, 0] == 255
        assert q.codes[0, :2].tolist() == [0, 0]
        assert q.scales[0, 1] != 255
        assert q.codes[0, 2:].all()
        assert q.codes[1].all()
        back = dequantize(q.codes, q.scales, name, blocks=(1, 2))
        assert bits_of(back[0, :2].copy()) == [0x7FC00000] * 2
        assert np.isfinite(back[1]).all()


def test_policy_element() -> None:
    minus_nan = math.copysign(NAN, -1.0)
    x = np.array([INF, -INF, NAN, minus_nan, 448.0, 0.5])
    q = quantize(x, "mxfp8_e4m3", nonfinite="element")
    assert q.scales.tolist() == [127]
    assert q.codes.tolist() == [0x7E, 0xFE, 0x7F, 0xFF, 0x7E, 0x30]
    q = quantize(x, "mxfp8_e4m3", nonfinite="element", overflow="ieee")
    assert q.codes.tolist() == [0x7F, 0xFF, 0x7F, 0xFF, 0x7E, 0x30]
    for dtype in DTYPES.values():
        q = quantize(x.astype(dtype), "mxfp8_e5m2", nonfinite="element", overflow="ieee")
        assert q.scales.tolist() == [127 + 8 - 15]
        assert q.codes[:4].tolist() == [0x7C, 0xFC, 0x7F, 0xFF]
    q = quantize(f32([INF, -INF]), "mxfp4_e2m1", nonfinite="element", overflow="ieee")
    assert q.scales.tolist() == [0]
    assert q.codes.tolist() == [7, 15]
    with pytest.raises(ValueError, match=r"'x'.*index 2"):
        quantize(x, "mxfp4_e2m1", nonfinite="element")
    with pytest.raises(ValueError, match=r"index \(1, 0\)"):
        quantize(x.reshape(3, 2), "mxint8", nonfinite="element")


def test_policy_raise() -> None:
    x = f32([[1, 2, 3], [4, -INF, NAN]])
    with pytest.raises(ValueError, match=r"'x'.*index \(1, 1\)"):
        quantize(x, "mxfp8_e5m2", nonfinite="raise", overflow="ieee")
    finite = quantize(x[:1], "mxfp8_e5m2", nonfinite="raise")
    assert (finite.codes == quantize(x[:1], "mxfp8_e5m2").codes).all()


def test_given_scales() -> None:
    x = f32([1.0, 2.0, 3.0, 4.0, 5.0])
    q = quantize(x, "mxfp4_e2m1", blocks=(2,), scales=np.array([128, 255, 126]), scale_rule="rceil")
    assert q.scales.tolist() == [128, 255, 126]
    assert q.scales.dtype == np.uint8
    assert q.codes.tolist() == [1, 2, 0, 0, 7]  # 0.5, 1, NaN block, 10 saturates to 6
    back = dequantize(q.codes, q.scales, "mxfp4_e2m1", blocks=(2,))
    assert bits_of(back[2:4].copy()) == [0x7FC00000] * 2
    assert back[[0, 1, 4]].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="'scales'"):
        quantize(x, "mxfp4_e2m1", blocks=(2,), scales=np.array([128, 128]))
    with pytest.raises(ValueError, match="'scales'"):
        quantize(x, "mxfp4_e2m1", scales=np.array([256]))


def test_fake_quantize_narrows_to_the_input_dtype() -> None:
    with np.errstate(over="raise"):
        assert fake_quantize(f16([65504]), "mxfp8_e4m3", scale_rule="even").tolist() == [INF]
    assert fake_quantize(f32([65504]), "mxfp8_e4m3", scale_rule="even").tolist() == [65536]
    result = fake_quantize(np.array([[1.03, -2.0]], ml_dtypes.bfloat16), "mxfp8_e4m3")
    assert result.dtype == ml_dtypes.bfloat16
    assert result.astype(float).tolist() == [[1.0, -2.0]]
    assert bits_of(fake_quantize(f16([-NAN, 1]), "mxfp8_e4m3")) == [0x7E00, 0x7E00]
    for bad in (np.arange(3), np.ones(2, complex), np.ones(2, bool)):
        with pytest.raises(TypeError, match="'x'"):
            fake_quantize(bad, "mxfp8_e4m3")


# Asymmetric blocks ---------------------------------------------------------------------------------------------------


def test_offset_by_hand() -> None:
    q = quantize(f32([1, 3, 2.25]), "mxfp4_e2m1", offset="float16")
    assert q.offsets is not None
    assert q.offsets.dtype == np.float16
    assert q.offsets.tolist() == [2.0]
    assert q.scales.tolist() == [125]  # A = 1, 2**(0 - 2)
    assert q.codes.tolist() == [0xE, 0x6, 0x2]  # -4, 4, 1 quarters
    assert dequantize(q.codes, q.scales, "mxfp4_e2m1", offsets=q.offsets).tolist() == [1, 3, 2.25]
    assert fake_quantize(f32([1, 3, 2.25]), "mxfp4_e2m1", offset="float16").tolist() == [1, 3, 2.25]


def test_offset_is_rounded_and_its_error_held_by_the_exact_range() -> None:
    x = f32([4097, 4099])  # the middle, 4098, is a tie of float16: 4096 is even
    exact = quantize(x, "mxfp4_e2m1", offset="float16")
    half = quantize(x, "mxfp4_e2m1", offset="float16", offset_range="half")
    assert exact.offsets is not None
    assert exact.offsets.tolist() == [4096.0]
    assert (exact.scales.tolist(), exact.codes.tolist()) == ([126], [4, 7])  # A = 3: 2 and 6 halves
    assert (half.scales.tolist(), half.codes.tolist()) == ([125], [6, 7])  # A = 1: 4 quarters, and 12 saturates
    wide = quantize(f32([1e6, 1e6]), "mxfp8_e4m3", offset="float16")
    assert wide.offsets is not None
    assert wide.offsets.tolist() == [65504.0]
    assert wide.scales.tolist() == [shared_scale([1e6 - 65504], "e4m3")]
    low = quantize(f32([-3e38]), "mxfp8_e4m3", offset="float16")
    assert low.offsets is not None
    assert low.offsets.tolist() == [-65504.0]


def test_offset_difference_is_rounded_to_float32_unless_the_input_is_float64() -> None:
    x = np.array([2.0**-30, 2.0])
    scales = np.array([127])
    codes = {
        dtype: quantize(
            x.astype(DTYPES[dtype]), "mxint8", offset="float16", scales=scales, rounding="rtz"
        ).codes.tolist()
        for dtype in ("float64", "float32", "bfloat16")
    }
    assert codes == {"float64": [256 - 63, 64], "float32": [256 - 64, 64], "bfloat16": [256 - 64, 64]}


def test_offset_of_short_blocks_and_axes() -> None:
    x = f32([[1, 2], [3, 4], [10, 30]])
    q = quantize(x, "mxint8", blocks=(2, 1), offset="float16")
    assert q.offsets is not None
    assert q.offsets.tolist() == [[2, 3], [10, 30]]
    assert q.scales.tolist() == [[127, 127], [0, 0]]
    assert q.codes[2].tolist() == [0, 0]
    back = dequantize(q.codes, q.scales, "mxint8", blocks=(2, 1), offsets=q.offsets)
    assert back.tolist() == x.tolist()


def test_offset_with_nonfinite_elements() -> None:
    minus_nan = math.copysign(NAN, -1.0)
    x = np.array([1.0, 3.0, INF, -INF, NAN, minus_nan], np.float32)
    q = quantize(x, "mxfp8_e5m2", offset="float16")
    assert q.offsets is not None
    assert bits_of(q.offsets) == [0]
    assert q.scales.tolist() == [255]
    assert not q.codes.any()
    q = quantize(x, "mxfp8_e5m2", offset="float16", nonfinite="element", overflow="ieee")
    assert q.offsets is not None
    assert q.offsets.tolist() == [2.0]
    assert q.codes[2:].tolist() == [0x7C, 0xFC, 0x7F, 0xFF]
    assert q.codes[:2].tolist() == [0xF8, 0x78]
    back = dequantize(q.codes, q.scales, "mxfp8_e5m2", offsets=q.offsets)
    assert back[:4].tolist() == [1, 3, INF, -INF]
    assert bits_of(back[4:].copy()) == [0x7FC00000] * 2
    for offset_range in ("exact", "half"):
        q = quantize(
            x[2:4], "mxfp8_e5m2", offset="float16", nonfinite="element", overflow="ieee", offset_range=offset_range
        )
        assert q.offsets is not None
        assert bits_of(q.offsets) == [0]
        assert q.scales.tolist() == [0]
        assert q.codes.tolist() == [0x7C, 0xFC]
    given = quantize(f32([8.0]), "mxfp8_e5m2", offset="float16", scales=np.array([255]))
    assert given.offsets is not None
    assert given.offsets.tolist() == [0.0]
    assert given.codes.tolist() == [0]


def test_offset_zeros() -> None:
    # x - x = +0 whichever the sign, and -0 - +0 = -0.
    q = quantize(f32([5.0, 5.0]), "mxfp8_e4m3", offset="float16")
    assert q.codes.tolist() == [0, 0]
    assert q.scales.tolist() == [0]
    q = quantize(f32([-5.0]), "mxfp8_e4m3", offset="float16")
    assert q.codes.tolist() == [0]
    q = quantize(f32([-1.0, 1.0, -0.0, 0.0]), "mxfp8_e4m3", offset="float16")
    assert q.offsets is not None
    assert bits_of(q.offsets) == [0]
    assert q.codes.tolist() == [0xF8, 0x78, 0x80, 0]
    # A tiny negative middle rounds to the float16 -0, and then -0 - -0 = +0.
    q = quantize(f32([-(2.0**-40), -0.0]), "mxfp8_e4m3", offset="float16")
    assert q.offsets is not None
    assert bits_of(q.offsets) == [0x8000]
    assert q.codes.tolist() == [0xF8, 0]


def test_dequantized_sums() -> None:
    codes, scales = u8([[0xC], [0x8], [0x0], [0x8]]), np.full((4, 1), 127, np.uint8)
    offsets = f16([[2.0], [-0.0], [-0.0], [0.0]])
    back = dequantize(codes, scales, "mxfp4_e2m1", offsets=offsets)
    assert bits_of(back) == [0, 0x80000000, 0, 0]
    # One rounding: 2**-24 + 1 + ... would lose the sticky bit if the product were rounded to bfloat16 first.
    one = dequantize(u8([0x79]), u8([127 - 16]), "mxfp8_e4m3", dtype="bfloat16", offsets=f16([1.0]))
    assert one.astype(float).tolist() == [1 + 2.0**-7]  # 1 + 288 * 2**-16: just above the tie
    special = dequantize(
        u8([[0x7C], [0x7C], [0x3C]]), np.full((3, 1), 127), "mxfp8_e5m2", offsets=f16([[-INF], [1], [NAN]])
    )
    assert bits_of(special) == [0x7FC00000, 0x7F800000, 0x7FC00000]


# Products ------------------------------------------------------------------------------------------------------------


def test_exact_dot_rounds_once() -> None:
    a, b = vector(1e30, 1, -1e30), vector(1, 1, 1)
    assert dot(a, b) == 1
    assert dot(a, b, accumulate="sequential") == 0
    assert dot(vector(2**24, 1, 1), b) == 2**24 + 2
    assert dot(vector(2**24, 1, 1), b, accumulate="sequential") == 2**24
    assert dot(vector(3e38, -3e38), vector(10, 10)) == 0
    assert dot(vector(3e38, -3e38), vector(10, 10), accumulate="sequential") == INF
    assert dot(np.array([1 + 2.0**-40]), np.array([2.0**40])) == np.float32(2.0**40)
    assert dot(np.array([1 + 2.0**-40, -1.0]), np.ones(2)) == 2.0**-40  # float64 operands are not narrowed
    assert dot(np.array([1 + 2.0**-40, -1.0]), np.ones(2), accumulate="sequential") == 0
    assert dot(vector(1e-45), vector(0.75)) == np.float32(1e-45)  # subnormals are kept


def test_sequential_is_a_fused_multiply_add() -> None:
    u = 1 + 2.0**-12
    assert dot(vector(-(1 + 2.0**-11), u), vector(1, u), accumulate="sequential") == 2.0**-24
    # The exact zero of fma follows IEEE, starting from +0; an underflow keeps its sign.
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
    element = formats.get(name).element
    codes = np.array([encode(v, element, overflow="ieee") for v in values], np.uint8)
    assert all(value(int(c), element) == v or math.isnan(v) for c, v in zip(codes, values, strict=True))
    return Blocked(codes, np.array(scales, np.uint8), name, block, **options)


def test_dot_of_blocked_operands() -> None:
    a = blocked("mxfp8_e5m2", [4096, 1, 1], [127], 3)
    results = {how: float(dot(a, a, accumulate=how)) for how in ("exact", "block", "sequential")}
    assert results == {"exact": 2**24 + 2, "block": 2**24 + 2, "sequential": 2**24}
    # One element a block: each term is rounded, then added in float32, in order.
    a = blocked("mxfp4_e2m1", [1, 1, 1], [151, 127, 127], 1)
    b = blocked("mxint8", [1, 1, 1], [127] * 3, 1)
    results = {how: float(dot(a, b, accumulate=how)) for how in ("exact", "block", "sequential")}
    assert results == {"exact": 2**24 + 2, "block": 2**24, "sequential": 2**24}
    # A term is rounded before it is added: 2**24 + 1 ties to 2**24, and so 2**24 - 2**24 leaves 0, not 1.
    a = blocked("mxfp8_e5m2", [-4096, 0, 4096, 1], [127, 127], 2)
    b = blocked("mxfp8_e5m2", [4096, 0, 4096, 1], [127, 127], 2)
    assert dot(a, b, accumulate="block") == 0
    assert dot(a, b) == 1
    # Short last block, mixed operands, and decoding to float32 for `sequential`.
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
    # Terms overflow and underflow one by one.
    huge = blocked("mxfp8_e5m2", [1, 1], [254, 254], 1)
    assert run(huge, blocked("mxfp8_e5m2", [1, -1], [254, 254], 1)) == 0x7FC00000
    assert bits_of(dot(huge, blocked("mxfp8_e5m2", [1, -1], [254, 254], 1))) == [0]
    tiny = blocked("mxfp8_e5m2", [1, 1], [0, 0], 1)
    assert run(tiny, blocked("mxfp8_e5m2", [1, 1], [127 - 23, 127 - 23], 1)) == 0  # twice 2**-150, a tie to zero
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


# Random bits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(counter: str, key: str, expected: str) -> None:
    def words(text: str) -> Any:
        return tuple(int(word, 16) for word in text.split())

    assert reference.philox4x32(words(counter), words(key)) == words(expected)


def test_random_words() -> None:
    seed, stream = 0xA409382200000007, 0x0000000500000009
    words = reference.random_words((3, 7), seed=seed, stream=stream)
    assert words.dtype == np.uint32
    assert words.shape == (3, 7)
    for i in range(21):
        group = reference.philox4x32((i // 4, 0, 9, 5), (7, 0xA4093822))
        assert words[i // 7, i % 7] == group[i % 4]
    assert reference.random_words(2, seed=0).tolist() == [0x6627E8D5, 0xE169C58D]
    assert reference.random_words((), seed=0) == 0x6627E8D5
    assert reference.random_words((0, 3), seed=0).shape == (0, 3)
    with pytest.raises(ValueError, match="'seed'"):
        reference.random_words(1, seed=2**64)


# Arguments and independence ------------------------------------------------------------------------------------------


def test_modes_may_be_members() -> None:
    assert encode(3, "e3m0", rounding=modes.Rounding.RNA, overflow=modes.Overflow.IEEE) == 5
    assert encode(3, formats.ELEMENTS["e3m0"], rounding=modes.Rounding.RNE) == 4
    assert shared_scale([3.0], "e2m1", scale_rule=modes.ScaleRule.CEIL) == 127
    q = quantize(vector(NAN), formats.get("mxfp8_e4m3"), nonfinite=modes.Nonfinite.ELEMENT)
    assert q.codes.tolist() == [0x7F]


def test_user_made_elements() -> None:
    int6 = ElementFormat.two_complement("int6", 6)
    assert [value(c, int6) for c in (1, 31, 32, 63)] == [1 / 16, 31 / 16, -2, -1 / 16]
    e4m0 = ElementFormat("e4m0", 4, 0, 7, specials="nan")
    assert [value(c, e4m0) for c in (0, 1, 14)] == [0, 2.0**-6, 2.0**7]
    assert math.isnan(value(15, e4m0))
    assert encode(300, e4m0, overflow="ieee") == 15
    assert encode(300, e4m0) == 14
    q = quantize(np.array([3.0, -1.5]), MXFormat(int6, block=2))
    assert q.scales.tolist() == [128]
    assert q.codes.tolist() == [24, 64 - 12]


def test_errors() -> None:
    x = np.ones((2, 2))
    calls: list[tuple[str, Any]] = [
        ("rounding", lambda: encode(1, "e4m3", rounding="up")),
        ("overflow", lambda: quantize(x, "mxint8", overflow="wrap")),
        ("scale_rule", lambda: shared_scale([1], "e4m3", scale_rule="max")),
        ("element", lambda: encode(1, "e9m9")),
        ("format", lambda: quantize(x, "mxfp9")),
        ("random_bits", lambda: encode(1, "e4m3", rounding="sr")),
        ("random_bits", lambda: quantize(x, "mxint8", rounding="sr")),
        ("random_bits", lambda: quantize(x[:0], "mxint8", rounding="sr")),
        ("random_bits", lambda: quantize(x, "mxint8", rounding="sr", random_bits=np.zeros(4, np.uint32))),
        ("random_bits", lambda: encode(1, "e4m3", rounding="sr", random_bits=2**32)),
        ("sr_bits", lambda: encode(1, "e4m3", rounding="sr", random_bits=0, sr_bits=31)),
        ("blocks", lambda: quantize(x, "mxint8", blocks=(32,))),
        ("blocks", lambda: quantize(x, "mxint8", blocks=(1, 0))),
        ("offset", lambda: quantize(x, "mxint8", offset="float32")),
        ("scale", lambda: encode(1, "e4m3", scale=256)),
        ("code", lambda: dequantize([[0x10]], [[127]], "mxint4")),
        ("scales", lambda: dequantize([[1]], [127], "mxint4")),
        ("dtype", lambda: dequantize([[1]], [[127]], "mxint4", dtype="int32")),
    ]
    for argument, call in calls:
        with pytest.raises(ValueError, match=f"'{argument}'"):
            call()


def test_a_tensor_scale_that_is_nan() -> None:
    # It raised for more than one element: no two NaN of a set are equal.
    parts = np.array([[1, 2, 3]]), np.array([[0x38]], np.uint8)
    for tensor_scale in (NAN, [[-NAN]]):
        values = dequantize(*parts, "nvfp4", tensor_scale=tensor_scale)
        assert bits_of(values[0]) == [0x7FC00000] * 3


def test_nothing_is_shared_with_the_fast_code() -> None:
    tree = ast.parse("\n".join(path.read_text() for path in sorted(Path(reference.__file__).parent.glob("*.py"))))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            names = [f"mxnum.{alias.name}" for alias in node.names] if node.module == "mxnum" else [node.module]
            imported.update(names)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
    seen = {name for name in imported if name.startswith("mxnum") and not name.startswith("mxnum.reference")}
    assert seen == {"mxnum.errors", "mxnum.formats", "mxnum.modes"}
    derived = {"max_code", "infinity_code", "nan_code", "emax", "min_normal", "min_subnormal", "value", "values", "max"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & derived
    public = [f for name, f in vars(reference).items() if inspect.isfunction(f) and not name.startswith("_")]
    assert all(f.__doc__ for f in public if f.__module__ == reference.__name__)

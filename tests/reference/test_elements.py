"""Tests of the values of element codes: literal tables and other libraries' conversions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mxnum import formats, reference
from mxnum.reference import decode, encode
from tests.reference.tables import (
    CANONICAL_NAN,
    DTYPES,
    ELEMENTS,
    INF,
    MODES,
    NAN,
    SIGN,
    TABLE,
    bits_of,
    f32,
    random_floats,
    value,
)

ML_ELEMENTS: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


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
    # Multiples of half the smallest step include values of the element and ties between values.
    steps = rng.integers(0, 2 ** (m + 3), 500) * 2.0 ** (emin - m - 1)
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

"""Tests of the reference's shared scales: comparisons with a search, and known hard cases."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mxnum.reference import dequantize, fake_quantize, quantize, shared_scale
from tests.reference.tables import ELEMENTS, INF, NAN, RULES, TABLE, f32, random_floats, value


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
            if math.frexp(below)[0] < 1 - 2.0**-12:  # subnormal: not close enough to 2**k
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
        # Python's `round` of a Fraction rounds to nearest, ties to even.
        carries = round(f * 2**m) == 2 ** (m + 1)
        least = next(s for s in range(-300, 300) if exact <= Fraction(largest) * Fraction(2) ** s)
        floor = exponent - emax
        expected = [floor, floor + (f > 1), floor + carries, least, floor + (f >= 1.75), floor + 1]
        codes = [shared_scale([0.0, -a, a / 2], name, scale_rule=rule) for rule in RULES]
        assert codes == [clamp(s) for s in expected]


def test_scale_of_known_traps() -> None:
    assert fake_quantize(f32([7.9999995]), "mxfp8_e4m3").tolist() == [7.0]
    # The element int8 has emax 0, so a maximum of 1 has the scale 1, code 127.
    assert shared_scale([1.0], "int8") == 127
    assert fake_quantize(f32([-1.9999]), "mxint8").tolist() == [-1.984375]
    # 448 * 2**-127 is the largest number with scale code 0. The next float32 number has code 1.
    assert shared_scale([float.fromhex("0x1.cp-119")], "e4m3", scale_rule="rceil") == 0
    assert shared_scale([float.fromhex("0x1.c00002p-119")], "e4m3", scale_rule="rceil") == 1
    # With the smallest scale, 2**-127, the first two numbers are exact, and 2**-149 becomes 0.
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

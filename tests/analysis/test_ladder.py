"""Tests of the formulas for rounding errors under float scales.

The formulas must agree with samples in numpy, with kernels and with proved intervals.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.analysis import block_error, gamma_bias, scale_ladder

BLOCKS = 1 << 15
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([c * 2.0**-9 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 10) for c in range(127)])
UE5M3 = np.array([c * 2.0**-17 if c < 8 else (8 + c % 8) * 2.0 ** (c // 8 - 18) for c in range(255)])


def nearest(v, table):
    """Return the index of the nearest number in a table; in a tie, return the even index."""
    middles = (table[1:] + table[:-1]) / 2
    place = np.searchsorted(middles, v)
    tie = middles[np.minimum(place, len(middles) - 1)] == v
    return place + (tie & (place % 2 == 1))


def naive(x, scales, t, headroom=1.0, up=False, random=None):
    """Quantize each row as a block of E2M1 elements, in float64, by table searches."""
    q = headroom * abs(x).max(axis=1, keepdims=True) / (6 * t)
    s = scales[np.minimum(np.searchsorted(scales, q) if up else nearest(q, scales), len(scales) - 1)]
    with np.errstate(all="ignore"):
        y = np.where(s > 0, abs(x) / (s * t), 0)
    if random is None:
        r = E2M1[nearest(y, E2M1)]
    else:
        low = np.clip(np.searchsorted(E2M1, y, "right") - 1, 0, 6)
        gap = E2M1[low + 1] - E2M1[low]
        r = E2M1[low] + gap * (random < np.minimum((y - E2M1[low]) / gap, 1))
    return np.copysign(r, x) * s * t


def z_score(per_block, expected):
    return abs(per_block.mean() - expected) * np.sqrt(len(per_block)) / per_block.std()


#: Cases: format, values of the scales, tensor scale, mean, standard deviation, block size, options
#: of the formula.
CASES = [
    ("nvfp4", E4M3, 5 / 2688, 0.0, 1.0, 16, {}),
    ("nvfp4", E4M3, 5 / 2688, 0.0, 1.0, 16, {"rounding": "sr"}),
    ("nvfp4", E4M3, 5 / 2688, 0.0, 1.0, 16, {"rounding": "sr", "headroom": "17/16"}),
    ("nvfp4", E4M3, 5 / 2688, 0.0, 1.0, 16, {"rounding": "sr", "scale_rule": "rceil"}),
    ("nvfp4", E4M3, 2 / 2688, 0.3, 1.0, 16, {}),  # The tensor scale is so small that some numbers overflow.
    ("e2m1:scale=e4m3", E4M3, 1.0, 0.0, 2.0**-8, 8, {}),  # Some scales are subnormal, and some scales are zero.
    ("e2m1:scale=e4m3", E4M3, 1.0, 0.0, 2.0**-8, 4, {"rounding": "sr", "scale_rule": "rceil"}),
    ("e2m1:scale=ue5m3", UE5M3, 1.0, 0.0, 2.0**-15, 64, {}),
    ("e2m1:scale=ue5m3", UE5M3, 1.0, -0.9, 0.02, 1, {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[4]}-{c[5]}-{'-'.join(map(str, c[6].values()))}")
def test_formulas_agree_with_samples_in_numpy(case):
    fmt, scales, t, mu, sigma, block, options = case
    rng = np.random.default_rng(7)
    x = rng.normal(mu, sigma, (BLOCKS, block))
    random = rng.random(x.shape) if options.get("rounding") == "sr" else None
    headroom, up = float(Fraction(options.get("headroom", 1))), options.get("scale_rule") == "rceil"
    error = naive(x, scales, t, headroom, up, random) - x
    given = {"tensor_scale": t} if fmt == "nvfp4" else {}
    found = block_error(fmt, mu, sigma, block_size=block, **given, **options)
    power = mu**2 + sigma**2
    assert z_score((error * x).mean(axis=1), (found.gain - 1) * power) < 5
    squares = (error**2).mean(axis=1)
    assert z_score(squares, found.mse) < 5
    assert z_score(squares, found.mse * 1.05) > 5  # a prediction that is 5 % too large is rejected
    zeros = (error == -x).mean(axis=1)
    assert abs(zeros.mean() - found.zero) < 5 * zeros.std() / np.sqrt(BLOCKS) + 1e-12


@pytest.mark.parametrize("case", [CASES[i] for i in (1, 5)], ids=["sr", "subnormal"])
def test_enclosures_hold_the_number(case):
    pytest.importorskip("flint", reason="the extra proofs is not installed")
    fmt, _, t, mu, sigma, block, options = case
    found = block_error(fmt, mu, sigma, block_size=block, **({"tensor_scale": t} if fmt == "nvfp4" else {}), **options)
    for name in ("gain", "mse"):
        proved, value = found.enclosure(60, name), getattr(found, name)
        assert proved.radius < 1e-15 * abs(value)
        assert abs(proved.midpoint - value) < 1e-12 * abs(value)


def test_the_formula_of_a_narrow_cluster():
    found = block_error("nvfp4", 0.93, 0.01, tensor_scale=2.0**-10)
    expression = found.formula("mse")
    values = {symbol: getattr(found, symbol.name) for symbol in expression.free_symbols}
    assert float(expression.evalf(30, subs=values)) == pytest.approx(found.mse, rel=1e-9)


@pytest.mark.parametrize(("scale", "rule"), [("e4m3", "nearest"), ("e4m3", "rceil"), ("ue5m3", "nearest")])
def test_scales_begin_where_the_engine_changes_them(rule, scale):
    ladder = scale_ladder(f"e2m1:scale={scale}", rule)
    ends = np.array([float(begin) for begin in ladder.begins])  # exact, because each `begin` has few bits
    around = np.unique(np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf)]))
    codes = mx.shared_scale(around[:, None], f"e2m1:block=1,scale={scale}", scale_rule=rule).ravel()
    assert codes.tolist() == [ladder.of(Fraction(float(a))) for a in around]


@pytest.mark.parametrize("rule", list(mx.ScaleRule))
def test_ladder_of_e8m0_scales_equals_shared_scale(rule):
    ladder = scale_ladder("mxfp8_e4m3", rule)
    ends = np.array([float(begin) for begin in ladder.begins[1:]])
    around = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf)])
    codes = mx.shared_scale(around[:, None], "mxfp8_e4m3", block_size=1, scale_rule=rule).ravel()
    assert codes.tolist() == [ladder.of(Fraction(float(a))) for a in around]


def test_a_tensor_scale_moves_all_scales():
    plain, moved = scale_ladder("nvfp4", tensor_scale=1), scale_ladder("nvfp4", tensor_scale="1/8")
    assert [8 * begin for begin in moved.begins] == list(plain.begins)
    assert [8 * unit for unit in moved.units] == list(plain.units)
    with pytest.raises(ValueError, match="'tensor_scale' must be given for nvfp4"):
        scale_ladder("nvfp4")
    with pytest.raises(ValueError, match="'tensor_scale' must be left out for mxfp8_e4m3"):
        scale_ladder("mxfp8_e4m3", tensor_scale=1)


@pytest.mark.parametrize("rounding", ["rne", "rtp"])
def test_sigma_of_0_gives_the_kernels_results(rounding):
    mu = np.concatenate([np.linspace(0.5, 2, 97), E4M3[1:40] * 6, E4M3[1:40] * 6.3, [1e-4, 5000.0]])
    t = 2.0**-3
    got = mx.fake_quantize(mu[:, None], "nvfp4", block_size=1, rounding=rounding, tensor_scale=t).ravel()
    found = gamma_bias("nvfp4", mu, 0.0, block_size=1, rounding=rounding, tensor_scale=t)
    assert np.allclose(found.bias, got / mu - 1, atol=2e-16, rtol=0)


def test_scales_of_16_bits_are_nearly_exact_ones():
    """Check that the two 16-bit scale formats give nearly equal errors, and E4M3 a larger error."""
    e4m3, bfloat16, float16 = (
        float(block_error(f"e2m1:block=16,scale={scale}").mse) for scale in ("e4m3", "bfloat16", "float16")
    )
    assert abs(bfloat16 - float16) < 2e-6 < e4m3 - float16


@pytest.mark.parametrize(
    ("fmt", "options", "message"),
    [
        ("nvfp4", {}, "Argument 'tensor_scale' must be given for nvfp4, not None."),
        ("mxfp4_e2m1", {"tensor_scale": 1}, "Argument 'tensor_scale' must be left out for mxfp4_e2m1, not 1."),
        ("mxfp4_e2m1", {"headroom": 2}, "Argument 'headroom' must be left out for mxfp4_e2m1, not 2."),
        ("nvfp4", {"tensor_scale": 0}, "Argument 'tensor_scale' must be between 2**-150 and 2**130, not 0.0."),
        ("nvfp4", {"tensor_scale": 1, "scale_rule": "floor"}, "'scale_rule' must be one of ['nearest', 'rceil'"),
        ("nvfp4", {"tensor_scale": 1, "scale_rule": "four_over_six_squared"}, "must be 'nearest' or 'rceil'"),
        ("e4m3:scale=float32", {}, "must be one whose scales have 16 bits or fewer, not 'float32'."),
    ],
)
def test_what_is_refused(fmt, options, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        block_error(fmt, **options)
    assert message in str(caught.value)

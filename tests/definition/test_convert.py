"""Tests that encode and decode equal the oracle for all elements and modes, at all boundaries."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mxnum import reference
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.random import make_align_random
from mxnum.formats import ELEMENTS, FLOATS, element
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import Overflow, Rounding
from tests import samples

TARGETS = (*samples.ELEMENTS, "bfloat16", "float16")


def encode_with_oracle(bits, source, target, rounding, overflow, scale, words=None, sr_bits=30):
    """Return the codes that the oracle (the exact reference) computes for bit patterns."""
    values = samples.as_floats(FLOATS[source], bits)
    words = [None] * len(values) if words is None else words.tolist()
    options = {"rounding": rounding, "overflow": overflow, "scale": scale, "sr_bits": sr_bits}
    return [reference.encode(x, target, random_bits=w, **options) for x, w in zip(values, words, strict=True)]


def unsigned(values, fmt):
    """Return bit patterns as unsigned numbers; the arguments may be signed."""
    return np.asarray(values, np.int64) & ((1 << fmt.bits) - 1)


@pytest.mark.parametrize("source", samples.FLOATS)
@pytest.mark.parametrize("target", samples.ELEMENTS)
def test_boundaries_of_every_mode_match_the_oracle(source, target):
    src, tgt = FLOATS[source], element(target)
    rng = samples.generator("boundaries", source, target)
    for rounding, overflow in product(Rounding, Overflow):
        encode = make_encode(src, tgt, rounding, overflow)
        for scale in (127, int(rng.integers(0, 255))):
            bits = samples.boundary_patterns(src, tgt, scale)
            bits = np.concatenate([rng.choice(bits, 60), samples.special_patterns(src)])
            words = rng.integers(0, 1 << 32, bits.size, dtype=np.uint32)
            got = encode(bits.astype(np.int64), np.int64(scale), make_align_random(30)(words.astype(np.int64)))
            want = encode_with_oracle(bits, source, target, rounding, overflow, scale, words)
            samples.assert_same(f"{encode.__name__} scale {scale}", bits, got, want)


@pytest.mark.parametrize("target", samples.ELEMENTS)
def test_all_boundaries_to_nearest_even_from_float32(target):
    src, tgt = FLOATS["float32"], element(target)
    encode = make_encode(src, tgt, Rounding.RNE, Overflow.SATURATE)
    for scale in (0, 1, 127, 254):
        bits = samples.boundary_patterns(src, tgt, scale)
        want = encode_with_oracle(bits, "float32", target, "rne", "saturate", scale)
        samples.assert_same(
            f"{encode.__name__} scale {scale}", bits, encode(bits.astype(np.int64), np.int64(scale), 0), want
        )


@given(data=st.data())
def test_random_conversions_match_the_oracle(data):
    source = data.draw(st.sampled_from(samples.FLOATS), "source")
    target = data.draw(st.sampled_from(TARGETS), "target")
    rounding = data.draw(st.sampled_from(list(Rounding)), "rounding")
    overflow = data.draw(st.sampled_from(list(Overflow)), "overflow")
    src, tgt = FLOATS[source], element(target)
    word = st.integers(-(1 << (src.bits - 1)), (1 << (src.bits - 1)) - 1)
    x = data.draw(word, "x")
    scale = data.draw(st.integers(0, 255), "scale")
    if data.draw(st.booleans(), "near the range of the target"):
        # Keep sign and mantissa, and choose an exponent in the range of the target.
        wanted = data.draw(st.integers(tgt.emin - tgt.mantissa_bits - 3, tgt.emax + 2), "exponent")
        field = wanted + scale - 127 + src.bias
        field = min(max(field, 0), (1 << src.exponent_bits) - 1)
        field_mask = ((1 << src.exponent_bits) - 1) << src.mantissa_bits
        x = (x & ~field_mask) | (field << src.mantissa_bits)
    r = data.draw(st.integers(0, (1 << 32) - 1), "random word")
    sr_bits = data.draw(st.integers(1, 30), "sr_bits")
    got = make_encode(src, tgt, rounding, overflow)(x, scale, make_align_random(sr_bits)(r))
    bits = np.array([x], f"i{src.bits // 8}")
    want = encode_with_oracle(bits, source, target, rounding, overflow, scale, np.array([r], np.uint32), sr_bits)
    samples.assert_same(f"{source} -> {target} {rounding} {overflow} scale {scale} word {r:#x}", bits,
                        unsigned([got], tgt), want)  # fmt: skip


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", samples.ELEMENTS)
def test_decode_of_all_codes_matches_the_oracle(source, target):
    src, tgt = ELEMENTS[source], FLOATS[target]
    decode = make_decode(src, tgt)
    codes = np.arange(1 << src.bits)
    rng = samples.generator("decode", source, target)
    for scale in (0, 1, 22, 103, 112, 127, 150, 254, 255, int(rng.integers(3, 253))):
        got = [int(v) & ((1 << tgt.bits) - 1) for v in np.broadcast_to(decode(codes, np.int64(scale)), codes.shape)]
        want = [reference.decode(c, source, dtype=target, scale=scale) for c in codes.tolist()]
        samples.assert_same(
            f"{decode.__name__} scale {scale}", codes, np.array(got, np.uint64), np.array(want, np.uint64)
        )


@pytest.mark.parametrize("name", samples.ELEMENTS)
def test_every_produced_code_survives_decode_and_encode(name):
    fmt = ELEMENTS[name]
    codes = np.arange(1 << fmt.bits)
    if fmt.integer:
        codes = codes[codes != 1 << (fmt.bits - 1)]  # encoders never produce the most negative code
    for target in FLOATS.values():
        for rounding in Rounding:
            values = make_decode(fmt, target)(codes, np.int64(127))
            back = make_encode(target, fmt, rounding, Overflow.IEEE)(values, np.int64(127), np.int64(5))
            magnitude_nan = np.array([v != v for v in fmt.values()])[codes]
            # A NaN may lose its sign and payload when it becomes a float.
            expected = np.where(magnitude_nan, fmt.nan_code or 0, codes)
            samples.assert_same(f"{name} via {target.name} {rounding}", codes, back, expected)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
def test_codec_agrees_with_ml_dtypes(name):
    fmt, dtype = ELEMENTS[name], numpy_dtype(ELEMENTS[name])
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    ours = make_decode(fmt, FLOATS["float32"])(codes.astype(np.int64), np.int64(127)).astype(np.int32).view(np.float32)
    theirs = codes.view(dtype).astype(np.float32)
    assert np.array_equal(ours, theirs, equal_nan=True)
    bits = np.concatenate(
        [samples.boundary_patterns(FLOATS["float32"], fmt), samples.random_patterns(FLOATS["float32"], 1 << 18, name)]
    ).astype(np.int32)
    x = bits.view(np.float32)
    inside = np.abs(x) <= fmt.max
    encode = make_encode(FLOATS["float32"], fmt, Rounding.RNE, Overflow.SATURATE)
    got = encode(bits[inside], np.int64(127), np.int64(0))
    samples.assert_same(name, bits[inside], got, x[inside].astype(dtype).view(np.uint8))


@pytest.mark.parametrize(("source", "target"), [("float64", "float32"), ("float64", "float16"), ("float32", "float16"),
                                                ("float32", "bfloat16")])  # fmt: skip
def test_narrowing_of_floats_agrees_with_numpy(source, target):
    src, tgt = FLOATS[source], FLOATS[target]
    bits = np.concatenate([samples.random_patterns(src, 1 << 17, target), samples.special_patterns(src)])
    x = bits.view(numpy_dtype(src))
    finite = np.isfinite(x)
    with np.errstate(all="ignore"):
        want = x.astype(numpy_dtype(tgt)).view(f"u{tgt.bits // 8}")
    got = unsigned(
        make_encode(src, tgt, Rounding.RNE, Overflow.IEEE)(bits.astype(np.int64), np.int64(127), np.int64(0)), tgt
    )
    samples.assert_same(f"{source} -> {target}", bits[finite], got[finite], want[finite])
    assert (got[np.isnan(x)] == tgt.nan_code).all()


def test_widening_is_exact():
    x = np.array([1.5, -0.0, 2.0**-149, np.inf], np.float32)
    got = make_encode(FLOATS["float32"], FLOATS["float64"], Rounding.RNE, Overflow.IEEE)(
        x.view(np.int32).astype(np.int64), np.int64(127), np.int64(0)
    )
    assert np.array_equal(got.view(np.float64).view(np.int64), x.astype(np.float64).view(np.int64))


@pytest.mark.parametrize("rounding", Rounding)
def test_one_function_object_means_the_same_as_python_int_and_numpy(rounding):
    encode = make_encode(FLOATS["float32"], ELEMENTS["e4m3"], rounding, Overflow.IEEE)
    bits = samples.boundary_patterns(FLOATS["float32"], ELEMENTS["e4m3"], 120)
    arrays = encode(bits, np.int64(120), np.int64(12345))
    ints = [encode(b, 120, 12345) for b in bits.tolist()]
    assert arrays.tolist() == ints


def test_unsigned_narrow_patterns_are_accepted_too():
    encode = make_encode(FLOATS["bfloat16"], ELEMENTS["e2m1"], Rounding.RNE, Overflow.SATURATE)
    minus_three = int(np.array(-3, ml_dtypes.bfloat16).view(np.uint16))
    assert encode(minus_three, 127, 0) == encode(minus_three - (1 << 16), 127, 0) == 0b1101


def test_a_scale_of_nan_gives_code_zero_and_nan():
    for rounding, overflow in product(Rounding, Overflow):
        encode = make_encode(FLOATS["float32"], ELEMENTS["e5m2"], rounding, overflow)
        assert encode(0x7F800000, 255, 1) == encode(-1, 255, 1) == encode(0x3F800000, 255, 1) == 0
    assert make_decode(ELEMENTS["e5m2"], FLOATS["float32"])(3, 255) == 0x7FC00000


# Worked examples


@pytest.mark.parametrize(
    ("x", "want"),
    [(0.125, 0), (0.375, 0.5), (0.75, 0.5), (1.5, 2), (3, 2), (6, 8), (12, 8)],
)
def test_e3m0_ties_go_to_the_even_code(x, want):
    fmt = ELEMENTS["e3m0"]
    code = make_encode(FLOATS["float64"], fmt, Rounding.RNE, Overflow.SATURATE)(float_bits(x), 127, 0)
    assert fmt.value(code) == want


@pytest.mark.parametrize(
    ("name", "x", "modes", "want"),
    [
        ("e5m2", 61440.0, "rne rna rtp", 0x7C),
        ("e5m2", 61440.0, "rtz rtn rto", 0x7B),
        ("e4m3", 464.0, "rne rtz rtn rto", 0x7E),
        ("e4m3", 464.0, "rna rtp", 0x7F),
        ("e4m3", -464.0, "rtn rna", 0xFF),
        ("e4m3", -464.0, "rtp rtz", 0xFE),
    ],
)
def test_ieee_overflow_examples(name, x, modes, want):
    for mode in modes.split():
        encode = make_encode(FLOATS["float64"], ELEMENTS[name], Rounding(mode), Overflow.IEEE)
        assert encode(float_bits(x), 127, 0) == want, mode


def test_saturation_overrides_parity():
    encode = make_encode(FLOATS["float64"], ELEMENTS["e4m3"], Rounding.RTO, Overflow.SATURATE)
    assert encode(float_bits(449.0), 127, 0) == 0x7E


def test_nan_without_a_nan_code_becomes_plus_max():
    encode = make_encode(FLOATS["float32"], ELEMENTS["e2m1"], Rounding.RNE, Overflow.SATURATE)
    assert encode(-1, 127, 0) == encode(0x7FC00000, 127, 0) == 0b0111


def test_nan_keeps_its_sign_in_elements_and_loses_it_in_floats():
    minus_nan = -0x400000
    assert make_encode(FLOATS["float32"], ELEMENTS["e4m3"], Rounding.RNE, Overflow.SATURATE)(minus_nan, 127, 0) == 0xFF
    assert make_encode(FLOATS["float32"], FLOATS["bfloat16"], Rounding.RNE, Overflow.IEEE)(minus_nan, 127, 0) == 0x7FC0


@pytest.mark.parametrize("sr_bits", [1, 2, 5, 8])
@pytest.mark.parametrize("x", [0.6, 1.1, -1.9, 4.75, 2.0, 0.1, 1e-9])
def test_stochastic_rounding_counts_match_the_fraction(sr_bits, x):
    """Check the share of random words that round x away from zero.

    The share is the position of x between its two neighbours, truncated to `sr_bits` bits.
    """
    fmt = ELEMENTS["e2m1"]
    encode = make_encode(FLOATS["float64"], fmt, Rounding.SR, Overflow.SATURATE)
    align = make_align_random(sr_bits)
    codes = np.array([encode(float_bits(x), 127, align(r)) for r in range(1 << sr_bits)])
    grid = [abs(v) for v in fmt.values()[: fmt.max_code + 1]]
    low = max(k for k, v in enumerate(grid) if v <= abs(x))
    delta = 0.0 if grid[low] == abs(x) else (abs(x) - grid[low]) / (grid[low + 1] - grid[low])
    assert np.count_nonzero((codes & 7) == low + 1) == int(delta * 2**sr_bits)
    assert set((codes & 7).tolist()) <= {low, low + 1}


@example(0.0, 0.0)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_every_mode_is_monotone(a, b):
    a, b = sorted((a, b))
    for rounding in Rounding:
        fmt = ELEMENTS["e3m0"]
        encode = make_encode(FLOATS["float64"], fmt, rounding, Overflow.SATURATE)
        assert fmt.value(encode(float_bits(a), 127, 99)) <= fmt.value(encode(float_bits(b), 127, 99))


def float_bits(x: float) -> int:
    return int(np.float64(x).view(np.int64))

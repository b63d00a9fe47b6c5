"""Tests that products equal the oracle's in every bit: all formats, modes, shapes and layouts."""

# ruff: noqa: E501 (each case of a table is on one line)

from __future__ import annotations

import re
import warnings
from fractions import Fraction
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxnum as mx
from mxnum import reference
from mxnum.engine.machine import workers
from mxnum.engine.products import by_definition, by_floats
from mxnum.formats import FLOATS
from mxnum.modes import Accumulate
from tests import samples

NAMES = mx.formats.names("e8m0")
DEFINED = ("exact", "block", "sequential")
NAN, INF = float("nan"), float("inf")


def rows(q):
    """Return the rows of a matrix with blocks along its last axis, as the oracle expects them."""
    offsets = [None] * len(q) if q.offsets is None else q.offsets
    tensors = [None] * len(q) if q.tensor_scale is None else np.broadcast_to(q.tensor_scale, (len(q), 1))[:, 0]
    parts = zip(q.codes, q.scales, offsets, tensors, strict=True)
    return [reference.Blocked(codes, scales, q.format, q.blocks[-1], o, t) for codes, scales, o, t in parts]


def codes_at_random(name, shape, block, *key, spread=20, special=0.1, offset=False):
    """Return an MX array of uniformly random codes, including special codes.

    `special` is the fraction of scales that are NaN or extreme, by default a tenth.
    """
    rng = samples.generator("products", name, shape, block, *key)
    fmt = mx.formats.get(name)
    codes = rng.integers(0, 1 << fmt.element.bits, shape, dtype=np.uint8)
    # Special codes are rare, because a sum with NaN or infinity does not depend on its other terms.
    if fmt.element.specials != "none":
        finite = rng.integers(0, fmt.element.max_code + 1, shape, dtype=np.uint8) | (codes & 0x80)
        codes = np.where(rng.random(shape) < special / 4, codes, finite)
    counts = (*shape[:-1], -(-shape[-1] // block))
    scales = rng.integers(127 - spread, 127 + spread, counts, dtype=np.uint8)
    scales = np.where(
        rng.random(counts) < special, rng.choice(np.array([0, 1, 253, 254, 255], np.uint8), counts), scales
    )
    offsets = None
    if offset:
        special_offsets = rng.choice(np.array([0.0, -0.0, INF, -INF, NAN, 6e-8], np.float16), counts)
        offsets = np.where(rng.random(counts) < 0.2, special_offsets, rng.standard_normal(counts)).astype(np.float16)
    return mx.MXArray.from_parts(codes, scales, fmt, block_size=block, offsets=offsets)


def check(a, b, accumulate, case=None):
    """Assert that a times the transpose of b equals the oracle's product.

    The operands are MX arrays in blocks along rows, or matrices of floats.
    """
    got = mx.matmul(a, b.T, accumulate=accumulate)
    left = rows(a) if isinstance(a, mx.MXArray) else a
    if isinstance(b, mx.MXArray):
        want = reference.matmul(left, rows(b), accumulate=accumulate)
    elif isinstance(left, list):
        want = [[reference.dot(r, c, accumulate=accumulate) for c in b] for r in left]
    else:
        want = reference.matmul(left, b.T, accumulate=accumulate)
    want = np.array(want, np.float32).reshape(a.shape[0], b.shape[0])
    assert got.dtype == np.float32
    samples.assert_same(f"{case} {accumulate}", [""] * got.size, got.view(np.uint32), want.view(np.uint32))


#: Cases: a pair of formats, and a mode of accumulation. In the mode `block`, the number type of
#: sums depends on both formats, so all pairs of formats are tested. In other modes, loops for an
#: operand depend on that operand's format alone, so each format is paired with a few others.
PAIRS = [(pair, "block") for pair in product(NAMES, NAMES)]
PAIRS += [
    pytest.param((a, NAMES[(i + shift) % len(NAMES)]), how, marks=pytest.mark.full if shift > 1 else ())
    for how, shifts in (("exact", (0, 2)), ("sequential", (1, 4)))
    for i, a in enumerate(NAMES)
    for shift in shifts
]


@pytest.mark.parametrize(("pair", "accumulate"), PAIRS, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_pairs_of_formats(pair, accumulate):
    for k, block in ((37, 8), (70, 32)):
        a, b = (codes_at_random(name, (3, k), block, side) for side, name in enumerate(pair))
        check(a, b, accumulate, pair)


@pytest.mark.parametrize("accumulate", ["exact", "sequential"])
@pytest.mark.parametrize("name", NAMES)
def test_offsets(name, accumulate):
    a = codes_at_random(name, (4, 37), 8, offset=True)
    check(a, codes_at_random("mxfp8_e5m2", (3, 37), 32), accumulate)
    check(a, codes_at_random("mxint8", (3, 37), 5, 1, offset=True, special=0.3), accumulate)


def test_an_offset_that_cancels_is_a_zero():
    offsets = np.array([[-1, 1, -2, -1.5]], np.float16)
    a = mx.MXArray.from_parts(
        np.uint8([[2, 10, 2, 3]]), np.uint8([[127] * 4]), "mxfp4_e2m1", block_size=1, offsets=offsets
    )
    assert a.dequantize().tolist() == [[0, 0, -1, 0]]
    check(a, np.array([[1, 1, INF, 1]], np.float32), "exact")
    for place in range(4):
        b = np.zeros((1, 4), np.float32)
        b[0, place] = INF
        check(a, b, "exact")
    assert mx.dot(a[0, 2:3], [INF], accumulate="exact") == -INF


def floats(dtype, shape, *key):
    """Return floats: small integers times powers of two, random bits, and special floats."""
    rng = samples.generator("floats", dtype, shape, *key)
    fmt = FLOATS[dtype]
    patterns = samples.random_patterns(fmt, int(np.prod(shape)), *key).reshape(shape)
    special = samples.special_patterns(fmt)
    with np.errstate(all="ignore"):
        whole = (rng.integers(-99, 99, shape) * np.exp2(rng.integers(-9, 3, shape))).astype(patterns_dtype(fmt))
    x = np.where(rng.random(shape) < 0.8, whole.view(patterns.dtype), patterns)
    x = np.where(rng.random(shape) < 0.04, rng.choice(special, shape), x)
    return x.view(whole.dtype)


def patterns_dtype(fmt):
    return ml_dtypes.bfloat16 if fmt.name == "bfloat16" else np.dtype(fmt.name)


@pytest.mark.parametrize("accumulate", ["exact", "sequential"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_of_every_type(name, accumulate):
    """Check all pairs of float types, because the two operands are converted independently."""
    for other in FLOATS:
        with np.errstate(all="ignore"):
            check(floats(name, (6, 9), 0), floats(other, (6, 9), 1), accumulate, (name, other))


@pytest.mark.parametrize("accumulate", ["exact", "sequential"])
@pytest.mark.parametrize("name", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1"])
def test_mixed_operands(name, accumulate):
    q, x = codes_at_random(name, (4, 20), 8), floats("float64", (5, 20))
    with np.errstate(all="ignore"):
        check(q, x, accumulate)
    swapped = mx.matmul(x, q.T, accumulate=accumulate)
    assert swapped.T.tobytes() == mx.matmul(q, x.T, accumulate=accumulate).tobytes()


@settings(max_examples=100)
@given(data=st.data())
def test_any_shape_and_block(data):
    m, n = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
    k, block = data.draw(st.integers(0, 80)), data.draw(st.integers(1, 70))
    names = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(NAMES))
    spread, seed = data.draw(st.sampled_from([1, 12, 127])), data.draw(st.integers(0, 99))
    special = data.draw(st.sampled_from([0.0, 0.1]))
    a, b = (
        codes_at_random(name, (rows, k), block, seed, side, spread=spread, special=special)
        for side, (name, rows) in enumerate(zip(names, (m, n), strict=True))
    )
    check(a, b, data.draw(st.sampled_from(DEFINED)))


#: Formats with float scales of all types. For some of them, sums are computed in integers, for
#: others in float32, in float64, or by the definition.
FLOAT_SCALES = ("nvfp4", "e2m1:block=16,scale=bfloat16", "int8:block=32,scale=bfloat16", "e2m1:block=5,scale=float16",
                "e2m1:block=16,scale=float32")  # fmt: skip
#: Formats of the full tier alone: their loops take long to compile.
MORE_FLOAT_SCALES = ("e2m1:block=16,scale=ue5m3", "e3m2:block=16,scale=float16", "e4m3:block=16,scale=e4m3",
                     "e4m3:block=16,scale=float16", "e5m2:block=8,scale=e4m3")  # fmt: skip


def with_float_scales(fmt, shape, block, *key, spread=4, special=0.0, per_row=False):
    """Return an MX array of random codes with random float scales.

    `special` is the fraction of scales that are 0, NaN, extreme or infinite.
    """
    rng = samples.generator("float scales", str(fmt), shape, block, *key)
    fmt = mx.formats.get(fmt)
    codes = codes_at_random("mxfp8_e5m2", shape, block, *key, special=0.02).codes & ((1 << fmt.element.bits) - 1)
    counts = (*shape[:-1], -(-shape[-1] // block))
    number, bits = fmt.scale.number, fmt.scale.bits
    values = np.exp2(rng.uniform(-spread, spread, counts))
    if bits == 8:
        scales = mx.encode(values, number if number.bits == 8 else mx.ElementFormat("e5m3", 5, 3, 15, specials="nan"))
        special_codes = np.array([0, 1, number.max_code, fmt.scale.nan_code])
    else:
        scales = values.astype(patterns_dtype(number)).view(f"uint{bits}")
        special_codes = np.array([0, 1, number.max_code, number.infinity_code, fmt.scale.nan_code])
    scales = np.where(rng.random(counts) < special, rng.choice(special_codes, counts), scales).astype(
        f"uint{max(bits, 8)}"
    )
    scales = scales if bits == 8 else scales.view(patterns_dtype(number))
    given = {} if fmt.tensor_scale is None else {"tensor_scale": np.float32(0.3)}
    if per_row and given:
        given = {"tensor_scale": rng.random((shape[0], 1)).astype(np.float32)}
    return mx.MXArray.from_parts(codes, scales, fmt, block_size=block, **given)


@pytest.mark.parametrize("accumulate", DEFINED)
@pytest.mark.parametrize(
    "name", [*FLOAT_SCALES, *(pytest.param(name, marks=pytest.mark.full) for name in MORE_FLOAT_SCALES)]
)
def test_scales_that_are_floats(name, accumulate):
    block = mx.formats.get(name).block
    for k, special, per_row in ((3 * block, 0.0, False), (5 * block - 2, 0.3, True)):
        a, b = (with_float_scales(name, (n, k), block, n, special=special, per_row=per_row) for n in (3, 6))
        with np.errstate(all="ignore"):
            check(a, b, accumulate, name)
            if accumulate == "block":
                check(a, codes_at_random("mxfp4_e2m1", (4, k), block), accumulate, name)
                check(codes_at_random("mxfp8_e4m3", (4, k), block), b, accumulate, name)


@pytest.mark.parametrize("name", ["nvfp4", "e2m1:block=16,scale=float16", "e2m1:block=16,scale=bfloat16"])
def test_float_scales_at_the_ends_of_what_float32_holds(name):
    """Check scales at the ends of float32's range, where terms become subnormal or overflow."""
    number = mx.formats.get(name).scale.number
    least, most = number.emin - number.mantissa_bits, number.emax
    for first, second in (
        (least, least),
        (most, most),
        (least, most),
        (-75, -74),
        (-70, -70),
        (-60, -60),
        (63, 63),
        (64, 63),
    ):
        sides = []
        for power, rows in ((first, 3), (second, 5)):
            power = min(max(power, least), most)
            a = with_float_scales(name, (rows, 32), 16, power)
            scales = np.full((rows, 2), 1.5 if power > least + 1 else 1) * 2.0**power
            scales = mx.encode(scales, "e4m3") if name == "nvfp4" else scales.astype(a.scales.dtype)
            sides.append(mx.MXArray.from_parts(a.codes, scales, a.format, tensor_scale=a.tensor_scale))
        with np.errstate(all="ignore"):
            check(*sides, "block", (name, first, second))


def test_tensor_scales_multiply_sums_of_blocks_at_last():
    """Check that the last step multiplies the sum by the rounded product of the tensor scales."""
    a, b = with_float_scales("nvfp4", (3, 32), 16, 0), with_float_scales("nvfp4", (4, 32), 16, 1)
    for first, second in ((1e-30, 1e-12), (1e30, 1e30), (0.1, 0.7), (0.0, INF), (NAN, 1.0), (INF, 1.0), (0.0, 2.0)):
        sides = [
            mx.MXArray.from_parts(q.codes, q.scales, q.format, tensor_scale=np.array(t, np.float32))
            for q, t in ((a, first), (b, second))
        ]
        with np.errstate(all="ignore"):
            check(*sides, "block", (first, second))
    varying = mx.MXArray.from_parts(
        a.codes, np.repeat(a.scales, 16, 1), "nvfp4", blocks=(1, 1), tensor_scale=np.ones((1, 32), np.float32)
    )
    with pytest.raises(ValueError, match="'b' must be an MXArray with a single tensor scale along the summed axis"):
        mx.matmul(mx.MXArray.from_parts(a.codes, varying.scales, "nvfp4", blocks=(1, 1), tensor_scale=1.0), varying.T)


def quantized(values, name="mxfp8_e5m2", block=2, scales=None):
    """Return an MX array of values that the format represents exactly, with given scales."""
    values = np.array(values, np.float64)
    codes = mx.encode(values, mx.formats.get(name).element, overflow="ieee")
    counts = (*values.shape[:-1], -(-values.shape[-1] // block))
    given_scales = np.full(counts, 127) if scales is None else np.array(scales)
    return mx.MXArray.from_parts(codes, given_scales.astype(np.uint8).reshape(counts), name, block_size=block)


#: Cases: values of a, values of b, scales of a, scales of b. Blocks have two elements.
SPECIAL = {
    "infinity": ([INF, 1, 1, 1], [1, 1, 1, 1], None, None),
    "minus infinity": ([INF, 1, 1, 1], [-1, 1, 1, 1], None, None),
    "infinities of one sign": ([INF, 1, 1, INF], [1, 1, 1, 2], None, None),
    "infinities of both signs in a block": ([INF, INF, 1, 1], [1, -1, 1, 1], None, None),
    "infinities of both signs apart": ([INF, 0, INF, 1], [1, 1, -1, 1], None, None),
    "infinity times zero": ([INF, 1, 1, 1], [0, 1, 1, 1], None, None),
    "infinity times minus zero": ([1, 1, -0.0, 1], [1, 1, INF, 1], None, None),
    "infinity in the last place": ([1, 1, 1, INF], [1, 1, 1, 1], None, None),
    "NaN": ([1, NAN, 1, 1], [1, 0, 1, 1], None, None),
    "NaN scale": ([1, 1, 1, 1], [1, 1, 1, 1], [127, 255], None),
    "NaN scale over zeros": ([0, 0, 1, 1], [0, 0, 1, 1], None, [255, 127]),
    "cancellation": ([3, -3, 5, -5], [7, 7, 0.5, 0.5], None, None),
    "cancellation between blocks": ([3, 0, -3, 0], [7, 7, 7, 7], None, None),
    "zeros of both signs": ([-0.0, 0, -0.0, 0], [1, -1, 1, 1], None, None),
    "subnormal": ([1, 0, 1, 0], [1, 0, 1, 0], [10, 10], [100, 101]),
    "underflow to minus zero": ([-1, 0, 0, 0], [1, 0, 0, 0], [0, 0], [0, 0]),
    "ties of terms": ([1, 0, 1, 0], [1, 0, 1, 0], [0, 0], [104, 104]),
    "overflow": ([1, 1, 1, 1], [1, 1, 1, 1], [254, 254], [254, 254]),
    "overflow of terms that cancel": ([1, 0, -1, 0], [1, 0, 1, 0], [254, 254], [254, 254]),
    "overflow of the sum": ([1, 0, 1, 0], [1, 0, 1, 0], [254, 254], [127, 127]),
    "largest": ([57344, 57344, 57344, 57344], [57344, 57344, -57344, 1], [190, 190], [150, 150]),
    "69 bits": ([57344, 2.0**-16, 0, 0], [57344, 2.0**-16, 0, 0], None, None),
    "69 bits cancel": ([57344, 57344, 2.0**-16, 0], [57344, -57344, 2.0**-16, 0], None, None),
}


@pytest.mark.parametrize("accumulate", DEFINED)
@pytest.mark.parametrize("case", SPECIAL)
def test_special_values(case, accumulate):
    values_a, values_b, scales_a, scales_b = SPECIAL[case]
    a, b = quantized([values_a], scales=scales_a), quantized([values_b], scales=scales_b)
    for block in (2, 4):
        if block == 4:
            a, b = (mx.MXArray.from_parts(q.codes, q.scales[:, :1], q.format, block_size=4) for q in (a, b))
        check(a, b, accumulate, case)
        got = mx.dot(a[0], b[0], accumulate=accumulate)
        assert got.view(np.uint32) == reference.dot(rows(a)[0], rows(b)[0], accumulate=accumulate).view(np.uint32)


def test_signed_zeros():
    a, b = quantized([[-1]], scales=[0]), quantized([[1]], scales=[0])
    bits = {how: int(mx.dot(a[0], b[0], accumulate=how).view(np.uint32)) for how in DEFINED}
    # The mode `block` adds the sum of the block (-0 here) to an initial +0, so the total is +0.
    assert bits == {"exact": 1 << 31, "block": 0, "sequential": 1 << 31}


@pytest.mark.parametrize("accumulate", DEFINED)
@pytest.mark.parametrize("name", ["mxfp8_e5m2", "mxfp4_e2m1"])
def test_sums_start_from_an_addend(name, accumulate):
    rng = samples.generator("addend", name, accumulate)
    for shape, special in (((2, 20), 0.0), ((20, 2), 0.2), ((1, 1), 0.2), ((2, 2), 0.0)):
        length = 0 if shape == (2, 2) else 40
        a, b = (codes_at_random(name, (rows, length), 32, rows, special=special) for rows in shape)
        c = floats("float64", shape, name) if special else rng.standard_normal(shape).astype(np.float32)
        with np.errstate(all="ignore"):
            got = mx.matmul(a, b.T, c, accumulate=accumulate)
            pairs = [(i, j, left, right) for i, left in enumerate(rows(a)) for j, right in enumerate(rows(b))]
            want = [reference.dot(p, q, c[i, j], accumulate=accumulate) for i, j, p, q in pairs]
        samples.assert_same(f"{name} {accumulate}", None, got.view(np.uint32).ravel(), np.array(want).view(np.uint32))
    dot = mx.dot(a[0], b[0], c[0, 0], accumulate=accumulate)
    assert dot.view(np.uint32) == reference.dot(rows(a)[0], rows(b)[0], c[0, 0], accumulate=accumulate).view(np.uint32)


def test_an_addend_of_blas_is_added_after_the_sum():
    x = np.ones((2, 3), np.float32)
    out = np.array([[1, 2], [3, 4]], np.float32)
    assert mx.matmul(x, x.T, out, accumulate="blas", out=out) is out
    assert out.tolist() == [[4, 5], [6, 7]]


@pytest.mark.parametrize("accumulate", Accumulate)
def test_an_empty_sum_is_plus_zero(accumulate):
    q = mx.quantize(np.zeros((3, 0), np.float32), "mxfp8_e4m3")
    result = mx.matmul(q, q.T, accumulate=accumulate)
    assert result.shape == (3, 3)
    assert not result.view(np.uint32).any()
    assert mx.dot(q[0], q[0], accumulate=accumulate).view(np.uint32) == 0
    assert mx.matmul(q[:0], q.T, accumulate=accumulate).shape == (0, 3)


def test_long_exact_sums_carry():
    x = np.full((1 << 20) + 77, float((1 << 53) - 1))
    want = Fraction((1 << 53) - 1) ** 2 * x.size
    got = mx.dot(x, x, accumulate="exact")
    assert int(got.view(np.uint32)) == reference.encode(want, "float32", overflow="ieee")
    x[1::2] *= -1
    assert mx.dot(x, np.abs(x), accumulate="exact") == np.float32(float((1 << 53) - 1) ** 2)


def test_exact_takes_the_whole_range_of_float64():
    a = np.array([5e-324, 1.7e308, 1.0, -1.7e308])
    b = np.array([5e-324, 1.7e308, 2.0**-149, 1.7e308])
    assert mx.dot(a, b, accumulate="exact") == np.float32(2.0**-149)
    assert mx.dot(a[:2], b[:2], accumulate="exact") == np.inf
    assert mx.dot(a[:1], b[:1], accumulate="exact").view(np.uint32) == 0
    assert mx.dot(-a[:1], b[:1], accumulate="exact").view(np.uint32) == 1 << 31


def test_user_made_formats_beyond_float64():
    wide = mx.MXFormat(mx.ElementFormat("e7m0", 7, 0, 895), block=4)
    huge = mx.MXFormat(mx.ElementFormat("e4m3", 4, 3, -1008), block=4)
    rng = samples.generator("wide")
    # Regression: the largest numbers of an element format with five exponent bits and no infinities
    # were treated as NaN.
    full = mx.MXFormat(mx.ElementFormat("e5m2", 5, 2, 15), block=4)
    for fmt, other in ((wide, huge), (wide, wide), (huge, huge), (full, full)):
        a, b = (
            mx.MXArray.from_parts(rng.integers(0, 256, (3, 11), np.uint8), rng.integers(0, 255, (3, 3), np.uint8), f)
            for f in (fmt, other)
        )
        check(a, b, "exact")
        check(a, b, "block")
        check(a, b, "sequential")


@pytest.mark.parametrize("accumulate", DEFINED)
def test_batches_broadcast(accumulate):
    a, b = codes_at_random("mxfp8_e5m2", (2, 1, 3, 20), 8), codes_at_random("mxfp4_e2m1", (4, 5, 20), 8)
    got = mx.matmul(a, b.transpose(0, 2, 1), accumulate=accumulate)
    assert got.shape == (2, 4, 3, 5)
    for i, j in np.ndindex(2, 4):
        want = mx.matmul(a[i, 0], b[j].T, accumulate=accumulate)
        assert got[i, j].tobytes() == want.tobytes()
    assert mx.matmul(a, b[0].T, accumulate=accumulate)[1, 0].tobytes() == got[1, 0].tobytes()
    assert mx.matmul(a[:0], b[0].T, accumulate=accumulate).shape == (0, 1, 3, 5)


#: Pairs of shapes of stacks of matrices. Some matrices have only whole tiles, others have partial
#: tiles or a single row. In some pairs, either stack is broadcast.
STACKS = [((2, 3, 8, 40), (2, 3, 5, 40)), ((7, 4, 64), (7, 64, 64)), ((5, 1, 9, 37), (3, 70, 37)), ((3, 70, 32), (1, 3, 32)),
          ((2, 1, 1, 64), (4, 1, 64))]  # fmt: skip


@pytest.mark.parametrize("pair", [("mxfp4_e2m1", "mxint8"), ("mxfp6_e3m2", "mxfp4_e2m1"), ("mxfp8_e4m3", "mxfp4_e2m1"),
                                  ("mxfp8_e5m2", "mxfp8_e5m2"), ("nvfp4", "nvfp4")], ids="-".join)  # fmt: skip
def test_stacks_of_small_matrices(pair, monkeypatch):
    """Check that each product in a stack equals a product of two matrices, with several threads."""
    monkeypatch.setattr(by_floats, "MULTIPLICATIONS_PER_THREAD", 1)
    for left, right in STACKS:
        make = with_float_scales if pair[0] == "nvfp4" else codes_at_random
        a, b = (make(name, shape, 16, spread=3) for name, shape in zip(pair, (left, right), strict=True))
        b = b.transpose(*range(b.ndim - 2), -1, -2)
        for chunk, threads in ((1, 3), (1 << 20, 1)):
            monkeypatch.setattr(by_floats, "_CHUNK", chunk)
            got = mx.matmul(a, b, threads=threads)
            batch = np.broadcast_shapes(left[:-2], right[:-2])
            assert got.shape == (*batch, left[-2], right[-2])
            for place in np.ndindex(batch):
                x, y = (
                    q[
                        tuple(
                            0 if n == 1 else i
                            for n, i in zip(q.shape[:-2], place[len(batch) - q.ndim + 2 :], strict=True)
                        )
                    ]
                    for q in (a, b)
                )
                assert bits(mx.matmul(x, y)) == bits(got[place]), (left, right, place)


def test_layouts_of_operands():
    rng = samples.generator("layouts")
    a, turned = codes_at_random("mxfp8_e4m3", (6, 40), 32), codes_at_random("mxfp8_e4m3", (7, 40), 32, 1).T
    b = mx.MXArray.from_parts(np.ascontiguousarray(turned.codes), np.ascontiguousarray(turned.scales), "mxfp8_e4m3",
                              blocks=(32, 1))  # fmt: skip
    assert turned.equals(b)
    for accumulate in Accumulate:
        assert mx.matmul(a, b, accumulate=accumulate).tobytes() == mx.matmul(a, turned, accumulate=accumulate).tobytes()
        # (a b)^T = b^T a^T, with the same terms in the same order.
        if accumulate != "blas":
            turned_product = mx.matmul(b.T, a.T, accumulate=accumulate)
            assert turned_product.T.tobytes() == mx.matmul(a, b, accumulate=accumulate).tobytes()
    # Operands in tiles, or with blocks across the summed axis, are decoded before the product.
    w = floats("float64", (40, 7))
    for blocks in ((4, 8), (6, 1), (1, 8)):
        scales = rng.integers(100, 150, [-(-n // block) for n, block in zip((6, 40), blocks, strict=True)], np.uint8)
        q = mx.MXArray.from_parts(a.codes, scales, "mxfp8_e4m3", blocks=blocks)
        values = q.dequantize()
        for accumulate in ("exact", "sequential"):
            with np.errstate(all="ignore"):
                got, want = (mx.matmul(x, w, accumulate=accumulate) for x in (q, values))
            assert got.tobytes() == want.tobytes()
    codes, scales = rng.integers(0, 256, (3, 6, 40), np.uint8), rng.integers(100, 150, (2, 2, 5), np.uint8)
    deep = mx.MXArray.from_parts(codes, scales, "mxfp8_e4m3", blocks=(2, 4, 8))
    wide = mx.MXArray.from_parts(codes, np.repeat(np.repeat(scales, 2, 0)[:3], 4, 1)[:, :6], "mxfp8_e4m3", block_size=8)
    weights = codes_at_random("mxfp4_e2m1", (7, 40), 8).T
    assert mx.matmul(deep, weights).tobytes() == mx.matmul(wide, weights).tobytes()


@pytest.mark.parametrize("accumulate", DEFINED)
def test_out_dtype_rounds_once_more(accumulate):
    a, b = codes_at_random("mxfp8_e5m2", (5, 40), 8), codes_at_random("mxfp6_e2m3", (6, 40), 8)
    wide = mx.matmul(a, b.T, accumulate=accumulate)
    for name in ("bfloat16", "float16"):
        got = mx.matmul(a, b.T, accumulate=accumulate, out_dtype=name)
        assert got.dtype == name
        want = mx.encode(wide, name, overflow="ieee")
        assert got.view(np.uint16).tolist() == want.tolist()
    got = mx.dot(a[0], b[0], accumulate=accumulate, out_dtype=ml_dtypes.bfloat16)
    want = reference.dot(rows(a)[0], rows(b)[0], accumulate=accumulate, out_dtype="bfloat16")
    assert got.tobytes() == want.tobytes()


def test_blas_is_numpy_on_the_float32_values():
    a, b = codes_at_random("mxfp4_e2m1", (8, 40), 8, special=0), codes_at_random("mxint8", (8, 40), 8, special=0)
    assert np.array_equal(mx.matmul(a, b.T, accumulate="blas"), a.dequantize() @ b.dequantize().T)
    x = samples.generator("blas").standard_normal((40, 3))
    assert np.array_equal(mx.matmul(a, x, accumulate="blas"), a.dequantize() @ x.astype(np.float32))


def test_a_term_of_minus_zero_keeps_a_sum_that_underflowed_to_minus_zero():
    for name, minus_one, one in (("mxfp8_e4m3", 0xB8, 0x38), ("mxfp4_e2m1", 0xA, 2)):
        a = mx.MXArray.from_parts(np.uint8([[minus_one, 1 << (minus_one.bit_length() - 1)]]), np.uint8([[0, 0]]), name,
                                  block_size=1)  # fmt: skip
        b = mx.MXArray.from_parts(np.uint8([[one, one]]), np.uint8([[0, 0]]), name, block_size=1)
        assert mx.matmul(a, b.T, accumulate="sequential").view(np.uint32)[0, 0] == 1 << 31
        check(a, b, "sequential")


def bits(x):
    return np.asarray(x).tobytes()


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("accumulate", Accumulate)
def test_out(accumulate, out_dtype):
    a = codes_at_random("mxfp8_e5m2", (2, 1, 3, 40), 8)
    b = codes_at_random("mxfp6_e2m3", (4, 5, 40), 8).transpose(0, 2, 1)
    how = {"accumulate": accumulate, "out_dtype": out_dtype}
    want = mx.matmul(a, b, **how)
    for room in (np.empty(want.shape, want.dtype), np.empty((2, 4, 5, 6), want.dtype).swapaxes(2, 3)[:, :, ::2]):
        assert mx.matmul(a, b, **how, out=room) is room
        assert bits(room) == bits(want)
        # Without `out_dtype`, the dtype of `out` decides.
        assert bits(mx.matmul(a, b, accumulate=accumulate, out=room)) == bits(want)
    zero = np.empty((), want.dtype)
    row, column = a[0, 0, 0], b[0, :, 1]
    assert mx.dot(row, column, **how, out=zero) is zero
    assert bits(zero) == bits(mx.dot(row, column, **how))


@pytest.mark.parametrize("accumulate", ["exact", "sequential", "blas"])
def test_out_may_overlap_the_operands(accumulate):
    x = samples.generator("overlap").standard_normal((40, 40)).astype(np.float32)
    want = mx.matmul(x, x, accumulate=accumulate)
    assert bits(mx.matmul(x, x, accumulate=accumulate, out=x)) == bits(want)


@pytest.mark.parametrize("accumulate", DEFINED)
def test_results_do_not_depend_on_threads(accumulate, monkeypatch):
    """Check that 1 to 8 threads give equal results.

    The test lowers the limits below which a product is too small for threads.
    """
    monkeypatch.setattr(by_floats, "MULTIPLICATIONS_PER_THREAD", 1)
    monkeypatch.setattr(by_definition, "PRODUCTS_PER_THREAD", 1)
    for m, n in ((40, 100), (1, 130), (130, 1), (70, 3), (1, 1), (0, 4), (40, 40)):
        a, b = codes_at_random("mxfp8_e5m2", (m, 90), 32), codes_at_random("mxfp8_e4m3", (n, 90), 32)
        results = {bits(mx.matmul(a, b.T, accumulate=accumulate, threads=threads)) for threads in (1, 2, 3, 8, None)}
        assert len(results) == 1
    assert len({bits(mx.dot(a[0], b[0], accumulate=accumulate, threads=threads)) for threads in (1, 2)}) == 1


def test_threads_are_those_allowed(monkeypatch):
    seen = []
    original = workers.Thread

    def spy(**keywords):
        seen.append(keywords)
        return original(**keywords)

    monkeypatch.setattr(workers, "Thread", spy)
    monkeypatch.setattr(by_floats, "MULTIPLICATIONS_PER_THREAD", 1)
    q = codes_at_random("mxfp4_e2m1", (200, 64), 32)
    for threads, more in ((1, 0), (2, 2), (3, 4)):  # threads start twice: to pack rows, and to multiply
        seen.clear()
        mx.matmul(q, q.T, threads=threads)
        assert len(seen) == more
    monkeypatch.setattr(workers, "usual_threads", lambda: 2)
    seen.clear()
    mx.matmul(q, q.T)
    assert len(seen) == 2
    monkeypatch.undo()
    seen.clear()
    mx.matmul(q, q.T, threads=8)
    assert not seen  # too little work for threads


X = np.ones((4, 64), np.float32)
# The MX arrays below are built from parts, because quantizing would compile while pytest collects
# tests.
CODES, SCALES = np.zeros((4, 64), np.uint8), np.full((4, 2), 127, np.uint8)
Q = mx.MXArray.from_parts(CODES, SCALES, "mxfp8_e4m3")
OFFSET = mx.MXArray.from_parts(CODES, SCALES, "mxfp8_e4m3", offsets=np.zeros((4, 2), np.float16))
ERRORS = {
    "integers": (lambda: mx.matmul(X.astype(int), X.T, accumulate="exact"), "'a' must be an array of float64, float32, bfloat16 or float16, not int64"),
    "not an array": (lambda: mx.dot(X[0], object(), accumulate="exact"), "'b' must be an array of"),
    "matrices in dot": (lambda: mx.dot(X, X[0], accumulate="exact"), "'a' must be one-dimensional, not (4, 64)"),
    "vectors in matmul": (lambda: mx.matmul(Q, Q[0]), "'b' must be of at least two axes, not (64,)"),
    "lengths in dot": (lambda: mx.dot(Q[0], Q[0, :32]), "'b' must be of length 64, not 32"),
    "lengths in matmul": (lambda: mx.matmul(Q, Q), "'b' must be of length 64 along its last but one axis, not (4, 64)"),
    "leading axes": (lambda: mx.matmul(np.ones((2, 3, 4)), np.ones((3, 4, 5)), accumulate="exact"), "'b' must be of leading axes that broadcast with (2,), not (3,)"),
    "unknown accumulation": (lambda: mx.dot(Q[0], Q[0], accumulate="blok"), "'accumulate' must be one of ['exact', 'block', 'sequential', 'blas'], not 'blok'; did you mean 'block'?"),
    "block of floats": (lambda: mx.matmul(X, Q.T), "'a' must be an MXArray if accumulate='block', not 'float32'; the other orders of summation, such as 'exact', accept floats."),
    "block by floats": (lambda: mx.matmul(Q, X.T), "'b' must be an MXArray if accumulate='block', not 'float32'; the other orders of summation, such as 'exact', accept floats."),
    "block with offsets": (lambda: mx.matmul(Q, OFFSET.T), "'b' must be without offsets if accumulate='block'"),
    "blocks across the sum": (lambda: mx.matmul(Q, mx.quantize(X.T, "mxfp8_e4m3")), "'b' must be in blocks of 32 along the summed axis with accumulate='block', not 1"),
    "blocks of other lengths": (lambda: mx.dot(Q[0], mx.quantize(X[0], "mxint8", block_size=16)), "'b' must be in blocks of 32 along the summed axis with accumulate='block', not 16"),
    "float64 results": (lambda: mx.matmul(Q, Q.T, out_dtype="float64"), "'out_dtype' must be one of ['float32', 'bfloat16', 'float16'], not 'float64'"),
    "integer results": (lambda: mx.matmul(Q, Q.T, out_dtype=np.int32), "'out_dtype' must be one of"),
    "out of another shape": (lambda: mx.matmul(Q, Q.T, out=np.empty((4, 5), np.float32)), "'out' must be of shape (4, 4), not (4, 5)"),
    "out of another dtype": (lambda: mx.matmul(Q, Q.T, out_dtype="float16", out=np.empty((4, 4), np.float32)), "'out' must be of dtype float16, not"),
    "out of float64": (lambda: mx.matmul(Q, Q.T, out=np.empty((4, 4))), "'out.dtype' must be one of ['float32', 'bfloat16', 'float16'], not 'float64'"),
    "an addend of another shape": (lambda: mx.matmul(Q, Q.T, np.zeros((4, 5))), "'c' must be of a shape that broadcasts to (4, 4), not (4, 5)"),
    "out of dot": (lambda: mx.dot(Q[0], Q[0], out=np.empty(1, np.float32)), "'out' must be of shape (), not (1,)"),
    "out that is no array": (lambda: mx.matmul(Q, Q.T, out=[0]), "'out' must be a numpy array, not 'list'"),
    "threads": (lambda: mx.matmul(Q, Q.T, threads=0), "'threads' must be"),
    "results of no type": (lambda: mx.matmul(Q, Q.T, out_dtype=object()), "'out_dtype' must be one of"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_one_sentence(case):
    call, fragment = ERRORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    assert fragment in message
    assert re.fullmatch(r"Argument .* must be .*[.?]", message), message


@pytest.mark.parametrize("accumulate", ["exact", "sequential", "hopper_fp8"])
def test_blocks_longer_than_the_array_cost_no_memory(accumulate):
    """Check huge blocks. Regression: repeating a scale for its whole block took 4 GiB or more."""
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    rows = [mx.quantize(x, "e4m3:scale=float32", block_shape=shape) for shape in ((1 << 40, 1 << 40), (4, 64))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mx.units.EvidenceWarning)
        long, exact = (mx.matmul(q, q.T, accumulate=accumulate) for q in rows)
    assert np.array_equal(long.view(np.uint32), exact.view(np.uint32))

"""Tests that sums in matrix units equal the reference, for any length and special values."""

# ruff: noqa: E501 (each case of a table is on one line)

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.machine import workers
from mxnum.engine.products import fused_by_definition
from mxnum.formats import FLOATS, SCALES
from mxnum.memory.dtypes import ML_DTYPES, numpy_dtype, scale_dtype
from mxnum.reference import Blocked, unit_dot
from tests import samples

pytestmark = pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
UNITS = mx.units.names()


def elements(source, shape, rng, special):
    """Return random codes. In half of the calls, most exponents are close to each other.

    If `special` is True, a few codes are infinite or NaN.
    """
    codes = rng.integers(0, 1 << source.bits, shape)
    if not special and source.specials != "none":
        codes = np.minimum(codes & ((1 << (source.bits - 1)) - 1), source.max_code) | (codes & (1 << (source.bits - 1)))
    elif special:
        finite = np.minimum(codes & ((1 << (source.bits - 1)) - 1), source.max_code)
        codes = np.where(rng.random(shape) < 0.03, codes, finite | (codes & (1 << (source.bits - 1))))
    if rng.random() < 0.5 and source.exponent_bits >= 4:  # near each other
        low = (source.bias - 3) << source.mantissa_bits
        near = low + rng.integers(0, 7 << source.mantissa_bits, shape)
        codes = np.where(rng.random(shape) < 0.9, near | (codes & (1 << (source.bits - 1))), codes)
    return np.where(rng.random(shape) < 0.1, codes & (1 << (source.bits - 1)), codes)  # zeros of both signs


def operand(unit, name, shape, rng, special=False, scale=None):
    """Return a random operand: floats, or an MX array with blocks along its last axis."""
    source = unit.formats[name]
    codes = elements(source, shape, rng, special)
    if scale is None:
        if name == "tf32":
            return (codes.astype(np.uint32) << 13 | rng.integers(0, 1 << 13, shape, np.uint32)).view(np.float32)
        dtype = np.dtype(getattr(ml_dtypes, ML_DTYPES[name])) if name in ML_DTYPES else np.dtype(name)
        return codes.astype(f"u{dtype.itemsize}").view(dtype)
    kind, block = scale
    counts = (*shape[:-1], -(-shape[-1] // block))
    if kind == "float32":
        scales = np.abs(rng.standard_normal(counts) * np.exp2(rng.integers(-20, 20, counts))).astype(np.float32)
    elif kind == "e8m0":
        scales = rng.integers(110, 140, counts, dtype=np.uint8)
        scales = np.where(rng.random(counts) < 0.1, rng.integers(0, 254 + special, counts), scales).astype(np.uint8)
    else:
        scales = rng.integers(0, SCALES[kind].max_code + 1 + special, counts).astype(scale_dtype(SCALES[kind]))
    fmt = mx.MXFormat(source, kind, block)
    return mx.MXArray.from_parts(codes.astype(np.uint8), scales, fmt, block_size=block)


def addend(unit, shape, rng, special=False):
    fmt = FLOATS[unit.accumulator]
    bits = elements(fmt, shape, rng, special).astype(f"u{fmt.bits // 8}")
    return bits.view(unit.accumulator)


def rows(x):
    if not isinstance(x, mx.MXArray):
        return list(x)
    return [Blocked(c, s, x.format, x.blocks[-1]) for c, s in zip(x.codes, x.scales, strict=True)]


def pairs(unit):
    """Return three cases (format of a, format of b, scale) that cover all formats of a unit."""
    scales = unit.scales or ((None, ("float32", unit.promotion)) if unit.promotion else (None,))
    names = unit.operands
    return [(names[i % len(names)], names[(i * 2) % len(names)], scales[i % len(scales)]) for i in range(3)]


def want(a, b, unit, c):
    return np.array([[unit_dot(p, q, unit, c[i, j]) for j, q in enumerate(rows(b))] for i, p in enumerate(rows(a))])


def compare(a, b, unit, c, **how):
    got = mx.matmul(a, b.T, c, accumulate=unit, **how)
    bits = got.view(f"u{got.itemsize}").astype(np.int64)
    samples.assert_same(unit.name, None, bits.ravel(), want(a, b, unit, c).ravel())


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
def test_every_unit(name, special):
    unit, rng = mx.units.get(name), samples.generator("fused", name, special)
    for k, pair in zip((unit.k[-1], 1, 2 * unit.k[-1] + 5), pairs(unit), strict=True):
        a, b = (operand(unit, pair[side], (n, k), rng, special, pair[2]) for side, n in ((0, 4), (1, 3)))
        compare(a, b, unit, addend(unit, (4, 3), rng, special))


@pytest.mark.parametrize("name", [name for name in UNITS if mx.units.get(name).accumulator == "float32"])
def test_float_hardware_equals_the_definition(name, monkeypatch):
    unit, rng = mx.units.get(name), samples.generator("floats", name)
    for special in (False, True):
        for first, second, scale in pairs(unit):
            a = operand(unit, first, (21, 300), rng, special, scale)
            b = operand(unit, second, (50, 300), rng, special, scale)
            c = addend(unit, (21, 50), rng, special)
            fast = mx.matmul(a, b.T, c, accumulate=unit)
            with monkeypatch.context() as patch:
                patch.setattr(workers, "may_use_floats", lambda: False)
                slow = mx.matmul(a, b.T, c, accumulate=unit)
            samples.assert_same(name, None, fast.view(np.uint32).ravel(), slow.view(np.uint32).ravel())


@pytest.mark.parametrize("name", UNITS)
def test_sums_of_the_largest_significands(name):
    unit = mx.units.get(name)
    k, source = unit.k[-1], unit.formats[unit.operands[0]]
    most = (source.bias << source.mantissa_bits) + (1 << source.mantissa_bits) - 1  # just below 2
    if unit.scales:
        scales = np.full((1, k // unit.scales[0][1]), 0x3F if unit.group > 1 else 127, np.uint8)
        fmt = mx.MXFormat(source, unit.scales[0][0], unit.scales[0][1])
        x = mx.MXArray.from_parts(np.full((1, k), most, np.uint8), scales, fmt)
    else:
        dtype = np.dtype(np.float32) if name.endswith("tf32") else numpy_dtype(source)
        codes = np.full((1, k), most << 13 if name.endswith("tf32") else most)
        x = codes.astype(f"u{dtype.itemsize}").view(dtype)
    c = np.array([[2.0 - 2.0**-9]], unit.accumulator)
    compare(x, x, unit, c)
    compare(x, x, unit, -c)


def test_results_at_the_ends_of_float32():
    """Check sums that are subnormal, sums that are truncated to zero, and sums that overflow."""
    tiny = np.float32([[2.0**-149, -(2.0**-149), 2.0**-126, -(2.0**-130), 0, 2.0**127, -(2.0**127), 2.0**-100]])
    a = np.concatenate([tiny, -tiny, tiny[:, ::-1]]).astype(ml_dtypes.bfloat16)
    for scale in (2.0**-60, 2.0**-149, 1.0, 2.0**127):
        b = np.diag(np.full(8, scale, ml_dtypes.bfloat16))
        for name in ("hopper_bfloat16", "ampere_bfloat16"):
            c = np.float32([[-0.0, 2.0**-149, -(2.0**-149), 3 * 2.0**-149, 2.0**-126, 2.0**127, -(2.0**127), 0]])
            fast = mx.matmul(a, b, c, accumulate=name)
            want_bits = [[unit_dot(row, b[:, j], mx.units.get(name), c[0, j]) for j in range(8)] for row in a]
            assert fast.view(np.uint32).tolist() == want_bits


def test_an_infinity_beside_finite_products_that_overflow():
    a, b = np.zeros((1, 16), ml_dtypes.bfloat16), np.zeros((16, 1), ml_dtypes.bfloat16)
    a[0, :3], b[:3, 0] = (3e38, 3e38, 1), (3e38, 3e38, -np.inf)
    for c in (0.0, 1.0):
        got = mx.matmul(a, b, c=np.full((1, 1), c, np.float32), accumulate="hopper_bfloat16")
        assert got[0, 0] == -np.inf
        assert unit_dot(a[0], b[:, 0], mx.units.get("hopper_bfloat16"), c) == 0xFF800000


def test_an_instruction_whose_last_sum_is_short():
    unit = mx.units.MatrixUnit("short", ("float16",), (12, 16), 8, 25, addend="after")
    a, b = np.zeros((1, 12), np.float16), np.ones((12, 1), np.float16)
    a[0, [0, 8]] = 1
    got = mx.mma(a, b, np.full((1, 1), 2.0**24, np.float32), unit)
    assert got[0, 0] == 2.0**24 + 2  # the addend is added once, to the total of both sums
    assert got.view(np.uint32)[0, 0] == unit_dot(a[0], b[:, 0], unit, 2.0**24, k=12)


def test_promotion_in_blocks_with_and_without_scales():
    unit, rng = mx.units.get("hopper_fp8_promoted"), samples.generator("promotion")
    for scale in (None, ("float32", 128)):
        a, b = (operand(unit, "e4m3", (n, 300), rng, False, scale) for n in (3, 2))
        compare(a, b, unit, addend(unit, (3, 2), rng))


def test_scales_that_span_the_sum_are_factors_of_the_result():
    rng = samples.generator("factors")
    unit = mx.units.get("hopper_fp8")
    a, b = (operand(unit, "e4m3", (n, 40), rng, False, ("float32", 64)) for n in (3, 2))
    plain = [x.codes.view(ml_dtypes.float8_e4m3fn) for x in (a, b)]
    sums = mx.matmul(plain[0], plain[1].T, accumulate=unit)
    got = mx.matmul(a, b.T, accumulate=unit)
    assert got.tolist() == (sums * (a.scales * b.scales.T)).tolist()
    q = mx.quantize(rng.standard_normal((3, 64)).astype(np.float32), "nvfp4")
    inner = mx.MXArray.from_parts(q.codes, q.scales, mx.MXFormat("e2m1", "e4m3", 16), block_size=16)
    sums = mx.matmul(inner, inner.T, accumulate="blackwell_nvfp4")
    assert mx.matmul(q, q.T, accumulate="blackwell_nvfp4").tolist() == (sums * q.tensor_scale**2).tolist()


@pytest.mark.parametrize("name", ["hopper_fp8", "blackwell_mxfp8", "hopper_float16_acc16"])
def test_every_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(fused_by_definition, "PRODUCTS_PER_THREAD", 1)
    unit, rng = mx.units.get(name), samples.generator("threads", name)
    scale = unit.scales[0] if unit.scales else None
    for m, n in ((37, 40), (1, 50), (50, 1), (0, 4)):
        a, b = (operand(unit, unit.operands[0], (rows, 70), rng, True, scale) for rows in (m, n))
        c = addend(unit, (m, n), rng, True)
        results = {mx.matmul(a, b.T, c, accumulate=unit, threads=t).tobytes() for t in (1, 2, 3, 8, None)}
        assert len(results) == 1


def test_batches_broadcast_and_outputs_are_written():
    rng = samples.generator("batches")
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 1, 3, 20), (4, 20, 5)))
    got = mx.matmul(a, b, np.float32([7.0]), accumulate="hopper_float16")
    assert got.shape == (2, 4, 3, 5)
    for i in range(2):
        for j in range(4):
            c = np.full((3, 5), 7, np.float32)
            assert got[i, j].tolist() == mx.matmul(a[i, 0], b[j], c, accumulate="hopper_float16").tolist()
    out = np.empty((2, 4, 3, 5), np.float16)
    assert mx.matmul(a, b, np.float32([7.0]), accumulate="hopper_float16", out=out) is out
    assert out.tolist() == got.astype(np.float16).tolist()
    dot = mx.dot(a[0, 0, 0], b[0, :, 0], np.float32(7), accumulate="hopper_float16")
    assert dot == got[0, 0, 0, 0]


NARROW = np.ones((2, 32), ml_dtypes.float8_e4m3fn)
ERRORS = {
    "a format": (lambda: mx.matmul(NARROW.astype(np.float16), NARROW.T, accumulate="hopper_fp8"), "'a' must be an array of e4m3 or e5m2 for unit 'hopper_fp8', not 'float16'"),
    "no scales": (lambda: mx.matmul(NARROW, NARROW.T, accumulate="blackwell_mxfp8"), "'a' must be an MX array of e4m3, e5m2, e3m2, e2m3 or e2m1 elements with e8m0 scales in blocks of 32"),
    "scales": (lambda: mx.matmul(NARROW, mx.quantize(np.ones((32, 2)), "mxfp8_e4m3", axis=0), accumulate="hopper_fp8"), "'b' must be an array of e4m3 or e5m2 for unit 'hopper_fp8', not 'e8m0 scales in blocks of 32 along the summed axis'"),
    "an impossible K": (lambda: mx.mma(NARROW[:, :8], NARROW[:, :8].T, None, "hopper_fp8"), "'a' must be of length 32 along its last axis for one instruction of unit 'hopper_fp8', not 8"),
    "an addend": (lambda: mx.mma(NARROW, NARROW.T, np.zeros((2, 2)), "hopper_fp8"), "'c' must be an array of float32 for unit 'hopper_fp8', not 'float64'"),
    "the shape of an addend": (lambda: mx.mma(NARROW, NARROW.T, np.zeros(3, np.float32), "hopper_fp8"), "'c' must be of a shape that broadcasts to (2, 2), not (3,)"),
    "a type of the addend's unit": (lambda: mx.mma(np.ones((1, 16), np.float16), np.ones((16, 1), np.float16), np.ones((1, 1), np.float32), "hopper_float16_acc16"), "'c' must be an array of float16 for unit 'hopper_float16_acc16', not 'float32'"),
    "integers": (lambda: mx.mma(NARROW.view(np.uint8), NARROW.T, None, "hopper_fp8"), "'a' must be an array of e4m3 or e5m2 for unit 'hopper_fp8', not 'uint8'"),
    "elements": (lambda: mx.matmul(*[mx.quantize(np.ones((32, 32)), "mxint8", axis=axis) for axis in (-1, -2)], accumulate="blackwell_mxfp8"), "with e8m0 scales in blocks of 32 for unit 'blackwell_mxfp8', not 'mxint8'"),
    "blocks": (lambda: mx.matmul(*[mx.quantize(np.ones((64, 64)), "e4m3:block=32,scale=float32", axis=axis) for axis in (-1, -2)], accumulate="hopper_fp8_promoted"), "'a' must be an array of e4m3 or e5m2, or an MX array of e4m3 or e5m2 elements with float32 scales in blocks of 128 for unit 'hopper_fp8_promoted', not 'float32 scales in blocks of 32 along the summed axis'"),
    "scales of rows": (lambda: mx.matmul(NARROW, mx.quantize(np.ones((32, 2)), "e4m3:block=32,scale=float32", axis=0), accumulate="hopper_fp8_mma_acc16"), "'b' must be an array without scales for unit 'hopper_fp8_mma_acc16', not 'an array with float32 scales'"),
    "one axis": (lambda: mx.mma(NARROW[0], NARROW.T, None, "hopper_fp8"), "'a' must be of at least two axes, not (32,)"),
    "another K": (lambda: mx.mma(NARROW, NARROW.T[:16], None, "hopper_fp8"), "'b' must be of length 32 along its last but one axis"),
    "a matrix for a vector": (lambda: mx.dot(NARROW, NARROW, accumulate="hopper_fp8"), "'a' must be one-dimensional, not (2, 32)"),
    "no unit": (lambda: mx.mma(NARROW, NARROW.T, None, None), "'unit' must be one of ['volta_float16', "),
    "a name": (lambda: mx.matmul(NARROW, NARROW.T, accumulate="hoper_fp8"), "did you mean 'hopper_fp8'?"),
}  # fmt: skip


def test_dot_of_scaled_vectors():
    """Check `dot` of MX arrays with a unit that has scales.

    Regression: `dot` raised an error for MX arrays.
    """
    q = mx.quantize(np.linspace(-3, 3, 64, dtype=np.float32), "mxfp8_e4m3")
    rows = mx.quantize(np.linspace(-3, 3, 64, dtype=np.float32)[None], "mxfp8_e4m3")
    product = mx.matmul(rows, rows.T, np.float32([[5]]), accumulate="blackwell_mxfp8")[0, 0]
    assert mx.dot(q, q, np.float32(5), accumulate="blackwell_mxfp8") == product
    half = mx.quantize(np.ones(32, np.float32), "nvfp4", tensor_scale=0.5)
    square = mx.quantize(np.ones((1, 32), np.float32), "nvfp4", tensor_scale=0.5)
    product = mx.matmul(square, square.T, accumulate="blackwell_nvfp4")[0, 0]
    assert mx.dot(half, half, accumulate="blackwell_nvfp4") == product > 30


def test_an_infinity_under_a_zero_scale_is_nan():
    """Check that an infinity under a scale of 0 makes the sum NaN.

    Regression: the sum was infinite. No registered unit has both infinities and scales of 0.
    """
    unit = mx.units.MatrixUnit("zero scales", ("e5m2",), (32,), 16, 20, scales=(("e4m3", 16),))
    fmt = mx.formats.get("e5m2:block=16,scale=e4m3")
    codes, ones = np.zeros((1, 32), np.uint8), np.full((1, 32), 0x3C, np.uint8)
    codes[0, 0] = 0x7C
    for at in (0, 1):  # `at` is the block with scale 0; the infinity lies in block 0
        scales = np.array([[56, 56]], np.uint8)
        scales[0, at] = 0
        a, b = (
            mx.MXArray.from_parts(codes, scales, fmt),
            mx.MXArray.from_parts(ones, np.full((1, 2), 56, np.uint8), fmt),
        )
        got = mx.matmul(a, b.T, accumulate=unit).view(np.uint32)[0, 0]
        want = unit_dot(Blocked(codes[0], scales[0], fmt, 16), Blocked(ones[0], np.uint8([56, 56]), fmt, 16), unit)
        assert got == want == (0x7F800000 if at else 0x7FFFFFFF)


@pytest.mark.parametrize("case", ERRORS)
def test_one_sentence(case):
    call, fragment = ERRORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert fragment in str(caught.value)
    assert str(caught.value).count("\n") == 0

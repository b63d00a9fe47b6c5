"""Random cases with float scales, in which mxnum must give the results of the reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import mxnum as mx
from mxnum import formats, reference
from mxnum.layout import resolve_blocks, scales_shape
from mxnum.memory.dtypes import scale_dtype

FORMATS = (
    "nvfp4",
    "e4m3:block=128,scale=float32",
    "e2m1:block=16,scale=e4m3",
    "e2m1:block=16,scale=ue5m3,tensor_scale=float32",
    "int8:block=7,scale=bfloat16",
    "e5m2:block=32,scale=float16,tensor_scale=float32",
    "int4:block=5,scale=float16",
    "e3m0:block=16,scale=ue5m3",
    "e4m3:block=4,scale=e4m3,tensor_scale=float32",
    "e3m2:block=64,scale=float32",
    "e3m4:bias=3,specials=nan,block=16,scale=e4m3,tensor_scale=float32",
)
SHAPES = (3, 40), (2, 3, 17), (37,), (5, 130), (20, 6), (1, 1), (), (4, 3, 5), (0, 4)
DTYPES = tuple(map(np.dtype, (np.float32, np.float64, ml_dtypes.bfloat16, np.float16)))
FOUR_OVER_SIX = "four_over_six_absolute", "four_over_six_squared"


def same(a, b):
    """Return True if shapes, types and bits are equal."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def numbers(rng, shape, dtype):
    """Return numbers of a random kind.

    The kinds are normally distributed numbers, numbers spread over many binades, small multiples of
    one power of two (some are ties), random bit patterns, and arrays that are mostly zero.
    """
    kind, size = rng.integers(5), int(np.prod(shape))
    with np.errstate(all="ignore"):
        if kind == 3:
            x = np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).copy()
        else:
            x = {
                0: lambda: rng.normal(size=size),
                1: lambda: rng.normal(size=size) * 2.0 ** rng.integers(-30, 30, size=size),
                2: lambda: rng.integers(-12, 13, size=size) / 2 * 2.0 ** rng.integers(-120, 110),
                4: lambda: np.where(rng.random(size) < 0.7, 0, rng.normal(size=size)),
            }[int(kind)]().astype(dtype)
    if size and rng.random() < 0.3:
        x[rng.integers(size)] = (np.inf, np.nan, -np.inf, -0.0)[rng.integers(4)]
    return x.reshape(shape)


def case(rng):
    """Return a random case: x, format name, keywords for blocks, block lengths, other keywords."""
    name = FORMATS[rng.integers(len(FORMATS))]
    fmt, dtype, shape = formats.get(name), DTYPES[rng.integers(4)], SHAPES[rng.integers(len(SHAPES))]
    x, layout, kind = numbers(rng, shape, dtype), {}, rng.integers(4)
    if kind == 0 and len(shape) >= 2:
        layout["block_shape"] = (int(rng.integers(1, 5)), int(rng.integers(1, 20)))
    elif kind == 1 and len(shape) >= 1:
        layout["axis"] = int(rng.integers(len(shape)))
    elif kind == 2 and len(shape) == 3:
        layout["blocks"] = tuple(int(length) for length in rng.integers(1, 5, size=3))
    blocks = resolve_blocks(shape, fmt.block, **layout)
    options = {
        "rounding": str([*mx.Rounding][rng.integers(7)]),
        "overflow": str([*mx.Overflow][rng.integers(2)]),
        "nonfinite": ("block", "element")[rng.integers(2)],
    }
    if options["rounding"] == "sr":
        options["random_bits"] = rng.integers(0, 1 << 32, size=shape, dtype=np.uint32)
        options["sr_bits"] = int(rng.integers(1, 31))
    rules = ("nearest", "rceil", *(FOUR_OVER_SIX if fmt.element.name == "e2m1" else ()))
    if rng.random() < 0.7:
        options["scale_rule"] = rules[rng.integers(len(rules))]
    if fmt.tensor_scale:
        options |= tensor_scale(rng, shape, blocks)
    if rng.random() < 0.2:
        options["scales"] = scales(rng, fmt.scale, scales_shape(shape, blocks))
        options.pop("scale_rule", None)
    if options["nonfinite"] == "element" and fmt.element.nan_code is None:
        x = np.where(np.isnan(x.astype(np.float64)), dtype.type(0), x).astype(dtype)
    return x, name, layout, blocks, options


def tensor_scale(rng, shape, blocks):
    """Return random keywords: a tensor scale for the array or for each row, computed or given."""
    kind = rng.integers(4)
    if kind == 1 and shape and all(block == 1 for block in blocks[:-1]):
        return {"tensor_scale": "row"}
    if kind == 2:
        return {"tensor_scale": np.array(abs(rng.normal()) * 2.0 ** rng.integers(-60, 60) + 1e-40, np.float32)}
    if kind == 3 and shape:
        along = [n if b == 1 and rng.random() < 0.7 else 1 for n, b in zip(shape, blocks, strict=True)]
        return {"tensor_scale": (np.abs(rng.normal(size=along)) + 1e-3).astype(np.float32)}
    return {}


def scales(rng, scale, shape):
    """Return random scales without a sign, including special values."""
    width = min(scale.bits, scale.number.bits - 1)
    codes = rng.integers(0, 1 << width, size=shape).astype(f"u{scale.bits // 8}")
    return codes.view(scale_dtype(scale))


def laid_out(rng, x):
    """Return x in a random memory layout: in C order, in Fortran order, or strided."""
    kind = rng.integers(3) if x.ndim else 0
    if kind == 1:
        return np.asfortranarray(x)
    return np.repeat(x, 2, -1)[..., ::2] if kind == 2 else x


def check(x, name, layout, blocks, options, rng, dtype=None):
    """Assert that `quantize`, `dequantize` and `fake_quantize` give the results of the reference.

    Decoded values have the type `dtype`, or a random type if `dtype` is None.
    """
    told = (name, x.dtype, x.shape, layout, {k: v for k, v in options.items() if k != "random_bits"})
    want = reference.quantize(x, name, blocks=blocks, **options)
    x = laid_out(rng, x)
    got = mx.quantize(x, name, **layout, **options, packed=bool(rng.integers(2)))
    assert same(got.scales, want.scales), told
    assert same(got.codes, want.codes), told
    assert (got.tensor_scale is None) == (want.tensor_scale is None), told
    if want.tensor_scale is not None:
        assert same(got.tensor_scale, want.tensor_scale), told
    dtype = dtype or DTYPES[rng.integers(4)].name
    kept = {"blocks": blocks, "tensor_scale": want.tensor_scale}
    values = reference.dequantize(want.codes, want.scales, name, dtype=dtype, **kept)
    assert same(got.dequantize(dtype), values), (dtype, told)
    assert same(got.T.dequantize(dtype), values.T), (dtype, told)
    values = reference.dequantize(want.codes, want.scales, name, dtype=x.dtype, **kept)
    assert same(mx.fake_quantize(x, name, **layout, **options), values), told


def made_by_the_reference(x, name, **options):
    """Return an MX array that the reference makes, without compiled code."""
    made = reference.quantize(x, name, **options)
    return mx.MXArray.from_parts(made.codes, made.scales, name, tensor_scale=made.tensor_scale)


def run_cases(seed, count):
    """Run `count` random cases."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        check(*case(rng), rng)
    print(f"{count} cases are the same")

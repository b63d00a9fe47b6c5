"""Tests that quantizing on a GPU gives the CPU's bits, in every format, mode and layout."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mxnum as mx
from mxnum import formats
from mxnum.memory.device import described, on_device
from mxnum.memory.dtypes import as_array, numpy_dtype
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests.samples import generator, special_patterns

ROUNDINGS = [str(mode) for mode in Rounding]
RULES = [str(rule) for rule in ScaleRule]
LAYOUTS = [
    {},  # blocks of 32 along rows, which the kernels of `vectors` process
    {"block_size": 4},
    {"block_size": 128},
    {"block_size": 7},  # a short last block
    {"axis": 0, "block_size": 2},
    {"block_shape": (2, 5)},
    {"blocks": (3, 128)},
]


def floats(dtype: str, shape: tuple[int, ...], *key: object, special: bool = True) -> np.ndarray:
    """Return random numbers of many magnitudes.

    If `special` is True, some of the numbers are NaN, infinities, zeros and subnormals.
    """
    rng = generator("cuda", dtype, *shape, *key)
    source = formats.FLOATS[dtype]
    spread = min(60, 2 ** (source.exponent_bits - 1) - 4)
    with np.errstate(all="ignore"):
        x = (rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread, shape))).astype(numpy_dtype(source))
    if special:
        flat = x.reshape(-1).view(f"i{x.itemsize}")
        patterns = special_patterns(source)
        flat[: len(patterns)] = patterns
        flat[flat.size // 2 : flat.size // 2 + 20] = 0
    return x


def host(array: object) -> np.ndarray:
    """Return a numpy copy of a device array."""
    return np.asarray(array.copy_to_host())


def assert_same_bits(got: np.ndarray, want: np.ndarray, case: object) -> None:
    assert got.dtype == want.dtype, case
    assert got.shape == want.shape, case
    kind = f"u{got.itemsize}"
    different = np.flatnonzero(got.reshape(-1).view(kind) != np.ascontiguousarray(want).reshape(-1).view(kind))
    assert different.size == 0, f"{case}: {different.size} of {got.size} differ, the first at {different[:3]}"


def compare(device, x: np.ndarray, fmt: object, move: tuple[str, ...] = (), **modes: object) -> None:
    """Assert that quantize, fake_quantize and dequantize give equal bits on GPU and CPU.

    The keyword arguments named in `move` are arrays, which are copied to the GPU.
    """
    there = {name: device(value) if name in move else value for name, value in modes.items()}
    want, got = mx.quantize(x, fmt, **modes), mx.quantize(device(x), fmt, **there)
    case = (fmt, x.dtype, x.shape, {k: v for k, v in modes.items() if k not in move})
    assert on_device(got.scales)
    assert got.to_host().equals(want), case
    assert_same_bits(host(mx.fake_quantize(device(x), fmt, **there)), mx.fake_quantize(x, fmt, **modes), case)
    assert_same_bits(host(got.dequantize()), want.dequantize(), case)


def moded(rounding: str, shape: tuple[int, ...], key: object) -> dict[str, object]:
    """Return keyword arguments for a rounding mode, with random words or a seed if stochastic."""
    if rounding != "sr":
        return {"rounding": rounding}
    rng = generator("words", key)
    if rng.integers(2):
        return {"rounding": "sr", "seed": int(rng.integers(1 << 62)) * 3, "stream": 1 << 40, "sr_bits": 13}
    words = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    return {"rounding": "sr", "random_bits": words, "sr_bits": int(rng.integers(1, 31))}


CASES = list(itertools.product(formats.names("e8m0"), ROUNDINGS))


@pytest.mark.parametrize(("fmt", "rounding"), CASES)
def test_formats_and_modes(device, fmt, rounding):
    rng = generator("modes", fmt, rounding)
    policies = ["block"] if fmt not in ("mxfp8_e4m3", "mxfp8_e5m2") else ["block", "element"]
    for rule, overflow, dtype, nonfinite in zip(
        RULES, ["saturate", "ieee"] * 2, rng.permutation(list(formats.FLOATS)), policies * 4, strict=False
    ):
        x = floats(str(dtype), (3, 128), fmt, rounding, rule)
        layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
        modes = moded(rounding, x.shape, (fmt, rule))
        compare(
            device, x, fmt, ("random_bits",), scale_rule=rule, overflow=overflow, nonfinite=nonfinite, **modes, **layout
        )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", list(formats.FLOATS))
def test_layouts(device, dtype, layout):
    x = floats(dtype, (3, 128), str(layout))
    compare(device, x, "mxfp8_e4m3", **layout)
    compare(device, x, "mxfp4_e2m1", rounding="sr", seed=11, **layout)
    compare(device, x, "mxint8", scale_rule="even", offset="float16", **layout)


@pytest.mark.parametrize("offset_range", ["exact", "half"])
@pytest.mark.parametrize("dtype", list(formats.FLOATS))
def test_offsets(device, dtype, offset_range):
    x = floats(dtype, (4, 40), offset_range)
    for fmt, rounding in (("mxint4", "rne"), ("mxfp4_e3m0", "rtp"), ("mxfp8_e5m2", "sr")):
        modes = moded(rounding, x.shape, (fmt, dtype))
        compare(device, x, fmt, ("random_bits",), offset="float16", offset_range=offset_range, **modes)


@pytest.mark.parametrize("overflow", [str(mode) for mode in Overflow])
@pytest.mark.parametrize("layout", [{}, {"block_shape": (1, 16)}, {"axis": 0}], ids=str)
def test_given_scales(device, layout, overflow):
    for nonfinite in ("block", "element"):
        x = floats("float32", (5, 64), layout)
        shape = mx.shared_scale(x, "mxfp8_e4m3", **layout).shape
        scales = generator("scales", layout).integers(0, 256, shape, dtype=np.uint8)
        scales.flat[:3] = 0, 254, 255
        compare(device, x, "mxfp8_e4m3", ("scales",), scales=scales, overflow=overflow, nonfinite=nonfinite, **layout)
        compare(device, x, "mxfp8_e5m2", ("scales",), scales=scales, offset="float16", nonfinite=nonfinite, **layout)


@pytest.mark.parametrize("fmt", formats.names("e8m0"))
def test_extreme_magnitudes_under_every_rule(device, fmt):
    source = formats.FLOATS["float32"]
    edges = np.array([source.max_code, source.max_code - 1, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x7F000000], np.int32)
    x = np.repeat(edges[:, None], 32, 1).view(np.float32) * np.linspace(-1, 1, 32, dtype=np.float32)
    for rule in RULES:
        compare(device, x, fmt, scale_rule=rule)


def test_strides_of_every_kind(device):
    x = floats("float32", (6, 64, 4), "strides")
    there = described("x", device(x))
    for here, away in (
        (x[::2], there[::2]),
        (x[:, 32:], there[:, 32:]),
        (x.transpose(2, 0, 1), there.transpose((2, 0, 1))),
        (x[1:2, ::-1], there[1:2, ::-1]),
        (x[..., 0], there[..., 0]),
        (x[0, 0, 0], there[0, 0, 0, ...]),
        (x[:0], there[:0]),
        (x[:, :0], there[:, :0]),
    ):
        for layout in ({}, {"axis": 0}) if here.ndim else ({},):
            want, got = mx.quantize(here, "mxfp6_e3m2", **layout), mx.quantize(away, "mxfp6_e3m2", **layout)
            assert got.to_host().equals(want), here.shape
            assert_same_bits(host(got.dequantize("float64")), want.dequantize("float64"), here.shape)
            assert_same_bits(
                host(mx.fake_quantize(away, "mxfp6_e3m2", rounding="sr", seed=3, **layout)),
                mx.fake_quantize(here, "mxfp6_e3m2", rounding="sr", seed=3, **layout),
                here.shape,
            )


def test_views_of_a_quantized_array(device):
    x = floats("float32", (4, 6, 64), "views")
    want, got = mx.quantize(x, "mxfp4_e2m1"), mx.quantize(device(x), "mxfp4_e2m1")
    assert (got.shape, got.size, got.nbytes, got.packed_nbytes, len(got)) == (
        want.shape, want.size, want.nbytes, want.packed_nbytes, len(want)
    )  # fmt: skip
    for view in (
        lambda q: q.T,
        lambda q: q[1:3, ::2],
        lambda q: q[..., 32:],
        lambda q: q[2, 3],
        lambda q: q.transpose(1, 0, 2),
        lambda q: q.T.T[0].T,
    ):
        assert view(got).blocks == view(want).blocks
        assert view(got).to_host().equals(view(want))
        assert_same_bits(host(view(got).dequantize()), view(want).dequantize(), "view")


@pytest.mark.parametrize("element", [*formats.ELEMENTS, "bfloat16", "float16"])
def test_encode_and_decode_without_a_block(device, element):
    target = formats.element(element)
    for dtype in ("float64", "float32"):
        x = floats(dtype, (150,), element)
        if target.nan_code is None:
            x[np.isnan(x)] = 1
        for rounding in ("rne", "sr", "rtn"):
            modes = {"rounding": rounding, "overflow": "ieee"} | ({"seed": 9} if rounding == "sr" else {})
            codes = mx.encode(x, element, **modes)
            assert_same_bits(host(mx.encode(device(x), element, **modes)), codes, (element, dtype, rounding))
        for result in formats.FLOATS:
            want = mx.decode(codes, element, dtype=result)
            assert_same_bits(host(mx.decode(device(codes), element, dtype=result)), want, (element, result))


@pytest.mark.parametrize("fmt", formats.names("e8m0"))
def test_every_code_under_every_scale(device, fmt):
    bits = formats.get(fmt).element.bits
    codes = np.tile(np.arange(1 << bits, dtype=np.uint8), (8, max(1, 32 >> bits)))
    scales = np.array([0, 1, 3, 119, 127, 200, 254, 255], np.uint8)[:, None].repeat(codes.shape[1] // 16, 1)
    here = mx.MXArray.from_parts(codes, scales, fmt, block_size=16)
    there = mx.MXArray.from_parts(device(codes), device(scales), fmt, block_size=16)
    for dtype in formats.FLOATS:
        assert_same_bits(host(there.dequantize(dtype)), here.dequantize(dtype), (fmt, dtype))


@pytest.mark.parametrize("fmt", formats.names("e8m0"))
def test_packing(device, fmt):
    for shape in ((3, 37), (2, 2, 64), (5,), (4, 0), ()):
        x = floats("float32", shape, fmt, special=False)
        want, got = mx.quantize(x, fmt), mx.quantize(device(x), fmt)
        packed = got.pack()
        assert_same_bits(host(packed), want.pack(), (fmt, shape))
        if shape:
            again = mx.MXArray.from_packed(packed, got.scales, fmt, length=shape[-1])
            assert again.equals(got)
            assert_same_bits(host(got.T.pack()), want.T.pack(), (fmt, shape))


@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "mxfp6_e3m2", "mxint8"])
@pytest.mark.parametrize("offset", [None, "float16"])
def test_arrays_held_packed(device, fmt, offset):
    for shape in ((3, 37), (2, 2, 64), (5,), (4, 0), ()):
        x = floats("float32", shape, fmt, special=False)
        want = mx.quantize(x, fmt, packed=True, offset=offset)
        got = mx.quantize(device(x), fmt, packed=True, offset=offset)
        case = (fmt, shape, offset)
        assert got.is_packed == want.is_packed, case
        assert on_device(got.scales)
        assert (got.shape, got.nbytes, repr(got)) == (want.shape, want.nbytes, repr(want))
        assert got.to_host().equals(want), case
        assert_same_bits(host(got.codes), want.codes, case)
        assert_same_bits(host(got.dequantize()), want.dequantize(), case)
        assert got.unpacked().equals(got)
        assert got.unpacked().packed().equals(got)
        if shape:
            assert_same_bits(host(got[..., :0].codes), want[..., :0].codes, case)
            assert_same_bits(host(got.T.codes), want.T.codes, case)
            if len(shape) > 1:
                assert got[:1].is_packed == want.is_packed
                assert_same_bits(host(got[:1].pack()), want[:1].pack(), case)
            again = mx.MXArray.from_packed(got.pack(), got.scales, fmt, length=shape[-1], offsets=got.offsets)
            assert again.equals(got)
    if want.is_packed:
        with pytest.raises(ValueError, match="'out' must be left out for arrays on a GPU"):
            mx.quantize(device(x), fmt, offset=offset, out=got)


def test_packed_bytes_are_padded_with_zeros_and_in_c_order(device):
    # Padding bits must be zero, and the bytes of a view must be in C order, as on the host.
    q = mx.quantize(floats("float32", (2, 3, 5), special=False), "mxfp6_e3m2", packed=True)
    dirty = q.pack().copy()
    dirty[..., -1] |= 0xC0
    got = mx.MXArray.from_packed(device(dirty), device(q.scales), q.format, length=5)
    assert_same_bits(host(got.pack()), q.pack(), "padding")
    turned = got.transpose(1, 0, 2)
    assert turned.is_packed
    assert as_array("packed", turned.pack()).is_contiguous
    assert_same_bits(host(turned.pack()), q.transpose(1, 0, 2).pack(), "order")


@pytest.mark.parametrize("layout", [{}, {"block_shape": (2, 3)}, {"axis": 0}], ids=str)
@pytest.mark.parametrize("nonfinite", [str(policy) for policy in Nonfinite])
def test_shared_scales(device, layout, nonfinite):
    x = floats("bfloat16", (5, 64), layout, special=nonfinite != "raise")
    for rule in RULES:
        modes = {"scale_rule": rule, "nonfinite": nonfinite} | layout
        want = mx.shared_scale(x, "mxfp4_e2m1", **modes)
        assert_same_bits(host(mx.shared_scale(device(x), "mxfp4_e2m1", **modes)), want, modes)


def test_the_policies_that_raise_name_the_same_index(device):
    x = np.ones((4, 40), np.float32)
    x[2, 33], x[3, 1] = np.nan, np.inf
    for modes in ({"nonfinite": "raise"}, {"nonfinite": "element"}):
        for layout in ({}, {"axis": 0}):
            with pytest.raises(ValueError, match=r"Argument 'x'") as here:
                mx.quantize(x, "mxfp4_e2m1", **modes, **layout)
            with pytest.raises(ValueError, match=r"Argument 'x'") as there:
                mx.quantize(device(x), "mxfp4_e2m1", **modes, **layout)
            assert str(there.value) == str(here.value)
    with pytest.raises(ValueError, match=r"free of NaN for int8.* at index \(2, 33\)"):
        mx.encode(device(x), "int8")


def test_results_can_be_written_where_the_caller_says(device):
    x = floats("float32", (4, 64), "out")
    out, there = device(np.empty_like(x)), device(x)
    assert mx.fake_quantize(there, "mxfp8_e4m3", out=out) is out
    assert_same_bits(host(out), mx.fake_quantize(x, "mxfp8_e4m3"), "out")
    assert mx.fake_quantize(there, "mxfp8_e4m3", axis=0, out=there) is there  # in place
    assert_same_bits(host(there), mx.fake_quantize(x, "mxfp8_e4m3", axis=0), "in place")
    whole = device(x)
    shifted = x.reshape(-1).copy()
    shifted[32:] = mx.fake_quantize(x.reshape(-1)[:-32], "mxint8")
    flat = whole.reshape(-1)
    mx.fake_quantize(flat[:-32], "mxint8", out=flat[32:])  # overlapping
    assert_same_bits(host(flat), shifted, "overlapping")
    q = mx.quantize(device(x), "mxfp8_e4m3")
    values = device(np.empty(x.shape, np.float64))
    assert q.dequantize("float64", out=values) is values
    assert_same_bits(host(values), mx.quantize(x, "mxfp8_e4m3").dequantize("float64"), "dequantize")


def test_equality_looks_at_codes_scales_and_offsets(device):
    x = floats("float32", (3, 64), "equal", special=False)
    q, other = mx.quantize(device(x), "mxint4", offset="float16"), mx.quantize(device(x), "mxint4")
    assert q.equals(mx.quantize(device(x), "mxint4", offset="float16"))
    assert not q.equals(other)
    assert not other.equals(mx.quantize(device(-x), "mxint4"))
    assert not other.equals(mx.quantize(device(x * 2), "mxint4"))
    assert not other[:2].equals(other)


def test_a_format_of_the_users_own(device):
    own = mx.MXFormat(mx.ElementFormat("e3m4", exponent_bits=3, mantissa_bits=4, bias=3), block=16)
    wide = mx.MXFormat(mx.ElementFormat("e6m1", exponent_bits=6, mantissa_bits=1, bias=60), block=32)
    impostor = mx.MXFormat(mx.ElementFormat("e4m3", exponent_bits=4, mantissa_bits=3, bias=9), block=32)
    for fmt in (own, wide, impostor):
        for rounding in ("rne", "rto"):
            compare(device, floats("float32", (3, 64), fmt.name), fmt, rounding=rounding)

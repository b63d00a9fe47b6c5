"""Tests that `by_numpy`, the definition on numpy arrays, equals the oracle `mxnum.reference`."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum import formats, reference
from mxnum.definition import by_numpy
from mxnum.definition.by_numpy import Settings
from mxnum.formats import FLOATS
from mxnum.layout import resolve_blocks
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule
from tests import float_scale_cases, samples
from tests.covering import covering

LAYOUTS = [{"block_size": 8}, {"axis": 0, "block_size": 4}, {"block_shape": (4, 3)}, {"blocks": (9, 20)}]
DTYPES = ("float64", "float32", "bfloat16", "float16")


def numbers(dtype, *key):
    """Return numbers of many magnitudes, with zeros, NaN, infinities and subnormals."""
    rng = samples.generator("few", dtype, *key)
    x = rng.standard_normal((9, 20)) * np.exp2(rng.integers(-9, 9, (9, 20))) + rng.choice([0, 3], (9, 1))
    x[0, :8], x[1, 2], x[3, 4], x[5, 6], x[6] = 0, np.nan, np.inf, -np.inf, 1e-42
    x[7, :8], x[8, :3] = np.nan, [-0.0, 3e38, -3e38]
    with np.errstate(all="ignore"):
        return x.astype(numpy_dtype(FLOATS[dtype]))


@covering(
    fmt=formats.names("e8m0"), dtype=DTYPES, layout=LAYOUTS, rounding=Rounding, rule=ScaleRule, overflow=Overflow,
    nonfinite=[Nonfinite.BLOCK, Nonfinite.ELEMENT], offset_range=[None, *OffsetRange], given=[False, True],
).parametrize  # fmt: skip
def test_parts_are_those_of_the_oracle(fmt, dtype, layout, rounding, rule, overflow, nonfinite, offset_range, given):
    x, fmt = numbers(dtype), formats.get(fmt)
    if nonfinite == Nonfinite.ELEMENT and fmt.element.nan_code is None:
        x = np.where(np.isnan(x), x.dtype.type(1), x)
    blocks = resolve_blocks(x.shape, fmt.block, **{"axis": None, "block_size": None, "block_shape": None, **layout})
    options = {"rounding": rounding, "overflow": overflow, "scale_rule": rule, "nonfinite": nonfinite}
    words = None
    if rounding == Rounding.SR:
        words = samples.generator("words").integers(0, 1 << 32, x.shape, dtype=np.uint32)
        options |= {"random_bits": words, "sr_bits": 5}
    if offset_range is not None:
        options |= {"offset": "float16", "offset_range": offset_range}
    want = reference.quantize(x, fmt, blocks=blocks, **options)
    scales = None
    if given:
        scales = samples.generator("scales").integers(118, 140, want.scales.shape).astype(np.uint8)
        want = reference.quantize(x, fmt, blocks=blocks, scales=scales, **options)
    asked = Settings(rounding, overflow, rule, nonfinite, offset_range, 5)
    got = by_numpy.quantize(x, fmt, blocks, asked, scales, words)
    samples.assert_same("scales", None, got.scales, want.scales)
    samples.assert_same("codes", None, got.codes, want.codes)
    assert (got.offsets is None) == (offset_range is None)
    if offset_range is not None:
        samples.assert_same("offsets", None, got.offsets.view(np.uint16), want.offsets.view(np.uint16))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
def test_small_shapes(shape):
    x = np.ones(shape, np.float32)
    asked = Settings(Rounding.RNE, Overflow.SATURATE, ScaleRule.FLOOR, Nonfinite.BLOCK, OffsetRange.EXACT, 30)
    got = by_numpy.quantize(x, formats.get("mxint4"), tuple(32 for _ in shape), asked, None, None)
    want = reference.quantize(x, "mxint4", blocks=tuple(32 for _ in shape), offset="float16")
    for part, right in zip(got, (want.codes, want.scales, want.offsets), strict=True):
        assert part.shape == np.shape(right)
        assert part.tolist() == np.asarray(right).tolist()


@covering(
    element=formats.ELEMENTS, target=DTYPES, scale=[0, 1, 100, 127, 254, 255], apart=[("element", "scale")]
).parametrize  # fmt: skip
def test_values_of_all_codes_are_those_of_the_oracle(element, target, scale):
    fmt = formats.ELEMENTS[element]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8).reshape(-1, 4)
    scales = np.full((len(codes), 1), scale, np.uint8)
    got = by_numpy.dequantize(codes, scales, fmt, formats.E8M0, (1, 4), FLOATS[target])
    want = [reference.decode(int(code), element, scale=scale, dtype=target) for code in codes.ravel()]
    assert got.dtype == f"u{FLOATS[target].bits // 8}"
    samples.assert_same(f"{element} {target} {scale}", None, got.ravel(), np.array(want, got.dtype))


def test_scales_that_are_floats():
    rng, same, done = samples.generator("by numpy, float scales"), float_scale_cases.same, 0
    while done < 60:
        x, name, _, blocks, options = float_scale_cases.case(rng)
        rule, fmt = FloatScaleRule(options.get("scale_rule", "nearest")), formats.get(name)
        modes = Rounding(options["rounding"]), Overflow(options["overflow"]), rule, Nonfinite(options["nonfinite"])
        asked = Settings(*modes, None, options.get("sr_bits", 30))
        want = reference.quantize(x, name, blocks=blocks, **options)
        parts = fmt, blocks, asked, options.get("scales"), options.get("random_bits"), want.tensor_scale
        if by_numpy.looks_at_elements(rule) and "scales" not in options:
            with pytest.raises(NotImplementedError, match="Only the engine computes scales by the rule"):
                by_numpy.quantize(x, *parts)
            continue
        got = by_numpy.quantize(x, *parts)
        assert same(got.codes, want.codes)
        assert same(got.scales, want.scales)
        found = options.get("tensor_scale")
        if fmt.tensor_scale and (found is None or isinstance(found, str)):
            largest = by_numpy.largest_of(x, None if found is None else -1)
            assert same(by_numpy.tensor_scale(largest, FLOATS[x.dtype.name], fmt), want.tensor_scale)
        target = FLOATS[DTYPES[done % 4]]
        values = reference.dequantize(
            want.codes, want.scales, name, blocks=blocks, dtype=target.name, tensor_scale=want.tensor_scale
        )
        read = fmt.element, fmt.scale, blocks, target, want.tensor_scale
        assert same(by_numpy.dequantize(got.codes, got.scales, *read).view(values.dtype), values)
        done += 1

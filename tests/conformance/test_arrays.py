"""Tests of `check_arrays`: short blocks, memory layouts, and kernels with mistakes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check_arrays
from mxnum.interop.swizzle import swizzle_scales, unswizzle_scales

SHAPES = [(1, 1), (5, 31), (5, 32), (3, 65), (128, 128), (7, 96)]
OPTIONS = {"format": "mxfp4_e2m1", "shapes": SHAPES}


def quantize(x, **options):
    q = mx.quantize(x, "mxfp4_e2m1", **options)
    return q.codes.copy(), q.scales.copy()


def contiguous(x):
    return np.lib.stride_tricks.as_strided(x, x.shape, (x.shape[1] * 4, 4))


def transposed_scales(x):
    codes, scales = quantize(x)
    return codes, scales.T.copy().reshape(scales.shape)


def without_tails(x):
    codes, scales = quantize(x)
    whole = x.shape[1] // 32
    codes[:, whole * 32 :], scales[:, whole:] = 0, 0
    return codes, scales


def padded_with_ones(x):
    padded = np.pad(x, [(0, 0), (0, -x.shape[1] % 32)], constant_values=1e6)
    codes, scales = quantize(padded)
    return codes[:, : x.shape[1]], scales


def one_block_late(x):
    scales = quantize(x)[1]
    previous = np.concatenate([scales.ravel()[:1], scales.ravel()[:-1]]).reshape(scales.shape)
    numbers = np.where(np.isnan(x), np.inf, x).astype(np.float32)
    return mx.quantize(numbers, "mxfp4_e2m1", scales=previous, nonfinite="element").codes, scales


def whole_blocks_only(x):
    assert x.shape[1] % 32 == 0, "rows of whole blocks, please"
    return quantize(x)


def swapped(x):
    q = mx.quantize(x, "mxfp4_e2m1")
    return q.pack() >> 4 | q.pack() << 4, q.scales


def one_row_short(x):
    codes, scales = quantize(x)
    codes[100:] = 0
    return codes, scales


WRONG = [
    (
        lambda x: quantize(contiguous(x)),
        r"\(5, 31\), transposed, strided: 5 of 5 wrong.*if x is read as contiguous memory",
    ),
    (
        lambda x: quantize(abs(x)),
        r"shape \(128, 128\), contiguous, .*what losing all signs gives .*, and so are the right codes of \d+ blocks",
    ),
    (transposed_scales, r"shape \(3, 65\), .*All answers are right if scales are read in column-major order"),
    (without_tails, r"shape \(3, 65\), contiguous, .*All answers are right if short last blocks are left zero"),
    (padded_with_ones, r"All answers are right if short last blocks are left out"),
    (one_block_late, r"All answers are right if codes are read at the scale of the previous block"),
    (whole_blocks_only, r"shape \(5, 31\), contiguous, .*: AssertionError: rows of whole blocks, please"),
    (swapped, "the right codes with the two nibbles of each byte swapped"),
    (one_row_short, r"(?!.*\(7, 96\)).*shape \(128, 128\), .*block \(1\d\d, \d\)"),
    (lambda x: (quantize(x)[0], quantize(x)[1].T), r"\(5, 32\), .*must be of shape \(5, 1\), not \(1, 5\)"),
    (lambda x: (quantize(x)[0].T, quantize(x)[1]), r"must be of shape \(5, 32\) .*, not \(32, 5\)"),
    (lambda x: (quantize(x)[0].astype(float), quantize(x)[1]), "must be an array of integers or float4_e2m1fn"),
    (lambda x: None, r"must return \(codes, scales\), not NoneType"),
]


@pytest.mark.parametrize(("kernel", "says"), WRONG)
def test_a_wrong_kernel_is_named(kernel, says):
    with pytest.raises(ConformanceError) as caught:
        check_arrays(kernel, **OPTIONS)
    assert re.search(says, str(caught.value), re.S), str(caught.value)
    report = caught.value.report
    assert report.bugs >= sum(result.wrong for result in report.arrays) > 0
    assert report.cases == sum(result.blocks for result in report.arrays)


def test_swizzled_scales_that_were_not_declared():
    def kernel(x):
        codes, scales = quantize(x)
        return codes, swizzle_scales(scales).reshape(scales.shape)

    with pytest.raises(ConformanceError, match="All answers are right if scales are read as swizzled"):
        check_arrays(kernel, format="mxfp4_e2m1", shapes=[(128, 128), (256, 256)], layouts="contiguous")


def test_mxnum_passes_in_all_shapes():
    report = check_arrays(quantize, format="mxfp4_e2m1", layouts=["contiguous", "transposed"])
    assert report.is_equal
    assert report.cases > 200_000
    assert len(report.arrays) > 25


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (lambda x: quantize(x, axis=0), {"axis": 0}),
        (lambda x: quantize(x, block_shape=(16, 32)), {"block_shape": (16, 32)}),
        (lambda x: (quantize(x)[0], quantize(x)[1].T), {"scales": "transposed"}),
        (lambda x: (quantize(x)[0], swizzle_scales(quantize(x)[1])), {"scales": "swizzled"}),
        (lambda x: (mx.quantize(x, "mxfp4_e2m1").pack(), quantize(x)[1]), {}),
        (lambda x, words: quantize(x, rounding="sr", random_bits=words, sr_bits=8), {"rounding": "sr", "sr_bits": 8}),
        (lambda x: mx.shared_scale(x, "mxfp4_e2m1"), {"operation": "scale"}),
    ],
)
def test_right_kernels_pass_in_declared_layouts_and_operations(kernel, options):
    assert check_arrays(kernel, **OPTIONS, **options).is_equal


def test_dequantize():
    def values(codes, scales):
        return mx.MXArray.from_parts(codes, scales, "mxfp4_e2m1").dequantize()

    assert check_arrays(values, **OPTIONS, operation="dequantize").is_equal
    with pytest.raises(ConformanceError, match=r"shape \(7, 96\), transposed: \d+ of 672 wrong"):
        check_arrays(
            lambda c, s: values(np.lib.stride_tricks.as_strided(c, c.shape, (c.shape[1], 1)), s),
            **OPTIONS,
            operation="dequantize",
        )

    def from_packed(packed, scales):
        assert packed.shape == (3, 33)
        return mx.MXArray.from_packed(packed, scales, "mxfp4_e2m1", length=65).dequantize()

    assert check_arrays(
        from_packed, format="mxfp4_e2m1", operation="dequantize", packed=True, shapes=[(3, 65)]
    ).is_equal


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda packed: packed << 4 | packed >> 4, "with the two nibbles of each byte swapped"),
        (lambda packed: packed[:, ::-1], "of each block with its bytes in reverse (two codes a byte)"),
    ],
)
def test_codes_that_are_read_in_another_order_are_named(change, says, axis):
    # The report must name a wrong order of codes also for `dequantize`, which returns values.
    def values(packed, scales):
        return mx.MXArray.from_packed(change(packed), scales, "mxfp4_e2m1", length=32, axis=axis).dequantize()

    with pytest.raises(
        ConformanceError, match=re.escape(f"All answers are right if the kernel reads the codes {says}.")
    ):
        check_arrays(
            values, format="mxfp4_e2m1", operation="dequantize", packed=True, axis=axis, shapes=[(3, 32), (40, 32)]
        )


def test_nibbles_that_are_swapped_in_rows_of_any_length():
    def values(codes, scales):
        even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
        read = even.reshape(len(codes), -1, 2)[:, :, ::-1].reshape(even.shape)[:, : codes.shape[1]]
        return mx.MXArray.from_parts(np.ascontiguousarray(read), scales, "mxfp4_e2m1").dequantize()

    with pytest.raises(
        ConformanceError, match="are right if the kernel reads the codes with the two nibbles of each byte"
    ):
        check_arrays(values, **OPTIONS, operation="dequantize")
    with pytest.raises(ConformanceError, match=r"\A(?!.*All answers are right)"):
        check_arrays(lambda codes, scales: values(codes ^ 1, scales), **OPTIONS, operation="dequantize")


def test_a_kernel_that_writes_into_its_argument_is_judged_by_what_it_gives():
    def wiping(x):
        x[:] = 0
        return quantize(x)

    with pytest.raises(ConformanceError, match="Wrong in"):
        check_arrays(wiping, **OPTIONS)


def test_choices_and_strictness():
    def loose(x):
        codes, scales = quantize(x)
        return np.where(np.repeat(scales == 255, 32, axis=1)[:, : x.shape[1]], 5, codes), scales

    assert set(check_arrays(loose, **OPTIONS).choices) == {"nan_block_codes"}
    with pytest.raises(ConformanceError):
        check_arrays(loose, **OPTIONS, strict=True)
    assert check_arrays(loose, **OPTIONS, strict=True, accept="nan_block_codes").is_equal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operation": "encode"}, "'operation' must be one of"),
        ({"scales": "swizzle"}, "'scales' must be one of .*did you mean 'swizzled'"),
        ({"scales": "swizzled", "axis": 0}, "'scales' must be one of"),
        ({"layouts": "strode"}, "'layouts' must be one of"),
        ({"shapes": [5]}, "'shapes' must be pairs of lengths"),
        ({"packed": True}, "'packed' must be False unless operation='dequantize'"),
        ({"axis": 2}, "'axis' must be between -2 and 1"),
    ],
)
def test_mistakes_of_the_caller(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_arrays(quantize, **{**OPTIONS, **options})


# Scales that are floats

WIDE = "e4m3:block=16,scale=float32"


def nvfp4(x, **options):
    # A contiguous copy avoids the compilation of loops for other layouts.
    q = mx.quantize(np.ascontiguousarray(x), "nvfp4", **options)
    return q.codes.copy(), q.scales.copy()


def of_blocks_of_rows(x):
    """Quantize with the mistake that each row has its own tensor scale."""
    done = [nvfp4(row[None]) for row in x]
    return tuple(np.concatenate(parts) for parts in zip(*done, strict=True))


def told_nvfp4(x, tensor_scale, largest):
    assert abs(x).max() == largest
    return nvfp4(x, tensor_scale=tensor_scale)


def wide(x):
    q = mx.quantize(np.ascontiguousarray(x), WIDE)
    return q.codes.copy(), q.scales.copy()


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (nvfp4, {}),
        (told_nvfp4, {}),
        (lambda x: nvfp4(x, axis=0), {"axis": 0}),
        (lambda x: nvfp4(x, block_shape=(16, 16)), {"block_shape": (16, 16)}),
        (lambda x: (nvfp4(x)[0], swizzle_scales(nvfp4(x)[1])), {"scales": "swizzled"}),
        (lambda x, words: nvfp4(x, rounding="sr", random_bits=words), {"rounding": "sr"}),
        (lambda x: nvfp4(x, scale_rule="rceil")[1], {"operation": "scale", "scale_rule": "rceil"}),
        (wide, {"format": WIDE}),
        (lambda x: (wide(x)[0], wide(x)[1].T), {"format": WIDE, "scales": "transposed"}),
    ],
)
def test_scales_that_are_floats(kernel, options):
    report = check_arrays(kernel, **{"format": "nvfp4", "shapes": [(1, 1), (5, 31), (7, 96)]} | options)
    assert report.is_equal
    assert report.cases >= 12


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", ["nvfp4", WIDE])
def test_values_under_scales_that_are_floats(format, packed):
    def values(codes, scales, tensor_scale=None):
        make = mx.MXArray.from_packed if packed and format == "nvfp4" else mx.MXArray.from_parts
        length = {"length": 32} if make == mx.MXArray.from_packed else {}
        return make(codes, scales, format, tensor_scale=tensor_scale, **length).dequantize()

    options = {"operation": "dequantize", "shapes": [(9, 32), (40, 32)], "packed": packed}
    assert check_arrays(values, format=format, **options).is_equal


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (of_blocks_of_rows, "wrong"),
        (lambda x: nvfp4(x, arithmetic="torchao"), "All answers, right or wrong, are what torchao computes"),
        pytest.param(lambda x: nvfp4(contiguous(x)), "if x is read as contiguous memory", marks=pytest.mark.full),
        (lambda x: (nvfp4(x)[0], nvfp4(x)[1].T.copy().reshape(nvfp4(x)[1].shape)), "in column-major order"),
        (lambda x: nvfp4(x, tensor_scale=1.0), "a tensor scale of 1"),
    ],
)
def test_a_wrong_kernel_of_float_scales_is_named(kernel, says):
    with pytest.raises(ConformanceError, match=says):
        check_arrays(kernel, format="nvfp4", shapes=[(5, 31), (33, 80)])


def test_arguments_that_float_scales_do_not_allow_raise():
    with pytest.raises(ValueError, match=r"'scales' must be one of .* for scales of more than 8 bits"):
        check_arrays(wide, format=WIDE, scales="swizzled")
    with pytest.raises(ValueError, match="must have a parameter called"):
        check_arrays(lambda codes, scales: codes, format="nvfp4", operation="dequantize", shapes=[(1, 1)])


def test_a_short_block_is_shown_as_long_as_it_is():
    # For a short block with one element, the report must not show the padding. Regression: it
    # showed "x = [1 0 x31]".
    def kernel(x):
        codes, scales = quantize(x)
        return codes ^ 1, scales

    with pytest.raises(ConformanceError) as caught:
        check_arrays(kernel, format="mxfp4_e2m1", shapes=[(1, 1), (1, 34)], layouts="contiguous")
    lines = {
        line.split("]: x")[0].split(" [")[0].strip(): line for line in str(caught.value).splitlines() if "]: x" in line
    }
    assert re.search(r"x = \[\S+\]: element 0", lines["array of shape (1, 1), contiguous, block (0, 0)"])
    assert re.search(r"x = \[\S+ \S+\]: 2 of its 2 codes", lines["array of shape (1, 34), contiguous, block (0, 1)"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.ravel().reshape(s.shape[::-1]).T, "in column-major order"),
        (lambda s: unswizzle_scales(s.ravel(), s.shape), "as swizzled"),
    ],
)
def test_values_at_scales_that_are_read_in_another_order_are_named(change, says):
    """Check that the report explains wrong values if the kernel reads scales in a wrong order."""

    def values(codes, scales):
        return mx.MXArray.from_parts(codes, np.ascontiguousarray(change(scales)), "mxfp4_e2m1").dequantize()

    with pytest.raises(ConformanceError, match=f"All answers are right if the kernel reads the scales {says}"):
        check_arrays(values, format="mxfp4_e2m1", operation="dequantize", shapes=[(128, 128), (256, 256)])

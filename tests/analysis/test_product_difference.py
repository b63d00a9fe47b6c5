"""Tests that the difference of two software stacks' results is split into parts by cause."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.analysis import ProductStack, compare_products
from mxnum.analysis.product_difference import PARTS
from mxnum.units import EvidenceWarning, get

DEEPSEEK = ProductStack("hopper_fp8_promoted", "e4m3:block=128,scale=float32", name="deepseek")
NVFP4 = ProductStack("blackwell_nvfp4", "nvfp4")
TORCHAO = ProductStack("blackwell_nvfp4", {"format": "nvfp4", "arithmetic": "torchao"}, tensor_scale="in turn")
ROWWISE = ProductStack("blackwell_fp8", "e4m3:block=512,scale=float32", name="rowwise")


@pytest.fixture(autouse=True)
def without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        yield


def operands(kind="normal", k=512):
    rng = np.random.default_rng(k)
    if kind == "normal":
        return (rng.standard_normal(shape).astype(np.float32) for shape in ((20, k), (k, 24)))
    return (rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in ((20, k), (k, 24)))


def there(found):
    """Return the names of the nonzero parts of a difference."""
    return [part.name for part in found.parts if part.verdict != "equal"]


@pytest.mark.parametrize(
    "units",
    [
        ["sequential", "blas"],
        [ProductStack("block", "mxfp8_e4m3"), ProductStack("blackwell_mxfp8", "mxfp8_e4m3")],
        *(
            pytest.param(units, marks=pytest.mark.full)
            for units in (
                [ProductStack("hopper_fp8", "e4m3"), ProductStack("hopper_fp8_promoted", "e4m3")],
                [DEEPSEEK, NVFP4], [TORCHAO, NVFP4], [ROWWISE, DEEPSEEK],
                [ProductStack("volta_float16_acc16", "float16"), ProductStack("ampere_tf32", "tf32")],
            )
        ),
    ],
)  # fmt: skip
def test_parts_add_up_exactly_to_the_difference_of_the_results(units):
    a, b = operands()
    found = compare_products(a, b, units=units)
    assert list(found.values) == [*PARTS, "total"]
    for index in [(0, 0), (3, 7), (19, 23)]:
        parts = sum(Fraction(float(found.values[name][index])) for name in PARTS)
        assert parts == Fraction(float(found.values["total"][index]))
    results = []
    a, b = operands()
    for stack in units:
        stack = stack if isinstance(stack, ProductStack) else ProductStack(stack)
        results.append(mx.matmul(stack.operand(a, -1), stack.operand(b, -2), accumulate=stack.accumulate))
    if TORCHAO not in units:  # torchao multiplies by the two tensor scales one after the other
        assert np.array_equal(results[1].astype(np.float64) - results[0], found.values["total"])
    swapped = compare_products(*operands(), units=units[::-1])
    assert all(np.array_equal(swapped.values[name], -found.values[name]) for name in found.values)


def test_equal_stacks_have_no_difference():
    found = compare_products(*operands(), units=[NVFP4, ProductStack("Blackwell NVFP4", "nvfp4")])
    assert there(found) == []
    assert found.total.rms == 0
    assert found.text().startswith("blackwell_nvfp4 and blackwell_nvfp4 give equal results.")


FP8 = get("hopper_fp8")


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        (ProductStack(FP8, "e4m3"), ProductStack("hopper_fp8_promoted", "e4m3"), ["promotion"]),
        (ProductStack(FP8, "e4m3"), ProductStack(FP8.but(fraction_bits=12), "e4m3"), ["truncation"]),
        (ProductStack(FP8, "e4m3"), ProductStack(FP8.but(result_bits=10), "e4m3"), ["truncation"]),
        (ProductStack("hopper_float16", "float16"), ProductStack("hopper_float16_acc16", "float16"), ["truncation"]),
        (ProductStack("sequential", "float16"), ProductStack("blas", "float16"), ["order"]),
        (NVFP4, ProductStack("blackwell_nvfp4", "nvfp4", tensor_scale="in turn"), ["tensor scale"]),
        (ROWWISE, ProductStack("blackwell_fp8", ROWWISE.quantize, tensor_scale="in turn"), ["tensor scale"]),
        (ProductStack("exact", "mxfp4_e2m1"), ProductStack("exact", "mxfp8_e4m3"), ["quantizer"]),
    ],
)  # fmt: skip
def test_a_difference_in_one_property_is_in_one_part(one, other, cause):
    assert there(compare_products(*operands(), units=[one, other])) == cause


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize(
    ("unit", "fmt"),
    [
        ("hopper_fp8", "e4m3"), ("hopper_fp8", "e5m2"), ("hopper_fp8_promoted", "e4m3"), ("volta_float16", "float16"),
        ("volta_float16_acc16", "float16"), ("hopper_bfloat16", "bfloat16"), ("ampere_tf32", "tf32"),
        ("blackwell_fp8_mma", "e4m3"), ("hopper_fp8_mma_acc16", "e5m2"), ("blackwell_nvfp4", "nvfp4"),
        ("blackwell_mxfp8", "mxfp8_e4m3"), ("hopper_fp8_promoted", "e4m3:block=128,scale=float32"),
    ],
)  # fmt: skip
def test_expected_errors_of_matrix_units_are_right(kind, unit, fmt):
    """Check that a matrix unit's error has the expected size, within a factor of three."""
    found = compare_products(*operands(kind), units=[ProductStack("exact", fmt), ProductStack(unit, fmt)])
    if fmt == "tf32":  # the unit truncates operands, so the part 'quantizer' is biased
        parts = [part for part in found.parts if part.name not in ("quantizer", "tensor scale")]
    else:
        assert found.total.expected / 3 <= found.total.rms <= 1.5 * found.total.expected
        parts = found.parts
    assert all(part.rms <= 2 * part.expected for part in parts)


def test_a_quantizer_with_a_bias_is_larger_than_expected():
    toward_zero = ProductStack("exact", {"format": "mxfp8_e4m3", "rounding": "rtz"}, name="toward zero")
    nearest = ProductStack("exact", "mxfp8_e4m3")
    found = compare_products(*operands("positive"), units=[nearest, toward_zero])
    assert found.parts[0].verdict == "larger than expected"
    assert found.parts[0].bias < -0.01
    assert "toward zero - exact: the largest part is quantizer; larger than expected: quantizer." in found.text()
    fair = ProductStack("exact", {"format": "mxfp8_e4m3", "rounding": "sr", "seed": 1})
    assert compare_products(*operands("positive"), units=[nearest, fair]).parts[0].verdict == "expected"


def test_a_wrong_kernel_is_not_expected():
    """Check that a quantizer that shifts columns makes a larger difference than expected."""

    def broken(x, axis):
        q = mx.quantize(x, "mxfp8_e4m3", axis=axis)
        return q if axis == -1 else mx.quantize(np.roll(x, 1, axis=1), "mxfp8_e4m3", axis=axis)

    found = compare_products(
        *operands("positive"), units=[ProductStack("exact", "mxfp8_e4m3"), ProductStack("exact", broken)]
    )
    assert there(found) == ["quantizer"]
    a, b = operands("positive")
    moved = np.roll(mx.quantize(b, "mxfp8_e4m3", axis=-2).dequantize("float64"), 1, axis=1)
    right = mx.quantize(a, "mxfp8_e4m3").dequantize("float64") @ moved
    first = mx.matmul(mx.quantize(a, "mxfp8_e4m3"), mx.quantize(b, "mxfp8_e4m3", axis=-2), accumulate="exact")
    assert np.allclose(found.values["total"], right - first, rtol=1e-5, atol=1e-4)


def test_results_that_are_not_finite_are_left_out():
    a, b = operands()
    a[2, 5] = np.inf
    found = compare_products(a, b, units=[ProductStack("exact", "float16"), ProductStack("sequential", "float16")])
    assert (found.nonfinite, found.size) == (24, 480)
    assert np.isfinite(found.total.rms)
    assert "24 of 480 results are not finite and are left out." in found.text()


def test_text_and_dictionary():
    found = compare_products(*operands(), units=[DEEPSEEK, NVFP4])
    lines = found.text().splitlines()
    assert lines[0] == "blackwell_nvfp4 - deepseek: the largest part is quantizer; every part is expected."
    assert [line.split("  ")[0] for line in lines[4:]] == [*PARTS, "total"]
    assert lines[-1].split()[2] == f"{found.total.largest:.2e}"
    said = found.as_dict()
    assert said["stacks"] == ["deepseek", "blackwell_nvfp4"]
    assert said["parts"]["promotion"] == {
        "rms": 0.0, "bias": 0.0, "largest": 0.0, "expected": 0.0, "verdict": "equal",
    }  # fmt: skip
    assert said["parts"]["quantizer"]["rms"] == found.parts[0].rms


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (["hopper_fp8"], "'units' must be two stacks, not 1"),
        (
            ["exact", np.ones((4, 4))],
            "'units' must be ProductStacks, matrix units, or names of units or modes, not 'ndarray'",
        ),
        (["hoper_fp8", "exact"], "did you mean 'hopper_fp8'"),
        (
            [ProductStack("hopper_fp8", "mxfp4_e2m1"), "exact"],
            "'a' must be an array of e4m3 or e5m2 for unit 'hopper_fp8'",
        ),
        (["hopper_float16", "exact"], "'a' must be an array of float16 for unit 'hopper_float16', not 'float32'"),
    ],
)
def test_bad_stacks_raise(units, message):
    with pytest.raises(ValueError, match=message):
        compare_products(*operands(), units=units)


def test_bad_arrays_and_arguments_raise():
    a, _ = operands()
    with pytest.raises(ValueError, match="'b' must be a matrix, not "):
        compare_products(a, a[0], units=["exact", "sequential"])
    with pytest.raises(ValueError, match="'tensor_scale' must be one of"):
        ProductStack("exact", tensor_scale="before")

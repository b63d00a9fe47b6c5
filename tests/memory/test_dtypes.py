"""Tests of conversions between numpy dtypes and format descriptions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxnum import formats
from mxnum.memory import dtypes


def test_native_arrays_are_not_copied():
    x = np.ones(3, np.float32)
    array, fmt = dtypes.float_array("x", x)
    assert array is x
    assert fmt.name == "float32"
    array, fmt = dtypes.float_array("x", np.array([1.0, -2.5], ">f8"))
    assert array.dtype.isnative
    assert array.tolist() == [1.0, -2.5]
    assert dtypes.float_array("x", np.ones(2, ml_dtypes.bfloat16))[1].name == "bfloat16"
    assert dtypes.float_array("x", [0.5])[1].name == "float64"


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("bfloat16", "bfloat16"),
        (np.float16, "float16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype("f8"), "float64"),
        (float, "float64"),
    ],
)
def test_result_formats(given, want):
    assert dtypes.result_format(given).name == want
    assert dtypes.numpy_dtype(dtypes.result_format(given)).name == want


def test_code_types():
    assert [dtypes.code_dtype(b).name for b in (4, 8, 16, 32, 64)] == ["uint8", "uint8", "uint16", "uint32", "uint64"]
    with pytest.raises(ValueError, match="the elements with a dtype in ml_dtypes, not <ElementFormat e3m0"):
        dtypes.numpy_dtype(formats.element("e3m0"))
    # Regression: an element named e2m1 with other values was read as ml_dtypes' E2M1.
    with pytest.raises(ValueError, match="with a dtype in ml_dtypes, not <ElementFormat e2m1: 4 bits, max 3>"):
        dtypes.numpy_dtype(formats.element("e2m1:bias=2"))


def test_signed_bits_share_memory():
    x = np.array([-0.0, 1.0], np.float32)
    bits = dtypes.signed_bits(x)
    assert bits.tolist() == [-(2**31), 0x3F800000]
    assert np.shares_memory(bits, x)


def test_masked_arrays_raise():
    # Regression: masked elements were silently read as ordinary elements.
    masked = np.ma.masked_array(np.ones(4), [0, 1, 0, 0])
    with pytest.raises(ValueError, match="'x' must be without a mask, not 'a masked array'"):
        dtypes.float_array("x", masked)
    assert dtypes.float_array("x", np.ma.masked_array(np.ones(4)))[0].tolist() == [1] * 4

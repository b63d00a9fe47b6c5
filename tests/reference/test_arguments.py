"""Tests of the oracle's arguments: names, members of enums, user elements, and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mxnum import formats, modes
from mxnum.formats import ElementFormat, MXFormat
from mxnum.reference import dequantize, encode, quantize, shared_scale
from tests.reference.tables import NAN, f32, value


def test_modes_may_be_members() -> None:
    assert encode(3, "e3m0", rounding=modes.Rounding.RNA, overflow=modes.Overflow.IEEE) == 5
    assert encode(3, formats.ELEMENTS["e3m0"], rounding=modes.Rounding.RNE) == 4
    assert shared_scale([3.0], "e2m1", scale_rule=modes.ScaleRule.CEIL) == 127
    q = quantize(f32([NAN]), formats.get("mxfp8_e4m3"), nonfinite=modes.Nonfinite.ELEMENT)
    assert q.codes.tolist() == [0x7F]


def test_user_made_elements() -> None:
    int6 = formats.element("int6:")
    assert [value(c, int6) for c in (1, 31, 32, 63)] == [1 / 16, 31 / 16, -2, -1 / 16]
    e4m0 = ElementFormat("e4m0", 4, 0, 7, specials="nan")
    assert [value(c, e4m0) for c in (0, 1, 14)] == [0, 2.0**-6, 2.0**7]
    assert math.isnan(value(15, e4m0))
    assert encode(300, e4m0, overflow="ieee") == 15
    assert encode(300, e4m0) == 14
    q = quantize(np.array([3.0, -1.5]), MXFormat(int6, block=2))
    assert q.scales.tolist() == [128]
    assert q.codes.tolist() == [24, 64 - 12]


def test_errors() -> None:
    x = np.ones((2, 2))
    calls: list[tuple[str, Any]] = [
        ("rounding", lambda: encode(1, "e4m3", rounding="up")),
        ("overflow", lambda: quantize(x, "mxint8", overflow="wrap")),
        ("scale_rule", lambda: shared_scale([1], "e4m3", scale_rule="max")),
        ("element", lambda: encode(1, "e9m9")),
        ("format", lambda: quantize(x, "mxfp9")),
        ("random_bits", lambda: encode(1, "e4m3", rounding="sr")),
        ("random_bits", lambda: quantize(x, "mxint8", rounding="sr")),
        ("random_bits", lambda: quantize(x[:0], "mxint8", rounding="sr")),
        ("random_bits", lambda: quantize(x, "mxint8", rounding="sr", random_bits=np.zeros(4, np.uint32))),
        ("random_bits", lambda: encode(1, "e4m3", rounding="sr", random_bits=2**32)),
        ("sr_bits", lambda: encode(1, "e4m3", rounding="sr", random_bits=0, sr_bits=31)),
        ("blocks", lambda: quantize(x, "mxint8", blocks=(32,))),
        ("blocks", lambda: quantize(x, "mxint8", blocks=(1, 0))),
        ("offset", lambda: quantize(x, "mxint8", offset="float32")),
        ("scale", lambda: encode(1, "e4m3", scale=256)),
        ("code", lambda: dequantize([[0x10]], [[127]], "mxint4")),
        ("scales", lambda: dequantize([[1]], [127], "mxint4")),
        ("dtype", lambda: dequantize([[1]], [[127]], "mxint4", dtype="int32")),
    ]
    for argument, call in calls:
        with pytest.raises(ValueError, match=f"'{argument}'"):
            call()
    # Regression: a number for `blocks`, instead of a tuple, raised an unrelated error.
    with pytest.raises(TypeError, match="'blocks' must be a tuple of block lengths, not 16"):
        quantize(x, "mxint8", blocks=16)  # type: ignore[arg-type]

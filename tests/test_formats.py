"""Format descriptions against the tables of OCP MX v1.0 and OFP8 v1.0, typed in here."""

from __future__ import annotations

import dataclasses
import math

import pytest

import mxnum as mx
from mxnum import formats

#: name: bits, emax, emin, max, max code, min normal, min subnormal
TABLE = {
    "e4m3": (8, 8, -6, 448.0, 0x7E, 2.0**-6, 2.0**-9),
    "e5m2": (8, 15, -14, 57344.0, 0x7B, 2.0**-14, 2.0**-16),
    "e3m2": (6, 4, -2, 28.0, 0x1F, 0.25, 0.0625),
    "e2m3": (6, 2, 0, 7.5, 0x1F, 1.0, 0.125),
    "e2m1": (4, 2, 0, 6.0, 0x7, 1.0, 0.5),
    "e3m0": (4, 4, -2, 16.0, 0x7, 0.25, None),
    "int8": (8, 0, 0, 127 / 64, 0x7F, 1.0, 2.0**-6),
    "int4": (4, 0, 0, 7 / 4, 0x7, 1.0, 2.0**-2),
    "float32": (32, 127, -126, 3.4028234663852886e38, 0x7F7FFFFF, 2.0**-126, 2.0**-149),
    "bfloat16": (16, 127, -126, 3.3895313892515355e38, 0x7F7F, 2.0**-126, 2.0**-133),
    "float16": (16, 15, -14, 65504.0, 0x7BFF, 2.0**-14, 2.0**-24),
    "float64": (64, 1023, -1022, 1.7976931348623157e308, 0x7FEFFFFFFFFFFFFF, 2.0**-1022, 5e-324),
}


@pytest.mark.parametrize("name", TABLE)
def test_ranges(name):
    e = formats.element(name)
    assert (e.bits, e.emax, e.emin, e.max, e.max_code, e.min_normal, e.min_subnormal) == TABLE[name]


def test_value_lists():
    assert formats.element("e2m1").values()[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert formats.element("e2m1").values()[8:] == (-0.0, -0.5, -1, -1.5, -2, -3, -4, -6)
    assert math.copysign(1, formats.element("e2m1").value(8)) == -1
    assert formats.element("e3m0").values()[:8] == (0, 0.25, 0.5, 1, 2, 4, 8, 16)
    assert formats.element("int4").values() == tuple(c / 4 for c in (*range(8), *range(-8, 0)))
    assert formats.element("int8").value(0x80) == -2
    e4m3, e5m2 = formats.element("e4m3").values(), formats.element("e5m2").values()
    assert [c for c, v in enumerate(e4m3) if math.isnan(v)] == [0x7F, 0xFF]
    assert [c for c, v in enumerate(e5m2) if math.isinf(v)] == [0x7C, 0xFC]
    assert [c for c, v in enumerate(e5m2) if math.isnan(v)] == [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]
    assert sum(0 < v < math.inf for v in e4m3) == 126


def test_special_codes():
    codes = {name: (formats.element(name).infinity_code, formats.element(name).nan_code) for name in TABLE}
    assert codes == {
        "e4m3": (None, 0x7F), "e5m2": (0x7C, 0x7F), "e3m2": (None, None), "e2m3": (None, None), "e2m1": (None, None),
        "e3m0": (None, None), "int8": (None, None), "int4": (None, None), "float32": (0x7F800000, 0x7FC00000),
        "bfloat16": (0x7F80, 0x7FC0), "float16": (0x7C00, 0x7E00),
        "float64": (0x7FF0000000000000, 0x7FF8000000000000),
    }  # fmt: skip


def test_scales():
    e8m0 = formats.E8M0
    assert e8m0.value(0) == 2.0**-127
    assert e8m0.value(127) == 1
    assert e8m0.value(254) == 2.0**127
    assert math.isnan(e8m0.value(255))
    assert e8m0.power_of_two


def test_the_registry():
    assert mx.formats.names() == (
        "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8", "mxfp4_e3m0", "mxint4",
    )  # fmt: skip
    bits = {name: formats.get(name).bits_per_element for name in formats.names()}
    assert bits["mxfp4_e2m1"] == 4.25
    assert bits["mxfp6_e3m2"] == 6.25
    assert bits["mxfp8_e4m3"] == 8.25
    for name in formats.names():
        fmt = formats.get(name)
        assert (fmt.name, fmt.block, fmt.scale) == (name, 32, formats.E8M0)
        assert formats.get(fmt) is fmt


def test_user_made_formats_are_values():
    a = mx.MXFormat("e4m3", "e8m0", 16)
    assert a == mx.MXFormat(formats.element("e4m3"), formats.E8M0, 16)
    assert hash(a) == hash(mx.MXFormat("e4m3", block=16))
    assert a.name == "mx_e4m3_16"
    assert a != formats.get("mxfp8_e4m3")
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.block = 8


def test_what_people_read():
    assert repr(formats.get("mxfp4_e2m1")) == "<MXFormat mxfp4_e2m1: e2m1 x 32 per e8m0, 4.25 bits per element, max 6>"
    assert repr(formats.element("e4m3")) == "<ElementFormat e4m3: 8 bits, max 448>"
    assert repr(formats.E8M0) == "<ScaleFormat e8m0: 8 bits, 2^(code-127), NaN 0xff>"
    text = formats.describe("mxfp6_e2m3")
    assert "6.25 bits per element" in text
    assert "largest 7.5, smallest normal 1, smallest positive 0.125" in text
    table = formats.describe().splitlines()
    assert len(table) == 9
    assert "4.25" in next(line for line in table if line.startswith("mxfp4_e2m1"))
    assert "two's complement x 2^-6" in formats.describe("mxint8")

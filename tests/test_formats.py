"""Tests of format descriptions against the tables of OCP MX v1.0 and OFP8 v1.0."""

from __future__ import annotations

import dataclasses
import math

import pytest

import mxnum as mx
from mxnum import formats

#: For each element: bits, emax, emin, largest value, its code, smallest normal, smallest subnormal
#: number.
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


def test_scales_that_are_floats():
    e4m3, ue5m3, float32 = (formats.SCALES[name] for name in ("e4m3", "ue5m3", "float32"))
    assert (e4m3.value(0x7E), e4m3.value(1), e4m3.value(0)) == (448, 2.0**-9, 0)
    assert math.isnan(e4m3.value(0x7F))
    assert (e4m3.max_code, e4m3.nan_code, e4m3.bits) == (0x7E, 0x7F, 8)
    # UE5M3: the largest value is 2**16 * 1.75, the smallest 2**-14 / 8, and a code has 8 bits.
    assert (ue5m3.value(0xFE), ue5m3.value(1), ue5m3.bits) == (114688, 2.0**-17, 8)
    assert math.isnan(ue5m3.value(0xFF))
    assert (float32.value(0x3F800000), float32.value(0x7F800000), float32.bits) == (1, math.inf, 32)
    with pytest.raises(ValueError, match="between 0 and 127, without a sign, not 128"):
        e4m3.value(0x80)
    assert not e4m3.power_of_two
    assert repr(ue5m3) == "<ScaleFormat ue5m3: 8 bits, unsigned float, max 114688>"


def test_formats_with_float_scales():
    fmt = formats.get("e4m3:block=128,scale=float32")
    assert fmt == mx.MXFormat("e4m3", "float32", 128)
    assert fmt.name == "mx_e4m3_128_float32"
    assert fmt.notation == "e4m3:block=128,scale=float32"
    nvfp4 = mx.MXFormat("e2m1", "e4m3", 16, tensor_scale="float32")
    assert nvfp4.notation == "e2m1:block=16,scale=e4m3,tensor_scale=float32"
    assert formats.get(nvfp4.notation) == nvfp4
    assert formats.get("nvfp4:block=32") == mx.MXFormat("e2m1", "e4m3", 32, tensor_scale="float32")
    assert formats.get("int6:scale=bfloat16").scale == formats.SCALES["bfloat16"]
    own = formats.get("e3m4:bias=3,scale=float16,tensor_scale=float32")
    assert formats.get(own.notation) == own
    for scale in ("e8m0", "float32", "bfloat16"):
        with pytest.raises(ValueError, match=f"'tensor_scale' must be left out with {scale} scales"):
            mx.MXFormat("e2m1", scale, tensor_scale="float32")
    with pytest.raises(
        ValueError, match="measure supports only formats with E8M0 scales, not 'nvfp4', whose scales are e4m3"
    ):
        formats.get_e8m0("nvfp4", "measure")


def test_the_registry():
    assert mx.formats.names() == (
        "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8", "mxfp4_e3m0", "mxint4", "nvfp4",
    )  # fmt: skip
    bits = {name: formats.get(name).bits_per_element for name in formats.names()}
    assert bits["mxfp4_e2m1"] == 4.25
    assert bits["mxfp6_e3m2"] == 6.25
    assert bits["mxfp8_e4m3"] == 8.25
    assert formats.names("e8m0") == formats.names()[:-1]
    for name in formats.names("e8m0"):
        fmt = formats.get(name)
        assert (fmt.name, fmt.block, fmt.scale) == (name, 32, formats.E8M0)
        assert formats.get(fmt) is fmt
    nvfp4 = formats.get("NVFP4")
    assert (nvfp4.element.name, nvfp4.scale, nvfp4.block) == ("e2m1", formats.SCALES["e4m3"], 16)
    assert (nvfp4.tensor_scale, nvfp4.bits_per_element) == ("float32", 4.5)


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
    assert len(table) == 4 + 9
    assert max(map(len, table)) <= 80
    assert " 2^-14 " in next(line for line in table if line.startswith("mxfp8_e5m2"))
    assert table[-1].endswith("e4m3 (and float32)")
    assert "4.25" in next(line for line in table if line.startswith("mxfp4_e2m1"))
    assert "two's complement x 2^-6" in formats.describe("mxint8")


def test_formats_written_out():
    fmt = formats.get("e3m4:bias=5,specials=nan,block=16")
    assert fmt == mx.MXFormat(mx.ElementFormat("e3m4", 3, 4, 5, "nan"), block=16)
    assert formats.element("e3m4:bias=5,specials=nan") == fmt.element
    assert formats.get("e4m2:block=8").element.bias == 7
    assert formats.get("e4m3:block=8").element is formats.element("e4m3")
    assert formats.get("mxfp8_e4m3:block=8") == formats.get("e4m3:block=8")
    assert formats.get("e4m3:specials=none").element.max == 480
    assert formats.get("int6:").element == mx.ElementFormat("int6", 1, 4, 1, integer=True)
    assert formats.of_element("e5m2").name == "mxfp8_e5m2"


def same_bits(a, b):
    return dataclasses.replace(a.element, name="") == dataclasses.replace(b.element, name="") and a.block == b.block


@pytest.mark.parametrize("integer", [False, True])
def test_every_format_has_a_notation_that_is_read_back(integer):
    tried = 0
    for block in (1, 32, 33):
        for bits in range(3, 9):
            if integer:
                elements = [formats.two_complement("mine", bits)]
            else:
                elements = [
                    mx.ElementFormat("mine", e, bits - 1 - e, bias, kind)
                    for e in range(1, bits)
                    for bias in (-2, 0, 1, 7)
                    for kind in (["none", "nan"] + ["ieee"] * (e >= 2 and bits - 1 - e >= 1))
                ]
            for element in elements:
                fmt = mx.MXFormat(element, block=block)
                assert same_bits(formats.get(fmt.notation), fmt), fmt.notation
                tried += 1
    assert tried > 10
    for name in formats.names():
        fmt = formats.get(name)
        assert fmt.notation == name
        other = mx.MXFormat(fmt.element, block=7, name=name)
        assert other.notation != name
        assert same_bits(formats.get(other.notation), other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e3m4", "or written out with a colon like 'e3m4:block=32', not 'e3m4'"),
        (
            "e3m4:bais=3",
            r"'format key' must be one of \['bias', 'specials', 'block', 'scale', 'tensor_scale'\],",
        ),
        ("e3m4:bias=x", "Format 'e3m4:bias=x' must set bias to an integer of at most six digits, not 'x'"),
        ("e3m4:block=0", "'block' must be at least 1"),
        ("e9m9:", "'element' must be at most 8 bits wide"),
        ("e99999m9:", "'exponent_bits' must be between 1 and 11"),
        ("e3m4:specials=some", "'specials' must be one of"),
        ("int6:bias=1", "must not set bias: an integer has no bias"),
        ("int2:", "Format 'int2:' must have between 3 and 8 bits, not 2"),
        ("int9:block=4", "must have between 3 and 8 bits, not 9"),
        ("int10:", "must have between 3 and 8 bits, not 10"),
        # Regression: "e0m3:" raised an error about a negative shift, and "e7m0:bias=-897" about a
        # value beyond float64.
        ("e0m3:", "'exponent_bits' must be between 1 and 11, not 0"),
        ("e7m0:bias=-897", "'bias' must be between -896 and 1023, because float64 must hold all values, not -897"),
        ("e1m6:bias=-1023", "'bias' must be between -1022 and 1023, because"),
        ("mxint4:bias=1", "must set nothing but 'block': 'mxint4' fixes all other settings"),
        # Regression: if a key was given twice, the last value was silently used.
        ("e4m3:block=16,block=32", "Format 'e4m3:block=16,block=32' must set block once, not to '16' and '32'"),
        ("e4m3:block=16,block=16", "must set block once"),
        ("mxint4:block=16,block=32", "must set block once"),
        ("f8:block=2", "must begin with e<bits>m<bits>, int<bits>, e4m3, "),
    ],
)
def test_formats_that_cannot_be_read(text, message):
    with pytest.raises(ValueError, match=message):
        formats.get(text)


@pytest.mark.parametrize("key", ["block=16", "scale=float32", "bias=3,block=16"])
def test_an_element_has_no_blocks(key):
    """Check that an element with a block raises an error, as in `MXFormat("e4m3:block=16")`."""
    message = f"Element 'e3m4:{key}' must not set (block|scale), which only a format has"
    for call in (formats.element, formats.MXFormat, lambda text: mx.encode([1.0], text)):
        with pytest.raises(ValueError, match=message):
            call(f"e3m4:{key}")
    assert formats.MXFormat("e3m4:bias=3", block=16) == formats.get("e3m4:bias=3,block=16")


def test_what_has_no_notation():
    element = mx.ElementFormat("e5m2", 5, 2, 15, "ieee", canonical_nan=True)
    with pytest.raises(ValueError, match="cannot be written out: its element has canonical_nan=True"):
        _ = mx.MXFormat(element).notation


def test_no_scale_is_taken_that_is_not_computed():
    # Regression: any scale format was accepted, but the result had E8M0 scales.
    other = mx.ScaleFormat("e5m3", bits=8, bias=15, nan_code=0xFF)
    with pytest.raises(ValueError, match=r"'scale' must be one of .*'e8m0', 'e4m3', 'ue5m3', 'float32'.*, not"):
        mx.MXFormat("e4m3", other)
    assert mx.MXFormat("e4m3", mx.ScaleFormat("e8m0", 8, 127, 0xFF)) == mx.MXFormat("e4m3")

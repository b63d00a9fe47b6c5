"""Tests that `prove` accepts conversions between elements in every deterministic rounding mode."""

from __future__ import annotations

import pytest

from mxnum.conformance import prove
from mxnum.definition.convert import make_decode, make_encode
from mxnum.emit import reference_model
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from tests.prove.test_c import needs_clang

FORMATS = {"e4m3": "mxfp8_e4m3", "e5m2": "mxfp8_e5m2", "e3m2": "mxfp6_e3m2", "e2m3": "mxfp6_e2m3", "e2m1": "mxfp4_e2m1"}
DETERMINISTIC = [mode for mode in Rounding if not mode.is_stochastic]
PAIRS = [(a, b) for a in FORMATS for b in FORMATS if a != b]
#: Any NaN code is accepted, because the conversion to float32 loses the sign of a NaN.
SETTINGS = {"accept": ["nan_code"]}


def converter(source, target, rounding):
    """Return a function that decodes a code to float32, and encodes the float32 in `target`."""
    decode = make_decode(ELEMENTS[source], FLOATS["float32"])
    encode = make_encode(FLOATS["float32"], ELEMENTS[target], rounding, Overflow.SATURATE)

    def convert(x, scale):
        return encode(decode(x, 127), scale, 0)

    return convert


@pytest.mark.parametrize(
    ("pair", "rounding"),
    [
        *((("e4m3", "e2m1"), rounding) for rounding in DETERMINISTIC),
        # e5m2 also has infinities, and e4m3 has codes beyond its largest number.
        *((("e5m2", "e4m3"), rounding) for rounding in (Rounding.RNE, Rounding.RTN)),
    ],
)
def test_an_element_to_another(pair, rounding):
    source, target = pair
    assert prove(converter(*pair, rounding), "encode", target, source=source, rounding=rounding, **SETTINGS)


@pytest.mark.full
@needs_clang
@pytest.mark.parametrize("rounding", DETERMINISTIC, ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_pair_in_c(tmp_path, pair, rounding):
    """Check conversions in C that decode with one emitted model, and encode with another."""
    source, target = pair
    for name, element, mode in (("from", source, "rne"), ("to", target, rounding)):
        text = reference_model("c", FORMATS[element], rounding=mode, name=f"m_{name}")
        (tmp_path / f"{name}.h").write_text(text)
    path = tmp_path / "convert.c"
    path.write_text("""#include "from.h"
    #include "to.h"
    uint8_t convert(uint8_t x, uint8_t scale) { return (uint8_t)m_to_encode((int32_t)m_from_decode(x, 127), scale); }
    """)
    settings = {"source": source, "rounding": rounding, "include": [tmp_path], **SETTINGS}
    assert prove(path, "encode", target, function="convert", **settings)


def test_another_rounding_is_refuted():
    refuted = prove(converter("e4m3", "e2m1", Rounding.RTZ), "encode", "e2m1", source="e4m3")
    example = refuted.counterexample
    assert example.right["code"] == example.found["code"] + 1

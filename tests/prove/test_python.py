"""Tests that Python functions, compiled by numba or not, are proved or refuted."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from mxnum.conformance import prove
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.word import select
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding

TABLE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def test_the_definition_is_proved_under_every_scale():
    encode = make_encode(FLOATS["float16"], ELEMENTS["e2m1"], Rounding.SR, Overflow.SATURATE)
    settings = {"source": "float16", "rounding": "sr", "sr_bits": 30}
    assert prove(encode, "encode", "mxfp4_e2m1", **settings)
    assert prove(lambda code: make_decode(ELEMENTS["e4m3"], FLOATS["float32"])(code, 127), "decode", "e4m3")


def test_few_random_bits():
    function = make_encode(FLOATS["float16"], ELEMENTS["e2m1"], Rounding.SR, Overflow.SATURATE)

    def encode(x, random):
        return function(x, 127, (random & 3) << 28)

    settings = {"source": "float16", "rounding": "sr"}
    assert prove(encode, "encode", "mxfp4_e2m1", sr_bits=2, **settings)
    refuted = prove(encode, "encode", "mxfp4_e2m1", sr_bits=3, **settings)
    assert "sr adds R to the first 3 fraction bits" in str(refuted)


def test_a_function_that_overflows_64_bits_is_refuted():
    def decode(code):
        return select((code << 62) == 0, code, code)

    assert prove(decode, "decode", "mxfp4_e2m1").verdict == "refuted"


def test_branches_on_data_name_the_line():
    def decode(code):
        return 1 if code > 3 else 0

    with pytest.raises(ValueError, match=r"'decode', line \d+ of .*test_python.py: a dialect function must not branch"):
        prove(decode, "decode", "mxfp4_e2m1")


def test_numba_with_branches_and_with_a_table():
    @numba.njit
    def decode(code):
        sign, step = code >> 3, (code >> 1) & 3
        if step == 0:
            return (sign << 31) | ((126 << 23) if code & 1 else 0)
        return (sign << 31) | ((step + 126) << 23) | ((code & 1) << 22)

    @numba.njit
    def by_table(code):
        return TABLE[code]

    @numba.njit
    def wrong(code):
        return TABLE[code ^ (code == 9)]

    assert prove(decode, "decode", "mxfp4_e2m1")
    assert prove(by_table, "decode", "mxfp4_e2m1")
    assert prove(wrong, "decode", "mxfp4_e2m1").counterexample.inputs == {"code": 9}


def test_an_exception_of_numba_is_refuted():
    @numba.njit
    def decode(code):
        if code == 9:
            raise ValueError("no such code")
        return TABLE[code]

    example = prove(decode, "decode", "mxfp4_e2m1").counterexample
    assert (example.inputs, example.found) == ({"code": 9}, {"value": None})


@pytest.mark.parametrize(
    ("result", "message"), [("(code, code)", r"line \d+ of .*UniTuple"), ("code > 1", "at least 32 bits")]
)
def test_numba_functions_must_return_one_number_that_is_wide_enough(result, message):
    with pytest.raises(ValueError, match=message):
        prove(numba.njit(eval(f"lambda code: {result}")), "decode", "mxfp4_e2m1")

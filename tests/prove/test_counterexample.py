"""Tests that each counterexample has a command that runs and prints the right answer."""

from __future__ import annotations

import shlex
import struct
import subprocess
import sys

import pytest

from mxnum.conformance import prove
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import select
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.prove.claims import make_dot, make_product

FLOAT32, E2M1 = FLOATS["float32"], ELEMENTS["e2m1"]


def wrong_decode(code):
    return make_decode(E2M1, FLOAT32)(code, 128)


def printed(refuted):
    """Run a counterexample's command, and return the float32 bits of the number it prints."""
    command = shlex.split(refuted.counterexample.reproduce)
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True)
    return struct.unpack("<I", struct.pack("<f", float(done.stdout)))[0]


def test_decode():
    refuted = prove(wrong_decode, "decode", "mxfp4_e2m1")
    assert printed(refuted) == refuted.counterexample.right["value"]


def test_dot():
    dot, product = make_dot(E2M1, 2), make_product(E2M1)

    def wrong(a, b, a_scale):
        a, b = (a & 15, a >> 4), (b & 15, b >> 4)
        return select(product(a[0], b[0]) == 9, 0, dot(a, b, a_scale, 127))

    refuted = prove(wrong, "dot", "mxfp4_e2m1", terms=2)
    assert printed(refuted) == refuted.counterexample.right["value"]


def test_encoding_an_element(capsys):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    from mxnum.cli.main import main

    decode, encode = make_decode(ELEMENTS["e4m3"], FLOAT32), make_encode(FLOAT32, E2M1, Rounding.RNA, Overflow.SATURATE)
    refuted = prove(lambda x: encode(decode(x, 127), 127, 0), "encode", "e2m1", source="e4m3")
    assert "a tie" in refuted.counterexample.text
    assert main(shlex.split(refuted.counterexample.reproduce)[1:]) == 0
    assert f"0x{refuted.counterexample.right['code']:X}" in capsys.readouterr().out


def test_scale(capsys):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    from mxnum.cli.main import main

    refuted = prove(make_shared_scale(FLOAT32, E2M1, ScaleRule.CEIL), "scale", "mxfp4_e2m1", scale_rule="floor")
    assert main(shlex.split(refuted.counterexample.reproduce)[1:]) == 0
    assert f"0x{refuted.counterexample.right['scale']:02X}" in capsys.readouterr().out


def test_a_refuted_nan_names_the_setting_that_admits_it():
    def float32_to_e4m3(x):
        code = make_encode(FLOAT32, ELEMENTS["e4m3"], Rounding.RNE, Overflow.SATURATE)(x, 127, 0)
        return select((code & 127) == 127, 255, code)

    def float32_to_e2m1(x):
        code = make_encode(FLOAT32, E2M1, Rounding.RNE, Overflow.SATURATE)(x, 127, 0)
        return select((x & 0x7FFFFFFF) > 0x7F800000, 0, code)

    for wrong, element, setting in (
        (float32_to_e4m3, "e4m3", {"accept": "nan_code"}),
        (float32_to_e2m1, "e2m1", {"assume": "not_nan"}),
    ):
        refuted = prove(wrong, "encode", element)
        ((verb, name),) = setting.items()
        last = refuted.counterexample.text.splitlines()[-1]
        assert verb in last
        assert name in last
        assert prove(wrong, "encode", element, **setting)

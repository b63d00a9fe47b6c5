"""Each counterexample comes with a command that runs and shows the right answer."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from mxnum.conformance import prove
from mxnum.definition.convert import make_decode
from mxnum.definition.scale import make_shared_scale
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import ScaleRule

FLOAT32, E2M1 = FLOATS["float32"], ELEMENTS["e2m1"]


def wrong_decode(code):
    return make_decode(E2M1, FLOAT32)(code, 128)


def test_decode():
    refuted = prove(wrong_decode, "decode", "mxfp4_e2m1")
    command = shlex.split(refuted.counterexample.reproduce)
    printed = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True).stdout
    assert float(printed) == E2M1.value(refuted.counterexample.inputs["code"])


def test_scale(capsys):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    from mxnum.cli.main import main

    refuted = prove(make_shared_scale(FLOAT32, E2M1, ScaleRule.CEIL), "scale", "mxfp4_e2m1", scale_rule="floor")
    assert main(shlex.split(refuted.counterexample.reproduce)[1:]) == 0
    assert f"0x{refuted.counterexample.right['scale']:02X}" in capsys.readouterr().out

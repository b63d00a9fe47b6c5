"""Tests that Verilog modules are proved, or refuted by an input for which they are wrong."""

from __future__ import annotations

import pytest

import mxnum as mx
from mxnum.conformance import prove
from tests.prove.hardware import ENCODER, PIPELINE, needs_yosys, write

pytestmark = needs_yosys


def test_an_encoder_is_proved_and_another_rounding_is_refuted(tmp_path):
    files = write(tmp_path, ENCODER, format="mxfp8_e4m3")
    assert prove(files, "encode", "mxfp8_e4m3", function="enc")
    refuted = prove(files, "encode", "mxfp8_e4m3", function="enc", rounding="rna")
    assert refuted.verdict == "refuted"
    example = refuted.counterexample
    assert example.inputs["scale"] == 127
    rounded = {name: int(mx.encode(value(example), "e4m3", rounding=name)) for name in ("rna", "rne")}
    assert (example.right, example.found) == ({"code": rounded["rna"]}, {"code": rounded["rne"]})
    assert "a tie, which rna rounds away from zero" in str(refuted)
    assert f"mxnum explain bits:{example.inputs['x']:08X} --format mxfp8_e4m3" in str(refuted)


def value(example):
    import numpy as np

    return np.array(example.inputs["x"], np.uint32).view(np.float32)


def test_parameters(tmp_path):
    files = write(tmp_path, ENCODER, format="mxfp4_e2m1")
    for function in ("enc", None):
        refuted = prove(files, "encode", "mxfp4_e2m1", function=function, parameters={"EXTRA": 1})
        assert refuted.verdict == "refuted"
    with pytest.raises(ValueError, match="NIX"):
        prove(files, "encode", "mxfp4_e2m1", parameters={"NIX": 1})


def test_a_pipeline_is_proved_at_its_latency_alone(tmp_path):
    files = write(tmp_path, PIPELINE, format="mxfp4_e2m1")
    settings = {"function": "pipeline", "ports": {"data": "x", "enable": 1, "reset_n": 1, "q": "code"}}
    proof = prove(files, "encode", "mxfp4_e2m1", latency=2, **settings)
    assert proof
    assert "has no input for scale, so the scale is 1." in str(proof)
    example = prove(files, "encode", "mxfp4_e2m1", latency=1, **settings).counterexample
    assert example.right != example.found
    with pytest.raises(ValueError, match=r"'latency' must be at least 1, .* has registers"):
        prove(files, "encode", "mxfp4_e2m1", **settings)


def test_an_undefined_bit_may_be_either(tmp_path):
    text = "module f (input [3:0] code, output [31:0] value); assign value = code == 0 ? 32'bx : TAKEN; endmodule"
    text = text.replace("TAKEN", "m::decode({28'd0, code}, 127)")
    files = write(tmp_path, text, format="mxfp4_e2m1")
    refuted = prove(files, "decode", "mxfp4_e2m1", function="f")
    assert refuted.verdict == "refuted"
    assert refuted.counterexample.inputs == {"code": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module f (input x, output real code); endmodule", r"top.sv:1: syntax error"),
        ("module f (input [31:0] x, output [7:0] code); assign code = g(x); endmodule", r"top.sv:1.*g"),
        ("module f (input [31:0] y, output [7:0] code); assign code = y[7:0]; endmodule", "must map input 'y'"),
        (
            "module f (input [15:0] x, output [7:0] code); assign code = x[7:0]; endmodule",
            r"32 bits for 'x' \(float32\)",
        ),
        (
            "module f (input [31:0] x, output [7:0] o, o2); assign {o, o2} = x; endmodule",
            r"which output of module f",
        ),
        (  # yosys removes the latch of t, because no other block reads t
            "module f (input [31:0] x, output reg [7:0] code); reg [7:0] t;"
            " always @* begin if (x[31]) t = x[7:0]; code = t; end endmodule",
            r"top.sv:1 has a latch, because some branch does not assign f/t\.",
        ),
        (
            "module f (input c, input e, input [31:0] x, output reg [7:0] code);"
            " always @(posedge (c & e)) code <= x[7:0]; endmodule",
            r"a register whose clock is not an input: f/code",
        ),
        (
            "module f (input c, input [31:0] x, output reg [7:0] code); reg [31:0] h;"
            " always @(posedge c) h <= x; always @(negedge c) code <= h[7:0]; endmodule",
            r"2 clocks \(posedge c or negedge c\)",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as raised:
        prove(write(tmp_path, text), "encode", "mxfp8_e4m3")
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")

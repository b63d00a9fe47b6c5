"""Tests that emitted C and SystemVerilog of every format are proved equal to the definition."""

from __future__ import annotations

import pytest

from benchmarks.prove import modules
from mxnum import formats
from mxnum.conformance import prove
from mxnum.emit import reference_model
from mxnum.modes import Rounding, ScaleRule
from tests.prove.hardware import needs_yosys
from tests.prove.test_c import needs_clang

FORMATS = [name for name in formats.names() if formats.get(name).scale.power_of_two]
LANGUAGES = {"c": needs_clang, "systemverilog": needs_yosys}


def case(language, *of, is_fast):
    marks = [LANGUAGES[language], *([] if is_fast else [pytest.mark.full])]
    return pytest.param(language, *of, marks=marks, id="-".join([language, *of]))


#: Each format has fourteen cases: seven rounding modes in two languages. The fast tier runs one
#: case of each format. The rounding mode and the language of this case vary with the format.
ELEMENTS = [
    case(language, name, str(mode), is_fast=(j, k) == (i % len(Rounding), i % 2))
    for i, name in enumerate(FORMATS)
    for j, mode in enumerate(Rounding)
    for k, language in enumerate(LANGUAGES)
]
SCALES = [
    case(language, name, is_fast=i == k) for i, name in enumerate(FORMATS) for k, language in enumerate(LANGUAGES)
]


def files(folder, language, format, **settings):
    """Write an emitted model, and return its path.

    In SystemVerilog the file also has modules `encode`, `decode` and `scale`.
    """
    text = reference_model(language, format, name="m", **settings)
    if language == "c":
        (folder / "m.h").write_text(text)
        return folder / "m.h"
    (folder / "m.sv").write_text(text + modules(settings.get("rounding") == "sr"))
    return folder / "m.sv"


@pytest.mark.parametrize(("language", "name", "rounding"), ELEMENTS)
def test_elements_under_every_scale(tmp_path, language, name, rounding):
    for overflow in ("saturate", "ieee"):
        settings = {"rounding": rounding, "overflow": overflow}
        model = files(tmp_path, language, name, **settings)
        assert prove(model, "encode", name, function="m_encode", **settings)


@pytest.mark.parametrize(("language", "name"), SCALES)
def test_decoding_and_every_scale_rule(tmp_path, language, name):
    for rule in map(str, ScaleRule):
        model = files(tmp_path, language, name, scale_rule=rule)
        assert prove(model, "scale", name, function="m_shared_scale", scale_rule=rule)
    assert prove(model, "decode", name, function="m_decode")


@pytest.mark.full
@needs_yosys
def test_a_block_of_32(tmp_path):
    module = """
    module block (input [1023:0] x, output [7:0] scale, output [127:0] codes);
      assign {scale, codes} = m::quantize_block(x);
    endmodule
    """
    (tmp_path / "m.sv").write_text(reference_model("systemverilog", "mxfp4_e2m1", name="m") + module)
    assert prove(tmp_path / "m.sv", "quantize", "mxfp4_e2m1", function="block", seconds=1800)


#: A module that finds a block's largest magnitude by comparing pairs in a tree, as hardware does.
#: The definition compares each number in turn with the largest one so far.
TREE = """
module block #(parameter N = 32) (input [32 * N - 1:0] x, output [7:0] scale, output [4 * N - 1:0] codes);
  wire [30:0] node [1:2 * N - 1];
  wire [N - 1:0] special;
  wire signed [31:0] found = m::shared_scale({1'b0, node[1]});
  assign scale = |special ? 8'hFF : found[7:0];
  genvar i;
  generate
    for (i = 0; i < N; i = i + 1) begin : element
      wire signed [31:0] code = m::encode($signed(x[32 * i +: 32]), {24'd0, scale});
      assign special[i] = &x[32 * i + 23 +: 8];
      assign node[N + i] = special[i] ? 31'd0 : x[32 * i +: 31];
      assign codes[4 * i +: 4] = code[3:0];
    end
    for (i = 1; i < N; i = i + 1) begin : pair
      assign node[i] = node[2 * i] > node[2 * i + 1] ? node[2 * i] : node[2 * i + 1];
    end
  endgenerate
endmodule
"""


@needs_yosys
@pytest.mark.parametrize("block", [4, pytest.param(32, marks=pytest.mark.full)])
def test_a_block_whose_maximum_is_a_tree(tmp_path, block):
    name = f"mxfp4_e2m1:block={block}"
    (tmp_path / "m.sv").write_text(reference_model("systemverilog", name, name="m") + TREE)
    how = {"function": "block", "parameters": {"N": block}, "seconds": 1800}
    assert prove(tmp_path / "m.sv", "quantize", name, **how)
    (tmp_path / "m.sv").write_text((tmp_path / "m.sv").read_text().replace("node[2 * i] > node", "node[2 * i] < node"))
    assert prove(tmp_path / "m.sv", "quantize", name, **how).verdict == "refuted"


@needs_yosys
def test_a_block_of_two_and_one_whose_scale_is_wrong(tmp_path):
    """Check that the scale is proved first, and then each element, given the module's scale."""
    name = "mxfp4_e2m1:block=2"
    module = """
    module block (input [63:0] x, output [7:0] scale, output [7:0] codes);
      assign {scale, codes} = m::quantize_block(x);
    endmodule
    """
    (tmp_path / "m.sv").write_text(reference_model("systemverilog", name, name="m", scale_rule="ceil") + module)
    proof = prove(tmp_path / "m.sv", "quantize", name, function="block", scale_rule="ceil")
    assert [(part.name, part.verdict) for part in proof.parts] == [
        ("the scale", "proved"), ("element 0", "proved"), ("element 1", "proved"),
    ]  # fmt: skip
    refuted = prove(tmp_path / "m.sv", "quantize", name, function="block")
    assert [(part.name, part.verdict) for part in refuted.parts] == [("the scale", "refuted")]
    right, found = refuted.counterexample.right["scale"], refuted.counterexample.found["scale"]
    assert found == right + 1


@needs_yosys
def test_at_the_time_limit_it_says_what_was_proved(tmp_path, monkeypatch):
    """Check that parts of a proof are "open" if the solver runs out of time, else "proved"."""
    from mxnum.conformance import proving
    from mxnum.prove import solvers

    asked = []

    def solve(assertions, symbols, seconds):
        asked.append(seconds)
        if len(asked) % 2 == 0:  # the solver runs out of time on parts 2, 4, ...
            return solvers.Answer("unknown", "bitwuzla", seconds, {})
        return real(assertions, symbols, 60)

    real = solvers.solve
    monkeypatch.setattr(solvers, "solve", solve)
    assert proving.WHOLE == 0.5
    model = files(tmp_path, "systemverilog", "mxfp4_e2m1")
    proof = prove(model, "encode", "mxfp4_e2m1", function="m_encode", seconds=40)
    assert proof.verdict == "open"
    verdicts = [part.verdict for part in proof.parts]
    assert verdicts == ["proved", "open"] * 4
    assert "|x| with exponent field 0 to 31" in str(proof)
    assert not proof

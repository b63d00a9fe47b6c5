"""Emitted C and SystemVerilog of every format are proved equal to the definition."""

from __future__ import annotations

import pytest

from mxnum import formats
from mxnum.emit import reference_model
from mxnum.modes import Rounding, ScaleRule
from mxnum.prove import prove
from tests.prove.hardware import needs_yosys
from tests.prove.test_c import needs_clang

FORMATS = [name for name in formats.names() if formats.get(name).scale.power_of_two]
LANGUAGES = [pytest.param("c", marks=needs_clang), pytest.param("systemverilog", marks=needs_yosys)]


def files(folder, language, format, **settings):
    """Return the files of a model, in SystemVerilog with modules `encode`, `decode` and `scale`."""
    text = reference_model(language, format, name="m", **settings)
    if language == "c":
        (folder / "m.h").write_text(text)
        return folder / "m.h"
    random = settings.get("rounding") == "sr"
    drawn = (", input [29:0] random", ", m::align_random({2'b0, random})") if random else ("", "")
    modules = f"""
    module m_encode (input [31:0] x, input [7:0] scale{drawn[0]}, output [31:0] code);
      assign code = m::encode($signed(x), {{24'd0, scale}}{drawn[1]});
    endmodule
    module m_decode (input [7:0] code, input [7:0] scale, output [31:0] value);
      assign value = m::decode({{24'd0, code}}, {{24'd0, scale}});
    endmodule
    module m_shared_scale (input [31:0] amax, output [31:0] scale);
      assign scale = m::shared_scale($signed(amax));
    endmodule
    """
    (folder / "m.sv").write_text(text + modules)
    return folder / "m.sv"


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rounding", [str(mode) for mode in Rounding])
@pytest.mark.parametrize("name", FORMATS)
def test_elements_under_every_scale(tmp_path, language, name, rounding):
    for overflow in ("saturate", "ieee"):
        settings = {"rounding": rounding, "overflow": overflow}
        model = files(tmp_path, language, name, **settings)
        assert prove(model, "encode", name, function="m_encode", **settings)


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", FORMATS)
def test_decoding_and_every_scale_rule(tmp_path, language, name):
    for rule in map(str, ScaleRule):
        model = files(tmp_path, language, name, scale_rule=rule)
        assert prove(model, "scale", name, function="m_shared_scale", scale_rule=rule)
    assert prove(model, "decode", name, function="m_decode")


@pytest.mark.full
@needs_yosys
def test_a_block_of_eight(tmp_path):
    name = "mxfp4_e2m1:block=8"
    module = """
    module block (input [255:0] x, output [7:0] scale, output [31:0] codes);
      assign {scale, codes} = m::quantize_block(x);
    endmodule
    """
    (tmp_path / "m.sv").write_text(reference_model("systemverilog", name, name="m") + module)
    assert prove(tmp_path / "m.sv", "quantize", name, function="block")


@needs_yosys
def test_a_block_of_two_and_one_whose_scale_is_wrong(tmp_path):
    """The scale is asked first, then each element under the scale that the implementation gives."""
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
    """A clock that runs out between two parts leaves the second open."""
    from mxnum.prove import proving, solvers

    asked = []

    def solve(assertions, symbols, seconds):
        asked.append(seconds)
        if len(asked) % 2 == 0:  # the premises are asked first, then the whole
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

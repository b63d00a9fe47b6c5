from __future__ import annotations

import pytest


def test_a_model_in_a_file(run, tmp_path):
    path = tmp_path / "m.h"
    assert run("emit", "c", "-f", "mxfp4_e2m1", "-o", path) == ""
    assert "mxfp4_e2m1_quantize_block" in path.read_text()
    assert "--force" in run("emit", "c", "-o", path, status=2)
    run("emit", "python", "-o", path, "--force")
    assert "def quantize_block" in path.read_text()


def test_standard_output(run):
    text = run("emit", "systemverilog", "-f", "mxint8", "--name", "mine", "--scale-rule", "rceil")
    assert "package mine;" in text
    assert "scale_rule=rceil" in text
    assert text == run("emit", "systemverilog", "-f", "mxint8", "--name", "mine", "--scale-rule", "rceil", "-o", "-")


def test_a_matrix_unit(run):
    text = run("emit", "c", "--unit", "hopper_fp8", "--operand", "e5m2", "--name", "mine")
    assert "mine_fused_sum(const uint8_t *a" in text
    assert "for e5m2 times e5m2" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["rust"], "'language' must be one of ['c', 'systemverilog', 'javascript', 'python'], not 'rust'"),
        (["c", "--sr-bits", "8"], "Option --sr-bits must be left out unless --rounding sr"),
        (["c", "--scale-rule", "nearest"], "--scale-rule must be one of"),
        (["c", "--unit", "hopper_fp8", "--operand", "e2m1"], "must be one of ['e4m3', 'e5m2'], not 'e2m1'"),
        (["c", "--unit", "hopper_fp8", "--rounding", "rtz"], "Option --rounding must be left out with --unit."),
        (["c", "--operand", "e4m3"], "Option --operand must be left out unless --unit is given"),
    ],
)
def test_mistakes_are_one_sentence(run, options, told):
    assert told in run("emit", *options, status=2)

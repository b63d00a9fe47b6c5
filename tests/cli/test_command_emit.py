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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["rust"], "'language' must be one of ['c', 'systemverilog', 'javascript', 'python'], not 'rust'"),
        (["c", "--sr-bits", "8"], "Option --sr-bits must be left out unless --rounding sr"),
        (["c", "--scale-rule", "nearest"], "--scale-rule must be one of"),
    ],
)
def test_mistakes_are_one_sentence(run, options, told):
    assert told in run("emit", *options, status=2)

from __future__ import annotations

import pytest

from tests.prove.hardware import ENCODER, needs_yosys, write

pytest.importorskip("z3", reason="the extra prove is not installed")


@needs_yosys
def test_proved_and_refuted(run, tmp_path):
    files = write(tmp_path, ENCODER, format="mxfp4_e2m1")
    call = ("prove", "encode", *files, "-f", "mxfp4_e2m1", "--function", "enc")
    assert run(*call).startswith("Proved for all inputs")
    text = run(*call, "--rounding", "rtz", status=1)
    assert text.startswith("Refuted")
    told = run(*call, "--parameter", "EXTRA=1", status=1)
    assert "mxnum explain bits:" in told


def test_a_function_of_a_python_file(run, tmp_path):
    (tmp_path / "mine.py").write_text("def scale(amax):\n    return amax >> 23\n")
    call = ("prove", "scale", tmp_path / "mine.py", "-f", "e2m1", "--function")
    assert run(*call, "scale", status=1).startswith("Refuted")
    assert "Option --function must be the name of a function of mine.py, not 'x'" in run(*call, "x", status=2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["encode", "none.sv"], "'implementation' must be files that exist, not 'none.sv'"),
        (["multiply", "none.sv"], "'operation' must be one of"),
        (["encode", "none.sv", "--port", "x"], "Option --port must be like in=x, not 'x'"),
        (["encode", "none.sv", "--parameter", "N=x"], "Option --parameter must be like WIDTH=8, not 'N=x'"),
        (["scale", "none.sv", "-f", "nvfp4"], "are tested (mxnum verify), not proved"),
        (["encode", "none.sv", "-f", "nvfp4"], "or name an element ('e2m1'), not 'nvfp4'"),
        (["decode", "none.sv", "--rounding", "rtz"], "Option --rounding must be left out for 'decode'; it is for enc"),
        (["dot", "none.sv", "-f", "mxfp8_e4m3"], "elements of at most 6 bits for 'dot'"),
    ],
)
def test_mistakes_are_one_sentence(run, options, told):
    assert told in run("prove", *options, status=2)

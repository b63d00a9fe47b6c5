from __future__ import annotations

import json
import subprocess
import sys

import pytest


def test_written_vectors_verify(run, tmp_path):
    path = tmp_path / "cases.txt"
    run("vectors", "quantize", "-f", "mxfp4_e2m1", "--level", 2, "--count", 300, "--seed", 5, "-o", path)
    lines = path.read_text().splitlines()
    assert lines[0] == "# mxnum-vectors 1"
    assert "# seed: 5" in lines
    assert sum(not line.startswith("#") for line in lines) == 300
    assert "300 right" in run("verify", path)


@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("operation", ["encode", "quantize", "scale"])
def test_every_source_type_has_cases(run, tmp_path, operation, source):
    """Check that vectors can be written for every source type."""
    path = tmp_path / "cases.txt"
    run("vectors", operation, "-f", "mxfp4_e2m1", "--source", source, "-o", path)
    assert run.json("verify", path)["bugs"] == 0


def test_standard_output():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    command = [sys.executable, "-m", "mxnum", "vectors", "encode", "-f", "e2m1", "--inputs-only"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "# answers: no" in answer.stdout
    assert answer.stdout.splitlines()[-1].strip() == "FFFFFFFF"
    head = subprocess.run(["bash", "-c", f"{' '.join(command)} | head -n 2"], capture_output=True, text=True)
    assert head.stderr == ""


def test_dot_products_of_other_lengths(run, tmp_path):
    path = tmp_path / "cases.txt"
    run("vectors", "dot", "-f", "mxfp4_e2m1", "--dot-blocks", 3, "-o", path)
    assert "\n# inputs: a_scale[3] a[96] b_scale[3] b[96]\n" in path.read_text()
    assert run.json("verify", path)["bugs"] == 0


def test_mistakes_leave_no_file(run, tmp_path):
    assert "'operation' must be one of" in run("vectors", "encod", "-o", tmp_path / "x", status=2)
    assert "left out at level 1" in run("vectors", "encode", "--count", 5, "-o", tmp_path / "x", status=2)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_has_its_own_status_and_leaves_nothing(run, tmp_path, monkeypatch):
    from mxnum.conformance import vectors

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(vectors, "expected", interrupt)
    run("vectors", "encode", "-o", tmp_path / "cases.txt", status=130)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("dot --rounding sr", "Option --rounding must be left out for 'dot'; it is for encode or quantize."),
        ("dot --scale-rule rceil", "Option --scale-rule must be left out for 'dot'; it is for quantize or scale."),
        (
            "dot --source float16",
            "--source must be left out for 'dot'; it is for encode, decode, quantize, dequantize or scale.",
        ),
        ("encode --accumulate sequential", "Option --accumulate must be left out for 'encode'; it is for dot or mma."),
        ("dequantize --overflow ieee", "Option --overflow must be left out for 'dequantize'; "),
        ("quantize --sr-bits 8", "--sr-bits must be left out for --rounding rne, which draws no random bits."),
        ("scale --block-size 16 --dot-blocks 3", "Option --dot-blocks must be left out for 'scale'; it is for dot."),
        ("scale --sr-bits 30", "Option --sr-bits must be left out for 'scale'; it is for encode or quantize."),
    ],
)
def test_options_of_another_operation_are_mistakes(run, call, told):
    assert told in run("vectors", *call.split(), status=2)


def test_headers_have_the_settings_that_decide_answers():
    from mxnum.conformance.operations import DECIDES, OPERATIONS, make_task
    from tests.conformance.test_task import deciding

    for operation in OPERATIONS:
        header = make_task(operation, "mxfp8_e4m3", **deciding(operation, rounding="sr")).header()
        header |= {"source": header["result"]} if "result" in header else {}
        # Headers of MX formats have the key "block" for every operation.
        for setting in set(DECIDES) - {"block"}:
            assert (setting in header) == (operation in DECIDES[setting]), (operation, setting)


def test_existing_files_need_force_and_a_dash_is_standard_output(run, tmp_path, monkeypatch):
    # Regression: existing files were overwritten without --force.
    path = tmp_path / "cases.txt"
    run("vectors", "encode", "-f", "e2m1", "--inputs-only", "-o", path)
    text = path.read_bytes()
    told = run("vectors", "encode", "-o", path, status=2)
    assert "Option --output must be a new file unless --force is given" in told
    assert path.read_bytes() == text
    run("vectors", "encode", "-f", "e2m1", "-o", path, "--force")
    assert path.read_bytes() != text
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "mxnum"]
    vectors = [*command, "vectors", "encode", "-f", "mxfp4_e2m1", "-o", "-"]
    told = subprocess.run(vectors, capture_output=True, check=True)
    told = subprocess.run([*command, "verify", "-"], input=told.stdout, capture_output=True, check=True)
    assert b"5648 right" in told.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["cases.txt"]


def test_vectors_of_a_matrix_unit_are_verified(run, tmp_path):
    path = tmp_path / "cases.txt"
    call = ("mma", "-f", "e4m3", "--accumulate", "hopper_fp8", "--level", 2, "--count", 200)
    run("vectors", *call, "-o", path)
    text = path.read_text()
    assert "# accumulate: hopper_fp8\n# k: 32\n# inputs: a[32] b[32] c[1]\n# outputs: value[1]\n" in text
    assert run.json("verify", path)["equal"]
    path.write_text(text.replace("hopper_fp8", "ada_fp8").replace("# seed: 0\n", ""))
    found = json.loads(run("verify", "--json", path, status=1))
    assert (found["operation"], found["accumulate"], found["k"]) == ("mma", "ada_fp8", "32")
    assert found["distances"]["count"] == found["bugs"] > 0
    assert any("what the unit 'hopper_fp8' gives" in sentence for sentence in found["explanations"])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("mma -f e4m3", "Option --accumulate must be a matrix unit or its name (mxnum.units.names()) for 'mma'"),
        ("mma --accumulate hopper_fp8", "Option --format must be the format of an array of e4m3 or e5m2 for unit"),
        ("mma -f e4m3 --accumulate hopper_fp8 --k 16", "Option --k must be 32 for one instruction of 'hopper_fp8'"),
        ("dot --k 16", "Option --k must be left out for 'dot'; it is for mma."),
    ],
)  # fmt: skip
def test_mistakes_about_matrix_units(run, call, told):
    assert told in run("vectors", *call.split(), status=2)

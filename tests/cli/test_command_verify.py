"""Tests of `mxnum verify`, alone and in shell pipes with C programs from the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mxnum.conformance import CHOICES

HOWTO = Path(__file__).parents[2] / "docs" / "howto"


@pytest.fixture
def answers(run, tmp_path):
    """Return the path of a file with cases for an encoder and the right answers."""
    path = tmp_path / "answers.txt"
    run("vectors", "encode", "-f", "mxfp4_e2m1", "-o", path)
    return path


def test_exit_status_and_text_of_a_wrong_answer(run, answers):
    assert run.json("verify", answers)["bugs"] == 0
    answers.write_text(answers.read_text().replace("\n3FA00000 2\n", "\n3FA00000 3\n"))
    printed = run("verify", answers, status=1)
    assert "x = bits:3FA00000 (1.25): got 0x3 (1.5), want 0x2 (1), 1 code too high" in printed
    assert "ties" not in printed or "even" in printed


def test_choices_and_strictness(run, tmp_path):
    path = tmp_path / "answers.txt"
    run("vectors", "encode", "-f", "e5m2", "--overflow", "ieee", "-o", path)
    path.write_text(path.read_text().replace("# overflow: ieee", "# overflow: saturate"))
    assert "Choice overflow" in run("verify", path)
    run("verify", path, "--strict", status=1)
    run("verify", path, "--strict", "--accept", "overflow,infinity")
    run("verify", path, "--strict", "--accept", "overflow", "--accept", "infinity")
    run("verify", path, "--strict", "--accept", "all")
    assert "Option --accept must be one of" in run("verify", path, "--accept", "overflw", status=2)


def test_what_cannot_be_read(run, tmp_path, answers):
    assert "No such file" in run("verify", tmp_path / "missing.txt", status=2)
    answers.write_text("".join(answers.read_text().splitlines(keepends=True)[:100]))
    assert "must be answers for 5648 cases" in run("verify", answers, status=2)


def test_answers_without_cases_are_verified_with_a_file_of_cases(run, tmp_path):
    cases, answers = tmp_path / "cases.txt", tmp_path / "answers.txt"
    cases.write_text("# operation: encode\n# format: mxfp4_e2m1\n3F800000\n# a comment\n40000000\n")
    answers.write_text("2\n4\n")
    assert "2 cases" in run("verify", answers, "--vectors", cases)
    cases.write_text(cases.read_text() + "4040000G\n")
    answers.write_text("2\n4\n5\n")
    said = run("verify", answers, "--vectors", cases, status=2)
    assert f"Line 6 of {cases} must give 'x' as hexadecimal" in said


def test_strict_needs_the_number_of_cases(run, tmp_path):
    # Regression: a file with two answers to four cases passed.
    cases, golden, answers = (tmp_path / name for name in ("cases.txt", "golden.txt", "answers.txt"))
    cases.write_text("# operation: encode\n# format: mxfp4_e2m1\n3F800000\n40000000\n40400000\n40800000\n")
    run("answer", cases, "-o", golden)
    run("verify", golden, "--strict")
    answers.write_text("2\n4\n")
    assert "answers for the 4 cases" in run("verify", answers, "--vectors", golden, "--strict", status=2)
    answers.write_text("".join(line for line in golden.read_text().splitlines(True) if "cases" not in line))
    assert "go unnoticed" in run("verify", answers)
    assert "--strict needs the file of cases" in run("verify", answers, "--strict", status=2)


def programs(language="c", page="check-a-program.md"):
    """Return the programs in the given language that a page of the documentation shows."""
    return re.findall(rf"```{language}\n(.*?)```", (HOWTO / page).read_text(), re.S)


@pytest.mark.parametrize("index", [0, 1])
def test_the_c_programs_of_the_documentation(tmp_path, index):
    """Check that `mxnum verify` finds the one mistake of the page's first program.

    The page's second program has no mistake, and must pass.
    """
    pytest.importorskip("typer", reason="the extra cli is not installed")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    source, program = tmp_path / "e2m1.c", tmp_path / "e2m1"
    source.write_text(programs()[index])
    subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-o", program, source, "-lm"], check=True)
    python = f"{sys.executable} -m mxnum"
    command = f"{python} vectors encode -f mxfp4_e2m1 | {program} | {python} verify"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert answer.returncode == (1, 0)[index], answer.stdout + answer.stderr
    assert ("All 8 wrong answers are what rounding rna gives" in answer.stdout) == (index == 0)


@pytest.fixture(params=[False, True], ids=["flushing", "mended"])
def unit_is_mended(request, tmp_path):
    """Write the Verilog unit of the documentation and its testbench to `tmp_path`.

    Return True if the unit is the version without the mistake.
    """
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed")
    unit, testbench, mended, _ = programs("systemverilog", "check-rtl.md")
    if request.param:
        unit = re.sub(r" *else value = .*// subnormal results become zero\n", lambda found: mended, unit)
    (tmp_path / "mxfp4_dot.sv").write_text(unit)
    (tmp_path / "testbench.sv").write_text(testbench)
    return request.param


FLUSHES = "All 17 wrong answers are what flushing subnormal results to zero gives"


def test_the_unit_of_the_documentation(unit_is_mended, tmp_path):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    commands = "".join(programs("sh", "check-rtl.md")[:2]).replace("mxnum ", f"{sys.executable} -m mxnum ")
    answer = subprocess.run(["bash", "-c", commands], cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == (0 if unit_is_mended else 1), answer.stdout + answer.stderr
    assert (FLUSHES in answer.stdout) != unit_is_mended


def test_the_unit_of_the_documentation_with_cocotb(unit_is_mended, tmp_path):
    pytest.importorskip("cocotb", reason="cocotb is not installed")
    (tmp_path / "test_dot.py").write_text(programs("python", "check-rtl.md")[0])
    (tmp_path / "run.py").write_text(programs("text", "check-rtl.md")[0])
    answer = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True)
    assert f"PASS={int(unit_is_mended)} FAIL={int(not unit_is_mended)}" in answer.stdout, answer.stdout + answer.stderr
    assert (FLUSHES in answer.stdout) != unit_is_mended


def test_readmemh_of_the_documentation(tmp_path):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed")
    memory = programs("systemverilog", "check-rtl.md")[-1]
    show = 'initial begin #1 foreach (words[i]) $display("%h", words[i]); end'
    (tmp_path / "top.sv").write_text(f"module top; {memory} {show} endmodule")
    commands = programs("sh", "check-rtl.md")[-1].replace("mxnum ", f"{sys.executable} -m mxnum ")
    commands += "iverilog -g2012 -o top top.sv && vvp top"
    answer = subprocess.run(["bash", "-c", commands], cwd=tmp_path, capture_output=True, text=True, check=True)
    fields = (tmp_path / "blocks.hex").read_text().split()
    assert [int(word, 16) for word in answer.stdout.split()] == [int(field, 16) for field in fields]


@pytest.mark.parametrize("operation", ["encode", "decode", "quantize", "scale", "dequantize", "dot"])
def test_a_format_of_the_users(run, tmp_path, operation):
    path = tmp_path / "answers.txt"
    run("vectors", operation, "-f", "e2m3:bias=-3,specials=nan,block=4", "-o", path)
    assert "\n# format: e2m3:bias=-3,specials=nan,block=4\n" in path.read_text()
    report = run.json("verify", path)
    assert (report["bugs"], report["choices"]) == (0, {})
    assert report["cases"] == 64 if operation == "decode" else report["cases"] > 100


def test_the_help_names_every_choice(run):
    from mxnum.cli.command_verify import verify

    for choice in CHOICES:
        assert re.search(rf"\b{choice}\b", verify.__doc__), choice

"""Tests of ``mxnum unit``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from mxnum.units.identify import Problem, Rule, evaluate, first_cases
from mxnum.units.identify.device import SOURCE, integer_cases, integer_rule
from mxnum.units.identify.text import read_answers, write_cases

_PROBLEM = Problem("float16", "float16", 4)


def test_probe_writes_the_first_cases(run, tmp_path):
    text = run("unit", "probe", "--operands", "float16", "-k", "4", "--count", "20")
    assert text == write_cases(_PROBLEM, first_cases(_PROBLEM, 20))
    path = tmp_path / "cases.txt"
    run("unit", "probe", "--operands", "float16", "-k", "4", "--count", "20", "-o", str(path))
    assert path.read_text() == text


def test_probe_writes_two_operand_formats_and_block_scales(run):
    text = run("unit", "probe", "--operands", "e4m3,e5m2", "-k", "4", "--scales", "e8m0,2", "--count", "20")
    problem = Problem("e4m3", "e5m2", 4, "float32", "e8m0", 2)
    assert text == write_cases(problem, first_cases(problem, 20))
    assert "# fields: a[4] scales_a[2] b[4] scales_b[2] c\n" in text


@pytest.mark.parametrize(
    ("scales", "message"),
    [("e8m0", "a format and a block length"), ("e8m0,3", "a divisor of k"), ("float32,4", "must be one of ['e8m0'")],
)
def test_probe_rejects_scales_that_the_family_lacks(run, scales, message):
    options = "--operands", "e4m3", "-k", "4", "--scales", scales
    assert message in run("unit", "probe", *options, status=2)


def test_identify_reads_answers(run, tmp_path):
    cases = first_cases(_PROBLEM, 40)  # 40 cases are too few to decide between all rules
    path, further = tmp_path / "answers.txt", tmp_path / "more.txt"
    path.write_text(write_cases(_PROBLEM, cases, evaluate(Rule(4, fraction_bits=23), _PROBLEM, cases)))
    found = json.loads(run("unit", "identify", str(path), "--json", "--further", str(further)))
    assert "volta_float16" in found["registered"]
    assert 23 in found["fields"]["fraction_bits"]
    assert further.read_text().startswith("# mxnum-unit 1\n# a: float16\n")


def test_identify_ends_with_status_1_if_no_rule_fits(run, tmp_path):
    cases = first_cases(_PROBLEM)
    answers = evaluate(Rule(4, fraction_bits=23), _PROBLEM, cases) ^ 5
    path = tmp_path / "answers.txt"
    path.write_text(write_cases(_PROBLEM, cases, answers & 0x7F7FFFFF))
    assert "No rule that identify knows" in run("unit", "identify", str(path), status=1)


#: A fake compiled probe.cu. It claims to run on a GPU with one float16 instruction and one int8
#: instruction.
_PROGRAM = """#!{python}
import sys
if len(sys.argv) == 1:
    print("mma_float16_float32\\nmma_int8_int32")
else:
    for line in sys.stdin:
        print(line.rstrip() if line[0] == "#" else line.rstrip() + " 00000000")
"""


def test_probe_asks_a_gpu_and_keeps_the_answers_that_are_there(run, tmp_path):
    program, folder = tmp_path / "probe", tmp_path / "answers"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    command = ("unit", "probe", "--device", str(program), "--count", "30", "-o", str(folder))
    assert "mma_float16_float32.txt: 30 answers" in run(*command)
    problem, _, answers = read_answers((folder / "mma_float16_float32.txt").read_text().splitlines())
    assert problem == Problem("float16", "float16", 16)
    assert not answers.any()
    (folder / "mma_int8_int32.txt").unlink()
    again = run(*command)
    assert "mma_float16_float32.txt: kept" in again
    assert "mma_int8_int32.txt: the answers are not exact int32 sums" in again


def test_probe_without_a_gpu_says_so(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs a GPU" in run("unit", "probe", "--device", "cuda", "-o", str(tmp_path / "answers"), status=2)
    assert not (tmp_path / "answers").exists()


def test_integer_sums_wrap_or_saturate():
    cases = integer_cases(200, 0)
    a, b, c = cases.a.astype(np.int8), cases.b.astype(np.int8), cases.c.astype(np.uint32).astype(np.int32)
    total = (a.astype(np.int64) * b).sum(axis=1) + c
    assert integer_rule(cases, total % (1 << 32)) == "the int32 sum wraps"
    assert integer_rule(cases, total.clip(-(1 << 31), (1 << 31) - 1) % (1 << 32)) == "the int32 sum saturates"


#: The commands that compile probe.cu, from the first comment of probe.cu.
_COMPILE = re.findall(r"^//     ((?:nvcc|hipcc) .*)$", SOURCE.read_text(), re.MULTILINE)


def test_the_comment_of_the_program_has_a_command_for_each_kind_of_gpu():
    assert [command.split()[0] for command in _COMPILE] == ["nvcc", "nvcc", "nvcc", "hipcc"]


@pytest.mark.parametrize("command", _COMPILE)
def test_the_program_for_gpus_compiles(tmp_path, command):
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    shutil.copy(SOURCE, tmp_path)
    subprocess.run(command.split(), check=True, cwd=tmp_path)
    listed = subprocess.run([str(tmp_path / "probe")], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split("_")[1] for name in listed} >= {"float16", "bfloat16"}

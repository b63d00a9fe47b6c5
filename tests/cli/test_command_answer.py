"""Tests of ``mxnum answer``, which computes the right answers to a user's own cases."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from mxnum.conformance import answer_vectors, make_task, write_vectors
from mxnum.conformance.operations import OPERATIONS

HEAD = "# mxnum-vectors 1\n# operation: dot\n# format: mxfp4_e2m1:block=4\n# accumulate: exact\n# dot_blocks: 1\n"


def body(text):
    """Return the lines that are not comments."""
    return [line for line in text.splitlines() if not line.startswith(b"#")]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fmt", ["mxfp6_e3m2", "nvfp4"])
def test_answers_to_written_vectors_equal_the_written_answers(operation, fmt):
    unit = {"accumulate": "blackwell_nvfp4" if fmt == "nvfp4" else "blackwell_mxfp8"} if operation == "mma" else {}
    task, inputs, whole, answered = make_task(operation, fmt, **unit), io.BytesIO(), io.BytesIO(), io.BytesIO()
    for out, answers in ((inputs, False), (whole, True)):
        write_vectors(task, out, level=2, count=300, answers=answers)
    inputs.seek(0)
    assert answer_vectors(inputs, answered) == len(body(whole.getvalue()))
    assert body(answered.getvalue()) == body(whole.getvalue())


def test_cases_of_a_user_are_answered(run, tmp_path):
    cases, golden = tmp_path / "cases.txt", tmp_path / "golden.txt"
    cases.write_text(HEAD + "7f 2222 7f 4312\n\n# (2 * 6) * (2 * -6)\n80 7 0 0 0  7f f 0 0 0\n")
    run("answer", cases, "-o", golden)
    lines = [line.split() for line in golden.read_text().splitlines() if not line.startswith("#")]
    assert [line[-1] for line in lines] == ["40A00000", "C2900000"]
    assert run.json("verify", golden)["bugs"] == 0
    assert "exists" in run("answer", cases, "-o", golden, status=2)
    piped = subprocess.run(
        [sys.executable, "-m", "mxnum", "answer"], input=cases.read_bytes(), capture_output=True, check=True
    )
    assert piped.stdout == golden.read_bytes()


def test_a_simulation_receives_each_answer_before_it_sends_the_next_case():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    command = [sys.executable, "-m", "mxnum", "answer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(HEAD.encode())
        for case, answer in ((b"7f 2222 7f 4312\n", b"40A00000"), (b"80 7 0 0 0 7f f 0 0 0\n", b"C2900000")):
            process.stdin.write(case)
            process.stdin.flush()
            line = b"#"
            while line.startswith(b"#"):
                line = process.stdout.readline()
            assert line.split()[-1] == answer
        process.stdin.close()
        assert process.stdout.read() == b"# cases: 2\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'# operation: ...'"),
        ("7f 2222 7f 4312\n", "'# operation: ...'"),
        (HEAD + "7f 2222 7f 4312 40A00000\n", "cases.txt must hold 10 numbers"),
        # A file has no cases below the header if, for example, the program that wrote it failed.
        (HEAD, "at least one case below the header"),
        (HEAD + "# cases: 2\n7f 2222 7f 4312\n", "There must be 2 cases, as the line '# cases: 2' says, not 1"),
        (HEAD + "7f 2222 7f 99999\n", "cases.txt must give 'b' as hexadecimal digits of 16 bits"),
    ],
)
def test_what_cannot_be_read(run, tmp_path, text, says):
    (tmp_path / "cases.txt").write_text(text)
    assert says in run("answer", tmp_path / "cases.txt", status=2)

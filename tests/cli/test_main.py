from __future__ import annotations

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from mxnum.cli.main import main

LOADED = """
import sys
from mxnum.cli.main import main
main({arguments})
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""

INTERRUPTED = """
import sys
from mxnum.cli import command_formats
from mxnum.cli.main import main
def formats():
    raise KeyboardInterrupt
command_formats.formats = formats
sys.exit(main(["formats"]))
"""


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_one_sentence_names_it(package, monkeypatch, capsys):
    if package == "rich":  # commands import typer before rich, so this case needs typer
        pytest.importorskip("typer", reason="the extra cli is not installed")
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["formats"]) == 2
    wanted = f'Error: Package {package!r} is not installed; install it with pip install "mxnum[cli]".\n'
    assert capsys.readouterr().err == wanted


def test_errors_are_one_sentence_and_status_two(capsys, tmp_path):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    pytest.importorskip("rich", reason="the extra cli is not installed")
    assert main(["inspect", str(tmp_path / "missing.npy")]) == 2
    assert capsys.readouterr().err == f"Error: No such file or directory: '{tmp_path}/missing.npy'.\n"
    assert main(["formats", "mxfp8_e4m4"]) == 2
    assert "did you mean 'mxfp8_e4m3'?" in capsys.readouterr().err
    assert main(["nonsense"]) == 2


def test_closed_streams_act_like_empty_streams():
    """Check that commands treat closed standard streams like empty streams, for example in cron."""
    pytest.importorskip("typer", reason="the extra cli is not installed")
    command = f"{sys.executable} -m mxnum"
    for redirected, status in (("verify <&-", 2), ("formats e2m1 >&-", 0), ("formats none 2>&-", 2)):
        done = subprocess.run(["sh", "-c", f"{command} {redirected}"], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
    done = subprocess.run(["sh", "-c", f"{command} verify <&-"], capture_output=True, text=True, check=False)
    assert done.stderr == "Error: There must be at least one answer; the stream of answers is empty.\n"


def test_nothing_heavy_is_loaded_to_list_formats():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    heavy = ["numba", "sympy", "matplotlib", "torch", "scipy", "hypothesis", "safetensors", "ml_dtypes"]
    probe = LOADED.format(arguments=["formats", "mxfp8_e4m3", "--json"], heavy=heavy)
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert answer.stderr.strip() == "[]"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_terminal_shows_once_that_something_is_compiled(is_terminal, monkeypatch, capsys):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    logger = logging.getLogger("mxnum")

    def compile_twice(**call):
        for _ in range(2):
            logger.info("Compiling")

    monkeypatch.setattr("mxnum.cli.app.app_of", lambda given: compile_twice)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert main(["quantize"]) == 0
    assert capsys.readouterr().err == "Compiling\n" * is_terminal
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)


def unread(call, folder, buffered=True, both=False):
    """Run a command whose output pipe was closed by the reader before the first write."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    source, sink = os.pipe()
    os.close(source)
    try:
        errors = sink if both else subprocess.PIPE
        command = [sys.executable, "-m", "mxnum", *call.split()]
        return subprocess.run(command, stdout=sink, stderr=errors, text=True, cwd=folder, env=environment)
    finally:
        os.close(sink)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        "--help",
        "--version",
        "explain --help",
        "formats",
        "formats e4m3 --values",
        "formats e4m3 --json",
        "inspect x.npy",
        "explain 1 2 3",
        "vectors encode",
    ],
)
def test_a_reader_that_stops_early_is_no_error(call, buffered, tmp_path):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    np.save(tmp_path / "x.npy", np.arange(1.0, 9.0, dtype=np.float32))
    answer = unread(call, tmp_path, buffered)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("call", ["formats e4m4", "formats --nonsense"])
def test_wrong_arguments_have_status_2_if_nobody_reads_the_output(call, tmp_path):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    assert unread(call, tmp_path, both=True).returncode == 2


@pytest.mark.parametrize("buffered", [True, False])
def test_wrong_answers_have_status_1_if_nobody_reads_the_report(buffered, tmp_path):
    # Regression: if the report filled the buffer of the pipe, the exit status was 0.
    pytest.importorskip("typer", reason="the extra cli is not installed")
    assert main(["vectors", "encode", "-f", "e2m1", "-o", str(tmp_path / "cases.txt")]) == 0
    cases = [line for line in (tmp_path / "cases.txt").read_text().splitlines() if not line.startswith("#")]
    (tmp_path / "wrong.txt").write_text("5\n" * len(cases))
    answer = unread("verify wrong.txt --vectors cases.txt", tmp_path, buffered)
    assert (answer.returncode, answer.stderr) == (1, "")


def test_interruption_has_status_130_if_nobody_reads_the_output():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    source, sink = os.pipe()
    os.close(source)
    try:
        assert subprocess.run([sys.executable, "-c", INTERRUPTED], stderr=sink).returncode == 130
    finally:
        os.close(sink)

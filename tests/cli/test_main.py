from __future__ import annotations

import subprocess
import sys

import pytest

from mxnum.cli.main import main

LOADED = """
import sys
from mxnum.cli.main import main
main({arguments})
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_one_sentence_names_it(package, monkeypatch, capsys):
    if package == "rich":  # typer is looked for first
        pytest.importorskip("typer", reason="the extra cli is not installed")
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["formats"]) == 2
    assert capsys.readouterr().err == f"Error: This needs the package {package!r}: pip install 'mxnum[cli]'.\n"


def test_errors_are_one_sentence_and_status_two(capsys, tmp_path):
    pytest.importorskip("typer", reason="the extra cli is not installed")
    pytest.importorskip("rich", reason="the extra cli is not installed")
    assert main(["inspect", str(tmp_path / "missing.npy")]) == 2
    assert capsys.readouterr().err == f"Error: No such file or directory: '{tmp_path}/missing.npy'.\n"
    assert main(["formats", "mxfp8_e4m4"]) == 2
    assert "did you mean 'mxfp8_e4m3'?" in capsys.readouterr().err
    assert main(["nonsense"]) == 2


def test_nothing_heavy_is_loaded_to_list_formats():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    heavy = ["numba", "sympy", "matplotlib", "torch", "scipy", "hypothesis", "safetensors", "ml_dtypes"]
    probe = LOADED.format(arguments=["formats", "mxfp8_e4m3", "--json"], heavy=heavy)
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert answer.stderr.strip() == "[]"


def test_a_reader_that_stops_early_is_no_error():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    for call in ("formats e4m3 --values", "explain 1 2 3", "vectors encode"):
        # The reader is gone before anything is written. The status is that of mxnum, not that of what follows it.
        command = f"{sys.executable} -m mxnum {call} | true; exit ${{PIPESTATUS[0]}}"
        answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert (answer.returncode, answer.stderr) == (0, "")

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import mxnum.interop.safetensors


def test_every_command_has_help_with_an_example(run):
    from mxnum.cli.app import COMMANDS

    assert list(COMMANDS) == sorted(set(COMMANDS), key=COMMANDS.index)
    listing = run("--help")
    for name in COMMANDS:
        assert name in listing
        text = " ".join(run(name, "--help").split())
        assert "Example" in text, name
        assert f"mxnum {name}" in text, name


def test_every_command_takes_json(run):
    from mxnum.cli.app import COMMANDS

    for name in COMMANDS:
        if name not in ("vectors", "answer", "conformance", "experiments"):  # text of their own, a page, tables
            assert "--json" in run(name, "--help"), name


def test_of_an_option_given_twice_neither_is_dropped(run, tmp_path):
    losses = tmp_path / "losses.csv"
    for *call, option in (
        ("vectors", "dot", "--format"),
        ("quantize", "0.5", "--format"),
        ("fit", losses, "--loss"),
        ("lab", "run", "tiny", "--seeds"),
    ):
        told = run(*call, option, "1", option, "2", status=2)
        assert f"Option {option} must be given once, not 2 times." in told, call


def test_an_empty_path_is_refused(run, tmp_path, monkeypatch):
    """No test saw that an unset shell variable was the current folder: no test gave an empty path."""
    monkeypatch.chdir(tmp_path)
    mxnum.interop.safetensors.save("model.safetensors", {"w": np.ones((2, 32), np.float32)})
    np.save("x.npy", np.ones(32, np.float32))
    for *call, name in (
        ("quantize", "", "out.npz", "IN"),
        ("quantize", "x.npy", "", "OUT"),
        ("inspect", "", "FILE"),
        ("explore", "", "FILE"),
        ("explore", "x.npy", "--csv", "", "Option --csv"),
        ("vectors", "encode", "--output=", "Option --output"),
        ("verify", "x.npy", "--vectors", "", "Option --vectors"),
        ("verify", "", "ANSWERS"),
        ("answer", "", "CASES"),
        ("sweep", "", "CONFIG.toml"),
        ("fit", "", "LOSSES.csv"),
        ("reproduce", "--quick", "-o", "", "Option --out"),
        ("ledger", "--results", "", "Option --results"),
        ("lab", "run", "tiny", "--runs", "", "Option --runs"),
        ("language-model", "logits", "--out", "", "Option --out"),
    ):
        assert run(*call, status=2) == f"Error: {name} must be the path of a file or a folder, not ''.\n", call
    assert "'path' must be the path of a file or a folder, not ''" in run("lab", "language-model", "", status=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "x.npy"]


def test_a_call_loads_the_module_of_its_command_alone():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    code = (
        "import sys; from mxnum.cli.main import main; main(sys.argv[1:]);"
        "print(*sorted(m for m in sys.modules if 'cli.command_' in m))"
    )

    def loaded(*arguments):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].split()

    assert loaded("formats") == ["mxnum.cli.command_formats"]
    from mxnum.cli.app import COMMANDS

    assert len(loaded("--help")) == len(COMMANDS)

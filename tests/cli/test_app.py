from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import mxnum.interop.safetensors

#: The commands of the groups "lab" and "unit" that have JSON output and examples in their help.
WITH_EXAMPLES = [
    *(("lab", name) for name in ("sweep", "language-model", "ledger", "fit", "project")),
    ("unit", "identify"),
]


def test_every_command_has_help_with_an_example(run):
    from mxnum.cli.app import COMMANDS, LAB, UNIT

    listings = {name: run(*name, "--help") for name in ((), ("lab",), ("unit",))}
    groups = *(("lab", name) for name in LAB), *(("unit", name) for name in UNIT)
    for call in (*((name,) for name in COMMANDS), *groups):
        assert call[-1] in listings[call[:-1]]
        text = " ".join(run(*call, "--help").split())
        assert f"mxnum {' '.join(call)}" in text, call
        if len(call) == 1 or call in WITH_EXAMPLES:
            assert "Example" in text, call


def test_every_command_takes_json(run):
    from mxnum.cli.app import COMMANDS

    for call in (*((name,) for name in COMMANDS), *WITH_EXAMPLES):
        # The commands in this tuple have no JSON output: they write text or pages, or are groups.
        if call[0] not in ("emit", "vectors", "answer", "conformance", "unit", "lab"):
            assert "--json" in run(*call, "--help"), call


def test_option_given_twice_raises(run, tmp_path):
    losses = tmp_path / "losses.csv"
    for *call, option in (
        ("vectors", "dot", "--format"),
        ("quantize", "0.5", "--format"),
        ("lab", "fit", losses, "--loss"),
        ("lab", "run", "tiny", "--seeds"),
    ):
        told = run(*call, option, "1", option, "2", status=2)
        assert f"Option {option} must be given once, not 2 times." in told, call


def test_an_empty_path_is_refused(run, tmp_path, monkeypatch):
    """Check that an empty path, as from an unset shell variable, raises an error."""
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
        ("lab", "fit", "", "LOSSES.csv"),
        ("reproduce", "--quick", "-o", "", "Option --out"),
        ("lab", "ledger", "--results", "", "Option --results"),
        ("lab", "run", "tiny", "--runs", "", "Option --runs"),
        ("lab", "language-model", "logits", "--out", "", "Option --out"),
    ):
        assert run(*call, status=2) == f"Error: {name} must be the path of a file or a folder, not ''.\n", call
    for name in ("sweep", "language-model"):
        assert "'path' must be the path of a file or a folder, not ''" in run("lab", name, "", status=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "x.npy"]


def test_a_call_loads_the_module_of_its_command_alone():
    pytest.importorskip("typer", reason="the extra cli is not installed")
    code = (
        "import sys; from mxnum.cli.main import main; main(sys.argv[1:]);"
        "print(*sorted(m for m in sys.modules if '.command_' in m))"
    )

    def loaded(*arguments):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].split()

    assert loaded("formats") == ["mxnum.cli.command_formats"]
    assert loaded("lab", "fit") == ["mxnum.cli.lab.command_fit"]
    from mxnum.cli.app import COMMANDS, LAB

    assert len(loaded("--help")) == len(COMMANDS) - 1 + len(set(LAB.values()))  # all `unit` commands share a module

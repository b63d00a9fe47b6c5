from __future__ import annotations

import subprocess
import sys

import pytest


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
        if name not in ("vectors", "conformance", "experiments"):  # text of their own, a page, files of tables
            assert "--json" in run(name, "--help"), name


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
    assert len(loaded("--help")) == 16

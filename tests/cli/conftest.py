"""Fixtures that run mxnum commands in the same process as the tests."""

from __future__ import annotations

import json

import pytest


class Runner:
    """Runs commands and returns their output."""

    def __init__(self, capsys):
        self.capsys = capsys

    def __call__(self, *arguments, status=0):
        from mxnum.cli.main import main

        self.capsys.readouterr()
        got = main([str(argument) for argument in arguments])
        printed = self.capsys.readouterr()
        assert got == status, printed.err
        return printed.out if status != 2 else printed.err

    def json(self, *arguments):
        """Return the JSON output of a command."""
        command = 2 if arguments[0] == "lab" else 1
        return json.loads(self(*arguments[:command], "--json", *arguments[command:]))


@pytest.fixture
def run(capsys):
    for package in ("typer", "rich"):
        pytest.importorskip(package, reason="the extra cli is not installed")
    return Runner(capsys)

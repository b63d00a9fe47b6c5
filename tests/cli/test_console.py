from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("rich", reason="the extra cli is not installed")

from mxnum.cli import console


def test_json_has_nonfinite_numbers_as_text(capsys):
    console.print_json({"a": np.float32(0.5), "b": (np.inf, -np.inf, np.nan), 3: np.arange(2)})
    assert json.loads(capsys.readouterr().out) == {"a": 0.5, "b": ["inf", "-inf", "nan"], "3": [0, 1]}


def test_a_table_in_a_pipe_is_not_cut(capsys):
    console.print_table("", ["name", "value"], [("x" * 300, 1), ("[b]y[/b]", -2)])
    printed = capsys.readouterr().out
    assert "x" * 300 in printed
    assert "[b]y[/b]" in printed


def test_a_table_on_a_terminal_fits_it(capsys, monkeypatch):
    """Check that a table fits into a terminal of 40 columns, and that no number is split."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    console.print_table("a title " * 9, ["name", "a number of bits"], [("mxfp8_e4m3 and a few more", 12345678901)])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 40
    assert "12345678901" in printed


@pytest.mark.parametrize(("share", "expected"), [(0, ""), (1, "█" * 40), (0.5, "█" * 20), (1e-9, "▏"), (0.0125, "▌")])
def test_bar(share, expected):
    assert console.bar(share) == expected


def test_progress_is_silent_into_a_pipe(capsys):
    with console.progress("Working", 3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")

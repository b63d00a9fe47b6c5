from __future__ import annotations

import typing

import pytest

pytest.importorskip("typer", reason="the extra cli is not installed")

from mxnum import modes
from mxnum.cli import options


def test_every_shared_option_says_what_it_is():
    shared = [value for value in vars(options).values() if typing.get_origin(value) is typing.Annotated]
    assert len(shared) >= 8
    for option in shared:
        assert typing.get_args(option)[1].help.endswith(".")


@pytest.mark.parametrize(
    ("option", "members"),
    [
        (options.Rounding, modes.Rounding),
        (options.ScaleRule, modes.ScaleRule),
        (options.Overflow, modes.Overflow),
        (options.Nonfinite, modes.Nonfinite),
    ],
)
def test_help_lists_every_mode(option, members):
    text = typing.get_args(option)[1].help
    assert all(str(member) in text for member in members)

"""Tests that the self-test of an installation finds mistakes and reports them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import mxnum as mx
from mxnum import selftest
from mxnum.cli.main import main

needs_typer = pytest.mark.skipif(importlib.util.find_spec("typer") is None, reason="typer is not installed")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the self-test to three cases, one of which runs only with ``--all``."""
    kept = ("mxfp4_e2m1", "mxfp4_e2m1, packed", "many threads")
    cases = [case for case in selftest._cases() if case[0] in kept]
    monkeypatch.setattr(selftest, "_cases", lambda: cases)


def test_every_mode_is_tried() -> None:
    said = " ".join(what for what, _ in selftest._cases())
    for modes in (mx.Rounding, mx.ScaleRule, mx.FloatScaleRule):
        _, *others = modes
        assert all(mode.value in said for mode in others), modes
    assert set(mx.formats.names()) <= set(said.replace(",", "").split())


@needs_typer
def test_right_installation_passes(short: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest"]) == 0
    told = capsys.readouterr().out
    assert f"mxnum        {mx.__version__}" in told
    assert (
        "2 kinds of call equal the exact reference, bit for bit. With --all, all other formats and modes are "
        "checked too." in told
    )
    assert main(["selftest", "--all"]) == 0
    assert "3 kinds of call equal the exact reference, bit for bit.\n" in capsys.readouterr().out


def test_common_cases_are_tried() -> None:
    assert set(selftest.COMMON) < {what for what, _ in selftest._cases()}


@needs_typer
def test_wrong_result_fails(short: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = selftest.reference.quantize

    def other(*arguments: object, **settings: object) -> object:
        made = right(*arguments, **settings)  # type: ignore[arg-type]
        made.codes[3, 5] ^= 1
        return made

    monkeypatch.setattr(selftest.reference, "quantize", other)
    assert main(["selftest"]) == 1
    told = capsys.readouterr().out
    assert "WRONG: element 170 is" in told
    assert "2 of 2 kinds of call give WRONG BITS" in told


def test_nan_patterns_and_signs_are_told_apart() -> None:
    ours, right = np.array([0.0, 1.0], np.float32), np.array([-0.0, 1.0], np.float32)
    check = selftest._compared("signs", [(ours, right)])
    assert (check.numbers, check.wrong) == (2, 1)

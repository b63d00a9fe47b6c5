from __future__ import annotations

import os
import signal
import sys

import pytest

pytest.importorskip("rich", reason="the extra cli is not installed")

from mxnum.cli.lab import watching
from mxnum.cli.lab.watching import Bars, Lines, ended_by_signals


def test_lines_come_now_and_then_with_an_estimate(capsys, monkeypatch):
    clock = iter([0.0, 5.0, 20.0, 21.0, 40.0])
    monkeypatch.setattr(watching.time, "monotonic", lambda: next(clock))
    lines = Lines()
    lines.say("hello")
    for done in (0, 1, 2, 3, 4):
        lines.at("training", done, 4, f"step {done}")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["hello", "training 50%, about 20 s left: step 2", "training 100%: step 4"]


def test_no_estimate_while_little_is_done(capsys, monkeypatch):
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(watching.time, "monotonic", lambda: next(clock))
    lines = Lines()
    for done in (0, 4, 5):
        lines.at("training", done, 100, f"step {done}")
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["training 4%: step 4", "training 5%, about 13 min left: step 5"]


def test_into_a_pipe_there_are_lines():
    with watching.watching() as watch:
        assert isinstance(watch, Lines)


def test_bars_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with watching.watching() as watch:
        assert isinstance(watch, Bars)
        watch.say("[b]hello[/b]")
        watch.at("checks", 1, 4, "I1: a")
        watch.at("checks", 2, 4, "I2: b")
        (bar,) = watch._shown.tasks
        assert (bar.completed, bar.total, bar.fields["what"]) == (2, 4, "I2: b")
    assert "[b]hello[/b]" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_request_to_terminate_is_an_interruption():
    before = signal.getsignal(signal.SIGTERM)

    def terminated():
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    with pytest.raises(KeyboardInterrupt):
        terminated()
    assert signal.getsignal(signal.SIGTERM) == before

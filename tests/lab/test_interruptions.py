"""Tests of signals that arrive during a training step."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from mxnum.lab.interruptions import Interruptions
from mxnum.lab.mlp.config import Experiment
from mxnum.lab.mlp.loop import train

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

BASE = Experiment(width=32, layers=2, batch=32, steps=12)


@pytest.fixture(autouse=True)
def interruptible():
    """Set Python's handler for Ctrl-C, because processes in a shell's background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_signal_waits_until_it_is_delivered():
    with Interruptions() as interruptions:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruptions.waiting == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            interruptions.deliver()
        interruptions.deliver()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_nobody_took_is_delivered_at_the_end():
    with pytest.raises(KeyboardInterrupt), Interruptions():
        os.kill(os.getpid(), signal.SIGINT)


def test_handlers_may_continue_and_ignored_signals_stay_ignored():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number)), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruptions() as interruptions:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGINT)
                interruptions.deliver()
        assert seen == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def test_interruptions_do_nothing_in_threads():
    def work():
        with Interruptions() as interruptions:
            interruptions.deliver()
            done.append(True)

    done = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_an_interrupted_training_goes_on_where_it_was(tmp_path):
    def interrupt(step, losses, runs):
        if step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    checkpoint = tmp_path / "c.npz"
    with pytest.raises(KeyboardInterrupt):
        train(BASE, (1,), checkpoint=checkpoint, report=interrupt)
    steps = []
    resumed = train(
        BASE, (1,), measure_above=1e-9, checkpoint=checkpoint, report=lambda step, losses, runs: steps.append(step)
    )
    assert steps[0] == 8
    assert resumed[0].losses == train(BASE, (1,))[0].losses
    # Step 7 is measured only if the checkpoint contains the losses of the steps before it.
    assert resumed[0].measured_at == [7, 8, 9, 10, 11]


def test_checkpoints_by_the_clock(tmp_path):
    def at(step, losses, runs):
        there.append((tmp_path / "c.npz").exists())

    for seconds, wanted in ((0, [False] + [True] * 11), (1e9, [False] * 12)):
        there = []
        train(BASE, (1,), checkpoint=tmp_path / "c.npz", checkpoint_seconds=seconds, report=at)
        assert there == wanted


def test_every_step_after_a_rise_is_measured():
    run = train(BASE.but(rate=3.0), (1,), measure_every=5, measure_above=1.01)[0]
    after = [step + 1 for step in range(11) if run.losses[step] > 1.01 * min(run.losses[: step + 1])]
    assert after
    assert run.measured_at == sorted({0, 5, 10, *after})
    assert {len(values) for values in run.measured.values()} == {len(run.measured_at)}
    assert run.measured["second_moment_least"][0] == 0
    assert 0 < run.measured["second_moment_least"][-1] <= run.measured["second_moment_hundredth"][-1]

"""Tests that threads do every piece of work once, return results in order, and raise errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from mxnum.engine.machine import workers


def test_answers_come_in_order_from_threads_of_their_own():
    seen = {}

    def work(piece):
        seen[piece] = threading.current_thread()
        return piece * piece

    assert workers.run_in_threads(work, [3, 1, 2]) == [9, 1, 4]
    assert seen[3] is threading.current_thread()
    assert len(set(seen.values())) == 3


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_an_error_in_any_thread_is_raised(wrong):
    def work(piece):
        if piece == wrong:
            raise ValueError(str(piece))

    with pytest.raises(ValueError, match=str(wrong)):
        workers.run_in_threads(work, [0, 1, 2])


@pytest.mark.parametrize(("length", "parts", "step"), [(10, 3, 1), (0, 2, 1), (100, 3, 32), (5, 4, 8), (64, 2, 32)])
def test_bounds_cover_everything_in_steps(length, parts, step):
    cuts = workers.bounds(length, parts, step)
    assert cuts == sorted(cuts)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, length, parts + 1)
    assert all(cut % step == 0 for cut in cuts[:-1] if cut < length)


def test_threads_worth_their_cost(monkeypatch):
    monkeypatch.setattr(workers, "usual_threads", lambda: 5)
    assert [workers.worth(work, 10, 3) for work in (0, 19, 20, 30, 900)] == [1, 1, 2, 3, 3]
    assert workers.worth(900, 10, None) == 5


#: A script that quantizes two arrays, one of them large enough for several threads. The script
#: asserts that this does not change the settings of other libraries.
OTHERS = """
import locale, os, signal, warnings
import numpy as np
import torch
from threadpoolctl import threadpool_info
torch.set_num_threads(1)
import mxnum as mx

def settings():
    blas = {each["filepath"]: each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
    signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {"torch": torch.get_num_threads(), "numpy": np.geterr(), "print": np.get_printoptions(), "blas": blas,
            "signals": signals, "locale": locale.setlocale(locale.LC_ALL), "warnings": list(warnings.filters),
            "environ": dict(os.environ)}

def check():
    after = settings()
    after["blas"] = {path: after["blas"][path] for path in before["blas"]}  # (numba may load one more)
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, changed

before = settings()
for length in (64, 1 << 21):
    x = np.ones((2, length // 2), np.float32)
    mx.quantize(x, "mxfp8_e4m3").dequantize()
    check()
mx.matmul(np.ones((64, 256), np.float32), np.ones((256, 64), np.float32), accumulate="sequential")
check()
import numba
from mxnum.engine.machine.workers import usual_threads
assert usual_threads() == numba.config.NUMBA_NUM_THREADS == 4
numba.set_num_threads(3)
assert usual_threads() == 3
"""


def test_a_call_changes_no_setting_of_another_library():
    pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")
    pytest.importorskip("torch", reason="the extra torch is not installed")
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", OTHERS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

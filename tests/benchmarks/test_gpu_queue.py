"""Tests of the queue of benchmark steps that need a GPU."""

from __future__ import annotations

import json

import pytest

from benchmarks import gpu
from mxnum.lab.studies import studies

pytest.importorskip("numba_cuda", reason="the extra cuda is not installed")


def made(name, text):
    """Return a queued step that runs `text` once, with Python's own module `timeit`."""
    return gpu.Step(name, 1, "Nothing.", ("timeit", "-n1", "-r1", text), ("-n1", "-r1", text))


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, capsys):
    assert gpu.main(["--out", str(tmp_path / "gpu")]) == 2
    assert "needs a GPU" in capsys.readouterr().err
    assert not (tmp_path / "gpu").exists()
    assert gpu.main(["--out", str(tmp_path / "gpu"), "--list"]) == 0
    assert "bits: Compare every kernel with the CPU" in capsys.readouterr().out


def test_steps_that_are_done_are_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "STEPS", (made("good", "pass"), made("bad", "1/0")))
    monkeypatch.setattr(gpu.Step, "words", lambda self, out, rehearse: [gpu.sys.executable, "-m", *self.command])
    assert gpu.main(["--out", str(tmp_path), "--rehearse"]) == 1
    first = json.loads((tmp_path / "queue.json").read_text())
    assert (first["good"]["status"], first["bad"]["status"]) == (0, 1)
    assert "ZeroDivisionError" in (tmp_path / "bad.log").read_text()
    assert gpu.main(["--out", str(tmp_path), "--rehearse"]) == 1
    second = json.loads((tmp_path / "queue.json").read_text())
    assert second["good"] == first["good"]
    assert (tmp_path / "bad.log").read_text().count("ZeroDivisionError") == 2


def test_step_is_stopped_when_the_time_limit_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PATIENCE", 1)
    monkeypatch.setattr(gpu, "STEPS", (made("long", "import time; time.sleep(600)"), made("next", "pass")))
    monkeypatch.setattr(gpu.Step, "words", lambda self, out, rehearse: [gpu.sys.executable, "-m", *self.command])
    assert gpu.main(["--out", str(tmp_path), "--rehearse", "--minutes", "0.02"]) == 1
    done = json.loads((tmp_path / "queue.json").read_text())
    assert done.keys() == {"long"}
    assert done["long"]["status"] is None


def test_studies_of_the_queue_exist():
    assert list(studies.read("paper-pairs").arms) == ["FP32", "E4M3"]
    assert len(studies.read("head-gradient", "language_model").arms) == 5

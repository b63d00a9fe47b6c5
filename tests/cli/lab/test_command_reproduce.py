from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


@pytest.fixture
def fakes(monkeypatch):
    """Replace the checks of two claims by quick ones: I4 always holds, and M5 always differs."""
    from mxnum.lab.claims import CLAIMS, Evidence, Statement

    holds, differs = Statement("so", True), Statement("not so", False)
    monkeypatch.setattr(CLAIMS["I4"], "run", lambda context: Evidence(statements=(holds,)))
    monkeypatch.setattr(CLAIMS["M5"], "run", lambda context: Evidence(statements=(holds, differs)))


@pytest.mark.usefixtures("fakes")
def test_the_report_and_its_exit_status(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = run("reproduce", "--only", "I4, I6a")
    assert "1 reproduced, 1 not run." in printed
    assert "I6a" in printed
    assert sorted(p.name for p in (tmp_path / "reproduce").iterdir()) == ["claims.md", "data", "report.html"]
    got = run.json("reproduce", "--only", "I4,M5", "--out", "reproduce")
    assert [c["id"] for c in got["claims"]] == ["I4", "M5"]
    # The exit status is 0, since a claim that differs is a result, not a failure.
    assert got["counts"] == {"reproduced": 1, "differs": 1}
    assert got["failures"] == []


@pytest.mark.usefixtures("fakes")
def test_a_broken_check_is_status_1(run, tmp_path, monkeypatch):
    from mxnum.lab.claims import CLAIMS

    monkeypatch.setattr(CLAIMS["M9"], "run", lambda context: 1 / 0)
    assert "The check of M9 raised an error: ZeroDivisionError" in run(
        "reproduce", "--only", "M9", "-o", tmp_path / "r", status=1
    )


def test_mistakes(run, tmp_path):
    assert "Option --only must be one of" in run("reproduce", "--only", "I66", "-o", tmp_path / "r", status=2)
    assert "must not be given together" in run("reproduce", "--quick", "--full", "-o", tmp_path / "r", status=2)
    (tmp_path / "mine.txt").write_text("")
    assert "must be empty, or one that this command made" in run("reproduce", "-o", tmp_path, status=2)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_kill_loses_nothing(run, tmp_path):
    """Check that SIGTERM during training leaves a report and no partial files."""
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    command = [sys.executable, "-m", "mxnum", "reproduce", "--only", "I6c", "--out", str(tmp_path / "r"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "tasks to do" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    printed, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    (claim,) = json.loads(printed)["claims"]
    assert (claim["verdict"], claim["remark"]) == (
        "not run",
        "The check has not run yet; run the same command to continue.",
    )
    assert "not complete" in (tmp_path / "r" / "report.html").read_text()
    assert not list(tmp_path.rglob("*.partial"))

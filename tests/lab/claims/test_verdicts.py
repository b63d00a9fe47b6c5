"""Tests of how checks run: missing files, broken checks, interruption, progress.

A claim without evidence must have no verdict.
"""

from __future__ import annotations

import json

import pytest

from mxnum.lab.claims import Evidence, Statement, Verdict, Whose, reproduce

HOLDS = Evidence(statements=(Statement("so", True),), configuration={"seed": 1})


def test_a_check_decides_its_claim(fake):
    fake("I6a", lambda context: HOLDS)
    report = reproduce(["I6a"])
    assert [e.verdict for e in report] == [Verdict.REPRODUCED]
    assert report["I6a"].evidence == HOLDS.of(Whose.PAPER)
    assert repr(report).startswith("1 claim: 1 reproduced.\n  I6a reproduced ")


def test_a_check_of_results_files_waits_for_them(fake, tmp_path):
    def diverges(context):
        return Evidence(statements=(Statement("diverges", context.json("quick/summary.json")["diverged"]),))

    fake("I6a", diverges, needs=("quick/summary.json",), command="mxnum lab sweep quick.toml")
    entry = reproduce(["I6a"], results=tmp_path)["I6a"]
    assert entry.verdict == Verdict.NOT_RUN
    assert entry.remark == "The check needs the results file quick/summary.json: run `mxnum lab sweep quick.toml`."
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "summary.json").write_text('{"diverged": false}')
    assert reproduce(["I6a"], results=tmp_path)["I6a"].verdict == Verdict.NOT_REPRODUCED


def test_a_broken_check_is_a_failure_and_hides_nothing(fake):
    fake("I6a", lambda context: 1 / 0)
    fake("I7", lambda context: HOLDS)
    report = reproduce(["I6a", "I7"])
    assert [e.verdict for e in report] == [Verdict.FAILED, Verdict.REPRODUCED]
    assert "ZeroDivisionError" in report["I6a"].remark


def test_interrupting_keeps_the_verdicts_so_far(fake):
    def interrupted(context):
        raise KeyboardInterrupt

    for id, run in (("I6a", lambda context: HOLDS), ("I7", interrupted), ("I8", lambda context: HOLDS)):
        fake(id, run)
    report = reproduce(["I6a", "I7", "I8"])
    assert report.interrupted
    assert [e.verdict for e in report] == [Verdict.REPRODUCED, Verdict.NOT_RUN, Verdict.NOT_RUN]
    assert "run the same command again" in report["I8"].remark


def test_progress_says_what_is_done(fake):
    fake("I6a", lambda context: (context.tell("seed 3"), HOLDS)[1])
    seen = []
    reproduce(["I6a"], progress=lambda *what: seen.append(what))
    assert seen == [(0, 1, "I6a: E4M3 diverges at the paper's size"), (0, 1, "I6a: seed 3"), (1, 1, "done")]


def test_an_unknown_claim():
    with pytest.raises(ValueError, match="'ids' must be one of"):
        reproduce(["I66"])


def test_plain_data_for_json(fake):
    fake("I6a", lambda context: HOLDS)
    read = json.loads(json.dumps(reproduce(["I6a"]).as_dict()))
    (claim,) = read["claims"]
    assert (claim["id"], claim["verdict"], claim["configuration"]) == ("I6a", "reproduced", {"seed": 1})
    assert claim["statements"] == [{"what": "so", "holds": True, "numbers": "", "whose": "paper"}]
    assert {"mxnum", "numpy", "machine"} <= set(read["machine"])

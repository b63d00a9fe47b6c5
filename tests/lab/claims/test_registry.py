"""Running checks: missing files, broken checks, interruption, progress; and nothing is decided without evidence."""

from __future__ import annotations

import json

import pytest

from mxnum.lab.claims import Evidence, Statement, Verdict, Whose, check, registry, reproduce
from mxnum.lab.claims.registry import checks

HOLDS = Evidence(statements=(Statement("so", True),), configuration={"seed": 1})


@pytest.fixture
def empty(monkeypatch):
    """A registry without checks."""
    monkeypatch.setattr(registry, "MODULES", ())
    monkeypatch.setattr(registry, "_CHECKS", {})


@pytest.mark.usefixtures("empty")
def test_without_a_check_a_claim_is_not_run():
    report = reproduce()
    assert report.counts == {"not run": 35}
    assert "d = 512" in report["I6a"].remark


@pytest.mark.usefixtures("empty")
def test_a_check_decides_its_claim():
    check("I6a")(lambda context: HOLDS)
    report = reproduce(["I6a", "I7"])
    assert [e.verdict for e in report] == [Verdict.REPRODUCED, Verdict.NOT_RUN]
    assert report["I6a"].evidence == HOLDS.of(Whose.PAPER)
    assert "1 reproduced, 1 not run" in repr(report)


@pytest.mark.usefixtures("empty")
def test_a_check_of_results_files_waits_for_them(tmp_path):
    @check("I6a", needs=("quick/summary.json",), command="mxnum lab sweep quick.toml")
    def diverges(context):
        return Evidence(statements=(Statement("diverges", context.json("quick/summary.json")["diverged"]),))

    entry = reproduce(["I6a"], results=tmp_path)["I6a"]
    assert entry.verdict == Verdict.NOT_RUN
    assert entry.remark == "Needs the results file quick/summary.json: run `mxnum lab sweep quick.toml`."
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "summary.json").write_text('{"diverged": false}')
    assert reproduce(["I6a"], results=tmp_path)["I6a"].verdict == Verdict.NOT_REPRODUCED


@pytest.mark.usefixtures("empty")
def test_a_broken_check_is_a_failure_and_hides_nothing():
    check("I6a")(lambda context: 1 / 0)
    check("I7")(lambda context: HOLDS)
    report = reproduce(["I6a", "I7"])
    assert [e.verdict for e in report] == [Verdict.FAILED, Verdict.REPRODUCED]
    assert "ZeroDivisionError" in report["I6a"].remark


@pytest.mark.usefixtures("empty")
def test_interrupting_keeps_the_verdicts_so_far():
    def interrupted(context):
        raise KeyboardInterrupt

    for id, run in (("I6a", lambda context: HOLDS), ("I7", interrupted), ("I8", lambda context: HOLDS)):
        check(id)(run)
    report = reproduce(["I6a", "I7", "I8"])
    assert report.interrupted
    assert [e.verdict for e in report] == [Verdict.REPRODUCED, Verdict.NOT_RUN, Verdict.NOT_RUN]
    assert "run the same command again" in report["I8"].remark


@pytest.mark.usefixtures("empty")
def test_progress_says_what_is_done():
    check("I6a")(lambda context: (context.tell("seed 3"), HOLDS)[1])
    seen = []
    reproduce(["I6a"], progress=lambda *what: seen.append(what))
    assert seen == [(0, 1, "I6a: E4M3 diverges at the paper's size"), (0, 1, "I6a: seed 3"), (1, 1, "done")]


@pytest.mark.usefixtures("empty")
def test_a_claim_has_one_check():
    check("I6a")(lambda context: HOLDS)

    def second(context):
        return HOLDS

    with pytest.raises(ValueError, match="'id' must be a claim without a check, not 'I6a'"):
        check("I6a")(second)
    with pytest.raises(ValueError, match="'id' must be one of"):
        check("Z9")
    with pytest.raises(ValueError, match="'ids' must be one of"):
        reproduce(["I66"])


@pytest.mark.usefixtures("empty")
def test_plain_data_for_json():
    check("I6a")(lambda context: HOLDS)
    read = json.loads(json.dumps(reproduce(["I6a"]).as_dict()))
    (claim,) = read["claims"]
    assert (claim["id"], claim["verdict"], claim["configuration"]) == ("I6a", "reproduced", {"seed": 1})
    assert claim["statements"] == [{"what": "so", "holds": True, "numbers": "", "whose": "paper"}]
    assert {"mxnum", "numpy", "machine"} <= set(read["machine"])


def test_modules_register_the_quick_checks():
    assert {"I1", "I2", "I3", "I4", "M2", "M3", "M4", "M5", "M6", "M7", "M9", "B5"} <= set(checks())

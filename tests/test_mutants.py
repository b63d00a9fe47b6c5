"""Tests of mutation testing: of the list of planted mistakes, and of the tool that plants them.

Each mistake must match the current code, and the tests that detect the mistake must exist.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import __main__ as tool
from tests.mutants import calls as recorded
from tests.mutants import drawn, survivors
from tests.mutants.calls import Test
from tests.mutants.planted import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]


def test_there_are_enough_and_their_names_differ():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert len({mutant.file for mutant in MUTANTS}) >= 10


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_text_of_each_mistake_occurs_once_and_its_tests_exist(mutant):
    text = (ROOT / mutant.file).read_text()
    compile(tool.changed(text, mutant), mutant.file, "exec")
    assert mutant.wrong.endswith(".")
    for test in mutant.killed_by:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(), test


def test_text_that_does_not_occur_once_raises():
    with pytest.raises(ValueError, match="occurs 2 times"):
        tool.changed("aa", Mutant("twice", "x.py", "a", "b", "", ()))
    with pytest.raises(ValueError, match="occurs 0 times"):
        tool.changed("aa", Mutant("nowhere", "x.py", "c", "b", "", ()))


def test_a_mutant_is_killed_or_survives_and_is_taken_out_again(tmp_path):
    code, test = tmp_path / "one.py", tmp_path / "test_one.py"
    code.write_text("def one():\n    return 1\n\ndef unseen():\n    return 1.5\n")
    test.write_text(
        "import sys; sys.path.insert(0, '.')\nfrom one import one\ndef test_one():\n    assert one() == 1\n"
    )
    before = code.read_text()
    killed = tool.fate_of(Mutant("wrong", "one.py", "1\n\n", "2\n\n", "", ("test_one.py",)), tmp_path)
    assert (killed.killed, killed.by) == (True, "test_one.py::test_one")
    survived = tool.fate_of(Mutant("unseen", "one.py", "1.5", "2.5", "", ("test_one.py",)), tmp_path)
    assert not survived.killed
    assert code.read_text() == before


def test_process_that_a_mistake_ends_counts_as_noticed(tmp_path):
    """Check that a mistake counts as found if it crashes the process, here with SIGSEGV."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "one.py").write_text("address = 1\n")
    (tmp_path / "tests" / "test_one.py").write_text(
        "import ctypes, sys; sys.path.insert(0, '.')\nimport one\ndef test_one():\n"
        "    assert one.address or ctypes.string_at(one.address)\n"
    )
    fate = tool.fate_of(Mutant("null", "one.py", "1", "0", "", ("tests/test_one.py",)), tmp_path)
    assert fate.killed
    assert fate.by == "tests/test_one.py::test_one, in which the process ended by SIGSEGV"


def test_failing_to_find_the_test_does_not_count_as_killed(tmp_path):
    (tmp_path / "one.py").write_text("x = 1\n")
    fate = tool.fate_of(Mutant("any", "one.py", "1", "2", "", ("test_missing.py",)), tmp_path)
    assert not fate.killed


def test_the_record_says_what_was_found_and_whether_that_is_still_so(tmp_path, monkeypatch):
    one, other, *_ = MUTANTS
    for file in {one.file, other.file, *(test.split("::")[0] for test in (*one.killed_by, *other.killed_by))}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((ROOT / file).read_text())
    monkeypatch.setattr(tool, "RECORD", tmp_path / "fates.json")
    assert tool.last_seen(one) == "[never recorded]"
    tool.record(other, tool.Fate(False, "4 passed", 1.0), tmp_path)
    tool.record(one, tool.Fate(True, "a.py::test_it", 1.0), tmp_path)
    assert list(tool.read()) == [one.name, other.name]
    assert tool.last_seen(one).startswith("[killed by a.py::test_it, 20")
    assert tool.last_seen(other).startswith("[SURVIVED, 20")
    assert tool.is_fresh(one)
    assert tool.is_fresh(other)
    (tmp_path / one.file).write_text("changed = True")
    tool.record(one, tool.Fate(True, "a.py::test_it", 1.0), tmp_path)
    assert not tool.is_fresh(one)
    assert tool.last_seen(one).endswith(", before the last change]")


def test_mistakes_come_in_the_order_of_the_names():
    names = [MUTANTS[7].name, MUTANTS[3].name]
    assert [mutant.name for mutant in tool.chosen(names)] == names
    assert tool.chosen(None) == list(MUTANTS)


def test_arguments(capsys, monkeypatch):
    assert tool.main(["--only", "no such mutant"]) == 2
    assert tool.main(["--list", "--only", "mxnum/formats.py"]) == 0
    assert "bias-of-e3m0 (mxnum/formats.py): All values" in capsys.readouterr().out
    whole, part = (Mutant(name, "", "", "", "", (test,)) for name, test in (("a", "a.py"), ("b", "a.py::test_it")))
    assert tool.tests_of([whole, part]) == ["a.py"]
    assert tool.tests_of([part]) == ["a.py::test_it"]
    monkeypatch.setattr(tool, "is_fresh", lambda mutant: True)
    assert tool.main(["--stale"]) == 0
    assert capsys.readouterr().out == "None is stale.\n"


CODE = """
def rows(x, *, least=1):
    \"\"\"Return 1 row.\"\"\"
    if len(x) < least or x is None:
        raise ValueError(f"at least {least + 1}")
    x.sort(axis=0)
    return minimum(x, least)
"""


def test_each_kind_of_mistake_is_drawn_and_nothing_else():
    inside = "if len(x) < least or x is None:"
    assert {one.label.partition(":")[2] for one in drawn.possible_in(CODE, "rows.py")} == {
        f"rows [and/or] len(x) < least or x is None -> (len(x) < least and x is None) in: {inside}",
        f"rows [comparison] len(x) < least -> (len(x) <= least) in: {inside}",
        f"rows [comparison] x is None -> (x is not None) in: {inside}",
        "rows [dropped] x.sort(axis=0) -> pass",
        "rows [axis] 0 -> 1 in: x.sort(axis=0)",
        "rows [constant] 0 -> 1 in: x.sort(axis=0)",
        "rows [arguments] minimum(x, least) -> (minimum(least, x)) in: return minimum(x, least)",
    }


NESTED = """
class A:
    @property
    def b(self):
        def c(x: Literal[2] = 3):
            return 0
        return c
"""


def test_mistakes_know_the_functions_around_them():
    (one,) = drawn.possible_in(NESTED, "a.py")
    assert one.functions == ("A.b.<locals>.c", "A.b")
    assert one.changed(NESTED) == NESTED.replace("return 0", "return 1")


def test_every_drawn_mistake_compiles_and_the_seed_decides_which(monkeypatch):
    monkeypatch.setattr(drawn, "possible_in", cache(drawn.possible_in))
    some = drawn.draw(ROOT, 100, seed=1)
    assert some == drawn.draw(ROOT, 100, seed=1) != drawn.draw(ROOT, 100, seed=2)
    for one in some:
        text = (ROOT / one.file).read_text()
        compile(one.changed(text), one.file, "exec")
        assert one.changed(text) != text


def test_a_change_of_one_function_leaves_the_other_mistakes(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn, "ROOMS", ("array",))
    for name in ("one", "other"):
        (tmp_path / "mxnum/array").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"mxnum/array/{name}.py").write_text(CODE)
    before = {one.label for one in drawn.draw(tmp_path, 14, seed=1)}
    (tmp_path / "mxnum/array/one.py").write_text(CODE.replace("x.sort(axis=0)", "print(1)"))
    lost = before - {one.label for one in drawn.draw(tmp_path, 14, seed=1)}
    assert len(before) == 14
    assert 0 < len(lost) <= 3
    assert all("one.py" in label for label in lost)


def test_quick_tests_of_the_function_come_first():
    (one, *_) = drawn.possible_in(CODE, "mxnum/array/rows.py")
    calls = {
        "tests/x.py::slow": Test(frozenset({"/array/rows.py:rows"}), 2.0),
        "tests/x.py::quick": Test(frozenset({"/array/rows.py:rows", "/x.py:f"}), 1.0),
        "tests/x.py::file": Test(frozenset({"/array/rows.py:g"}), 0.1),
        "tests/x.py::elsewhere": Test(frozenset({"/x.py:f"}), 0.1),
        "tests/array/test_rows.py::own": Test(frozenset(), 3.0),
        "tests/array/test_rows.py::both": Test(frozenset({"/array/rows.py:rows"}), 4.0),
        "tests/array/test_beside.py": Test(frozenset(), 5.0),
        "tests/test_far.py": Test(frozenset(), 5.0),
    }
    names = [test.rpartition("::")[2] for test in one.tests(calls)]
    assert names == ["both", "quick", "slow", "own", "file", "tests/array/test_beside.py"]


def test_calls_are_recorded_and_read(tmp_path):
    record = {
        "functions": ["/a.py:f", "/a.py:g", "/a.py:h"],
        "seconds": {"test_a.py::one": 0.5},
        "tests": {"test_a.py": [0], "test_a.py::one": [2], "test_a.py::failed": [1]},
    }
    (tmp_path / "a.json").write_text(json.dumps(record))
    assert recorded.read(tmp_path) == {"test_a.py::one": Test(frozenset({"/a.py:f", "/a.py:h"}), 0.5)}


def test_outcomes_are_stored_and_a_second_run_goes_on(tmp_path, capsys):
    """Check that a second run skips mistakes that already have an outcome.

    If `again` is True, the run repeats mistakes that survived.
    """
    planted = []

    class Copy:
        def outcome(self, mistake, limit):
            planted.append(mistake.label)
            return "killed by tests/test_rows.py::test_it" if "dropped" in mistake.label else "survived 1 of 1 tests"

    mistakes, out = drawn.possible_in(CODE, "mxnum/array/rows.py"), tmp_path / "outcomes.json"
    assert survivors.plant(Copy(), mistakes[:2], out, again=False) == 1
    assert survivors.plant(Copy(), mistakes, out, again=False) == 1
    assert planted == [one.label for one in mistakes]
    assert "7 drawn: 1 killed, 0 equivalent, 6 survived, 0 out of time" in capsys.readouterr().out
    outcomes = survivors.read(out)
    outcomes[mistakes[0].label]["outcome"] = "equivalent: x is a list"
    survivors.write(out, outcomes)
    assert survivors.plant(Copy(), mistakes, out, again=True) == 1
    assert len(planted) == 7 + 5


def test_forked_runs_give_the_status_of_pytest(tmp_path):
    """Check exit statuses in a new process: the tests' process has threads, so it cannot fork."""
    bodies = {
        "passes": "assert True",
        "fails": "assert False",
        "aborts": "import os; os.abort()",
        "does_not_end": "import time\n    while True: time.sleep(1)",
    }
    for name, body in bodies.items():
        (tmp_path / f"test_{name}.py").write_text(f"def test_it():\n    {body}\n")
    script = (
        "import numba, pytest  # imported once, not in each forked process\n"
        f"from pathlib import Path; from tests.mutants import forked; folder = Path({str(tmp_path)!r})\n"
        f"for name in {list(bodies)}:\n"
        "    limit = 3 if name == 'does_not_end' else 100\n"
        "    print(forked.pytest_in(folder, [f'test_{name}.py'], folder, limit)[0])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "-6", "None"]

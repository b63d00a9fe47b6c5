"""Tests that planted mistakes fit the code, and of the tool that plants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import __main__ as tool
from tests.mutants import drawn
from tests.mutants.planted import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]


def test_there_are_enough_and_their_names_differ():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert len({mutant.file for mutant in MUTANTS}) >= 10


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_has_exactly_one_place_to_go_and_tests_that_exist(mutant):
    text = (ROOT / mutant.file).read_text()
    compile(tool.changed(text, mutant), mutant.file, "exec")
    assert mutant.wrong.endswith(".")
    for test in mutant.killed_by:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(), test


def test_a_text_without_a_place_is_refused():
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


def test_a_process_that_a_mutant_ends_is_one_that_noticed(tmp_path):
    """Check that a mistake that ends the process, as a bad memory access may, counts as found."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "one.py").write_text("address = 1\n")
    (tmp_path / "tests" / "test_one.py").write_text(
        "import ctypes, sys; sys.path.insert(0, '.')\nimport one\ndef test_one():\n"
        "    assert one.address or ctypes.string_at(one.address)\n"
    )
    fate = tool.fate_of(Mutant("null", "one.py", "1", "0", "", ("tests/test_one.py",)), tmp_path)
    assert fate.killed
    assert fate.by == "tests/test_one.py::test_one, in which the process ended by SIGSEGV"


def test_nothing_that_fails_in_another_way_counts_as_killed(tmp_path):
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


def test_those_named_first_come_first():
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
    found = {one.shown(CODE).partition(":")[2] for one in drawn.possible_in(CODE, "rows.py")}
    assert found == {
        "4 [and/or] len(x) < least or x is None -> (len(x) < least and x is None)",
        "4 [comparison] len(x) < least -> (len(x) <= least)",
        "4 [comparison] x is None -> (x is not None)",
        "6 [dropped] x.sort(axis=0) -> pass",
        "6 [axis] 0 -> 1",
        "6 [constant] 0 -> 1",
        "7 [arguments] minimum(x, least) -> (minimum(least, x))",
    }


def test_every_drawn_mistake_compiles_and_the_seed_decides_which():
    some = drawn.draw(ROOT, 100, seed=1)
    assert some == drawn.draw(ROOT, 100, seed=1) != drawn.draw(ROOT, 100, seed=2)
    for one in some:
        text = (ROOT / one.file).read_text()
        compile(one.changed(text), one.file, "exec")
        assert one.changed(text) != text


def test_the_most_specific_tests_come_first():
    (one, *_) = drawn.possible_in(CODE, "mxnum/rows.py")
    calls = {"a": {"/rows.py:2", "/x.py:1"}, "b": {"/rows.py:2"}, "c": {"/x.py:1"}, "d": {"/rows.py:9"}}
    assert one.tests(calls) == ["b", "a"]
    assert one.tests({"c": {"/x.py:1"}, "d": {"/rows.py:9"}}) == ["d"]

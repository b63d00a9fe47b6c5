"""Tests of `python -m benchmarks` with made-up benchmarks ("questions") and a real benchmark."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import mxnum as mx
from benchmarks import (
    child,
    cliff,
    command,
    conversions,
    data,
    earlier,
    emulation,
    nvfp4,
    peers,
    questions,
    record,
    threads,
)
from benchmarks.questions import Case, Session
from benchmarks.record import Measurement, Table
from mxnum import stacks

TABLE = Table("t", "A table", "× nothing", "none")


@pytest.fixture(autouse=True)
def _threads():
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


class Asked:
    """Made-up benchmarks ("questions") that record the order in which they run.

    The benchmark b raises `fault` after its first measurement.
    """

    def __init__(self, monkeypatch):
        self.log = []
        self.fault = None
        monkeypatch.setattr(questions, "NAMES", ("a", "b", "cuda"))
        monkeypatch.setattr(questions, "names", lambda: questions.NAMES)
        monkeypatch.setattr(questions, "get", self.get)
        monkeypatch.setattr(command.machine, "commit", lambda: "0123456789ab")

    def get(self, name):
        def measure(session):
            self.log.append(name)
            yield TABLE, Measurement("first", name, 1.5, 1.0, 2.0, session.rounds)
            if self.fault and name == "b":
                raise self.fault
            yield TABLE, Measurement("second", name, 2.5, 2.0, 3.0, session.rounds)

        return SimpleNamespace(TITLE=f"Question {name}?", TEXT="Text.", measure=measure)


@pytest.fixture
def asked(monkeypatch):
    return Asked(monkeypatch)


def saved(folder, name="results.json"):
    return json.loads((folder / name).read_text())


def test_one_command_asks_prints_saves_and_writes_a_page(asked, tmp_path, capsys):
    assert command.main(["--out", str(tmp_path)]) == 0
    assert asked.log == ["a", "b"]  # the benchmark "cuda" runs only on request
    out, err = capsys.readouterr()
    assert "Question a?" in out
    assert "first   1.5 (1–2)" in out
    assert "[2/2] b: 2 measurements" in err
    assert saved(tmp_path)["finished"]
    assert saved(tmp_path)["settings"]["command"] == "python -m benchmarks"
    assert "| first | 1.5 (1–2) |" in (tmp_path / "results.md").read_text()


def test_a_part_and_a_quick_run_do_not_overwrite_the_results(asked, tmp_path):
    for arguments, name in (
        (["b"], "b"),
        (["--cuda"], "results"),
        (["cuda"], "cuda"),
        (["--quick"], "quick"),
        (["--sizes", "64K"], "selection"),
    ):
        assert command.main([*arguments, "--out", str(tmp_path)]) == 0
        settings = saved(tmp_path, f"{name}.json")["settings"]
        assert settings["command"] == " ".join(["python -m benchmarks", *arguments])
        assert settings["sizes"] == ([1 << 16] if "--sizes" in arguments else None)
    assert asked.log == ["b", "a", "b", "cuda", "cuda", "a", "b", "a", "b"]


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(asked, tmp_path, capsys):
    asked.fault = KeyboardInterrupt()
    assert command.main(["--out", str(tmp_path)]) == 130
    found = saved(tmp_path)
    assert [question["finished"] for question in found["questions"]] == [True, False]
    assert len(found["questions"][1]["tables"][0]["measurements"]) == 1
    assert "interrupted" in (tmp_path / "results.md").read_text()
    asked.fault, asked.log = None, []
    assert command.main(["--out", str(tmp_path), "--resume"]) == 0
    assert asked.log == ["b"]
    assert saved(tmp_path)["finished"]
    assert "not resumed" not in capsys.readouterr().err


def test_resumed_benchmark_measures_only_missing_rows(asked, tmp_path, monkeypatch):
    seen = []

    def measure(session):
        for row in ("first", "second"):
            yield session.cell(TABLE, row, "c", lambda row=row: (seen.append(row), Measurement(row, "c", text=row))[1])
            if asked.fault and row == "first":
                raise asked.fault

    monkeypatch.setattr(
        questions, "get", lambda name: SimpleNamespace(TITLE="Question?", TEXT="Text.", measure=measure)
    )
    asked.fault = KeyboardInterrupt()
    assert command.main(["a", "--out", str(tmp_path)]) == 130
    asked.fault = None
    assert command.main(["a", "--out", str(tmp_path), "--resume"]) == 0
    assert seen == ["first", "second"]
    (table,) = saved(tmp_path, "a.json")["questions"][0]["tables"]
    assert [measurement["text"] for measurement in table["measurements"]] == ["first", "second"]


def test_an_error_ends_the_run_but_what_was_measured_is_saved(asked, tmp_path):
    asked.fault = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        command.main(["--out", str(tmp_path)])
    assert len(saved(tmp_path)["questions"][1]["tables"][0]["measurements"]) == 1


@pytest.mark.parametrize("change", ["command", "sources", "changed sources", "file"])
def test_a_run_is_not_resumed_under_other_conditions(asked, tmp_path, capsys, monkeypatch, change):
    command.main(["--out", str(tmp_path)])
    commits = {"sources": "ba9876543210", "changed sources": "0123456789ab+"}
    monkeypatch.setattr(command.machine, "commit", lambda: commits.get(change, "0123456789ab"))
    if change == "file":
        (tmp_path / "results.json").write_text("{}")
    asked.log = []
    seed = ["--seed", "2"] if change == "command" else []
    assert command.main(["--out", str(tmp_path), "--resume", *seed]) == 0
    assert asked.log == ["a", "b"]
    assert "not resumed" in capsys.readouterr().err


def test_render_makes_the_same_page_again(asked, tmp_path):
    command.main(["--out", str(tmp_path)])
    page = (tmp_path / "results.md").read_text()
    (tmp_path / "results.md").unlink()
    (tmp_path / "results_a_gone.svg").write_text("of a table that no longer exists")
    (tmp_path / "cuda_a_t.svg").write_text("of another result")
    asked.log = []
    assert command.main(["--render", str(tmp_path / "results.json")]) == 0
    assert asked.log == []
    assert (tmp_path / "results.md").read_text() == page
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["cuda_a_t.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["conversion"], "'QUESTION' must be one of"),
        (["--sizes", "lots"], "'sizes' must be multiples of 32 such as"),
        (["--sizes", "100"], "not '100'"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(arguments, message, capsys):
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("2^24", 1 << 24), ("64K", 65536), ("16m", 1 << 24)])
def test_sizes_can_be_written_in_several_ways(text, size):
    assert command.parse_size(text) == size


def test_every_question_has_a_title_a_text_and_is_listed(capsys):
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert len(questions.names()) >= 7
    for name in questions.names():
        question = questions.get(name)
        assert question.TITLE.endswith("?")
        assert len(question.TEXT) > 50
        assert f"{name} " in listed
        assert question.TITLE in listed


def test_an_error_in_one_case_is_recorded_and_the_others_go_on():
    def fails():
        raise ValueError("no such thing\nsecond line")

    cases = Case("x", "c", fails), Case("y", "c", None, skipped="not here"), Case("z", "c", lambda: None, share=0.5)
    found = [m for _, m in Session.quickly().compare(TABLE, lambda: None, *cases)]
    assert found[0].failed == "ValueError: no such thing"
    assert found[1].skipped == "not here"
    assert found[2].repetitions >= 2


def test_a_failure_makes_the_exit_status_one(asked, tmp_path, monkeypatch, capsys):
    def measure(session):
        yield TABLE, Measurement("x", "c", failed="ValueError: no")

    monkeypatch.setattr(questions, "get", lambda name: SimpleNamespace(TITLE="?", TEXT="", measure=measure))
    assert command.main(["a", "--out", str(tmp_path)]) == 1
    assert "failed: a: x, c: ValueError: no" in capsys.readouterr().err


def test_ratios_are_corrected_for_a_share_of_the_work(monkeypatch):
    monkeypatch.setattr(questions.timing, "ratios", lambda *functions, **limits: [0.25, 0.5, 0.75])
    ((_, found),) = Session().compare(TABLE, lambda: None, Case("half", "c", lambda: None, share=0.5))
    assert (found.low, found.median, found.high) == (0.75, 1.0, 1.25)


def test_conversions_run(tmp_path, monkeypatch):
    monkeypatch.setattr(conversions, "FEW", ("mxfp4_e2m1",))
    assert command.main(["conversions", "--quick", "--sizes", "4096", "--out", str(tmp_path)]) == 0
    (answer,) = record.load(tmp_path / "quick.json").answers
    found = list(answer.measurements())
    assert {m.column for m in found} == {"mxfp4_e2m1"}
    assert len(found) > 8
    assert all(m.skipped or m.median > 0 for m in found)
    assert answer.finished


def test_rows_of_the_cliff_benchmark_are_distinct_and_quick_runs_take_some():
    x = data.normal(1 << 14, 1)
    rows = [row for row, _, _ in cliff._choices(x, 1)]
    assert len(rows) == len(set(rows)) > 55
    assert set(cliff.QUICK) <= set(rows)
    drawn, again, other = ([(row, options.keys()) for row, _, options in cliff._combinations(x, s)] for s in (1, 1, 2))
    assert len({row for row, _ in drawn}) == cliff.DRAWN
    assert drawn == again != other
    back, alone = (
        [row for row, *_ in found]
        for found in (cliff._dequantizations(x, "mxfp8_e4m3"), cliff._elements(x, mx.quantize(x, "mxfp8_e4m3")))
    )
    assert set(rows + back + alone) >= cliff.COMMON


def test_uncommon_cells_are_summed_up_in_one_row_per_table():
    usual, rare = record.Table("a", "a, 4K elements", ""), record.Table("b", "b, 4K elements", "")
    cells = [
        (usual, record.Measurement("rounding rtz", "x", 1.5)),
        *((usual, record.Measurement(f"odd {i}", "x", float(i))) for i in (2, 16, 3)),
        (rare, record.Measurement("odd", "y", failed="no")),
    ]
    first, *others = cliff.summed_up(iter(cells), "4K")
    assert first == cells[0]
    found = {(m.row, m.column): m for _, m in others}
    assert found["a", "cases"].text == "3"
    assert found["a", "half are below"].median == 3
    assert found["a", "the most"].is_above_limit
    assert found["a", "which"].text == "odd 16, x"
    assert found["b", "cases"].failed == "odd, y: no"


@pytest.mark.parametrize("size", [32, 4096, 1 << 16, 1 << 24, 96 * 1024])
def test_shapes_hold_the_elements_in_whole_blocks(size):
    rows, columns = data.shape(size)
    assert rows * columns == size
    assert columns % 32 == 0


@pytest.mark.parametrize("name", peers.ELEMENTS)
def test_compared_libraries_give_mxnums_values(name):
    x = data.normal(1 << 14, 3)
    expected = mx.fake_quantize(x, name)
    assert np.array_equal(peers._ml_dtypes(name, x), expected)
    torch = pytest.importorskip("torch")
    element = mx.formats.get(name).element
    assert np.array_equal(emulation.fake_quantize(torch.from_numpy(x), element, "even").numpy(), expected)
    ties = np.float32([1, 1.25, 2.5, 5, *[6] * 28])
    away = emulation.fake_quantize(torch.from_numpy(ties), mx.formats.element("e2m1"), "nearest").numpy()
    assert away[:4].tolist() == [1, 1.5, 3, 6]


def test_a_bit_that_depends_on_the_number_of_threads_is_a_failure(monkeypatch):
    def functions(x):
        yield "steady", lambda count: x[:3]
        yield "fickle", lambda count: x[:3] + (count == 4)

    monkeypatch.setattr(threads, "normal", lambda size, seed: np.zeros(data.shape(1 << 20), np.float32))
    monkeypatch.setattr(threads, "_functions", functions)
    found = {(m.row, m.column): m.failed for _, m in threads._sameness([2, 4], Session())}
    assert found.pop(("fickle", "4 threads")) == "different bits"
    assert set(found.values()) == {""}
    assert len(found) == 3


def test_memory_is_measured_in_a_fresh_process():
    found = child.call("memory", "quantize", str(1 << 16), "1")
    assert 0 <= found["traced"] < 1
    with pytest.raises(child.ChildError, match="KeyError"):
        child.call("memory", "nothing of that name", "32", "1")


def test_the_page_has_each_question_once(asked, tmp_path):
    command.main(["--out", str(tmp_path)])
    torch = saved(tmp_path)
    (tmp_path / "torch.json").write_text(json.dumps(torch))
    command.write_docs_page(tmp_path, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text().count("## Question a?") == 1
    torch["settings"]["questions"] = ["torch"]
    torch["questions"] = [{**torch["questions"][0], "name": "torch", "title": "Question torch?"}]
    (tmp_path / "torch.json").write_text(json.dumps(torch))
    command.write_docs_page(tmp_path, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text().count("## Question") == 3


@pytest.mark.full
def test_earlier_version_is_measured_in_its_own_process(monkeypatch, tmp_path):
    monkeypatch.delenv("MXNUM_EARLIER", raising=False)
    with pytest.raises(ValueError, match="needs the environment variable MXNUM_EARLIER"):
        earlier.require()
    package = tmp_path / "mxnum"
    package.symlink_to(earlier.ROOT / "mxnum")
    monkeypatch.setenv("MXNUM_EARLIER", str(tmp_path))
    earlier.require()
    lines = ("mxfp8_e4m3", "packed, 4 bits")
    monkeypatch.setattr(earlier, "_FEWER", lines)
    found = [m for _, m in earlier.measure(Session.quickly(sizes=(64,)))]
    assert [(m.row, m.column) for m in found] == [
        ("mxfp8_e4m3", "quantize"), ("mxfp8_e4m3", "fake_quantize"), ("mxfp8_e4m3", "dequantize"),
        ("packed, 4 bits", "quantize"), ("packed, 4 bits", "dequantize"),
    ]  # fmt: skip
    assert all(m.median > 0 and m.repetitions >= 2 and not m.failed for m in found)
    assert [m.limit for m in found] == [1.05] * 3 + [1.3] * 2
    package.unlink()
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert "failed" in next(m.failed and "failed" for _, m in earlier.measure(Session.quickly(sizes=(64,))))


def test_every_line_of_the_common_set_can_be_run():
    for lines in earlier._LINES.values():
        assert set(lines) <= set(earlier._ALL)
    for line in ("every other row", "Fortran order", earlier._WORDS, "rounding rtz"):
        made = earlier.functions(4096, line, 1)
        assert ("dequantize" in made) == (line in ("every other row", "Fortran order"))
        for run in made.values():
            run()
    assert earlier.functions(16, "mxfp8_e4m3", 1)["fake_quantize"]().shape == (16,)
    assert earlier.products(32, 1)["matmul"]().shape == (32, 32)


def test_nvfp4_is_measured_in_the_arithmetic_of_every_stack():
    cases = [(case.row, case.column) for case in nvfp4._own(np.ones((2, 32), np.float32))]
    for stack in stacks.STACKS:
        assert [column for row, column in cases if row == f"arithmetic={stack!r}, out="] == [
            "there and back",
            "to codes",
        ]

"""Tests that saved results load unchanged, and suffice to make the page, tables and plots."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks import command, machine, page, plots, record, tables
from benchmarks.record import Answer, Measurement, Result, Table

SPEED = Table("speed", "Speed, 1K elements", "× a copy")
CURVE = Table("curve", "By size", "× a copy", "curve")
CELLS = [
    Measurement("quantize", "e4m3", 1.23456789, 1.0, 2.5, 21, limit=1.5),
    Measurement("quantize", "e2m1", 1.75, 1.5, 2.0, 21, limit=1.5),
    Measurement("pack", "e2m1", 0.0, 0.0, 0.0, 1),
    Measurement("dequantize", "e4m3", skipped="no out= yet"),
    Measurement("dequantize", "e2m1", failed="ValueError: no"),
    Measurement("same bits", "e4m3", text="same"),
]
POINTS = [Measurement(str(x), "quantize", 10 / x, 9 / x, 11 / x, 5, x=float(x)) for x in (1, 2, 4)]


def made(**changes):
    """Return a benchmark result with tables and a curve, with the given fields changed."""
    answer = Answer("speed", "How fast?", "One thread.", finished=True, seconds=61.5)
    for cell in CELLS:
        answer.add(SPEED, cell)
    for point in POINTS:
        answer.add(CURVE, point)
    described = {
        "date": "2026-01-02 03:04 UTC", "cpu": "A processor", "cores": 3, "caches": {"L2": "1024K"}, "memory_gib": 7.5,
        "system": "An OS", "python": "3.11", "packages": {"numpy": "2.9"}, "blas": "a blas 1", "commit": "0123456789ab",
    }  # fmt: skip
    settings = {"command": "python -m benchmarks", "questions": ["speed"], "quick": False, "sizes": None, "seed": 17}
    result = Result(described, settings, [answer], {"others": 0.01, "stolen": 0.0})
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def test_a_saved_result_comes_back(tmp_path):
    record.save(made(), tmp_path / "a.json")
    back = record.load(tmp_path / "a.json")
    rounded = [replace(CELLS[0], median=1.2346), *CELLS[1:]]
    assert list(back.answers[0].measurements()) == rounded + POINTS
    assert [table for table, _ in back.answers[0].tables.values()] == [SPEED, CURVE]
    assert (back.machine, back.settings, back.quietness) == (made().machine, made().settings, made().quietness)
    record.save(back, tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_each_measurement_is_a_line(tmp_path):
    record.save(made(), tmp_path / "a.json")
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert sum('"row": ' in line for line in lines) == len(CELLS) + len(POINTS)
    assert json.loads(next(line for line in lines if "e2m1" in line).rstrip(",")) == {
        name: value for name, value in asdict(CELLS[1]).items() if value not in (None, "")
    }


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"benchmarks": 99}', '{"benchmarks": 1}'])
def test_other_files_are_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"must be a file written by this version, not 'a.json'"):
        record.load(path)


def test_result_is_finished_if_every_benchmark_is():
    assert made().is_finished
    assert not made(answers=[]).is_finished
    unfinished = made()
    unfinished.answers[0].finished = False
    assert not unfinished.is_finished
    assert made().failures == ["speed: dequantize, e2m1: ValueError: no"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (1.0, "1"), (1.2345, "1.23"), (12.345, "12.3"), (123.45, "123"), (12345.6, "12,346"), (0.0, "0")]
    + [(0.012345, "0.0123"), (0.000012345, "0.00001"), (-0.5, "-0.5"), (99.96, "100")],
)
def test_numbers_have_three_digits(value, text):
    assert tables.number(value) == text


def test_table_has_rows_columns_and_goals():
    assert tables.grid(CELLS) == [
        ["", "e4m3", "e2m1", "goal"],
        ["quantize", "1.23 (1–2.5)", "*1.75* (1.5–2)", "≤ 1.5"],
        ["pack", "", "0", ""],
        ["dequantize", "–", "failed", ""],
        ["same bits", "same", "", ""],
    ]
    assert tables.remarks(CELLS) == [
        "1 of 2 measurements with a goal miss it.",
        "Not measured: dequantize (no out= yet).",
        "Failed: dequantize (ValueError: no).",
    ]
    assert "*1.75* (1.5–2)  ≤ 1.5" in tables.plain(SPEED, CELLS)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ((2, 2, 2), "≤ 2"),
        ((None, None, None), ""),
        ((2.1, 1, 1.02), "block ≤ 2.1; fma ≤ 1; both, sr ≤ 1.02"),
        ((None, 0.2, 0.2), "fma ≤ 0.2; both, sr ≤ 0.2"),
    ],
)
def test_goals_name_their_columns_if_goals_differ(limits, text):
    row = [
        Measurement("a", column, 1.5, 1, 2, 9, limit=limit)
        for column, limit in zip(("block", "fma", "both, sr"), limits, strict=True)
    ]
    other = Measurement("b", "block", 1.5, 1, 2, 9, limit=7.0)
    assert tables.grid([*row, other])[1][-1] == text
    skipped = Measurement("a", "dot", limit=3.0, skipped="no time")
    assert tables.grid([*row, skipped, other])[1][-1] == text


@pytest.mark.parametrize(
    ("median", "limit", "text"),
    [(0.6803, 0.68, "*0.6803*"), (0.68, 0.68, "0.68"), (0.6797, 0.68, "0.68"), (1.00002, 1, "*1.00002*")]
    + [
        (0.7, 0.68, "*0.7*"),
        (123.4, 123, "*123.4*"),
        (2012.25, 2012.0, "*2,012.2*"),
        (0.000012345, 1e-5, "*0.000012*"),
    ],
)
def test_cells_mark_missed_goals(median, limit, text):
    assert tables.cell(Measurement("a", "b", median, 0, 9, 1, limit=limit)) == text


def test_the_page_is_made_of_the_saved_file_alone(tmp_path):
    record.save(made(), tmp_path / "a.json")
    plot = tmp_path / "plots" / "a.svg"
    text = page.text([(record.load(tmp_path / "a.json"), {("speed", "speed"): plot})], tmp_path / "docs")
    for expected in (
        "# Benchmarks\n",
        "| Date | 2026-01-02 03:04 UTC |",
        "A processor, 3 cores, L2 1024K",
        "numpy 2.9",
        "0123456789ab",
        "`python -m benchmarks`",
        "| Seed | 17 |",
        "## How fast?",
        "(../plots/a.svg)",
        "### Speed, 1K elements",
        "In multiples: × a copy.",
        "| quantize | 1.23 (1–2.5) | **1.75** (1.5–2) | ≤ 1.5 |",
        "Not measured: dequantize",
        "| How fast? | 7 | 2 | 1 | 1 |",
    ):
        assert expected in text, expected
    assert "warning" not in text


def test_page_warns_of_noise_interruptions_and_quick_runs():
    loaded = made(quietness={"others": 0.3, "stolen": 0.0})
    loaded.settings |= {"quick": True}
    loaded.answers[0].finished = False
    smoke, interrupted, quick = page.warnings(loaded)
    assert "smoke test" in smoke
    assert "30%" in smoke
    assert "interrupted" in interrupted
    assert "quick" in quick
    assert "smoke test" in page.warnings(made(quietness={"others": 0.0, "stolen": 0.2}))[0]
    assert "does not say" in page.warnings(made(quietness={}))[0]
    assert page.warnings(made()) == []
    assert page.text([(loaded, {})], command.RESULTS).count(":::{warning}") == 3


def test_the_page_in_the_docs_is_what_the_command_makes(tmp_path):
    assert command.PAGE.exists()
    target = command.PAGE.with_name("benchmarks.test")
    try:
        command.write_docs_page(command.RESULTS, target)
        assert target.read_text() == command.PAGE.read_text(), "python -m benchmarks --render"
    finally:
        target.unlink(missing_ok=True)


def test_plots_show_every_table_and_are_reproducible(tmp_path):
    pytest.importorskip("matplotlib")
    for table, cells, shown in ((SPEED, CELLS, ["quantize", "e4m3"]), (CURVE, POINTS, ["quantize", "elements"])):
        assert plots.draw(table, cells, tmp_path / "a.svg")
        assert plots.draw(table, cells, tmp_path / "b.svg")
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
        assert all(f">{word}<" in (tmp_path / "a.svg").read_text() for word in [*shown, table.title, table.unit])
    assert not plots.draw(Table("t", "T", "MiB", "none"), CELLS, tmp_path / "c.svg")
    assert not plots.draw(SPEED, CELLS[2:], tmp_path / "c.svg")
    assert not (tmp_path / "c.svg").exists()


def test_description_of_the_machine_has_no_paths():
    described = machine.describe()
    assert described["cores"] >= 1
    assert {"mxnum", "numpy", "numba"} <= set(described["packages"])
    assert str(machine.ROOT) not in json.dumps(described)


def test_quietness_is_the_share_of_time_that_others_took():
    start = machine.Clock(total=100.0, busy=40.0, stolen=1.0, own=10.0)
    end = machine.Clock(total=120.0, busy=55.0, stolen=2.0, own=20.0)
    assert machine.quietness(start, end) == {"others": 0.25, "stolen": 0.05}
    assert machine.quietness(None, end) == {}
    assert machine.quietness(start, start) == {}

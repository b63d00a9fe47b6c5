"""Read and write the record of a run as JSON: the measurements of each question, in tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LAYOUT = 1


@dataclass(frozen=True)
class Table:
    """A table of measurements, and the kind of its plot."""

    key: str
    title: str
    #: The unit of the numbers, shown in the heading and on the axis.
    unit: str
    #: ``dots``: a line for each row, with a marker for each column. ``curve``: a curve for each
    #: column, with `Measurement.x` on the horizontal axis. ``none``: no plot.
    plot: str = "dots"


@dataclass(frozen=True)
class Measurement:
    """One cell of a table: a median with quartiles, a text, or the reason for a missing number."""

    row: str
    column: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    repetitions: int = 0
    #: The goal, which the median should not exceed.
    limit: float | None = None
    #: The text that the cell shows instead of a median.
    text: str = ""
    #: The reason why nothing was measured.
    skipped: str = ""
    #: The message of the error that ended the measurement.
    failed: str = ""
    #: The position of the measurement on the horizontal axis of a curve.
    x: float | None = None

    @property
    def is_above_limit(self) -> bool:
        """True if the measurement misses its goal."""
        return self.limit is not None and self.median is not None and self.median > self.limit


@dataclass
class Answer:
    """All measurements for one question."""

    name: str
    title: str
    text: str
    tables: dict[str, tuple[Table, list[Measurement]]] = field(default_factory=dict)
    finished: bool = False
    #: The duration of the question's measurements, for planning the next run.
    seconds: float = 0.0

    def add(self, table: Table, measurement: Measurement) -> None:
        """Add a measurement to a table."""
        self.tables.setdefault(table.key, (table, []))[1].append(measurement)

    def known(self) -> dict[tuple[str, str, str], Measurement]:
        """Return a mapping from (table, row, column) to each measurement that did not fail."""
        return {(k, m.row, m.column): m for k, (_, found) in self.tables.items() for m in found if not m.failed}

    def measurements(self) -> Iterator[Measurement]:
        """Yield the measurements of all tables."""
        for _, measurements in self.tables.values():
            yield from measurements


@dataclass
class Result:
    """The result of a run: machine, settings and answers."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    answers: list[Answer] = field(default_factory=list)
    #: Shares of the CPU time that other programs and the hypervisor used during the run; see
    #: `machine.quietness`.
    quietness: dict[str, float] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        return [answer.name for answer in self.answers] == self.settings["questions"] and all(
            answer.finished for answer in self.answers
        )

    @property
    def failures(self) -> list[str]:
        return [
            f"{answer.name}: {m.row}, {m.column}: {m.failed}"
            for answer in self.answers
            for m in answer.measurements()
            if m.failed
        ]


def save(result: Result, path: Path) -> None:
    """Write a result to a file; replace an existing file atomically."""
    layout = {
        "benchmarks": LAYOUT,
        "finished": result.is_finished,
        "machine": result.machine,
        "settings": result.settings,
        "quietness": result.quietness,
        "questions": [
            {
                "name": answer.name,
                "title": answer.title,
                "text": answer.text,
                "finished": answer.finished,
                "seconds": round(answer.seconds, 1),
                "tables": [
                    asdict(table) | {"measurements": [_compact(measurement) for measurement in measurements]}
                    for table, measurements in answer.tables.values()
                ],
            }
            for answer in result.answers
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(_lines(layout) + "\n", encoding="utf-8")
    partial.replace(path)


def load(path: Path) -> Result:
    """Read a file that `save` wrote."""
    try:
        layout = json.loads(path.read_text(encoding="utf-8"))
        if layout["benchmarks"] != LAYOUT:
            raise ValueError(f"layout {layout['benchmarks']}")
        answers = []
        for question in layout["questions"]:
            answer = Answer(
                question["name"], question["title"], question["text"], {}, question["finished"], question["seconds"]
            )
            for table in question["tables"]:
                measurements = [Measurement(**measurement) for measurement in table.pop("measurements")]
                answer.tables[table["key"]] = (Table(**table), measurements)
            answers.append(answer)
        return Result(layout["machine"], layout["settings"], answers, layout["quietness"])
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(
            f"Argument 'path' must be a file written by this version, not {path.name!r} ({problem})."
        ) from None


def _compact(measurement: Measurement) -> dict[str, Any]:
    """Return the fields of a measurement that are not empty.

    Numbers are rounded to five digits, because measurements are less accurate than five digits.
    """
    return {
        name: float(f"{value:.5g}") if isinstance(value, float) else value
        for name, value in asdict(measurement).items()
        if value is not None and value != "" and not (name == "repetitions" and value == 0)
    }


def _lines(layout: dict[str, Any]) -> str:
    """Return JSON with one measurement per line, so that results can be compared by line."""
    cells: list[str] = []
    for question in layout["questions"]:
        for table in question["tables"]:
            numbers = range(len(cells), len(cells) + len(table["measurements"]))
            cells += [json.dumps(measurement, ensure_ascii=False) for measurement in table["measurements"]]
            table["measurements"] = [f"<{number}>" for number in numbers]
    text = json.dumps(layout, indent=1, ensure_ascii=False)
    return re.sub(r'"<(\d+)>"', lambda found: cells[int(found[1])], text)

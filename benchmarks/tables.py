"""Write measurements as text tables, for the terminal and for the page of the docs."""

from __future__ import annotations

from benchmarks.record import Measurement, Table

Grid = list[list[str]]


def number(value: float, digits: int = 3) -> str:
    """Return a number as text with `digits` significant digits; timings have fewer exact digits."""
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.{digits - 3}f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.{digits + 2}f}"


def cell(measurement: Measurement, mark: str = "*") -> str:
    """Return the median and the quartiles as text, such as ``1.02 (0.99–1.1)``.

    A median above its goal is marked.
    """
    m = measurement
    if m.skipped or m.failed or m.median is None:
        return m.text or ("failed" if m.failed else "–")
    median = number(m.median)
    if m.limit is not None and m.is_above_limit:
        median = f"{mark}{_beyond(m.median, m.limit)}{mark}"
    if m.repetitions <= 1 or m.low is None or m.high is None:
        return median
    return f"{median} ({number(m.low)}–{number(m.high)})"


def _beyond(median: float, limit: float) -> str:
    """Return a median above its goal as text, with enough digits to show the excess."""
    texts = (number(median, digits) for digits in range(3, 9))
    return next((text for text in texts if text != number(limit)), number(median))


def grid(measurements: list[Measurement], mark: str = "*") -> Grid:
    """Return a table as lists of cells: a heading, then the rows; goals are in the last column."""
    rows, columns = (list(dict.fromkeys(getattr(m, name) for m in measurements)) for name in ("row", "column"))
    cells = {(m.row, m.column): m for m in measurements}
    goals = {row: _goal([m for m in measurements if m.row == row]) for row in rows}
    has_goals = any(goals.values())
    lines = [["", *columns, *(["goal"] if has_goals else [])]]
    for row in rows:
        found = [cells.get((row, column)) for column in columns]
        lines.append([row, *(cell(m, mark) if m else "" for m in found), *([goals[row]] if has_goals else [])])
    return lines


def _goal(row: list[Measurement]) -> str:
    """Return the goals of a row: ``≤ 1.1`` if all are equal, else ``cold ≤ 3; warm ≤ 0.2``."""
    measured = [m for m in row if m.median is not None]
    limits = {m.limit for m in measured or row}
    if len(limits) == 1:
        (limit,) = limits
        return "" if limit is None else f"≤ {number(limit)}"
    return "; ".join(f"{m.column} ≤ {number(m.limit)}" for m in measured if m.limit is not None)


def remarks(measurements: list[Measurement]) -> list[str]:
    """Return remarks that do not fit in cells: missed goals, skipped cases, errors."""
    found = []
    limited = [m for m in measurements if m.limit is not None and m.median is not None]
    above = [m for m in limited if m.is_above_limit]
    if limited:
        found.append(f"{len(above)} of {len(limited)} measurements with a goal miss it.")
    for word, field in (("Not measured", "skipped"), ("Failed", "failed")):
        reasons: dict[str, list[str]] = {}
        for m in measurements:
            if reason := getattr(m, field):
                reasons.setdefault(reason, []).append(m.row)
        for reason, rows in reasons.items():
            found.append(f"{word}: {', '.join(dict.fromkeys(rows))} ({reason}).")
    return found


def plain(table: Table, measurements: list[Measurement]) -> str:
    """Return the table for the terminal."""
    lines = grid(measurements)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [f"{table.title}: {table.unit}" if table.unit else table.title]
    for line in lines:
        first, *rest = (field.ljust(width) for field, width in zip(line, widths, strict=True))
        text.append("  ".join(["  " + first, *rest]).rstrip())
    return "\n".join(text + [f"  {remark}" for remark in remarks(measurements)])


def markdown(table: Table, measurements: list[Measurement]) -> str:
    """Return the table for the docs, without the title."""
    heading, *lines = grid(measurements, "**")
    text = []
    if table.unit:
        text += [f"In multiples: {table.unit}." if table.unit.startswith("×") else f"In {table.unit}.", ""]
    text += [_line(heading), _line(["---"] + ["---:"] * (len(heading) - 1)), *map(_line, lines), ""]
    return "\n".join([*text, *(f"{remark}\n" for remark in remarks(measurements))])


def _line(fields: list[str]) -> str:
    return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |"

"""Write the page of results from a saved result, without measuring."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import tables
from benchmarks.record import Answer, Result

#: The page calls a run a smoke test if other programs, or the hypervisor, take more than this share
#: of the processors' time.
LOADED = 0.05

HEAD = """# Benchmarks

<!-- Made by `python -m benchmarks`. Do not edit: the next run writes it anew. -->

Unless a table names another unit, each number is a ratio of times that were measured in alternation in one process: a
median with its quartiles, `1.02 (0.99–1.1)`. Times by themselves say little about another machine; ratios to a copy of
memory, or to a product of matrices, say more. {doc}`howto/benchmarks` says how to measure your own machine.
"""

EMPTY = """
No results are recorded yet: `python -m benchmarks` measures and writes this page.
"""


#: A result, and the paths of its plots by (question, table). Some tables have no plot.
Part = tuple[Result, Mapping[tuple[str, str], Path]]


def write(parts: Sequence[Part], target: Path) -> None:
    """Write the page, which links to plots by paths relative to the page."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text(parts, target.parent), encoding="utf-8")


def text(parts: Sequence[Part], folder: Path) -> str:
    """Return the text of the page, with links relative to `folder`."""
    if not parts:
        return HEAD + EMPTY
    sections = [HEAD]
    for result, plots in parts:
        which = f": {', '.join(result.settings['questions'])}" if len(parts) > 1 else ""
        sections.append(f"## Where and how{which}\n\n{_machine(result)}")
        sections.append(_goals(result))
        for answer in result.answers:
            links = {
                key: Path(os.path.relpath(plot, folder)).as_posix()
                for (question, key), plot in plots.items()
                if question == answer.name
            }
            sections.append(_answer(answer, links))
    return "\n".join(sections)


def _machine(result: Result) -> str:
    m, settings = result.machine, result.settings
    versions = ", ".join(f"{name} {version}" for name, version in m["packages"].items())
    caches = ", ".join(f"{level} {size}" for level, size in m["caches"].items())
    lines = [
        "| | |",
        "| --- | --- |",
        f"| Date | {m['date']} |",
        f"| Commit | {m['commit'] or 'not in a checkout'}{' (with changes)' if m['commit'].endswith('+') else ''} |",
        f"| Processor | {m['cpu']}, {m['cores']} cores{f', {caches}' if caches else ''} |",
        f"| Memory | {m['memory_gib']} GiB |",
        f"| System | {m['system']} |",
        f"| Software | Python {m['python']}, {versions}, {m['blas']} |",
        f"| Command | `{settings['command']}` |",
        f"| Seed | {settings['seed']} |",
        f"| Duration | {sum(answer.seconds for answer in result.answers) / 60:.0f} minutes |",
        "",
    ]
    return "\n".join(lines + [f":::{{warning}}\n{warning}\n:::\n" for warning in warnings(result)])


def _goals(result: Result) -> str:
    """Return a table that counts measurements, measurements with a goal, and missed goals."""
    lines = ["| Question | measured | with a goal | that miss it | failed |", "| --- | ---: | ---: | ---: | ---: |"]
    for answer in result.answers:
        found = list(answer.measurements())
        measured = sum(m.median is not None or bool(m.text) for m in found)
        limited = [m for m in found if m.limit is not None and m.median is not None]
        missed, failed = sum(m.is_above_limit for m in limited), sum(bool(m.failed) for m in found)
        lines.append(f"| {answer.title} | {measured} | {len(limited)} | {missed} | {failed} |")
    return "\n".join([*lines, ""])


def warnings(result: Result) -> list[str]:
    """Return the warnings that a reader needs before the numbers."""
    found = []
    others, stolen = (result.quietness.get(name, 0.0) for name in ("others", "stolen"))
    is_timed = any(m.median is not None for answer in result.answers for m in answer.measurements())
    if is_timed and not result.quietness:
        found.append("This system does not say whether other programs ran at the same time.")
    elif is_timed and (others > LOADED or stolen > LOADED):
        found.append(
            f"**A smoke test, not a measurement**: while this ran, other programs took {others:.0%} of the processors' "
            f"time and the hypervisor {stolen:.0%}."
        )
    if not result.is_finished:
        found.append("The run was interrupted, so some questions are missing or not finished.")
    if result.settings["quick"]:
        found.append("This was a quick run, with few rounds and small arrays.")
    return found


def _answer(answer: Answer, links: Mapping[str, str]) -> str:
    parts = [f"## {answer.title}", "", answer.text.strip(), ""]
    for table, measurements in answer.tables.values():
        parts += [f"### {table.title}", ""]
        if table.key in links:
            parts += [f"![{table.title}, as in the table below.]({links[table.key]})", ""]
        parts.append(tables.markdown(table, measurements))
    return "\n".join(parts)

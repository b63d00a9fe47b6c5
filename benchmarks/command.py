"""Run the command: measure, show progress, save results, draw plots, write the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from benchmarks import machine, page, plots, questions, record, tables
from benchmarks.questions import Session
from benchmarks.record import Answer, Result

RESULTS = machine.ROOT / "benchmarks" / "results"
PAGE = machine.ROOT / "docs" / "benchmarks.md"

#: The result files that docs/benchmarks.md shows, if they exist.
PAGE_PARTS = ("results.json", "torch.json", "recipes.json", "cuda.json", "cuda_speed.json")

#: Seconds after which an unfinished result is saved again.
SAVE_EVERY = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status.

    The status is 1 if a measurement failed, 2 if the command could not start, 130 if the run was
    interrupted, and otherwise 0.
    """
    options = _parser().parse_args(arguments)
    try:
        if _answered_at_once(options):
            return 0
        asked = _asked(options)
        size_list = tuple(map(parse_size, options.sizes)) or None
    except (ValueError, RuntimeError) as problem:
        print(f"python -m benchmarks: {problem}", file=sys.stderr)
        return 2
    session = (Session.quickly if options.quick else Session)(sizes=size_list, seed=options.seed)
    path = (Path(options.out) if options.out else RESULTS) / f"{_stem(asked, session)}.json"
    result = _started(asked, session, _command(options))
    if options.resume:
        _take_earlier(result, path)
    interrupted = _run(result, session, path)
    for answer in result.answers:
        print(f"\n{answer.title}\n")
        for table, measurements in answer.tables.values():
            print(tables.plain(table, measurements), end="\n\n")
    for warning in page.warnings(result):
        print(warning.replace("**", ""))
    _publish(result, path)
    for failure in result.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 130 if interrupted else 1 if result.failures else 0


def parse_size(text: str) -> int:
    """Return the number of elements that is written as ``4096``, ``2^24``, ``64K`` or ``16M``.

    K, M and G mean 2**10, 2**20 and 2**30.
    """
    try:
        if "^" in text:
            base, power = text.split("^")
            size: int = int(base) ** int(power)
        else:
            shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
            size = int(text[:-1] if shift else text) << shift
    except ValueError:
        size = 0
    if size < 32 or size % 32:
        raise ValueError(f"Argument 'sizes' must be multiples of 32 such as 4096, 2^24, 64K or 16M, not {text!r}.")
    return size


def _answered_at_once(options: argparse.Namespace) -> bool:
    """Handle `--list` and `--render`, which measure nothing; return True if either was given."""
    if options.list:
        for name in questions.names():
            print(f"{name:<12} {questions.get(name).TITLE}")
    elif options.render == "":
        write_docs_page(RESULTS, PAGE)
    elif options.render is not None:
        path = Path(options.render)
        _publish(record.load(path), path)
    return bool(options.list or options.render is not None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time mxnum relative to memory copies, BLAS and other libraries, and plot the results.",
        epilog="A run of all questions is saved as results.json, and docs/benchmarks.md shows its results. A quick run "
        "is saved as quick.json. A run of selected questions is saved in a file that is named after the questions, "
        "with plots and a page in the same folder.",
    )
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"some of: {', '.join(questions.names())}")
    parser.add_argument("--list", action="store_true", help="list the questions")
    parser.add_argument("--quick", action="store_true", help="run a one-minute smoke test (longer the first time)")
    parser.add_argument("--sizes", nargs="+", default=[], metavar="N", help="element counts: 64K 16M 2^24")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the input data (default: 1)")
    parser.add_argument("--out", metavar="FOLDER", help="where to save (default: benchmarks/results)")
    parser.add_argument("--resume", action="store_true", help="keep the measurements of an interrupted run")
    parser.add_argument(
        "--render",
        nargs="?",
        const="",
        metavar="FILE",
        help="measure nothing: draw plots and write a page from a saved result; without FILE, write docs/benchmarks.md",
    )
    parser.add_argument("--cuda", action="store_true", help="also run the questions that need a GPU")
    return parser


def _default_questions() -> list[str]:
    return [name for name in questions.names() if name not in questions.ON_REQUEST]


def _asked(options: argparse.Namespace) -> list[str]:
    known = questions.names()
    for name in options.questions:
        if name not in known:
            raise ValueError(f"Argument 'QUESTION' must be one of {list(known)}, not {name!r}.")
    if options.cuda and "cuda" not in known:
        raise ValueError("Argument '--cuda' must be left out: no question of this version needs a GPU.")
    asked = set(options.questions or _default_questions()) | (
        {"cuda", "cuda_speed"} & set(known) if options.cuda else set()
    )
    for name in asked:  # if a question cannot run here, raise its error before any question runs
        getattr(questions.get(name), "require", lambda: None)()
    return [name for name in known if name in asked]


def _stem(asked: list[str], session: Session) -> str:
    """Return the name of the result file, without its suffix.

    A run of all default questions is saved as `results`, or as `selection` if sizes are given.
    """
    if session.quick:
        return "quick"
    if set(asked) >= set(_default_questions()):
        return "selection" if session.sizes else "results"
    return "-".join(asked)


def _command(options: argparse.Namespace) -> str:
    words = ["python -m benchmarks", *options.questions]
    words += [f"--{name}" for name in ("quick", "cuda") if getattr(options, name)]
    words += ["--sizes", *options.sizes] if options.sizes else []
    return " ".join(words)


def _started(asked: list[str], session: Session, command: str) -> Result:
    settings = {
        "command": command,
        "questions": asked,
        "quick": session.quick,
        "sizes": list(session.sizes or ()) or None,
        "seed": session.seed,
        "rounds": session.rounds,
        "seconds_per_case": session.seconds,
    }
    return Result(machine.describe(), settings)


def _take_earlier(result: Result, path: Path) -> None:
    """Keep the answers of an earlier run if sources, machine and settings are the same.

    If the earlier run did not finish a question, the measured cells of this question are kept.
    """
    if not path.exists():
        return
    try:
        earlier = record.load(path)
    except ValueError as problem:
        print(f"not resumed: {problem}", file=sys.stderr)
        return
    differing = [name for name in result.machine if name != "date" and result.machine[name] != earlier.machine[name]]
    if result.settings != earlier.settings:
        differing.append("command")
    if result.machine["commit"].endswith("+"):
        differing.append("files with uncommitted changes")
    if differing:
        print(f"not resumed, because these may differ: {', '.join(differing)}", file=sys.stderr)
        return
    result.answers = earlier.answers
    result.machine, result.quietness = earlier.machine, earlier.quietness


def _run(result: Result, session: Session, path: Path) -> bool:
    """Make the measurements that are missing; return True if the run was interrupted."""
    start = machine.clock()
    done, before = {answer.name: answer for answer in result.answers}, result.quietness
    result.answers = []
    names = result.settings["questions"]
    for number, name in enumerate(names, 1):
        if name in done and done[name].finished:
            result.answers.append(done[name])
            continue
        question = questions.get(name)
        answer = Answer(name, question.TITLE, question.TEXT)
        result.answers.append(answer)
        asked = replace(session, earlier=done[name].known()) if name in done else session
        begun = saved = monotonic()
        progress = _Progress(f"[{number}/{len(names)}] {name}")
        try:
            for table, measurement in question.measure(asked):
                answer.add(table, measurement)
                progress.show(f"{measurement.row}, {measurement.column}: {tables.cell(measurement)}")
                if monotonic() - saved > SAVE_EVERY:
                    record.save(result, path)
                    saved = monotonic()
            answer.finished = True
        except KeyboardInterrupt:
            print("\ninterrupted; the finished measurements are saved, and --resume continues the run", file=sys.stderr)
            return True
        finally:
            progress.end()
            answer.seconds = monotonic() - begun
            now = machine.quietness(start, machine.clock())
            result.quietness = {name: max(share, before.get(name, 0.0)) for name, share in now.items()}
            record.save(result, path)
    return False


class _Progress:
    """The progress display of a question.

    On a terminal, one line is updated. Otherwise a line is printed every 30 seconds.
    """

    def __init__(self, head: str) -> None:
        self.head = head
        self.count = 0
        self.live = sys.stderr.isatty()
        self.begun = self.shown = monotonic()
        print(head, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def show(self, what: str) -> None:
        """Show the last measurement."""
        self.count += 1
        if self.live:
            line = f"{self.head} {self.count}: {what}"
            print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)
        elif monotonic() - self.shown > 30:
            self.shown = monotonic()
            print(f"{self.head} {self.count}: {what}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Show the number of measurements and the time, and begin a new line."""
        seconds = monotonic() - self.begun
        start = "\r\x1b[K" if self.live else ""
        print(f"{start}{self.head}: {self.count} measurements in {seconds:.0f} s", file=sys.stderr, flush=True)


def _publish(result: Result, path: Path) -> None:
    """Draw plots and write a page of results in the folder of the result file.

    If the result file belongs to `PAGE_PARTS`, docs/benchmarks.md is written instead of the page.
    """
    paths = _plot_paths(result, path)
    drawn = {}
    if find_spec("matplotlib") is None:
        print('no plots: matplotlib is not installed (pip install -e ".[benchmarks]")', file=sys.stderr)
    else:
        for answer in result.answers:
            for table, measurements in answer.tables.values():
                plot = paths[answer.name, table.key]
                if plots.draw(table, measurements, plot):
                    drawn[answer.name, table.key] = plot
    for old in path.parent.glob(f"{path.stem}_*.svg"):
        if old not in drawn.values():  # an earlier run drew this plot
            old.unlink()
    if path.resolve().parent == RESULTS and path.name in PAGE_PARTS:
        target = PAGE
        write_docs_page(RESULTS, PAGE)
    else:
        target = path.with_suffix(".md")
        page.write([(result, drawn)], target)
    where = f"{path.parent.name}/, the page as {target.parent.name}/{target.name}"
    print(f"saved {path.name} and {len(drawn)} plots in {where}")


def write_docs_page(folder: Path, target: Path) -> None:
    """Write the page of the docs from saved results and plots.

    A result file is left out if the files before it answer all its questions.
    """
    parts: list[page.Part] = []
    answered: set[str] = set()
    for path in (folder / name for name in PAGE_PARTS):
        result = record.load(path) if path.exists() else None
        if result is not None and not answered.issuperset(result.settings["questions"]):
            answered.update(result.settings["questions"])
            parts.append((result, {key: plot for key, plot in _plot_paths(result, path).items() if plot.exists()}))
    page.write(parts, target)


def _plot_paths(result: Result, path: Path) -> dict[tuple[str, str], Path]:
    """Return a path for the plot of each table, also of a table that is not plotted."""
    return {
        (answer.name, key): path.with_name(f"{path.stem}_{answer.name}_{key}.svg")
        for answer in result.answers
        for key in answer.tables
    }

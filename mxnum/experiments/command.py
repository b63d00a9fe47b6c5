"""The command line of `mxnum.experiments`: run studies, continue them, and write their tables."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.experiments import cost, critical, interventions, report, studies, study_file
from mxnum.experiments.conduct import conduct
from mxnum.experiments.config import Experiment, uniform_precision


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(prog="python -m mxnum.experiments", description=__doc__)
    commands = main.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the studies, their arms and questions")
    for name, text in (
        ("quick", "four arms, six seeds each: minutes"),
        ("run", "any study"),
        ("sweep", "a study of your own, from a TOML file"),
        ("report", "tables alone"),
    ):
        command = commands.add_parser(name, help=text)
        if name == "quick":
            command.set_defaults(study="quick")
        elif name == "sweep":
            command.add_argument("file", type=Path)
        else:
            command.add_argument("study", choices=sorted(studies.STUDIES))
        own = name == "sweep"  # its folder has the name of the study
        command.add_argument("--runs", type=Path, help=f"folder of the runs (default: {'NAME/' * own}runs)")
        usual = "RUNS/results; without --runs, NAME" if own else "RUNS/results"
        command.add_argument("--results", type=Path, help=f"folder of the tables (default: {usual})")
    for name, stack in (("quick", 6), ("run", 6), ("sweep", study_file.STACK)):
        command = commands.choices[name]
        command.add_argument("--arms", help="only these arms, separated by semicolons")
        command.add_argument("--seeds", type=int, help="how many seeds")
        command.add_argument("--fresh", action="store_true", help="draw new seeds instead of the recorded ones")
        command.add_argument("--processes", type=int, help="default: one for each core")
        command.add_argument("--stack", type=int, default=stack, help="seeds that one process trains together")
        command.add_argument("--nice", type=int, default=0, help="lower the priority of the processes by this")
        command.add_argument("--scheduler", metavar="ADDRESS", help="run on this dask.distributed cluster")
        command.add_argument("--machine", default="cpu", help="cpu, or cuda: on a GPU, by CuPy")
        command.add_argument("--full", action="store_true", help="go on after a divergence, up to the horizon")
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="change a number of every arm, as in steps=200",
        )
    limits = commands.add_parser("sgd-limits", help="critical rates of SGD under synthetic zeta (row B2)")
    limits.add_argument("--seeds", type=int, default=4)
    limits.add_argument("--results", type=Path, default=Path("runs/results"))
    costs = commands.add_parser("cost", help="what quantization costs in a training step, as ratios")
    costs.add_argument("--width", type=int, default=256)
    costs.add_argument("--batch", type=int, default=256)
    costs.add_argument("--stack", type=int, default=1, help="seeds that are trained together")
    interventions.add_arguments(commands.add_parser("interventions", help="from a checkpoint before the blow-up"))
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 1 if a run failed."""
    options = parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)  # else the worker processes would go on alone
    try:
        if options.command == "list":
            return _list()
        if options.command == "cost":
            return _cost(options)
        if options.command == "sgd-limits":
            seeds = tuple(range(studies.FIRST_SEED, studies.FIRST_SEED + options.seeds))
            critical.write_sgd_limits(options.results / "sgd-limits.json", seeds)
            return 0
        if options.command == "interventions":
            return interventions.command(options)
        study = study_file.read(options.file) if options.command == "sweep" else studies.get(options.study)
        runs, results = _places(study, options)
        if options.command == "report":
            report.write(study, runs, results)
            return 0
        return _run(study, options, runs, results)
    except KeyboardInterrupt:
        print("\nInterrupted; the same command continues.")
        return 130
    except (ValueError, TypeError, ModuleNotFoundError, OSError, RuntimeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _cost(options: argparse.Namespace) -> int:
    for name in ("mxfp8_e4m3", "mxfp4_e2m1"):
        experiment = Experiment(width=options.width, batch=options.batch, precision=uniform_precision(name))
        found = cost.measure(experiment, runs=options.stack)
        share, bf16 = found["quantization"], found["bfloat16 step"]
        print(f"{name}: step {found['step']:.2f} x its products ({bf16:.2f} in bfloat16), quantization {share:.1%}")
    return 0


def _list() -> int:
    for study in studies.STUDIES.values():
        print(f"{study.name} ({len(study.arms)} arms, {study.seeds} seeds): {study.question}")
        for arm in study.arms:
            print(f"    {arm}")
    return 0


def _places(study: studies.Study, options: argparse.Namespace) -> tuple[Path, Path]:
    """The folders of the runs and of the tables."""
    if options.command == "sweep" and options.runs is None:
        runs, results = study_file.places(study)
    else:
        runs = options.runs or Path("runs")
        results = runs / "results"
    return runs, options.results or results


def _run(study: studies.Study, options: argparse.Namespace, runs: Path, results: Path) -> int:
    first = secrets.randbelow(10**6) * 100 if options.fresh else studies.FIRST_SEED
    root = runs / f"seeds-{first}" if options.fresh else runs
    outcome = conduct(
        study,
        root,
        arms=[name.strip() for name in options.arms.split(";")] if options.arms else None,
        seeds=options.seeds,
        first_seed=first,
        changes=dict(_change(text) for text in options.set),
        processes=options.processes,
        stack=options.stack,
        niceness=options.nice,
        scheduler=options.scheduler,
        stop_when_diverged=not options.full,
        machine=options.machine,
    )
    if outcome.table["arms"]:
        report.store(outcome.table, results)
        print(f"{outcome.seconds:.0f} s. Runs in {root}, tables in {results}.")
    for failure in outcome.failed:
        print(f"Failed: {failure}; the same command tries again.")
    return 1 if outcome.failed else 0


def _change(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    kinds = {f.name: f.type for f in fields(Experiment) if f.type in ("int", "float")}
    errors.choose("set", name, tuple(kinds))
    try:
        return name, int(value) if kinds[name] == "int" else float(value)
    except ValueError:
        raise ValueError(f"Argument 'set' must give a number for {name!r}, not {value!r}.") from None

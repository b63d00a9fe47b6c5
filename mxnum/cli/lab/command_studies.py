"""The commands ``mxnum lab list``, ``run``, ``report`` and others, for the built-in studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mxnum.cli import options

Study = Annotated[str, typer.Argument(metavar="STUDY", help="A study of the MLP; `mxnum lab list` shows all studies.")]
Runs = Annotated[Path, typer.Option(help="Folder of the runs.")]
Results = Annotated[Path | None, typer.Option(help="Folder of the tables (default: RUNS/results).")]


def list_studies(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="Show the arms of this study.")] = None,
) -> None:
    """List the built-in studies with their questions, or the arms of one study.

    The commands `run`, `report` and `sweep` work with studies of the MLP. The command
    `language-model` runs studies of language models.
    """
    from mxnum import errors
    from mxnum.lab.studies.studies import SHIPPED, outline

    if study is not None:
        errors.choose("study", study, [name for shipped in SHIPPED.values() for name in shipped])
    for model, shipped in SHIPPED.items():
        if study is None or study in shipped:
            print(f"{model.replace('_', ' ')}:")
        for name, each in shipped.items():
            if study in (None, name):
                question, seeds, arms = outline(each)
                print(f"  {name} ({len(arms)} arms, {seeds} seeds): {question}")
                print("".join(f"    {arm}\n" for arm in arms if study), end="")


def run(
    study: Study,
    runs: Runs = Path("runs"),
    results: Results = None,
    arms: options.Arms = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Draw new seeds instead of the study's seeds.")] = False,
    first_seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Continue the runs in the folder RUNS/seeds-N, which --fresh made."),
    ] = None,
    processes: options.Processes = None,
    stack: Annotated[int, typer.Option(min=1, help="Number of seeds that one process trains together.")] = 6,
    nice: options.Nice = 0,
    scheduler: options.Scheduler = None,
    machine: options.Machine = "cpu",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of every arm, for example steps=200."),
    ] = None,
) -> None:
    """Run or continue a study. `run quick` trains 3 arms with 16 seeds each within minutes.

    After Ctrl-C or a failure, the same command continues the study, because it does not repeat
    stored runs. To continue runs that --fresh began, use --first-seed, because --fresh would draw
    new seeds. The exit status is 0 if all runs are complete, 1 if some runs failed, and 130 after
    an interruption.
    """
    import secrets

    from mxnum import errors
    from mxnum.cli.lab.watching import continuable
    from mxnum.cli.main import DIFFERS
    from mxnum.lab.studies import report as reports
    from mxnum.lab.studies import studies
    from mxnum.lab.studies.run_study import run_study

    chosen = studies.get(study)
    if fresh and first_seed is not None:
        raise errors.exclusive("fresh", "first_seed")
    recorded = chosen.first_seed if first_seed is None else first_seed
    first = secrets.randbelow(10**6) * 100 if fresh else recorded
    root = runs if first == chosen.first_seed else runs / f"seeds-{first}"
    folder = results or root / "results"
    again = f"the same command with --first-seed {first} instead of --fresh" if fresh else "the same command"
    with continuable(again):
        outcome = run_study(
            chosen, root, arms=options.arm_names(arms), seeds=seeds,
            first_seed=first, changes=_changes(changes or []), processes=processes, stack=stack, niceness=nice,
            scheduler=scheduler, machine=machine,
        )  # fmt: skip
    if outcome.table["arms"]:
        reports.store(chosen, outcome.table, folder, say=print)
        print(f"{outcome.seconds:.0f} s. Runs in {root}, tables in {folder}.")
    for failure in outcome.failed:
        print(f"Failed: {failure}; run {again} to try again.")
    if outcome.failed:
        raise typer.Exit(DIFFERS)


def report(
    study: Study,
    runs: Runs = Path("runs"),
    results: Results = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Include unfinished runs, each up to its last checkpoint.")
    ] = False,
    add: Annotated[
        bool,
        typer.Option(
            "--add", help="Keep runs that are in the stored table but not in RUNS, such as runs of another machine."
        ),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds of each arm, from the lowest on (default: set by the study)."),
    ] = None,
) -> None:
    """Write the result tables of a study from its stored runs."""
    from dataclasses import replace

    from mxnum.lab.studies import report as reports
    from mxnum.lab.studies import studies

    chosen = studies.get(study)
    chosen = chosen if seeds is None else replace(chosen, seeds=seeds)
    reports.write(chosen, runs, results or runs / "results", unfinished=unfinished, add=add)


def interventions(
    study: Annotated[str, typer.Option(help="The study that contains the arm --base.")] = "confirm",
    base: Annotated[str, typer.Option(help="The arm whose runs are changed.")] = "E2M1",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 8,
    lead: Annotated[int, typer.Option(min=1, help="Intervene this many steps before the divergence.")] = 300,
    watch: Annotated[int, typer.Option(min=1, help="Train this many steps after the intervention.")] = 1500,
    perturbed: Annotated[int, typer.Option(min=1, help="Number of randomly perturbed control runs for each seed.")] = 4,
    first_seed: Annotated[int | None, typer.Option(help="The first seed (default: the study's first seed).")] = None,
    processes: options.Processes = None,
    nice: options.Nice = 0,
    machine: options.Machine = "cpu",
    runs: Runs = Path("runs"),
    results: Results = None,
) -> None:
    """Compare the outcomes of interventions, which change a run shortly before it diverges.

    The command uses the runs that `mxnum lab run STUDY` stored in the same folder, and first trains
    the runs that are missing. After Ctrl-C or a failure, the same command continues the work.
    """
    from mxnum import errors
    from mxnum.cli.lab.watching import continuable
    from mxnum.lab import storage
    from mxnum.lab.studies import studies
    from mxnum.lab.studies.interventions import Plan, gather, summary

    chosen = studies.get(study)
    arm = errors.choose("base", base, tuple(chosen.arms))
    folder = results or runs / "results"
    stored = folder / "interventions.json"
    there = storage.read_json(stored) if stored.exists() else None
    if there is not None and (there["study"], there["base"]) != (study, base):
        raise ValueError(
            f"{str(stored)!r} has results of the arm {there['base']} in the study {there['study']}; give another "
            "folder (--results)."
        )
    with continuable():
        table = gather(
            chosen, arm, Plan(lead, watch, perturbed), runs, seeds=seeds, first_seed=first_seed, machine=machine,
            processes=processes, niceness=nice,
        )  # fmt: skip
    text = summary(table)
    storage.write_json(stored, table)
    storage.write_text(folder / "interventions.md", text + "\n")
    print(text)


def sgd_limits(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 4,
    results: Annotated[Path, typer.Option(help="Folder of the table.")] = Path("runs/results"),
) -> None:
    """Measure the critical learning rates of SGD under synthetic gradient errors (claim B2)."""
    from mxnum.lab.studies.critical import write_sgd_limits
    from mxnum.lab.studies.study import FIRST_SEED

    write_sgd_limits(results / "sgd-limits.json", tuple(range(FIRST_SEED, FIRST_SEED + seeds)))


def sharpness(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 4,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 67771976,
    results: Annotated[Path, typer.Option(help="Folder of the table.")] = Path("runs/results"),
) -> None:
    """Train MLPs of width 32, and measure their preconditioned sharpness every 100 steps."""
    from mxnum.lab import storage
    from mxnum.lab.mlp.sharpness import follow, followed

    storage.write_json(results / "sharpness.json", follow(followed(), tuple(range(first, first + seeds))))


def _changes(texts: list[str]) -> dict[str, Any]:
    """Return the settings of ``--set``; raise ValueError if a setting gets two values."""
    changes: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if changes.setdefault(name, _number(value)) != _number(value):
            raise ValueError(f"Option --set must give {name!r} once, not as {changes[name]} and {_number(value)}.")
    return changes


def _number(text: str) -> int | float | str:
    """Return the int or the float that a text represents, or the text if it is not a number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

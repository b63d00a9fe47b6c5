"""The list of commands.

A command is a function in a module of its own, ``command_<name>.py``, whose top level imports typer
and no large package. A call loads only the module of its own command; help loads the modules of all
commands. Both should start in a third of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import typer.core

import mxnum
from mxnum.cli.main import INTERRUPTED
from mxnum.cli.naming import name_of, reworded

#: The commands, in the order of the help.
COMMANDS = (
    "formats", "quantize", "inspect", "explore", "explain", "emit", "prove", "vectors", "answer", "verify",
    "conformance", "selftest", "reproduce", "lab",
)  # fmt: skip
#: The commands of research, after ``mxnum lab``, with the modules of `mxnum.cli.lab` that define
#: them.
LAB = {
    "list": "studies", "run": "studies", "report": "studies", "sweep": "sweep", "language-model": "sweep",
    "interventions": "studies", "sgd-limits": "studies", "sharpness": "studies", "ledger": "ledger",
    "fit": "fit", "project": "project",
}  # fmt: skip
#: The commands that take negative numbers, which would otherwise be read as options.
_TAKES_NUMBERS = ("explain",)


class Commands(typer.core.TyperGroup):  # type: ignore[misc]
    """The group of all commands; Ctrl-C ends a command with status 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


class Command(typer.core.TyperCommand):  # type: ignore[misc]
    """A command whose errors name options as they are typed.

    An option given twice and an empty path raise ValueError.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed; raise ValueError for an option given twice and for an empty path."""
        values, _, typed = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in typed:
            is_single = parameter.param_type_name == "option" and not (parameter.multiple or parameter.is_flag)
            if is_single and typed.count(parameter) > 1:
                raise ValueError(f"Option {name_of(parameter)} must be given once, not {typed.count(parameter)} times.")
        rest: list[str] = super().parse_args(ctx, args)
        for parameter in typed:
            if values[parameter.name] == "" and isinstance(ctx.params.get(parameter.name), Path):
                is_option = parameter.param_type_name == "option"
                name = f"Option {name_of(parameter)}" if is_option else parameter.metavar or parameter.name.upper()
                raise ValueError(f"{name} must be the path of a file or a folder, not ''.")
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; name options, not arguments, in its errors."""
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError) as problem:
            message = reworded(str(problem), ctx)
            if message == str(problem):
                raise
            raise ValueError(message) from problem


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mxnum {mxnum.__version__}")
        raise typer.Exit()


def _common(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Show the version if `--version` is given."""


def app_of(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line for those arguments.

    It has the command that they name, or all commands if they name none.
    """
    app = _group("mxnum", "Block-scaled number formats, bit for bit: OCP MX, NVFP4 and float scales.")
    app.callback()(_common)
    for name in _named(arguments[:1], COMMANDS):
        if name == "lab":
            app.add_typer(_lab(arguments[1:2]), name=name)
            continue
        folder = "mxnum.cli.lab" if name == "reproduce" else "mxnum.cli"
        _add(app, name, f"{folder}.command_{name}")
    return app


def _group(name: str, text: str) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=Commands,
        help=text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _lab(arguments: Sequence[str]) -> typer.Typer:
    """Return the commands of research: the command that `arguments` name, or all."""
    lab = _group(
        "lab", "Research on training in these formats: run studies, and compute what they say.\n\n"
        "A run stopped by Ctrl-C continues with the same command. "
        "See a runaway in three minutes: `mxnum lab run quick`.\n\n"
        "Examples: `mxnum lab list`; `mxnum lab run small --seeds 4`; `mxnum lab sweep study.toml`.",
    )  # fmt: skip
    for name in _named(arguments, tuple(LAB)):
        _add(lab, name, f"mxnum.cli.lab.command_{LAB[name]}")
    return lab


def _named(arguments: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return the command that `arguments` name, or all known ones if they name none."""
    named = tuple(arguments)
    return named if set(named) & set(known) else known


def _add(group: typer.Typer, name: str, module: str) -> None:
    function = getattr(import_module(module), name.replace("-", "_").replace("list", "list_studies"))
    group.command(name, cls=Command, context_settings={"ignore_unknown_options": name in _TAKES_NUMBERS})(function)

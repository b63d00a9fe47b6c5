"""Define the list of commands.

A command is a function in a module of its own, ``command_<name>.py``. At its top level, this module
imports typer but no large package. So commands and `--help` start within a third of a second.
Calling a command loads only the command's module. `--help` loads the modules of all commands.
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

#: The commands, in the order in which `--help` lists them.
COMMANDS = (
    "formats", "quantize", "inspect", "explore", "explain", "emit", "prove", "vectors", "answer", "verify",
    "conformance", "selftest", "unit", "reproduce", "lab",
)  # fmt: skip
#: The commands of ``mxnum lab``, with the modules of `mxnum.cli.lab` that define them.
LAB = {
    "list": "studies", "run": "studies", "report": "studies", "sweep": "sweep", "language-model": "sweep",
    "interventions": "studies", "sgd-limits": "studies", "sharpness": "studies", "ledger": "ledger",
    "fit": "fit", "project": "project",
}  # fmt: skip
#: The commands of the group ``mxnum unit``.
UNIT = ("probe", "identify")
#: The commands that accept negative numbers. Other commands read an argument such as -1 as options.
_TAKES_NUMBERS = ("explain",)


class Commands(typer.core.TyperGroup):  # type: ignore[misc]
    """A group of commands. Ctrl-C ends a command with exit status 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user typed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


class Command(typer.core.TyperCommand):  # type: ignore[misc]
    """A command whose error messages name options as users type them.

    An option given twice, or an empty path, raises ValueError.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; raise ValueError for an option given twice or an empty path."""
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
        """Run the command, and replace names of Python arguments in its errors by option names."""
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
    """Return a typer application that has only the command named in `arguments`.

    If `arguments` contain no command name, the application has all commands.
    """
    app = _group("mxnum", "Block-scaled number formats, bit for bit: OCP MX, NVFP4 and float scales.")
    app.callback()(_common)
    for name in _named(arguments[:1], COMMANDS):
        if name == "lab":
            app.add_typer(_lab(arguments[1:2]), name=name)
            continue
        if name == "unit":
            app.add_typer(_unit(arguments[1:2]), name=name)
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
    """Return the group ``mxnum lab`` with the command named in `arguments`, or all commands."""
    lab = _group(
        "lab", "Research on training in MX formats: run studies and evaluate their results.\n\n"
        "If you stop a run with Ctrl-C, the same command continues it. "
        "To see training diverge within three minutes, run `mxnum lab run quick`.\n\n"
        "Examples: `mxnum lab list`; `mxnum lab run small --seeds 4`; `mxnum lab sweep study.toml`.",
    )  # fmt: skip
    for name in _named(arguments, tuple(LAB)):
        _add(lab, name, f"mxnum.cli.lab.command_{LAB[name]}")
    return lab


def _unit(arguments: Sequence[str]) -> typer.Typer:
    """Return the group ``mxnum unit`` with the command named in `arguments`, or all commands."""
    unit = _group(
        "unit", "Find out how a matrix unit adds.\n\n"
        "Examples: `mxnum unit probe --operands e4m3 -k 32 -o cases.txt`; `mxnum unit identify answers.txt`.",
    )  # fmt: skip
    for name in _named(arguments, UNIT):
        _add(unit, name, "mxnum.cli.command_unit")
    return unit


def _named(arguments: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return `arguments` if they contain a known command, and all known commands otherwise."""
    named = tuple(arguments)
    return named if set(named) & set(known) else known


def _add(group: typer.Typer, name: str, module: str) -> None:
    function = getattr(import_module(module), name.replace("-", "_").replace("list", "list_studies"))
    group.command(name, cls=Command, context_settings={"ignore_unknown_options": name in _TAKES_NUMBERS})(function)

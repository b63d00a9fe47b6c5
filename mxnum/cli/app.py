"""The list of commands.

A command is a function in a module of its own, ``command_<name>.py``, whose top level imports typer and nothing heavy:
every module is loaded for each call, and a call should start in a third of a second.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
import typer.core

import mxnum
from mxnum.cli import (
    command_explain,
    command_explore,
    command_formats,
    command_inspect,
    command_quantize,
    command_reproduce,
    command_sweep,
    command_vectors,
    command_verify,
)
from mxnum.cli.main import INTERRUPTED


class Commands(typer.core.TyperGroup):  # type: ignore[misc]
    """The commands; a reader that has seen enough (``| head``) ends them without an error, Ctrl-C with status 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run one."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # what is left in the buffer has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit() from None
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        return result


app = typer.Typer(
    name="mxnum",
    cls=Commands,
    help="Bit-accurate OCP Microscaling (MX) number formats.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mxnum {mxnum.__version__}")
        raise typer.Exit()


def _common(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it."),
) -> None:
    """Bit-accurate OCP Microscaling (MX) number formats."""


app.callback()(_common)
app.command("formats")(command_formats.formats)
app.command("quantize")(command_quantize.quantize)
app.command("inspect")(command_inspect.inspect)
app.command("explore")(command_explore.explore)
# Negative numbers are numbers, not options.
app.command("explain", context_settings={"ignore_unknown_options": True})(command_explain.explain)
app.command("vectors")(command_vectors.vectors)
app.command("verify")(command_verify.verify)
app.command("reproduce")(command_reproduce.reproduce)
app.command("sweep")(command_sweep.sweep)

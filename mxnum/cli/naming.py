"""Replace argument names by option names in error messages of Python functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: For each Python argument whose option has another name: the name of the option.
_OTHER = {
    "block": "block_size", "asymmetric": "offset", "ports": "port", "parameters": "parameter", "name": "tensor"
}  # fmt: skip


def option(context: Any, argument: str) -> str | None:
    """Return the option, such as ``--scale-rule``, that sets an argument; None if there is none."""
    found = _parameter(context, argument)
    return name_of(found) if found is not None else None


def given(context: Any, argument: str) -> str | None:
    """Return the option that sets an argument, or None if it is not on the command line."""
    found = _parameter(context, argument)
    is_given = found is not None and context.get_parameter_source(found.name).name == "COMMANDLINE"
    return name_of(found) if is_given else None


def name_of(parameter: Any) -> str:
    """Return the name of an option as users type it."""
    return _typed(parameter)[0]


def asked(context: Any, arguments: Iterable[str]) -> dict[str, Any]:
    """Return the values of the arguments whose options are on the command line."""
    return {name: context.params[_OTHER.get(name, name)] for name in arguments if given(context, name)}


def reworded(message: str, context: Any) -> str:
    """Return a Python function's error message with argument names replaced by option names.

    If the message is about the argument ``x``, the name of the input file takes its place.
    """
    subject = re.match(r"Argument ('\w+'(?: or '\w+')*)", message)
    if subject is None:
        return message
    names = re.findall(r"\w+", subject[1].replace(" or ", " "))
    options = [known for name in names if (known := option(context, name))]
    file = context.params.get("source") if names == ["x"] else None
    if not options and not isinstance(file, Path):
        return message
    start = f"Option {' or '.join(options)}" if options else f"File {str(file)!r}"
    rest = re.sub(r"\b(\w+)='(\w+)'", lambda m: _said(context, m[1], m[0], f" {m[2]}"), message[subject.end() :])
    return start + re.sub(r"(?<=together with )'(\w+)'", lambda m: _said(context, m[1], m[0]), rest)


def _said(context: Any, argument: str, otherwise: str, value: str = "") -> str:
    known = option(context, argument)
    return f"{known}{value}" if known else otherwise


def _parameter(context: Any, argument: str) -> Any:
    for name in (_OTHER.get(argument, argument), argument):
        for parameter in context.command.params:
            names = {parameter.name, *(typed[2:].replace("-", "_") for typed in _typed(parameter))}
            if parameter.param_type_name == "option" and name in names:
                return parameter
    return None


def _typed(parameter: Any) -> list[str]:
    return [name for name in parameter.opts if name.startswith("--")]

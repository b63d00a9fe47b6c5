"""Print the public names of mxnum with their signatures.

With `python -m tests.public_names --record`, write the list to docs/reference/public-names.txt
instead. The command needs torch and hypothesis.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mxnum

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs/reference/public-names.txt"
#: The public modules; all other modules are private, even without an underscore.
MODULES = [
    *("mxnum", "mxnum.formats", "mxnum.units", "mxnum.stacks", "mxnum.analysis", "mxnum.analysis.synthetic"),
    *("mxnum.plots", "mxnum.recipe", "mxnum.conformance", "mxnum.conformance.strategies", "mxnum.reference"),
    "mxnum.units.identify",
    *("mxnum.emit", "mxnum.torch"),
    *(
        f"mxnum.interop.{m.name}"
        for m in pkgutil.iter_modules([str(ROOT / "mxnum" / "interop")])
        if not m.name.startswith("_")
    ),
    *("mxnum.lab.mlp", "mxnum.lab.language_model", "mxnum.lab.theory", "mxnum.lab.theory.figures", "mxnum.lab.claims"),
]
#: The optional packages that modules need, by module.
NEEDS = {"mxnum.conformance.strategies": "hypothesis", "mxnum.torch": "torch", "mxnum.lab.language_model": "torch"}


def public_names(module: ModuleType) -> list[str]:
    """Return the names in `__all__`; without `__all__`, the public callables of the module."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]


def lines_of(module_name: str) -> list[str]:
    """Return a line with the signature of each public name of a module and of each class member."""
    module = importlib.import_module(module_name)
    found: list[str] = []
    for name in sorted(public_names(module)):
        value, first = getattr(module, name), f"mxnum.{name}"
        if module_name != "mxnum" and getattr(mxnum, name, None) is value:
            found.append(f"{module_name}.{name} is {first}")
        else:
            found += [f"{module_name}.{line}" for line in _described(name, value)]
    return found


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"{name}: module"
    elif not inspect.isclass(value):
        yield f"{name}{_signature(value)}" if callable(value) else f"{name}: {type(value).__name__}"
    elif issubclass(value, enum.Enum):
        yield f"{name}: {' '.join(str(member.value) for member in value)}"
    else:
        home = value.__module__.partition(".")[0]
        yield f"{name}{_signature(value) if home == 'mxnum' else ''}"
        yield from (f"{name}.{line}" for line in _members(value))


def _members(cls: type) -> list[str]:
    """Return the public members of a class, except members inherited from outside mxnum."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "mxnum":
            members |= vars(base)
    fields = set(getattr(cls, "__dataclass_fields__", {})) | set(getattr(cls, "_fields", ()))
    found = []
    for name, member in sorted(members.items()):
        if name.startswith("_") or name in fields:  # fields are in the constructor's signature
            continue
        if isinstance(member, property | functools.cached_property):
            found.append(name)
        elif isinstance(member, classmethod | staticmethod) or callable(member):
            found.append(f"{name}{_signature(getattr(cls, name))}")
    return found


def _signature(of: Any) -> str:
    """Return the text of a signature without its annotations, which mypy checks."""
    try:
        signature = inspect.signature(of)
    except ValueError:  # some functions written in C have no signature
        return "(...)"
    bare = [_bare(parameter) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


class _Elided:
    """A placeholder for a default value that is an object, because an object's text may change."""

    def __repr__(self) -> str:
        return "..."


def _bare(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if isinstance(default, enum.Enum):
        default = default.value
    elif default is not inspect.Parameter.empty and not isinstance(default, bool | int | float | str | None):
        default = _Elided()
    return parameter.replace(annotation=inspect.Parameter.empty, default=default)


if __name__ == "__main__":
    text = "\n".join(line for module in MODULES for line in lines_of(module)) + "\n"
    if sys.argv[1:] == ["--record"]:
        LIST.write_text(text)
    else:
        sys.stdout.write(text)

"""Check the fields of configurations of MLPs and language models against their annotations."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mxnum import errors


def check_fields(configuration: Any, from_zero: tuple[str, ...] = ()) -> None:
    """Check every field of a frozen dataclass, and convert values to the field's type.

    Integers must be at least 1; the fields named in `from_zero` may be 0.
    """
    for name, hint in _hints(type(configuration)).items():
        value = getattr(configuration, name)
        if isinstance(hint, UnionType):
            if value is None:
                continue
            hint = get_args(hint)[0]
        object.__setattr__(configuration, name, _checked(name, value, hint, 0 if name in from_zero else 1))


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _checked(name: str, value: Any, hint: Any, least: int) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return errors.choose(name, value, arguments)
    if origin is tuple:
        fits = isinstance(value, list | tuple) and len(value) == len(arguments)
        errors.require_type(fits, name, f"a list of {len(arguments)} numbers", value)
        return tuple(_checked(name, each, kind, least) for each, kind in zip(value, arguments, strict=True))
    if hint is int:
        return errors.integer(name, value, least, 1 << 40)
    if hint is float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        errors.require_type(is_number, name, "a number", value)
        return float(value)
    if hint in (bool, str):
        errors.require_type(isinstance(value, hint), name, "True or False" if hint is bool else "text", value)
        return value
    if isinstance(value, hint):
        return value
    if hasattr(hint, "of"):
        return hint.of(value)
    errors.require_type(isinstance(value, Mapping), name, "a table", value)
    return hint(**errors.known_fields(dict(value), hint, name))

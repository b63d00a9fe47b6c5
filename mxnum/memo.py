"""Remembering what a function of plain arguments returned."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

Result = TypeVar("Result")


def memo(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, its results kept for arguments of the same types and values; it is called by position.

    Arguments without a hash are allowed, and so are arguments that the function refuses: both are looked at anew.
    """
    remembered = lru_cache(maxsize=4096, typed=True)(function)

    @wraps(function)
    def call(*arguments: Any) -> Result:
        try:
            return remembered(*arguments)
        except TypeError:
            pass
        return function(*arguments)

    return call

"""Check arguments, and write the error messages that several modules share.

An error is one sentence that says what was wrong and what is accepted: "Argument 'x' must be ...,
not ...".
"""

from __future__ import annotations

import difflib
import importlib
import operator
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, cast

Member = TypeVar("Member", bound=StrEnum)

#: The number of accepted strings that an error lists.
_LONGEST_LIST = 40


def require(condition: bool, argument: str, accepted: str, got: object) -> None:
    """Raise ValueError unless `condition` is True."""
    if not condition:
        raise ValueError(f"Argument {argument!r} must be {accepted}, not {shown(got)}.")


def shown(got: object) -> str:
    """Return the `repr` of a value; for a numpy number, "1.5" instead of "np.float64(1.5)"."""
    return repr(got.item() if type(got).__module__ == "numpy" and hasattr(got, "item") and not got.shape else got)  # type: ignore[attr-defined]


def require_type(condition: bool, argument: str, accepted: str, got: object) -> None:
    """Raise TypeError unless `condition` is True."""
    if not condition:
        raise TypeError(f"Argument {argument!r} must be {accepted}, not {got!r}.")


def require_dtype(argument: str, dtype: Any, wanted: Any, of: str = "") -> None:
    """Raise TypeError unless an array has the numpy dtype `wanted`.

    In the error message, `of` says what the array holds, for example " of scale codes".
    """
    if dtype != wanted:
        order, got = (" in native byte order", dtype.str) if dtype.name == wanted.name else ("", dtype.name)
        raise TypeError(f"Argument {argument!r} must be a {wanted} array{order}{of}, not {got!r}.")


def choose(argument: str, value: Any, accepted: Sequence[str]) -> str:
    """Return `value` if it is one of the accepted strings.

    For any other value, raise an error that suggests the likeliest string and lists the accepted
    strings. The error shows only the beginning of a long list, such as the names of all tensors of
    a model.
    """
    if isinstance(value, str) and value in accepted:
        return str(value)
    listed = str([str(a) for a in accepted[:_LONGEST_LIST]])
    listed += f" and {len(accepted) - _LONGEST_LIST} more" if len(accepted) > _LONGEST_LIST else ""
    message = f"Argument {argument!r} must be one of {listed}, not {value!r}"
    raise (ValueError if isinstance(value, str) else TypeError)(message + _guess(value, accepted))


def choose_name(where: str, name: Any, accepted: Sequence[str]) -> str:
    """Return `name` if it is accepted as a keyword or as a key; raise ValueError otherwise.

    The error message says that `name` was found in `where`, for example in "an operand".
    """
    if name in accepted:
        return str(name)
    raise ValueError(f"Name {name!r} in {where} must be one of {list(accepted)}{_guess(name, accepted)}")


def known_fields(table: dict[str, Any], kind: Any, where: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return `table`; raise ValueError if a key is neither a field of `kind` nor in `also`.

    `kind` is a dataclass.
    """
    for name in table:
        choose_name(where, name, [*(f.name for f in fields(kind)), *also])
    return table


_DIGITS = "0123456789"


def _guess(value: Any, accepted: Sequence[str]) -> str:
    """Return the end of an error message: "; did you mean 'e4m3'?", or "." without a suggestion.

    The suggestion is the accepted string that is spelled most like `value`. If no accepted string
    is similar, the suggestion is an accepted string with which `value` ends, after an underscore:
    "e4m3" for "float8_e4m3". A type that differs from `value` only in its width is not suggested,
    because a user who writes "float64" does not mean "float16".
    """
    text = value if isinstance(value, str) else ""
    close = difflib.get_close_matches(text, accepted, n=1) or [a for a in accepted if text.endswith(f"_{a}")]
    if close and text.rstrip(_DIGITS).isalpha() and text.rstrip(_DIGITS) == close[0].rstrip(_DIGITS):
        close = []
    return f"; did you mean {str(close[0])!r}?" if close else "."


def choose_member(argument: str, value: Any, members: Iterable[Member]) -> Member:
    """Return the enum member whose string equals `value`; raise an error if there is none."""
    by_name: dict[str, Member] = _by_name(cast(Hashable, members))
    member = by_name.get(value) if isinstance(value, str) else None
    return member if member is not None else by_name[choose(argument, value, tuple(by_name))]


@cache
def _by_name(members: Any) -> dict[str, Any]:
    return {str(member.value): member for member in members}


def ambiguous(argument: str, value: str, accepted: Iterable[str]) -> ValueError:
    """Return the ValueError for a name that may mean several of the accepted names."""
    return ValueError(
        f"Argument {argument!r} must be {joined(map(repr, accepted))}, not {value!r}, which may mean either."
    )


def integer(argument: str, value: Any, low: int, high: int) -> int:
    """Return `value` as a Python int; raise an error unless it lies from `low` to `high`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"Argument {argument!r} must be an integer, not {value!r}.") from None
    require(low <= number <= high, argument, f"between {low} and {high}", number)
    return number


def positive_integer(argument: str, value: Any) -> int:
    """Return `value` as a Python int; raise an error unless it is at least 1."""
    number = integer(argument, value, -(1 << 63), (1 << 63) - 1)
    require(number >= 1, argument, "at least 1", number)
    return number


def block_lengths(argument: str, values: Any) -> tuple[int, ...]:
    """Return block lengths as a tuple; raise an error unless all are positive integers."""
    require_type(isinstance(values, Iterable), argument, "a tuple of block lengths", values)
    return tuple(positive_integer(argument, value) for value in values)


def fraction(argument: str, value: Any) -> Fraction:
    """Return `value` as an exact fraction.

    `value` may be a Python or numpy number, or a string such as "3/4".
    """
    try:
        return Fraction(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, ArithmeticError) as problem:
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        raise kind(
            f"Argument {argument!r} must be a finite number or a string like '3/4', not {shown(value)}."
        ) from None


def exclusive(first: str, second: str) -> ValueError:
    """Return the ValueError for two arguments that must not be given together."""
    return ValueError(f"Argument {first!r} must not be given together with {second!r}.")


def nonfinite(argument: str, index: tuple[int, ...], accepted: str, found: str) -> ValueError:
    """Return the ValueError for an array that must not hold a NaN or infinity.

    `found` names the first NaN or infinity in words, for example "a NaN", and `index` is its index.
    """
    return ValueError(f"Argument {argument!r} must be {accepted}; there is {found}{_place(index)}.")


def outside(argument: str, index: tuple[int, ...], accepted: str, found: object) -> ValueError:
    """Return the ValueError for an array with a number out of range.

    `found` is the first number out of range, and `index` is the index of this number.
    """
    return ValueError(f"Argument {argument!r} must be {accepted}, not {found!r}{_place(index)}.")


def _place(index: tuple[int, ...]) -> str:
    """Return " at index ..." for the end of an error message, or "" for an array without axes."""
    return f" at index {index[0] if len(index) == 1 else index}" if index else ""


def shared_tensor_scale(argument: str) -> ValueError:
    """Return the ValueError for a call that would change the tensor scale of a part of an array.

    A new tensor scale would also change the values of all other parts, because all parts share the
    tensor scale. A caller raises this error before it writes to the array.
    """
    return ValueError(
        f"Argument {argument!r} must be a whole array, not a part of one, because this call changes the tensor "
        "scale, which all parts share."
    )


def mixed_places(argument: str, place: str, other: str, other_place: str) -> ValueError:
    """Return the ValueError for a call with arrays on different devices.

    mxnum does not copy arrays between devices.
    """
    return ValueError(f"Argument {argument!r} must be {other_place}, like argument {other!r}, not {place}.")


def install(extra: str) -> str:
    """Return the command that installs an extra, with quotes that every shell accepts."""
    return f'pip install "mxnum[{extra}]"'


def needs_extra(what: str, package: str, extra: str) -> ModuleNotFoundError:
    """Return the ModuleNotFoundError for an optional package that is not installed."""
    return ModuleNotFoundError(f"{what} need {package}, which comes with: {install(extra)}")


def no_driver(reason: object) -> RuntimeError:
    """Return the RuntimeError for an array on a GPU that mxnum cannot use; `reason` says why."""
    said = " ".join(str(reason).split())
    return RuntimeError(f"Arrays on a GPU need a CUDA driver and a GPU that numba-cuda can use; reason: {said}")


def on_gpu(argument: str, remedy: str) -> TypeError:
    """Return the TypeError for an array on a GPU in a call that reads only host memory.

    mxnum never copies an array to the host by itself.
    """
    return TypeError(f"Argument {argument!r} must be in host memory, not on a GPU; {remedy}.")


def joined(names: Iterable[object]) -> str:
    """Return names joined by commas and "or", for a message: 'float64, float32 or float16'."""
    *head, last = [str(name) for name in names]
    return f"{', '.join(head)} or {last}" if head else last


def package(name: str, extra: str) -> Any:
    """Import an optional package and return it.

    If the package is not installed, raise an error that names the extra to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.split(".")[0] != name.split(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"Package {name.split('.')[0]!r} is not installed; install it with {install(extra)}.", name=problem.name
        ) from None

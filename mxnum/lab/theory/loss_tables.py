"""Read tables of losses and sizes of trained models, from arrays or CSV files."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.memory.dtypes import Array
from mxnum.output.files import as_path

#: For each quantity, the usual names of its column; the first name that a file contains is used.
COLUMNS = {
    "parameters": ("parameters", "params", "n_params", "N"),
    "tokens": ("tokens", "n_tokens", "D"),
    "loss": ("loss", "val_loss", "validation_loss", "L"),
}
#: A fit of a law with five parameters needs more than five runs. Only three or more different sizes
#: can show a curvature.
FEWEST_RUNS, FEWEST_SIZES = 6, 3


@dataclass(frozen=True)
class LossTable:
    """A table with one row for each run: N parameters, D tokens and the loss."""

    parameters: Array
    tokens: Array
    losses: Array
    #: The number of rows that were left out because they have no loss.
    left_out: int = 0
    #: For each quantity, the name of the column from which it was read.
    columns: Mapping[str, str] | None = None

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def flops(self) -> Array:
        """The training FLOPs of each run, 6 N D."""
        result: Array = 6 * self.parameters * self.tokens
        return result

    @property
    def cells(self) -> list[tuple[float, float]]:
        """The pair (N, D) of each run."""
        return list(zip(self.parameters.tolist(), self.tokens.tolist(), strict=True))

    def where(self, chosen: Array) -> LossTable:
        """Return the rows where a boolean array is True."""
        return LossTable(self.parameters[chosen], self.tokens[chosen], self.losses[chosen])


def loss_table(parameters: Any, tokens: Any, losses: Any) -> LossTable:
    """Return a table of three equally long sequences of positive numbers, after checking them."""
    arrays = {"parameters": parameters, "tokens": tokens, "losses": losses}
    checked = {name: _positive(name, values) for name, values in arrays.items()}
    for name, values in checked.items():
        errors.require(len(values) == len(checked["losses"]), name, "of the same length as 'losses'", len(values))
    errors.require(
        len(checked["losses"]) >= FEWEST_RUNS,
        "losses",
        f"losses of at least {FEWEST_RUNS} runs",
        len(checked["losses"]),
    )
    for name in ("parameters", "tokens"):
        sizes = len(np.unique(checked[name]))
        errors.require(sizes >= FEWEST_SIZES, name, f"at least {FEWEST_SIZES} different numbers", sizes)
    return LossTable(checked["parameters"], checked["tokens"], checked["losses"])


def _positive(name: str, values: Any) -> Array:
    try:
        array: Array = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"Argument {name!r} must be a sequence of numbers, not {values!r}.") from None
    errors.require(array.ndim == 1, name, "a sequence of numbers", f"an array of {array.ndim} axes")
    wrong = np.nonzero(~(np.isfinite(array) & (array > 0)))[0]
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(f"Argument {name!r} must be positive and finite, not {float(array[at])!r} at index {at}.")
    return array


def read_losses(
    path: str | os.PathLike[str],
    *,
    parameters: str | None = None,
    tokens: str | None = None,
    loss: str | None = None,
    where: Mapping[str, str] | None = None,
) -> LossTable:
    """Return the table in a file of comma-separated values with a line of headings.

    `parameters`, `tokens` and `loss` name the columns that do not have the usual names (`COLUMNS`).
    `where` keeps only rows in which the named columns have the given values. Rows without a loss
    (blank or NaN) are left out; `left_out` is their number. All parameters, tokens and losses must
    be positive; otherwise the error message names the line.
    """
    path = as_path(path)
    rows, headings = _rows(path)
    names = {
        what: _column(path, what, given, headings)
        for what, given in (("parameters", parameters), ("tokens", tokens), ("loss", loss))
    }
    for column in where or {}:
        _column(path, "where", column, headings)
    kept = [(at, row) for at, row in rows if all(row[c] == value for c, value in (where or {}).items())]
    if where and not kept:
        conditions = ", ".join(f"{column}={value}" for column, value in where.items())
        raise ValueError(f"File {str(path)!r} must have a row with {conditions}; it has none.")
    with_loss = [(at, row) for at, row in kept if row[names["loss"]].strip().lower() not in ("", "nan")]
    values = {what: [_number(path, at, column, row[column]) for at, row in with_loss] for what, column in names.items()}
    try:
        table = loss_table(values["parameters"], values["tokens"], values["loss"])
    except ValueError as problem:
        said = str(problem).removeprefix("Argument ").rstrip(".")
        raise ValueError(f"File {str(path)!r} cannot be fitted: {said}.") from None
    return LossTable(table.parameters, table.tokens, table.losses, len(kept) - len(with_loss), names)


def _rows(path: Path) -> tuple[list[tuple[int, dict[str, str]]], list[str]]:
    """Return the rows of a file, each with its line number, and the headings."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, restval="")
            headings = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = headings
            rows = []
            for row in reader:
                if None in row:
                    raise ValueError(
                        f"File {str(path)!r}, line {reader.line_num}, has more values than there are headings."
                    )
                rows.append((reader.line_num, {name: value.strip() for name, value in row.items()}))
    except UnicodeDecodeError:
        raise ValueError(f"File {str(path)!r} must be text in UTF-8.") from None
    except csv.Error as problem:
        raise ValueError(f"File {str(path)!r} cannot be read: {problem}.") from None
    if len(set(headings)) < len(headings):
        raise ValueError(f"File {str(path)!r} must have a different heading for each column, not {headings}.")
    return rows, headings


def _column(path: Path, what: str, given: str | None, headings: Sequence[str]) -> str:
    usual: Sequence[str] = COLUMNS.get(what, ()) if given is None else (given,)
    for name in usual:
        if name in headings:
            return name
    wanted = f"; the file has no column called {errors.joined(usual)}" if given is None else f", not {given!r}"
    raise ValueError(f"Argument {what!r} must name a column of {str(path)!r}, one of {list(headings)}{wanted}.")


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"File {str(path)!r}, line {line}: {column} must be a positive number, not {text!r}.")
    return value

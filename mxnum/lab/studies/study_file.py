"""Read a study from a TOML file; each error message names the position in the file."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab.studies.study import Study, model_named
from mxnum.output.files import as_path

_TOP = ("name", "question", "control", "seeds", "first_seed", "measure_every", "base", "arms", "arms_of", "grid")


def read(path: str | Path, model: str = "mlp") -> Study:
    """Return the study in a file.

    ``[base]`` has the settings that all arms share. Each table ``[arms."name"]`` has the settings
    of one arm. The keys of these tables are keywords of `Experiment.but` or `Setting.but`; an arm
    may also name its ``control``. ``arms_of`` names another study file in the same folder. Its arms
    come before the arms of this file. ``[grid]`` has a list of values for each of some settings.
    Every arm is run with every combination of these values, and is compared with its control under
    the same combination.
    """
    path, of = as_path(path), model_named(model)
    table, where = parsed(path), f"file {str(path)!r}"
    arms, combined, names = table["arms"], combinations(table["grid"]), names_of(table)
    with _named(where):
        for name in table:
            errors.choose("name", name, (*_TOP, *of.extra))
        control = errors.choose("control", table.get("control", next(iter(arms))), (*arms, *names))
        head = _head(table, of)
    with _named(f"[base] of {where}"):
        base = of.base.but(**table["base"])
    made: dict[str, Any] = {}
    controls: dict[str, str] = {}
    first = control + combined[0][0] if control in arms else control
    for name, changes in arms.items():
        here = f"[arms.{name}] of {where}"
        with _named(here):
            own = errors.choose("control", changes.get("control", control), (*arms, *names))
        kept = {key: value for key, value in changes.items() if key != "control"}
        for suffix, values in combined:
            try:
                made[name + suffix] = base.but(**(kept | values))
            except (ValueError, TypeError):
                with _named(here):
                    base.but(**kept)  # raises the error if the arm's own values cause it
                with _named(f"[grid] for {here}"):
                    base.but(**(kept | values))  # raises the error if values of the grid cause it
            controls[name + suffix] = own + suffix if own in arms else own
    return Study(
        table.get("name", path.stem),
        table.get("question", ""),
        made,
        control=first,
        controls={arm: own for arm, own in controls.items() if own != first},
        named={name + suffix: name for name in arms for suffix, _ in combined if suffix},
        **head,
    )


def parsed(path: Path) -> dict[str, Any]:
    """Return the tables of a study file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"File {str(path)!r} must be TOML: {problem}.") from None
    with _named(f"file {str(path)!r}"):
        for name in ("base", "arms", "grid"):
            errors.require(isinstance(table.setdefault(name, {}), dict), name, "a table", table[name])
        for name in ("name", "question", "arms_of"):
            errors.require(isinstance(table.get(name, ""), str), name, "text", table.get(name))
        for name, values in table["grid"].items():
            errors.require(isinstance(values, list) and bool(values), name, "a list of values", values)
    if "arms_of" in table:
        table["arms"] = parsed(path.with_name(f"{table['arms_of']}.toml"))["arms"] | table["arms"]
    if not table["arms"] or not all(isinstance(changes, dict) for changes in table["arms"].values()):
        raise ValueError(
            f"File {str(path)!r} must have at least one table such as [arms.plain], and [arms] must hold only tables."
        )
    return table


def _head(table: Mapping[str, Any], of: Any) -> dict[str, Any]:
    """Return the settings at the top of a study file."""
    bounds = {"seeds": (1, 1 << 20), "first_seed": (0, 1 << 60), "measure_every": (0, 1 << 40), "horizon": (1, 1 << 40)}
    usual = {"seeds": 6, "first_seed": of.first_seed, "measure_every": of.measure_every}
    given = usual | {name: table[name] for name in (*bounds, "measure_above") if name in table}
    for name in bounds.keys() & given.keys():
        errors.integer(name, given[name], *bounds[name])
    above = given.get("measure_above", 2)
    is_number = isinstance(above, int | float) and not isinstance(above, bool)
    errors.require(is_number and above > 1, "measure_above", "a number greater than 1", above)
    return given


def names_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all arms of a file."""
    return tuple(name + suffix for name in table["arms"] for suffix, _ in combinations(table["grid"]))


def combinations(grid: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return every combination of a grid, with the suffix that it adds to the name of an arm."""
    found = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        found.append(("".join(f", {name} {_short(value)}" for name, value in chosen.items()), chosen))
    return found


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_short(v) for v in value.values())
    return f"{value:g}" if isinstance(value, float) else str(value)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Add `where`, a position in the study file, to the messages of errors."""
    try:
        yield
    except (ValueError, TypeError) as problem:
        raise type(problem)(f"In {where}: {problem}") from None


def folders_of(name: str, folder: str | Path | None = None) -> tuple[Path, Path]:
    """Return `folder`/runs, the folder for runs, and `folder`, the folder for tables.

    If `folder` is None, the folder for tables is `name`.
    """
    folder = as_path(name if folder is None else folder, "folder")
    runs = folder / "runs"
    is_new = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_new and not runs.is_dir():
        raise ValueError(f"Folder {str(folder)!r} must be empty, or one that this command made before.")
    return runs, folder

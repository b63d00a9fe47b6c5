"""A study of your own from a TOML file; what is wrong in it is said in one sentence that names the place."""

from __future__ import annotations

import itertools
import tomllib
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mxnum import errors
from mxnum.lab.mlp.config import Experiment, Injection, experiment_from, to_dict
from mxnum.lab.studies.studies import FIRST_SEED, Study
from mxnum.output.files import as_path
from mxnum.recipe import OPERANDS, Operand, Recipe

#: Names at the top of a file, and the type of each.
_TOP: dict[str, Any] = {
    "name": str, "question": str, "control": str, "seeds": int, "first_seed": int, "horizon": int, "measure_every": int,
    "measure_above": float, "base": dict, "arms": dict, "grid": dict,
}  # fmt: skip
#: Seeds of such a study that one process trains together.
STACK = 3
#: One operand for weights, activations, gradients and layer norm, forward and backward; nothing else changes.
UNIFORM = "uniform"


def read(path: str | Path) -> Study:
    """The study in a file: ``[base]`` has what all arms share, each ``[arms."name"]`` what it changes.

    Both take fields of `Experiment`, fields of `Recipe` (as in ``gamma = "mxfp4_e2m1"`` or ``gamma = {format =
    "mxfp4_e2m1", scale_rule = "rceil"}``), and ``uniform``, an operand for all of them. ``[grid]`` has lists: every arm
    is run with every combination, and compared with the control in the same one.
    """
    path = as_path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"File {str(path)!r} must be TOML: {problem}.") from None
    where = f"file {str(path)!r}"
    for key, value in table.items():
        _accept(key, value, _TOP, where)
    arms = table.get("arms", {})
    if not arms or not all(isinstance(changes, dict) for changes in arms.values()):
        raise ValueError(
            f"File {str(path)!r} must have at least one table such as [arms.plain], and only tables there."
        )
    base = _changed(Experiment(), table.get("base", {}), f"[base] of {where}")
    made: dict[str, Experiment] = {}
    own: dict[str, str] = {}
    grid = table.get("grid", {})
    with _named(f"[grid] of {where}"):
        combined = combinations(grid)
    for name, values in grid.items():
        for value in values:
            _accept(name, value, _changeable(), f"[grid] of {where}")
    for name, changes in arms.items():
        place = f"[arms.{name}] of {where}"
        for suffix, values in combined:
            try:
                made[name + suffix] = _changed(base, changes | values, place)
                own[name + suffix] = suffix
            except (ValueError, TypeError):
                _changed(base, changes, place)  # it is the arm
                _changed(base, changes | values, f"[grid] for {place}")  # it is what the grid makes of it
    with _named(where):
        control = errors.choose("control", table.get("control", next(iter(arms))), (*arms, *made))
        controls = {arm: control + suffix for arm, suffix in own.items()} if grid and control in arms else {}
        seeds = errors.integer("seeds", table.get("seeds", 6), 1, 1 << 20)
        every = errors.integer("measure_every", table.get("measure_every", 250), 0, 1 << 40)
        first = errors.integer("first_seed", table.get("first_seed", FIRST_SEED), 0, 1 << 60)
        horizon = table.get("horizon")
        if horizon is not None:
            errors.integer("horizon", horizon, 1, 1 << 40)
    above = table.get("measure_above")
    if above is not None:
        errors.require(above > 1, "measure_above", "greater than 1", above)
    name, question = table.get("name", path.stem), table.get("question", "")
    one = controls.get(next(iter(made)), control)
    return Study(name, question, made, seeds, one, every, first, horizon, above, controls=controls)


def places(name: str, folder: str | Path | None = None) -> tuple[Path, Path]:
    """The folders of the runs and of the tables of a study of your own; without a folder, one with its name."""
    folder = as_path(name if folder is None else folder, "folder")
    runs = folder / "runs"
    is_new = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_new and not runs.is_dir():
        raise ValueError(f"Folder {str(folder)!r} must be empty, or one that this command made before.")
    return runs, folder


def combinations(grid: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every combination of a grid with what it adds to the name of an arm."""
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"Value {name!r} must be a list of values to try, not {values!r}.")
    found = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        found.append(("".join(f", {name} {_short(value)}" for name, value in chosen.items()), chosen))
    return found


def _changeable() -> dict[str, Any]:
    """What an arm may change, and the type of each."""
    return get_type_hints(Experiment) | get_type_hints(Recipe) | {UNIFORM: Operand}


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Errors name the place in the file."""
    try:
        yield
    except (ValueError, TypeError) as problem:
        raise type(problem)(f"In {where}: {problem}") from None


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_short(v) for v in value.values())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _changed(base: Experiment, changes: Mapping[str, Any], where: str) -> Experiment:
    """The experiment with the changes that a table asks for."""
    for name, value in changes.items():
        _accept(name, value, _changeable(), where)
    values = dict(changes)
    with _named(where):
        if UNIFORM in values:
            all_of_it = Recipe.from_dict({UNIFORM: values.pop(UNIFORM)})
            base = base.but(**{operand: getattr(all_of_it, operand) for operand in OPERANDS})
        table = to_dict(base)
        inner = values.pop("precision", {})
        for name, value in {
            **inner,
            **{n: values.pop(n) for n in list(values) if n in get_type_hints(Recipe)},
        }.items():
            table["precision"][name] = to_dict(Operand.of(value)) if name in OPERANDS and value is not None else value
        return experiment_from(table | values)


def _accept(name: str, value: Any, accepted: Mapping[str, Any], where: str) -> None:
    """Nothing, if a table may have this name with this value; else an error."""
    with _named(where):
        errors.choose("name", name, tuple(accepted))
    hint = accepted[name]
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    if hint in (Recipe, Injection, Operand) and isinstance(value, dict):
        for inner, each in value.items():
            _accept(inner, each, get_type_hints(hint), f"{name!r} of {where}")
    elif not _fits(value, hint):
        raise TypeError(f"In {where}: value {name!r} must be {_words(hint)}, not {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        pairs = isinstance(value, list) and len(value) == len(arguments)
        return pairs and all(_fits(v, a) for v, a in zip(value, arguments, strict=True))
    if hint is Operand:
        return isinstance(value, (str, dict))
    if hint in (Recipe, Injection):
        return isinstance(value, dict)
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    return isinstance(value, (int, float) if hint is float else hint)


def _words(hint: Any) -> str:
    """What a type accepts, for an error."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {list(arguments)}"
    if origin is tuple:
        return f"a list of {len(arguments)} numbers"
    if hint is Operand:
        return f"the name of a format or a table of {[f.name for f in fields(Operand)]}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return words.get(hint, "a table")

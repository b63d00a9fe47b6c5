"""Covering arrays: a few test cases that contain, for any two parameters, every pair of values.

A mistake usually depends on the values of one or two parameters, and rarely on more. In this
example

    @covering(fmt=mx.formats.names(), rounding=Rounding, overflow=Overflow).parametrize_in_tiers
    def test_something(fmt, rounding, overflow): ...

the fast tier runs the selected cases, and the full tier runs all cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pytest

SEED = 20260101
#: If there are more than `LOOKED_AT` possible cases, the search for cases first selects from a
#: random sample of `LOOKED_AT` cases.
LOOKED_AT = 4096

Case = dict[str, Any]
Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Covering:
    """A selection of cases, and the combinations of values that it must contain."""

    choices: dict[str, tuple[Any, ...]]
    #: Groups of parameter names. For each group, the selected cases must contain all combinations
    #: of its parameters' values.
    together: tuple[tuple[str, ...], ...]
    #: All possible cases, each as the indices of its values in `choices`.
    possible: Rows
    #: The selected cases, as row numbers of `possible`.
    chosen: tuple[int, ...]
    #: For each parameter whose values are grouped into kinds, the number of the kind of each value.
    #: Only each kind, not each value, must occur with all values of the other parameters.
    kinds: dict[str, tuple[int, ...]]

    def __str__(self) -> str:
        of_kinds = {name: f", {len(set(numbers))} kinds" for name, numbers in self.kinds.items()}
        sizes = ", ".join(f"{name} ({len(values)}{of_kinds.get(name, '')})" for name, values in self.choices.items())
        met = "; ".join(
            " with ".join(f"kind of {name}" if name in self.kinds and len(names) > 1 else name for name in names)
            for names in self.together
        )
        return f"{len(self)} of {len(self.possible)} cases of {sizes}. All combinations of these occur: {met}."

    def __len__(self) -> int:
        return len(self.chosen)

    def __iter__(self) -> Iterator[Case]:
        return map(self.case, self.chosen)

    def case(self, number: int) -> Case:
        """Return the possible case in row `number` of `possible`."""
        places = self.possible[number].tolist()
        return {name: values[place] for (name, values), place in zip(self.choices.items(), places, strict=True)}

    def missing(self, chosen: Iterable[int] | None = None) -> int:
        """Return the number of possible combinations that occur in no selected case."""
        meetings = self.meetings()
        rows = list(self.chosen if chosen is None else chosen)
        return int(np.unique(meetings).size - np.unique(meetings[rows]).size)

    def meetings(self) -> Rows:
        """Return an array whose entry [case, group] identifies the group's values in that case."""
        names, columns, first = list(self.choices), [], 0
        for group in self.together:
            number = np.zeros(len(self.possible), np.int64)
            for name in group:
                places = self.possible[:, names.index(name)]
                if name in self.kinds and len(group) > 1:
                    places = np.array(self.kinds[name])[places]
                number = number * len(self.choices[name]) + places
            columns.append(number + first)
            first += prod(len(self.choices[name]) for name in group)
        return np.stack(columns, axis=1)

    @property
    def parametrize(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that runs a test on the selected cases."""
        return self._parametrize(self.chosen)

    @property
    def parametrize_in_tiers(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that runs a test on the selected cases, and in the full tier on all cases."""
        return self._parametrize(range(len(self.possible)))

    def _parametrize(self, numbers: Iterable[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        fast = set(self.chosen)
        rows = [
            pytest.param(*self.case(number).values(), marks=() if number in fast else pytest.mark.full)
            for number in numbers
        ]
        return pytest.mark.parametrize(tuple(self.choices), rows)


def covering(
    *,
    strength: int = 2,
    apart: Iterable[tuple[str, str]] = (),
    where: Callable[..., bool] | None = None,
    kinds: Mapping[str, Callable[[Any], Any]] | None = None,
    **choices: Iterable[Any],
) -> Covering:
    """Return a few cases that contain, for any two parameters, every pair of their values.

    If `strength` is 3, the cases contain every combination of values of any three parameters, and
    so on. `where` returns True for a possible case; combinations that occur in no possible case are
    ignored. `apart` lists pairs of parameters whose values need not occur together, for example
    because another test combines them. `kinds` maps a parameter to a function that returns the kind
    of a value. Then only each kind, not each value, must occur with all values of the other
    parameters; still, each value occurs at least once. The cases are the same in every run.
    """
    values = {name: tuple(some) for name, some in choices.items()}
    size = prod(map(len, values.values()))
    if size > 1 << 20:
        raise ValueError(f"{size} combinations are too many to choose from: leave some choices to another test")
    rows = np.stack(np.unravel_index(np.arange(size), [len(some) for some in values.values()]), axis=1)
    left_out = {frozenset(pair) for pair in apart}
    together = [
        names
        for names in combinations(values, min(strength, len(values)))
        if not any(frozenset(pair) in left_out for pair in combinations(names, 2))
    ]
    met = {name for names in together for name in names if len(names) == 1 or name not in (kinds or {})}
    together += [(name,) for name in values if name not in met]
    numbers = {}
    for name, kind_of in (kinds or {}).items():
        found_kinds = [kind_of(value) for value in values[name]]
        numbers[name] = tuple(map(found_kinds.index, found_kinds))
    found = Covering(values, tuple(together), rows, (), numbers)
    if where is not None:
        found = replace(found, possible=rows[[where(**found.case(number)) for number in range(size)]])
    return replace(found, chosen=tuple(sorted(_greedy(found.meetings()))))


def _greedy(meetings: Rows) -> list[int]:
    """Return the indices of rows that together contain every number in `meetings`.

    Each step selects the row with the most numbers that no selected row has. In a tie, it selects
    the row that comes first in a fixed random order.
    """
    order = np.random.default_rng(SEED).permutation(len(meetings))
    is_new = np.zeros(int(meetings.max(initial=-1)) + 1, bool)
    is_new[meetings] = True
    chosen: list[int] = []
    for looked_at in (order[:LOOKED_AT], order):
        candidates = meetings[looked_at]
        while is_new.any():
            news = is_new[candidates].sum(axis=1)
            best = int(np.argmax(news))
            if news[best] == 0:
                break
            chosen.append(int(looked_at[best]))
            is_new[candidates[best]] = False
    return chosen

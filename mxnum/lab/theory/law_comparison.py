"""Test if two scaling laws differ by more than chance, given the runs to which they were fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mxnum import errors
from mxnum.lab.theory.loss_tables import LossTable
from mxnum.lab.theory.scaling_law import NAMES, Interval, ScalingFit, middle
from mxnum.memory.dtypes import Array


@dataclass(frozen=True)
class LawComparison:
    """The difference between two fitted laws.

    A comparison can show that the laws differ, by how much, and in which parameters. If the
    comparison finds no difference, the laws need not be the same: `at_most` says how far apart the
    laws may still be. The comparison applies to sizes (N, D) within the ranges of both tables, not
    to larger sizes. If all runs share one seed, the comparison does not show how another seed
    would shift all losses.
    """

    #: The median absolute difference between the log losses that the two laws predict, over all
    #: cells (N, D) within the ranges of both tables.
    distance: float
    #: The p-value: the probability that resampling alone changes the difference between the laws by
    #: at least `distance`.
    p: float
    #: An upper limit for the distance between the laws: the quantile, at `level`, of the distances
    #: between laws that are fitted to resampled tables.
    at_most: float
    #: For each parameter and for the compute exponent: the second law's value minus the first law's
    #: value, and a bootstrap interval of this difference.
    differences: dict[str, tuple[float, Interval]]
    level: float
    #: The number of cells (N, D) that both tables have. In a shared cell the runs of both tables
    #: are resampled together, so that common effects cancel.
    shared_cells: int

    @property
    def told_apart(self) -> bool:
        """True if the laws differ significantly: `p` is below 1 - `level`."""
        return self.p < 1 - self.level


def compare_laws(
    first: ScalingFit, second: ScalingFit, *, level: float = 0.95, draws: int = 400, seed: int = 0
) -> LawComparison:
    """Return the distance between two laws, and the probability that chance makes it as large.

    The probability p is computed from bootstrap draws of whole cells (N, D), and is at least
    1 / (1 + draws). If `draws` is too small for any difference to be significant, the function
    raises ValueError.
    """
    errors.require(0 < level < 1, "level", "between 0 and 1", level)
    enough = (1 + errors.positive_integer("draws", draws)) * (1 - level) > 1
    errors.require(enough, "draws", f"above {1 / (1 - level) - 1:.6g} for the level {level}", draws)
    points = _common_ground(first.table, second.table)
    cells = sorted(set(first.table.cells) | set(second.table.cells))
    both = set(first.table.cells) & set(second.table.cells)
    counts = _drawn_cells(cells, both, set(first.table.cells), draws, np.random.default_rng(seed))
    drawn = [fit.draws(_weights(fit.table, cells, counts)) for fit in (first, second)]
    fitted = [np.array([[getattr(fit.law, name) for name in NAMES]]) for fit in (first, second)]
    difference = _logarithm(fitted[1], points) - _logarithm(fitted[0], points)
    moved = _logarithm(drawn[1], points) - _logarithm(drawn[0], points)
    distance = float(_size(difference)[0])
    by_chance = _size(moved - difference)
    p = (1 + np.count_nonzero(by_chance >= distance)) / (1 + draws)
    at_most = float(np.quantile(_size(moved), level))
    differences = {
        name: (float(b[0] - a[0]), middle(b[1:] - a[1:], level))
        for (name, a), b in zip(_named(fitted[0], drawn[0]).items(), _named(fitted[1], drawn[1]).values(), strict=True)
    }
    return LawComparison(distance, float(p), at_most, differences, level, len(both))


def _common_ground(first: LossTable, second: LossTable) -> tuple[Array, Array]:
    """Return the cells of either table that lie within the ranges of N and D of both tables."""
    cells = np.array(sorted(set(first.cells) | set(second.cells)))
    inside = np.ones(len(cells), bool)
    for table in (first, second):
        for column, values in zip(cells.T, (table.parameters, table.tokens), strict=True):
            inside &= (values.min() <= column) & (column <= values.max())
    if not inside.any():
        raise ValueError("Argument 'second' must overlap 'first' in the ranges of parameters and tokens.")
    return cells[inside, 0], cells[inside, 1]


def _drawn_cells(
    cells: list[tuple[float, float]],
    both: set[tuple[float, float]],
    first: set[tuple[float, float]],
    draws: int,
    rng: np.random.Generator,
) -> Array:
    """Return how often each bootstrap draw contains each cell (N, D).

    A draw resamples three groups of cells separately: cells in both tables, cells only in the first
    table, and cells only in the second table.
    """
    kinds = np.array([0 if cell in both else 1 if cell in first else 2 for cell in cells])
    counts = np.zeros((draws, len(cells)))
    for kind in range(3):
        of_kind = np.nonzero(kinds == kind)[0]
        if of_kind.size:
            counts[:, of_kind] = rng.multinomial(of_kind.size, np.full(of_kind.size, 1 / of_kind.size), size=draws)
    return counts


def _weights(table: LossTable, cells: list[tuple[float, float]], counts: Array) -> Array:
    """Return the weights of a table's runs in each bootstrap draw, as an array of draws x runs."""
    column_of = {cell: at for at, cell in enumerate(cells)}
    weights = counts[:, [column_of[cell] for cell in table.cells]]
    result: Array = weights / weights.sum(axis=1, keepdims=True)
    return result


def _logarithm(laws: Array, points: tuple[Array, Array]) -> Array:
    """Return the logarithm of the loss that each law predicts at each point (laws x points)."""
    A, B, E, alpha, beta = (laws[:, i, None] for i in range(5))
    n, d = points
    result: Array = np.log(A * n**-alpha + B * d**-beta + E)
    return result


def _size(differences: Array) -> Array:
    result: Array = np.median(np.abs(differences), axis=1)
    return result


def _named(fitted: Array, drawn: Array) -> dict[str, Array]:
    """Return an array for each parameter (ln A, ln B, E, ...) and for the compute exponent.

    Each array holds the fitted value, followed by the value in each bootstrap draw.
    """
    laws = np.concatenate([fitted, drawn])
    with np.errstate(divide="ignore"):
        logs = {f"ln {name}": np.log(laws[:, i]) for i, name in enumerate(NAMES[:2])}
    rest = {name: laws[:, i] for i, name in enumerate(NAMES) if i >= 2}
    return logs | rest | {"compute_exponent": laws[:, 4] / (laws[:, 3] + laws[:, 4])}

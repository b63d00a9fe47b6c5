"""Classify histories of losses: excursions with a return, runaways, and high final losses.

The class of a run depends only on its losses, not on its architecture or precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

Array = Any

#: An excursion starts when the loss exceeds `RISE` times the base, the least running median so far.
#: The loss must also exceed `FORGOTTEN` times the loss before training.
RISE = 20.0
#: The first loss of an excursion must exceed this share of the loss before training. In a model
#: without layer norm, a tiny loss may rise a hundredfold and still be small.
FORGOTTEN = 0.1
#: An excursion ends at a step whose loss is at most `BACK` times the base. The median of the
#: `WINDOW` losses that begin with this step must also be at most `BACK` times the base.
BACK = 5.0
#: The number of steps in a running median, and in the window that ends an excursion.
WINDOW = 100
#: A run without an excursion is degraded if its final loss exceeds `DEGRADED` times the final loss
#: of the control run with the same seed.
DEGRADED = 1.5
#: In `Excursion.area`, this value replaces a loss that is not finite.
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Excursion:
    """A part of a run that begins when the loss jumps, and ends when the loss has come back."""

    start: int
    #: The step at which the excursion ended; None if the loss did not come back.
    end: int | None
    #: The base before the excursion: the least running median.
    base: float
    #: The largest loss of the excursion; infinite if a loss was not finite.
    peak: float
    #: The sum of log10(loss / base) over the steps of the excursion.
    area: float
    #: The first step at which the loss was back at or below the level that starts an excursion;
    #: None if the loss did not come back to this level. The level that ends an excursion is lower
    #: (see `BACK`).
    under: int | None = None

    def lasts_until(self, steps: int) -> int:
        """Return the end of the excursion, or the run's last step if the loss did not come back."""
        return steps if self.end is None else self.end


def excursions(losses: Array) -> list[Excursion]:
    """Return the excursions of a run, in order.

    >>> quiet, high = [1.0] * 10 + [0.02] * 400, [3.0] * 30
    >>> [(e.start, e.end, e.peak) for e in excursions(quiet + high + quiet[10:])]
    [(410, 440, 3.0)]
    >>> [(e.start, e.end) for e in excursions(quiet + high)]
    [(410, None)]
    """
    loss = np.asarray(losses, np.float64)
    finite = np.where(np.isfinite(loss), loss, np.inf)
    if len(finite) == 0:
        return []
    bases = _bases(finite)
    high = np.isinf(finite) | (finite > np.maximum(RISE * bases, FORGOTTEN * finite[0]))
    found: list[Excursion] = []
    step = 0
    while (start := _first(high, step)) is not None:
        base = float(bases[start])
        end = _back(finite, start + 1, BACK * base)
        part = finite[start:end]
        above = np.log10(np.minimum(part, _LARGEST) / min(base, _LARGEST))
        area = float(np.maximum(above, 0).sum())
        under = _back(finite, start + 1, max(RISE * base, FORGOTTEN * finite[0]))
        found.append(Excursion(start, end, base, float(part.max()), area, under))
        if end is None:
            break
        step = end
    return found


def _first(wanted: Array, step: int) -> int | None:
    steps_found = np.flatnonzero(wanted[step:])
    return step + int(steps_found[0]) if len(steps_found) else None


def _bases(loss: Array) -> Array:
    """Return, for each step, the least of the running medians before this step.

    While there are fewer than `WINDOW` losses, a running median is the median of all losses so far.
    """
    window = min(WINDOW, len(loss))
    whole = np.median(np.lib.stride_tricks.sliding_window_view(loss, window), axis=-1)
    early = [np.median(loss[:count]) for count in range(1, window)]
    medians = np.concatenate([loss[:1], early, whole])[: len(loss)]
    return np.minimum.accumulate(medians)


def _back(loss: Array, start: int, limit: float) -> int | None:
    """Return the first step, from `start` on, at which the loss is back at or below `limit`.

    A step counts only if at least half of the `WINDOW` losses that begin with this step are at or
    below `limit`. Return None if no step counts.
    """
    low = loss <= limit
    counts = np.concatenate([[0], np.cumsum(low)])
    steps = np.arange(start, len(loss) - WINDOW + 1)
    fits = low[steps] & (2 * (counts[steps + WINDOW] - counts[steps]) >= WINDOW) if len(steps) else np.zeros(0, bool)
    steps_found = np.flatnonzero(fits)
    return start + int(steps_found[0]) if len(steps_found) else None


class Outcome(StrEnum):
    """How the excursions of a run ended."""

    #: No excursion started before the horizon.
    NONE = "none"
    #: Excursions started before the horizon, and the loss came back from all of them by twice the
    #: horizon.
    RECOVERED = "recovered"
    #: The loss did not come back from an excursion by twice the horizon, or was infinite or NaN
    #: during an excursion.
    RUNAWAY = "runaway"
    #: The run has fewer steps than twice the horizon, and ended during an excursion.
    OPEN = "open"


@dataclass(frozen=True)
class Course:
    """The excursions of a run of `steps` steps; excursions that start before `horizon` count."""

    seed: int
    steps: int
    horizon: int
    excursions: tuple[Excursion, ...]
    #: The median of the last `WINDOW` losses; None if this median is not finite.
    final: float | None = None

    @property
    def counted(self) -> tuple[Excursion, ...]:
        """The excursions that started before the horizon."""
        return tuple(e for e in self.excursions if e.start < self.horizon)

    @property
    def first(self) -> int | None:
        """The start of the first excursion that counts."""
        return self.counted[0].start if self.counted else None

    @property
    def outcome(self) -> Outcome:
        if not self.counted:
            return Outcome.NONE
        if any(np.isinf(e.peak) for e in self.counted):
            return Outcome.RUNAWAY
        end = self.counted[-1].end
        if end is not None and end <= 2 * self.horizon:  # a return after twice the horizon is too late
            return Outcome.RECOVERED
        return Outcome.RUNAWAY if self.steps >= 2 * self.horizon else Outcome.OPEN

    @property
    def away(self) -> int | None:
        """The start of the last counted excursion of a runaway; None for other runs."""
        return self.counted[-1].start if self.outcome is Outcome.RUNAWAY else None

    @property
    def ends_high(self) -> bool:
        """True if the final loss is above `RISE` times the base of the last counted excursion.

        A final loss that is not finite is above every number. The property is False if no excursion
        counts.
        """
        return bool(self.counted) and (self.final is None or self.final > RISE * self.counted[-1].base)

    @property
    def peak(self) -> float | None:
        """The largest ratio of peak to base among the counted excursions."""
        return max((e.peak / e.base for e in self.counted), default=None)

    def degraded(self, control: Course) -> bool | None:
        """Return True if the final loss is more than `DEGRADED` times the control's final loss.

        Return None if the run or its control has an excursion or no finite final loss.
        """
        if self.excursions or control.excursions or self.final is None or not control.final:
            return None
        return self.final > DEGRADED * control.final


def highest(losses: Array) -> float:
    """Return the largest ratio of a loss to its base; infinite if a loss is not finite."""
    loss = np.asarray(losses, np.float64)
    finite = np.where(np.isfinite(loss), loss, np.inf)
    return float((finite / _bases(finite)).max()) if np.isfinite(finite).all() else math.inf


def final_loss(losses: Array) -> float | None:
    """Return the median of the last `WINDOW` losses; None if this median is not finite."""
    last = float(np.median(np.asarray(losses, np.float64)[-WINDOW:]))
    return last if np.isfinite(last) else None

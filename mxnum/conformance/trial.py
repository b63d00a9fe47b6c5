"""The trial of a kernel that draws its own random bits: repeated calls and tests of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mxnum.conformance import binomial, dependence, shares
from mxnum.conformance.chances import NEAREST, Chance, chances, constant, survey
from mxnum.conformance.counted import judge_codes, judge_scales, judge_what_stays
from mxnum.conformance.expected import expected
from mxnum.conformance.outcome import StochasticReport, add_problem
from mxnum.conformance.randomness import Words
from mxnum.conformance.report import Profile
from mxnum.conformance.shares import Levels, Shares
from mxnum.conformance.task import Columns, Task
from mxnum.conformance.tiles import ELEMENTS, Tally, constant_tile, inputs_of, largest_quotient, make_tile
from mxnum.memory.dtypes import Array
from mxnum.modes import Rounding

#: Seeds that together vary each of 31 bits. Some differ so little that float32 makes them equal.
SEEDS = (1, 2, *(1 | 1 << bit for bit in range(1, 31)), 2 | 1 << 30)
#: Number of draws with each of these seeds.
UNDER_EACH_SEED = 4096
#: Fewest elements of a call in which dependence is tested, even if fewer draws of a case are
#: needed.
AT_LEAST = 1 << 14
#: The survey has this many times fewer draws of each case.
SURVEYED = 64
#: Draws of a case if shares are not judged, and the fewest draws of a case of the survey.
FEW = 4096


class Trial:
    """Calls one callable again and again, and collects what is wrong."""

    def __init__(
        self,
        function: Callable[..., Any],
        task: Task,
        sr_bits: int | None,
        seeded: bool,
        words: Words,
        arrays: str = "numpy",
        scales: str = "plain",
    ) -> None:
        self.function, self.task, self.seeded, self.words, self.form = function, task, seeded, words, (arrays, scales)
        self.reach = largest_quotient(task)
        self.report = StochasticReport(task, sr_bits)
        self._seed = 0

    def run(self, bias: float, power: float, false_alarm: float, profile: Profile) -> StochasticReport:
        """Run all tests and return the report.

        Independence is tested first: the shares of draws that depend on each other prove nothing.
        """
        report, task = self.report, self.task
        precise = chances(task, self.words, bias, self.reach)
        wide = survey(task, self.words, self.reach)
        report.cases = len(precise) + len(wide)
        levels = Levels.of(false_alarm / 3, report.cases)
        p = sorted({chance.probability(report.sr_bits) for chance in precise})
        draws = binomial.draws_for(bias, power, levels.case)
        while min(binomial.weakest(draws, each, bias, levels.case) for each in p) < power:
            draws = round(1.01 * draws) + 1
        independent = self.independence(draws, power, false_alarm / 3)
        tallies = [self.tally(precise, draws if independent else FEW)]
        if wide:
            tallies.append(self.tally(wide, max(FEW, draws // SURVEYED) if independent else FEW))
        for tally in tallies:
            judge_scales(report, tally)
            judge_codes(report, tally, profile)
            judge_what_stays(report, tally, profile)
        if self.still_drawing(tallies) and independent:
            self.shares(tallies, levels, bias, power, profile)
        looks = min(int(tally.codes[len(tally.tile.chances) :].sum(axis=1).min()) for tally in tallies)
        if looks:
            report.guarantees.append(
                f"A number that is not between two codes but moves once in {round(-looks / np.log(1 - power))} draws "
                f"would have been seen with probability {power:g}."
            )
        report.guarantees.append(
            f"A right kernel would be called wrong in at most 1 of {round(1 / false_alarm)} such checks."
        )
        return report

    def call(self, tally: Tally, seed: int | None = None) -> Columns:
        """Call the function once, with the next seed unless one is given, and return its answers."""
        self.report.calls += 1
        self._seed = self._seed + 1 if seed is None else self._seed
        return tally.draw((self._seed if seed is None else seed) if self.seeded else None)

    def independence(self, length: int, power: float, level: float) -> bool:
        """Return True if calls with one seed are equal and all other draws are independent.

        Problems are added to the report.
        """
        length = min(max(length, AT_LEAST), ELEMENTS)
        before = len(self.report.problems)
        half = self.constantly(0.5, length)
        level /= dependence.tests(half.ids.size) + len(SEEDS) * (len(SEEDS) - 1) // 2
        first = self.call(half)
        if self.seeded:
            again = self.call(half, self._seed)
            differing = sum(int((first[name] != again[name]).sum()) for name in first)
            if differing:
                text = f"Two calls with seed {self._seed} differ in {differing} of {half.ids.size} elements."
                add_problem(self.report, "Not repeatable", text)
        halves = [ways(half, first), ways(half, self.call(half))]
        small = self.constantly(0.5, UNDER_EACH_SEED)
        seeds: Sequence[int | None] = SEEDS if self.seeded else [None] * len(SEEDS)
        calls = np.stack([ways(small, self.call(small, seed)) for seed in seeds])
        names = [f"seed {seed}" for seed in SEEDS] if self.seeded else [f"call {i + 1}" for i in range(len(SEEDS))]
        between = "Seeds" if self.seeded else "Calls"
        for sentence in dependence.same_answers(calls, names):
            add_problem(self.report, between, sentence)
        quarters = []
        if self.report.sr_bits != 1:
            quarter = self.constantly(0.25, length)
            quarters = [ways(quarter, self.call(quarter)) for _ in range(2)]
        block = self.task.block if self.task.operation == "quantize" else 0
        echoes = dependence.echoes(halves, quarters, level)
        within = [echo for echo in echoes if not echo.calls]
        if within and (size := dependence.groups(halves[0], block)) > 1:
            add_problem(
                self.report, "Dependent draws", f"The elements of each group of {size} in a row go the same way."
            )
        # If draws within a call depend on each other, or calls are equal, comparing two calls adds
        # nothing.
        told = within or len(self.report.problems) > before
        for echo in (within if told else echoes)[:3]:
            add_problem(self.report, "Dependent draws", echo.text(block))
        for sentence in [] if told else dependence.likeness(calls, names, level):
            add_problem(self.report, between, sentence)
        reach = half.ids.size // 2
        pairs = int(reach * (length / half.ids.size) ** 2)  # without the anchors of blocks, which are not drawn for
        rho = dependence.smallest_correlation(pairs, power, level)
        self.report.guarantees.append(
            f"A correlation of {rho:.2g} between elements at one distance up to {reach}, of a call or of two in "
            f"a row, would have been seen with probability {power:g}."
        )
        return len(self.report.problems) == before

    def constantly(self, delta: float, length: int) -> Tally:
        """Return a tally for one number that occurs again and again."""
        tile = constant_tile(self.task, constant(self.task, delta, self.reach), self.words)
        return Tally(self.function, tile, -(-length // int(tile.shares[0])), self.words, *self.form)

    def tally(self, cases: list[Chance], draws: int) -> Tally:
        """Return the counts of at least `draws` draws of each case, in at least two calls."""
        tile = make_tile(self.task, cases, self.words)
        copies = -(-draws // int(tile.shares.min()))
        calls = max(2, -(-copies * tile.x.size // ELEMENTS))
        tally = Tally(self.function, tile, -(-copies // calls), self.words, *self.form)
        for _ in range(calls):
            self.call(tally)
        self.report.draws += int(tally.codes[: len(cases)].sum())
        return tally

    def still_drawing(self, tallies: list[Tally]) -> bool:
        """Return True if anything is drawn at all. If not, add the problem and which rounding mode it looks like."""
        tables = [tally.codes[: len(tally.tile.chances)] for tally in tallies]
        certain = [c.probability(self.report.sr_bits) in (0, 1) for tally in tallies for c in tally.tile.chances]
        if not any(table.any() for table in tables):
            add_problem(self.report, "Scales", "No block has the right one, so that no codes are judged.")
            return False
        if all(certain) or not all(((table > 0).sum(axis=1) <= 1).all() for table in tables):
            return True
        alike = [f"rounding {mode}" for mode in Rounding if not mode.is_stochastic and self.gives(tallies, mode)]
        text = "Every number becomes the same code in all calls"
        self.report.problems = {about: of for about, of in self.report.problems.items() if about not in DRAWING}
        add_problem(self.report, "Nothing is drawn", f"{text}{', as with ' + alike[0] if alike else ''}.")
        return False

    def gives(self, tallies: list[Tally], mode: Rounding) -> bool:
        """Return True if a deterministic rounding mode gives all the codes of the cases."""
        for tally in tallies:
            tile, count = tally.tile, len(tally.tile.chances)
            codes = expected(replace(self.task, rounding=mode), inputs_of(self.task, tile.x))[
                self.task.outputs[-1].name
            ]
            drawn = tile.ids < count
            if not (tally.codes[tile.ids[drawn], codes[drawn]] > 0).all():
                return False
        return True

    def shares(self, tallies: list[Tally], levels: Levels, bias: float, power: float, profile: Profile) -> None:
        """Judge how often each case went away from zero, and add problems and guarantees to the report."""
        cases = [chance for tally in tallies for chance in tally.tile.chances]
        tables = np.concatenate([tally.codes[: len(tally.tile.chances)] for tally in tallies])
        every = np.arange(len(cases))
        ups, downs = (tables[every, [getattr(c, side) for c in cases]] for side in ("above", "below"))
        found = Shares(cases, ups + downs, ups)
        wrong = shares.problems(self.task, found, self.report.sr_bits, levels)
        if wrong and "sr_fraction" in profile.accepted and self.report.sr_bits is not None:
            nearest = found.probabilities(self.report.sr_bits, NEAREST)
            wrong = [] if found.fits(nearest, levels) else wrong
        for text in wrong:
            add_problem(self.report, "Shares", text)
        self.report.fits = shares.explanations(found, self.report.sr_bits, levels)
        self.report.guarantees += found.guarantees(
            self.report.sr_bits, len(tallies[0].tile.chances), levels, bias, power
        )


#: The topics of problems about draws. They are dropped if the kernel draws nothing.
DRAWING = ("Not repeatable", "Seeds", "Calls", "Dependent draws", "Shares")


def ways(tally: Tally, answers: Columns) -> Array:
    """Return where each of many equal numbers went: +1 away from zero, -1 toward it, 0 if it is not drawn for."""
    tile = tally.tile
    chance, codes = tile.chances[0], answers[tile.task.outputs[-1].name]
    drawn = tally.ids == 0
    if "scale" in answers:
        drawn &= answers["scale"] == tile.scales[tally.rows][:, None]
    found: Array = np.where(drawn, (codes == chance.above).astype(np.int8) - (codes == chance.below), 0).ravel()
    return found

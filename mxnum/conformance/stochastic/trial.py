"""Try a kernel that draws its own random bits: call it repeatedly and test the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mxnum import errors
from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.calling import Implementation
from mxnum.conformance.judging import describe
from mxnum.conformance.judging.describe import code_text
from mxnum.conformance.judging.judge import BUG, LABELS, judge
from mxnum.conformance.judging.report import Profile, StochasticReport, add_choice, add_problem
from mxnum.conformance.judging.right import expected, right_scales
from mxnum.conformance.stochastic import statistics
from mxnum.conformance.stochastic.chances import (
    NEAREST,
    Chance,
    Levels,
    Shares,
    chances,
    constant,
    explanations,
    problems,
    survey,
)
from mxnum.conformance.stochastic.tiles import (
    ELEMENTS,
    NO_CODE,
    OTHERS,
    Tally,
    constant_tile,
    inputs_of,
    largest_quotient,
    make_tile,
)
from mxnum.conformance.task import Columns, Task
from mxnum.definition.by_numpy import looks_at_elements
from mxnum.memory.dtypes import Array
from mxnum.modes import Rounding, scale_rules

#: The report's heading for wrong answers to cases with one right answer.
STAYS = "Nothing to draw"


def judge_scales(report: StochasticReport, tally: Tally) -> None:
    """Judge the scales of blocks with randomly rounded numbers, and add problems to the report."""
    tile, task = tally.tile, tally.tile.task
    if not task.has_scales:
        return
    drawn = np.flatnonzero(~tile.is_still)
    got = tally.scales[drawn]
    wrong = got.sum(axis=1) - tally.times(drawn, tile.scales[drawn])
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    columns = np.flatnonzero(got[row][:OTHERS])
    named = zip(tally.scale_codes(columns).tolist(), columns.tolist(), strict=True)
    seen = [(f"0x{code:02X}", column) for code, column in sorted(named)] + [("others", OTHERS), ("no code", NO_CODE)]
    codes = ", ".join(f"{name} ({got[row, column]} times)" for name, column in seen if got[row, column])
    x = describe.block_text(task, tile.x[drawn[row]])
    want = tile.scales[drawn[row]]
    text = f"{int(wrong.sum())} of {int(got.sum())} blocks, e.g. {x}: got {codes}, want 0x{want:02X}."
    add_problem(report, "Scales", text)
    if (np.count_nonzero(got, axis=1) > 1).any():
        add_problem(
            report, "Scales", "The same block gets different scales: scales are random, or depend on other blocks."
        )
    rules = []
    for rule in scale_rules(task.format):
        if looks_at_elements(rule):
            continue
        other = right_scales(replace(task, scale_rule=rule), inputs_of(task, tile.x))[:, 0]
        if (tally.times(drawn, other[drawn]) == got.sum(axis=1)).all():
            rules.append(rule)
    if rules:
        add_problem(report, "Scales", f"The scales are those of scale rule {errors.joined(rules)}.")


def judge_codes(report: StochasticReport, tally: Tally, profile: Profile) -> None:
    """Judge whether each randomly rounded number becomes one of its two neighbouring codes."""
    tile, task = tally.tile, tally.tile.task
    minus_zero = 1 << (task.element.bits - 1)
    strange, lost, kept = [], 0, 0
    for chance, row in zip(tile.chances, tally.codes, strict=False):
        if chance.below == minus_zero and not task.element.integer:
            lost, kept = lost + int(row[0]), kept + int(row[minus_zero])
            row[minus_zero] += row[0]
            row[0] = 0
        others = [code for code in np.flatnonzero(row).tolist() if code not in (chance.below, chance.above)]
        if others:
            seen = ", ".join(f"{code_text(task, code)} {row[code]} times" for code in others[:3])
            strange.append(f"{chance.text(task)}: got {seen} in {row.sum()} draws, but want one of the two neighbours.")
    if strange:
        text = f"{len(strange)} of {len(tile.chances)} numbers become codes other than their two neighbours."
        add_problem(report, "Codes", text)
    for text in strange[:3]:
        add_problem(report, "Codes", text)
    if lost and kept:
        text = f"Negative numbers that become zero lose their sign {lost} times and keep it {kept} times."
        add_problem(report, "Codes", text)
    else:
        add_choice(report, "minus_zero", lost, profile)


def judge_what_stays(report: StochasticReport, tally: Tally, profile: Profile) -> None:
    """Judge the answers that must be the same in every draw.

    These answers are the codes of zeros, representable numbers and saturated numbers, and all
    answers to blocks in which no number is rounded stochastically.
    """
    tile, task, count = tally.tile, tally.tile.task, len(tally.tile.chances)
    first = {int(number): place for place, number in reversed(list(enumerate(tile.ids.ravel())))}
    moved = []
    for number in range(count, tile.numbers):
        row, place = tally.codes[number], first[number]
        in_still_row = bool(tile.is_still[place // tile.ids.shape[1]])
        steady_code = int(np.argmax(row)) if in_still_row else int(tile.codes.ravel()[place])
        if row.sum() != row[steady_code]:
            x = float(as_floats(tile.x.ravel()[place : place + 1], task.source)[0])
            codes = ", ".join(f"{code_text(task, c)} {row[c]} times" for c in np.flatnonzero(row).tolist())
            moved.append(
                f"{describe.plain(x)} becomes {codes}; this number has one right code, so rounding must not be random."
            )
    if moved:
        text = f"{len(moved)} of {tile.numbers - count} numbers with one right code become different codes."
        add_problem(report, "Moved", text)
    for text in moved[:3]:
        add_problem(report, "Moved", text)
    rows = np.flatnonzero(tile.is_still)
    scales = tally.scales[rows]
    steady = (np.count_nonzero(tally.codes[tile.ids[rows]], axis=2) <= 1).all(axis=1)
    if task.has_scales:
        wavering = np.count_nonzero(scales, axis=1) > 1
        if wavering.any():
            block = describe.block_text(task, tile.x[rows[int(np.argmax(wavering))]])
            add_problem(report, "Scales", f"The same block gets different scales: {block}.")
        strange = scales[:, NO_CODE] > 0
        if strange.any():
            block = describe.block_text(task, tile.x[rows[int(np.argmax(strange))]])
            add_problem(report, "Scales", f"The scale of a block is not a code of {task.scale_bits} bits: {block}.")
        steady &= ~wavering & ~strange & (scales[:, OTHERS] == 0)
    answers = {task.outputs[-1].name: tally.codes[tile.ids[rows[steady]]].argmax(axis=2)}
    if task.has_scales:
        answers["scale"] = tally.scale_codes(scales[steady].argmax(axis=1))[:, None]
    inputs = inputs_of(task, tile.x[rows[steady]])
    verdicts = judge(task, inputs, answers).verdicts
    for name, bit in LABELS.items():
        add_choice(report, name, int(((verdicts & (BUG | bit)) == bit).sum()), profile)
    want = expected(task, inputs)
    wrong = np.flatnonzero(verdicts & BUG)
    if "Scales" in report.problems:  # wrong scales are reported already
        wrong = wrong[(answers["scale"] == want["scale"])[wrong, 0]]
    if wrong.size:
        add_problem(report, STAYS, f"{wrong.size} of {len(verdicts)} cases with one right answer got a wrong answer.")
    for row in wrong[:3].tolist():
        one = ({key: column[row] for key, column in columns.items()} for columns in (inputs, answers, want))
        add_problem(report, STAYS, difference(task, *one))


def difference(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    """Return a sentence about a wrong answer to a number or block with one right answer."""
    x, name = inputs["x"], task.outputs[-1].name
    where = describe.block_text(task, x) if len(x) > 1 else describe.plain(float(as_floats(x, task.source)[0]))
    if "scale" in got and got["scale"][0] != want["scale"][0]:
        return f"{where}: got scale 0x{got['scale'][0]:02X}, want 0x{want['scale'][0]:02X}."
    place = int(np.argmax(got[name] != want[name]))
    codes = (code_text(task, int(column[name][place])) for column in (got, want))
    element = f"element {place} " if len(x) > 1 else ""
    return f"{where}: {element}got {', want '.join(codes)}."


#: Seeds that differ in each of 31 bits. Some of them become equal if a kernel converts seeds to
#: float32.
SEEDS = (1, 2, *(1 | 1 << bit for bit in range(1, 31)), 2 | 1 << 30)
#: Number of draws with each seed in `SEEDS`.
UNDER_EACH_SEED = 4096
#: A call that tests whether draws are independent has at least this many elements.
AT_LEAST = 1 << 14
#: A case from `chances` is drawn this many times as often as a case from `survey`.
SURVEYED = 64
#: Number of draws of each case if the kernel's probabilities are not judged. A case from `survey`
#: always has at least this many draws.
FEW = 4096


class Trial:
    """Calls one kernel repeatedly, and collects problems in a report."""

    def __init__(
        self, implementation: Implementation, task: Task, sr_bits: int | None, seeded: bool, rng: Generator
    ) -> None:
        self.implementation, self.task, self.seeded, self.rng = implementation, task, seeded, rng
        self.reach = largest_quotient(task)
        self.report = StochasticReport(task, sr_bits)
        self._seed = 0

    def run(self, bias: float, power: float, false_alarm: float, profile: Profile) -> StochasticReport:
        """Run all tests and return the report.

        The kernel's probabilities are judged only if draws are independent, because counts of
        dependent draws prove nothing.
        """
        report, task = self.report, self.task
        precise = chances(task, self.rng, bias, self.reach)
        wide = survey(task, self.rng, self.reach)
        report.cases = len(precise) + len(wide)
        levels = Levels.of(false_alarm / 3, report.cases)
        p = sorted({chance.probability(report.sr_bits) for chance in precise})
        draws = statistics.draws_for(bias, power, levels.case)
        while min(statistics.weakest(draws, each, bias, levels.case) for each in p) < power:
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
                f"If a number with one right code gets another code once in {round(-looks / np.log(1 - power))} draws, "
                f"the test finds the error with probability {power:g}."
            )
        report.guarantees.append(
            f"A right kernel fails this check with a probability of at most 1/{round(1 / false_alarm)}."
        )
        return report

    def call(self, tally: Tally, seed: int | None = None) -> Columns:
        """Call the kernel once, with the next seed by default, and return its answers."""
        self.report.calls += 1
        self._seed = self._seed + 1 if seed is None else self._seed
        return tally.draw((self._seed if seed is None else seed) if self.seeded else None)

    def independence(self, length: int, power: float, level: float) -> bool:
        """Return True if equal seeds give equal answers, and all other draws are independent.

        The method adds problems to the report. Draws that repeat after a long period are a problem,
        but still count as independent, because their probabilities can be judged.
        """
        length = min(max(length, AT_LEAST), ELEMENTS)
        before = len(self.report.problems)
        half = self.constantly(0.5, length)
        level /= statistics.comparisons(half.ids.size) + len(SEEDS) * (len(SEEDS) - 1) // 2
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
        for sentence in statistics.same_answers(calls, names):
            add_problem(self.report, between, sentence)
        quarters = []
        if self.report.sr_bits != 1:
            quarter = self.constantly(0.25, length)
            quarters = [ways(quarter, self.call(quarter)) for _ in range(2)]
        block = self.task.block if self.task.has_scales else 0
        found = statistics.echoes(halves, quarters, level)
        within = [echo for echo in found if not echo.calls]
        if within and (size := statistics.groups(halves[0], block)) > 1:
            add_problem(
                self.report,
                "Dependent draws",
                f"Within each group of {size} adjacent elements, all round in the same direction.",
            )
        # If the draws within a call depend on each other, or two calls give equal answers, a
        # comparison of calls finds nothing new.
        if period := statistics.period(within):
            text = f"The draws repeat with a period of {period} elements."
            add_problem(self.report, "Dependent draws", text)
            return len(self.report.problems) == before + 1
        told = within or len(self.report.problems) > before
        for echo in (within if told else found)[:3]:
            add_problem(self.report, "Dependent draws", echo.text(block))
        for sentence in [] if told else statistics.likeness(calls, names, level):
            add_problem(self.report, between, sentence)
        reach = half.ids.size // 2
        pairs = int(reach * (length / half.ids.size) ** 2)  # leave out pairs with a number that only sets a scale
        rho = statistics.smallest_correlation(pairs, power, level)
        self.report.guarantees.append(
            f"With probability {power:g}, the test finds a correlation of {rho:.2g} between elements at a fixed "
            f"distance of at most {reach}, in one call or in two successive calls."
        )
        return len(self.report.problems) == before

    def constantly(self, delta: float, length: int) -> Tally:
        """Return a `Tally` whose calls round at least `length` copies of one number.

        The number lies at the fraction `delta` of the gap between its two neighbours.
        """
        tile = constant_tile(self.task, constant(self.task, delta, self.reach), self.rng)
        return Tally(self.implementation, tile, -(-length // int(tile.shares[0])), self.rng)

    def tally(self, cases: list[Chance], draws: int) -> Tally:
        """Draw each case at least `draws` times, in two or more calls, and return the counts."""
        tile = make_tile(self.task, cases, self.rng)
        copies = -(-draws // int(tile.shares.min()))
        calls = max(2, -(-copies * tile.x.size // ELEMENTS))
        tally = Tally(self.implementation, tile, -(-copies // calls), self.rng)
        for _ in range(calls):
            self.call(tally)
        self.report.draws += int(tally.codes[: len(cases)].sum())
        return tally

    def still_drawing(self, tallies: list[Tally]) -> bool:
        """Return True if the kernel rounds randomly; otherwise add a problem to the report.

        If a deterministic rounding mode gives the same codes, the problem names the mode.
        """
        tables = [tally.codes[: len(tally.tile.chances)] for tally in tallies]
        certain = [c.probability(self.report.sr_bits) in (0, 1) for tally in tallies for c in tally.tile.chances]
        if not any(table.any() for table in tables):
            add_problem(self.report, "Scales", "No block has the right scale, so no codes are judged.")
            return False
        if all(certain) or not all(((table > 0).sum(axis=1) <= 1).all() for table in tables):
            return True
        alike = [f"rounding {mode}" for mode in Rounding if not mode.is_stochastic and self.gives(tallies, mode)]
        text = "Every number becomes the same code in all calls"
        self.report.problems = {about: of for about, of in self.report.problems.items() if about not in DRAWING}
        add_problem(self.report, "Nothing is drawn", f"{text}{', as with ' + alike[0] if alike else ''}.")
        return False

    def gives(self, tallies: list[Tally], mode: Rounding) -> bool:
        """Return True if `mode`, a deterministic rounding mode, gives the codes of all cases."""
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
        """Judge how often the kernel rounds each case away from zero; add results to the report."""
        cases = [chance for tally in tallies for chance in tally.tile.chances]
        tables = np.concatenate([tally.codes[: len(tally.tile.chances)] for tally in tallies])
        every = np.arange(len(cases))
        ups, downs = (tables[every, [getattr(c, side) for c in cases]] for side in ("above", "below"))
        found = Shares(cases, ups + downs, ups)
        wrong = problems(self.task, found, self.report.sr_bits, levels)
        if wrong and "sr_fraction" in profile.accepted and self.report.sr_bits is not None:
            nearest = found.probabilities(self.report.sr_bits, NEAREST)
            wrong = [] if found.fits(nearest, levels) else wrong
        for text in wrong:
            add_problem(self.report, "Shares", text)
        self.report.fits = explanations(found, self.report.sr_bits, levels)
        self.report.guarantees += found.guarantees(
            self.report.sr_bits, len(tallies[0].tile.chances), levels, bias, power
        )


#: The topics of problems that a report omits if the kernel does not round randomly.
DRAWING = ("Not repeatable", "Seeds", "Calls", "Dependent draws", "Shares")


def ways(tally: Tally, answers: Columns) -> Array:
    """Return 1 for each number rounded away from zero, and -1 for each number rounded toward zero.

    The result is 0 for numbers with one right code, and for numbers in blocks with a wrong scale.
    """
    tile = tally.tile
    chance, codes = tile.chances[0], answers[tile.task.outputs[-1].name]
    drawn = tally.ids == 0
    if "scale" in answers:
        drawn &= answers["scale"] == tile.scales[tally.rows][:, None]
    found: Array = np.where(drawn, (codes == chance.above).astype(np.int8) - (codes == chance.below), 0).ravel()
    return found

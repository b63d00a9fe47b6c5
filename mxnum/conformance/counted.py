"""The parts of stochastic rounding that are not random: scales, which codes may occur, and exact numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxnum import errors
from mxnum.conformance import words
from mxnum.conformance.chances import Chance
from mxnum.conformance.expected import as_floats, expected
from mxnum.conformance.judge import BUG, LABELS, judge
from mxnum.conformance.outcome import StochasticReport, add_choice, add_problem
from mxnum.conformance.report import Profile
from mxnum.conformance.task import Columns, Task
from mxnum.conformance.tiles import NO_CODE, OTHERS, Tally, inputs_of
from mxnum.definition.by_numpy import looks_at_elements
from mxnum.modes import scale_rules

#: The heading of the problems in cases where nothing is drawn.
STAYS = "Nothing to draw"


def judge_scales(report: StochasticReport, tally: Tally) -> None:
    """Judge the scales of the blocks in which something is drawn, and add problems to the report."""
    tile, task = tally.tile, tally.tile.task
    if task.operation == "encode":
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
    x = words.block_text(task, tile.x[drawn[row]])
    want = tile.scales[drawn[row]]
    text = f"{int(wrong.sum())} of {int(got.sum())} blocks, e.g. {x}: got {codes}, want 0x{want:02X}."
    add_problem(report, "Scales", text)
    if (np.count_nonzero(got, axis=1) > 1).any():
        add_problem(
            report, "Scales", "The same block gets different scales: they are drawn, or depend on other blocks."
        )
    rules = []
    for rule in scale_rules(task.format):
        if looks_at_elements(rule):
            continue
        other = expected(replace(task, operation="scale", scale_rule=rule), inputs_of(task, tile.x))["scale"][:, 0]
        if (tally.times(drawn, other[drawn]) == got.sum(axis=1)).all():
            rules.append(rule)
    if rules:
        add_problem(report, "Scales", f"They are what scale rule {errors.joined(rules)} gives.")


def judge_codes(report: StochasticReport, tally: Tally, profile: Profile) -> None:
    """Judge that each number that is drawn for becomes one of its two neighbouring codes."""
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
            seen = ", ".join(f"{chance.code_text(task, code)} {row[code]} times" for code in others[:3])
            strange.append(f"{chance.text(task)}: got {seen} of {row.sum()}, which is neither.")
    if strange:
        text = f"{len(strange)} of {len(tile.chances)} numbers become codes that are not next to them."
        add_problem(report, "Codes", text)
    for text in strange[:3]:
        add_problem(report, "Codes", text)
    if lost and kept:
        text = f"Negative numbers that become zero lose their sign {lost} times and keep it {kept} times."
        add_problem(report, "Codes", text)
    else:
        add_choice(report, "minus_zero", lost, profile)


def judge_what_stays(report: StochasticReport, tally: Tally, profile: Profile) -> None:
    """Judge zeros, representable numbers, saturated numbers and blocks of NaN: each has one right code."""
    tile, task, count = tally.tile, tally.tile.task, len(tally.tile.chances)
    first = {int(number): place for place, number in reversed(list(enumerate(tile.ids.ravel())))}
    moved = []
    for number in range(count, tile.numbers):
        row, place = tally.codes[number], first[number]
        in_still_row = bool(tile.is_still[place // tile.ids.shape[1]])
        steady_code = int(np.argmax(row)) if in_still_row else int(tile.codes.ravel()[place])
        if row.sum() != row[steady_code]:
            x = float(as_floats(tile.x.ravel()[place : place + 1], task.source)[0])
            codes = ", ".join(f"{Chance.code_text(task, c)} {row[c]} times" for c in np.flatnonzero(row).tolist())
            moved.append(f"{words.plain(x)} becomes {codes}; it has one right code, so nothing is to be drawn.")
    if moved:
        text = f"{len(moved)} of {tile.numbers - count} numbers that are not between two codes move."
        add_problem(report, "Moved", text)
    for text in moved[:3]:
        add_problem(report, "Moved", text)
    rows = np.flatnonzero(tile.is_still)
    scales = tally.scales[rows]
    steady = (np.count_nonzero(tally.codes[tile.ids[rows]], axis=2) <= 1).all(axis=1)
    if task.operation == "quantize":
        wavering = np.count_nonzero(scales, axis=1) > 1
        if wavering.any():
            block = words.block_text(task, tile.x[rows[int(np.argmax(wavering))]])
            add_problem(report, "Scales", f"The same block gets different scales: {block}.")
        strange = scales[:, NO_CODE] > 0
        if strange.any():
            block = words.block_text(task, tile.x[rows[int(np.argmax(strange))]])
            add_problem(
                report, "Scales", f"A block gets something that is not a code of {task.scale_bits} bits: {block}."
            )
        steady &= ~wavering & ~strange & (scales[:, OTHERS] == 0)
    answers = {task.outputs[-1].name: tally.codes[tile.ids[rows[steady]]].argmax(axis=2)}
    if task.operation == "quantize":
        answers["scale"] = tally.scale_codes(scales[steady].argmax(axis=1))[:, None]
    inputs = inputs_of(task, tile.x[rows[steady]])
    verdicts = judge(task, inputs, answers, {}).verdicts
    for name, bit in LABELS.items():
        add_choice(report, name, int(((verdicts & (BUG | bit)) == bit).sum()), profile)
    want = expected(task, inputs)
    wrong = np.flatnonzero(verdicts & BUG)
    if "Scales" in report.problems:  # wrong scales are reported already
        wrong = wrong[(answers["scale"] == want["scale"])[wrong, 0]]
    if wrong.size:
        add_problem(report, STAYS, f"{wrong.size} of {len(verdicts)} cases in which nothing is to be drawn are wrong.")
    for row in wrong[:3].tolist():
        one = ({key: column[row] for key, column in columns.items()} for columns in (inputs, answers, want))
        add_problem(report, STAYS, difference(task, *one))


def difference(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    """Return what became of a number or block in which nothing is drawn, in words."""
    x, name = inputs["x"], task.outputs[-1].name
    where = words.block_text(task, x) if len(x) > 1 else words.plain(float(as_floats(x, task.source)[0]))
    if "scale" in got and got["scale"][0] != want["scale"][0]:
        return f"{where}: got scale 0x{got['scale'][0]:02X}, want 0x{want['scale'][0]:02X}."
    place = int(np.argmax(got[name] != want[name]))
    codes = (Chance.code_text(task, int(column[name][place])) for column in (got, want))
    element = f"element {place} " if len(x) > 1 else ""
    return f"{where}: {element}got {', want '.join(codes)}."

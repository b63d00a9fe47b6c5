from __future__ import annotations

import numpy as np

import mxnum as mx
from mxnum.conformance.bits import Generator
from mxnum.conformance.calling import Implementation
from mxnum.conformance.judging.report import Profile, StochasticReport
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic.chances import chances
from mxnum.conformance.stochastic.tiles import NO_CODE, Tally, counted, largest_quotient, make_tile
from mxnum.conformance.stochastic.trial import judge_codes, judge_scales, judge_what_stays


def judged(change, operation="quantize", accept=None, **modes):
    """Return the report on a function that returns right codes and scales, altered by `change`."""
    task = make_task(operation, "mxfp4_e2m1", **modes)

    def function(x):
        if operation == "encode":
            return change(x, mx.encode(x, "e2m1"))
        q = mx.quantize(x, "mxfp4_e2m1")
        return change(x, q.codes, q.scales)

    tile = make_tile(task, chances(task, Generator(0), 1 / 16, largest_quotient(task)), Generator(1))
    tally, report = Tally(Implementation(function), tile, 2, Generator(2)), StochasticReport(task, None)
    for _ in range(2):
        tally.draw(None)
    judge_scales(report, tally)
    judge_codes(report, tally, Profile.of(accept))
    judge_what_stays(report, tally, Profile.of(accept))
    return report


def test_right_answers():
    assert judged(lambda x, codes, scales: (codes, scales)).is_equal


def test_choices_are_reported_and_accepted():
    def zero_scale(x, codes, scales):
        return codes, np.where((x == 0).all(axis=1)[:, None], np.uint8(127), scales)

    report = judged(zero_scale)
    assert (report.problems, report.choices) == ({}, {"zero_scale": 2})
    assert judged(zero_scale, accept="zero_scale").is_equal


def test_infinity_that_does_not_saturate_is_named():
    def flips(x, codes):
        return np.where(np.isinf(x), codes ^ 1, codes)

    report = judged(flips, "encode")
    assert report.problems == {
        "Nothing to draw": [
            "2 of 36 cases with one right answer got a wrong answer.",
            "inf: got 4 (0x6), want 6 (0x7).",
            "-inf: got -4 (0xE), want -6 (0xF).",
        ]
    }


def test_a_wrong_code_in_a_block():
    def flips(x, codes, scales):
        codes[(codes == 7) & (scales == 127)] = 6
        return codes, scales

    report = judged(flips)
    assert set(report.problems) == {"Nothing to draw", "Moved"}
    assert "element 7 got 4 (0x6), want 6 (0x7)" in report.problems["Nothing to draw"][1]


def test_wrong_scales_are_reported_once():
    report = judged(lambda x, codes, scales: (codes, np.where(scales < 250, scales + 1, scales).astype(np.uint8)))
    assert set(report.problems) == {"Scales"}


def test_answers_that_are_not_codes_are_reported():
    """Check that the report names answers that are not codes, whatever their integer type."""
    assert counted(np.array([-1, 0, 15, 16, 300]), 4).tolist() == [NO_CODE, 0, 15, NO_CODE, NO_CODE]
    # Regression: in an array of bytes, 200 was counted as the code 1 instead of as `NO_CODE` (257),
    # because numpy before 2.5 stores 257 as 1 in such an array.
    assert counted(np.array([200, 15], np.uint8), 4).tolist() == [NO_CODE, 15]
    task = make_task("encode", "mxfp4_e2m1")
    tile = make_tile(task, chances(task, Generator(0), 1 / 16), Generator(1))
    tally, report = (
        Tally(Implementation(lambda x: mx.encode(x, "e2m1")), tile, 1, Generator(2)),
        StochasticReport(task, None),
    )
    tally.draw(None)
    still = int(tile.ids[tile.is_still][5, 0])
    for number in (0, still):
        tally.codes[number] = 0
        tally.codes[number, NO_CODE] = 8
    judge_codes(report, tally, Profile.of(None))
    judge_what_stays(report, tally, Profile.of(None))
    assert "got a value that is no code of 4 bits 8 times in 8 draws, but" in report.problems["Codes"][1]
    assert "got a value that is no code of 4 bits, want" in report.problems["Nothing to draw"][1]


def test_scale_that_is_not_a_code_is_reported():
    def kernel(x):
        q = mx.quantize(x, "mxfp4_e2m1")
        return q.codes, q.scales

    task = make_task("quantize", "mxfp4_e2m1")
    tile = make_tile(task, chances(task, Generator(0), 1 / 16, largest_quotient(task)), Generator(1))
    tally, report = Tally(Implementation(kernel), tile, 1, Generator(2)), StochasticReport(task, None)
    tally.draw(None)
    for row in (0, len(tile.x) - 1):
        tally.scales[row] = 0
        tally.scales[row, NO_CODE] = 1
    judge_scales(report, tally)
    judge_what_stays(report, tally, Profile.of(None))
    assert "got no code (1 times), want 0x7F" in report.problems["Scales"][0]
    assert "is not a code of 8 bits" in report.problems["Scales"][1]

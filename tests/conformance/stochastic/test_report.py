from __future__ import annotations

from mxnum.conformance.judging.report import Profile, StochasticReport, add_choice, add_problem
from mxnum.conformance.operations import make_task


def test_report_text_has_all_parts():
    report = StochasticReport(make_task("encode", "mxfp4_e2m1"), 8, calls=3, draws=1000, cases=4)
    assert report.text() == (
        "encode, mxfp4_e2m1, stochastic rounding by 8 random bits: 1000 draws for 4 cases in 3 calls, right."
    )
    add_problem(report, "Shares", "One.")
    add_problem(report, "Shares", "Two.")
    add_choice(report, "minus_zero", 3, Profile.of(None))
    add_choice(report, "overflow", 3, Profile.of("overflow"))
    report.fits, report.guarantees = ["this", "that"], ["Seen."]
    assert report.text().splitlines()[1:] == [
        "Shares: One.",
        "  Two.",
        "Choice minus_zero (3 numbers): a negative number that rounds to zero loses its sign.",
        "The observed shares of results rounded away from zero fit this, or that.",
        "Seen.",
    ]
    assert not report.conforms
    facts = report.as_dict()
    assert (facts["problems"], facts["sr_bits"], facts["rounding"]) == ({"Shares": ["One.", "Two."]}, "8", "sr")

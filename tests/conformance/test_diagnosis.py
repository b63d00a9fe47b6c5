from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxnum.conformance import diagnosis
from mxnum.conformance.cases import cases
from mxnum.conformance.diagnosis import Diagnosis, Explanation
from mxnum.conformance.expected import expected
from mxnum.conformance.judge import LABELS, judge
from mxnum.conformance.task import make_task
from mxnum.modes import Rounding

TASK = make_task("encode", "mxfp4_e2m1")


def diagnosed(batches, steady=tuple(LABELS)):
    found = Diagnosis(TASK)
    for inputs, answers in batches:
        found.add(inputs, answers, judge(TASK, inputs, answers, {}).labels)
    return found.explanations(steady, ())


def halves(rounding):
    """The cases in two batches, and the answers of a rounding."""
    inputs = next(cases(TASK))
    answers = expected(replace(TASK, rounding=rounding), inputs)
    for rows in (slice(0, 3000), slice(3000, None)):
        yield {"x": inputs["x"][rows]}, {"code": answers["code"][rows].copy()}


def test_a_hypothesis_explains_every_batch_or_is_not_named(monkeypatch):
    (found,) = diagnosed(halves(Rounding.RNA))
    assert (found.names, found.wrong, found.right) == (("rounding rna",), 8, 5576)
    (early, late) = halves(Rounding.RNA)
    late[1]["code"][-1] ^= 1
    assert diagnosed([early, late]) == []
    assert diagnosed([late, early]) == []
    # A right batch that comes before the first wrong one contradicts as well.
    right_first = expected(TASK, early[0])
    assert diagnosed([(early[0], right_first), tuple(halves(Rounding.RNA))[1]]) == []
    monkeypatch.setattr(diagnosis, "KEPT", 0)
    (found,) = diagnosed([(early[0], right_first), tuple(halves(Rounding.RNA))[1]])
    assert found.right < 3000  # what was not kept is not said to be explained


def test_what_differs_by_a_choice_is_forgiven_if_the_choice_is_steady():
    def without_minus_zero(rounding):
        for inputs, answers in halves(rounding):
            yield inputs, {"code": np.where(answers["code"] == 8, 0, answers["code"])}

    assert diagnosed(without_minus_zero(Rounding.RTZ))[0].names[0] == "rounding rtz"
    assert diagnosed(without_minus_zero(Rounding.RTZ), set(LABELS) - {"minus_zero"}) == []
    first, _ = without_minus_zero(Rounding.RTZ)
    assert diagnosed([first, tuple(halves(Rounding.RTZ))[1]]) == []  # lost in the one, kept in the other


def test_sentences():
    one = Explanation("codes", ("rounding rna", "a", "b", "c", "d"), 3, 4)
    assert one.sentence() == (
        "All 3 blocks of wrong codes are, for the scales answered, what rounding rna gives (a or b or c would give the "
        "same), and so are the right codes of 4 blocks (those of NaN or with a wrong scale are not counted)."
    )
    assert "wrong codes are, at scales that are right, what x" in Explanation("codes", ("x",), 1, 0, False).claim
    assert Explanation("scale", ("x",), 1, 0).sentence() == "All 1 wrong scales are what x gives."
    assert "are the right codes of" in Explanation("code", ("the right codes of",), 2, 0).claim

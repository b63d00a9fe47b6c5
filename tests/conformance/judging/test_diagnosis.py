from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxnum.conformance.cases.batches import cases
from mxnum.conformance.cases.grid import PLACES
from mxnum.conformance.judging import diagnosis
from mxnum.conformance.judging.diagnosis import Diagnosis, Explanation, _joined
from mxnum.conformance.judging.judge import LABELS, judge
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import make_task
from mxnum.modes import Rounding

TASK = make_task("encode", "mxfp4_e2m1")


def diagnosed(batches, steady=tuple(LABELS), of_classes=False):
    """Return the explanations of all cases together, or of classes of cases if `of_classes`."""
    found = Diagnosis(TASK)
    for inputs, answers in batches:
        found.add(inputs, answers, judge(TASK, inputs, answers).labels)
    return [one for one in found.explanations(steady, ()) if bool(one.classes) == of_classes]


def halves(rounding):
    """Yield the cases in two batches, answered with `rounding` instead of the task's mode."""
    inputs = next(cases(TASK))
    answers = expected(replace(TASK, rounding=rounding), inputs)
    for rows in (slice(0, 3000), slice(3000, None)):
        yield {"x": inputs["x"][rows]}, {"code": answers["code"][rows].copy()}


def test_a_hypothesis_explains_every_batch_or_is_not_named(monkeypatch):
    (found,) = diagnosed(halves(Rounding.RNA))
    assert (found.names, found.wrong, found.right) == (("rounding rna",), 8, 5632)
    (early, late) = halves(Rounding.RNA)
    late[1]["code"][-1] ^= 1
    assert diagnosed([early, late]) == []
    assert diagnosed([late, early]) == []
    # The right answers of an earlier batch also contradict the hypothesis "rounding rna".
    right_first = expected(TASK, early[0])
    assert diagnosed([(early[0], right_first), tuple(halves(Rounding.RNA))[1]]) == []
    monkeypatch.setattr(diagnosis, "KEPT", 0)
    (found,) = diagnosed([(early[0], right_first), tuple(halves(Rounding.RNA))[1]])
    assert found.right < 3000  # answers in discarded batches do not count as explained


def test_consistent_choice_does_not_contradict_a_hypothesis():
    def without_minus_zero(rounding):
        for inputs, answers in halves(rounding):
            yield inputs, {"code": np.where(answers["code"] == 8, 0, answers["code"])}

    assert diagnosed(without_minus_zero(Rounding.RTZ))[0].names[0] == "rounding rtz"
    assert diagnosed(without_minus_zero(Rounding.RTZ), set(LABELS) - {"minus_zero"}) == []
    first, _ = without_minus_zero(Rounding.RTZ)
    # The first batch loses the sign of -0, and the second batch keeps the sign.
    assert diagnosed([first, tuple(halves(Rounding.RTZ))[1]]) == []


def test_two_mistakes_at_once_are_named(monkeypatch):
    """Check that the explanation of a kernel with two mistakes names both."""

    def both():
        for inputs, answers in halves(Rounding.RNA):
            yield inputs, {"code": np.where(answers["code"] & 7 < 2, answers["code"] & 8, answers["code"])}

    (found,) = diagnosed(both())
    assert found.names == ("flushing subnormal results to zero under rounding rna",)
    assert found.wrong + found.right == 5640
    early, late = both()
    late[1]["code"][-1] ^= 1
    assert diagnosed([early, late]) == []
    # The limit on stored bytes is smaller than the first batch, so some cases are not stored.
    monkeypatch.setattr(diagnosis, "KEPT", 1 << 16)
    assert diagnosed(both()) == []


def test_classes_of_cases_are_explained_separately():
    """Check that one mistake in ties and another in small numbers are explained separately."""
    inputs = next(cases(TASK))
    want, away = expected(TASK, inputs)["code"], expected(replace(TASK, rounding=Rounding.RNA), inputs)["code"]
    of_class = TASK.operation.classify(TASK, inputs, {"code": want})
    tie, small, beyond = (of_class == PLACES.index(name) for name in ("tie", "subnormal result", "beyond the largest"))
    code = np.where(tie[:, None], away, np.where(small[:, None] & (want & 7 < 2), want & 8, want))
    code[np.flatnonzero(beyond)[7]] ^= 1
    # The infinities that lose their sign here are too few for the report to name a cause.
    code[of_class == PLACES.index("infinity")] = 7
    found = {one.classes: one for one in diagnosed([(inputs, {"code": code})], of_classes=True)}
    assert found[("tie",)].names[0] == "rounding rna"
    assert (found[("tie",)].wrong, found[("tie",)].right) == (8, int(tie.sum()) - 8)
    assert found[("subnormal result",)].names[0] == "flushing subnormal results to zero"
    assert len(found) == 2
    code[np.flatnonzero(tie & (code == want)[:, 0])[0]] ^= 1  # make one right answer to a tie wrong
    assert [one.classes for one in diagnosed([(inputs, {"code": code})], of_classes=True)] == [("subnormal result",)]


def test_classes_with_a_common_hypothesis_share_an_explanation():
    one, two, other = (Explanation("codes", names, 2, 3) for names in (("x", "a"), ("b", "a"), ("x",)))
    (found,) = _joined({"one": one, "two": two})
    assert (found.names, found.wrong, found.right, found.classes) == (("a",), 4, 6, ("one", "two"))
    assert "4 blocks of wrong codes in the classes 'one', 'two' are, given the scales in the answers" in found.claim
    last = replace(other, wrong=9, at_any_scale=False)
    assert [(e.names, e.classes, e.at_any_scale) for e in _joined({"one": one, "two": two, "last": last})] == [
        (("x",), ("one", "last"), False),
        (("b", "a"), ("two",), True),
    ]


def test_sentences():
    one = Explanation("codes", ("rounding rna", "a", "b", "c", "d"), 3, 4)
    assert one.sentence() == (
        "All 3 blocks of wrong codes are, given the scales in the answers, what rounding rna gives (a or b or c would "
        "give the same), and so are the right codes of 4 blocks (blocks that are NaN or have a wrong scale are left "
        "out)."
    )
    assert "wrong codes are, where the scale is right, what x" in Explanation("codes", ("x",), 1, 0, False).claim
    assert Explanation("scale", ("x",), 1, 0).sentence() == "All 1 wrong scales are what x gives."
    assert "are the right codes of" in Explanation("code", ("the right codes of",), 2, 0).claim

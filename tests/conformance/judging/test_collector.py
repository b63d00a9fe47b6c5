from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum.conformance.bits import as_floats
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.cases.grid import PLACES
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.judge import CHOICES
from mxnum.conformance.judging.report import Profile
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import make_task
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule


def report(task, answer, accept=None, **options):
    judge = Collector(task, Profile.of(accept))
    for inputs in cases(task, **options):
        judge.add(inputs, answer(inputs))
    return judge.report()


@pytest.mark.parametrize(
    ("operation", "claimed", "does", "name"),
    [
        ("encode", {}, {"rounding": Rounding.RNA}, "rounding rna"),
        ("encode", {}, {"rounding": Rounding.RTZ}, "rounding rtz"),
        ("quantize", {}, {"scale_rule": ScaleRule.EVEN}, "scale rule even"),
        ("scale", {"scale_rule": "rceil"}, {"scale_rule": ScaleRule.CEIL}, "scale rule ceil"),
    ],
)
def test_another_mode_is_recognized(operation, claimed, does, name):
    task = make_task(operation, "mxfp4_e2m1", **claimed)
    got = report(task, lambda inputs: expected(replace(task, **does), inputs))
    assert not got.conforms
    assert [explanation.names[0] for explanation in got.explanations] == [name]
    assert sum(explanation.wrong for explanation in got.explanations) == got.bugs
    assert f"what {name} gives" in got.text()
    assert got.as_dict()["conforms"] is False


def test_flushed_subnormals_are_recognized():
    task = make_task("encode", "mxfp8_e4m3")

    def answer(inputs):
        code = expected(task, inputs)["code"]
        return {"code": np.where((code & 0x7F) < 8, code & 0x80, code)}

    assert report(task, answer).explanations[0].names[0] == "flushing subnormal results to zero"


def test_fewer_random_bits_are_a_choice():
    task = make_task("encode", "mxfp8_e4m3", rounding="sr", sr_bits=8)

    def with_five(inputs):
        return expected(replace(task, sr_bits=5), inputs)

    got = report(task, with_five)
    assert got.conforms
    assert list(got.choices) == ["sr_bits (5)"]
    assert report(task, with_five, accept="sr_bits").is_equal
    wrong = report(task, lambda inputs: {"code": expected(task, inputs)["code"] ^ (inputs["random"] % 97 == 0)})
    assert not wrong.conforms
    # A kernel may use fewer random bits in all cases. A kernel that uses fewer random bits in only
    # one class of cases is wrong.
    fewer = replace(task, sr_bits=5)

    def in_a_class(inputs):
        want, other = expected(task, inputs)["code"], expected(fewer, inputs)["code"]
        small = task.operation.classify(task, inputs, {"code": want}) == PLACES.index("subnormal result")
        return {"code": np.where(small[:, None], other, want)}

    partly = report(task, in_a_class)
    assert not partly.conforms
    assert "in the class 'subnormal result' are what sr_bits (5) gives" in partly.text()


def test_choice_made_in_some_cases_only_is_a_bug():
    task = make_task("encode", "mxfp8_e5m2")
    ieee = replace(task, overflow=Overflow.IEEE)
    got = report(task, lambda inputs: expected(ieee, inputs))
    assert got.conforms
    assert not got.is_equal
    assert set(got.choices) == {"overflow", "infinity"}

    def only_positive(inputs):
        return {"code": np.where(inputs["x"] >> 31, expected(task, inputs)["code"], expected(ieee, inputs)["code"])}

    got = report(task, only_positive)
    assert got.bugs > 1000
    assert set(got.inconsistent) == {"overflow", "infinity"}
    assert "answers follow the choice overflow, but" in got.text()
    assert got.failures
    assert sum(wrong for _, wrong in got.classes.values()) == got.bugs


def test_accept_lists_permitted_choices():
    task = make_task("encode", "mxfp8_e5m2")
    ieee = replace(task, overflow=Overflow.IEEE)
    for accept, left in ((["overflow"], {"infinity"}), ("all", set()), (["overflow", "infinity"], set())):
        got = report(task, lambda inputs: expected(ieee, inputs), accept=accept)
        assert set(got.choices) == left
        assert got.is_equal == (not left)
    assert Profile.of("all").accepted == set(CHOICES)
    with pytest.raises(ValueError, match="'accept' must be one of"):
        Profile.of(["overflw"])


def test_counts_add_up():
    task = make_task("quantize", "mxfp8_e4m3")

    def answer(inputs):
        with np.errstate(all="ignore"):
            log = np.floor(np.log2(np.abs(as_floats(inputs["x"], task.source)).max(axis=1)))
        want = expected(task, inputs)
        usable = np.isfinite(log) & (log > -110)
        scale = np.where(usable, np.where(usable, log, 0) - 8 + 127, want["scale"][:, 0])
        return {**want, "scale": scale.astype(np.uint8)[:, None]}

    got = report(task, answer)
    assert got.cases == sum(cases for cases, _ in got.classes.values())
    assert got.bugs == sum(bugs for _, bugs in got.classes.values()) > 0
    assert len(got.failures) == 5
    assert "1 too high" in got.text()


def test_shown_failures_differ_in_kind():
    """Check that the report shows failures of different kinds, not the first five similar ones."""
    task = make_task("encode", "mxfp4_e2m1")
    got = report(task, lambda inputs: {"code": expected(task, inputs)["code"] ^ 1})
    assert len({case.part for case in got.failures}) == 5
    assert {int(case.inputs["x"][0, 0]) >> 31 for case in got.failures} == {0, 1}
    assert "Wrong by sign: +: 2824, -: 2824" in got.text()
    assert "Wrong by exponent: 2^-149 to 2^127: 5636" in got.text()


def test_hypothesis_that_right_answers_contradict_is_not_named():
    task = make_task("scale", "mxfp4_e2m1", scale_rule="rceil")
    ceil = replace(task, scale_rule=ScaleRule.CEIL)

    def nearly(inputs):
        want, other = expected(task, inputs)["scale"], expected(ceil, inputs)["scale"]
        kept = np.arange(len(want)) == np.argmax((want != other)[:, 0])
        return {"scale": np.where(kept[:, None], want, other)}

    got = report(task, nearly)
    assert got.bugs > 1000
    assert got.explanations == []


def test_results_of_nan_are_counted():
    task = make_task("quantize", "mxfp4_e2m1")
    by_element = {"nonfinite": Nonfinite.ELEMENT}

    def answer(code_of_nan):
        def answered(inputs):
            x = as_floats(inputs["x"], task.source)
            nan = np.isnan(x)
            finite = {"x": np.where(nan, 0, inputs["x"])}
            want = expected(replace(task, **by_element), finite)
            return {**want, "codes": np.where(nan, np.where(np.signbit(x), *code_of_nan), want["codes"])}

        return answered

    for codes, conforms in (((7, 7), True), ((15, 7), True), ((0, 8), True), ((3, 3), False), ((7, 0), False)):
        got = report(task, answer(codes))
        assert got.conforms == conforms, codes
        assert sum(got.nan_became.values()) == 292
        assert set(got.nan_became) == {f"0x{code:X}" for code in codes}
        assert conforms == any("nan_element" in name for name in got.choices)

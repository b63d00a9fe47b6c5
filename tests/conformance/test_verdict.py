from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum.conformance.cases import cases
from mxnum.conformance.expected import as_floats, expected
from mxnum.conformance.judge import CHOICES
from mxnum.conformance.task import make_task
from mxnum.conformance.verdict import Judge, Profile
from mxnum.modes import Overflow, Rounding, ScaleRule


def report(task, answer, accept=None, **options):
    judge = Judge(task, Profile.of(accept))
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
    assert [what for what, _, _ in got.explanations] == [name]
    assert all(explained == tried for _, explained, tried in got.explanations)
    assert f"are what {name} gives" in got.text()
    assert got.as_dict()["conforms"] is False


def test_flushed_subnormals_are_recognized():
    task = make_task("encode", "mxfp8_e4m3")

    def answer(inputs):
        code = expected(task, inputs)["code"]
        return {"code": np.where((code & 0x7F) < 8, code & 0x80, code)}

    assert report(task, answer).explanations[0][0] == "flushing subnormal results to zero"


def test_fewer_random_bits_are_a_choice():
    task = make_task("encode", "mxfp8_e4m3", rounding="sr", sr_bits=8)
    got = report(task, lambda inputs: expected(replace(task, sr_bits=5), inputs))
    assert got.conforms
    assert list(got.choices) == ["sr_bits (5)"]
    wrong = report(task, lambda inputs: {"code": expected(task, inputs)["code"] ^ (inputs["random"] % 97 == 0)})
    assert not wrong.conforms


def test_a_choice_is_followed_everywhere_or_it_is_a_bug():
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
    assert "answers look like the choice overflow" in got.text()
    assert got.first


def test_profiles_accept_what_is_documented():
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
    assert len(got.first) == 5
    assert "1 too high" in got.text()

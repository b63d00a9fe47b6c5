from __future__ import annotations

import json

import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check
from mxnum.conformance.judging.report import ArrayResult, Profile, Report
from mxnum.conformance.operations import make_task


def test_the_report_for_scripts_can_be_written_as_json():
    with pytest.raises(ConformanceError) as caught:
        check(lambda x: mx.encode(x, "e2m1", rounding="rna"), format="mxfp4_e2m1", operation="encode", shrink=False)
    found = json.loads(json.dumps(caught.value.report.as_dict()))
    assert found["bugs"] == 8
    assert found["explanations"] == ["All 8 wrong answers are what rounding rna gives, and so are the 5632 right ones."]
    assert len(found["failures"]) == 5
    assert "Wrong by sign: +: 4, -: 4" in found["causes"]


def test_wrong_arrays_are_listed_by_shape_and_outcome():
    results = [ArrayResult((3, 33), layout, 6, 2) for layout in ("contiguous", "part")]
    results += [ArrayResult((3, 33), "transposed", 6, 6, "ValueError: no"), ArrayResult((3, 32), "contiguous", 3, 0)]
    task = make_task("quantize", "mxfp4_e2m1")
    report = Report(task, Profile(), 21, 10, {}, {}, {}, {}, [], {}, {}, [], [], {}, results, ["so"])
    lines = report.text().splitlines()
    assert lines[0] == "quantize, mxfp4_e2m1: 21 blocks in 4 arrays, 11 right, 0 by choice, 10 wrong."
    assert lines[1:] == [
        "Wrong in 3 of 4 arrays, right in the others:",
        "  shape (3, 33), contiguous, part: 2 of 6 wrong",
        "  shape (3, 33), transposed: ValueError: no",
        "All answers of the right shape and type are right if so.",
    ]

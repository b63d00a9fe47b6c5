from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check
from mxnum.conformance.judging.collector import Groups, mistaken
from mxnum.conformance.judging.judge import BUG, UNJUDGED
from mxnum.conformance.operations import make_task


def column(*values):
    return np.array(values, object)


def grouped(**causes):
    groups = Groups()
    arrays = {name: column(*values) for name, values in causes.items()}
    count = len(next(iter(arrays.values())))
    groups.add(arrays, np.arange(count), lambda row: row)
    return groups


def test_examples_differ_and_large_groups_come_first():
    groups = grouped(part=["tie"] * 6 + ["zero", "NaN"], sign=["+", "+", "+", "-", "+", "+", "-", "+"])
    assert groups.different(1) == [0]
    assert sorted(groups.different(3)) == [0, 6, 7]
    assert len(groups.different(9)) == 4


def test_consecutive_exponents_are_shown_as_ranges():
    groups = grouped(exponent=[1, 2, 3, 3, 9, None], sign=["+", "-", "+", "+", "+", "+"], part=["tie"] * 6)
    assert groups.lines(32) == ["Wrong by exponent: 2^1 to 2^3: 4, 2^9: 1", "Wrong by sign: +: 5, -: 1"]
    groups.places.update([31, 31])
    assert groups.lines(32)[0] == "Wrong codes by index in the block: 31: 2"
    many = grouped(**{"scale code": range(0, 40, 2)})
    assert many.lines(32)[0].endswith("0x0A: 1, elsewhere: 14")


def test_wrong_codes_are_counted_by_pair_of_wrong_and_right_code():
    task = make_task("quantize", "mxfp4_e2m1", block=6)
    x = np.array([[2, 2, 2, 3, np.nan, 2]], np.float32).view(np.uint32)
    codes = np.array([[1, 1, 4, 0x15, 3, 1]])
    labels = np.array([[BUG, BUG, 0, BUG, BUG, UNJUDGED]])
    found = mistaken(task, {"x": x}, {"scale": np.array([[127]]), "codes": codes}, {"codes": labels})
    assert found == {"0.5 (0x1) for 2 (0x4)": 2}
    groups = grouped(part=["tie"])
    groups.mistaken.update(found, **{f"{code}": 1 for code in "abcdefg"})
    assert groups.lines(6)[0] == "Wrong codes: 0.5 (0x1) for 2 (0x4): 2, a: 1, b: 1, c: 1, d: 1, e: 1, others: 2"


def test_include_adds_the_counts_of_another_group():
    groups, other = grouped(part=["tie"]), grouped(part=["zero", "zero"])
    groups.include(other)
    assert groups.counts["part"] == {"tie": 1, "zero": 2}
    assert groups.different(1) == [0]
    other.mistaken["a"] = 2
    groups.include(other)
    assert groups.mistaken == {"a": 2}


@pytest.mark.parametrize("operation", ["quantize", "scale"])
def test_maximum_that_ignores_one_index_is_named(operation):
    # Regression: the report named indices for wrong codes, but not for wrong scales.
    def kernel(x):
        seen = x.copy()
        seen[:, 14] = 0
        of_scales = mx.shared_scale(seen, "mxfp4_e2m1")
        return of_scales if operation == "scale" else (mx.quantize(x, "mxfp4_e2m1", scales=of_scales).codes, of_scales)

    with pytest.raises(ConformanceError, match=r"Wrong scales by index of the block's maximum: 14: \d+\n"):
        check(kernel, format="mxfp4_e2m1", operation=operation, shrink=False)

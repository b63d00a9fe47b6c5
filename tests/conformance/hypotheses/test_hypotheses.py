from __future__ import annotations

import re

import numpy as np
import pytest

from mxnum.conformance.cases.batches import cases
from mxnum.conformance.hypotheses import hypotheses, pairs, stuck_bits
from mxnum.conformance.judging.right import expected, right
from mxnum.conformance.operations import OPERATIONS, make_task

#: For each operation, the output fields that are still right if subnormal float32 inputs are read
#: as zero.
ALIKE = {"encode": {"code"}, "quantize": {"scale"}, "scale": {"scale"}}


# tests/conformance/operations/test_mma.py tests the operation `mma`.
@pytest.mark.parametrize("operation", sorted({*OPERATIONS} - {"mma"}))
@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "mxint8"])
def test_every_hypothesis_gives_some_wrong_answer(operation, fmt):
    task = make_task(operation, fmt)
    batches = list(cases(task))
    inputs = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    want = expected(task, inputs)
    given = {**inputs, "scale": want["scale"]} if operation == "quantize" else inputs
    same, names = set(), []
    for one in hypotheses(task):
        theirs = one.answer(task, {**given, "answered": want[one.field]})
        assert theirs.shape == want[one.field].shape, one.name
        names.append((one.field, one.name))
        if np.array_equal(theirs, want[one.field]):
            same.add((one.field, one.name))
    assert len(names) == len(set(names)) > 5
    alike = {(field, "reading subnormal inputs as zero") for field in ALIKE.get(operation, ())}
    if operation in ("quantize", "scale"):  # scales depend only on exponents, which truncation to bfloat16 keeps
        alike.add(("scale", "truncating to bfloat16 first (the upper 16 bits)"))
    assert {(field, name) for field, name in same if "other bits above" not in name} == alike


def test_codes_are_judged_at_the_scale_that_was_given():
    task = make_task("quantize", "mxfp4_e2m1")
    x = np.full((1, 32), 4, np.float32).view(np.uint32)
    assert right(task, {"x": x, "scale": np.array([[126]], np.uint8)}, "codes").tolist() == [[7] * 32]
    assert right(task, {"x": x}, "scale").tolist() == [[127]]


def test_each_bit_of_scales_and_codes_may_be_stuck():
    task = make_task("quantize", "mxfp4_e2m1")
    found = {one.name: one for one in stuck_bits(task)}
    assert len(found) == 2 * (8 + 4)
    x = np.full((1, 32), -3, np.float32).view(np.uint32)  # the right scale is 0x7E, the right codes 0xF
    inputs = {"x": x, "scale": np.array([[126]], np.uint8)}
    assert found["the right scales with bit 6 stuck at 0"].answer(task, inputs).tolist() == [[62]]
    assert found["the right scales with bit 7 stuck at 1"].answer(task, inputs).tolist() == [[254]]
    assert found["the right codes with bit 3 stuck at 0"].answer(task, inputs).tolist() == [[7] * 32]


@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "nvfp4"])
def test_pairs_of_mistakes_differ_from_single_mistakes(fmt):
    task = make_task("quantize", fmt)
    names = [(one.field, one.name) for one in pairs(task)]
    assert len(set(names)) == len(names)
    assert not set(names) & {(one.field, one.name) for one in hypotheses(task)}
    assert ("codes", "reading subnormal inputs as zero under rounding rna") in names
    assert ("codes", "the right codes of each block in reverse, after rounding rtz") in names
    assert not any(re.search("(rounding r|scale rule ).* under", name) for _, name in names)
    assert all("scale rule" in name for field, name in names if field == "scale")

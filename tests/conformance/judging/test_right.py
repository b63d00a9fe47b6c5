"""Tests that the answers that `right` computes on arrays equal those of the exact reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum import reference
from mxnum.conformance.bits import Generator, as_floats
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import OPERATIONS, make_task


def some(task, count, seed=0, **options):
    """Return random cases of a task's level 1, followed by the first cases of its level 2."""
    picked = []
    whole = next(cases(task, level=1))
    total = len(next(iter(whole.values())))
    rows = Generator(seed).integers(0, total - 1, count)
    picked.append({name: column[rows] for name, column in whole.items()})
    picked.append(next(cases(task, level=2, count=count, seed=seed)))
    return {name: np.concatenate([batch[name] for batch in picked]) for name in picked[0]}


@pytest.mark.parametrize(
    ("fmt", "modes"),
    [
        ("mxfp8_e4m3", {}),
        ("mxfp8_e5m2", {"overflow": "ieee", "rounding": "rtp"}),
        ("mxfp4_e2m1", {"rounding": "sr", "sr_bits": 5}),
        ("mxint8", {"rounding": "rto"}),
        ("mxfp4_e3m0", {"source": "bfloat16"}),
        ("e2m4:bias=-3,specials=nan", {}),
    ],
)
def test_encode(fmt, modes):
    task = make_task("encode", fmt, **modes)
    inputs = some(task, 150)
    got = expected(task, inputs)["code"][:, 0]
    for i, x in enumerate(as_floats(inputs["x"], task.source)[:, 0]):
        word = int(inputs["random"][i, 0]) if task.is_stochastic else None
        options = {"rounding": task.rounding, "overflow": task.overflow, "sr_bits": task.sr_bits}
        value = float(x)
        if np.isnan(value) and inputs["x"][i, 0] >> (task.source.bits - 1):
            value = -float("nan")
        want = reference.encode(value, task.element, random_bits=word, **options)
        if np.isnan(value):  # converting a NaN to a Python float may lose its sign
            want, got[i] = want & 0x7F, got[i] & 0x7F
        assert got[i] == want, (inputs["x"][i], word)


@pytest.mark.parametrize(
    ("fmt", "modes"),
    [
        ("mxfp8_e4m3", {}),
        ("mxfp8_e5m2", {"nonfinite": "element", "overflow": "ieee", "scale_rule": "ceil"}),
        ("mxfp4_e2m1", {"scale_rule": "even", "rounding": "sr"}),
        ("mxint8", {"scale_rule": "rceil", "source": "float64", "block": 5}),
        ("e2m4:bias=-3,specials=nan,block=7", {"scale_rule": "rceil", "nonfinite": "element"}),
    ],
)
def test_quantize_and_scale(fmt, modes):
    task = make_task("quantize", fmt, **modes)
    inputs = some(task, 40)
    got = expected(task, inputs)
    scales = expected(replace(task, operation=OPERATIONS["scale"]), {"x": inputs["x"]})["scale"]
    assert np.array_equal(scales, got["scale"])
    for i, x in enumerate(as_floats(inputs["x"], task.source)):
        want = reference.quantize(
            x, task.format, rounding=task.rounding, scale_rule=task.scale_rule, overflow=task.overflow,
            nonfinite=task.nonfinite, random_bits=inputs["random"][i] if task.is_stochastic else None,
        )  # fmt: skip
        assert got["scale"][i].tolist() == want.scales.tolist()
        known = ~np.isnan(x)  # converting a NaN to Python may lose its sign
        assert got["codes"][i][known].tolist() == want.codes[known].tolist()


@pytest.mark.parametrize("target", ["float32", "float16"])
def test_dequantize(target):
    task = make_task("dequantize", "mxfp8_e5m2", source=target)
    inputs = some(task, 200)
    got = expected(task, inputs)["value"][:, 0]
    for scale, code, bits in zip(inputs["scale"][:, 0], inputs["code"][:, 0], got, strict=True):
        assert bits == reference.decode(int(code), task.element, dtype=target, scale=int(scale))


@pytest.mark.parametrize("accumulate", ["block", "exact", "sequential"])
def test_dot(accumulate):
    task = make_task("dot", "mxfp8_e4m3", accumulate=accumulate)
    inputs = some(task, 12)
    got = expected(task, inputs)["value"][:, 0]
    for i in range(len(got)):
        a, b = (
            reference.Blocked(inputs[side][i], inputs[f"{side}_scale"][i], task.format, task.block)
            for side in ("a", "b")
        )
        want = reference.dot(a, b, accumulate=accumulate)
        assert got[i] == np.float32(want).view(np.uint32)


@pytest.mark.parametrize("fmt", ["nvfp4", "e5m2:block=4,scale=float32", "int4:block=8,scale=float16"])
@pytest.mark.parametrize("accumulate", ["exact", "sequential"])
def test_dot_of_blocks_with_float_scales(fmt, accumulate):
    """Check that sums equal the reference's sums of the values, which are exact in float64."""
    task = make_task("dot", fmt, accumulate=accumulate, dot_blocks=2)
    inputs = some(task, 12)
    got = expected(task, inputs)["value"][:, 0]
    scale, element = task.format.scale, np.array(task.element.values())
    with np.errstate(invalid="ignore"):  # numpy would warn about infinity times zero
        values = {
            side: element[inputs[side]]
            * np.vectorize(lambda code: scale.value(int(code)))(inputs[f"{side}_scale"]).repeat(task.block, axis=1)
            for side in ("a", "b")
        }
    specials = 0
    for row, a, b in zip(got, values["a"], values["b"], strict=True):
        want = reference.dot(a, b, accumulate=accumulate)
        specials += np.isnan(want)
        assert row == np.float32(want).view(np.uint32) or (np.isnan(want) and np.isnan(row.view(np.float32)))
    assert specials < 6

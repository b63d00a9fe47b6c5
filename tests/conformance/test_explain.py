from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.conformance import explain
from mxnum.conformance.bits import Generator
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.explain import explain_block, explain_element, explain_scale, fraction_text, number
from mxnum.conformance.operations import make_task


def bits(*values, dtype=np.float32):
    return np.array(values, dtype).view(f"u{np.dtype(dtype).itemsize}")


@pytest.mark.parametrize("rounding", mx.Rounding)
@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxfp4_e2m1", "mxint8", "mxfp4_e3m0"])
def test_steps_lead_to_the_code(fmt, rounding):
    """Check the steps of explanations; `explain_element` itself raises an error for wrong steps."""
    bits = {"sr_bits": 6} if rounding.is_stochastic else {}
    task = make_task("encode", fmt, rounding=rounding, overflow="ieee", **bits)
    batch = next(cases(task))
    for row in Generator(3).integers(0, len(batch["x"]) - 1, 60):
        word = int(batch["random"][row, 0]) if "random" in batch else 0
        step = explain_element(task, int(batch["x"][row, 0]), 127, word)
        assert step.sentence().endswith(".")
        if step.magnitude is not None:
            assert step.below.value <= step.magnitude < step.above.value
            assert step.code == reference.encode(
                step.x, task.element, rounding=rounding, overflow="ieee", random_bits=word, sr_bits=6
            )


@pytest.mark.parametrize("rule", mx.ScaleRule)
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxint4"])
def test_blocks_agree_with_the_reference(fmt, rule):
    task = make_task("quantize", fmt, scale_rule=rule)
    batch = next(cases(task))
    for row in Generator(4).integers(0, len(batch["x"]) - 1, 8):
        block = explain_block(task, batch["x"][row])
        assert len(block.elements) == 32


def test_explanation_gives_the_reason():
    task = make_task("encode", "mxfp8_e4m3")
    assert (
        "a tie, which rne rounds to the even code, here the one nearer zero"
        in explain_element(task, int(bits(17)[0])).rule
    )
    assert (
        "a tie, which rne rounds to the even code, here the one away from zero"
        in explain_element(task, int(bits(19)[0])).rule
    )
    assert "is beyond the largest, 448: it saturates" in explain_element(task, int(bits(500)[0])).rule
    rceil = make_task("scale", "mxfp8_e4m3", scale_rule="rceil")
    assert explain_scale(rceil, bits(1, 500)).rule == "rceil takes E - emax + 1 because f > 1.75"
    assert explain_scale(rceil, bits(1, 448)).rule == "rceil takes E - emax because f <= 1.75"
    assert "limited to -127" in explain_scale(rceil, bits(2.0**-140)).sentence()
    assert "magnitude is 6 = 1.5 * 2^2 (element 0), emax is 8;" in explain_scale(rceil, bits(6)).sentence()
    assert "magnitude is 1.96607995... * 2^-16 (element 0), " in explain_scale(rceil, bits(-3e-5)).sentence()
    assert "element 1 is nan" in explain_scale(rceil, bits(1, np.nan)).rule


def test_a_wrong_explanation_raises(monkeypatch):
    monkeypatch.setattr(explain, "_rounding_rule", lambda *args: ("nonsense", True))
    with pytest.raises(AssertionError, match="the definition gives"):
        explain_element(make_task("encode", "mxfp8_e4m3"), int(bits(17)[0]))
    monkeypatch.setattr(explain, "_scale_rule", lambda *args: ("nonsense", 5))
    with pytest.raises(AssertionError, match="the definition gives"):
        explain_scale(make_task("scale", "mxfp8_e4m3"), bits(1))


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.5, "0.5"), (-0.0, "-0"), (Fraction(1, 3), "0.3333333333..."), (2.0**-140, "1 * 2^-140"), (np.inf, "inf"),
     (1e300, "1.49322179... * 2^996"), (448.0, "448")],
)  # fmt: skip
def test_numbers(x, text):
    assert number(x) == text


def test_fractions():
    assert fraction_text(Fraction(3, 16)) == "3/16"
    assert fraction_text(Fraction(1, 2) + Fraction(1, 2**25)) == "1/2 + 2.98e-08"
    assert fraction_text(Fraction(1, 10**40)) == "1e-40"


@pytest.mark.parametrize(
    ("fmt", "tensor", "divided", "divisor"),
    [
        ("nvfp4", 0.5, "6 / (6 * 0.5)", "(2 * 0.5)"),
        ("e2m1:block=16,scale=float32", None, "6 / 6", "1"),
    ],
)
def test_divisions_name_the_tensor_scale_if_there_is_one(fmt, tensor, divided, divisor):
    bits = np.full(16, 6, np.float32).view(np.uint32)
    steps = explain_block(make_task("quantize", fmt), bits, tensor=tensor)
    assert steps.scale.divided == divided
    assert {element.divisor for element in steps.elements} == {divisor}

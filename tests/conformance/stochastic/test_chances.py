from __future__ import annotations

import math
from fractions import Fraction

import pytest

from mxnum import reference
from mxnum.conformance.bits import Generator
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic.chances import EVEN, NEAREST, UP, chances, constant, gaps_of, survey


@pytest.mark.parametrize(
    ("fmt", "modes"),
    [
        ("mxfp4_e2m1", {}),
        ("mxfp8_e4m3", {"overflow": "ieee"}),
        ("mxfp8_e5m2", {"overflow": "ieee", "source": "float16"}),
        ("mxint8", {"source": "bfloat16"}),
        ("mxfp4_e3m0", {}),
    ],
)
def test_codes_and_probabilities_are_those_of_the_reference(fmt, modes):
    task = make_task("encode", fmt, **modes)
    found = chances(task, Generator(1), 1 / 64) + survey(task, Generator(2))
    assert len({chance.value for chance in found}) > 20
    assert {chance.value > 0 for chance in found} == {True, False}
    element = task.element
    for chance in found:
        options = {"rounding": "sr", "overflow": task.overflow, "sr_bits": 8}
        ends = {"below": 0, "above": 255}
        wanted = {
            end: reference.encode(chance.value, element, random_bits=word, **options) for end, word in ends.items()
        }
        p = chance.probability(8)
        assert 0 < chance.delta < 1
        assert chance.below == wanted["below"]
        assert (chance.above == wanted["above"]) == (p > 0)
        if p:  # the number rounds away from zero with the p * 256 largest random words
            first = 256 - round(256 * p)
            codes = [
                reference.encode(chance.value, element, random_bits=w, **options) for w in (first - 1, first) if w >= 0
            ]
            assert codes[-1] == chance.above
            assert len(codes) == 1 or codes[0] == chance.below


def test_every_gap_of_a_wide_element_is_surveyed():
    task = make_task("encode", "mxfp8_e4m3")
    assert {abs(c.below & 0x7F) for c in survey(task, Generator(0))} == set(range(126))
    assert survey(make_task("encode", "mxfp4_e2m1"), Generator(0)) == []


def test_smaller_bias_needs_smaller_fractions():
    task = make_task("encode", "mxfp4_e2m1")
    for bias, least in ((1 / 256, 2**-15), (1 / 16, 2**-7)):
        deltas = {chance.delta for chance in chances(task, Generator(0), bias) if chance.delta > 2.0**-50}
        assert min(deltas) == least
        assert max(deltas) == 1 - least


def test_reach_bounds_the_cases():
    task = make_task("encode", "mxfp4_e2m1")
    assert max(high for _, high in gaps_of(task, 4)) == 4
    assert max(abs(chance.value) for chance in chances(task, Generator(0), 1 / 16, reach=4)) < 4


def test_constant_lies_exactly_at_the_fraction():
    for source in ("float32", "bfloat16"):
        task = make_task("encode", "mxint8", source=source)
        assert [constant(task, delta).delta for delta in (0.5, 0.25)] == [Fraction(1, 2), Fraction(1, 4)]
    one_gap = make_task("encode", "int3:block=32", source="bfloat16")
    with pytest.raises(ValueError, match=r"the number at .* of the gap must be exactly representable in bfloat16"):
        constant(one_gap, 1 - 2.0**-20)


def test_probabilities_with_few_random_bits():
    chance = constant(make_task("encode", "mxfp4_e2m1"), 0.25)
    assert [chance.probability(1, kind) for kind in ("truncated", NEAREST, EVEN, UP)] == [0, 0.5, 0, 0.5]
    assert chance.probability(None) == chance.probability(2) == 0.25
    assert math.isclose(chance.value, 1.625)
    assert chance.text(make_task("encode", "mxfp4_e2m1")) == "1.625, at 1/4 of the way from 1.5 (0x3) to 2 (0x4)"

"""Tests of kernels that are wrong only near a threshold: the verdict must fit all their answers."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check
from mxnum.conformance.cases.grid import neighbours
from mxnum.formats import ELEMENTS


def farther(x, ulps):
    """Move finite numbers away from zero by `ulps` float32 ulps."""
    bits = x.view(np.uint32)
    magnitude = (bits & 0x7FFFFFFF).astype(np.int64)
    inside = (magnitude > 0) & (magnitude < 0x7F800000)
    moved = np.where(inside, np.clip(magnitude + ulps, 1, 0x7F7FFFFF), magnitude).astype(np.uint32)
    return (moved | (bits & np.uint32(0x80000000))).view(np.float32)


def without_sticky(x, of_scales, element, bits):
    """Truncate x to `bits` bits below the last bit of the element."""
    with np.errstate(all="ignore"):
        exponent = of_scales.astype(int) - 127
        y = np.ldexp(np.abs(x.astype(float)), -exponent)
        known = np.where(np.isfinite(y), y, 0)
        below, above = neighbours(known, ELEMENTS[element])
        unit = (above - below) / 2**bits
        kept = np.where(np.isfinite(y), np.ldexp(np.floor(known / unit) * unit, exponent), y)
        return np.copysign(kept, x).astype(np.float32)


def said_of(kernel, **task):
    with pytest.raises(ConformanceError) as caught:
        check(kernel, shrink=False, **task)
    lines = str(caught.value).splitlines()
    return "\n".join(line for line in lines if line.startswith(("All", "No explanation")))


def at_threshold(ulps, rule):
    """Return two pairs (operation, kernel); the kernels are wrong only near scale thresholds."""

    def scales(x):
        return mx.shared_scale(farther(x, ulps), "mxfp4_e2m1", scale_rule=rule)

    def blocks(x):
        of_scales = scales(x)
        return mx.quantize(x, "mxfp4_e2m1", scales=of_scales).codes, of_scales

    return (("scale", scales), ("quantize", blocks))


@pytest.mark.parametrize(
    ("rule", "ulps", "name"),
    [
        ("even", 1, "a threshold of scale rule even that is one ulp too low"),
        ("even", 2, "a threshold of scale rule even that is two ulps too low"),
        ("even", -1, "`>` in place of `>=` in scale rule even"),
        ("rceil", -1, "a threshold of scale rule rceil that is one ulp too high"),
        ("rceil", 1, "`>=` in place of `>` in scale rule rceil"),
        ("rceil", 2, "a threshold of scale rule rceil that is two ulps too low"),
        ("ceil", -1, "a threshold of scale rule ceil that is one ulp too high"),
    ],
)
def test_a_threshold_of_scales_that_is_an_ulp_off_is_named(rule, ulps, name):
    # Regression: the report named another mistake, such as rounding to bfloat16, because no case
    # had a maximum close to the threshold.
    for operation, kernel in at_threshold(ulps, rule):
        said = said_of(kernel, format="mxfp4_e2m1", operation=operation, scale_rule=rule)
        assert re.match(rf"All \d+ wrong scales are what {name} (gives|\()", said), said
        assert "bfloat16" not in said


@pytest.mark.parametrize("rule", ["even", "rceil"])
def test_threshold_of_scales_off_by_5_ulps_is_not_explained(rule):
    for operation, kernel in at_threshold(5, rule):
        assert said_of(kernel, format="mxfp4_e2m1", operation=operation, scale_rule=rule) == ""


@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "mxfp8_e4m3"])
def test_thresholds_between_codes_that_are_an_ulp_off_are_named(fmt):
    element = fmt[-4:]

    def blocks(x):
        of_scales = mx.shared_scale(x, fmt)
        return mx.quantize(farther(x, 1), fmt, scales=of_scales).codes, of_scales

    for operation, kernel in (("encode", lambda x: mx.encode(farther(x, 1), element)), ("quantize", blocks)):
        said = said_of(kernel, format=fmt, operation=operation)
        assert re.match(r"All .* what a table of thresholds that are one ulp too low gives, and", said), said
        assert "No explanation" not in said


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "mxfp8_e4m3"])
def test_a_lost_sticky_bit_is_named_or_unexplained(fmt, bits):
    # Regression: the report named a cause, such as "truncating to bfloat16 first", although other
    # answers contradicted this cause.
    element = fmt[-4:]

    def encode(x):
        return mx.encode(without_sticky(x, np.full(x.shape, 127), element, bits), element)

    def blocks(x):
        of_scales = mx.shared_scale(x, fmt)
        return mx.quantize(without_sticky(x, of_scales, element, bits), fmt, scales=of_scales).codes, of_scales

    for operation, kernel in (("encode", encode), ("quantize", blocks)):
        said = said_of(kernel, format=fmt, operation=operation)
        if bits <= 3:
            name = f"a rounder with {bits} bits? below the last place and no sticky bit"
            assert re.match(rf"All .* what {name} gives, and so are", said), said
        elif said:
            assert re.search(
                r"in the class 'ordinary' .*; but \d+ other answers contradict this explanation\.", said
            ), said
            assert re.search(r"^No explanation covers \d+ other wrong answers\.", said, re.M), said


def test_codes_can_contradict_an_explanation_of_scales():
    def narrowed(x):
        return x.astype(ml_dtypes.bfloat16).astype(np.float32)

    def scales_alone(x):
        of_scales = mx.shared_scale(narrowed(x), "mxfp4_e2m1", scale_rule="even")
        return mx.quantize(x, "mxfp4_e2m1", scales=of_scales).codes, of_scales

    def both(x):
        return mx.quantize(narrowed(x), "mxfp4_e2m1", scale_rule="even").codes, scales_alone(x)[1]

    said = said_of(scales_alone, format="mxfp4_e2m1", scale_rule="even")
    assert re.match(
        r"All .* rounding to bfloat16 first gives, .*; but \d+ other answers contradict this explanation\.$", said
    ), said
    said = said_of(both, format="mxfp4_e2m1", scale_rule="even")
    assert said.count("rounding to bfloat16 first gives") == 2
    assert "contradict" not in said

"""Tests of the target's rounded logit gradient against the reference, the kernels and samples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxnum as mx
from mxnum import reference
from mxnum.lab.theory import Beta, logit_gradient_bias
from mxnum.modes import ScaleRule

FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1")


@settings(max_examples=40)
@given(
    st.sampled_from(FORMATS),
    st.sampled_from(list(ScaleRule)),
    st.integers(0, 3 << 18),
    st.sampled_from((1, "6/5", "3/2", 1024)),
    st.sampled_from((2048, 1920, 1000)),
)
def test_rounded_target_equals_the_reference(fmt, rule, numerator, factor, tokens):
    unit = Fraction(factor) / tokens
    # A float cannot hold every target exactly, so p is computed from the float `target`.
    target = float(unit * (1 - Fraction(numerator, (1 << 20) + 1)))
    p = max(1 - Fraction(target) / unit, Fraction(0))
    block = np.array([-target, *[float(p) * target / 31] * 31])
    got = Fraction(-float(reference.fake_quantize(block, fmt, scale_rule=rule)[0]))
    bias = logit_gradient_bias(fmt, tokens, factor, scale_rule=rule)
    pieces = bias.pieces(3)
    piece = next(x for x in pieces if x.lower <= p <= x.upper)
    if piece.lower < p < piece.upper:
        assert piece.level * unit == got
        assert bias.at(float(p)) == pytest.approx(float(got / Fraction(target) - 1), abs=1e-9)
        assert piece.overflows == bool(bias.overflows(float(p)))
    # The test omits p = 0, because the gradient at p = 0 is in another binade.
    ends = {x.level * unit for x in pieces if p in (x.lower, x.upper) and p > 0}
    assert not ends or got in ends


def logits_gradient(p, tokens, vocabulary, rng, target=0):
    """Return logit gradients (p_j - [j = target]) / tokens, where `p` is p_j for j = target."""
    others = rng.dirichlet(np.full(vocabulary - 1, 0.3), p.size) * (1 - p)[:, None]
    return np.insert(others, target, p - 1, axis=1) / tokens


@pytest.mark.parametrize(
    ("fmt", "rule", "rounding"),
    [
        ("mxfp8_e4m3", "floor", "rne"),
        ("mxfp8_e4m3", "rceil", "rne"),
        ("mxfp4_e2m1", "even", "sr"),
        ("nvfp4", None, "rne"),
    ],
)
def test_the_kernels_agree_along_the_vocabulary(fmt, rule, rounding):
    rng, law, tokens = np.random.default_rng(1), Beta("1/2", 8), 2048
    p = rng.beta(0.5, 8, 20_000)
    # A row with p = 0 has the largest gradient of the tensor, which sets NVFP4's tensor scale.
    p[0] = 0
    gradient = logits_gradient(p, tokens, 32, rng).astype(np.float32)
    seed = {"seed": 5} if rounding == "sr" else {}
    got = mx.fake_quantize(gradient, fmt, axis=1, scale_rule=rule, rounding=rounding, **seed)
    error = (got[:, 0] - gradient[:, 0]).astype(float) * -tokens
    expected = logit_gradient_bias(fmt, tokens, scale_rule=rule, rounding=rounding).shrinking(law)
    deviation = error.std() / np.sqrt(p.size)
    assert abs(error.mean() + expected.sum) < 4 * deviation
    at = logit_gradient_bias(fmt, tokens, scale_rule=rule, rounding=rounding).at(p)
    if rounding == "rne" and fmt != "nvfp4":  # rounding 1 - p to float32 loses the smallest p
        assert np.mean(abs(error - at * (1 - p)) < 1e-6) > 0.999


def test_the_kernels_agree_along_the_tokens():
    rng, tokens, k, frequency = np.random.default_rng(2), 4096, 32, 1 / 2
    bias = logit_gradient_bias("mxfp4_e2m1", tokens, frequency=frequency)
    p = rng.beta(0.5, 1, (20_000, k))
    is_target = rng.random(p.shape) < frequency
    is_target[:, 0] = True
    column = np.where(is_target, (p - 1) / tokens, 0).astype(np.float32)
    got = mx.fake_quantize(column, "mxfp4_e2m1", axis=1)
    error = (got - column)[:, 0].astype(float) * -tokens
    expected = bias.shrinking(Beta("1/2", 1))
    assert abs(error.mean() + expected.sum) < 4 * error.std() / np.sqrt(len(p))
    alone = logit_gradient_bias("mxfp4_e2m1", tokens).shrinking(Beta("1/2", 1))
    assert abs(expected.sum - alone.sum) > 8 * error.std() / np.sqrt(len(p)), "the test can distinguish the two biases"


@pytest.mark.parametrize("frequency", [0, "1/8"])
def test_closed_form_sample_and_enclosure_agree(frequency):
    bias, law = logit_gradient_bias("mxfp6_e2m3", 2048, frequency=frequency), Beta(1, 4)
    found, sample = bias.shrinking(law), bias.shrinking(np.random.default_rng(3).beta(1, 4, 100_000))
    for name in ("bias", "overflow_bias", "overflow", "sum"):
        assert getattr(sample, name) == pytest.approx(getattr(found, name), abs=4e-3), name
    pytest.importorskip("flint", reason="the extra proofs is not installed")
    for name in ("bias", "overflow_bias", "overflow", "sum"):
        proved = bias.enclosure(law, name, prec=50)
        assert proved.radius < 1e-13
        assert getattr(found, name) == pytest.approx(proved.midpoint, abs=1e-12), name


@given(st.sampled_from(FORMATS), st.integers(1, 5000), st.floats(0.5, 64), st.floats(0, 1))
def test_only_the_mantissa_of_factor_over_tokens_counts(fmt, tokens, factor, p):
    one, other = (logit_gradient_bias(fmt, tokens * k, Fraction(factor)) for k in (1, 2))
    twice = logit_gradient_bias(fmt, tokens, 4 * Fraction(factor))
    assert one.at(p) == other.at(p) == twice.at(p)


@given(st.sampled_from(FORMATS), st.floats(1, 2), st.floats(0, 1))
def test_rules_that_never_overflow_never_do(fmt, factor, p):
    for rule in ("ceil", "rceil"):
        assert not logit_gradient_bias(fmt, 1024, factor, scale_rule=rule).overflows(p)
    floor = logit_gradient_bias(fmt, 1024, factor)
    assert -0.25 <= floor.at(p) <= 1 / 4
    assert floor.at(p) < 0 or not floor.overflows(p)


def test_nvfp4_does_not_depend_on_the_factor():
    p = np.linspace(0, 0.99, 50)
    first, second = (logit_gradient_bias("nvfp4", 2048, c).at(p) for c in (1, "6/5"))
    assert np.allclose(first, second, atol=1e-12)


@settings(max_examples=20)
@given(st.floats(0, 0.99), st.sampled_from(("rne", "sr", "rtz")))
def test_single_probability_may_be_a_sample(p, rounding):
    bias = logit_gradient_bias("mxfp8_e4m3", 2048, rounding=rounding)
    found = bias.shrinking(p)
    assert found.bias == pytest.approx(float(bias.at(p)), abs=1e-12)
    assert found.sum == pytest.approx(-found.bias * (1 - p), abs=1e-12)
    assert found.overflow == bool(bias.overflows(p))


def test_pieces_give_the_bias_of_a_probability():
    bias = logit_gradient_bias("mxfp8_e4m3", 2048, "6/5")
    for value in (0.01, 0.2, 0.3, 0.6):
        (piece,) = (each for each in bias.pieces(binades=2) if each.lower <= value < each.upper)
        assert float(piece.level) / (1 - value) - 1 == pytest.approx(float(bias.at(value)), abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounding": "rtp"}, "Argument 'rounding' must be one of"),
        ({"tokens": 0}, "Argument 'tokens' must be at least 1"),
        ({"factor": 0}, "Argument 'factor' must be between"),
        ({"frequency": 2}, "Argument 'frequency' must be between 0 and 1"),
        ({"tensor_scale": 1}, "Argument 'tensor_scale' must be left out for mxfp8_e4m3"),
        ({"format": "nvfp4", "tensor_scale": 0}, "Argument 'tensor_scale' must be between"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        logit_gradient_bias(**arguments)
    with pytest.raises(ValueError, match="'p' must be probabilities"):
        logit_gradient_bias().at(1.5)


def test_largest_accepted_beta_distribution_is_computed():
    """Check the bias for Beta(2048, 2048); parameters above 2048 raise an error."""
    found = logit_gradient_bias("mxfp8_e4m3", np.int64(2048), np.float32(1)).shrinking(Beta(2048, 2048))
    assert -0.13 < found.bias < 0
    with pytest.raises(ValueError, match="'a' must be above 0 and at most 2048, not 20000"):
        Beta(20_000, 1)

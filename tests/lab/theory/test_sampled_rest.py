"""Tests that gradient descent with rounded logit gradients ends at the predicted equilibrium."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import mxnum as mx
from mxnum.lab.theory import logit_gradient_bias, logit_rest, sampled_logit_rest


def choices(count, vocabulary):
    return np.append(np.full(count, 1 / count), np.zeros(vocabulary - count))


@pytest.mark.parametrize("options", [{"scale_rule": "rceil"}, {"factor": 1.41}, {"format": "mxfp6_e2m3"}])
def test_without_overflow_the_equilibrium_is_the_source(options):
    q = choices(16, 64)
    found = sampled_logit_rest(q, tokens=512, noise=0.01, rows=256, **options)
    assert abs(found.excess) < 2e-3
    np.testing.assert_allclose(found.p, q, atol=2e-3)
    assert found.p.sum() == pytest.approx(1)


@pytest.mark.parametrize("along", ["vocabulary", "tokens"])
@pytest.mark.parametrize(("count", "fmt"), [(24, "mxfp8_e4m3"), (24, "mxfp8_e5m2"), (40, "mxfp8_e4m3")])
def test_equilibrium_equals_logit_rest_if_targets_alone_overflow(count, fmt, along):
    q = choices(count, 256)
    derived = logit_rest(q, logit_gradient_bias(fmt, 512))
    found = sampled_logit_rest(q, fmt, 512, noise=0.003, along=along, rows=512)
    assert found.excess == pytest.approx(derived.excess, abs=0.004)
    assert found.drift == pytest.approx(derived.drift, abs=0.004)


def test_overflow_of_other_components_lowers_the_excess():
    """Check `sampled_logit_rest` in a case where components other than the target's overflow.

    `sampled_logit_rest` must then predict a lower excess loss than `logit_rest`.
    """
    q = choices(16, 256)
    derived = logit_rest(q, logit_gradient_bias("mxfp8_e4m3", 512)).excess
    found = [sampled_logit_rest(q, tokens=512, noise=noise, rows=256).excess for noise in (0.003, 0.01, 0.1)]
    assert found == sorted(found)
    assert found[0] < derived - 0.02
    assert derived - 0.01 < found[-1] < derived


@cache
def loss_of_descent(rounded=None):
    """Return the mean excess loss at the end of a gradient descent with rounded gradients."""
    random, vocabulary, rows, noise = np.random.default_rng(1), 64, 512, 0.02
    q, logits, losses = choices(16, vocabulary), np.append(np.zeros(16), np.full(48, -4.0)), []
    for step in range(400):
        symbols = np.argsort(random.random((rows, vocabulary)), axis=1)
        p = np.exp(logits + np.sqrt(2 * noise) * random.standard_normal((rows, vocabulary)))
        p /= p.sum(axis=1, keepdims=True)
        if step >= 200:
            losses.append(-np.log(16 * p[:, :16]).mean())
        gradient = np.take_along_axis(p, symbols, 1)
        gradient -= symbols == random.choice(vocabulary, (rows, 1), p=q)
        if rounded is not None:
            gradient = rounded(gradient, step)
        mean = np.bincount(symbols.ravel(), gradient.ravel()) / rows
        logits -= np.clip((mean - mean.mean()) / np.maximum(p.mean(axis=0), 1e-6), -0.5, 0.5) * 20 / (20 + step)
    return np.mean(losses)


@pytest.mark.parametrize(("options", "along"), [
    ({"format": "mxfp8_e4m3"}, "vocabulary"),
    ({"format": "mxfp8_e4m3"}, "tokens"),
    ({"format": "mxfp4_e2m1"}, "vocabulary"),
    ({"format": "mxfp8_e4m3", "rounding": "sr"}, "vocabulary"),
    ({"format": "nvfp4"}, "vocabulary"),
])  # fmt: skip
def test_descent_reaches_the_equilibrium(options, along):
    """Check the equilibrium against gradient descent with random positions, targets and noise."""
    words = {"seed": 3} if "rounding" in options else {}

    def rounded(gradient, step):
        return mx.fake_quantize(
            np.asarray(gradient / 512, np.float32), axis=int(along == "vocabulary"), **options,
            **({"stream": step} | words if words else {}),
        ) * 512.0  # fmt: skip

    measured = loss_of_descent(rounded) - loss_of_descent()
    found = sampled_logit_rest(choices(16, 64), tokens=512, noise=0.02, along=along, rows=512, **options).excess
    assert found == pytest.approx(measured, abs=0.005 + 0.05 * found)


def test_many_values_of_q():
    """Check the equilibrium for probabilities of many sizes, with symbols that are seldom drawn."""
    q = 1 / np.arange(1, 1001) ** 1.6
    q /= q.sum()
    derived = logit_rest(q, logit_gradient_bias("mxfp8_e4m3", 2**15)).excess
    found = [sampled_logit_rest(q, noise=0.1, rows=128, seed=seed).excess for seed in (1, 2)]
    assert found == pytest.approx([derived] * 2, abs=0.006)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"q": [0.5, 0.6]}, "'q' must be a vector of probabilities"),
    ({"tokens": 0}, "'tokens' must be at least 1"),
    ({"factor": 0}, "'factor' must be such that"),
    ({"noise": -1}, "'noise' must be from 0"),
    ({"along": "rows"}, "'along' must be"),
    ({"rounding": "up"}, "'rounding' must be"),
    ({"rows": 0}, "'rows' must be at least 1"),
    ({"seed": -1}, "'seed' must be"),
])  # fmt: skip
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sampled_logit_rest(**({"q": [0.5, 0.5]} | arguments))

from __future__ import annotations

import numpy as np

from mxnum.conformance.bits import Generator
from mxnum.conformance.calling import Implementation
from mxnum.conformance.judging.report import Profile
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic.trial import SEEDS, Trial
from tests.conformance.stochastic import stochastic_kernels as kernels


def test_seeds_differ_in_every_bit():
    assert len(set(SEEDS)) == len(SEEDS)
    for bit in range(31):
        assert any(a ^ b == 1 << bit for a in SEEDS for b in SEEDS) or bit == 0
    assert 2 in SEEDS
    assert 3 in SEEDS


def run(kernel, false_alarm, seed=0, bias=0.25):
    trial = Trial(Implementation(kernel), make_task("encode", "mxfp4_e2m1"), None, True, Generator(seed))
    return trial.run(bias, 0.9, false_alarm, Profile())


def test_right_kernel_seldom_fails():
    """Check that a right kernel fails in at most 30 % of runs if `false_alarm` is 0.3."""
    alarms, runs = 0, 30
    for first in range(runs):
        report = run(lambda x, seed, first=first: kernels.rounded(x, kernels.uniform([first, seed], x.shape)), 0.3)
        alarms += not report.conforms
    assert alarms <= 0.3 * runs


def test_few_draws_find_a_bias_with_the_promised_power():
    """Check that 9 of 10 trials find a bias of 1/4 in one case if the requested power is 0.9."""
    seen = 0
    for first in range(20):

        def kernel(x, seed, first=first):
            change = lambda delta, x: np.where((x > 0.5) & (x < 1) & (delta < 0.75), delta + 0.25, delta)  # noqa: E731
            return kernels.rounded(x, kernels.uniform([first, seed], x.shape), change)

        seen += "Shares" in run(kernel, 1e-4).problems
    assert seen >= 18

"""Tests of dead zones, jumps, dwell times and cycles against kernels and gradient descent."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum.analysis.scale_theory import scale_threshold
from mxnum.lab.theory.crossing import dead_zone, dwell, limit_cycle

PAIRS = list(itertools.product(mx.formats.names("e8m0"), mx.ScaleRule))


@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_jumps_are_what_the_kernel_does_to_a_block(name, rule):
    zone = dead_zone(name, scale_rule=rule)
    crossing = float(2 * scale_threshold(name, rule))
    u = 0.5 + (np.arange(999) + 0.37) / 2000  # no element of u is a tie
    before, after = (
        mx.fake_quantize(np.concatenate([u, [m]]) * crossing, name, scale_rule=rule, block_size=1000)[:-1] / crossing
        for m in (1 - 1e-12, 1 + 1e-12)
    )
    want = np.zeros(u.size)
    for jump in zone.jumps:
        inside = (u > float(jump.lower)) & (u < float(jump.upper))
        want[inside] = float(jump.after - jump.before)
    edges = {float(e) for jump in zone.jumps for e in (jump.lower, jump.upper)}
    interior = ~np.isclose(u[:, None], sorted(edges) or [-1.0]).any(axis=1)
    assert np.allclose((after - before)[interior], want[interior], rtol=0, atol=1e-15)
    dead = u > float(zone.lower)
    assert np.allclose(before[dead], float(zone.level), rtol=0, atol=1e-15)


def test_claim_b3_the_jump_of_e4m3_is_a_seventh():
    zone = dead_zone("mxfp8_e4m3")
    assert (zone.level, zone.largest_jump) == (Fraction(7, 8), Fraction(1, 7))
    assert [(j.lower, j.after) for j in zone.jumps] == [(Fraction(29, 32), Fraction(15, 16)), (Fraction(31, 32), 1)]
    assert dead_zone("mxfp4_e2m1").largest_jump == Fraction(1, 3)
    floats = [n for n in mx.formats.names("e8m0") if "int" not in n]
    assert all(dead_zone(n, scale_rule=r).largest_jump == 0 for n in floats for r in ("ceil", "rceil"))


def descend(gamma, target, rate, steps, name="mxfp8_e4m3"):
    """Run straight-through gradient descent, and return the quantized values at each step.

    The loss is the sum of (Q(gamma) - target)**2 / 2.
    """
    gamma, path = gamma.copy(), []
    for _ in range(steps):
        q = mx.fake_quantize(gamma, name)
        path.append(q)
        gamma = gamma - rate * (q - target)
    return np.array(path)


@pytest.mark.parametrize("target", [0.9, 29 / 32, 0.94, 0.99])
def test_dwell_duty_and_period_in_a_run(target):
    start, rate, steps = 0.93, 1e-3, 30_000
    path = descend(np.full(32, start), target, rate, steps)
    below, above = 0.875, 1.0
    crossed = int(np.argmax(path[:, 0] == above))
    assert crossed == dwell(start, 1.0, rate * (target - below))
    assert (path[:crossed] == below).all()  # The loss does not change before the crossing.
    assert (path[crossed] == above).all()  # At the crossing, all elements jump at once.
    assert path[crossed, 0] / path[crossed - 1, 0] - 1 == pytest.approx(1 / 7)
    cycle, after = limit_cycle(target, below, above), path[crossed:, 0]
    assert (after == above).mean() == pytest.approx(float(cycle.duty), abs=2 / len(after) * 10)
    jumps = ((after[1:] == above) & (after[:-1] == below)).sum()
    assert len(after) / jumps == pytest.approx(float(cycle.period), rel=2e-3)
    assert after.mean() == pytest.approx(target, abs=1e-4)
    assert ((after - target) ** 2).mean() == pytest.approx(float(cycle.mean_square), rel=5e-3)


def test_adam_crosses_after_the_distance_over_the_rate_whatever_the_gradient():
    for scale in (1.0, 1e-4):
        gamma, m, v, rate = np.full(32, 0.93), 0.0, 0.0, 1e-3
        for t in range(1, 200):
            q = mx.fake_quantize(gamma, "mxfp8_e4m3")
            if q[0] == 1.0:
                break
            g = scale * (q - 0.95)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            gamma = gamma - rate * (m / (1 - 0.9**t)) / np.sqrt(v / (1 - 0.999**t))
        assert t - 1 == dwell(0.93, 1.0, rate)


def test_one_leader_moves_the_whole_block():
    """Check that other elements' values jump by 1/7 or 1/14 when the block's maximum reaches 1."""
    block = np.full(32, 0.95)
    block[5] = 0.98
    for leader, want in ((0.9999, 0.875), (1.0, 0.9375)):
        block[0] = leader
        q = mx.fake_quantize(block, "mxfp8_e4m3")
        assert (q[1:5] == want).all()
        assert q[5] == (1.0 if leader == 1.0 else 0.875)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="'target' must be between"):
        limit_cycle(1.5, 0.875, 1)
    with pytest.raises(ValueError, match="'rounding' must be deterministic"):
        dead_zone("mxfp8_e4m3", rounding="sr")
    with pytest.raises(ValueError, match="'drift' must be positive"):
        dwell(0.9, 1.0, 0.0)
    with pytest.raises(ValueError, match="'start' must be below"):
        dwell(1.0, 1.0, 0.1)
    with pytest.raises(ValueError, match="'crossing' must be finite"):
        dwell(1.0, np.inf, 0.1)


def test_a_crossing_takes_a_step_however_near_it_is():
    """Check the number of steps to a crossing, also for distances below 1e-10."""
    assert dwell(0, 1e-11, 1.0) == 1
    assert dwell(1 - 1e-12, 1.0, 1e-13) == 10
    assert [dwell(0.0, k / 10, 0.1) for k in range(1, 100)] == list(range(1, 100))
    assert dwell(0.0, 0.3 + 1e-12, 0.1) == 4

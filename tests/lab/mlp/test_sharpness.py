"""Tests of Lanczos iteration against the full spectrum of a matrix and of a network's Hessian."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.mlp.loop import Training, train
from mxnum.lab.mlp.sharpness import follow, lanczos, sharpness

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
TINY = Experiment(width=8, layers=1, batch=16, expansion=1, steps=6, rate=0.02)


def test_lanczos_finds_the_largest_eigenvalue_of_each_matrix():
    rng = np.random.default_rng(1)
    matrices = rng.standard_normal((3, 40, 40))
    matrices += matrices.swapaxes(-1, -2)
    values, modes = lanczos(lambda v: np.einsum("rij,rj->ri", matrices, v), (3, 40), 40)
    theirs, vectors = np.linalg.eigh(matrices)
    assert values == pytest.approx(theirs[:, -1])
    assert np.abs(np.einsum("ri,ri->r", modes, vectors[:, :, -1])) == pytest.approx(np.ones(3))


def hessian(training):
    """Return the Hessian of a run's loss, computed by differences of gradients."""
    network, (x, y) = training.network, training.batches(training.step)
    here, columns, h = network.parameters.run(0).astype(np.float64), [], 2e-3
    for index in range(len(here)):
        found = []
        for sign in (1, -1):
            moved = here.copy()
            moved[index] += sign * h
            network.parameters.set_run(0, moved.astype(np.float32))
            network.loss_and_gradients(x, y, training.step, Experiment().precision)
            found.append(network.gradients.run(0).astype(np.float64))
        columns.append((found[0] - found[1]) / (2 * h))
    network.parameters.set_run(0, here.astype(np.float32))
    return (np.array(columns) + np.array(columns).T) / 2


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("precision", [Experiment().precision, uniform_precision("mxfp4_e2m1")])
def test_sharpness_is_the_largest_eigenvalue_of_the_preconditioned_hessian(precision, learns):
    tiny = TINY.but(precision=precision, train_gamma=learns, train_beta=learns)
    training = Training(tiny, (3, 4))
    for _ in range(6):
        training.advance()
    found = sharpness(training, iterations=60)
    alone = Training(tiny, (3,))
    for _ in range(6):
        alone.advance()
    second = alone.state()["second"][0] / (1 - TINY.betas[1] ** 6)
    root = np.sqrt(np.sqrt(second) + TINY.epsilon)
    whole = hessian(alone) / root / root[:, None]
    # Regression: the components of the eigenvector for frozen parameters were counted. If `learns`
    # is False, the first 16 parameters are frozen, which are gamma and beta.
    if not learns:
        whole[:16], whole[:, :16] = 0, 0
    values, vectors = np.linalg.eigh(whole)
    assert found.rate_times_curvature[0] == pytest.approx(TINY.rate * values[-1], rel=0.02)
    assert found.participation[0] == pytest.approx((vectors[:, -1] ** 4).sum(), rel=0.1)
    assert sum(found.shares.values())[0] == pytest.approx(1)


def test_measuring_changes_nothing():
    (plain,) = train(TINY, (3,))
    training = Training(TINY, (3,))
    for _ in range(6):
        if training.step:
            sharpness(training, iterations=4)
        training.advance()
    assert training.runs[0].losses == plain.losses


def test_a_table_of_evaluations():
    table = follow({"a": TINY, "frozen": TINY.but(train_gamma=False, train_beta=False)}, (3, 4), 2, lambda line: None)
    run = table["arms"]["a"]["runs"][1]
    assert (run["seed"], run["excursions"], len(run["sharpness"]), len(run["loss"])) == (4, [], 2, 2)
    assert table["arms"]["frozen"]["runs"][0]["sharpness"] != table["arms"]["a"]["runs"][0]["sharpness"]

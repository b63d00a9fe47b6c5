import numpy as np
import pytest

from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.mlp.data import Batches
from mxnum.lab.mlp.measure import measurements
from mxnum.lab.mlp.model import Network
from mxnum.recipe import Operand, Recipe

SMALL = Experiment(width=64, layers=2, batch=64)


def measured(experiment, seeds=(1, 2)):
    network = Network(experiment, seeds)
    network.parameters.gamma[...] = np.linspace(0.8, 0.999, 64, dtype=np.float32)
    return network, measurements(network, *Batches(experiment, seeds)(0), 0)


def test_zeta_is_the_relative_difference_of_two_gradients():
    experiment = SMALL.but(precision=uniform_precision("mxfp4_e2m1"))
    network, values = measured(experiment)
    x, y = Batches(experiment, (1, 2))(0)
    network.loss_and_gradients(x, y, 0)
    reduced = network.gradients.run(1).astype(np.float64)
    network.loss_and_gradients(x, y, 0, Recipe())
    exact = network.gradients.run(1).astype(np.float64)
    assert values["zeta"][1] == pytest.approx(np.linalg.norm(reduced - exact) / np.linalg.norm(exact), rel=1e-5)
    cosine = reduced @ exact / np.linalg.norm(reduced) / np.linalg.norm(exact)
    assert values["cosine"][1] == pytest.approx(cosine, rel=1e-5)
    assert 0 < values["cosine"][1] < 1
    start = 2 * 64  # gamma of both layers precedes beta in the vector of parameters
    part = slice(start, 2 * start)
    beta = np.linalg.norm(reduced[part] - exact[part]) / np.linalg.norm(exact[part])
    assert values["zeta_beta"][1] == pytest.approx(beta, rel=1e-5)
    assert values["gradient_norm"][0] == pytest.approx(
        np.sqrt(sum(values[f"gradient_norm_{k}"][0] ** 2 for k in ("gamma", "beta", "bias", "w1", "w2"))), rel=1e-5
    )


def test_zeta_of_float32_is_zero():
    _, values = measured(SMALL)
    assert values["zeta"].tolist() == [0, 0]
    assert values["cosine"] == pytest.approx([1, 1])


def test_last_bins_and_errors_by_layer():
    # The maximum of each block of gamma is between 0.5 and 1, so the largest E4M3 number under the
    # block's scale is 0.875. Larger numbers become 0.875.
    gamma = np.linspace(0.8, 0.999, 64, dtype=np.float32)
    _, values = measured(SMALL.but(gamma=Operand("mxfp8_e4m3")))
    assert values["gamma_in_last_bin"].shape == (2, 2)
    assert values["gamma_in_last_bin"][0, 0] == pytest.approx(
        np.mean(gamma[32:] > 0.875) / 2 + np.mean(gamma[:32] > 0.875) / 2
    )
    assert values["gamma_bias"][0, 0] < -0.02
    assert values["gamma_error"][0, 0] >= -values["gamma_bias"][0, 0]
    assert values["beta_error"].max() == 0
    assert values["gamma_rms"][1, 1] == pytest.approx(np.sqrt(np.mean(gamma.astype(float) ** 2)), rel=1e-5)

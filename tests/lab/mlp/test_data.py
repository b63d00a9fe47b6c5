import numpy as np
import pytest

from mxnum.lab.mlp.config import Experiment
from mxnum.lab.mlp.data import Batches, Teacher, generator

SMALL = Experiment(width=32, layers=2, batch=64)


def test_batches_depend_on_seed_and_step_alone():
    several, alone = Batches(SMALL, (4, 9)), Batches(SMALL, (9,))
    several(0)
    assert np.array_equal(several(3)[0][1], alone(3)[0][0])
    assert np.array_equal(several(3)[1][1], alone(3)[1][0])
    assert not np.array_equal(alone(3)[0], alone(4)[0])


def test_inputs_are_standard_normal_and_noise_has_its_size():
    x, y = Batches(SMALL.but(batch=4096), (1,))(0)
    assert x.mean() == pytest.approx(0, abs=0.02)
    assert x.std() == pytest.approx(1, abs=0.02)
    noise = y[0] - Teacher(SMALL, 1)(x[0])
    assert noise.std() == pytest.approx(0.005, rel=0.02)
    redrawn = Batches(SMALL.but(batch=4096, noise_draw=1), (1,))(0)
    assert np.array_equal(redrawn[0], x)
    assert not np.array_equal(redrawn[1], y)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_teacher_is_a_plain_network(activation):
    experiment = SMALL.but(activation=activation)
    teacher, x = Teacher(experiment, 5), generator(1, 1).standard_normal((8, 32), dtype=np.float32)
    assert len(teacher.weights) == 4
    products = []

    def multiply(a, weight):
        products.append(weight)
        return a @ weight.T

    assert np.array_equal(teacher(x, multiply), teacher(x))
    assert len(products) == 4
    if activation == "relu":
        w = teacher.weights
        assert np.allclose(teacher(x), np.maximum(np.maximum(x @ w[0].T, 0) @ w[1].T @ w[2].T, 0) @ w[3].T, atol=1e-6)


def test_centred_inputs():
    x, _ = Batches(SMALL.but(centred_inputs=True), (1,))(0)
    assert np.abs(x.mean(axis=-1)).max() < 1e-6

import numpy as np
import pytest

from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.mlp.cost import measure, products_alone, shares
from mxnum.recipe import Recipe

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

SMALL = Experiment(width=32, layers=2, batch=64, precision=uniform_precision("mxfp4_e2m1"))


def test_ratios_are_of_the_right_kind():
    found = measure(SMALL, runs=2, rounds=3)
    assert set(found) == {"step", "quantization", "bfloat16 step"}
    assert found["step"] > 1
    assert found["quantization"] < 1


def test_the_products_are_those_of_the_model():
    from mxnum.lab.mlp.data import Batches
    from mxnum.lab.mlp.machine import Machine
    from mxnum.lab.mlp.model import Network

    seen = []

    class Recorder(Machine):
        def product(self, *operands, bf16):
            def multiply(a, b, out):
                seen.append(tuple(sorted((a.shape[-2], a.shape[-1], b.shape[-1]))))
                return np.matmul(a, b, out=out)

            return multiply

    products_alone(SMALL, 1, Recorder())()
    alone, seen[:] = sorted(seen), []
    network = Network(SMALL, (1,), Recorder())
    network.loss_and_gradients(*Batches(SMALL, (1,))(0), 0)
    assert sorted(seen) == alone
    assert len(alone) == 12


def test_shares_are_of_one_step():
    seconds, found = shares(SMALL, rounds=3)
    assert seconds > 0
    assert list(found) == ["products", "batch and teacher", "quantization", "vector operations and optimizer"]
    assert sum(found.values()) == pytest.approx(1)
    assert shares(SMALL.but(precision=Recipe()), rounds=1)[1]["quantization"] == 0

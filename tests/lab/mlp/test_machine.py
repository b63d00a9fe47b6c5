"""Tests of the network on other machines, with PyTorch on the CPU in place of a GPU."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from mxnum.lab import storage
from mxnum.lab.mlp import kernels, loop, machine
from mxnum.lab.mlp.config import Experiment, Injection, uniform_precision
from mxnum.lab.mlp.loop import Training, load, save
from mxnum.lab.mlp.operands import rounded
from mxnum.recipe import BFLOAT16, Operand, Recipe

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

BASE = Experiment(width=32, layers=2, batch=32, rate=1e-3)
E2M1 = uniform_precision("mxfp4_e2m1")


def losses(experiment, where, steps=4):
    training = Training(experiment, (1, 2), where)
    return np.array([training.advance(measure=step == 2) for step in range(steps)]), training


@pytest.fixture
def by_torch():
    pytest.importorskip("torch", reason="the extra torch is not installed")
    return machine.machine("torch")


@pytest.mark.parametrize(
    "experiment",
    [
        BASE,
        BASE.but(activation="relu", optimizer="sgd", momentum=0.9, injection=Injection(0.1, 0.5)),
        BASE.but(activation="swiglu", precision=E2M1),
        BASE.but(gelu="tanh", precision=E2M1, quantized_teacher=True, centred_inputs=True),
        BASE.but(layer_norm=False, precision=uniform_precision("mxfp8_e4m3", layer_norm=BFLOAT16)),
        BASE.but(precision=E2M1, vector_rounding="rna"),
    ],
)
def test_the_same_training_but_for_the_last_bits(experiment, by_torch):
    ours, training = losses(experiment, by_torch)
    theirs, other = losses(experiment, machine.CPU)
    assert np.allclose(ours, theirs, rtol=1e-4)
    assert not np.array_equal(ours[0], ours[-1])
    for name, values in other.runs[1].measured.items():
        np.testing.assert_allclose(training.runs[1].measured[name], values, rtol=0.02, atol=1e-4, err_msg=name)


def test_stochastic_rounding_draws_by_run_and_step(by_torch):
    experiment = BASE.but(precision=Recipe(gradients=Operand("mxfp4_e2m1", rounding="sr")))
    together, training = losses(experiment, by_torch)
    alone = Training(experiment, (2,), by_torch)
    assert np.array_equal(together[:, 1], [float(alone.advance(measure=step == 2)[0]) for step in range(4)])
    x, y = training.batches(0)
    training.network.loss_and_gradients(x, y, 0)
    first = training.network.gradients.flat.copy()
    training.network.loss_and_gradients(x, y, 1)
    assert not np.array_equal(first, training.network.gradients.flat)


def test_checkpoints(tmp_path, by_torch):
    _, training = losses(BASE.but(precision=E2M1), by_torch)
    save(training, tmp_path / "checkpoint.npz")
    continued = Training(BASE.but(precision=E2M1), (1, 2), by_torch)
    load(continued, tmp_path / "checkpoint.npz")
    assert np.array_equal(training.advance(), continued.advance())


@pytest.mark.parametrize(
    "operand",
    [Operand(error="grid", step=0.25), Operand("mxfp4_e2m1", error="clamp"), Operand("mxfp4_e2m1", matched=True)],
)
def test_torch_refuses_errors_that_it_does_not_round(operand, by_torch):
    with pytest.raises(ValueError, match="Argument 'gamma' must be an operand that mxnum"):
        Training(BASE.but(gamma=operand), (1,), by_torch)


def test_runs_tell_where_they_were_trained(tmp_path):
    where = replace(machine.CPU, about={"gpu": "a stand-in", "torch": "0"})
    training = Training(BASE.but(steps=1), (1, 2), where)
    training.advance()
    training.runs[1].save(tmp_path)
    environment = storage.read_json(tmp_path / "seed-2.json")["environment"]
    assert environment["gpu"] == "a stand-in"
    assert environment["numpy"] == np.__version__


def test_names(monkeypatch):
    assert machine.machine("cpu") is machine.CPU
    with pytest.raises(ValueError, match="did you mean 'cuda'"):
        machine.machine("cud")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="Package 'torch' is not installed"):
        loop.train(BASE, (1,), machine="cuda")


@pytest.fixture(params=machine.NARROW)
def narrow(request):
    pytest.importorskip("torch", reason="torch is not installed")
    try:
        return machine.machine(request.param)
    except ValueError as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8", "bfloat16"])
def test_units_for_bfloat16_lose_nothing_of_operands_that_fit(format, narrow):
    rng, operand = np.random.default_rng(3), Operand(format)
    x = rng.standard_normal((2, 64, 96), dtype=np.float32) * np.exp2(rng.integers(-90, 20, (2, 64, 1)))
    w = rng.standard_normal((2, 64, 96), dtype=np.float32)
    x, w = (rounded(np.float32(a), operand, -1, np.empty(a.shape, np.float32)) for a in (x, w))
    product = narrow.product(operand, operand, bf16=1)
    assert product is narrow.narrow_product
    out = np.empty((2, 64, 64), np.float32)
    product(x, w.swapaxes(-1, -2), out)
    wide = x.astype(float) @ w.swapaxes(-1, -2)
    sizes = np.abs(x).astype(float) @ np.abs(w).swapaxes(-1, -2)
    assert (np.abs(out - wide) <= 1e-6 * sizes + narrow.rounds * 2.0**-8 * np.abs(wide)).all()
    product(w.swapaxes(-1, -2), x, of_weights := np.empty((2, 96, 96), np.float32))
    limit = 2.0**-8 if narrow.rounds else 1e-5
    assert np.abs(of_weights - w.swapaxes(-1, -2).astype(float) @ x).max() <= limit * np.abs(of_weights).max()
    for result in (out, of_weights):
        kernels.round_bf16(result.reshape(-1).view(np.int32), (again := result.copy()).reshape(-1).view(np.int32), 1)
        assert np.array_equal(result, again) == narrow.rounds


def test_other_operands_are_multiplied_by_blas(narrow):
    fits = Operand("mxfp8_e4m3")
    for pair in ((Operand(), fits), (fits, Operand())):
        assert narrow.product(*pair, bf16=1) is np.matmul
    for bf16 in (0, 2):  # bf16=0: float32 results; bf16=2: bfloat16 results, ties away from zero
        assert narrow.product(fits, fits, bf16=bf16) == (np.matmul if narrow.rounds else narrow.narrow_product)
    assert machine.CPU.product(fits, fits, bf16=1) is np.matmul


def test_training_on_units_for_bfloat16(narrow):
    for experiment in (BASE.but(precision=E2M1), BASE.but(gelu="tanh", precision=E2M1, quantized_teacher=True)):
        ours, _ = losses(experiment, narrow)
        theirs, _ = losses(experiment, machine.CPU)
        assert np.allclose(ours, theirs, rtol=2e-3)
    same, _ = losses(BASE, narrow)
    assert np.array_equal(same, losses(BASE, machine.CPU)[0])
    assert narrow.about["products"].startswith("bfloat16 by torch ")

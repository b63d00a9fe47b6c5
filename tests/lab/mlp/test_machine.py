"""The network on another machine. Strict arrays stand in for CuPy's, because tests run without a GPU."""

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
from tests.lab.mlp import strict

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

BASE = Experiment(width=32, layers=2, batch=32, rate=1e-3)
E2M1 = uniform_precision("mxfp4_e2m1")


@pytest.fixture(autouse=True)
def _strict_arrays_are_known(monkeypatch):
    def library(x):
        return strict.MACHINE.xp if isinstance(x, strict.DeviceArray) else np

    monkeypatch.setattr(machine, "library", library)
    monkeypatch.setattr("mxnum.lab.mlp.operands.library", library)
    monkeypatch.setattr("mxnum.lab.mlp.operands.mx", strict.Quantizer())


def losses(experiment, where, steps=4):
    training = Training(experiment, (1, 2), where)
    return np.array([training.advance(measure=step == 2) for step in range(steps)]), training


@pytest.mark.parametrize(
    "experiment",
    [
        BASE,
        BASE.but(activation="relu", optimizer="sgd", momentum=0.9, injection=Injection(0.1, 0.5)),
        BASE.but(activation="swiglu", precision=E2M1),
        BASE.but(gelu="tanh", precision=E2M1, quantized_teacher=True, centred_inputs=True),
        BASE.but(layer_norm=False, precision=uniform_precision("mxfp8_e4m3", layer_norm=BFLOAT16)),
        BASE.but(precision=Recipe(gradients=Operand("mxfp4_e2m1", rounding="sr"))),
        BASE.but(precision=Recipe(*(Operand("mxfp8_e4m3", scale_rule="released_bump"),) * 5)),
        BASE.but(gamma=Operand("mxfp4_e2m1", rounding="sr"), beta=Operand(error="grid", step=0.25)),
        BASE.but(gamma=Operand("mxfp4_e2m1", error="random_sign"), beta=Operand("mxfp4_e2m1", error="shuffle")),
        BASE.but(gamma=Operand("mxfp4_e2m1", error="clamp"), beta=Operand("mxfp4_e2m1", error="one_sided")),
    ],
)
def test_the_same_training_but_for_the_last_bits(experiment):
    ours, training = losses(experiment, strict.MACHINE)
    theirs, _ = losses(experiment, machine.CPU)
    assert isinstance(training.network.parameters.flat, strict.DeviceArray)
    assert type(ours) is np.ndarray
    assert np.allclose(ours, theirs, rtol=2e-3)
    assert not np.array_equal(ours[0], ours[-1])


def test_checkpoints(tmp_path):
    _, training = losses(BASE.but(precision=E2M1), strict.MACHINE)
    save(training, tmp_path / "checkpoint.npz")
    continued = Training(BASE.but(precision=E2M1), (1, 2), strict.MACHINE)
    load(continued, tmp_path / "checkpoint.npz")
    assert np.array_equal(training.advance(), continued.advance())


def test_the_stand_in_refuses_what_cupy_refuses():
    x = strict.MACHINE.to(np.ones(3))
    for wrong in (lambda: x + np.ones(3), lambda: x.__setitem__(0, np.ones(1)), lambda: np.stack([x, np.ones(3)])):
        with pytest.raises(TypeError, match="Unsupported type"):
            wrong()


def test_runs_tell_where_they_were_trained(tmp_path):
    where = replace(strict.MACHINE, about={"gpu": "a stand-in", "cupy": "0"})
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
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ModuleNotFoundError, match=r"need CuPy, which comes with: pip install \"mxnum\[cuda\]\""):
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
        assert narrow.product(*pair, bf16=1) == narrow._product
    for bf16 in (0, 2):  # results that stay float32, or are rounded in another way
        assert narrow.product(fits, fits, bf16=bf16) == (narrow._product if narrow.rounds else narrow.narrow_product)
    assert machine.CPU.product(fits, fits, bf16=1) == machine.CPU._product


def test_training_on_units_for_bfloat16(narrow):
    for experiment in (BASE.but(precision=E2M1), BASE.but(gelu="tanh", precision=E2M1, quantized_teacher=True)):
        ours, _ = losses(experiment, narrow)
        theirs, _ = losses(experiment, machine.CPU)
        assert np.allclose(ours, theirs, rtol=2e-3)
    same, _ = losses(BASE, narrow)
    assert np.array_equal(same, losses(BASE, machine.CPU)[0])
    assert narrow.about["products"].startswith("bfloat16 by torch ")

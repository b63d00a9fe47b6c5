"""Tests of gradients against finite differences, torch, and mxnum's linear layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxnum as mx
from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.mlp.data import Batches
from mxnum.lab.mlp.loop import Training
from mxnum.lab.mlp.model import _STREAMS, KINDS, Network, quantized_product
from mxnum.recipe import BFLOAT16, FLOAT32, Operand, Recipe

SMALL = Experiment(width=32, layers=2, batch=64)
VARIANTS = {
    "gelu": SMALL,
    "gelu tanh": SMALL.but(gelu="tanh"),
    "relu": SMALL.but(activation="relu"),
    "swiglu": SMALL.but(activation="swiglu"),
    "no layer norm": SMALL.but(layer_norm=False),
    "xavier": SMALL.but(initialization="xavier", gamma_start=(0.9, 1.0)),
}


def network_and_batch(experiment, seeds=(3,)):
    network = Network(experiment, seeds)
    rng = np.random.default_rng(1)  # beta starts at zero, which could hide mistakes
    network.parameters.beta[...] = 0.1 * rng.standard_normal(network.parameters.beta.shape)
    return network, *Batches(experiment, seeds)(0)


@pytest.mark.parametrize("experiment", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_against_finite_differences(experiment, kind):
    if not experiment.layer_norm and kind in ("gamma", "beta"):
        pytest.skip("there is no layer norm")
    network, x, y = network_and_batch(experiment)
    network.loss_and_gradients(x, y, 0)
    gradient = getattr(network.gradients, kind).astype(np.float64)
    direction = gradient / np.linalg.norm(gradient)
    parameter, h = getattr(network.parameters, kind), 4e-3
    start, losses = parameter.copy(), []
    for sign in (1, -1):
        parameter[...] = start + sign * h * direction
        losses.append(network.loss_and_gradients(x, y, 0)[0])
    slope = (losses[0] - losses[1]) / (2 * h)
    assert slope == pytest.approx(np.linalg.norm(gradient), rel=5e-3)


@pytest.mark.parametrize("experiment", VARIANTS.values(), ids=VARIANTS)
def test_gradients_against_torch(experiment):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    network, x, y = network_and_batch(experiment)
    loss = network.loss_and_gradients(x, y, 0)[0]
    p = {k: torch.tensor(getattr(network.parameters, k)[:, 0].astype(np.float64), requires_grad=True) for k in KINDS}
    stream, width = torch.tensor(x[0].astype(np.float64)), experiment.width
    functional = torch.nn.functional
    for k in range(experiment.layers):
        z = stream
        if experiment.layer_norm:
            z = functional.layer_norm(stream, (width,), p["gamma"][k], p["beta"][k], 1e-5)
        u = z @ p["w1"][k].T
        if experiment.activation == "gelu":
            h = functional.gelu(u, approximate="none" if experiment.gelu == "exact" else "tanh")
        elif experiment.activation == "relu":
            h = functional.relu(u)
        else:
            a, b = u.chunk(2, -1)
            h = a * functional.silu(b)
        stream = stream + h @ p["w2"][k].T + p["bias"][k]
    expected = functional.mse_loss(stream, torch.tensor(y[0].astype(np.float64)))
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for kind in KINDS if experiment.layer_norm else ("bias", "w1", "w2"):
        theirs, ours = p[kind].grad.numpy(), getattr(network.gradients, kind)[:, 0]
        assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max(), kind


#: The operands of a layer's products in the forward and backward passes, as keywords of mxnum's
#: linear layer.
OPERANDS = {
    "E4M3": {kind: Operand("mxfp8_e4m3") for kind in ("activations", "weights", "gradients")},
    "E2M1, rceil": {
        kind: Operand("mxfp4_e2m1", scale_rule="rceil") for kind in ("activations", "weights", "gradients")
    },
    "mixed": {
        "activations": Operand("mxfp6_e2m3", scale_rule="even"),
        "weights": Operand("mxfp4_e2m1", rounding="rtz"),
        "gradients": Operand("mxfp8_e5m2", block_size=8),
    },
}


@pytest.mark.parametrize("seeds", [(3,), (3, 4)], ids=["one run", "two runs"])
@pytest.mark.parametrize("width", [32, 48])
@pytest.mark.parametrize("operands", OPERANDS.values(), ids=OPERANDS)
def test_products_are_those_of_the_library(operands, width, seeds):
    """Check that a layer's six products have the same bits as mxnum's linear layer."""
    backward = {f"{kind}_backward": operands[kind] for kind in ("activations", "weights")}
    precision = Recipe(**operands, **backward)
    network, x, y = network_and_batch(SMALL.but(layers=1, width=width, precision=precision), seeds)
    network.loss_and_gradients(x, y, 0)
    (layer,), parameters, made = network.saved, network.parameters, network.gradients
    keywords = {
        kind: {
            "format": operand.format,
            "scale_rule": operand.scale_rule,
            "rounding": operand.rounding,
            "block_size": operand.mx_format.block if operand.block_size is None else operand.block_size,
        }
        for kind, operand in operands.items()
    }
    forward = {kind: keywords[kind] for kind in ("activations", "weights")} | {"accumulate": "blas", "threads": 1}
    of_grad = {"gradients": keywords["gradients"], "threads": 1}
    kept = {name: network.buffers.get_like(name, x.shape) for name in ("product", "d_out", "dz")}
    kept |= {name: network.buffers.get_like(name, layer.h.shape) for name in ("dh", "du")}
    for run in range(len(seeds)):
        u, first = mx.linear_forward(layer.z[run], parameters.w1[0, run], **forward)
        out, second = mx.linear_forward(layer.h[run], parameters.w2[0, run], **forward)
        back = mx.linear_backward(kept["d_out"][run], second, **of_grad)
        start = mx.linear_backward(kept["du"][run], first, **of_grad)
        pairs = {
            "u": (u, layer.u[run]),
            "out": (out, kept["product"][run]),
            "dh": (back.x, kept["dh"][run]),
            "w2": (back.weight, made.w2[0, run]),
            "dz": (start.x, kept["dz"][run]),
            "w1": (start.weight, made.w1[0, run]),
        }
        for name, (theirs, ours) in pairs.items():
            assert np.any(ours), name
            assert np.array_equal(theirs.view(np.int32), ours.view(np.int32)), name


def gradients(experiment, seeds=(3,)):
    network, x, y = network_and_batch(experiment, seeds)
    network.loss_and_gradients(x, y, 5)
    return network.gradients.flat.copy()


E2M1 = Operand("mxfp4_e2m1")


@pytest.mark.parametrize(
    "operand", ["weights", "activations", "weights_backward", "activations_backward", "gradients", "gamma", "beta"]
)
def test_every_operand_has_its_own_format(operand):
    start = SMALL.but(gamma_start=(0.5, 1.0))
    assert not np.array_equal(gradients(start), gradients(start.but(**{operand: E2M1})))


@pytest.mark.parametrize("operand", ["weights", "gradients", "gamma"])
@pytest.mark.parametrize(
    "change",
    [
        {"rounding": "rtz"},
        {"rounding": "sr"},
        {"scale_rule": "rceil"},
        {"block_size": 1},
        {"scale_rule": "released_bump"},
    ],
)
def test_every_switch_of_an_operand_matters(operand, change):
    experiment = SMALL.but(gamma_start=(0.1, 1.0), initialization="xavier")
    plain = gradients(experiment.but(**{operand: E2M1}))
    assert not np.array_equal(plain, gradients(experiment.but(**{operand: replace(E2M1, **change)})))


def test_bfloat16_everywhere_rounds_gradients_and_differs_from_ties_away():
    bf16 = SMALL.but(vector="bfloat16")
    ours = gradients(bf16)
    assert not (ours.view(np.uint32) & 0xFFFF).any()
    assert not np.array_equal(ours, gradients(bf16.but(vector_rounding="rna")))


@pytest.mark.parametrize(
    "experiment",
    [
        SMALL,
        SMALL.but(precision=uniform_precision("mxfp4_e2m1")),
        SMALL.but(precision=uniform_precision("mxfp8_e4m3", layer_norm=BFLOAT16), activation="swiglu"),
        SMALL.but(precision=uniform_precision("mxfp4_e2m1", rounding="sr")),
        SMALL.but(gamma=replace(E2M1, error="shuffle"), beta=replace(E2M1, error="random_sign"), layer_norm=True),
    ],
    ids=["float32", "e2m1", "swiglu", "stochastic", "noise"],
)
def test_a_run_does_not_depend_on_its_neighbours(experiment):
    alone, beside = Network(experiment, (5,)), Network(experiment, (3, 5, 8))
    single, several = Batches(experiment, (5,))(7), Batches(experiment, (3, 5, 8))(7)
    for network, batch in ((alone, single), (beside, several)):
        network.parameters.beta[...] = 0.1
        network.loss_and_gradients(*batch, 7)
    assert np.array_equal(alone.gradients.run(0), beside.gradients.run(1))


@pytest.mark.parametrize(
    "precision",
    [
        uniform_precision("mxfp4_e2m1"),
        uniform_precision("mxfp8_e4m3", scale_rule="rceil", block_size=16, rounding="rna"),
        Recipe(*(Operand("mxfp8_e5m2"),) * 5, replace(E2M1, error="clamp"), E2M1),
        Recipe(E2M1, FLOAT32, replace(E2M1, scale_rule="released_bump"), E2M1, replace(E2M1, rounding="sr"), E2M1),
    ],
    ids=["e2m1", "keywords", "float32 vectors", "mixed"],
)
def test_prepared_quantizations_are_those_of_plain_calls(precision, monkeypatch):
    experiment = SMALL.but(precision=precision, gamma_start=(0.5, 1.0), steps=8)

    def trained():
        training = Training(experiment, (3, 4, 5))
        for step in range(3):
            training.advance(measure=step == 1)  # With `measure`, the step is also computed in float32.
        training.network.parameters.beta[...] = 1e-39  # Fast loops leave subnormal numbers to the definition.
        training.network.loss_and_gradients(*Batches(experiment, (3, 4, 5))(3), 3)
        losses = [run.losses for run in training.runs]
        return np.array(losses), training.network.parameters.flat, training.network.gradients.flat

    prepared = trained()
    monkeypatch.setattr("mxnum.lab.mlp.model.is_repeatable", lambda operand: False)
    for ours, theirs in zip(prepared, trained(), strict=True):
        assert np.array_equal(ours.view(np.uint8), theirs.view(np.uint8))


@pytest.mark.parametrize(
    "operand",
    [E2M1, replace(E2M1, rounding="sr"), replace(E2M1, scale_rule="released_bump"), BFLOAT16],
    ids=["repeatable", "stochastic", "released", "bfloat16"],
)
def test_operands_that_share_memory_do_not_disturb_each_other(operand, monkeypatch):
    """Check a network whose operands have equal shapes and therefore share buffers."""
    experiment = Experiment(width=32, layers=2, batch=32, expansion=1, precision=Recipe(*(operand,) * 5))
    shared = gradients(experiment, (3, 4))
    monkeypatch.setattr("mxnum.lab.mlp.model._BUFFERS", {name: name for name in _STREAMS})
    monkeypatch.setattr("mxnum.lab.mlp.operands.Buffers.get_like", lambda self, name, shape: np.empty(shape, "f4"))
    assert np.array_equal(shared, gradients(experiment, (3, 4)))


def test_vectors_of_a_run_come_back():
    network = Network(SMALL, (3, 4))
    vector = network.parameters.run(1)
    network.parameters.set_run(0, vector)
    assert np.array_equal(network.parameters.run(0), vector)
    assert np.array_equal(network.parameters.w2[:, 0], network.parameters.w2[:, 1])


def test_quantized_products_for_the_teacher():
    x, weight = np.random.default_rng(0).standard_normal((2, 32, 64)).astype(np.float32)
    assert quantized_product(Recipe(gamma=FLOAT32), 0) is None
    product = quantized_product(uniform_precision("mxfp4_e2m1"), 0)(x, weight)
    y, _ = mx.linear_forward(x, weight, activations="mxfp4_e2m1", weights="mxfp4_e2m1", accumulate="blas")
    assert np.allclose(product, y, rtol=1e-5, atol=1e-5)

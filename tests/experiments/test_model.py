"""The backward pass against finite differences, against torch, and against the library's own linear layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxnum as mx
from mxnum.experiments.config import BFLOAT16, FLOAT32, Experiment, Operand, Precision, uniform_precision
from mxnum.experiments.data import Batches
from mxnum.experiments.loop import Training
from mxnum.experiments.model import _STREAMS, KINDS, Network, quantized_product

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
    rng = np.random.default_rng(1)  # beta starts at zero, where its gradient would not be tested
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


def linear_by_the_library(experiment, network, x, y):
    """The same training step with `mx.linear_forward` and `mx.linear_backward`: FP32 vectors, SR left out."""
    p, parameters = experiment.precision, network.parameters

    def keywords(operand):
        return None if operand.format is None else {"format": operand.format, "scale_rule": operand.scale_rule}

    def affine(value, operand):
        return value if operand.format is None else mx.fake_quantize(value, operand.format)

    forward = {"activations": keywords(p.activations), "weights": keywords(p.weights), "accumulate": "blas"}
    stream, saved = x[0].astype(np.float64), []
    for k in range(experiment.layers):
        gamma, beta = affine(parameters.gamma[k, 0], p.gamma), affine(parameters.beta[k, 0], p.beta)
        deviation = np.sqrt(stream.var(-1, keepdims=True) + 1e-5)
        unit = (stream - stream.mean(-1, keepdims=True)) / deviation
        z = (unit * gamma + beta).astype(np.float32)
        u, first = mx.linear_forward(z, parameters.w1[k, 0], **forward)
        h = np.maximum(u, 0)
        out, second = mx.linear_forward(h, parameters.w2[k, 0], **forward)
        stream = stream + out + parameters.bias[k, 0]
        saved.append((gamma, unit, deviation, u, first, second))
    d = 2 * (stream - y[0]) / stream.size
    gradients = {kind: [None] * experiment.layers for kind in KINDS}
    for k in reversed(range(experiment.layers)):
        gamma, unit, deviation, u, first, second = saved[k]
        gradient = keywords(p.gradients)
        back = mx.linear_backward(d.astype(np.float32), second, gradients=gradient)
        gradients["w2"][k], gradients["bias"][k] = back.weight, back.bias
        du = back.x * (u > 0)
        back = mx.linear_backward(du, first, gradients=gradient)
        gradients["w1"][k], dz = back.weight, back.x.astype(np.float64)
        gradients["gamma"][k], gradients["beta"][k] = (dz * unit).sum(0), dz.sum(0)
        g = dz * gamma
        d = d + (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True)) / deviation
    return gradients


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1"])
@pytest.mark.parametrize("scale_rule", ["floor", "rceil"])
def test_products_are_those_of_the_library(fmt, scale_rule):
    each = Operand(fmt, scale_rule=scale_rule)
    precision = Precision(each, each, each, each, each, Operand(fmt), Operand(fmt))
    experiment = SMALL.but(activation="relu", precision=precision, layers=1)
    network, x, y = network_and_batch(experiment)
    network.loss_and_gradients(x, y, 0)
    expected = linear_by_the_library(experiment, network, x, y)
    for kind in KINDS:
        theirs, ours = np.array(expected[kind]), getattr(network.gradients, kind)[:, 0]
        # An element next to a rounding boundary may fall on either side: nearly all agree closely.
        error = np.abs(ours - theirs) / np.abs(theirs).max()
        assert np.quantile(error, 0.9) < 1e-4, kind
        assert error.mean() < 2e-3, kind


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
    beside.keep([1, 2])
    beside.loss_and_gradients(several[0][1:], several[1][1:], 7)
    assert np.array_equal(alone.gradients.run(0), beside.gradients.run(0))


@pytest.mark.parametrize(
    "precision",
    [
        uniform_precision("mxfp4_e2m1"),
        uniform_precision("mxfp8_e4m3", scale_rule="rceil", block_size=16, rounding="rna"),
        Precision(*(Operand("mxfp8_e5m2"),) * 5, replace(E2M1, error="clamp"), E2M1),
        Precision(E2M1, FLOAT32, replace(E2M1, scale_rule="released_bump"), E2M1, replace(E2M1, rounding="sr"), E2M1),
    ],
    ids=["e2m1", "keywords", "float32 vectors", "mixed"],
)
def test_prepared_quantizations_are_those_of_plain_calls(precision, monkeypatch):
    experiment = SMALL.but(precision=precision, gamma_start=(0.5, 1.0), steps=8)

    def trained():
        training = Training(experiment, (3, 4, 5))
        for step in range(3):
            training.advance(measure=step == 1)  # which computes a step in float32 in between
        training.network.keep([2])
        training.network.parameters.beta[...] = 1e-39  # subnormal: left to the definition
        training.network.loss_and_gradients(*Batches(experiment, (5,))(3), 3)
        losses = [run.losses for run in training.runs]
        return np.array(losses), training.network.parameters.flat, training.network.gradients.flat

    prepared = trained()
    monkeypatch.setattr("mxnum.experiments.model.is_repeatable", lambda operand: False)
    for ours, theirs in zip(prepared, trained(), strict=True):
        assert np.array_equal(ours.view(np.uint8), theirs.view(np.uint8))


@pytest.mark.parametrize(
    "operand",
    [E2M1, replace(E2M1, rounding="sr"), replace(E2M1, scale_rule="released_bump"), BFLOAT16],
    ids=["repeatable", "stochastic", "released", "bfloat16"],
)
def test_operands_that_share_memory_do_not_disturb_each_other(operand, monkeypatch):
    """All shapes are equal, so that everything that may share memory does."""
    experiment = Experiment(width=32, layers=2, batch=32, expansion=1, precision=Precision(*(operand,) * 5))
    shared = gradients(experiment, (3, 4))
    monkeypatch.setattr("mxnum.experiments.model._PLACES", {name: name for name in _STREAMS})
    monkeypatch.setattr("mxnum.experiments.operands.Buffers.get_like", lambda self, name, shape: np.empty(shape, "f4"))
    assert np.array_equal(shared, gradients(experiment, (3, 4)))


def test_vectors_of_a_run_come_back():
    network = Network(SMALL, (3, 4))
    vector = network.parameters.run(1)
    network.parameters.set_run(0, vector)
    assert np.array_equal(network.parameters.run(0), vector)
    assert np.array_equal(network.parameters.w2[:, 0], network.parameters.w2[:, 1])


def test_quantized_products_for_the_teacher():
    x, weight = np.random.default_rng(0).standard_normal((2, 32, 64)).astype(np.float32)
    assert quantized_product(Precision(gamma=FLOAT32), 0) is None
    product = quantized_product(uniform_precision("mxfp4_e2m1"), 0)(x, weight)
    y, _ = mx.linear_forward(x, weight, activations="mxfp4_e2m1", weights="mxfp4_e2m1", accumulate="blas")
    assert np.allclose(product, y, rtol=1e-5, atol=1e-5)

"""Define the trained network (the student), a residual MLP, with a backward pass in numpy.

Layer k computes h_k = W1_k LN(A_{k-1}) and A_k = A_{k-1} + W2_k phi(h_k) + c_k.

One `Network` object holds the networks of several runs with different seeds, and computes them
together (see `kernels`). One array of shape (layers, runs, ...) holds all parameters of one kind,
such as the biases. The arrays of all kinds are views of one flat vector, so that an optimizer step
is one loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum.lab.mlp import kernels
from mxnum.lab.mlp.config import Experiment, vector_code
from mxnum.lab.mlp.data import INITIALIZATION, apply_activation, generator
from mxnum.lab.mlp.machine import CPU, Machine
from mxnum.lab.mlp.operands import Buffers, affine, is_repeatable, rounded
from mxnum.recipe import FLOAT32, Operand, Recipe

Array = Any
KINDS = ("gamma", "beta", "bias", "w1", "w2")
_EPSILON = np.float32(1e-5)


class Parameters:
    """One flat float32 vector and its views, one for each kind of parameter."""

    def __init__(self, experiment: Experiment, runs: int):
        e = experiment
        sizes: dict[str, tuple[int, ...]]
        sizes = {"gamma": (e.width,), "beta": (e.width,), "bias": (e.width,)}
        sizes |= {"w1": (e.inner, e.width), "w2": (e.width, e.hidden)}
        self.shapes = {kind: (e.layers, runs, *sizes[kind]) for kind in KINDS}
        #: For each kind of parameter, a list of views, one for each layer.
        self.by_layer: dict[str, list[Array]] = {}
        self.use(np.zeros(sum(math.prod(shape) for shape in self.shapes.values()), np.float32))

    def use(self, flat: Array) -> None:
        """Replace the vector with `flat`, and make new views of it."""
        self.flat, start = flat, 0
        for kind, shape in self.shapes.items():
            stop = start + math.prod(shape)
            setattr(self, kind, self.flat[start:stop].reshape(shape))
            self.by_layer[kind] = list(getattr(self, kind))
            start = stop

    gamma: Array
    beta: Array
    bias: Array
    w1: Array
    w2: Array

    def run(self, index: int) -> Array:
        """Return a copy of one run's parameters as a vector, in the order of `KINDS`."""
        return np.concatenate([getattr(self, kind)[:, index].ravel() for kind in KINDS])

    def set_run(self, index: int, vector: Array) -> None:
        """Set one run's parameters from a vector in the order that `run` returns."""
        start = 0
        for kind in KINDS:
            part = getattr(self, kind)[:, index]
            part[...] = vector[start : start + part.size].reshape(part.shape)
            start += part.size


def initial_parameters(experiment: Experiment, seeds: tuple[int, ...]) -> Parameters:
    """Draw initial weights and biases as PyTorch does, uniformly within ±1/sqrt(fan-in).

    With the initialization "xavier", the weights are Xavier normal with gain 0.5, and the biases
    are zero.
    """
    parameters = Parameters(experiment, len(seeds))
    for run, seed in enumerate(seeds):
        rng = generator(seed, INITIALIZATION)
        for layer in range(experiment.layers):
            low, high = experiment.gamma_start or (1.0, 1.0)
            parameters.gamma[layer, run] = rng.uniform(low, high, experiment.width) if low < high else low
            for weight in (parameters.w1[layer, run], parameters.w2[layer, run]):
                rows, columns = weight.shape
                if experiment.initialization == "uniform":
                    weight[...] = rng.uniform(-1 / math.sqrt(columns), 1 / math.sqrt(columns), weight.shape)
                else:
                    weight[...] = rng.standard_normal(weight.shape) * 0.5 * math.sqrt(2 / (rows + columns))
            if experiment.initialization == "uniform":
                bound = 1 / math.sqrt(experiment.hidden)
                parameters.bias[layer, run] = rng.uniform(-bound, bound, experiment.width)
    return parameters


@dataclass
class _Layer:
    """The arrays that the backward pass of a layer needs."""

    normalized: Array
    inverse_deviation: Array
    z: Array
    u: Array
    slope: Array
    h: Array


class Network:
    """The student networks of several runs, which are computed together."""

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...], machine: Machine = CPU):
        self.experiment, self.seeds, self.machine = experiment, seeds, machine
        self.parameters = Parameters(experiment, len(seeds))
        self.parameters.flat[...] = initial_parameters(experiment, seeds).flat
        self.gradients = Parameters(experiment, len(seeds))
        self.buffers = Buffers()

    def loss_and_gradients(self, x: Array, y: Array, step: int, precision: Recipe | None = None) -> Array:
        """Return the mean squared error of each run; write the gradients to `self.gradients`."""
        here = _Pass(self, self.experiment.precision if precision is None else precision, step)
        self.saved, stream = here.forward(x)
        loss, d_stream = np.empty(len(x)), self.buffers.get_like("d_stream", x.shape)
        kernels.residual_gradient(stream, y, loss, d_stream)
        here.backward(self.saved, d_stream)
        if here.bf16:
            kernels.round_in_place(self.gradients.flat, here.bf16)
        return loss


class _Pass:
    """One forward and backward pass of a network, in one precision."""

    def __init__(self, network: Network, precision: Recipe, step: int):
        self.network, self.experiment, self.precision, self.step = network, network.experiment, precision, step
        self.bf16, self.make = vector_code(precision), network.buffers.get_like
        self.weights = network.parameters if self.bf16 == 0 else self._rounded_parameters()
        self.gamma, self.beta = self._affine("gamma", precision.gamma, 0), self._affine("beta", precision.beta, 1)
        self.for_weights = precision.gradients_for_weights or precision.gradients

    def forward(self, x: Array) -> tuple[list[_Layer], Array]:
        """Return the arrays that the backward pass needs, and the final residual stream."""
        e, p, bf16, make = self.experiment, self.precision, self.bf16, self.make
        multiply = self.network.machine.product(p.activations, p.weights, bf16=bf16)
        w1, w2 = (self._of_layers(kind, p.weights, -1, kind) for kind in ("w1", "w2"))
        stream, saved = make("stream", x.shape), []
        stream[...] = x
        for k in range(e.layers):
            layer = self._layer(k, x.shape)
            saved.append(layer)
            if e.layer_norm:
                unit, inverse = layer.normalized, layer.inverse_deviation
                kernels.layer_norm(stream, self.gamma[k], self.beta[k], unit, inverse, layer.z, _EPSILON, bf16)
            else:
                kernels.round_bf16(stream.reshape(-1).view(np.int32), layer.z.reshape(-1).view(np.int32), bf16)
            multiply(self._quantized(layer.z, p.activations, -1, "z", k), w1(k).swapaxes(-1, -2), layer.u)
            apply_activation(e, layer.u, layer.slope, layer.h, bf16 if p.round_activation else 0)
            product = make("product", x.shape)
            multiply(self._quantized(layer.h, p.activations, -1, "h", k), w2(k).swapaxes(-1, -2), product)
            kernels.add_rounded_bias(product, self.weights.bias[k], stream, bf16)
        return saved, stream

    def backward(self, saved: list[_Layer], d_stream: Array) -> None:
        """Compute the network's gradients from the gradient of the final residual stream."""
        e, p, bf16, make, g = self.experiment, self.precision, self.bf16, self.make, self.network.gradients
        of_weights = self.network.machine.product(self.for_weights, p.activations_backward, bf16=bf16)
        of_inputs = self.network.machine.product(p.gradients, p.weights_backward, bf16=bf16)
        w1, w2 = (self._of_layers(kind, p.weights_backward, -2, f"{kind} backward") for kind in ("w1", "w2"))
        d_out, dh, du = make("d_out", d_stream.shape), make("dh", saved[0].h.shape), make("du", saved[0].u.shape)
        for k, layer in reversed(list(enumerate(saved))):
            kernels.round_and_sum(d_stream, d_out, g.bias[k], bf16)
            h = self._turned(layer.h, p.activations_backward, "h along batch", k)
            across = self._turned(d_out, self.for_weights, "d_out along batch", k)
            along = self._quantized(d_out, p.gradients, -1, "d_out", k)
            of_weights(across, h.swapaxes(-1, -2), g.w2[k])
            of_inputs(along, w2(k), dh)
            self._activation_backward(layer, dh, du)
            z = self._turned(layer.z, p.activations_backward, "z along batch", k)
            across = self._turned(du, self.for_weights, "du along batch", k)
            along = self._quantized(du, p.gradients, -1, "du", k)
            of_weights(across, z.swapaxes(-1, -2), g.w1[k])
            dz = make("dz", d_stream.shape)
            of_inputs(along, w1(k), dz)
            if e.layer_norm:
                unit, inverse = layer.normalized, layer.inverse_deviation
                kernels.layer_norm_backward(dz, unit, inverse, self.gamma[k], g.gamma[k], g.beta[k], d_stream, bf16)
            else:
                kernels.round_bf16(dz.reshape(-1).view(np.int32), d_out.reshape(-1).view(np.int32), bf16)
                d_stream += d_out

    def _layer(self, k: int, shape: tuple[int, ...]) -> _Layer:
        """Return the buffers of layer k."""
        wide, hidden = ((*shape[:2], length) for length in (self.experiment.inner, self.experiment.hidden))
        shapes = {"normalized": shape, "inverse": shape[:2], "z": shape, "u": wide, "slope": hidden, "h": hidden}
        return _Layer(*(self.make((name, k), of) for name, of in shapes.items()))

    def _quantized(self, tensor: Array, operand: Operand, axis: int, name: str, layer: int = 0) -> Array:
        buffers = self.network.buffers
        buffer = "quantized", _BUFFERS[name] if tensor.ndim == 3 else name
        if is_repeatable(operand):
            return buffers.quantized((name, layer), buffer, tensor, operand, axis)
        stream, out = self.step << 16 | layer << 8 | _STREAMS[name], self.make(buffer, tensor.shape)
        seeds = self.network.seeds
        return rounded(tensor, operand, axis, out, seeds=seeds, stream=stream, already_bf16=self.bf16 != 0)

    def _turned(self, tensor: Array, operand: Operand, name: str, layer: int) -> Array:
        """Quantize the tensor along its second-to-last axis, and return a transposed view.

        BLAS reads the view without a copy.
        """
        return self._quantized(tensor, operand, -2, name, layer).swapaxes(-1, -2)

    def _of_layers(self, kind: str, operand: Operand, axis: int, name: str) -> Callable[[int], Array]:
        """Return a function `weight(k)`, which returns the quantized weight of layer k.

        `weight(k)` quantizes a weight just before the product that needs the weight, so that the
        quantized weight is still in the cache. With stochastic rounding, all layers are quantized
        at once: the random bits of an element depend on its index among all layers.
        """
        if is_repeatable(operand):
            return lambda k: self._quantized(self.weights.by_layer[kind][k], operand, axis, name, k)
        whole: Array = self._quantized(getattr(self.weights, kind), operand, axis, name)
        return lambda k: whole[k]

    def _affine(self, kind: str, operand: Operand, tensor: int) -> Array:
        parameter = getattr(self.network.parameters, kind)
        if is_repeatable(operand):
            return self.network.buffers.quantized(kind, ("quantized", kind), parameter, operand, -1)
        return affine(parameter, operand, self.network.seeds, self.step, tensor)

    def _activation_backward(self, layer: _Layer, dh: Array, du: Array) -> None:
        e, bf16 = self.experiment, self.bf16
        if e.activation == "relu":
            kernels.relu_backward(layer.u.reshape(-1), dh.reshape(-1), du.reshape(-1), bf16)
        elif e.activation == "gelu":
            kernels.scaled_backward(layer.slope.reshape(-1), dh.reshape(-1), du.reshape(-1), bf16)
        else:
            narrow, wide = (-1, e.hidden), (-1, e.inner)
            slope, dh = layer.slope.reshape(narrow), dh.reshape(narrow)
            kernels.swiglu_backward(layer.u.reshape(wide), slope, dh, du.reshape(wide), bf16)

    def _rounded_parameters(self) -> Parameters:
        buffers, key = self.network.buffers, "rounded parameters"
        if key not in buffers:
            buffers[key] = Parameters(self.experiment, len(self.network.seeds))
        copy: Parameters = buffers[key]
        kernels.round_bf16(self.network.parameters.flat.view(np.int32), copy.flat.view(np.int32), self.bf16)
        return copy


_STREAMS = {
    name: index
    for index, name in enumerate(
        ("w1", "w2", "z", "h", "w1 backward", "w2 backward", "d_out along batch", "h along batch", "d_out")
        + ("du along batch", "z along batch", "du"),
        start=2,
    )
}
#: The name of the buffer of each operand. Operands that are never needed at the same time share a
#: buffer, which stays in the cache.
_BUFFERS = dict.fromkeys(("z", "h", "d_out along batch", "du along batch"), "left")
_BUFFERS |= dict.fromkeys(("d_out", "du"), "left of the second")
_BUFFERS |= dict.fromkeys(("h along batch", "z along batch", "w1", "w2", "w1 backward", "w2 backward"), "right")


def quantized_product(precision: Recipe, bf16: int, machine: Machine = CPU) -> Any:
    """Return `multiply(x, W)`, which computes x W^T with operands quantized as in the student.

    Return None if the precision quantizes neither weights nor activations. The products of a
    quantized teacher use this function.
    """
    times = machine.product(precision.activations, precision.weights, bf16=bf16)

    def multiply(x: Array, weight: Array) -> Array:
        left = rounded(x, precision.activations, -1, np.empty_like(x))
        right = rounded(weight, precision.weights, -1, np.empty_like(weight))
        product = np.empty((len(left), len(right)), np.float32)
        times(left, right.T, product)
        kernels.round_in_place(product.reshape(-1), bf16)
        return product

    return None if precision.weights == precision.activations == FLOAT32 else multiply

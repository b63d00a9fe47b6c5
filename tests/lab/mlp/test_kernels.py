import math

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.lab.mlp import kernels


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def to_bf16(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_round_bf16_equals_the_library():
    bits = np.random.default_rng(1).integers(-(2**31), 2**31, 200_000).astype(np.int32)
    ties = np.arange(-(2**15), 2**15, dtype=np.int32) << 16 | 0x8000
    x = np.concatenate([bits, ties]).view(np.float32)
    numbers = x[~np.isnan(x)]
    for code, rounding in ((1, "rne"), (2, "rna")):
        ours = np.empty_like(x)
        kernels.round_bf16(x.view(np.int32), ours.view(np.int32), code)
        expected = mx.encode(numbers, "bfloat16", rounding=rounding, overflow="ieee").astype(np.uint32) << 16
        assert np.array_equal(ours[~np.isnan(x)].view(np.uint32), expected)
        assert np.isnan(ours[np.isnan(x)]).all()
        in_place = x.copy()
        kernels.round_in_place(in_place.view(np.int32), code)
        assert np.array_equal(in_place.view(np.int32), ours.view(np.int32))
    kept = np.empty_like(x)
    kernels.round_bf16(x.view(np.int32), kept.view(np.int32), 0)
    assert np.array_equal(kept.view(np.int32), x.view(np.int32))


@pytest.mark.parametrize("width", [16, 40, 64, 70])
def test_layer_norm_and_its_gradient(width):
    x, gamma, beta, d_out = (
        floats(2, 5, width),
        floats(2, width, seed=1),
        floats(2, width, seed=2),
        floats(2, 5, width, seed=3),
    )
    unit, inverse, out = np.empty_like(x), np.empty((2, 5), np.float32), np.empty_like(x)
    kernels.layer_norm(x, gamma, beta, unit, inverse, out, np.float32(1e-5), 0)
    z = x.astype(np.float64)
    deviation = np.sqrt(z.var(-1, keepdims=True) + 1e-5)
    normalized = (z - z.mean(-1, keepdims=True)) / deviation
    assert np.allclose(out, normalized * gamma[:, None] + beta[:, None], atol=2e-6)
    d_gamma, d_beta, d_x = np.empty_like(gamma), np.empty_like(beta), np.ones_like(x)
    kernels.layer_norm_backward(d_out, unit, inverse, gamma, d_gamma, d_beta, d_x, 0)
    assert np.allclose(d_gamma, (d_out * normalized).sum(1), atol=1e-5)
    assert np.allclose(d_beta, d_out.sum(1), atol=1e-5)
    g = d_out * gamma[:, None].astype(np.float64)
    expected = g - g.mean(-1, keepdims=True) - normalized * (g * normalized).mean(-1, keepdims=True)
    assert np.allclose(d_x - 1, expected / deviation, atol=1e-5)


def test_layer_norm_rounds_to_bfloat16():
    x, gamma, beta = floats(1, 3, 32), floats(1, 32, seed=1), floats(1, 32, seed=2)
    unit, inverse, out = np.empty_like(x), np.empty((1, 3), np.float32), np.empty_like(x)
    kernels.layer_norm(x, gamma, beta, unit, inverse, out, np.float32(1e-5), 1)
    again = np.empty_like(x)
    kernels.layer_norm(to_bf16(x), gamma, beta, unit, inverse, again, np.float32(1e-5), 0)
    assert np.array_equal(out, to_bf16(again))


def slopes(function, x):
    h = 1e-6
    return (function(x + h) - function(x - h)) / (2 * h)


def gelu(x):
    return np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])


def gelu_by_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(("kernel", "function"), [(kernels.gelu_exact, gelu), (kernels.gelu_tanh, gelu_by_tanh)])
def test_gelu(kernel, function):
    u = np.concatenate([np.linspace(-12, 12, 1500), [0.0, -0.0, 50, -50]]).astype(np.float32)
    slope, out = np.empty_like(u), np.empty_like(u)
    kernel(u, slope, out, 0)
    assert np.allclose(out, function(u.astype(np.float64)), atol=2e-6)
    assert np.allclose(slope, slopes(function, u.astype(np.float64)), atol=2e-6)
    rounded, out16 = u.copy(), np.empty_like(u)
    kernel(rounded, slope, out16, 1)
    assert np.array_equal(rounded, to_bf16(u))
    again = np.empty_like(u)
    kernel(rounded.copy(), slope, again, 0)
    assert np.array_equal(out16, to_bf16(again))


def test_gelu_of_what_is_not_finite():
    for kernel in (kernels.gelu_exact, kernels.gelu_tanh):
        u, slope, out = np.array([np.nan, 1.0], np.float32), np.empty(2, np.float32), np.empty(2, np.float32)
        kernel(u, slope, out, 1)
        assert np.isnan(out[0])
        assert np.isfinite(out[1])


def test_relu():
    u, d = floats(300), floats(300, seed=1)
    out, back = np.empty_like(u), np.empty_like(u)
    kernels.relu(u, out, 0)
    kernels.relu_backward(u, d, back, 0)
    assert np.array_equal(out, np.maximum(u, 0))
    assert np.array_equal(back, np.where(u > 0, d, 0))


def test_swiglu():
    u, d = floats(7, 64), floats(7, 32, seed=1)
    sigmoid, out, back = np.empty((7, 32), np.float32), np.empty((7, 32), np.float32), np.empty_like(u)
    kernels.swiglu(u, sigmoid, out, 0)
    a, b = u[:, :32].astype(np.float64), u[:, 32:].astype(np.float64)

    def silu(v):
        return v / (1 + np.exp(-v))

    assert np.allclose(out, a * silu(b), atol=1e-6)
    kernels.swiglu_backward(u, sigmoid, d, back, 0)
    assert np.allclose(back[:, :32], d * silu(b), atol=1e-5)
    assert np.allclose(back[:, 32:], d * a * slopes(silu, b), atol=1e-5)


def test_scaled_backward_rounds_both():
    slope, d = floats(500), floats(500, seed=1)
    back, kept = np.empty_like(d), d.copy()
    kernels.scaled_backward(slope, kept, back, 1)
    assert np.array_equal(kept, to_bf16(d))
    assert np.array_equal(back, to_bf16(to_bf16(d) * slope))


def test_bias_and_residual_sum():
    x, bias, stream = floats(2, 3, 32), floats(2, 32, seed=1), floats(2, 3, 32, seed=2)
    expected = stream + to_bf16(to_bf16(x) + bias[:, None])
    kernels.add_rounded_bias(x, bias, stream, 1)
    assert np.array_equal(stream, expected)


def test_round_and_sum():
    x = floats(2, 9, 32)
    out, total = np.empty_like(x), np.empty((2, 32), np.float32)
    kernels.round_and_sum(x, out, total, 1)
    assert np.array_equal(out, to_bf16(x))
    assert np.allclose(total, out.sum(1), atol=1e-5)


def test_residual_gradient():
    p, t = floats(2, 9, 40), floats(2, 9, 40, seed=1)
    loss, d = np.empty(2), np.empty_like(p)
    kernels.residual_gradient(p, t, loss, d)
    assert np.allclose(loss, np.square(p - t, dtype=np.float64).mean((1, 2)), rtol=1e-6)
    assert np.allclose(d, 2 * (p - t) / 360, rtol=1e-6)


def test_adam_and_sgd_against_their_definitions():
    p, f = floats(50), np.float32
    ours, first, second = p.copy(), np.zeros_like(p), np.zeros_like(p)
    reference, m, v = p.astype(np.float64), np.zeros(50), np.zeros(50)
    for t in range(1, 6):
        g = floats(50, seed=t)
        corrections = (f(1 - 0.9**t), f(1 - 0.99**t))
        kernels.adam(ours, g, (first, second), f(0.01), (f(0.9), f(0.99)), corrections, f(1e-8))
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * np.square(g, dtype=np.float64)
        reference -= 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
    assert np.allclose(ours, reference, atol=1e-5)
    ours, velocity = p.copy(), np.zeros_like(p)
    kernels.sgd(ours, floats(50, seed=1), velocity, f(0.1), f(0.9))
    kernels.sgd(ours, floats(50, seed=2), velocity, f(0.1), f(0.9))
    assert np.allclose(ours, p - 0.1 * (1.9 * floats(50, seed=1) + floats(50, seed=2)), atol=1e-6)

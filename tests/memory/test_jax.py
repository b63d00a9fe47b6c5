"""Tests that functions accept and return JAX arrays."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

X = np.linspace(-3, 700, 128, dtype=np.float32).reshape(2, 64)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_answers_are_jax_arrays_of_the_same_bits(dtype):
    x = jnp.asarray(X).astype(dtype)
    values = mx.fake_quantize(x, "mxfp8_e4m3")
    assert isinstance(values, jax.Array)
    assert values.dtype == x.dtype
    assert np.asarray(values).tobytes() == mx.fake_quantize(np.asarray(x), "mxfp8_e4m3").tobytes()
    codes = mx.encode(x, "e5m2")
    assert isinstance(codes, jax.Array)
    assert np.array_equal(codes, mx.encode(np.asarray(x), "e5m2"))
    assert isinstance(mx.shared_scale(x, "mxfp4_e2m1"), jax.Array)


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "nvfp4", "mxfp6_e3m2"])
@pytest.mark.parametrize("packed", [False, True])
def test_mx_arrays_hold_jax_arrays(fmt, packed):
    q, want = mx.quantize(jnp.asarray(X), fmt, packed=packed), mx.quantize(X, fmt, packed=packed)
    for name in ("codes", "scales", "tensor_scale"):
        part, other = getattr(q, name), getattr(want, name)
        assert (part is None) == (other is None)
        assert part is None or (isinstance(part, jax.Array) and np.array_equal(part, other))
    assert isinstance(q.dequantize(), jax.Array)
    assert isinstance(q.pack(), jax.Array)
    assert np.array_equal(q.T.dequantize(), want.T.dequantize())
    assert q.to_host().equals(want)
    assert type(q.to_host().scales) is np.ndarray
    again = mx.MXArray.from_parts(q.codes, q.scales, fmt, tensor_scale=q.tensor_scale)
    assert isinstance(again.scales, jax.Array)
    assert again.to_host().equals(want.to_host() if not packed else mx.quantize(X, fmt))


def test_products_and_random_bits():
    a, b = (mx.quantize(jnp.asarray(X), "mxfp4_e2m1") for _ in range(2))
    product = mx.matmul(a, b.T)
    assert isinstance(product, jax.Array)
    assert np.array_equal(product, mx.matmul(a.to_host(), b.to_host().T))
    words = jnp.arange(128, dtype=jnp.uint32).reshape(2, 64) * 33554432
    drawn = mx.fake_quantize(jnp.asarray(X), "mxfp4_e2m1", rounding="sr", random_bits=words)
    want = mx.fake_quantize(X, "mxfp4_e2m1", rounding="sr", random_bits=np.asarray(words))
    assert np.array_equal(drawn, want)


def test_memory_is_read_without_a_copy():
    from mxnum.memory.tensors import host_view

    x = jnp.asarray(X)
    view = host_view("x", x)
    assert view.ctypes.data == x.unsafe_buffer_pointer()
    assert not view.flags.writeable


def test_what_jax_cannot_do_raises():
    x = jnp.asarray(X)
    with pytest.raises(ValueError, match="'out' must be writable"):
        mx.fake_quantize(x, "mxfp8_e4m3", out=x)
    with pytest.raises(TypeError, match=r"narrow a result of float64: call jax\.config\.update"):
        mx.quantize(x, "mxfp8_e4m3").dequantize("float64")
    with jax.enable_x64(True):
        assert mx.quantize(x, "mxfp8_e4m3").dequantize("float64").dtype == np.float64
    for transform in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(
            TypeError, match=r"'x' must be a JAX array with numbers, not a tracer: .* jax\.pure_callback"
        ):
            transform(lambda x: mx.fake_quantize(x, "mxfp8_e4m3").sum())(x)


def test_inside_jit_and_grad_by_a_callback():
    @jax.custom_vjp
    def rounded(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda x: mx.fake_quantize(np.asarray(x), "mxfp8_e4m3"), shape, x)

    rounded.defvjp(lambda x: (rounded(x), None), lambda _, grad: (grad,))
    x = jnp.asarray(X)
    assert np.array_equal(jax.jit(rounded)(x), mx.fake_quantize(X, "mxfp8_e4m3"))
    assert (jax.jit(jax.grad(lambda x: rounded(x).sum()))(x) == 1).all()

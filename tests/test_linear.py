"""Tests that a linear layer equals separate calls of quantize and matmul, and the reference."""

# ruff: noqa: E501 (each case of a table is on one line)

from __future__ import annotations

import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from tests import samples

rng = samples.generator("linear")
X = rng.standard_normal((2, 5, 40)).astype(np.float32)
W = rng.standard_normal((7, 40)).astype(np.float32)
B = rng.standard_normal(7).astype(np.float32)
G = rng.standard_normal((2, 5, 7)).astype(np.float32)


def test_forward_by_the_oracle():
    y, context = mx.linear_forward(
        X, W, B, activations="mxfp6_e2m3", weights={"format": "mxfp4_e2m1", "scale_rule": "even"}
    )
    a = reference.quantize(X.reshape(10, 40), "mxfp6_e2m3", blocks=(1, 32))
    b = reference.quantize(W, "mxfp4_e2m1", blocks=(1, 32), scale_rule="even")
    left, right = (
        [reference.Blocked(codes, scales, name, 32) for codes, scales in zip(q.codes, q.scales, strict=True)]
        for q, name in ((a, "mxfp6_e2m3"), (b, "mxfp4_e2m1"))
    )
    want = reference.matmul(left, right, accumulate="block") + B
    assert y.shape == (2, 5, 7)
    assert y.reshape(10, 7).tobytes() == want.tobytes()
    assert np.array_equal(context.operand_x.codes, a.codes)
    assert np.array_equal(context.operand_weight.codes, b.codes)


@pytest.mark.parametrize("accumulate", ["exact", "block", "sequential"])
@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
def test_six_quantizations_along_the_summed_axes(accumulate, out_dtype):
    options = {"accumulate": accumulate, "out_dtype": out_dtype}
    y, context = mx.linear_forward(X, W, B, activations="mxfp8_e4m3", weights="mxfp4_e2m1", **options)
    gradients = mx.linear_backward(G, context, gradients={"format": "mxfp8_e5m2", "scale_rule": "rceil"})
    x, g = X.reshape(10, 40), G.reshape(10, 7)
    quantize = {
        "x": lambda axis: mx.quantize(x, "mxfp8_e4m3", axis=axis),
        "w": lambda axis: mx.quantize(W, "mxfp4_e2m1", axis=axis),
        "g": lambda axis: mx.quantize(g, "mxfp8_e5m2", axis=axis, scale_rule="rceil"),
    }
    wide = mx.matmul(quantize["x"](1), quantize["w"](1).T, accumulate=accumulate) + B
    dtype = ml_dtypes.bfloat16 if out_dtype == "bfloat16" else np.float32
    assert y.tobytes() == wide.astype(dtype).tobytes()
    assert gradients.x.shape == X.shape
    assert gradients.x.tobytes() == mx.matmul(quantize["g"](1), quantize["w"](0), **options).tobytes()
    assert gradients.weight.tobytes() == mx.matmul(quantize["g"](0).T, quantize["x"](0), **options).tobytes()
    total = np.zeros(7, np.float32)
    for row in g:
        total += row
    assert gradients.bias.tobytes() == total.astype(dtype).tobytes()


def test_stochastic_rounding_takes_two_streams():
    grad = {"format": "mxfp8_e5m2", "rounding": "sr", "seed": 11, "stream": 3, "sr_bits": 12}
    _, context = mx.linear_forward(X, W, activations={"format": "mxint8", "rounding": "sr", "seed": 5})
    gradients = mx.linear_backward(G, context, gradients=grad)
    x, g, sr = X.reshape(10, 40), G.reshape(10, 7), {"rounding": "sr", "seed": 11, "sr_bits": 12}
    first, second = (mx.quantize(g, "mxfp8_e5m2", axis=1 - k, stream=6 + k, **sr) for k in (0, 1))
    assert gradients.x.tobytes() == mx.matmul(first, mx.quantize(W, "mxfp8_e4m3", axis=0)).tobytes()
    across = mx.quantize(x, "mxint8", axis=0, rounding="sr", seed=5, stream=1)
    assert gradients.weight.tobytes() == mx.matmul(second.T, across).tobytes()
    assert context.operand_x.equals(mx.quantize(x, "mxint8", rounding="sr", seed=5, stream=0))


@pytest.mark.parametrize("kind", ["activations", "weights", "gradients"])
def test_an_operand_left_unquantized(kind):
    formats = {"activations": "mxfp8_e4m3", "weights": "mxfp8_e4m3", "gradients": "mxfp8_e5m2"} | {kind: None}
    grad = formats.pop("gradients")
    y, context = mx.linear_forward(X, W, **formats, accumulate="sequential")
    gradients = mx.linear_backward(G, context, gradients=grad)
    q = {"x": (X.reshape(10, 40), "activations"), "w": (W, "weights")}
    x, w = (
        [mx.quantize(v, formats[name], axis=axis) if formats[name] else v for axis in (0, 1)] for v, name in q.values()
    )
    g = [mx.quantize(G.reshape(10, 7), grad, axis=axis) if grad else G.reshape(10, 7) for axis in (0, 1)]
    assert y.reshape(10, 7).tobytes() == mx.matmul(x[1], w[1].T, accumulate="sequential").tobytes()
    assert gradients.x.reshape(10, 40).tobytes() == mx.matmul(g[1], w[0], accumulate="sequential").tobytes()
    assert gradients.weight.tobytes() == mx.matmul(g[0].T, x[0], accumulate="sequential").tobytes()


def test_a_block_size_of_none_is_that_of_the_format():
    want, _ = mx.linear_forward(X, W)
    got, _ = mx.linear_forward(X, W, activations={"format": "mxfp8_e4m3", "block_size": None})
    assert np.array_equal(got, want)


def test_shapes_that_are_empty_or_vectors():
    y, context = mx.linear_forward(X[0, 0], W)
    assert y.shape == (7,)
    assert mx.linear_backward(y, context).x.shape == (40,)
    y, context = mx.linear_forward(np.zeros((3, 0), np.float32), np.zeros((7, 0), np.float32), B)
    assert np.array_equal(y, np.broadcast_to(B, (3, 7)))
    gradients = mx.linear_backward(y, context)
    assert [g.shape for g in gradients] == [(3, 0), (7, 0), (7,)]
    y, context = mx.linear_forward(X[:0], W)
    assert mx.linear_backward(y, context).weight.tolist() == np.zeros((7, 40)).tolist()


@pytest.mark.parametrize("out_dtype", ["float32", "float16"])
def test_out_and_threads(out_dtype):
    want, context = mx.linear_forward(X, W, B, out_dtype=out_dtype)
    gradients = mx.linear_backward(G, context)
    for make in (np.empty_like, lambda y: np.empty((*y.shape[:-1], 2 * y.shape[-1]), y.dtype)[..., ::2]):
        y = make(want)
        got, context = mx.linear_forward(X, W, B, out_dtype=out_dtype, threads=2, out=y)
        assert got is y
        assert y.tobytes() == want.tobytes()
        rooms = mx.LinearGradients(*(make(g) for g in gradients))
        made = mx.linear_backward(G, context, threads=2, out=rooms)
        assert all(a is b for a, b in zip(made, rooms, strict=True))
        assert [g.tobytes() for g in made] == [g.tobytes() for g in gradients]
    part = mx.linear_backward(G, context, out=(None, rooms.weight, None))
    assert part.weight is rooms.weight
    assert [g.tobytes() for g in part] == [g.tobytes() for g in gradients]


def test_out_may_overlap_what_is_read():
    x, w = X[0, :, :5].copy(), W[:5, :5].copy()
    y, context = mx.linear_forward(x, w, w[0], activations=None, weights=None, accumulate="exact")
    gradients = mx.linear_backward(y, context, gradients=None)
    kept = w.copy()
    got, _ = mx.linear_forward(x, w, w[0], activations=None, weights=None, accumulate="exact", out=w)
    assert got.tobytes() == y.tobytes()
    w[...] = kept
    grad = y.copy()
    made = mx.linear_backward(grad, context, gradients=None, out=(grad, x, w[0]))
    assert [g.tobytes() for g in made] == [g.tobytes() for g in gradients]


@cache
def context():
    """Make the context on first use, so that no loop is compiled while tests are collected."""
    return mx.linear_forward(X, W)[1]


ERRORS = {
    "weight of other features": (lambda: mx.linear_forward(X, W[:, :39]), "'weight' must be of 40 columns, not 39"),
    "weight that is a vector": (lambda: mx.linear_forward(X, B), "'weight' must be a matrix, not (7,)"),
    "x without axes": (lambda: mx.linear_forward(1.0, W), "'x' must be of at least one axis, not ()"),
    "x that is quantized": (lambda: mx.linear_forward([1], W), "'x' must be an array of"),
    "bias": (lambda: mx.linear_forward(X, W, B[:3]), "'bias' must be of shape (7,), not (3,)"),
    "keyword": (lambda: mx.linear_forward(X, W, weights={"format": "mxint8", "axis": 1}), "'weights keyword' must be one of ['format', "),
    "format missing": (lambda: mx.linear_forward(X, W, weights={"rounding": "rtz"}), "'weights' must be a mapping with a 'format'."),
    "format unknown": (lambda: mx.linear_forward(X, W, weights="mxfp9"), "'format' must be one of"),
    "accumulation": (lambda: mx.linear_forward(X, W, accumulate="blocks"), "did you mean 'block'?"),
    "out_dtype": (lambda: mx.linear_forward(X, W, out_dtype="float64"), "'out_dtype' must be one of"),
    "block without quantization": (lambda: mx.linear_forward(X, W, weights=None), "'weights' must not be None with accumulate='block'."),
    "block sizes": (lambda: mx.linear_forward(X, W, activations={"format": "mxint8", "block_size": 16}), "'activations' must be in blocks of 32 like 'weights' with accumulate='block', not 16"),
    "stream": (lambda: mx.linear_forward(X, W, weights={"format": "mxint8", "rounding": "sr", "seed": 1, "stream": 1 << 63}), "'stream' must be between 0 and"),
    "context": (lambda: mx.linear_backward(G, None), "'context' must be a LinearContext, not 'NoneType'"),
    "grad_y": (lambda: mx.linear_backward(G[0], context()), "'grad_y' must be of shape (2, 5, 7), not (5, 7)"),
    "out": (lambda: mx.linear_forward(X, W, out=np.empty((10, 7), np.float32)), "'out' must be of shape (2, 5, 7), not (10, 7)"),
    "out of gradients": (lambda: mx.linear_backward(G, context(), out=G), "'out' must be a LinearGradients, not 'ndarray'"),
    "two arrays": (lambda: mx.linear_backward(G, context(), out=(None, None)), "'out' must be three arrays, not 2"),
    "threads": (lambda: mx.linear_forward(X, W, threads=-1), "'threads' must be"),
    "gradients of other blocks": (lambda: mx.linear_backward(G, context(), gradients={"format": "mxint8", "block_size": 8}), "'gradients' must be in blocks of 32 like 'weights'"),
    "gradients not quantized": (lambda: mx.linear_backward(G, context(), gradients=None), "'gradients' must not be None with accumulate='block'."),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_one_sentence(case):
    call, fragment = ERRORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    assert fragment in message
    assert re.fullmatch(r"Argument .* (must|must not) be .*[.?]", message), message


def test_exact_accumulation_takes_what_is_not_quantized():
    _, plain = mx.linear_forward(X, W, activations=None, accumulate="exact")
    assert mx.linear_backward(G, plain, gradients=None).x.shape == X.shape


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize(
    ("unit", "how"),
    [("hopper_fp8_promoted", {"format": "e4m3:block=128,scale=float32"}), ("hopper_float16_acc16", None)],
)
def test_matrix_units_sum_all_three_products(unit, how):
    rng = np.random.default_rng(8)
    dtype = np.float32 if how else np.float16
    x, w, grad = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 300), (40, 300), (5, 40)))

    def rounded(array, axis):
        return mx.quantize(array, axis=axis, **how) if how else array

    y, context = mx.linear_forward(x, w, np.ones(40, dtype), activations=how, weights=how, accumulate=unit)
    sums = mx.matmul(rounded(x, 1), rounded(w, 1).T, accumulate=unit)
    assert y.tolist() == (sums.astype(np.float32) + np.float32(1)).tolist()
    gradients = mx.linear_backward(grad, context, gradients=how)
    assert gradients.x.tolist() == mx.matmul(rounded(grad, 1), rounded(w, 0), accumulate=unit).tolist()
    assert gradients.weight.tolist() == mx.matmul(rounded(grad, 0).T, rounded(x, 0), accumulate=unit).tolist()


@pytest.mark.parametrize(
    ("activations", "weights", "name"),
    [
        (None, "mxfp8_e4m3", "x"),
        ("mxfp4_e2m1", "mxfp8_e4m3", "activations"),
        ("mxfp8_e4m3", None, "weight"),
        ("mxfp8_e4m3", "mxfp8_e4m3:block=16", "weights"),
    ],
)
def test_errors_of_units_name_the_operands_of_layers(activations, weights, name):
    x, w = np.ones((4, 64), np.float16), np.ones((8, 64), np.float16)
    unit = mx.units.get("blackwell_mxfp8").but(name="narrow", operands=("e4m3",))
    with pytest.raises(ValueError, match=f"^Argument '{name}' must be an MX array of e4m3 elements"):
        mx.linear_forward(x, w, activations=activations, weights=weights, accumulate=unit)


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize(("gradients", "name"), [(None, "grad_y"), ("mxint8", "gradients")])
def test_errors_of_units_name_the_gradient(gradients, name):
    x, w = np.ones((4, 64), np.float16), np.ones((32, 64), np.float16)
    y, context = mx.linear_forward(x, w, accumulate="blackwell_mxfp8")
    with pytest.raises(ValueError, match=f"^Argument '{name}' must be an MX array of"):
        mx.linear_backward(y.astype(np.float16), context, gradients=gradients)

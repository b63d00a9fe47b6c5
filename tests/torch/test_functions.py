"""Tests that functions of tensors return the same bits as `mxnum`, and right gradients."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
import mxnum.reference
from mxnum.analysis import measure
from mxnum.recipe import BFLOAT16, FLOAT32, Operand, Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from mxnum.torch.operands import LEFT, Key, rounded  # noqa: E402  (after torch was found)
from mxnum.torch.randomness import position_of  # noqa: E402


def numbers(*shape, seed=0, dtype=torch.float32):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x * torch.exp2(3 * torch.sin(torch.arange(x.numel()).reshape(shape)))).to(dtype).requires_grad_()


def gradients(y, *inputs, seed=9):
    """Return a random gradient of y, and the gradients of the inputs by autograd."""
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)).to(y.dtype)
    return grad, torch.autograd.grad(y, inputs, grad)


RECIPES = {
    "one": ("mxfp8_e4m3", "mxfp8_e4m3", "mxfp8_e4m3"),
    "three": ("mxfp4_e2m1", "mxfp6_e3m2", "mxfp8_e5m2"),
    "stochastic": tuple({"format": f, "rounding": "sr", "seed": 5} for f in ("mxfp8_e4m3", "mxint8", "mxfp4_e2m1")),
    "rules": ({"format": "mxfp4_e2m1", "scale_rule": "rceil"}, {"format": "mxint8", "rounding": "rtz"}, "mxint4"),
}  # fmt: skip


VIEWS = {
    "contiguous": lambda x: x, "transposed": lambda x: x.mT, "heads": lambda x: x.transpose(0, 1),
    "strided": lambda x: x[..., ::2], "repeated": lambda x: x[:1].expand(4, -1, -1), "empty": lambda x: x[:0],
}  # fmt: skip


@pytest.mark.parametrize("format", ["mxfp8_e4m3", "nvfp4"])
def test_operands_in_reused_memory_have_the_bits_of_fake_quantize(format):
    key = Key(5, 3, position_of(2, 1, 4))
    for view, (rounding, dtype, axis) in itertools.product(VIEWS.values(), (
        ("rne", torch.float32, -1), ("rtz", torch.bfloat16, -2), ("sr", torch.float32, -2), ("sr", torch.float16, -1),
    )):  # fmt: skip
        operand, x = Operand(format, rounding=rounding), numbers(4, 32, 64, dtype=dtype).detach()
        for change in (1, -3, torch.nan):  # later calls reuse the first call's memory
            x[1, 2, 3:5] *= change
            made = rounded(view(x), operand, axis, key, LEFT, "left")
            drawn = key.keywords(operand, LEFT, made.numel())
            want = mx.fake_quantize(view(x), operand.mx_format, **operand.keywords(axis), **drawn)
            assert np.array_equal(made.double().numpy(), want.double().numpy(), equal_nan=True)
    with pytest.raises(ValueError, match="without a lazy negation"):
        rounded(torch._neg_view(numbers(4, 32).detach()), Operand(format), -1, Key(0, 0, None), LEFT, "left")


@pytest.mark.parametrize("accumulate", ["block", "exact", "sequential", "blas"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_layer_has_the_bits_of_linear_forward_and_linear_backward(name, accumulate):
    x, w, b = numbers(2, 5, 96), numbers(40, 96, seed=1), numbers(40, seed=2)
    keywords = [dict(how) if isinstance(how, dict) else {"format": how} for how in RECIPES[name]]
    stochastic = name == "stochastic"
    for number, options in enumerate(keywords):
        options |= {"stream": 4 * 3 + (0, 1, 2)[number]} if stochastic else {}
    drawn = ("seed", "stream")
    a, v, g = (Operand.of({k: v for k, v in options.items() if k not in drawn}) for options in keywords)
    recipe = Recipe(weights=v, activations=a, weights_backward=v, activations_backward=a, gradients=g)
    y = mxt.linear(x, w, b, recipe, accumulate=accumulate, **({"seed": 5, "stream": 3} if stochastic else {}))
    want, context = mx.linear_forward(
        x.detach(), w.detach(), b.detach(), activations=keywords[0], weights=keywords[1], accumulate=accumulate
    )
    assert torch.equal(y, want)
    grad, made = gradients(y, x, w, b)
    usual = mx.linear_backward(grad, context, gradients=keywords[2])
    assert all(torch.equal(mine, other) for mine, other in zip(made, usual, strict=True))


@pytest.mark.parametrize("accumulate", ["block", "sequential"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_bias_is_added_before_the_sum_is_narrowed(dtype, accumulate):
    # Regression: the bias was added after the product had been rounded to the type of x. This
    # changed results in types narrower than float32.
    x, w, b = numbers(37, 64, dtype=dtype), numbers(40, 64, seed=1, dtype=dtype), numbers(80, seed=2, dtype=dtype)[::2]
    with torch.no_grad():
        b[0], x[0] = torch.inf, torch.nan
    y = mxt.linear(x, w, b, accumulate=accumulate)
    how = {"accumulate": accumulate, "out_dtype": str(dtype).removeprefix("torch.")}
    want, context = mx.linear_forward(x.detach(), w.detach(), b.detach(), **how)
    assert torch.equal(y.view(torch.int16), want.view(torch.int16))
    grad, made = gradients(y, x, w, b)
    usual = mx.linear_backward(grad, context, gradients="mxfp8_e4m3")
    assert all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(made, usual, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_products_of_rounded_operands_equal_torchs(dtype):
    x, w = numbers(7, 64, dtype=dtype), numbers(32, 64, seed=1, dtype=dtype)
    both = [(f"{name}{axis}", v, axis) for name, v in (("x", x), ("w", w)) for axis in (0, 1)]
    q = {name: mx.fake_quantize(v.detach(), "mxfp8_e4m3", axis=axis) for name, v, axis in both}
    y = mxt.linear(x, w)
    assert y.dtype == dtype
    assert torch.equal(y, q["x1"] @ q["w1"].T)
    grad, (dx, dw) = gradients(y, x, w)
    along, across = (mx.fake_quantize(grad, "mxfp8_e4m3", axis=axis) for axis in (1, 0))
    assert torch.equal(dx, along @ q["w0"])
    assert torch.equal(dw, across.T @ q["x0"])


@pytest.mark.parametrize("accumulate", [None, "block"])
def test_matmul_of_batches(accumulate):
    a, b = numbers(2, 3, 8, 64), numbers(3, 64, 40, seed=1)
    y = mxt.matmul(a, b, "mxint8", accumulate=accumulate)
    q = mx.fake_quantize(a.detach(), "mxint8"), mx.fake_quantize(b.detach(), "mxint8", axis=-2)
    assert torch.allclose(y, q[0] @ q[1], rtol=0, atol=1e-4)
    grad, (da, db) = gradients(y, a, b)
    rows, columns = mx.fake_quantize(grad, "mxint8"), mx.fake_quantize(grad, "mxint8", axis=-2)
    q = mx.fake_quantize(a.detach(), "mxint8", axis=-2), mx.fake_quantize(b.detach(), "mxint8", axis=-1)
    assert torch.allclose(da, rows @ q[1].mT, atol=1e-3)
    assert torch.allclose(db, (q[0].mT @ columns).sum(0), atol=1e-3)


def test_each_operand_of_the_recipe_changes_its_own_product():
    x, w = numbers(32, 64), numbers(32, 64, seed=1)
    plain = mxt.linear(x, w, recipe="float32")
    assert torch.equal(plain, x @ w.T)
    grad, (dx, dw) = gradients(plain, x, w)
    changes = {
        "weights": (1, 0, 0), "activations": (1, 0, 0),
        "weights_backward": (0, 1, 0), "activations_backward": (0, 0, 1),
        "gradients_for_weights": (0, 0, 1), "gradients": (0, 1, 1), "gamma": (0, 0, 0),
    }  # fmt: skip
    for name, changed in changes.items():
        y = mxt.linear(x, w, recipe=Recipe(**{name: "mxfp4_e2m1"}))
        made = (y, *torch.autograd.grad(y, (x, w), grad))
        differs = tuple(int(not torch.equal(a, b)) for a, b in zip(made, (plain, dx, dw), strict=True))
        assert differs == changed, name


def test_fake_quantize():
    x = numbers(6, 70)
    other = {"axis": np.int64(1)}  # Regression: numpy integers raised an error
    for options in ({}, {"axis": 0, "rounding": "rtz", "scale_rule": "even"}, {"block_shape": (4, 4)}, other):
        y = mxt.fake_quantize(x, "mxfp4_e2m1", **options)
        assert torch.equal(y, mx.fake_quantize(x.detach(), "mxfp4_e2m1", **options))
        grad, (dx,) = gradients(y, x)
        assert torch.equal(dx, grad)
    y = mxt.fake_quantize(x, "mxfp4_e2m1", rounding="sr", seed=3, stream=2)
    assert torch.equal(y, mx.fake_quantize(x.detach(), "mxfp4_e2m1", rounding="sr", seed=3, stream=16))
    own = mx.MXFormat(mx.ElementFormat("e3m4", exponent_bits=3, mantissa_bits=4, bias=3), block=16)
    assert torch.equal(mxt.fake_quantize(x, own), mx.fake_quantize(x.detach(), own))


def clamped(x, format, rounding="rne"):
    """Return a mask of the numbers of x that are clamped.

    A number is clamped if x / scale, rounded with one more exponent bit, exceeds the largest
    element value.
    """
    q, e = mx.quantize(x, format), mx.formats.get(format).element
    unit = mx.MXArray.from_parts(torch.ones_like(q.codes), q.scales, format, tensor_scale=q.tensor_scale)
    scales = unit.dequantize("float64") / e.value(1)
    wider = mx.ElementFormat("wider", e.exponent_bits + 1, e.mantissa_bits, e.bias)
    quotients = [
        Fraction(a) / Fraction(b) for a, b in zip(x.flatten().tolist(), scales.flatten().tolist(), strict=True)
    ]
    found = [abs(wider.value(mx.reference.encode(each, wider, rounding=rounding))) > e.max for each in quotients]
    return torch.tensor(found).view(x.shape)


@pytest.mark.parametrize("format", ["mxfp4_e2m1", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8", "nvfp4"])
def test_gradients_of_clamped_numbers_are_cut(format):
    x, w = numbers(8, 64), numbers(16, 64, seed=1)
    # Under the floor rule, numbers just below a power of two are clamped. Some numbers of x lie
    # exactly at the thresholds at which clamping begins.
    with torch.no_grad():
        x[:, ::32], w[:, ::32] = 255.9, -127.99
        x[:4, 1:17] = torch.arange(480, 496).ldexp(torch.tensor(-1)) * torch.tensor([[1], [-1], [0.5], [-0.5]])
    fmt = mx.formats.get(format)
    for rounding in ("rne", "rna", "rtz", "rtp", "rtn", "rto", "sr"):
        drawn = {"seed": 3} if rounding == "sr" else {}
        want = clamped(x.detach(), format, "rne" if drawn else rounding)
        y = mxt.fake_quantize(x, format, gradient="clipped", rounding=rounding, **drawn)
        grad, (dx,) = gradients(y, x)
        assert torch.equal(dx, grad.masked_fill(want, 0)), rounding
        assert (rounding == "sr") or want.sum() == measure(x.detach().numpy(), fmt, rounding=rounding).clamped
    y = mxt.linear(x, w, recipe=format, gradient="clipped")
    grad, (dx, dw) = gradients(y, x, w)
    straight = torch.autograd.grad(mxt.linear(x, w, recipe=format), (x, w), grad)
    assert torch.equal(dx, straight[0].masked_fill(clamped(x.detach(), format), 0))
    assert torch.equal(dw, straight[1].masked_fill(clamped(w.detach(), format), 0))
    assert format == "nvfp4" or (dw[:, ::32] == 0).all()


def test_largest_number_of_an_nvfp4_block_keeps_its_gradient():
    # Regression: the gradient of a block's largest number was set to zero if the number was one ulp
    # above 6 * scale. Because scales are rounded, the largest number can be that large.
    for seed in range(200):
        x = numbers(1, 16, seed=seed)
        (dx,) = torch.autograd.grad(mxt.fake_quantize(x, "nvfp4", gradient="clipped").sum(), x)
        assert (dx == 1).all()
    x = numbers(512, 16, dtype=torch.bfloat16)
    q = mx.quantize(x.detach(), "nvfp4")
    beyond = x.abs() > 6 * mx.decode(q.scales, "e4m3", dtype="float64") * q.tensor_scale.double()
    assert (beyond & (q.dequantize(torch.bfloat16) == x)).any()
    assert measure(x.detach().float().numpy(), "nvfp4").clamped == 0


def test_gradients_under_a_scale_of_zero_are_cut():
    # Regression: numbers under a scale of zero did not count as clamped, because their codes are 0.
    x = torch.cat([torch.full((16,), 1e-6), torch.full((16,), 1e4), torch.zeros(1)]).requires_grad_()
    y = mxt.fake_quantize(x, "nvfp4", gradient="clipped")
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx.tolist() == [0.0] * 16 + [1.0] * 17
    got = measure(x.detach().numpy(), "nvfp4")
    assert (got.clamped, got.beyond_max, got.zero_scales) == (16, 16, 2)


def test_an_infinite_gradient_is_cut_too():
    # Regression: the gradient of a clamped number was multiplied by 0, which made an infinite
    # gradient NaN.
    x = torch.tensor([500.0, 1.0], requires_grad=True)
    y = mxt.fake_quantize(x, "mxfp8_e4m3", gradient="clipped")
    (dx,) = torch.autograd.grad(y, x, torch.tensor([torch.inf, torch.inf]))
    assert dx.tolist() == [0, torch.inf]


@pytest.mark.parametrize("rounding", ["rne", "rna"])
def test_nan_in_bfloat16_is_canonical(rounding):
    # Regression: NaN results had the bits of torch's cast, which are not canonical. Compare
    # integers, because `torch.equal` on floats cannot compare the bits of NaN.
    bits = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -0x7FFFFF, 0x7F800000, -0x800000], dtype=torch.int32)
    y = mxt.fake_quantize(bits.repeat(8).view(torch.float32), "bfloat16", rounding=rounding)
    want = torch.tensor([0x7FC00000] * 4 + [0x7F800000, -0x800000], dtype=torch.int32)
    assert torch.equal(y.view(torch.int32), want.repeat(8))


def test_quantize_and_dequantize():
    x = numbers(6, 64)
    q = mxt.quantize(x, "mxfp6_e2m3", axis=0)
    assert q.equals(mx.quantize(x.detach(), "mxfp6_e2m3", axis=0))
    assert isinstance(q.codes, torch.Tensor)
    assert torch.equal(mxt.dequantize(q), mx.fake_quantize(x.detach(), "mxfp6_e2m3", axis=0))
    assert mxt.dequantize(q, torch.bfloat16).dtype == torch.bfloat16
    drawn = mxt.quantize(x, "mxint8", rounding="sr", seed=4)
    assert drawn.equals(mx.quantize(x.detach(), "mxint8", rounding="sr", seed=4))
    assert isinstance(mxt.dequantize(mx.quantize(x.detach().numpy(), "mxint8")), torch.Tensor)
    # Regression: with the argument `stream`, `quantize` and `fake_quantize` drew different words.
    drawn = {"rounding": "sr", "seed": 4, "stream": 3}
    assert torch.equal(mxt.quantize(x, "mxint8", **drawn).dequantize(), mxt.fake_quantize(x, "mxint8", **drawn))


def test_norms():
    x, gamma, beta = numbers(5, 64), numbers(64, seed=1), numbers(64, seed=2)
    # Regression: a format alone rounded nothing.
    e4m3 = [mx.fake_quantize(p.detach(), "mxfp8_e4m3") for p in (gamma, beta)]
    assert torch.equal(mxt.layer_norm(x, 64, gamma, beta), torch.nn.functional.layer_norm(x, (64,), *e4m3))
    assert torch.equal(mxt.rms_norm(x, 64, gamma), torch.nn.functional.rms_norm(x, (64,), e4m3[0]))
    q = [mx.fake_quantize(p.detach(), "mxfp4_e2m1") for p in (gamma, beta)]
    recipe = Recipe(gamma="mxfp4_e2m1", beta="mxfp4_e2m1")
    y = mxt.layer_norm(x, (64,), gamma, beta, recipe)
    assert torch.equal(y, torch.nn.functional.layer_norm(x, (64,), *q))
    assert torch.equal(mxt.rms_norm(x, (64,), gamma, recipe), torch.nn.functional.rms_norm(x, (64,), q[0]))
    assert torch.equal(mxt.layer_norm(x, 64, gamma, beta, recipe), mxt.layer_norm(x, (64,), gamma, beta, recipe))
    assert torch.equal(mxt.rms_norm(x, 64, gamma, recipe), mxt.rms_norm(x, (64,), gamma, recipe))
    narrow = mxt.layer_norm(x, (64,), gamma, beta, recipe.but(vector="bfloat16"))
    rounded = torch.nn.functional.layer_norm(x.bfloat16().float(), (64,), *q).bfloat16().float()
    assert torch.equal(narrow, rounded)
    _, (dx, dgamma) = gradients(narrow, x, gamma)
    assert torch.equal(dgamma, dgamma.bfloat16().float())
    assert not torch.equal(dx, dx.bfloat16().float())  # the gradient of the residual stream is not rounded


@pytest.mark.parametrize("rounding", ["rne", "rna"])
def test_vector_operations_in_bfloat16(rounding):
    def r(value):
        return mx.encode(value, "bfloat16", rounding=rounding, overflow="ieee").view(torch.bfloat16).float()

    x, w, b = numbers(9, 64), numbers(32, 64, seed=1), numbers(32, seed=2)
    y = mxt.linear(x, w, b, Recipe(vector="bfloat16", vector_rounding=rounding))
    rx, rw, rb = (r(p.detach()) for p in (x, w, b))
    assert torch.equal(y, r(r(rx @ rw.T) + rb))
    grad, (dx, dw, db) = gradients(y, x, w, b)
    assert torch.equal(dx, r(r(grad) @ rw))
    assert torch.equal(dw, r(r(grad).T @ rx))
    assert torch.equal(db, r(r(grad).sum(0)))


def test_operands_in_bfloat16():
    x, w = numbers(9, 64), numbers(32, 64, seed=1)
    y = mxt.linear(x, w, recipe=Recipe(weights=BFLOAT16, activations=Operand("bfloat16", rounding="rna")))
    rna = mx.encode(x.detach(), "bfloat16", rounding="rna", overflow="ieee").view(torch.bfloat16).float()
    assert torch.equal(y, rna @ w.bfloat16().float().T)


def test_transform_keeps_products_up_to_rounding():
    x, w = numbers(32, 64, dtype=torch.float64), numbers(48, 64, seed=1, dtype=torch.float64)
    turned = Operand("mxint8", transform="hadamard")
    recipe = Recipe(turned, turned, turned, turned, turned)
    y = mxt.linear(x, w, recipe=recipe)
    exact = x @ w.T
    assert (y - exact).norm() < 0.02 * exact.norm()
    assert (y - exact).norm() > 0
    with pytest.raises(ValueError, match="needs a multiple of 16 elements along the summed axis, not 60"):
        mxt.linear(numbers(4, 60), numbers(8, 60), recipe=recipe)
    y = mxt.linear(numbers(7, 32), numbers(8, 32).requires_grad_(), recipe="nvidia nvfp4", seed=1)
    with pytest.raises(ValueError, match=r"not 7\. In the product for a weight's gradient, .* samples in the batch"):
        y.sum().backward()


def test_a_recipe_as_for_nvfp4():
    recipe = Recipe.named("nvidia nvfp4", "mxfp4_e2m1")
    x, w = numbers(32, 64), numbers(48, 64, seed=1)
    y = mxt.linear(x, w, recipe=recipe, seed=1)
    q = mx.fake_quantize(w.detach(), "mxfp4_e2m1", block_shape=(16, 16))
    assert torch.equal(y, mx.fake_quantize(x.detach(), "mxfp4_e2m1") @ q.T)
    grad, (dx, _) = gradients(y, x, w)
    drawn = mx.fake_quantize(grad, "mxfp4_e2m1", rounding="sr", seed=1, stream=4)
    assert torch.equal(dx, drawn @ q)


def test_float64_is_rounded_to_bfloat16_once():
    x = torch.tensor([[1 + 2**-8 + 2**-40]], dtype=torch.float64)  # rounding to float32 first would make a tie
    one = torch.ones(1, 1, dtype=torch.float64)
    for recipe in (Recipe(vector="bfloat16"), Recipe(activations="bfloat16")):
        assert mxt.linear(x, one, recipe=recipe).item() == 1 + 2**-7


def test_no_second_derivative():
    x, w = numbers(4, 64), numbers(8, 64, seed=1)
    layer = torch.nn.Conv1d(4, 4, 3)
    mxt.emulate(layer, "mxint8")
    # Regression: the second derivative of a norm with rounded steps was wrong, because it lacked
    # the terms from mean and variance. Second derivatives must raise an error.
    norm = mxt.layer_norm(x, 64, w[0], w[1], Recipe(vector="bfloat16", vector_steps=True))
    for y in (mxt.linear(x, w), mxt.fake_quantize(x, "mxint8", gradient="clipped"), layer(x), norm):
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=r"no second derivative|differentiate twice"):
            first.sum().backward()


STRIDES = {
    "transposed": lambda x: x.T, "sliced": lambda x: x[::2, 16:], "expanded": lambda x: x[0].expand(8, 64),
    "empty": lambda x: x[:0], "one": lambda x: x[:1, :1], "vector": lambda x: x[0],
}  # fmt: skip


@pytest.mark.parametrize("name", STRIDES)
def test_any_strides_and_sizes(name):
    x = STRIDES[name](numbers(8, 64))
    y = mxt.fake_quantize(x, "mxfp8_e4m3")
    assert torch.equal(y, mx.fake_quantize(x.detach(), "mxfp8_e4m3"))
    w = numbers(12, x.shape[-1], seed=1)
    y = mxt.linear(x, w)
    assert y.shape == (*x.shape[:-1], 12)
    dx, dw = torch.autograd.grad(y.sum(), (x, w))
    assert (dx.shape, dw.shape) == (x.shape, w.shape)


def test_layers_without_outputs():
    for accumulate in (None, "exact"):
        x, w, b = numbers(4, 32), numbers(0, 32), numbers(0)
        y = mxt.linear(x, w, b, accumulate=accumulate)
        made = torch.autograd.grad(y.sum(), (x, w, b))
        assert [part.shape for part in (y, *made)] == [(4, 0), (4, 32), (0, 32), (0,)]
        assert not made[0].any()


def test_inputs_and_outputs_may_change_in_place():
    x = numbers(4, 32)
    y = mxt.fake_quantize(x, "mxint8")
    y.mul_(2).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))
    w = numbers(4, 32, seed=1)
    y = mxt.linear(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_meta_tensors_have_shapes():
    x, w = torch.empty(2, 5, 64, device="meta"), torch.empty(32, 64, device="meta")
    y = mxt.linear(x, w)
    assert (y.shape, y.device.type) == ((2, 5, 32), "meta")
    assert mxt.fake_quantize(x, "mxfp8_e4m3").device.type == "meta"


def test_autocast():
    x, w, b = numbers(4, 64), numbers(32, 64, seed=1), numbers(32, seed=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = mxt.linear(x, w, b)
        z = mxt.matmul(x, w.T)
    same = mxt.linear(x.bfloat16(), w.bfloat16(), b.bfloat16())
    assert y.dtype == z.dtype == torch.bfloat16
    assert torch.equal(y, same)
    assert torch.autograd.grad(y.sum(), x)[0].dtype == torch.float32


def empty(shape=(4, 32), **options):
    return torch.zeros(shape, **options)


WRONG = {
    "array": (lambda: mxt.fake_quantize([1.0], "mxint8"), "Argument 'x' must be a torch tensor, not 'list'"),
    "sparse": (lambda: mxt.fake_quantize(empty().to_sparse(), "mxint8"), r"'x' must be dense \(tensor.to_dense\(\)\)"),
    "integers": (lambda: mxt.linear(empty(dtype=torch.int8), empty()), "'x' must be of float64, "),
    "quantized": (
        lambda: mxt.linear(torch.quantize_per_tensor(empty(), 1.0, 0, torch.qint8), empty()),
        "'x' must be of float64",
    ),
    "types": (lambda: mxt.linear(empty(), empty(dtype=torch.float64)), "'weight' must be of torch.float32 like 'x'"),
    "features": (lambda: mxt.linear(empty((4, 31)), empty()), "'x' must be of 32 features"),
    "weight": (lambda: mxt.linear(empty(), empty((32,))), r"'weight' must be of two axes, not \(32,\)"),
    "places": (
        lambda: mxt.linear(empty(), empty(device="meta")), "'weight' must be on cpu like the first tensor, not 'meta'"
    ),
    "bias": (lambda: mxt.linear(empty(), empty(), empty(5)), r"'bias' must be of 4 features, not \(5,\)"),
    "list": (lambda: mxt.linear(empty(), empty(), [1.0] * 4), "'bias' must be a torch tensor, not 'list'"),
    "wide": (
        lambda: mxt.linear(empty(), empty(), empty(4, dtype=torch.float64)), "'bias' must be of torch.float32 like"
    ),
    "steps": (  # Regression: a single weight was applied to all 32 features
        lambda: mxt.layer_norm(empty(), 1, empty(1), empty(1), Recipe(vector="bfloat16", vector_steps=True)),
        r"'normalized_shape' must be the last axis alone, .* not \(1,\)",
    ),
    "study": (
        lambda: mxt.fake_quantize(empty(), "mxint8", error="clamp"),
        "'operand' must be without the settings that only mxnum.lab.mlp",
    ),
    "axis": (lambda: mxt.fake_quantize(empty(), "mxint8", axis="rows"), "'axis' must be an integer, not 'rows'"),
    "no number": (lambda: mxt.fake_quantize(empty(), "mxint8", axis=True), "'axis' must be an integer, not True"),
    "no axis": (lambda: mxt.fake_quantize(empty(), "mxint8", axis=3, block_shape=(2, 2)), "between -2 and 1, not 3"),
    "nor there": (lambda: mxt.quantize(empty(), "mxint8", axis=-3, block_shape=(2, 2)), "between -2 and 1, not -3"),
    "length": (lambda: mxt.matmul(empty(), empty()), "'b' must be of length 32 along the summed axis"),
    "axes": (lambda: mxt.matmul(empty((32,)), empty((32, 4))), "'a' must be of at least two axes"),
    "keyword": (lambda: mxt.fake_quantize(empty(), "mxint8", scale="floor"), "did you mean 'scale_rule'"),
    "gradient": (lambda: mxt.fake_quantize(empty(), "mxint8", gradient="clip"), "did you mean 'clipped'"),
    "accumulate": (lambda: mxt.linear(empty(), empty(), accumulate="blocks"), "did you mean 'block'"),
    "seed": (lambda: mxt.fake_quantize(empty(), "mxint8", rounding="sr"), "'seed' must be given with rounding='sr'"),
    "negative": (lambda: mxt.fake_quantize(empty(), "mxint8", rounding="sr", seed=-1), "'seed' must be between 0"),
    "released": (
        lambda: mxt.linear(empty(), empty(), recipe=Recipe(weights=Operand("mxint8", scale_rule="released_bump"))),
        "'recipe' must be without the settings that only mxnum.lab.mlp",
    ),
    "block": (
        lambda: mxt.linear(empty(), empty(), recipe=Recipe(weights="mxint8"), accumulate="block"),
        "'recipe' must quantize both operands of each product when accumulate='block'",
    ),
    "grad": (
        lambda: torch.func.grad(lambda x: mxt.linear(x, empty()).sum())(empty()),
        "come from torch.autograd; torch.func.grad, vjp and jvp are not supported",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*quantized tensor.*", "ignore:.*torch.ao.quantization.*", "ignore:.*deprecated.*")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(case):
    call, message = WRONG[case]
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        call()


def test_gradients_of_gradients_are_refused():
    x, w = numbers(4, 32), numbers(8, 32, seed=1)
    (dx,) = torch.autograd.grad(mxt.linear(x, w).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="trying to differentiate twice"):
        dx.square().sum().backward()


def test_direct_functions_equal_registered_operations():
    for recipe in ("mxfp8_e4m3", Recipe.uniform("mxfp4_e2m1", rounding="sr", layer_norm="float32")):
        results = []
        for way in (torch.ops.mxnum.matmul, mxt.library.matmul):
            x, w, b, how = numbers(4, 32), numbers(8, 32, seed=1), numbers(8, seed=2), mxt.functions.made_ready(recipe)
            y = way(x, w, b, True, how.linear, 5, 2, torch.tensor([3, 0, 1]), 0)
            results.append([y, *gradients(y, x, w, b)[1]])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_results_are_never_the_argument_itself():
    x = numbers(4, 32, dtype=torch.bfloat16)
    for how in (FLOAT32, BFLOAT16):
        y = mxt.fake_quantize(x, how)
        assert torch.equal(y, x)
        assert y.data_ptr() != x.data_ptr()
        y.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))


def test_users_kernel_replaces_the_rounding():
    x, w, seen = numbers(4, 64), numbers(8, 64, seed=1), []

    def kernel(x, operand, axis, **drawn):
        seen.append((operand.format, axis, drawn))
        return torch.zeros_like(x)

    usual = mxt.linear(x, w, recipe="mxint8")
    with mxt.rounding_by(kernel):
        y = mxt.linear(x, w, recipe="mxint8")
        dx, _ = torch.autograd.grad(y.sum(), (x, w))
        mxt.fake_quantize(x, "mxfp4_e2m1", rounding="sr", seed=3)
    assert torch.equal(y, torch.zeros(4, 8))
    assert torch.equal(dx, torch.zeros_like(x))
    assert seen[:2] == [("mxint8", -1, {}), ("mxint8", -1, {})]
    assert seen[-1] == ("mxfp4_e2m1", -1, {"seed": 3, "stream": 0})
    assert len(seen) == 7
    assert torch.equal(mxt.linear(x, w, recipe="mxint8"), usual)
    with (
        pytest.raises(ValueError, match=r"'kernel' must be a function that returns .*, not '\(4, 64\), torch.float64'"),
        mxt.rounding_by(lambda x, operand, axis: x.double()),
    ):
        mxt.fake_quantize(x, "mxint8")
    with pytest.raises(ValueError, match=r"'accumulate' must be None within rounding_by"), mxt.rounding_by(kernel):
        mxt.linear(x, w, accumulate="block")


def test_the_clipped_mask_follows_the_blocks_of_each_operand():
    """Check that the gradient of a number is zero if the number is clamped.

    Blocks lie along the summed axis of each operand.
    """
    a, b = torch.randn(64, 32), torch.randn(32, 64)
    a[5] *= 1000
    b[:, 7] *= 1000
    a.requires_grad_(), b.requires_grad_()
    mxt.matmul(a, b, "mxfp4_e2m1", gradient="clipped").sum().backward()
    for x, axis in ((a, -1), (b, -2)):
        values = x.detach().numpy()
        scales = mx.quantize(values, "mxfp4_e2m1", axis=axis).scales.astype(np.int64) - 127
        beyond = np.abs(values) >= 7 * np.exp2(np.repeat(scales, 32, axis=axis))  # 7 rounds to 8
        assert beyond.any()
        assert np.array_equal(x.grad.numpy() == 0, beyond)

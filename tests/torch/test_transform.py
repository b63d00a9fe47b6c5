"""Tests of the Hadamard transform of operands: its bits are those of `mxnum.hadamard`."""

from __future__ import annotations

import pytest

import mxnum as mx
from mxnum import reference
from mxnum.recipe import Operand, Recipe
from mxnum.rotations import SIGNS

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from mxnum.torch.transform import by_products, hadamard  # noqa: E402

RECIPE = Recipe.named("nvidia nvfp4", "mxfp4_e2m1")


def numbers(*shape, seed=0, spread=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * torch.exp2(spread * torch.randn(shape, generator=generator))
    return x.to(dtype)


def bits(x):
    return x.contiguous().view(torch.int16 if x.dtype.itemsize == 2 else torch.int32)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_with_the_hadamard_matrix_equal_the_loops(dtype, inverse):
    for shape, axis in (((4, 32), -1), ((48, 3), 0), ((3, 16, 5), 1), ((0, 32), 1), ((4, 0), 1)):
        x = numbers(*shape, dtype=dtype)
        x[..., :1] = -0.0
        want = mx.hadamard(x, axis, signs="transformer_engine", inverse=inverse)
        assert torch.equal(bits(hadamard(x, axis, inverse)), bits(want))
        assert torch.equal(bits(by_products(x, axis, inverse)), bits(want))
    if dtype != torch.bfloat16:  # the reference needs numpy arrays, and numpy has no bfloat16
        row = numbers(16, dtype=dtype)
        exact = reference.hadamard(row.numpy(), signs=SIGNS["transformer_engine"], inverse=inverse)
        assert hadamard(row, 0, inverse).numpy().tobytes() == exact.tobytes()


def test_inexact_sums_are_left_to_the_loops():
    x = torch.tensor([1.0, 2.0**-60, *[0.0] * 14])
    assert by_products(x, 0) is None
    assert by_products(torch.full((16,), torch.inf), 0) is None
    assert by_products(torch.tensor([1 + 2**-52, *[1.0] * 15], dtype=torch.float64), 0) is None


def test_both_operands_of_every_product_are_transformed():
    def turned(x, axis):
        return mx.hadamard(x, axis, signs="transformer_engine")

    def q(x, axis=None, **more):
        return mx.fake_quantize(x, "mxfp4_e2m1", axis=axis, **more)

    def drawn(x, axis, slot):
        return q(x, axis, rounding="sr", seed=1, stream=slot)

    a, b, grad = numbers(2, 32, 64, spread=1), numbers(2, 64, 48, spread=1, seed=1), numbers(2, 32, 48, seed=2)
    x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
    made = torch.autograd.grad(mxt.matmul(x, y, RECIPE, seed=1), (x, y), grad)
    assert torch.equal(made[0], drawn(grad, -1, 4) @ q(b, -1).mT)
    assert torch.equal(made[1], q(turned(a, -2), -2).mT @ drawn(turned(grad, -2), -2, 5))
    x, w = a[0].clone().requires_grad_(), b[0].T.contiguous().requires_grad_()
    dx, dw = torch.autograd.grad(mxt.linear(x, w, recipe=RECIPE, seed=1), (x, w), grad[0])
    assert torch.equal(dx, drawn(grad[0], -1, 4) @ q(w.detach(), block_shape=(16, 16)))
    assert torch.equal(dw, drawn(turned(grad[0], -2), -2, 5).T @ q(turned(a[0], -2), -2))


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize("name", Recipe.names())
def test_gradients_of_all_named_recipes_are_about_right(name):
    a, b, grad = numbers(32, 64, spread=0), numbers(64, 48, spread=0, seed=1), numbers(32, 48, spread=0, seed=2)
    a.requires_grad_(), b.requires_grad_()
    for y in (mxt.matmul(a, b, name, seed=1), mxt.linear(a, b.T, None, name, seed=1)):
        made = torch.autograd.grad(y, (a, b), grad)
        for mine, other in zip((y, *made), (a @ b, *torch.autograd.grad(a @ b, (a, b), grad)), strict=True):
            assert (mine - other).norm() < 0.25 * other.norm()


def test_operands_without_a_format_are_transformed_too():
    turned = Operand(transform="hadamard")
    for other in (Operand("mxint8", transform="hadamard"), Operand("bfloat16", transform="hadamard")):
        x, w = numbers(4, 32, spread=0), numbers(8, 32, spread=0, seed=1)
        y = mxt.linear(x, w, recipe=Recipe(weights=turned, activations=other))
        assert (y - x @ w.T).norm() < 0.02 * y.norm()


def test_gradient_is_zero_if_the_transformed_number_was_clamped():
    operand = Operand("mxfp8_e4m3", transform="hadamard")
    x, w = numbers(8, 32, spread=2).requires_grad_(), numbers(16, 32, seed=1)
    recipe = Recipe(weights=operand, activations=operand)
    grad = numbers(8, 16, seed=2)
    (made,) = torch.autograd.grad(mxt.linear(x, w, recipe=recipe, gradient="clipped"), x, grad)
    z = hadamard(x, 1)
    inside = z.abs() <= 448 * torch.exp2(mx.shared_scale(z, "mxfp8_e4m3").to(torch.float32) - 127)
    assert not inside.all()
    assert torch.equal(made, hadamard(hadamard(grad @ w, 1) * inside, 1, inverse=True))


def test_transform_without_a_product_raises():
    x, operand = numbers(4, 32), Operand("mxint8", transform="hadamard")
    for call in (mxt.fake_quantize, mxt.quantize):
        with pytest.raises(
            ValueError, match="'transform' must be None for an operand outside of products, not 'hadamard'"
        ):
            call(x, operand)
    with pytest.raises(ValueError, match=r"'beta.transform' must be None, because beta is in no product"):
        Recipe(beta=operand)
    table = torch.nn.Embedding(8, 32)
    mxt.emulate(table, Recipe(weights=operand, activations=operand))
    assert torch.equal(table(torch.arange(8)), mx.fake_quantize(table.weight.detach(), "mxint8"))

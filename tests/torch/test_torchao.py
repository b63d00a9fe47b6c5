"""Tests against torchao's emulated training in MXFP8."""

from __future__ import annotations

import pytest

from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")


@pytest.fixture(scope="module")
def theirs():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pytest.importorskip("torchao", reason="torchao is not installed")
            return pytest.importorskip("torchao.prototype.moe_training.mxfp8_linear", reason="no mxfp8_linear")
        except AttributeError as problem:
            pytest.skip(f"this torchao needs a newer torch: {problem}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["rceil", "floor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_three_products(theirs, rule, dtype):
    generator = torch.Generator().manual_seed(1)

    def numbers(*shape):
        x = torch.randn(shape, generator=generator)
        return (x * torch.exp2(2 * torch.randn(shape[-1], generator=generator))).to(dtype)

    x, w, grad = numbers(4, 16, 96), numbers(64, 96), numbers(4, 16, 64)
    recipe = Recipe.named("torchao mxfp8")
    if rule == "floor":
        recipe = Recipe.uniform("mxfp8_e4m3", layer_norm="float32")
    pairs = []
    for call in (
        lambda x, w: mxt.linear(x, w, recipe=recipe),
        lambda x, w: theirs.mx_mm.apply(
            x, w, torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e4m3fn, 32,
            theirs.KernelPreference.EMULATED, theirs.MXFP8Dim0CastKernelChoice.TORCH,
            theirs.MXFP8Dim1CastKernelChoice.TORCH, theirs.ScaleCalculationMode(rule), False,
        ),
    ):  # fmt: skip
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = call(a, b)
        y.backward(grad)
        pairs.append((y.detach(), a.grad, b.grad))
    for mine, other in zip(*pairs, strict=True):
        # torchao adds in another order, and rounds to bfloat16.
        limit = 1e-6 if dtype == torch.float32 else 2**-8
        assert mine.dtype == other.dtype
        assert (mine - other).abs().max() <= limit * other.abs().max()

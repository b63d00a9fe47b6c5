"""Tests of attention with quantized products, alone and inside modules."""

from __future__ import annotations

import math

import pytest

import mxnum as mx
from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
nn = torch.nn
plain = nn.functional.scaled_dot_product_attention


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


CASES = {
    "usual": {},
    "causal": {"is_causal": True},
    "mask": {"attn_mask": torch.arange(96).reshape(8, 12) % 5 > 0},
    "added": {"attn_mask": numbers(8, 12, seed=4)},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("case", CASES)
def test_attention_without_rounding_equals_torchs(case):
    q, k, v = numbers(2, 3, 8, 32), numbers(2, 3, 12, 32, seed=1), numbers(2, 3, 12, 16, seed=2)
    y, want = mxt.attention(q, k, v, recipe="float32", **CASES[case]), plain(q, k, v, **CASES[case])
    assert torch.allclose(y, want, atol=1e-5)


@pytest.mark.skipif(torch.__version__ < (2, 5), reason="before torch 2.5, attention has no enable_gqa")
def test_groups_of_heads_and_rows_without_keys():
    q, k, v = numbers(2, 4, 8, 32), numbers(2, 2, 8, 32, seed=1), numbers(2, 2, 8, 16, seed=2)
    y = mxt.attention(q, k, v, enable_gqa=True, recipe="float32")
    assert torch.allclose(y, plain(q, k, v, enable_gqa=True), atol=1e-5)
    mask = torch.zeros(8, 8, dtype=torch.bool)
    q.requires_grad_()
    y = mxt.attention(q, k, v, attn_mask=mask, enable_gqa=True)
    assert torch.equal(y, torch.zeros_like(y))
    assert torch.equal(torch.autograd.grad(y.sum(), q)[0], torch.zeros_like(q))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_causal_attention_has_the_bits_of_a_mask(dtype):
    # A causal mask and is_causal=True run different code, but give equal bits, also with NaN keys.
    q, k, v, grad = (numbers(2, 3, 40, 32, seed=seed).to(dtype) for seed in range(4))
    for row, number in ((30, math.nan), (20, math.inf)):
        k[0, 0, row] = number
    mask = torch.ones(40, 40, dtype=torch.bool).tril()
    recipe = {"uniform": "mxfp8_e4m3", "gradients": {"format": "mxfp8_e5m2", "rounding": "sr"}}
    for skipped in ((), (0, 1), (2,)):
        made = []
        for options in ({"is_causal": True}, {"attn_mask": mask}):
            parts = [x.clone().requires_grad_(i not in skipped) for i, x in enumerate((q, k, v))]
            y = mxt.attention(*parts, recipe=recipe, scale=0.3, seed=5, **options)
            y.backward(grad)
            made.append([y.detach(), *(part.grad for part in parts if part.grad is not None)])
        integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        assert all(torch.equal(a.view(integers), b.view(integers)) for a, b in zip(*made, strict=True))
        assert len(made[0]) == 4 - len(skipped)
        assert made[0][0].isnan().any()
        assert not made[0][0][0, 0, :20].isnan().any()


def test_a_mask_of_a_wider_type():
    # The mask may have a wider type than the scores to which it is added.
    q, mask = numbers(2, 8, 32).bfloat16(), numbers(8, 8, seed=1)
    y, want = mxt.attention(q, q, q, mask, recipe="float32"), plain(q, q, q, mask)
    assert y.dtype == want.dtype
    assert torch.allclose(y.float(), want.float(), atol=0.05)


def test_both_products_are_quantized_along_the_summed_axis():
    q, k, v = numbers(2, 8, 64), numbers(2, 32, 64, seed=1), numbers(2, 32, 16, seed=2)
    y = mxt.attention(q, k, v, recipe="mxfp4_e2m1")
    scores = mx.fake_quantize(q, "mxfp4_e2m1") @ mx.fake_quantize(k, "mxfp4_e2m1").mT / math.sqrt(64)
    want = mx.fake_quantize(scores.softmax(-1), "mxfp4_e2m1") @ mx.fake_quantize(v, "mxfp4_e2m1", axis=-2)
    assert torch.allclose(y, want, atol=1e-6)


@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention(need_weights):
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(64, 2, batch_first=True), numbers(3, 8, 64)
    mask = nn.Transformer.generate_square_subsequent_mask(8)
    options = {"need_weights": need_weights, "attn_mask": mask}
    want, weights = module(x, x, x, **options)
    mxt.emulate(module, Recipe())
    y, made = module(x, x, x, **options)
    assert torch.allclose(y, want, atol=1e-5)
    assert not need_weights or torch.allclose(made, weights, atol=1e-5)
    mxt.restore(module)
    # The test uses exact sums, because torch's own sums depend on the memory layout.
    mxt.emulate(module, "mxfp4_e2m1", accumulate="exact")
    how = {"recipe": "mxfp4_e2m1", "accumulate": "exact"}
    y, _ = module(x, x, x, **options)
    q, k, v = mxt.linear(x, module.in_proj_weight, module.in_proj_bias, **how).chunk(3, -1)
    q, k, v = (part.unflatten(-1, (2, 32)).transpose(1, 2) for part in (q, k, v))
    inside = mxt.attention(q, k, v, mask, **how).transpose(1, 2).flatten(2)
    want = mxt.linear(inside, module.out_proj.weight, module.out_proj.bias, **how)
    assert torch.equal(y, want)
    module.eval()
    with torch.no_grad():  # without gradients, torch's fast path would bypass the emulation
        assert torch.equal(module(x, x, x, **options)[0], y)


MODULES = {
    "other keys": ({}, {}),
    "sizes": ({"kdim": 48, "vdim": 40}, {}),
    "rows": (
        {"add_bias_kv": True, "add_zero_attn": True}, {"key_padding_mask": torch.arange(36).reshape(3, 12) % 4 > 2}
    ),
    "order": ({"batch_first": False, "bias": False}, {"average_attn_weights": False}),
    "one": ({}, {"attn_mask": torch.arange(96).reshape(8, 12) % 7 > 5}),
    "each": ({}, {"attn_mask": numbers(6, 8, 12, seed=9)}),
}  # fmt: skip


@pytest.mark.parametrize("case", MODULES)
def test_multihead_attention_without_rounding_equals_torchs(case):
    torch.manual_seed(0)
    settings, options = MODULES[case]
    module = nn.MultiheadAttention(64, 2, **{"batch_first": True, **settings})
    q, k, v = numbers(3, 8, 64), numbers(3, 12, settings.get("kdim", 64)), numbers(3, 12, settings.get("vdim", 64))
    if case == "one":
        q, k, v = q[0], k[0], v[0]
    elif case == "order":
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    want = module(q, k, v, **options)
    mxt.emulate(module, Recipe())
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(module(q, k, v, **options), want, strict=True))
    with pytest.raises(ValueError, match="'attn_mask' must be given with is_causal=True"):
        module(q, k, v, is_causal=True)


def test_attention_inside_named_modules():
    class Attending(nn.Module):
        def forward(self, x):
            return plain(x, x, x)

    model, x = nn.Sequential(Attending(), Attending()), numbers(2, 8, 64)
    emulation = mxt.emulate(model, "mxfp4_e2m1", attention="0")
    assert set(emulation.modules) == {"0"}
    assert torch.equal(model[0](x), mxt.attention(x, x, x, recipe="mxfp4_e2m1"))
    assert torch.equal(model[1](x), plain(x, x, x))


def test_products_of_a_module_draw_different_bits():
    q = torch.full((1, 32, 32), 0.7)
    recipe = Recipe(activations={"format": "mxfp4_e2m1", "rounding": "sr"})
    one = mxt.attention(q, q, q, recipe=recipe, seed=1)
    assert torch.equal(one, mxt.attention(q, q, q, recipe=recipe, seed=1))
    assert not torch.equal(one, mxt.attention(q, q, q, recipe=recipe, seed=2))
    with pytest.raises(ValueError, match="'attn_mask' must be None with is_causal=True"):
        mxt.attention(q, q, q, q, is_causal=True)

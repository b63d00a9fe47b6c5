"""Tests that matrix units in PyTorch models return the bits that `mx.matmul` returns.

The tests cover forward passes, backward passes and compiled models.
"""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop.swizzle import swizzle_scales
from mxnum.recipe import Operand, Recipe
from tests import silicon

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
pytestmark = pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")

ROWS = "e4m3:block=128,scale=float32"
LAYERS = {
    "hopper_fp8_promoted": {"format": ROWS},
    "blackwell_mxfp8": {"format": "mxfp8_e4m3", "scale_rule": "rceil"},
    "blackwell_nvfp4": {"format": "nvfp4"},
    "hopper_tf32": None,
}


def numbers(*shape, seed=0, dtype=torch.float32):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x.to(dtype).requires_grad_()


@pytest.mark.parametrize("unit", LAYERS)
def test_a_layer_has_the_bits_of_linear_forward_and_linear_backward(unit):
    how = LAYERS[unit]
    operand = Operand() if how is None else Operand.of(how)
    recipe = Recipe(operand, operand, operand, operand, operand)
    x, w, b = numbers(3, 5, 160), numbers(40, 160, seed=1), numbers(40, seed=2)
    y = mxt.linear(x, w, b, recipe, accumulate=unit)
    detached = (part.detach() for part in (x, w, b))
    want, context = mx.linear_forward(*detached, activations=how, weights=how, accumulate=unit)
    assert torch.equal(y, want)
    grad = torch.ones_like(y)
    made = torch.autograd.grad(y, (x, w, b), grad)
    usual = mx.linear_backward(grad, context, gradients=how)
    assert all(torch.equal(mine, other) for mine, other in zip(made, usual, strict=True))


@pytest.mark.parametrize("name", ["hopper fp8", "deepseek v3", "blackwell mxfp8", "blackwell nvfp4"])
def test_recipes_use_their_units(name):
    recipe = Recipe.named(name)
    x, w = numbers(160, 160), numbers(160, 160, seed=1)
    seed = {"seed": 3} if name == "blackwell nvfp4" else {}
    y = mxt.linear(x, w, None, recipe, **seed)
    forward = mxt.linear(x, w, None, recipe.but(unit=None, unit_backward=None), accumulate=recipe.unit, **seed)
    assert torch.equal(y, forward)
    exact = mxt.linear(x, w, None, recipe, accumulate="exact", **seed)
    assert not torch.equal(y, exact)
    made, backward, forward_too = (
        torch.autograd.grad(mxt.linear(x, w, None, recipe, accumulate=unit, **seed).sum(), (x, w))
        for unit in (None, recipe.unit_backward or recipe.unit, recipe.unit)
    )
    assert all(map(torch.equal, made, backward))
    assert all(map(torch.equal, made, forward_too)) == (recipe.unit_backward is None)
    assert recipe.unit in Recipe.names()[name]
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("name", ["deepseek v3", "hopper fp8"])
def test_compiled_and_checkpointed_models_have_the_same_bits(name):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(160, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
    mxt.emulate(model, name)
    x = numbers(8, 160)

    def run(call):
        model.zero_grad()
        call(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    usual = run(model)
    for call in (checkpointed, torch.compile(model, backend="aot_eager", fullgraph=True)):
        assert all(map(torch.equal, usual, run(call)))


def test_units_of_your_own_must_be_registered():
    mine = mx.units.get("hopper_fp8_promoted").but(name="unregistered")
    with pytest.raises(ValueError, match="'accumulate' must be a matrix unit registered by"):
        mxt.linear(numbers(2, 128), numbers(3, 128), None, ROWS, accumulate=mine)
    y = mxt.linear(numbers(2, 128), numbers(3, 128), None, ROWS, accumulate=mx.units.get("hopper fp8 promoted"))
    assert torch.equal(y, mxt.linear(numbers(2, 128), numbers(3, 128), None, ROWS, accumulate="hopper_fp8_promoted"))


def test_convolutions_are_left_alone_and_wide_numbers_raise():
    model = torch.nn.Sequential(torch.nn.Conv1d(8, 8, 3), torch.nn.Linear(8, 8))
    with pytest.warns(UserWarning, match=r"is a convolution, which emulate\(\) supports only with the sums of torch"):
        assert list(mxt.emulate(model, "blackwell mxfp8").left_alone) == ["0"]
    with pytest.raises(ValueError, match="'recipe' must be one that rounds operands to bfloat16"):
        mxt.linear(numbers(2, 16), numbers(3, 16), None, "float32", accumulate="hopper_bfloat16")


def fp8(*shape, seed=0, dtype=torch.float8_e4m3fn):
    return numbers(*shape, seed=seed).detach().to(dtype)


@pytest.mark.parametrize("fast", [False, True])
def test_scaled_mm_of_tensors_and_rows(fast):
    a, b = fp8(5, 160), fp8(7, 160, seed=1).t()
    unit = "hopper_fp8" if fast else "hopper_fp8_promoted"
    sums = mx.matmul(a, b, accumulate=unit)
    one, two = torch.tensor(0.3), torch.tensor(1.7)
    y = mxt.scaled_mm(a, b, one, "TensorWise", two, "TensorWise", output_dtype=torch.float32, use_fast_accum=fast)
    assert torch.equal(y, sums * (one * two))
    rows, columns = torch.rand(5, 1), torch.rand(1, 7)
    bias = torch.randn(7).to(torch.bfloat16)
    y = mxt.scaled_mm(a, b, rows, "RowWise", columns, "RowWise", bias=bias, use_fast_accum=fast)
    assert torch.equal(y, (sums * columns * rows + bias.float()).to(torch.bfloat16))


@pytest.mark.parametrize(
    "name", [key[:-2] for key in silicon.h100("h100-products.npz") if key.count("/") > 2 and key.endswith("/d")]
)
def test_scaled_mm_gives_the_bits_of_an_h100(name):
    data = silicon.h100("h100-products.npz")
    a, b = (torch.from_numpy(data[f"scaled/{side}"]).view(torch.float8_e4m3fn) for side in "ab")
    scales = [torch.from_numpy(data[f"{name}/scale_{side}"]) for side in "ab"]
    first, second, out, *how = name.split("/")
    bias = torch.from_numpy(data[f"{name}/bias_row"]).to(torch.bfloat16) if "bias" in how else None
    dtype = getattr(torch, out)
    y = mxt.scaled_mm(
        a, b.t(), scales[0], first, scales[1], second, bias=bias, output_dtype=dtype, use_fast_accum="fast" in how
    )
    assert torch.equal(y, torch.from_numpy(data[f"{name}/d"]).to(dtype))


@pytest.mark.parametrize(("kind", "scale"), [("RowWise", (1, 1)), ("BlockWise1x128", (1, 2))])
def test_scaled_mm_of_special_scales(kind, scale):
    a = torch.ones(1, 200).to(torch.float8_e4m3fn)
    one = torch.ones(scale)
    for first, second, bits in (
        (torch.inf, 0, 0x7FFFFFFF),
        (torch.nan, 1, 0x7FFFFFFF),
        (2.0**-100, 2.0**-40, 200 << 9),
    ):
        how = one * first, kind, one * second, kind
        y = mxt.scaled_mm(a, a.t(), *how, output_dtype=torch.float32)
        assert y.view(torch.int32).item() == bits
    assert mxt.scaled_mm(a[:0], a.t(), one[:0], kind, one, kind).shape == (0, 1)


def test_scaled_mm_of_blocks_of_128():
    a, b = fp8(5, 300), fp8(200, 300, seed=1).t()
    rows, tiles = torch.rand(5, 3), torch.rand(3, 2)
    y = mxt.scaled_mm(a, b, rows, "BlockWise1x128", tiles, "BlockWise128x128", output_dtype=None)
    total = torch.zeros(5, 200, dtype=torch.float64)
    for k in range(3):
        some = slice(128 * k, 128 * k + 128)
        part = mx.matmul(a[:, some], b[some], accumulate="hopper_fp8")
        scale = rows[:, k : k + 1] * tiles[k].repeat_interleave(128)[:200]
        total = (scale.double() * part.double() + total).float().double()  # float64 holds the product, 24 + 14 bits
    assert torch.equal(y, total.float())
    padded = torch.cat([tiles, torch.zeros(1, 2)])
    again = mxt.scaled_mm(a, b, rows, "BlockWise1x128", padded, "BlockWise128x128", output_dtype=None)
    assert torch.equal(y, again)


def test_scaled_mm_with_swizzled_scales():
    q, w = (mx.quantize(numbers(n, 96, seed=n).detach(), "mxfp8_e4m3") for n in (5, 7))
    want = mx.matmul(q, w.T, accumulate="blackwell_mxfp8")
    a, b = (x.codes.view(torch.float8_e4m3fn) for x in (q, w))
    swizzled = [swizzle_scales(x.scales).view(torch.float8_e8m0fnu) for x in (q, w)]
    how = "BlockWise1x32", "SWIZZLE_32_4_4"
    y = mxt.scaled_mm(a, b.t(), swizzled[0], how[0], swizzled[1], how[0], how[1], how[1], output_dtype=torch.float32)
    assert torch.equal(y, want)
    plain = [x.scales.view(torch.float8_e8m0fnu) for x in (q, w)]
    y = mxt.scaled_mm(a, b.t(), plain[0], how[0], plain[1], how[0], output_dtype=torch.float32)
    assert torch.equal(y, want)
    with pytest.raises(ValueError, match="'scale_recipe_a' must be one of"):
        mxt.scaled_mm(a, b.t(), plain[0], "BlockWise1x64", plain[1], how[0])


def test_scaled_mm_of_nvfp4():
    q, w = (mx.quantize(numbers(n, 64, seed=n).detach().numpy(), "nvfp4") for n in (4, 6))
    want = mx.matmul(q, w.T, accumulate="blackwell_nvfp4")
    a, b = (torch.from_numpy(x.pack()).view(torch.float4_e2m1fn_x2) for x in (q, w))
    scales = [
        [torch.from_numpy(x.scales).view(torch.float8_e4m3fn), torch.from_numpy(x.tensor_scale.reshape(1))]
        for x in (q, w)
    ]
    kinds = ["BlockWise1x16", "TensorWise"]
    y = mxt.scaled_mm(a, b.t(), scales[0], kinds, scales[1], kinds, output_dtype=torch.float32)
    assert np.array_equal(y.numpy(), want)


@pytest.mark.skipif(not hasattr(torch.nn.functional, "ScalingType"), reason="torch has no scaled_mm")
def test_scaled_mm_takes_enums_of_torch():
    from torch.nn.functional import ScalingType, SwizzleType

    a, b, one = fp8(5, 32), fp8(7, 32, seed=1).t(), torch.ones(())
    kind = ScalingType.TensorWise
    y = mxt.scaled_mm(a, b, one, kind, one, kind, SwizzleType.NO_SWIZZLE, SwizzleType.NO_SWIZZLE)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, mx.matmul(a, b, accumulate="hopper_fp8").to(torch.bfloat16))

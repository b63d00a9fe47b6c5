"""Tests of products of rounded operands on the processor's matrix units (AMX) for bfloat16."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from mxnum.torch import amx  # noqa: E402


@pytest.fixture
def counted(monkeypatch):
    """Record the products for AMX units, and compute these products without the units."""
    seen = []

    def multiply(left, right, out=None):
        seen.append((left, right))
        return torch.matmul(left, right)

    monkeypatch.setattr(amx, "check", lambda: None)
    monkeypatch.setattr(amx, "multiply", multiply)
    return seen


def layer(recipe, accumulate="amx", dtype=torch.float32, shape=(3, 8, 64)):
    """Return the result of a linear layer and its gradients."""
    random = torch.Generator().manual_seed(1)
    x, w = (torch.randn(s, generator=random).to(dtype).requires_grad_() for s in (shape, (32, 64)))
    y = mxt.linear(x, w, None, recipe, accumulate=accumulate)
    return [y, *torch.autograd.grad(y, (x, w), torch.randn(y.shape, generator=random).to(dtype))]


@pytest.mark.parametrize(
    ("recipe", "products"),
    [
        ("mxfp8_e4m3", 3),
        ("mxint8", 3),
        (Recipe.uniform("mxfp4_e2m1").forward_only(), 1),
        (Recipe.uniform("mxfp4_e2m1").weights_only(), 0),
        ("nvfp4", 0),
        ({"uniform": "bfloat16"}, 3),
    ],
    ids=str,
)
def test_products_on_amx_units_have_bfloat16_operands(recipe, products, counted):
    for ours, theirs in zip(layer(recipe), layer(recipe, None), strict=True):
        assert torch.equal(ours, theirs)
    assert len(counted) == products
    for pair in counted:
        assert all(torch.equal(x, x.to(torch.bfloat16).to(x.dtype)) for x in pair)


def test_other_types_and_kernels_of_users_stay_with_torch(counted):
    for dtype in (torch.float64, torch.bfloat16):
        layer("mxfp8_e4m3", dtype=dtype)
    with mxt.rounding_by(lambda x, operand, axis: x * 1.001):
        layer("mxfp8_e4m3")
    assert not counted


def test_products_of_a_model_on_amx_units(counted):
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Conv1d(4, 4, 3))
    mxt.emulate(model, "mxfp8_e4m3", accumulate="amx")
    assert "Emulated" in type(model[1]).__name__ or hasattr(model[1], "_mx")
    model(torch.randn(4, 64)).sum().backward()
    assert len(counted) == 2  # forward and weight gradient of the linear layer; x needs no gradient


def test_amx_without_units_raises(monkeypatch):
    def check():
        raise ValueError("Products by AMX need a processor with AMX units.")

    monkeypatch.setattr(amx, "check", check)
    with pytest.raises(ValueError, match="need a processor with AMX units"):
        mxt.emulate(torch.nn.Linear(32, 32), "mxfp8_e4m3", accumulate="amx")
    with pytest.raises(ValueError, match=r"'accumulate' must be one of .*'amx'.*did you mean 'amx'"):
        mxt.linear(torch.ones(2, 32), torch.ones(2, 32), accumulate="amz")


def test_real_units():
    try:
        amx.check()
    except ValueError as problem:
        pytest.skip(str(problem))
    for ours, theirs in zip(
        layer("mxfp8_e4m3", shape=(256, 64)), layer("mxfp8_e4m3", None, shape=(256, 64)), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_missing_units_and_old_torch_raise(monkeypatch):
    check = amx.check.__wrapped__
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "matmul", SimpleNamespace(), raising=False)
    with pytest.raises(ValueError, match="need a processor with AMX units"):
        check()
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported")
    with pytest.raises(ValueError, match=r"need torch 2\.9 or newer, not"):
        check()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"mxnum\[torch\]"):
        check()


@pytest.mark.parametrize("shape", [(64,), (2, 64), (2, 3, 64)])
def test_amx_products_are_exact_and_settings_are_restored(shape):
    try:
        amx.check()
    except ValueError as problem:
        pytest.skip(str(problem))
    random = np.random.default_rng(1)
    a, b = (random.integers(-255, 256, (*shape, 96)).astype(np.float32) for _ in range(2))
    exact = a @ b.swapaxes(-1, -2)  # integers below 2^24
    before = torch.backends.mkldnn.matmul.fp32_precision
    left, right = torch.from_numpy(a), torch.from_numpy(b).transpose(-1, -2)
    assert np.array_equal(amx.multiply(left, right).numpy(), exact)
    out = torch.empty(exact.shape)
    assert amx.multiply(left, right, out) is out
    assert np.array_equal(out.numpy(), exact)
    assert torch.backends.mkldnn.matmul.fp32_precision == before

"""Units for bfloat16, where there are any."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
from mxnum.torch import amx


def test_where_there_are_none(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    check = amx.check.__wrapped__
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    monkeypatch.setattr(torch.backends.mkldnn, "matmul", SimpleNamespace(), raising=False)
    with pytest.raises(ValueError, match="need a processor that has it"):
        check()
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported")
    with pytest.raises(ValueError, match=r"need torch 2\.9 or newer, not"):
        check()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"mxnum\[torch\]"):
        check()


@pytest.mark.parametrize("shape", [(64,), (2, 64), (2, 3, 64)])
def test_exact_products_summed_in_float32_and_no_setting_is_left(shape):
    torch = pytest.importorskip("torch", reason="torch is not installed")
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

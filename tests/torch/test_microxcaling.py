"""Tests against microxcaling, if a checkout is given: `MXNUM_MICROXCALING=path pytest ...`.

All lengths are multiples of the block length, because with torch 2.9 and later microxcaling fails
to pad other lengths.
"""

from __future__ import annotations

import os
import sys

import pytest

from mxnum.recipe import FLOAT32, Operand, Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
PATH = os.environ.get("MXNUM_MICROXCALING")
pytestmark = pytest.mark.skipif(not PATH, reason="MXNUM_MICROXCALING does not say where a checkout is")

FORMATS = {
    "mxfp8_e4m3": "fp8_e4m3", "mxfp8_e5m2": "fp8_e5m2", "mxfp6_e3m2": "fp6_e3m2", "mxfp6_e2m3": "fp6_e2m3",
    "mxfp4_e2m1": "fp4_e2m1", "mxint8": "int8", "mxint4": "int4",
}  # fmt: skip
MODES = {"even": "rne", "nearest": "rna"}


@pytest.fixture(scope="module")
def theirs():
    sys.path.insert(0, PATH)
    import mx

    yield mx
    sys.path.remove(PATH)


def specs(theirs, format, mode, bfloat):
    """Return microxcaling's settings."""
    return theirs.finalize_mx_specs(
        {
            "scale_bits": 8, "w_elem_format": FORMATS[format], "a_elem_format": FORMATS[format], "block_size": 32,
            "bfloat": bfloat, "custom_cuda": False, "quantize_backprop": True, "round": mode,
        }
    )  # fmt: skip


def recipe(format, mode, bfloat):
    """Return the mxnum recipe that corresponds to the given settings of microxcaling."""
    rounding = MODES[mode]
    if not bfloat:
        return Recipe.uniform(format, layer_norm=FLOAT32, rounding=rounding)
    affine = Operand("bfloat16", rounding=rounding)
    made = Recipe.uniform(format, layer_norm=affine, rounding=rounding, vector="bfloat16")
    return made.but(vector_rounding=rounding, vector_steps=True)


def both(function, theirs, *shapes):
    """Return results and gradients of both functions as pairs (mxnum's, microxcaling's)."""
    generator = torch.Generator().manual_seed(1)
    x = [torch.randn(shape, generator=generator) for shape in shapes]
    x = [part * (1 + 3 * torch.rand(part.shape[-1], generator=generator)) for part in x]
    ours, others = ([part.clone().requires_grad_() for part in x] for _ in range(2))
    y, z = function(*ours), theirs(*others)
    grad = torch.randn(y.shape, generator=generator)
    y.backward(grad)
    z.backward(grad)
    return [(y, z), *((a.grad, b.grad) for a, b in zip(ours, others, strict=True))]


def close(pairs, bits):
    """Assert that the two tensors of each pair are equal if `bits` is True, otherwise close."""
    for mine, other in pairs:
        if bits:
            assert torch.equal(mine, other)
        else:  # microxcaling adds the products in another order
            assert (mine - other).abs().max() <= 1e-6 * other.abs().max()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bfloat", [0, 16])
@pytest.mark.parametrize("format", FORMATS)
def test_linear(theirs, format, bfloat, mode):
    how, spec = recipe(format, mode, bfloat), specs(theirs, format, mode, bfloat)
    pairs = both(
        lambda x, w, b: mxt.linear(x, w, b, how),
        lambda x, w, b: theirs.linear(x, w, b, mx_specs=spec),
        (64, 96), (32, 96), (32,),
    )  # fmt: skip
    close(pairs, bits=bfloat == 16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bfloat", [0, 16])
@pytest.mark.parametrize("format", FORMATS)
def test_matmul(theirs, format, bfloat, mode):
    how, spec = recipe(format, mode, bfloat), specs(theirs, format, mode, bfloat)
    pairs = both(
        lambda a, b: mxt.matmul(a, b, how), lambda a, b: theirs.matmul(a, b, mx_specs=spec), (3, 64, 96), (3, 96, 32)
    )
    close(pairs, bits=bfloat == 16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bfloat", [0, 16])
def test_layer_norm(theirs, bfloat, mode):
    how, spec = recipe("mxfp8_e4m3", mode, bfloat), specs(theirs, "mxfp8_e4m3", mode, bfloat)
    module = theirs.LayerNorm(96, eps=1e-5, mx_specs=spec)

    def other(x, gamma, beta):
        from mx.layernorm import LayerNormFunction

        return LayerNormFunction.apply(x, gamma, beta, module.eps, module.mx_specs, None)

    pairs = both(lambda x, g, b: mxt.layer_norm(x, (96,), g, b, how), other, (3, 64, 96), (96,), (96,))
    close(pairs, bits=bfloat == 16)

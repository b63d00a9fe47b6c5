"""Differentiable functions of tensors that round each operand as a recipe says.

The functions take float64, float32, bfloat16 and float16 tensors on the CPU or on CUDA, and return
tensors of the same type. By default, gradients pass through rounding unchanged. With
``gradient="clipped"``, the gradient of each clamped element (`is_clamped`) is zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

import mxnum as mx
from mxnum import errors, units
from mxnum.formats import MXFormat
from mxnum.modes import Accumulate
from mxnum.recipe import OPERANDS, Operand, Recipe
from mxnum.torch import amx
from mxnum.torch import library as library
from mxnum.torch.operands import AMX, BETA, GAMMA, RIGHT, Key, is_stochastic, operand_text, product_text
from mxnum.torch.randomness import seed_of, signed
from mxnum.torch.stepwise import LayerNorm

Tensor = Any
GRADIENTS = ("straight", "clipped")
_FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_ops = torch.ops.mxnum


@dataclass(frozen=True)
class How:
    """A prepared recipe, with all settings that the operations read."""

    recipe: Recipe
    #: How products are summed: None (by torch), "amx" (by AMX units), a value of
    #: `mxnum.Accumulate`, or the name of a matrix unit.
    accumulate: str | None = None
    gradient: str = "straight"
    #: The settings of products with weights, as a text from `product_text`. In the same form, the
    #: field `matmul` holds the settings of products of two activations.
    linear: str = field(init=False)
    matmul: str = field(init=False)
    weights: str = field(init=False)
    gamma: str = field(init=False)
    beta: str = field(init=False)
    is_stochastic: bool = field(init=False)
    #: The next settings are fields and not properties, because compiled code cannot read properties
    #: of a constant.
    clipped: bool = field(init=False)
    bf16: bool = field(init=False)
    rounding: str = field(init=False)
    is_stepwise: bool = field(init=False)
    keeps_weights: bool = field(init=False)
    #: False if the recipe leaves gamma and beta in float32.
    rounds_norms: bool = field(init=False)
    #: True if each row of an embedding's weight is rounded independently of the other rows.
    takes_rows: bool = field(init=False)

    def __post_init__(self) -> None:
        r, backward_unit = self.recipe, None
        if self.accumulate is None and r.unit is not None:
            object.__setattr__(self, "accumulate", r.unit)
            backward_unit = r.unit_backward
        if self.accumulate is not None:
            mode = _accumulation(self.accumulate)
            object.__setattr__(self, "accumulate", mode)
            if mode == AMX:
                amx.check()
        errors.choose("gradient", self.gradient, GRADIENTS)
        operands, is_bf16 = [getattr(r, name) or r.gradients for name in OPERANDS], r.vector == "bfloat16"
        for operand in operands:
            _refuse_studies("recipe", operand)
        summed = r.but(unit=None, unit_backward=backward_unit)
        product = summed, self.accumulate, self.gradient == "clipped"
        table = replace(r.weights, transform=None)  # an embedding lookup sums nothing, so it needs no transform
        has_tensor_scale = table.is_mx and table.mx_format.tensor_scale is not None
        ready = {
            "linear": product_text(*product, False),
            "matmul": product_text(*product, True),
            "weights": operand_text(table),
            "takes_rows": not (is_stochastic(table) or table.block_shape or has_tensor_scale),
            "gamma": operand_text(r.gamma),
            "beta": operand_text(r.beta),
            "clipped": self.gradient == "clipped",
            "bf16": is_bf16,
            "rounding": r.vector_rounding,
            "is_stepwise": is_bf16 and r.vector_steps,
            "keeps_weights": r.weights.format is None,
            "rounds_norms": (r.gamma.format, r.beta.format) != (None, None),
            "is_stochastic": any(map(is_stochastic, operands)),
        }
        for name, value in ready.items():
            object.__setattr__(self, name, value)


def _accumulation(value: Any) -> str:
    """Return the name of a summation: an `Accumulate` mode, AMX, or a registered matrix unit."""
    unit = units.find(value)
    if unit is None:
        return str(errors.choose("accumulate", value, (*(str(mode.value) for mode in Accumulate), AMX)))
    accepted = "a matrix unit registered by mxnum.units.register"
    errors.require(units.find(unit.name) == unit, "accumulate", accepted, unit.name)
    return unit.name


@lru_cache(maxsize=1024)
def _made_ready(recipe: Any, accumulate: Any, gradient: Any) -> How:
    return How(Recipe.of(recipe), accumulate, gradient)


@torch.compiler.assume_constant_result
def made_ready(recipe: Any, accumulate: str | None = None, gradient: str = "straight") -> How:
    """Return the recipe prepared for the functions of this module. Prepared recipes are cached."""
    return _made_ready(Recipe.of(recipe) if isinstance(recipe, Mapping) else recipe, accumulate, gradient)


def _of_norm(recipe: Any) -> Any:
    """Return the recipe of a norm: a format applies to gamma and beta, which `Recipe.of` leaves."""
    is_format = isinstance(recipe, MXFormat) or (isinstance(recipe, str) and recipe not in Recipe.names())
    return Recipe.of(recipe).but(gamma=Operand.of(recipe), beta=Operand.of(recipe)) if is_format else recipe


@torch.compiler.assume_constant_result
def _operand_ready(format: Any, options: tuple[tuple[str, Any], ...]) -> tuple[str, bool]:
    operand = Operand.of(format)
    operand = replace(operand, **errors.known_fields(dict(options), Operand, "an operand")) if options else operand
    _refuse_alone(operand)
    return operand_text(operand), is_stochastic(operand)


# Public functions.


def fake_quantize(
    x: Tensor,
    format: str | MXFormat | Operand,
    *,
    axis: int = -1,
    gradient: str = "straight",
    seed: Any = None,
    stream: int = 0,
    **operand: Any,
) -> Tensor:
    """Quantize and dequantize a tensor like `mxnum.fake_quantize`, with a gradient.

    Other keywords are the fields of `mxnum.Operand`. With ``rounding="sr"``, `seed` must be an
    integer or a `torch.Generator`. Calls with the same seed and different `stream` draw different
    random bits. `mxnum.fake_quantize` draws the same bits as this function if its argument `stream`
    is eight times as large.
    """
    _check(x=x)
    axis = _from_the_end(axis, x)
    text, is_stochastic = _operand_ready(format, tuple(operand.items()))
    clipped = errors.choose("gradient", gradient, GRADIENTS) == "clipped"
    return _fake_quantize(x, text, axis, 0, clipped, _key(is_stochastic, seed, stream))


def _from_the_end(axis: int, x: Tensor) -> int:
    """Return the axis as a negative number, counted from the end.

    The operations in `library` mistake a nonnegative axis for an axis of a convolution.
    """
    most = max(x.ndim, 1)
    axis = errors.integer("axis", axis, -most, most - 1)
    return axis - x.ndim if axis >= 0 else axis


def quantize(x: Tensor, format: str | MXFormat | Operand, *, axis: int = -1, **operand: Any) -> mx.MXArray:
    """Return the codes and scales of a tensor, as an `MXArray` of tensors.

    The codes carry no gradient. With the same `seed` and `stream`, `fake_quantize` returns the
    values of the codes, with a gradient.
    """
    _check(x=x)
    how = Operand.of(format)
    seed, stream = operand.pop("seed", None), operand.pop("stream", 0)
    how = replace(how, **errors.known_fields(operand, Operand, "an operand", ("seed", "stream"))) if operand else how
    _refuse_alone(how)
    axis = _from_the_end(axis, x)
    drawn = _key(is_stochastic(how), seed, stream).keywords(how, 0, x.numel())
    return mx.quantize(x.detach(), how.mx_format, **how.keywords(axis), **drawn)


def dequantize(q: mx.MXArray, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the values of an `MXArray` as a tensor."""
    made = mx.dequantize(q, dtype=dtype)
    return made if isinstance(made, torch.Tensor) else torch.from_numpy(made)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    recipe: Any = "mxfp8_e4m3",
    *,
    accumulate: str | None = None,
    gradient: str = "straight",
    seed: Any = None,
    stream: int = 0,
) -> Tensor:
    """Compute x W^T + bias with quantized operands, in the forward pass and both backward products.

    Operands are quantized along the summed axis. If `accumulate` is a `mxnum.Accumulate`, the
    results have the same bits as those of `mxnum.linear_forward` and `mxnum.linear_backward`. For
    equal bits under stochastic rounding, pass these two functions the same seed, and the streams
    `4 * stream` (activations), `4 * stream + 1` (weights) and `4 * stream + 2` (gradients). If
    `accumulate` is a matrix unit, or the name of a matrix unit, the unit sums all three products.
    With "amx", the processor's AMX units multiply rounded operands (see `emulate`).
    """
    _check(x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    errors.require(weight.ndim == 2, "weight", "of two axes", tuple(weight.shape))
    if bias is not None:
        errors.require(bias.shape == weight.shape[:1], "bias", f"of {len(weight)} features", tuple(bias.shape))
        errors.require(bias.dtype == weight.dtype, "bias", f"of {weight.dtype} like 'weight'", bias.dtype)
    how = made_ready(recipe, accumulate, gradient)
    return linear_how(x, weight, bias, how, _key(how.is_stochastic, seed, stream))


def matmul(
    a: Tensor,
    b: Tensor,
    recipe: Any = "mxfp8_e4m3",
    *,
    accumulate: str | None = None,
    gradient: str = "straight",
    seed: Any = None,
    stream: int = 0,
) -> Tensor:
    """Compute the product of two tensors, both quantized as the recipe quantizes activations.

    Both tensors must have at least two axes.
    """
    _check(a=a, b=b)
    how = made_ready(recipe, accumulate, gradient)
    return matmul_how(a, b, how, _key(how.is_stochastic, seed, stream))


def layer_norm(
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    recipe: Any = "mxfp8_e4m3",
    *,
    eps: float = 1e-5,
    seed: Any = None,
    stream: int = 0,
) -> Tensor:
    """Compute `torch.nn.functional.layer_norm` with gamma and beta rounded.

    If `recipe` is a format, gamma and beta are rounded to this format; a recipe may leave them in
    float32. The input and the output are rounded too if the recipe rounds vector operations.
    """
    _check(x=x)
    how = made_ready(_of_norm(recipe))
    return layer_norm_how(x, _lengths(normalized_shape), weight, bias, eps, how, _key(how.is_stochastic, seed, stream))


def rms_norm(
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    recipe: Any = "mxfp8_e4m3",
    *,
    eps: float | None = None,
    seed: Any = None,
    stream: int = 0,
) -> Tensor:
    """Compute `torch.nn.functional.rms_norm` with gamma rounded.

    If `recipe` is a format, gamma is rounded to this format; a recipe may leave gamma in float32.
    The input and the output are rounded too if the recipe rounds vector operations.
    """
    _check(x=x)
    how = made_ready(_of_norm(recipe))
    return rms_norm_how(x, _lengths(normalized_shape), weight, eps, how, _key(how.is_stochastic, seed, stream))


# A function with the suffix `_how` does the same as the function without the suffix, for callers
# that have a prepared recipe (`How`) and the `Key` of a module.


def linear_how(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, key: Key) -> Tensor:
    """Compute `linear` with a prepared recipe (`How`) and a `Key` for random bits."""
    x, weight, bias = _autocast(x, weight, bias)
    features = weight.shape[-1]
    errors.require(x.ndim >= 1 and x.shape[-1] == features, "x", f"of {features} features", tuple(x.shape))
    errors.require(x.dtype == weight.dtype, "weight", f"of {x.dtype} like 'x'", weight.dtype)
    if how.bf16:
        x, weight = _vector(x, how), _vector(weight, how)
    rows = x.reshape(math.prod(x.shape[:-1]), features)
    late = bias is not None and how.bf16
    y = library.matmul(rows, weight, None if late else bias, True, how.linear, *key[:4])
    y = y.view(*x.shape[:-1], weight.shape[0])
    if how.bf16:
        y = _vector(y, how)
        y = _vector(y + _vector(bias, how), how) if late else y
    return y


def matmul_how(a: Tensor, b: Tensor, how: How, key: Key, transposed: bool = False) -> Tensor:
    """Compute `matmul` with a prepared recipe (`How`) and a `Key` for random bits.

    If `transposed`, the last two axes of b are swapped.
    """
    a, b = _autocast(a, b)
    errors.require(a.ndim >= 2, "a", "of at least two axes", tuple(a.shape))
    errors.require(b.ndim >= 2, "b", "of at least two axes", tuple(b.shape))
    length = b.shape[-1] if transposed else b.shape[-2]
    errors.require(a.shape[-1] == length, "b", f"of length {a.shape[-1]} along the summed axis", tuple(b.shape))
    errors.require(a.dtype == b.dtype, "b", f"of {a.dtype} like 'a'", b.dtype)
    leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (x if x.shape[:-2] == leading else x.expand(*leading, *x.shape[-2:]) for x in (a, b))
    if how.bf16:
        a, b = _vector(a, how), _vector(b, how)
    y = library.matmul(a, b, None, transposed, how.matmul, *key[:4])
    return _vector(y, how) if how.bf16 else y


def layer_norm_how(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float, how: How, key: Key) -> Tensor:
    """Compute `layer_norm` with a prepared recipe (`How`) and a `Key` for random bits."""
    gamma, beta = _affine(weight, how.gamma, GAMMA, how, key), _affine(bias, how.beta, BETA, how, key)
    if how.is_stepwise:
        last = x.shape[-1:]
        is_plain = last == tuple(shape) and all(p is not None and p.shape == last for p in (gamma, beta))
        accepted = "the last axis alone, with weight and bias of that length, because the recipe has vector_steps"
        errors.require(is_plain, "normalized_shape", accepted, tuple(shape))
        return LayerNorm.apply(x, gamma, beta, eps, how.rounding)[0]
    return _between(lambda x: torch.nn.functional.layer_norm(x, shape, gamma, beta, eps), x, how)


def rms_norm_how(x: Tensor, shape: Any, weight: Any, eps: float | None, how: How, key: Key) -> Tensor:
    """Compute `rms_norm` with a prepared recipe (`How`) and a `Key` for random bits."""
    return norm_how(lambda x, gamma, _: torch.nn.functional.rms_norm(x, shape, gamma, eps), x, weight, None, how, key)


def norm_how(compute: Any, x: Tensor, weight: Any, bias: Any, how: How, key: Key) -> Tensor:
    """Compute ``compute(x, gamma, beta)`` with x, gamma and beta rounded as the recipe says."""
    gamma, beta = _affine(weight, how.gamma, GAMMA, how, key), _affine(bias, how.beta, BETA, how, key)
    return _between(lambda x: compute(x, gamma, beta), x, how)


def _between(compute: Any, x: Tensor, how: How) -> Tensor:
    """Return ``compute(x)``.

    If the recipe rounds vector operations, x and the result are rounded.
    """
    return _vector(compute(_vector(x, how, False)), how) if how.bf16 else compute(x)


def weights_how(weight: Tensor, how: How, key: Key) -> Tensor:
    """Return an embedding's weight, quantized along the features."""
    if how.bf16:
        weight = _vector(weight, how)
    if how.keeps_weights:
        return weight
    return _fake_quantize(weight, how.weights, -1, RIGHT, how.clipped, key)


def convolution_how(x: Tensor, weight: Tensor, bias: Any, geometry: Any, how: How, key: Key) -> Tensor:
    """Compute a convolution of one group, with operands quantized along the summed channels."""
    x, weight, bias = _autocast(x, weight, bias)
    if how.bf16:
        x, weight = _vector(x, how), _vector(weight, how)
    y = _ops.convolution(x, weight, *geometry, how.linear, *key[:4])
    y = _vector(y, how) if how.bf16 else y
    if bias is None:
        return y
    bias = bias.reshape(-1, *[1] * len(geometry[0]))
    return _vector(y + _vector(bias, how), how) if how.bf16 else y + bias


def _fake_quantize(x: Tensor, operand: str, axis: int, slot: int, clipped: bool, key: Key) -> Tensor:
    _refuse_function_transforms()
    return library.fake_quantize(x, operand, axis, slot, clipped, *key[:4])


def _affine(parameter: Any, operand: str, slot: int, how: How, key: Key) -> Any:
    """Return gamma or beta of a norm, rounded as the recipe says.

    If the recipe rounds vector operations, the parameter's gradient is rounded to bfloat16.
    """
    if parameter is None:
        return None
    if how.bf16:
        rounding = how.rounding
        parameter = _ops.bfloat16(parameter, rounding, False, True)
    if operand != '"float32"':
        parameter = _fake_quantize(parameter, operand, -1, slot, how.clipped, key)
    return parameter


def _vector(x: Tensor, how: How, backward: bool = True) -> Tensor:
    """Return x rounded to bfloat16 for vector operations.

    If `backward` is True, the gradient of x is rounded too.
    """
    if x.dtype == torch.bfloat16:
        return x
    return library.bfloat16(x, how.rounding, True, backward)


def _autocast(*parts: Any) -> tuple[Any, ...]:
    """Return the tensors; if autocast is on, convert all except float64 tensors to its type."""
    _refuse_function_transforms()
    kind = parts[0].device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return parts
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x if x is None or x.dtype == torch.float64 else x.to(dtype) for x in parts)


def _key(is_stochastic: bool, seed: Any, stream: int) -> Key:
    if seed is None:
        if is_stochastic:
            raise ValueError("Argument 'seed' must be given with rounding='sr'.")
        return Key(0, 0, None)
    return Key(signed(seed_of(seed)), errors.integer("stream", stream, 0, (1 << 48) - 1), None)


def _refuse_studies(argument: str, operand: Operand) -> None:
    is_known = operand.error == "quantize" and not operand.matched and operand.scale_rule != "released_bump"
    accepted = (
        "without the settings that only mxnum.lab.mlp supports (matched=True, scale_rule='released_bump', and any "
        "value of 'error' other than 'quantize')"
    )
    errors.require(is_known, argument, accepted, str(operand))


def _refuse_alone(operand: Operand) -> None:
    """Raise ValueError if an operand has settings that are not supported outside of products."""
    _refuse_studies("operand", operand)
    errors.require(operand.transform is None, "transform", "None for an operand outside of products", operand.transform)


def _refuse_function_transforms() -> None:
    """Raise RuntimeError inside transforms of `torch.func` that mxnum.torch does not support.

    Operations that are registered by `torch.library` have gradients only in autograd. Without this
    check, torch would raise an error with a much longer message.
    """
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return
    interpreters = torch._C._functorch.get_interpreter_stack() or ()
    if any(each.key() != torch._C._functorch.TransformType.Vmap for each in interpreters):
        raise RuntimeError(
            "Gradients of mxnum.torch functions come from torch.autograd; torch.func.grad, vjp and jvp are not "
            "supported."
        )
    if not library.HAS_VMAP:
        raise RuntimeError(
            f"Functions of mxnum.torch support torch.vmap from torch 2.5 on, not in {torch.__version__}."
        )


def _lengths(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _check(**tensors: Any) -> None:
    first, *_ = tensors.values()
    for name, x in tensors.items():
        errors.require_type(isinstance(x, torch.Tensor), name, "a torch tensor", type(x).__name__)
        dense = x.layout == torch.strided and not x.is_nested
        errors.require(dense, name, "dense (tensor.to_dense())", "nested" if x.is_nested else x.layout)
        errors.require_type(x.dtype in _FLOATS, name, "of float64, float32, bfloat16 or float16", x.dtype)
        accepted = "on the CPU, a CUDA device or the meta device"
        errors.require(x.device.type in ("cpu", "cuda", "meta"), name, accepted, str(x.device))
        errors.require(x.device == first.device, name, f"on {first.device} like the first tensor", str(x.device))

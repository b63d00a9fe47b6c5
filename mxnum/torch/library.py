"""The operations in ``torch.ops.mxnum``, with shapes, gradients and batching rules.

torch does not trace the code of the operations. Operations receive the formats and modes of their
operands as a string (made by `operands.operand_text` or `operands.product_text`). Random bits
depend on a seed, a stream and a position, so recomputing an operation gives the same result.
"""

from __future__ import annotations

from typing import Any

import torch

import mxnum as mx
from mxnum.torch.operands import (
    GRADIENT,
    LEFT,
    RIGHT,
    Key,
    Product,
    cut,
    multiply,
    operand_of,
    product,
    quantized,
    rounded,
    to_bfloat16,
)

Tensor = Any
_library = torch.library.Library("mxnum", "DEF")
_KEY = "int seed, int stream, Tensor? position, int watch"
_HOW = f"bool transposed, str product, {_KEY}"
_CONV = f"int[] stride, int[] padding, int[] dilation, str product, {_KEY}"
_library.define(f"fake_quantize(Tensor x, str operand, int axis, int slot, bool clipped, {_KEY}) -> Tensor")
_library.define("fake_quantize_backward(Tensor grad, Tensor x, str operand, int axis) -> Tensor")
_library.define("bfloat16(Tensor x, str rounding, bool forward, bool backward) -> Tensor")
_library.define(f"matmul(Tensor a, Tensor b, Tensor? bias, {_HOW}) -> Tensor")
_library.define(f"matmul_backward(Tensor grad, Tensor a, Tensor b, bool[] wanted, {_HOW}) -> (Tensor, Tensor, Tensor)")
_library.define(f"convolution(Tensor x, Tensor weight, {_CONV}) -> Tensor")
_library.define(f"convolution_backward(Tensor grad, Tensor x, Tensor weight, {_CONV}) -> (Tensor, Tensor)")


#: A mapping from the name of each operation to the function that computes the operation without
#: recording gradients.
IMPLEMENTED: dict[str, Any] = {}


def _implementation(name: str) -> Any:
    """Return a decorator that registers an operation for CPU and CUDA, with autocast disabled."""

    def decorate(function: Any) -> Any:
        def outside_autocast(*arguments: Any) -> Any:
            kind = arguments[0].device.type
            if kind == "meta" or not torch.is_autocast_enabled(kind):
                return function(*arguments)
            with torch.autocast(kind, enabled=False):
                return function(*arguments)

        for dispatch_key in ("CPU", "CUDA"):
            _library.impl(name, outside_autocast, dispatch_key)
        IMPLEMENTED[name] = outside_autocast
        return function

    return decorate


# Rounding alone.


@_implementation("fake_quantize")
def _fake_quantize(x: Tensor, operand: str, axis: int, slot: int, clipped: bool, *key: Any) -> Tensor:
    value = rounded(x, operand_of(operand), axis, Key(*key), slot)
    return value.clone() if value is x else value  # torch does not let an operation return its argument


@_implementation("fake_quantize_backward")
def _fake_quantize_backward(grad: Tensor, x: Tensor, operand: str, axis: int) -> Tensor:
    return cut(grad, x, operand_of(operand), axis)


@_implementation("bfloat16")
def _bfloat16(x: Tensor, rounding: str, forward: bool, backward: bool) -> Tensor:
    value = to_bfloat16(x, rounding) if forward else x
    return value.clone() if value is x else value


def _keep_fake_quantize(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.operand, ctx.axis, _, ctx.clipped, *_ = inputs
    ctx.save_for_backward(*([x] if ctx.clipped else []))


def _fake_quantize_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    if ctx.clipped:
        grad = torch.ops.mxnum.fake_quantize_backward(grad, *ctx.saved_tensors, ctx.operand, ctx.axis)
    return grad, *[None] * 8


def _keep_bfloat16(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.rounding, _, ctx.backward = inputs


def _bfloat16_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return torch.ops.mxnum.bfloat16(grad, ctx.rounding, True, True) if ctx.backward else grad, None, None, None


# Products. If `transposed`, the right operand has the shape (columns, inner), like the weight of a
# linear layer.


def _read(text: str, arguments: tuple[Any, ...]) -> tuple[Product, Key]:
    """Return the `Product` that a text describes, and the `Key` made from `arguments`."""
    how, (seed, stream, position, watch) = product(text), arguments
    return how, Key(seed, stream, position, watch, how.of_samples)


@_implementation("matmul")
def _matmul(a: Tensor, b: Tensor, bias: Any, transposed: bool, text: str, *arguments: Any) -> Tensor:
    how, key = _read(text, arguments)
    make = rounded if how.by_floats else quantized
    left = make(a, how.left, -1, key, LEFT, "left")
    right = make(b, how.right, -1 if transposed else -2, key, RIGHT, "right")
    return multiply(left, _turned(right) if transposed else right, how, (how.left, how.right), a.dtype, bias)


@_implementation("matmul_backward")
def _matmul_backward(
    grad: Tensor, a: Tensor, b: Tensor, wanted: list[bool], transposed: bool, text: str, *arguments: Any
) -> tuple[Tensor, Tensor, Tensor]:
    how, key = _read(text, arguments)
    how = how._replace(accumulate=how.backward) if how.backward else how
    make = rounded if how.by_floats else quantized
    grad_a = grad_b = grad_bias = grad.new_empty(0)
    if wanted[0]:
        along = make(grad, how.gradient_left, -1, key, GRADIENT, "left")
        right = make(b, how.right_backward, -2 if transposed else -1, key, RIGHT + 1, "right")
        operands = how.gradient_left, how.right_backward
        grad_a = multiply(along, right if transposed else _turned(right), how, operands, a.dtype)
        if how.clipped:
            grad_a = cut(grad_a, a, how.left, -1)
    if wanted[1]:
        across = make(grad, how.gradient_right, -2, key, GRADIENT + 1, "left")
        left = make(a, how.left_backward, -2, key, LEFT + 1, "right")
        pair = (_turned(across), left) if transposed else (_turned(left), across)
        grad_b = multiply(*pair, how, (how.gradient_right, how.left_backward), b.dtype)
        if how.clipped:
            grad_b = cut(grad_b, b, how.right, -1 if transposed else -2)
    if wanted[2]:
        rows = grad.flatten(0, -2)
        if how.by_floats:
            grad_bias = rows.sum(0)
        else:  # sum the rows like `mxnum.linear_backward`
            ones = torch.ones(1, len(rows), dtype=rows.dtype, device=rows.device)
            grad_bias = mx.matmul(ones, rows, accumulate="sequential", out_dtype=rows.dtype)[0]
    return grad_a, grad_b, grad_bias


def _turned(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.mT
    return x.T if x.ndim == 2 else x.transpose(*range(x.ndim - 2), -1, -2)


def _keep_matmul(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, ctx.transposed, ctx.product, ctx.seed, ctx.stream, position, ctx.watch = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(a, b, position)


class _Matmul(torch.autograd.Function):
    """A function of `torch.autograd` that computes `matmul` without `torch.library`.

    For a small product, the overhead of `torch.library` would be most of the time.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        _keep_matmul(ctx, inputs, None)
        return IMPLEMENTED["matmul"](*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _matmul_gradient(ctx, grad, IMPLEMENTED["matmul_backward"])


class _FakeQuantize(torch.autograd.Function):
    """A function of `torch.autograd` that computes `fake_quantize` without `torch.library`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        _keep_fake_quantize(ctx, inputs, None)
        return IMPLEMENTED["fake_quantize"](*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _fake_quantize_gradient(ctx, grad)


def matmul(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    """Compute the operation `matmul`, bypassing `torch.library` if `is_eager` returns True."""
    if not is_eager(a, b):
        return torch.ops.mxnum.matmul(a, b, *rest)
    with torch._C.DisableTorchFunction():  # An active context `Intercepted` would add 1 µs to each use.
        return _Matmul.apply(a, b, *rest)


def fake_quantize(x: Tensor, *rest: Any) -> Tensor:
    """Compute `fake_quantize`, bypassing `torch.library` if `is_eager` returns True."""
    return (_FakeQuantize.apply if is_eager(x) else torch.ops.mxnum.fake_quantize)(x, *rest)


def is_eager(*tensors: Tensor) -> bool:
    """Return True for plain CPU tensors if no compiler, dispatch mode or `torch.func` is active."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    is_plain = all(type(x) in _TENSORS and x.is_cpu for x in tensors)
    return is_plain and not torch._C._are_functorch_transforms_active()


def bfloat16(x: Tensor, rounding: str, forward: bool = True, backward: bool = False) -> Tensor:
    """Compute the operation `bfloat16`, by torch's casts if these have the same result.

    torch's compiler may remove casts, so compiled code calls the operation instead.
    """
    by_casts = rounding == "rne" and x.dtype != torch.float64 and forward and backward
    if by_casts and not torch.compiler.is_compiling():
        return x.to(torch.bfloat16).to(x.dtype)
    return torch.ops.mxnum.bfloat16(x, rounding, forward, backward)


_TENSORS = (torch.Tensor, torch.nn.Parameter)


def _matmul_gradient(ctx: Any, grad: Tensor, backward: Any = torch.ops.mxnum.matmul_backward) -> tuple[Any, ...]:
    a, b, position = ctx.saved_tensors
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], ctx.has_bias and needed[2]]
    rest = ctx.transposed, ctx.product, ctx.seed, ctx.stream, position, ctx.watch
    made = backward(grad, a, b, wanted, *rest)
    return *(part if is_wanted else None for part, is_wanted in zip(made, wanted, strict=True)), *[None] * 6


# Convolutions. Blocks lie along the axis that the convolution sums over: the channels, or the batch
# in the gradient of the weight.


@_implementation("convolution")
def _convolution(
    x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], text: str, *arguments: Any
) -> Tensor:
    how, key = _read(text, arguments)
    left, right = rounded(x, how.left, 1, key, LEFT), rounded(weight, how.right, 1, key, RIGHT)
    return torch.convolution(left, right, None, stride, padding, dilation, False, [0] * len(stride), 1)


@_implementation("convolution_backward")
def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *geometry, text = rest[:4]
    how, key = _read(text, rest[4:])

    def backward(grad: Tensor, x: Tensor, weight: Tensor, which: int) -> Tensor:
        mask, none = [which == 0, which == 1, False], [0] * len(geometry[0])
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, False, none, 1, mask)[which]

    along = rounded(grad, how.gradient_left, 1, key, GRADIENT)
    grad_x = backward(along, x, rounded(weight, how.right_backward, 0, key, RIGHT + 1), 0)
    across = rounded(grad, how.gradient_right, 0, key, GRADIENT + 1)
    grad_weight = backward(across, rounded(x, how.left_backward, 0, key, LEFT + 1), weight, 1)
    if how.clipped:
        grad_x, grad_weight = cut(grad_x, x, how.left, 1), cut(grad_weight, weight, how.right, 1)
    return grad_x, grad_weight


def _keep_convolution(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *ctx.geometry, ctx.product, ctx.seed, ctx.stream, position, ctx.watch = inputs
    ctx.save_for_backward(x, weight, position)


def _convolution_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight, position = ctx.saved_tensors
    rest = *ctx.geometry, ctx.product, ctx.seed, ctx.stream, position, ctx.watch
    return *torch.ops.mxnum.convolution_backward(grad, x, weight, *rest), *[None] * 8


# torch's compiler calls the next functions to find the shapes and strides of the operations'
# results.


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _shape_of_matmul(a: Tensor, b: Tensor, bias: Any, transposed: bool, *_: Any) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-2] if transposed else b.shape[-1]))


def _shapes_of_gradients(grad: Tensor, a: Tensor, b: Tensor, wanted: list[bool], *_: Any) -> tuple[Tensor, ...]:
    shapes = a.shape, b.shape, grad.shape[-1:]
    return tuple(grad.new_empty(shape if is_wanted else (0,)) for shape, is_wanted in zip(shapes, wanted, strict=True))


def _shape_of_convolution(
    x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], *_: Any
) -> Tensor:
    return torch.convolution(x, weight, None, stride, padding, dilation, False, [0] * len(stride), 1)


_FAKES = {
    "fake_quantize": _like_first,
    "fake_quantize_backward": _like_first,
    "bfloat16": _like_first,
    "matmul": _shape_of_matmul,
    "matmul_backward": _shapes_of_gradients,
    "convolution": _shape_of_convolution,
    "convolution_backward": lambda grad, x, weight, *_: (torch.empty_like(x), torch.empty_like(weight)),
}
for _name, _fake in _FAKES.items():
    torch.library.register_fake(f"mxnum::{_name}", _fake, lib=_library)
for _name, _gradient, _keep in (
    ("fake_quantize", _fake_quantize_gradient, _keep_fake_quantize),
    ("bfloat16", _bfloat16_gradient, _keep_bfloat16),
    ("matmul", _matmul_gradient, _keep_matmul),
    ("convolution", _convolution_gradient, _keep_convolution),
):
    torch.library.register_autograd(f"mxnum::{_name}", _gradient, setup_context=_keep, lib=_library)


def _no_second_derivative(*_: Any) -> None:
    raise RuntimeError("Gradients of mxnum.torch cannot be differentiated again: rounding has no second derivative.")


for _name in _FAKES:
    if _name.endswith("_backward"):
        torch.library.register_autograd(f"mxnum::{_name}", _no_second_derivative, lib=_library)


def _one_by_one(name: str) -> Any:
    """Return a batching rule for `torch.vmap` that computes each item of the batch separately.

    The batching rule raises ValueError for stochastic rounding, because all items would get the
    same random bits.
    """
    operation = getattr(torch.ops.mxnum, name)

    def batched(info: Any, dims: tuple[Any, ...], *arguments: Any) -> Any:
        stochastic = any(isinstance(value, str) and '"sr"' in value for value in arguments)
        if stochastic:
            raise ValueError(f"Operation mxnum.{name} cannot round stochastically under torch.vmap.")
        made = []
        for index in range(info.batch_size):
            one = [x if dim is None else x.select(dim, index) for x, dim in zip(arguments, dims, strict=True)]
            made.append(operation(*one))
        if isinstance(made[0], tuple):
            return tuple(torch.stack(parts) for parts in zip(*made, strict=True)), (0,) * len(made[0])
        return torch.stack(made), 0

    return batched


HAS_VMAP = hasattr(torch.library, "register_vmap")  # torch 2.5
if HAS_VMAP:
    for _name in _FAKES:
        torch.library.register_vmap(f"mxnum::{_name}", _one_by_one(_name), lib=_library)

"""One operand as an operation takes it: rounded as a recipe says, along an axis, with random bits of a key.

Nothing here knows of autograd: these are the bodies of the operations in `library`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch

import mxnum as mx
from mxnum import errors
from mxnum.recipe import Operand
from mxnum.torch.randomness import WORKER

Tensor = Any

#: The streams of Philox that one step of one module takes: operand by operand, and for each of its two axes.
LEFT, RIGHT, GRADIENT, GAMMA, BETA = 0, 2, 4, 6, 7
#: Those of parameters, which are the same on all workers.
_SHARED = (RIGHT, RIGHT + 1, GAMMA, BETA)
#: The signs of the Hadamard transform: those of TransformerEngine's weight gradients.
_SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)
#: Who looks at operands: (watch, slot, operand, axis, x, value, step), by the number that an operation is given.
watching: dict[int, Callable[..., None]] = {}
_memory = threading.local()
#: Kernels of users that round in place of ours: the last one counts.
_others: list[Callable[..., Any]] = []


class Product(NamedTuple):
    """The six operands of a product and of its two gradients, and how it is summed."""

    left: Operand
    right: Operand
    left_backward: Operand
    right_backward: Operand
    #: Of the output, for the gradient of the left and of the right operand.
    gradient_left: Operand
    gradient_right: Operand
    #: None: as torch sums; or a `mxnum.Accumulate`.
    accumulate: str | None = None
    #: Whether gradients are cut where the operand was clamped.
    clipped: bool = False

    @property
    def text(self) -> str:
        """What `product` reads."""
        return _text(self)


class Key(NamedTuple):
    """What random bits depend on: a seed for each module, and the step."""

    seed: int
    stream: int
    step: Tensor | None

    def keywords(self, operand: Operand, slot: int) -> dict[str, Any]:
        """The keywords of `mxnum.quantize` for that operand of a module."""
        if not operand.is_stochastic:
            return {}
        stream = self.stream % WORKER if slot in _SHARED else self.stream
        stream += 0 if self.step is None else int(self.step)
        return {"seed": self.seed % (1 << 64), "stream": 8 * stream + slot}


@lru_cache(maxsize=4096)
def _text(product: Product) -> str:
    plain = [operand.plain for operand in product[:6]]
    return json.dumps([*plain, product.accumulate, product.clipped], separators=(",", ":"))


@lru_cache(maxsize=4096)
def product(text: str) -> Product:
    """The inverse of `Product.text`."""
    *operands, accumulate, clipped = json.loads(text)
    made: Any = [*map(Operand.of, operands), accumulate, clipped]
    return Product(*made)


@lru_cache(maxsize=4096)
def operand_text(operand: Operand) -> str:
    """An operand as the argument of an operation."""
    return json.dumps(operand.plain, separators=(",", ":"))


@lru_cache(maxsize=4096)
def operand_of(text: str) -> Operand:
    """The inverse of `operand_text`."""
    return Operand.of(json.loads(text))


@lru_cache(maxsize=4096)
def _prepared(operand: Operand, axis: int) -> tuple[Any, dict[str, Any]]:
    return operand.mx_format, operand.keywords(axis)


def rounded(
    x: Tensor, operand: Operand, axis: int, key: Key, slot: int, watch: int = 0, place: str | None = None
) -> Tensor:
    """x as a product takes it; x itself where nothing is rounded.

    With `place`, the name of a buffer that this thread reuses, the result is good until the next call that names it:
    fresh memory costs more than rounding.
    """
    if operand.format is None:
        value = x
    elif operand.format == "bfloat16":
        value = to_bfloat16(x, operand.rounding)
    else:
        if operand.transform:
            x = hadamard(x, axis)
        fmt, keywords = _prepared(operand, axis)
        drawn = key.keywords(operand, slot)
        if _others:
            value = _others[-1](x, operand, axis, **drawn)
            fits = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (x.shape, x.dtype)
            errors.require(fits, "kernel", f"a function to tensors of shape {tuple(x.shape)} and {x.dtype}", value)
        else:
            out = torch.empty_like(x) if place is None or x.is_cuda else _buffer(place, x)
            value = mx.fake_quantize(x, fmt, out=out, **keywords, **drawn)
    if watch in watching:
        watching[watch](slot, operand, axis, x, value, key)
    return value


@contextmanager
def rounding_by(kernel: Callable[..., Tensor]) -> Iterator[None]:
    """Within the context, operands in MX formats are rounded by a kernel of yours, forward and backward.

    It is called as ``kernel(x, operand, axis)``, for stochastic rounding with the keywords `seed` and `stream` too, and
    answers with a tensor of the shape and type of x. Products with `accumulate` are not rounded by it.
    """
    errors.require_type(callable(kernel), "kernel", "a function", kernel)
    _others.append(kernel)
    try:
        yield
    finally:
        _others.remove(kernel)


def quantized(x: Tensor, operand: Operand, axis: int, key: Key, slot: int, watch: int = 0) -> Any:
    """The same as an MX array, for products with a defined sum; a tensor where it is not one."""
    if not operand.is_mx:
        return rounded(x, operand, axis, key, slot, watch)
    if operand.transform:
        x = hadamard(x, axis)
    fmt, keywords = _prepared(operand, axis)
    made = mx.quantize(x, fmt, **keywords, **key.keywords(operand, slot))
    if watch in watching:
        watching[watch](slot, operand, axis, x, made.dequantize(x.dtype), key)
    return made


def multiply(a: Any, b: Any, accumulate: str | None, dtype: Any, out: Tensor | None = None) -> Tensor:
    """The product of two operands, as they come from `rounded` or `quantized`."""
    if accumulate is None:
        return torch.matmul(a, b, out=out)
    made = mx.matmul(a, b, accumulate=accumulate, out_dtype=dtype)
    return made if out is None else out.copy_(made)


def to_bfloat16(x: Tensor, rounding: str) -> Tensor:
    """x with values of bfloat16: a new tensor of the same type."""
    if x.dtype == torch.bfloat16:
        return x
    if rounding == "rne":
        return x.to(torch.bfloat16).to(x.dtype)
    codes = mx.encode(x, "bfloat16", rounding=rounding, overflow="ieee")
    return codes.view(torch.bfloat16).to(x.dtype)


def is_inside(x: Tensor, operand: Operand, axis: int) -> Tensor:
    """Which elements do not exceed the largest value of their block: the others clamp."""
    if not operand.is_mx:
        return torch.ones_like(x, dtype=torch.bool)
    q = mx.quantize(x, operand.mx_format, **{**operand.keywords(axis), "rounding": "rne"})
    return ~is_clamped(x, q)


def is_clamped(x: Tensor, q: mx.MXArray) -> Tensor:
    """Which elements of x, quantized to nearest, lie beyond the largest value of their block."""
    element, value = q.format.element, cast(Tensor, q.dequantize(x.dtype))
    at_largest = cast(Tensor, mx.decode(q.codes, element)).abs() == float(element.max)
    return at_largest & (value.abs() < x.abs())


def hadamard(x: Tensor, axis: int) -> Tensor:
    """Each 16 along the axis multiplied by an orthogonal matrix of signs: products along that axis stay as they are."""
    length = x.shape[axis]
    if length % 16:
        raise ValueError(f"Transform 'hadamard' needs a multiple of 16 elements along the summed axis, not {length}.")
    matrix = _hadamard_matrix().to(dtype=x.dtype, device=x.device)
    rows = x.movedim(axis, -1)
    return (rows.reshape(*rows.shape[:-1], -1, 16) @ matrix).reshape(rows.shape).movedim(-1, axis)


@lru_cache(maxsize=1)
def _hadamard_matrix() -> Tensor:
    matrix = torch.ones(1, 1)
    for _ in range(4):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return torch.tensor(_SIGNS, dtype=torch.float32)[:, None] * matrix / 4


def _buffer(place: str, x: Tensor) -> Tensor:
    """A tensor like x in memory that this thread keeps under that name."""
    kept: dict[Any, Tensor] = _memory.__dict__
    size = x.numel()
    room = kept.get((place, x.dtype))
    if room is None or room.numel() < size:
        kept[place, x.dtype] = room = torch.empty(size, dtype=x.dtype)
    if x.is_contiguous():
        return room[:size].view(x.shape)
    like = torch.empty_like(x, device="meta")
    return torch.as_strided(room, x.shape, like.stride())

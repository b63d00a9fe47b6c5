"""Round one operand of an operation as a recipe says, along an axis, with random bits from a key.

This module does not use autograd. Its functions are the bodies of the operations in `library`.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch

import mxnum as mx
from mxnum import errors
from mxnum.formats import ElementFormat
from mxnum.memory.tensors import host_array
from mxnum.modes import Accumulate, Rounding
from mxnum.recipe import FLOAT32, Operand, Recipe, plain
from mxnum.torch import amx
from mxnum.torch.transform import hadamard, narrowed

Tensor = Any
#: A value of `accumulate` that is not a member of `mxnum.Accumulate`.
AMX = "amx"

#: The slots of operands: their Philox streams within one step of one module. Operands that are
#: rounded along two axes have two slots.
LEFT, RIGHT, GRADIENT, GAMMA, BETA = 0, 2, 4, 6, 7
#: The slots of parameters, which all workers share. The right operand of a product may also belong
#: to samples (`Key.of_samples`).
_SHARED = (RIGHT, RIGHT + 1, GAMMA, BETA)
#: The functions that watch operands: function(slot, operand, axis, x, value, key), by the site's
#: number.
watching: dict[int, Callable[..., None]] = {}
_memory = threading.local()
#: About how many views of buffers each thread keeps.
_MOST_VIEWS = 512
#: Kernels of users that round in place of ours. The last one is used.
_others: list[Callable[..., Any]] = []


class Product(NamedTuple):
    """The six operands of a product and of its two gradients, and the way it is summed."""

    left: Operand
    right: Operand
    left_backward: Operand
    right_backward: Operand
    #: The output's gradient, as it is rounded for the gradients of the left and of the right
    #: operand.
    gradient_left: Operand
    gradient_right: Operand
    #: None: torch sums; "amx": like None, but AMX units multiply rounded operands; or a
    #: `mxnum.Accumulate`, or the name of a matrix unit.
    accumulate: str | None = None
    #: True if gradients are zero where the operand was clamped.
    clipped: bool = False
    #: True if the right operand belongs to samples, like the left one, and is not a parameter.
    of_samples: bool = False
    #: The matrix unit of the products of gradients, if it is another one than `accumulate`.
    backward: str | None = None

    @property
    def by_floats(self) -> bool:
        """True if operands are floats that torch multiplies."""
        return self.accumulate in (None, AMX)


class Key(NamedTuple):
    """What the random bits of an operation depend on, and who watches it.

    The first four fields are arguments of the operations.
    """

    #: The seed of the module.
    seed: int
    stream: int
    #: The position from `randomness.position_of`.
    position: Tensor | None
    #: The number of the site, by which `watching` has the function that watches it; 0 for nobody.
    watch: int = 0
    #: True if the right operand belongs to samples (`Product.of_samples`).
    of_samples: bool = False

    @property
    def step(self) -> int:
        return 0 if self.position is None else int(self.position[0])

    def keywords(self, operand: Operand, slot: int, size: int) -> dict[str, Any]:
        """Return `mxnum.quantize`'s keywords for the random bits of `size` elements."""
        if not is_stochastic(operand):
            return {}
        step, first, count = (0, 0, 1) if self.position is None else self.position.tolist()
        if slot in _SHARED and not (self.of_samples and slot in (RIGHT, RIGHT + 1)):
            first = 0
        errors.require(first == 0 or size % count == 0, "count", f"a divisor of {size}, the size of an operand", count)
        drawn = {"seed": self.seed % (1 << 64), "stream": 8 * (self.stream + step) + slot}
        return {**drawn, "first": size // count * first} if first else drawn


def is_stochastic(operand: Operand) -> bool:
    """Return True if rounding the operand draws random bits."""
    return operand.is_mx and Rounding(operand.rounding).is_stochastic


@lru_cache(maxsize=4096)
def product_text(recipe: Recipe, accumulate: str | None, clipped: bool, of_samples: bool) -> str:
    """Return the product of a recipe as the text that operations take; `product` reads it."""
    products = recipe.but(gamma=FLOAT32, beta=FLOAT32, vector="float32").to_dict()
    return json.dumps([products, accumulate, clipped, of_samples], separators=(",", ":"))


@lru_cache(maxsize=4096)
def product(text: str) -> Product:
    """Return the product of the recipe in a text of `product_text`."""
    table, accumulate, clipped, of_samples = json.loads(text)
    r = Recipe.from_dict(table)
    right, right_backward = r.weights, r.weights_backward
    if of_samples:  # both operands are activations; the right one meets the gradients, so it has their transform
        right, right_backward = r.activations, replace(r.activations_backward, transform=r.gradients.transform)
    operands = r.activations, right, r.activations_backward, right_backward, r.gradients
    for_weights = r.gradients_for_weights or r.gradients
    return Product(*operands, for_weights, accumulate, clipped, of_samples, r.unit_backward)


@lru_cache(maxsize=4096)
def operand_text(operand: Operand) -> str:
    """Return an operand as the text that operations take."""
    return json.dumps(plain(operand), separators=(",", ":"))


@lru_cache(maxsize=4096)
def operand_of(text: str) -> Operand:
    """Return the operand that `operand_text` describes."""
    return Operand.of(json.loads(text))


@lru_cache(maxsize=4096)
def prepared(operand: Operand, axis: int, ndim: int) -> tuple[Any, dict[str, Any]]:
    """Return the format, and the keywords of `mxnum.quantize` for an array with `ndim` axes.

    Tiles lie over the last two axes. For convolutions, whose axes are counted from the front, they
    lie over the first two, which are the channels of a weight.
    """
    keywords = operand.keywords(axis)
    if operand.block_shape is not None and axis >= 0:
        keywords["blocks"] = (*keywords.pop("block_shape"), *[1] * (ndim - 2))
    return operand.mx_format, keywords


def rounded(x: Tensor, operand: Operand, axis: int, key: Key, slot: int, buffer: str | None = None) -> Tensor:
    """Return x rounded for a product; x itself if nothing is rounded.

    `buffer` names memory that this thread reuses, because fresh memory costs more than rounding.
    The result is then valid until the next call with the same name.
    """
    if operand.transform:
        x = hadamard(x, axis)
    if operand.format is None:
        value = x
    elif operand.format == "bfloat16":
        value = to_bfloat16(x, operand.rounding)
    else:
        fmt, keywords = prepared(operand, axis, x.ndim)
        drawn = key.keywords(operand, slot, x.numel())
        if _others:
            value = _others[-1](x, operand, axis, **drawn)
            fits = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (x.shape, x.dtype)
            got = f"{tuple(value.shape)}, {value.dtype}" if isinstance(value, torch.Tensor) else type(value).__name__
            errors.require(
                fits, "kernel", f"a function that returns tensors of shape {tuple(x.shape)} and {x.dtype}", got
            )
        elif buffer is None or not x.is_cpu:
            value = mx.fake_quantize(x, fmt, out=torch.empty_like(x), **keywords, **drawn)
        else:
            value, out = _buffered(buffer, x)
            mx.fake_quantize(host_array("x", x), fmt, out=out, **keywords, **drawn)
    if key.watch in watching:
        watching[key.watch](slot, operand, axis, x, value, key)
    return value


@contextmanager
def rounding_by(kernel: Callable[..., Tensor]) -> Iterator[None]:
    """Round operands in MX formats by a kernel of yours within the context, forward and backward.

    The kernel is called as ``kernel(x, operand, axis)`` and returns a tensor of the shape and type
    of x. For stochastic rounding it also gets the keywords `seed` and `stream`, and sometimes
    `first`. Products with `accumulate` need codes, and raise.
    """
    errors.require_type(callable(kernel), "kernel", "a function", kernel)
    _others.append(kernel)
    try:
        yield
    finally:
        _others.remove(kernel)


def quantized(x: Tensor, operand: Operand, axis: int, key: Key, slot: int, buffer: str | None = None) -> Any:
    """Return x as an MX array for defined sums, or as a tensor if its format is not MX.

    The result is new memory, whatever `buffer` is.
    """
    if not operand.is_mx:
        return rounded(x, operand, axis, key, slot)
    errors.require(not _others, "accumulate", "None within rounding_by()", "a defined sum")
    if operand.transform:
        x = hadamard(x, axis)
    fmt, keywords = prepared(operand, axis, x.ndim)
    made = mx.quantize(x, fmt, **keywords, **key.keywords(operand, slot, x.numel()))
    if key.watch in watching:
        watching[key.watch](slot, operand, axis, x, made.dequantize(x.dtype), key)
    return made


def multiply(
    a: Any, b: Any, how: Product, operands: tuple[Operand, Operand], dtype: Any, bias: Tensor | None = None
) -> Tensor:
    """Return the product of two operands from `rounded` or `quantized`, plus a bias."""
    if how.by_floats:
        are_narrow = dtype == torch.float32 and not _others and all(map(_fits_bfloat16, operands))
        y = amx.multiply(a, b) if how.accumulate == AMX and are_narrow else torch.matmul(a, b)
        return y if bias is None else y.add_(bias)
    tensors = [isinstance(part, torch.Tensor) for part in (a, b)]
    if how.accumulate == "block" and any(tensors):
        raise ValueError("Argument 'recipe' must quantize both operands of each product when accumulate='block'.")
    if dtype == torch.float64:
        raise ValueError(f"Argument 'accumulate' must be None for torch.float64, not {how.accumulate!r}.")
    if how.accumulate not in list(Accumulate):
        a, b = (_for_unit(x, mx.units.get(cast(str, how.accumulate))) for x in (a, b))
    if bias is None:
        return mx.matmul(a, b, accumulate=cast(str, how.accumulate), out_dtype=dtype)
    y = cast(Tensor, mx.matmul(a, b, accumulate=cast(str, how.accumulate), out_dtype=torch.float32))
    if y.is_cpu:  # as in `mxnum.linear_forward`, so that the bits do not depend on the floating-point environment
        from mxnum.engine.products.sums import add_to_rows

        add_to_rows(host_array("y", y.flatten(0, -2)), host_array("bias", bias.float().contiguous()))
    else:
        y.add_(bias).nan_to_num_(math.nan, math.inf, -math.inf)  # makes NaNs canonical
    return y if dtype == torch.float32 else narrowed(y, dtype)


def _for_unit(x: Any, unit: mx.units.MatrixUnit) -> Any:
    """Return an operand in the type that a unit takes, or as it is.

    Rounded operands are in the type of the model. Units read the type of an array.
    """
    if not isinstance(x, torch.Tensor) or unit.operands not in (("bfloat16",), ("float16",)):
        return x
    narrow = x.to(getattr(torch, unit.operands[0]))
    is_held = torch.isnan(x) | (narrow.to(x.dtype) == x)
    accepted = f"one that rounds operands to {unit.operands[0]} for unit {unit.name!r}"
    errors.require(bool(is_held.all()), "recipe", accepted, "one that keeps other numbers")
    return narrow


def _fits_bfloat16(operand: Operand) -> bool:
    """Return True if bfloat16 holds all values of the operand.

    An MX value has at most eight bits, times a power of two if its scale is one.
    """
    return operand.format == "bfloat16" or (operand.is_mx and operand.mx_format.scale.power_of_two)


def to_bfloat16(x: Tensor, rounding: str) -> Tensor:
    """Return x rounded to bfloat16 numbers, in its own type."""
    if x.dtype == torch.bfloat16:
        return x
    if rounding == "rne" and x.dtype != torch.float64:  # torch would round float64 twice, first to float32
        # torch's cast writes NaNs with other bits, which nan_to_num_ makes canonical.
        return x.to(torch.bfloat16).to(x.dtype).nan_to_num_(math.nan, math.inf, -math.inf)
    return narrowed(x, torch.bfloat16, rounding).to(x.dtype)


def cut(grad: Tensor, x: Tensor, operand: Operand, axis: int) -> Tensor:
    """Return the gradient of x with zeros where elements of x are clamped."""
    if not operand.is_mx:
        return grad
    if operand.transform:
        x, grad = hadamard(x, axis), hadamard(grad, axis)
    fmt, keywords = prepared(operand, axis, x.ndim)
    q = mx.quantize(x, fmt, **{**keywords, "rounding": "rne"})
    grad = grad.masked_fill(is_clamped(x, q, operand.rounding), 0)
    return hadamard(grad, axis, inverse=True) if operand.transform else grad


def is_beyond_max(x: Tensor, q: mx.MXArray) -> Tensor:
    """Return which elements of x, quantized as q, lie beyond the largest value of their block."""
    largest = q.format.element.max
    return _exceeds(x, q, (largest, False), (largest, False))


def is_clamped(x: Tensor, q: mx.MXArray, rounding: str = "rne") -> Tensor:
    """Return which elements of x lie beyond their block's largest value after rounding.

    They are rounded with an unbounded exponent. Stochastic rounding counts as rounding to nearest.
    A block whose scale is zero clamps all but zeros.
    """
    e = q.format.element
    wider = ElementFormat("wider", e.exponent_bits + 1, e.mantissa_bits, e.bias)
    is_odd, following = bool(e.max_code & 1), wider.value(e.max_code + 1)
    middle, above, at_next = (e.max + following) / 2, (e.max, False), (following, True)
    thresholds = {
        Rounding.RNE: ((middle, is_odd), (middle, is_odd)),
        Rounding.RNA: ((middle, True), (middle, True)),
        Rounding.RTZ: (at_next, at_next),
        Rounding.RTP: (above, at_next),
        Rounding.RTN: (at_next, above),
        Rounding.RTO: (at_next, at_next) if is_odd else (above, above),
    }
    mode = Rounding(rounding)
    return _exceeds(x, q, *thresholds[Rounding.RNE if mode.is_stochastic else mode])


def _exceeds(x: Tensor, q: mx.MXArray, positive: tuple[float, bool], negative: tuple[float, bool]) -> Tensor:
    """Return for each element whether |x| over the scale is above the threshold of its sign.

    A threshold is a pair (value, inclusive); if it is inclusive, an equal magnitude counts too.
    """
    ones = mx.MXArray(torch.ones_like(q.codes), q.scales, q.format, q.blocks, tensor_scale=q.tensor_scale)
    unit, magnitude = cast(Tensor, ones.dequantize(torch.float64)), x.double().abs()

    def exceeds(threshold: float, inclusive: bool) -> Tensor:
        limit = unit * (threshold / q.format.element.value(1))  # exact: few digits, far from the limits of float64
        return magnitude >= limit if inclusive else magnitude > limit

    return torch.where(x > 0, exceeds(*positive), exceeds(*negative)) & (magnitude > 0)


def _buffered(name: str, x: Tensor) -> tuple[Tensor, Any]:
    """Return a tensor like x in memory that this thread keeps under that name, and its array."""
    kept: dict[Any, Any] = _memory.__dict__
    like = (name, x.dtype, x.shape, x.stride())
    found: tuple[Tensor, Any] | None = kept.get(like)  # faster than a new view from torch
    if found is not None:
        return found
    memory = kept.get(like[:2])
    if memory is None or memory.numel() < x.numel() or len(kept) > _MOST_VIEWS:
        for key in [key for key in kept if key[:2] == like[:2]]:
            del kept[key]
        kept[like[:2]] = memory = torch.empty(x.numel(), dtype=x.dtype)
    is_dense = x.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(x)
    value = torch.as_strided(memory, x.shape, x.stride()) if is_dense else memory[: x.numel()].view(x.shape)
    kept[like] = value, host_array("out", value)
    return value, kept[like][1]

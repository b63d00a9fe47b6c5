"""Round one operand of an operation as a recipe says, along an axis, with random bits from a `Key`.

The functions here compute the operations of `library`, without autograd.
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

import numpy as np
import torch

import mxnum as mx
from mxnum import errors
from mxnum.engine.request import Choices, RandomBits, checked_settings
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import float_array
from mxnum.memory.tensors import bits_maker, host_array
from mxnum.modes import Accumulate, Rounding
from mxnum.recipe import FLOAT32, Operand, Recipe, plain
from mxnum.torch import amx
from mxnum.torch.transform import hadamard, narrowed

Tensor = Any
#: The value of `accumulate` for Intel's AMX units, which is no member of `mxnum.Accumulate`.
AMX = "amx"

#: A slot is the number of an operand's Philox stream within one step of one module. An operand that
#: is rounded along two axes has two slots.
LEFT, RIGHT, GRADIENT, GAMMA, BETA = 0, 2, 4, 6, 7
#: The slots of parameters, for which all workers draw the same random bits. If `Key.of_samples` is
#: True, the operand in the slots RIGHT and RIGHT + 1 is an activation, not a parameter.
_SHARED = (RIGHT, RIGHT + 1, GAMMA, BETA)
#: The functions that watch operands. Each key is the number of a module's `Site`. A function is
#: called as ``function(slot, operand, axis, x, value, key)``.
watching: dict[int, Callable[..., None]] = {}
_memory = threading.local()
#: The approximate limit on the number of buffer views that a thread keeps.
_MOST_VIEWS = 512
#: The kernels of all active `rounding_by` contexts, in the order in which they began. The last
#: kernel in the list rounds operands in place of `mxnum.fake_quantize`.
_others: list[Callable[..., Any]] = []


class Product(NamedTuple):
    """The settings of a product and of the two products of its gradients."""

    left: Operand
    right: Operand
    left_backward: Operand
    right_backward: Operand
    #: The output's gradient is rounded as `gradient_left` to compute the left operand's gradient,
    #: and as `gradient_right` to compute the right operand's gradient.
    gradient_left: Operand
    gradient_right: Operand
    #: How the product is summed: None (by torch), "amx" (by AMX units if both operands fit
    #: bfloat16), a value of `mxnum.Accumulate`, or the name of a matrix unit.
    accumulate: str | None = None
    #: True if an operand's gradient is zero where the operand was clamped.
    clipped: bool = False
    #: True if the right operand is an activation, which depends on the samples of the batch. False
    #: if the right operand is a parameter.
    of_samples: bool = False
    #: The matrix unit that sums both products of the backward pass. If `backward` is None, the
    #: setting `accumulate` also holds for the backward pass.
    backward: str | None = None

    @property
    def by_floats(self) -> bool:
        """True if torch multiplies the operands as floats."""
        return self.accumulate in (None, AMX)


class Key(NamedTuple):
    """The data on which an operation's random bits depend, and the number of the module's `Site`.

    The first four fields are arguments of the operations in `library`.
    """

    #: The seed of the module.
    seed: int
    stream: int
    #: A tensor of the step, the number of the first sample and the count of samples, made by
    #: `randomness.position_of`. None means step 0 and the whole batch.
    position: Tensor | None
    #: The number of the module's `Site`, a key of the dictionary `watching`; 0 outside of emulated
    #: modules.
    watch: int = 0
    #: `Product.of_samples`.
    of_samples: bool = False

    @property
    def step(self) -> int:
        return 0 if self.position is None else int(self.position[0])

    def keywords(self, operand: Operand, slot: int, size: int) -> dict[str, Any]:
        """Return `mxnum.quantize`'s keywords that select the random bits of `size` elements."""
        if not is_stochastic(operand):
            return {}
        step, first, count = (0, 0, 1) if self.position is None else self.position.tolist()
        if slot in _SHARED and not (self.of_samples and slot in (RIGHT, RIGHT + 1)):
            first = 0
        errors.require(first == 0 or size % count == 0, "count", f"a divisor of {size}, the size of an operand", count)
        drawn = {"seed": self.seed % (1 << 64), "stream": 8 * (self.stream + step) + slot}
        return {**drawn, "first": size // count * first} if first else drawn


def is_stochastic(operand: Operand) -> bool:
    """Return True if the operand is rounded stochastically."""
    return operand.is_mx and Rounding(operand.rounding).is_stochastic


@lru_cache(maxsize=4096)
def product_text(recipe: Recipe, accumulate: str | None, clipped: bool, of_samples: bool) -> str:
    """Return a text that describes the products of a recipe, for the operations in `library`."""
    products = recipe.but(gamma=FLOAT32, beta=FLOAT32, vector="float32").to_dict()
    return json.dumps([products, accumulate, clipped, of_samples], separators=(",", ":"))


@lru_cache(maxsize=4096)
def product(text: str) -> Product:
    """Return the `Product` that a text of `product_text` describes."""
    table, accumulate, clipped, of_samples = json.loads(text)
    r = Recipe.from_dict(table)
    right, right_backward = r.weights, r.weights_backward
    # If `of_samples` is True, both operands are activations. In the backward pass, the right
    # operand is multiplied by gradients, and both factors of a product need the same transform.
    if of_samples:
        right, right_backward = r.activations, replace(r.activations_backward, transform=r.gradients.transform)
    operands = r.activations, right, r.activations_backward, right_backward, r.gradients
    for_weights = r.gradients_for_weights or r.gradients
    return Product(*operands, for_weights, accumulate, clipped, of_samples, r.unit_backward)


@lru_cache(maxsize=4096)
def operand_text(operand: Operand) -> str:
    """Return a text that describes an operand, for the operations in `library`."""
    return json.dumps(plain(operand), separators=(",", ":"))


@lru_cache(maxsize=4096)
def operand_of(text: str) -> Operand:
    """Return the operand that `operand_text` describes."""
    return Operand.of(json.loads(text))


@lru_cache(maxsize=4096)
def prepared(operand: Operand, axis: int, ndim: int) -> tuple[Any, dict[str, Any]]:
    """Return the format, and the keywords of `mxnum.quantize` for an array with `ndim` axes.

    If `axis` is negative, tiles lie over the last two axes. Otherwise (in convolutions), tiles lie
    over the first two axes; in a weight, these are the output and input channels.
    """
    keywords = operand.keywords(axis)
    if operand.block_shape is not None and axis >= 0:
        keywords["blocks"] = (*keywords.pop("block_shape"), *[1] * (ndim - 2))
    return operand.mx_format, keywords


def rounded(x: Tensor, operand: Operand, axis: int, key: Key, slot: int, buffer: str | None = None) -> Tensor:
    """Return x rounded as an operand, or x itself if the operand is not rounded.

    `buffer` names memory that this thread reuses, because fresh memory costs more time than
    rounding. A result in a buffer is valid until the next call with the same `buffer`.
    """
    if operand.transform:
        x = hadamard(x, axis)
    if operand.format is None:
        value = x
    elif operand.format == "bfloat16":
        value = to_bfloat16(x, operand.rounding)
    else:
        if _others:
            drawn = key.keywords(operand, slot, x.numel())
            value = _others[-1](x, operand, axis, **drawn)
            fits = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (x.shape, x.dtype)
            got = f"{tuple(value.shape)}, {value.dtype}" if isinstance(value, torch.Tensor) else type(value).__name__
            errors.require(
                fits, "kernel", f"a function that returns tensors of shape {tuple(x.shape)} and type {x.dtype}", got
            )
        elif buffer is None or not x.is_cpu:
            fmt, keywords = prepared(operand, axis, x.ndim)
            drawn = key.keywords(operand, slot, x.numel())
            value = mx.fake_quantize(x, fmt, out=torch.empty_like(x), **keywords, **drawn)
        else:
            value = _rounded_to_buffer(x, operand, axis, key, slot, buffer)
    if key.watch in watching:
        watching[key.watch](slot, operand, axis, x, value, key)
    return value


@contextmanager
def rounding_by(kernel: Callable[..., Tensor]) -> Iterator[None]:
    """Round operands in MX formats by your own kernel within the context, forward and backward.

    The kernel is called as ``kernel(x, operand, axis)`` and returns a tensor of the shape and type
    of x. For stochastic rounding, the kernel also gets the keywords `seed` and `stream`, and the
    keyword `first` unless the first element is number 0. The kernel returns values, but all
    settings of `accumulate` except None and "amx" need codes. With such a setting, products within
    the context raise ValueError.
    """
    errors.require_type(callable(kernel), "kernel", "a function", kernel)
    _others.append(kernel)
    try:
        yield
    finally:
        _others.remove(kernel)


def quantized(x: Tensor, operand: Operand, axis: int, key: Key, slot: int, buffer: str | None = None) -> Any:
    """Return x as an MX array, or as a tensor if the operand's format is not MX.

    `buffer` is ignored: no result is written to a buffer.
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
        by_amx = how.accumulate == AMX and dtype == torch.float32 and not _others
        y = amx.multiply(a, b) if by_amx and all(map(_fits_bfloat16, operands)) else torch.matmul(a, b)
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
    if y.is_cpu:  # add like `mxnum.linear_forward`, independently of the floating-point environment
        from mxnum.engine.products.sums import add_to_rows

        add_to_rows(host_array("y", y.flatten(0, -2)), host_array("bias", bias.float().contiguous()))
    else:
        y.add_(bias).nan_to_num_(math.nan, math.inf, -math.inf)  # makes NaNs canonical
    return y if dtype == torch.float32 else narrowed(y, dtype)


def _for_unit(x: Any, unit: mx.units.MatrixUnit) -> Any:
    """Return x in the dtype that the unit needs.

    A tensor is converted to bfloat16 or float16 if the unit takes operands of that type. The
    conversion is needed because `mxnum.matmul` reads the operand format from the dtype, and a
    rounded tensor still has the dtype of the model, such as float32.
    """
    if not isinstance(x, torch.Tensor) or unit.operands not in (("bfloat16",), ("float16",)):
        return x
    narrow = x.to(getattr(torch, unit.operands[0]))
    is_held = torch.isnan(x) | (narrow.to(x.dtype) == x)
    accepted = f"one that rounds operands to {unit.operands[0]} for unit {unit.name!r}"
    errors.require(bool(is_held.all()), "recipe", accepted, f"one that leaves numbers too wide for {unit.operands[0]}")
    return narrow


def _fits_bfloat16(operand: Operand) -> bool:
    """Return True if bfloat16 can represent all values of the operand.

    If the scale is a power of two, an MX value has at most eight significant bits.
    """
    return operand.format == "bfloat16" or (operand.is_mx and operand.mx_format.scale.power_of_two)


def to_bfloat16(x: Tensor, rounding: str) -> Tensor:
    """Return x rounded to bfloat16 numbers, in the type of x."""
    if x.dtype == torch.bfloat16:
        return x
    if rounding == "rne" and x.dtype != torch.float64:  # torch casts float64 by way of float32: two roundings
        # The cast can change the bits of NaNs, and `nan_to_num_` makes NaNs canonical.
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
    """Return a tensor that is True where abs(x) exceeds the largest value of its block."""
    largest = q.format.element.max
    return _exceeds(x, q, (largest, False), (largest, False))


def is_clamped(x: Tensor, q: mx.MXArray, rounding: str = "rne") -> Tensor:
    """Return a tensor that is True for each clamped element of x.

    An element is clamped if rounding with an unbounded exponent gives more than the largest value
    of its block. With stochastic rounding, an element is clamped if rounding it to nearest even
    would clamp it. In a block whose scale is zero, all elements but zeros are clamped.
    """
    mode = Rounding(rounding)
    return _exceeds(x, q, *_first_clamped(q.format.element, Rounding.RNE if mode.is_stochastic else mode))


@lru_cache(maxsize=256)
def _first_clamped(e: ElementFormat, rounding: Rounding) -> list[tuple[float, bool]]:
    """Return the thresholds from which positive and negative numbers are clamped.

    A threshold is a pair (magnitude, inclusive). If `inclusive` is True, a number exactly at the
    threshold is clamped.
    """
    wider = ElementFormat("wider", e.exponent_bits + 1, e.mantissa_bits, e.bias)
    following = wider.value(e.max_code + 1)
    middle = (e.max + following) / 2
    # Each possible threshold, with the smallest number that is clamped under this threshold.
    candidates = {
        (e.max, False): math.nextafter(e.max, math.inf), (middle, True): middle,
        (middle, False): math.nextafter(middle, math.inf), (following, True): following,
    }  # fmt: skip
    numbers = np.array([[sign * x for x in candidates.values()] for sign in (1, -1)])
    values = np.abs(mx.decode(mx.encode(numbers, wider, rounding=rounding), wider, dtype="float64"))
    return [list(candidates)[int(np.argmax(row > e.max))] for row in values]


def _exceeds(x: Tensor, q: mx.MXArray, positive: tuple[float, bool], negative: tuple[float, bool]) -> Tensor:
    """Return for each element whether abs(x) divided by the scale exceeds a threshold.

    `positive` is the threshold of positive x, and `negative` of negative x. A threshold is a pair
    (magnitude, inclusive). If `inclusive` is True, a number exactly at the threshold exceeds it.
    """
    ones = mx.MXArray(torch.ones_like(q.codes), q.scales, q.format, q.blocks, tensor_scale=q.tensor_scale)
    unit, magnitude = cast(Tensor, ones.dequantize(torch.float64)), x.double().abs()

    def exceeds(threshold: float, inclusive: bool) -> Tensor:
        limit = unit * (threshold / q.format.element.value(1))  # exact, because both factors have few bits
        return magnitude >= limit if inclusive else magnitude > limit

    return torch.where(x > 0, exceeds(*positive), exceeds(*negative)) & (magnitude > 0)


def _rounded_to_buffer(x: Tensor, operand: Operand, axis: int, key: Key, slot: int, buffer: str) -> Tensor:
    """Return what `mxnum.fake_quantize` returns, in memory that this thread keeps under `buffer`.

    Only the first call for each layout of tensors checks the arguments: checks take longer than
    rounding a small tensor.
    """
    # Random bits are numbered in C order, so loops draw them faster if x is in C order, too.
    if not x.is_contiguous() and is_stochastic(operand):
        x = x.contiguous()
    kept: dict[Any, Any] = _memory.__dict__
    like = (buffer, x.dtype, x.shape, x.stride(), id(operand), axis)
    found = kept.get(like)
    if found is None:
        from mxnum.engine.quantizing.host import repeated

        value, out = _buffered(buffer, x)
        fmt, keywords = prepared(operand, axis, x.ndim)
        _, source = float_array("x", out)
        settings = checked_settings(Choices(fmt, out.shape, source.name, **keywords))
        bits, again = bits_maker(x), repeated(settings, out)
        # The entry keeps the operand, because otherwise a new operand could get the same id.
        kept[like] = found = value, out, keywords, bits and again and (bits, again), is_stochastic(operand), operand
    value, out, keywords, fast, draws, _ = found
    drawn = key.keywords(operand, slot, x.numel()) if draws else {}
    if fast:
        bits, again = fast
        again(bits(x), RandomBits(30, **drawn) if draws else None)
    else:
        mx.fake_quantize(host_array("x", x), operand.mx_format, out=out, **keywords, **drawn)
    return value


def _buffered(name: str, x: Tensor) -> tuple[Tensor, Any]:
    """Return a tensor like x in memory that this thread keeps under `name`, and its numpy view."""
    kept: dict[Any, Any] = _memory.__dict__
    like = (name, x.dtype)
    memory = kept.get(like)
    if memory is None or memory.numel() < x.numel() or len(kept) > _MOST_VIEWS:
        for key in [key for key in kept if key[:2] == like]:
            del kept[key]
        kept[like] = memory = torch.empty(x.numel(), dtype=x.dtype)
    is_dense = x.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(x)
    value = torch.as_strided(memory, x.shape, x.stride()) if is_dense else memory[: x.numel()].view(x.shape)
    return value, host_array("out", value)

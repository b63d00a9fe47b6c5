"""Attention with two quantized products, and its use in place of torch's attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from mxnum import errors
from mxnum.torch.functions import How, _check, _key, made_ready, matmul_how
from mxnum.torch.library import IMPLEMENTED, is_eager
from mxnum.torch.operands import Key

Tensor = Any
#: The second product of attention XORs its seed with this number, so that the two products draw
#: different random bits.
_SECOND = 0x5BD1E9959E3779B9
#: The names of the two operands of each product of attention. A product's key in this dictionary is
#: the XOR of the product's seed and the module's seed.
OPERANDS = {0: ("queries", "keys"), _SECOND: ("probabilities", "values")}

#: True for the versions of torch in which compiled code is known to set `Intercepted.was_used`.
COMPILED_TOO = torch.__version__ >= (2, 13)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    recipe: Any = "mxfp8_e4m3",
    accumulate: str | None = None,
    gradient: str = "straight",
    seed: Any = None,
    stream: int = 0,
) -> Tensor:
    """Compute `torch.nn.functional.scaled_dot_product_attention` with both products quantized.

    All operands are quantized as the recipe quantizes activations: queries and keys along their
    features, probabilities and values along the keys.
    """
    _check(query=query, key=key, value=value)
    how = made_ready(recipe, accumulate, gradient)
    drawn = _key(how.is_stochastic, seed, stream)
    return attention_how(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, how=how, drawn=drawn)


def attention_how(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    how: How,
    drawn: Key,
) -> Tensor:
    """Compute `attention` with a prepared recipe (`How`) and a module's `Key` for random bits."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    if is_causal:
        errors.require(attn_mask is None, "attn_mask", "None with is_causal=True", "a mask")
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if is_causal and dropout_p == 0 and not how.bf16 and _is_simple(query, key, value):
        return cast(Tensor, _Attention.apply(query, key, value, attn_mask, factor, how.matmul, drawn))
    return attend(query, key, value, attn_mask, dropout_p, factor, how, drawn, has_keys=is_causal)[0]


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float, scale: float, how: How, drawn: Key,
    *, has_keys: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output of attention, and the probabilities.

    A boolean `mask` is True for each key that a query may attend to. The caller sets `has_keys` if
    each query may attend to at least one key.
    """
    scores = matmul_how(query, key, how, drawn, transposed=True).mul_(scale)  # in place: allocation is slow
    dtype = scores.dtype  # `scores + mask` may have a wider type, so the probabilities are cast back
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    probabilities = (scores.softmax(-1) if has_keys or mask is None else _softmax(scores)).to(dtype)
    if dropout > 0:
        probabilities = torch.dropout(probabilities, dropout, True)
    return matmul_how(probabilities, value, how, Key(drawn.seed ^ _SECOND, *drawn[1:])), probabilities


def _is_simple(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return True if `is_eager` holds and the tensors need no broadcasting or casts."""
    return (
        is_eager(query, key, value)
        and not torch.is_autocast_enabled("cpu")
        and query.dtype == key.dtype == value.dtype
        and (*query.shape[:-2], query.shape[-1]) == (*key.shape[:-2], key.shape[-1])
        and key.shape[:-1] == value.shape[:-1]
    )


class _Attention(torch.autograd.Function):
    """A version of `attend` that needs less memory.

    The mask must be boolean and must allow each query to attend to at least one key.

    Allocating memory for a result takes longer than computing it, so the scores and their gradient
    are overwritten. The mask is applied by integer operations, which are faster than `torch.where`.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *rest: Any) -> Tensor:
        ctx.scale, ctx.text, drawn = rest
        scores = IMPLEMENTED["matmul"](query, key, None, True, ctx.text, *drawn[:4])
        kept = _kept_bits(mask, scores)
        hidden = scores.new_full((), -math.inf).view(kept.dtype) & ~kept
        scores.mul_(ctx.scale).view(kept.dtype).bitwise_and_(kept).bitwise_or_(hidden)
        probabilities = torch.softmax(scores, -1, out=scores)
        ctx.save_for_backward(query, key, value, probabilities, mask, drawn.position)
        ctx.drawn = drawn._replace(position=None)
        second = Key(drawn.seed ^ _SECOND, *drawn[1:4])
        return cast(Tensor, IMPLEMENTED["matmul"](probabilities, value, None, False, ctx.text, *second[:4]))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        query, key, value, probabilities, mask, position = ctx.saved_tensors
        of_query, of_key, of_value = wanted = ctx.needs_input_grad[:3]
        backward, drawn = IMPLEMENTED["matmul_backward"], ctx.drawn._replace(position=position)
        made = [None, None, None]
        second = Key(drawn.seed ^ _SECOND, *drawn[1:4])
        scores, made[2], _ = backward(
            grad, probabilities, value, [of_query or of_key, of_value, False], False, ctx.text, *second[:4]
        )
        if of_query or of_key:
            torch._softmax_backward_data(scores, probabilities, -1, scores.dtype, grad_input=scores)
            kept = _kept_bits(mask, scores)
            scores.view(kept.dtype).bitwise_and_(kept)
            scores.mul_(ctx.scale)
            made[:2] = backward(scores, query, key, [of_query, of_key, False], True, ctx.text, *drawn[:4])[:2]
        return *(x if is_wanted else None for x, is_wanted in zip(made, wanted, strict=True)), None, None, None, None


def _kept_bits(mask: Tensor, scores: Tensor) -> Tensor:
    """Return integers as wide as the scores: all bits are 1 where the mask is True, else 0."""
    return mask.to({2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.itemsize]).neg_()


_safe = torch.ops.aten._safe_softmax if hasattr(torch.ops.aten, "_safe_softmax") else torch.softmax


def _softmax(scores: Tensor) -> Tensor:
    """Return the softmax along the last axis, with zeros in a row whose scores are all -inf.

    Versions of torch before 2.5 lack `_safe_softmax`. With these versions, such a row is NaN.
    """
    return _safe(scores, -1)


class Intercepted(TorchFunctionMode):
    """A context in which the replacements in `functions` run instead of torch's functions.

    `functions` is a dictionary from torch's functions to their replacements. If a module inside the
    context enters another `Intercepted`, the inner context takes precedence.
    """

    def __init__(self, functions: dict[Any, Callable[..., Any]]):
        super().__init__()
        self.functions, self.was_used = functions, False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the replacement of a torch function, or the function itself if it has none."""
        if function in self.functions and (COMPILED_TOO or not torch.compiler.is_compiling()):
            self.was_used = True
        return self.functions.get(function, function)(*args, **(kwargs or {}))


def attention_functions(how: How, drawn: Key) -> dict[Any, Callable[..., Any]]:
    """Return a dictionary from torch's attention function to its quantized replacement."""

    def ours(*arguments: Any, **keywords: Any) -> Tensor:
        return attention_how(*arguments, **keywords, how=how, drawn=drawn)

    return {torch.nn.functional.scaled_dot_product_attention: ours}

"""`torch.nn.MultiheadAttention` with all products quantized."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from mxnum.torch.attention import attend
from mxnum.torch.functions import How, linear_how
from mxnum.torch.operands import Key

Tensor = Any
#: The seed of projection i is the module's seed XOR i times this number, so that projections draw
#: different random bits.
_STEP = 0x1E3779B97F4A7C15 >> 3
#: The names of projections 2 to 4, keyed by the number that is XORed into the module's seed.
#: Projection 1 computes either the queries, or the queries, keys and values together.
PROJECTIONS = {2 * _STEP: "k_proj", 3 * _STEP: "v_proj", 4 * _STEP: "out_proj"}


def forward(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute the forward pass of `torch.nn.MultiheadAttention`."""
    if is_causal and attn_mask is None:
        raise ValueError("Argument 'attn_mask' must be given with is_causal=True, which is only a hint about the mask.")
    how, drawn, heads = self._mx.how, self._mx_key, self.num_heads
    is_batch, is_self = query.ndim == 3, query is key and key is value
    query, key, value = (_batch_first(x, is_batch, self.batch_first) for x in (query, key, value))
    q, k, v = _projected(self, query, key, value, is_self, how, drawn)
    mask = _merged(attn_mask, key_padding_mask, q, k.shape[1], heads)
    if self.bias_k is not None:
        k, v = (torch.cat([x, row.expand(len(x), 1, -1)], 1) for x, row in ((k, self.bias_k), (v, self.bias_v)))
    if self.add_zero_attn:
        k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
    if mask is not None:
        mask = functional.pad(mask, (0, k.shape[1] - mask.shape[-1]))
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous() for x in (q, k, v))
    dropout = self.dropout if self.training else 0.0
    y, weights = attend(q, k, v, mask, dropout, 1 / math.sqrt(q.shape[-1]), how, drawn)
    y = linear_how(y.transpose(1, 2).flatten(2), self.out_proj.weight, self.out_proj.bias, how, _another(drawn, 4))
    y = y if is_batch and self.batch_first else y.transpose(0, 1) if is_batch else y[0]
    if not need_weights:
        return y, None
    weights = weights.mean(1) if average_attn_weights else weights
    return y, weights if is_batch else weights[0]


def _batch_first(x: Tensor, is_batch: bool, is_first: bool) -> Tensor:
    return x[None] if not is_batch else x if is_first else x.transpose(0, 1)


def _another(drawn: Key, index: int) -> Key:
    return Key(drawn.seed ^ index * _STEP, *drawn[1:])


def _projected(
    self: Any, query: Tensor, key: Tensor, value: Tensor, is_self: bool, how: How, drawn: Key
) -> tuple[Tensor, ...]:
    """Return the projected queries, keys and values.

    Self-attention computes all three in one product; other attention needs three products. The
    products are the same as in `torch.nn.MultiheadAttention`.
    """
    bias = self.in_proj_bias
    if self._qkv_same_embed_dim and is_self:
        made = linear_how(query, self.in_proj_weight, bias, how, _another(drawn, 1)).chunk(3, -1)
        return tuple(made)
    if self._qkv_same_embed_dim:
        weights = self.in_proj_weight.chunk(3)
    else:
        weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
    biases = (None, None, None) if bias is None else bias.chunk(3)
    parts = zip((query, key, value), weights, biases, strict=True)
    return tuple(linear_how(x, w, b, how, _another(drawn, 1 + i)) for i, (x, w, b) in enumerate(parts))


def _merged(attn_mask: Any, padding: Any, q: Tensor, length: int, heads: int) -> Any:
    """Return the sum of the attention mask and the padding mask, to be added to the scores.

    In `torch.nn.MultiheadAttention`, True in a mask excludes a key.
    """
    added = None
    if attn_mask is not None:
        added = _added(attn_mask, q)
        if added.ndim == 3:
            added = added if len(added) == 1 else added.view(len(q), heads, *added.shape[1:])
    if padding is not None:
        rows = _added(padding, q).view(len(q), 1, 1, length)
        added = rows if added is None else added + rows
    return added


def _added(mask: Tensor, q: Tensor) -> Tensor:
    zero = torch.zeros(mask.shape, dtype=q.dtype, device=q.device)
    return zero.masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask.to(q.dtype)

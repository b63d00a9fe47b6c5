"""Subtract the mean row from the weight of the layer that makes the logits.

Subtracting the mean row changes all logits of a token by the same number. Softmax ignores this
change.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mxnum import errors

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ROWS = "the name of a torch.nn.Linear, whose weight has a row for each symbol"


def center_output_weights(model: nn.Module, name: str, *, vocabulary: int | None = None, tied: bool = False) -> None:
    """Subtract the mean row from the weight of the layer that makes the logits, in place.

    Call this function after each optimizer step::

        optimizer.step()
        mxt.center_output_weights(model, "lm_head")

    Every logit of a token changes by the same number, so softmax and the loss do not change, except
    for rounding. The mean of the layer's bias is also subtracted from the bias. The loss does
    change if the model uses the logits outside softmax, for example in a logit cap, a sigmoid or a
    z-loss.

    Parameters
    ----------
    model
        The whole model, which is searched for other modules that share the weight.
    name
        The name of a `torch.nn.Linear` layer of the model, which may be emulated. The layer's
        weight may be a DTensor, as created by `fully_shard`.
    vocabulary
        The number of symbols (default: the number of rows of the weight). Later rows are padding.
        The mean is computed over the rows of symbols only, and is subtracted from all rows.
    tied
        If True, the layer may share its weight with an embedding. The embeddings then change too,
        which changes the loss.
    """
    errors.require_type(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
    modules = dict(model.named_modules(remove_duplicate=False))
    errors.require(name in modules, "name", "the name of a module of the model", name)
    layer = modules[name]
    errors.require(isinstance(layer, nn.Linear), "name", _ROWS, f"{name}, a {type(layer).__name__}")
    weight = _parameter(layer, name, "weight", 2)
    bias = None if layer.bias is None else _parameter(layer, name, "bias", 1)
    count = weight.shape[0]
    if vocabulary is not None:
        count = errors.integer("vocabulary", vocabulary, 1, count)
    for other, module in modules.items():
        if not tied and module is not layer and any(each is weight for each in module._parameters.values()):
            raise ValueError(
                f"Module {name!r} must not share its weight with another module unless tied=True, but {other!r} has "
                "the same weight."
            )
    with torch.no_grad():
        for parameter in (weight, bias):
            if parameter is not None:
                wide = torch.promote_types(parameter.dtype, torch.float32)
                symbols = parameter if count == len(parameter) else parameter[:count]
                parameter.sub_(symbols.sum(0, dtype=wide) / count)


def _parameter(layer: Any, name: str, kind: str, axes: int) -> Any:
    """Return a parameter of the layer, or raise ValueError if it cannot be changed in place."""
    parameter = layer._parameters.get(kind)
    if parameter is None:  # the parameter is computed (parametrize, weight_norm) or part of a flat parameter (FSDP 1)
        raise ValueError(
            f"Module {name!r} must store {kind!r} as a parameter of its own, but derives it from other parameters."
        )
    is_known = type(parameter) is nn.Parameter or hasattr(parameter, "placements")  # or a DTensor
    if not is_known or parameter.ndim != axes or parameter.dtype not in _DTYPES or parameter.is_meta:
        raise ValueError(
            f"Module {name!r} must have a {axes}-D {kind} in memory, with floats of 16 bits or more, not "
            f"{type(parameter).__name__}{list(parameter.shape)} of {parameter.dtype} on {parameter.device}."
        )
    return parameter

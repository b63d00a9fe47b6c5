"""Remove what softmax cannot see from the layer that makes the logits: the mean row of its weight."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mxnum import errors

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def center_output_weights(model: nn.Module, name: str, *, vocabulary: int | None = None) -> None:
    """Subtract the mean row from the weight of the layer that makes the logits, in place; call it after each step.

        optimizer.step()
        mxt.center_output_weights(model, "lm_head")

    Every logit of a token changes by the same number, so softmax and the loss stay as they are, up to rounding. A bias
    loses its mean too. Do not call it where logits go elsewhere than to softmax: to a cap, or a sigmoid.

    Parameters
    ----------
    model
        The whole model, so that a weight that is tied to an embedding is seen, and refused: centering it would change
        what the model reads.
    name
        The name of a `torch.nn.Linear` in it, emulated or not, whose weight has a row for each symbol. The weight may
        be a DTensor, as `fully_shard` makes it.
    vocabulary
        The number of symbols, where rows after them are padding: these do not count in the mean, but it is subtracted
        from them too.
    """
    errors.require_type(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
    modules = dict(model.named_modules(remove_duplicate=False))
    layer = modules.get(name)
    errors.require(layer is not None, "name", "the name of a module of the model", name)
    accepted = "the name of a torch.nn.Linear, whose weight has a row for each symbol"
    errors.require(isinstance(layer, nn.Linear), "name", accepted, f"{name} ({type(layer).__name__})")
    weight, bias = _parameter(layer, name, "weight", 2), _parameter(layer, name, "bias", 1)
    for other, module in modules.items():
        if module is not layer and any(each is weight for each in module._parameters.values()):
            raise ValueError(
                f"Module {name!r} must have a weight of its own, but {other!r} has it too: centering would change what "
                "that computes."
            )
    rows = weight.shape[0]
    count = rows if vocabulary is None else errors.integer("vocabulary", vocabulary, 1, rows)
    with torch.no_grad():
        for parameter in (weight, bias):
            if parameter is not None:
                wide = torch.promote_types(parameter.dtype, torch.float32)
                counted = parameter if count == rows else parameter[:count]
                parameter.sub_(counted.sum(0, dtype=wide) / count)


def _parameter(layer: Any, name: str, kind: str, axes: int) -> Any:
    """Return a parameter of the layer, or None for a bias that it lacks; refuse what cannot be changed in place."""
    if kind == "bias" and layer.bias is None:
        return None
    parameter = layer._parameters.get(kind)
    if parameter is None:
        raise ValueError(
            f"Module {name!r} must have its {kind} as a parameter, not computed from others (parametrize, weight_norm)."
        )
    is_plain = type(parameter) is nn.Parameter or hasattr(parameter, "placements")  # (a DTensor has these)
    if not is_plain or parameter.dtype not in _DTYPES or parameter.is_meta or parameter.ndim != axes:
        raise ValueError(
            f"Module {name!r} must have a {kind} of {axes} axes with 16-, 32- or 64-bit floats in memory, whole or a "
            f"DTensor, not {type(parameter).__name__} of shape {tuple(parameter.shape)}, {parameter.dtype}, on "
            f"{parameter.device}."
        )
    return parameter

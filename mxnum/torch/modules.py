"""Replace the classes of emulated modules, and compute their forward passes.

An emulated module stays the same object, so parameters, hooks, optimizers and `state_dict` are
unaffected. `restore` gives the module its own class back.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mxnum import errors
from mxnum.torch import multihead
from mxnum.torch.attention import COMPILED_TOO, Intercepted, attention_functions
from mxnum.torch.functions import (
    How,
    convolution_how,
    layer_norm_how,
    linear_how,
    norm_how,
    rms_norm_how,
    weights_how,
)
from mxnum.torch.known_code import kind_of_code
from mxnum.torch.operands import AMX, Key, watching
from mxnum.torch.randomness import Steps

Tensor = Any
_numbers = itertools.count(1)


class Site:
    """The settings of an emulated module: name, recipe, seed, and the counter of training steps."""

    def __init__(self, name: str, how: How, seed: int, steps: Steps):
        self.name, self.how, self.seed, self.steps = name, how, seed, steps
        self.number = next(_numbers)

    @property
    def key(self) -> Key:
        """The key that the module passes to its operations, for random bits and for `watching`."""
        return Key(self.seed, 0, self.steps.current, self.number)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the state of a copied `Site`, and give it a new number.

        The new number lets `watch` distinguish the copy from the original.
        """
        self.__dict__.update(state, number=next(_numbers))


class Emulated:
    """Base class that marks an emulated module."""

    #: The module's own class, which `restore` gives back.
    emulates: Any
    _mx: Site

    @property
    def _mx_key(self) -> Key:
        """The key from which the operations of this forward pass draw random bits."""
        site, training = self._mx, self.training  # type: ignore[attr-defined]
        if training and site.how.is_stochastic:
            site.steps.require_counted(site.name)
        return site.key

    def extra_repr(self) -> str:
        """Return the `extra_repr` of the module's own class, followed by the recipe."""
        usual: str = self.emulates.extra_repr(self)
        return ", ".join(part for part in (usual, str(self._mx.how.recipe)) if part)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _made_again, (self.emulates, self._mx_kind), self.__dict__

    _mx_kind: str


def sites_of(modules: Mapping[str, Any]) -> dict[str, Site]:
    """Return the `Site` of each emulated module, by the module's name."""
    return {name: module._mx for name, module in modules.items()}


def kind_of(module: nn.Module) -> str | None:
    """Return the kind of emulation for a module, or None if it cannot be emulated."""
    forward = getattr(type(module), "forward", None)  # a ScriptModule has no forward
    known = [(base, kind) for kind, (base, _) in _KINDS.items() if base is not None]
    for base, kind in [*reversed(_registered.items()), *known]:
        if isinstance(module, base) and forward is base.forward:
            return kind
    return kind_of_code(inspect.unwrap(forward)) if forward is not None else None


def register(cls: Any, kind: str) -> None:
    """Make `emulate` emulate modules of a class, and of subclasses with the same forward pass.

    Parameters
    ----------
    cls
        The class.
    kind
        "linear": the forward pass computes x W^T + `bias`, where `weight` is W and has the shape
        (outputs, inputs). The attribute `bias` may be None or missing. "transposed_linear" is like
        "linear", but the `weight` has the shape (inputs, outputs). "norm": the class's own forward
        pass runs; `weight` is rounded as gamma and `bias` as beta.
    """
    is_module = isinstance(cls, type) and issubclass(cls, nn.Module)
    errors.require_type(is_module, "cls", "a class of modules", cls)
    _registered[cls] = errors.choose("kind", kind, ("linear", "transposed_linear", "norm"))


def why_not(module: Any, kind: str | None, accumulate: str | None) -> str | None:
    """Return why a module with parameters of its own is not emulated, or None if it is emulated."""
    if "forward" in module.__dict__:
        return "has a forward method set on the instance"
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        return "has no parameters before its first call"
    if kind is None:
        return "is of a class that emulate() does not know"
    if kind.startswith("conv") and module.groups != 1:
        return "convolves in groups"
    if kind.startswith("conv") and accumulate not in (None, AMX):
        return "is a convolution, which emulate() supports only with the sums of torch or AMX"
    if kind == "embedding" and module.max_norm is not None:
        return "renormalizes its weights"
    return None


def enter(module: Any, kind: str, site: Site) -> None:
    """Replace the class of a module by the emulated class."""
    module._mx = site
    usual: Any = type(module)
    module.__class__ = emulated_class(usual, kind)


def leave(module: Any) -> None:
    """Restore a module's own class, and stop watching the module."""
    watching.pop(module._mx.number, None)
    module.__class__ = type(module).emulates
    del module._mx


@cache
def emulated_class(cls: Any, kind: str) -> Any:
    """Return a subclass of `cls` whose forward pass is emulated."""
    content = {"forward": _KINDS[kind][1], "emulates": cls, "_mx_kind": kind, "__doc__": cls.__doc__}
    return type(f"Emulated{cls.__name__}", (Emulated, cls), content)


def _made_again(cls: Any, kind: str) -> Any:
    return object.__new__(emulated_class(cls, kind))


# The forward passes.


def _linear(self: Any, input: Tensor) -> Tensor:
    return linear_how(input, self.weight, getattr(self, "bias", None), self._mx.how, self._mx_key)


def _transposed_linear(self: Any, input: Tensor) -> Tensor:
    return linear_how(input, self.weight.T, getattr(self, "bias", None), self._mx.how, self._mx_key)


def _norm(self: Any, input: Tensor) -> Tensor:
    def compute(x: Tensor, gamma: Any, beta: Any) -> Tensor:
        return self.emulates.forward(_Replaced(self, gamma, beta), x)

    parameters = getattr(self, "weight", None), getattr(self, "bias", None)
    return norm_how(compute, input, *parameters, self._mx.how, self._mx_key)


class _Replaced:
    """A view of a module, with another `weight` and another `bias`."""

    def __init__(self, module: Any, weight: Any, bias: Any):
        self.module, self.weight, self.bias = module, weight, bias

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


def _layer_norm(self: Any, input: Tensor) -> Tensor:
    site = self._mx
    return layer_norm_how(input, self.normalized_shape, self.weight, self.bias, self.eps, site.how, self._mx_key)


def _rms_norm(self: Any, x: Tensor) -> Tensor:
    return rms_norm_how(x, self.normalized_shape, self.weight, self.eps, self._mx.how, self._mx_key)


def _embedding(self: Any, input: Tensor) -> Tensor:
    site, of_rows = self._mx, self._mx.how.takes_rows
    weight = self.weight if of_rows else weights_how(self.weight, site.how, self._mx_key)
    options = (self.padding_idx, None, 2.0, self.scale_grad_by_freq, self.sparse)
    found = functional.embedding(input, weight, *options)
    return weights_how(found, site.how, self._mx_key) if of_rows else found


def _convolution(self: Any, input: Tensor) -> Tensor:
    site, padding, count = self._mx, self.padding, len(self.stride)
    is_alone = input.ndim == count + 1
    x = input[None] if is_alone else input
    if self.padding_mode != "zeros" or isinstance(padding, str):
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        x, padding = functional.pad(x, self._reversed_padding_repeated_twice, mode=mode), [0] * count
    geometry = list(self.stride), list(padding), list(self.dilation)
    y = convolution_how(x, self.weight, self.bias, geometry, site.how, self._mx_key)
    return y[0] if is_alone else y


def _attention(self: Any, *arguments: Any, **keywords: Any) -> Any:
    site, mode = self._mx, Intercepted(attention_functions(self._mx.how, self._mx_key))
    with mode:
        y = self.emulates.forward(self, *arguments, **keywords)
    is_known = COMPILED_TOO or not torch.compiler.is_compiling()
    if is_known and not (mode.was_used or any(map(_attends, list(self.modules())[1:]))):
        accepted = (
            "names of modules that call scaled_dot_product_attention (or contain a module that attention= selects)"
        )
        errors.require(False, "attention", accepted, site.name)
    return y


def _attends(module: Any) -> bool:
    return isinstance(module, Emulated) and module._mx_kind == "attention"


#: The kind of each class that was passed to `register`.
_registered: dict[Any, str] = {}
_KINDS: dict[str, tuple[Any, Any]] = {
    "linear": (nn.Linear, _linear),
    "transposed_linear": (None, _transposed_linear),
    "norm": (None, _norm),
    "layer_norm": (nn.LayerNorm, _layer_norm),
    "rms_norm": (nn.RMSNorm, _rms_norm),
    "embedding": (nn.Embedding, _embedding),
    "conv1d": (nn.Conv1d, _convolution),
    "conv2d": (nn.Conv2d, _convolution),
    "multihead_attention": (nn.MultiheadAttention, multihead.forward),
    "attention": (None, _attention),
}

"""Find the products that a model computes, with their FLOPs, and which of them are emulated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from math import prod
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mxnum.output.text_table import text_table
from mxnum.recipe import FLOAT32
from mxnum.torch.operands import product, watching
from mxnum.torch.randomness import Steps

Tensor = Any


class Coverage:
    """The products of one forward pass, by module, with their shares of the FLOPs."""

    def __init__(self, counts: Counter[tuple[str, str, bool]]):
        self._counts = counts

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each product of each module, in the order of the forward pass.

        module
            The name of the innermost module that computes the product; empty for the model itself.
        product
            The name of the operation. It is "matmul" or "convolution" if `mxnum.torch` computes the
            product, otherwise torch's name, such as "addmm" or "scaled_dot_product_attention".
        flops, share
            `flops` counts each multiplication and each addition, in all calls of the module.
            `share` is `flops` divided by the FLOPs of all products. The backward pass has the same
            shares, because each of its two products takes as many FLOPs as the product of the
            forward pass.
        emulated
            True if the product rounds an operand.
        """
        total = sum(self._counts.values())
        return [
            {"module": name, "product": kind, "flops": flops, "share": flops / max(total, 1), "emulated": is_emulated}
            for (name, kind, is_emulated), flops in self._counts.items()
        ]

    @property
    def emulated(self) -> float:
        """The FLOPs of emulated products, divided by the FLOPs of all products."""
        flops = sum(count for (*_, is_emulated), count in self._counts.items() if is_emulated)
        return flops / max(sum(self._counts.values()), 1)

    def __str__(self) -> str:
        """Return the rows as a table.

        Modules whose names differ only in numbers share a line, which shows ``*`` for the numbers.
        """
        if not self._counts:
            return "No product was computed."
        rows, shares = self.rows(), dict[tuple[str, str, str], float]()
        alike: dict[tuple[str, bool], list[str]] = {}
        for row in rows:
            alike.setdefault((row["product"], row["emulated"]), []).append(row["module"])
        pattern_of = {key: patterns(names) for key, names in alike.items()}
        for row in rows:
            pattern = pattern_of[row["product"], row["emulated"]][row["module"]]
            line = pattern, row["product"], "yes" if row["emulated"] else "no"
            shares[line] = shares.get(line, 0.0) + row["share"]
        lines = [(name, kind, f"{share:.2%}", answer) for (name, kind, answer), share in shares.items()]
        names = ["module", "product", "share", "emulated"]
        return f"{text_table(names, lines)}\n\nEmulated: {self.emulated:.2%} of the FLOPs."


def patterns(names: Iterable[str]) -> dict[str, str]:
    """Return, for each module name, the text that a table shows.

    Names that differ only in numbers share one text, in which ``*`` replaces the numbers.
    """
    starred = {name: re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names}
    counts = Counter(starred.values())
    shown = {name: pattern if counts[pattern] > 1 and pattern != "*" else name for name, pattern in starred.items()}
    return {name: pattern or "the model" for name, pattern in shown.items()}


def covered(
    model: nn.Module, sites: dict[str, Any], steps: Steps, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> Coverage:
    """Run the model once and return the products that the model computes."""
    mode = _Products(sites)
    handles = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.jit.ScriptModule):
            handles.append(module.register_forward_pre_hook(partial(mode.enter, name), prepend=True))
            handles.append(module.register_forward_hook(mode.leave, always_call=True))
    try:
        with _unchanged(model, sites, steps), _without_shortcuts(), mode:
            model(*inputs, **keywords)
    finally:
        for handle in handles:
            handle.remove()
    return Coverage(mode.counts)


class _Products(TorchDispatchMode):
    """Counts the FLOPs of products in a context.

    A product belongs to the innermost module that runs it.
    """

    supports_higher_order_operators = True

    def __init__(self, sites: dict[str, Any]):
        super().__init__()
        self.names, self.sites = [""], sites
        self.counts: Counter[tuple[str, str, bool]] = Counter()

    def enter(self, name: str, *_: Any) -> None:
        """Record that the forward pass of a module begins (a hook)."""
        self.names.append(name)

    def leave(self, *_: Any) -> None:
        """Record that the forward pass of a module ends (a hook)."""
        self.names.pop()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation and count its FLOPs if it is a product."""
        made = function(*args, **(kwargs or {}))
        space, _, rest = str(function).partition(".")
        kind = "scaled_dot_product_attention" if "_scaled_dot_product" in rest else rest.partition(".")[0] or space
        flops = _FLOPS.get(kind)
        if flops is not None and "backward" not in rest:
            is_emulated = space == "mxnum" and self._is_rounded(args)
            self.counts[self.names[-1], kind, is_emulated] += flops(made[0] if isinstance(made, tuple) else made, *args)
        return made

    def _is_rounded(self, args: tuple[Any, ...]) -> bool:
        """Return True if a product of `mxnum.torch` rounds an operand.

        A product in an emulated module rounds nothing if `set_recipe` has turned rounding off.
        """
        (text,) = (each for each in args if isinstance(each, str))
        site = self.sites.get(self.names[-1])
        return site is None or site.how.bf16 or any(operand != FLOAT32 for operand in product(text)[:6])


def _by_left(y: Tensor, a: Tensor, *_: Any) -> Any:
    return 2 * y.numel() * a.shape[-1]


def _by_second(y: Tensor, _: Any, a: Tensor, *__: Any) -> Any:
    return 2 * y.numel() * a.shape[-1]


def _convolution(y: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Any:
    is_transposed = len(rest) > 4 and rest[4] is True  # in mxnum's convolution, rest[4] is the seed
    return 2 * (x if is_transposed else y).numel() * prod(weight.shape[1:])


def _attention(_: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: Any) -> Any:
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _recurrent(_: Tensor, x: Tensor, *rest: Any) -> Any:
    # cuDNN's function takes the weights as one list, oneDNN's function as two arguments.
    weights = rest[0] if isinstance(rest[0], list | tuple) else rest[:2]
    return 2 * prod(x.shape[:-1]) * sum(weight.numel() for weight in weights if weight.ndim > 1)


#: Functions that return the FLOPs of an operation, by the name of the operation. Each function is
#: called with the operation's result and arguments.
_FLOPS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "linear", "matmul", "_scaled_mm", "_int_mm"), _by_left),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _by_left),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "_sparse_addmm"), _by_second),
    "addbmm": lambda y, _, a, *__: 2 * y.numel() * a.shape[-1] * a.shape[0],
    "convolution": _convolution,
    **dict.fromkeys(("scaled_dot_product_attention", "flex_attention"), _attention),
    **dict.fromkeys(("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn"), _recurrent),
    "_trilinear": lambda y, x, weight, *_: 2 * x.shape[0] * weight.numel(),
}


@contextmanager
def _without_shortcuts() -> Iterator[None]:
    """Make torch run each module's forward pass, without compiled code or fused encoders."""
    before = torch.backends.mha.get_fastpath_enabled()
    set_stance = getattr(torch.compiler, "set_stance", None)  # torch 2.6
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with nullcontext() if set_stance is None else set_stance("force_eager"):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _unchanged(model: nn.Module, sites: dict[str, Any], steps: Steps) -> Iterator[None]:
    """Restore the model, `steps` and torch's random state when the context ends.

    A forward pass can change attributes, buffers, weights of modules with `max_norm`, random states
    and `steps`.
    """
    modules = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    attributes = [(module, dict(module.__dict__), dict(module._buffers)) for module in modules]
    renormalized = [module.weight for module in modules if getattr(module, "max_norm", None) is not None]
    tensors = [(x, x.detach().clone()) for x in (*model.buffers(), *renormalized)]
    state = dict(steps.__dict__)
    watchers = {site.number: watching.pop(site.number, None) for site in sites.values()}
    try:
        with torch.random.fork_rng():
            yield
    finally:
        with torch.no_grad():
            for x, before in tensors:
                x.copy_(before)
        for module, own, buffers in attributes:
            module.__dict__.clear()
            module.__dict__.update(own)
            module._buffers.clear()
            module._buffers.update(buffers)
        steps.__dict__.update(state)
        watching.update({number: each for number, each in watchers.items() if each is not None})

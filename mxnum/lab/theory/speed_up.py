"""Compute how much faster a training step becomes if linear layers multiply in fewer bits.

A step in bf16 takes the time 1. The share `other` of this time is spent on operations that are not
matrix products (normalization, optimizer, communication). The matrix products (linear layers of the
MLPs and of attention, attention scores, logits) share the remaining time in proportion to their
FLOPs. Each linear layer has three products of equal size: forward, the gradient of the input, the
gradient of the weights. A product in fewer bits takes its time in bf16 divided by its rate.
Quantizing the operands of such a product takes `conversion` times its time in bf16. The times of
operations that stay in bf16 do not change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mxnum import errors

#: The instruction throughput of dense products divided by the throughput in bf16. Most hardware
#: multiplies six-bit operands as fast as eight-bit operands.
RATES = {"bf16": 1.0, "fp8": 2.0, "fp6": 2.0, "fp4": 4.0}
#: Reasonable ranges of the parameters. In practice, products may not reach the rates in `RATES`.
REASONABLE = {
    "fp8": (1.6, 2.0), "fp6": (1.6, 2.0), "fp4": (2.4, 4.0), "other": (0.05, 0.25), "conversion": (0.0, 0.05),
}  # fmt: skip
_LINEAR = ("mlp", "attention")


@dataclass(frozen=True)
class TransformerShape:
    """The dimensions of a decoder on which its FLOPs depend."""

    layers: int
    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    #: True if the MLP has a third matrix, as SwiGLU has.
    gated: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "width", "mlp_width", "heads", "kv_heads", "vocabulary", "context"):
            errors.positive_integer(name, getattr(self, name))
        errors.require(
            self.kv_heads <= self.heads, "kv_heads", f"at most {self.heads}, the number of heads", self.kv_heads
        )

    @property
    def flops(self) -> dict[str, float]:
        """Forward FLOPs per token of MLPs, attention's projections, attention scores and logits."""
        mlp = (3 if self.gated else 2) * self.width * self.mlp_width
        attention = 2 * self.width**2 * (1 + self.kv_heads / self.heads)
        scores = self.context * self.width  # two products, each over half of the context on average
        return {
            "mlp": 2.0 * self.layers * mlp,
            "attention": 2.0 * self.layers * attention,
            "scores": 2.0 * self.layers * scores,
            "logits": 2.0 * self.width * self.vocabulary,
        }

    @property
    def linear_share(self) -> float:
        """The share of the linear layers (without the logits) in the FLOPs of all products."""
        flops = self.flops
        return sum(flops[part] for part in _LINEAR) / sum(flops.values())

    @property
    def mlp_share(self) -> float:
        """The share of the MLPs in the FLOPs of the linear layers."""
        flops = self.flops
        return flops["mlp"] / sum(flops[part] for part in _LINEAR)


SHAPES = {
    "llama-3-8b": TransformerShape(32, 4096, 14336, 32, 8, 128256, 8192),
    "llama-3-70b": TransformerShape(80, 8192, 28672, 64, 8, 128256, 8192),
    "llama-3-405b": TransformerShape(126, 16384, 53248, 128, 8, 128256, 8192),
}


@dataclass(frozen=True)
class Recipe:
    """The precisions (names of `RATES`) of the three products of the linear layers."""

    forward: str
    input_gradient: str
    weight_gradient: str
    #: The precision of all three products of attention's linear layers; None means the same
    #: precisions as in the MLPs.
    attention: str | None = None

    def __post_init__(self) -> None:
        for name in ("forward", "input_gradient", "weight_gradient"):
            errors.choose(name, getattr(self, name), tuple(RATES))
        if self.attention is not None:
            errors.choose("attention", self.attention, tuple(RATES))

    @classmethod
    def of(cls, forward: str, backward: str | None = None, *, attention: str | None = None) -> Recipe:
        """Return a recipe with the given precisions of the forward and of both backward products.

        If the operands of a product differ in precision, name the wider precision, because most
        hardware multiplies at the rate of the wider precision.
        """
        both = forward if backward is None else backward
        return cls(forward, both, both, attention)

    def products(self, part: str) -> tuple[str, ...]:
        """Return the precisions of the three products of a linear layer in "mlp" or "attention"."""
        if part == "attention" and self.attention is not None:
            return (self.attention,) * 3
        return self.forward, self.input_gradient, self.weight_gradient


@dataclass(frozen=True)
class Projection:
    """The speed-up of a step in low precision over a step in bf16."""

    speed_up: float
    #: The time of each part of the step, in the unit of the shares: in bf16, the time of a part is
    #: its share. The entry "conversion" is the time for quantizing operands.
    times: Mapping[str, float] = field(repr=False)


def project(
    shape: TransformerShape | str,
    recipe: Recipe,
    *,
    rates: Mapping[str, float] | None = None,
    other: float = 0.1,
    conversion: float = 0.0,
) -> Projection:
    """Return the speed-up of a training step over bf16; `rates` replaces entries of `RATES`."""
    shape = _shape(shape)
    errors.require(0 <= other < 1, "other", "at least 0 and below 1", other)
    flops = shape.flops
    total = sum(flops.values())
    shares = {part: (1 - other) * value / total for part, value in flops.items()}
    return project_shares(shares | {"other": other}, recipe, rates=rates, conversion=conversion)


def project_shares(
    shares: Mapping[str, float],
    recipe: Recipe,
    *,
    rates: Mapping[str, float] | None = None,
    conversion: float = 0.0,
) -> Projection:
    """Return the speed-up, given the share of each part in the time of a step in bf16.

    In `shares`, "mlp" is the share of the linear layers of the MLPs, and "attention" is the share
    of the linear layers of attention.
    """
    known = dict(RATES)
    for name, rate in (rates or {}).items():
        errors.choose("rates", name, tuple(RATES)[1:])
        errors.require(rate > 0, name, "a positive rate", rate)
        known[name] = rate
    errors.require(0 <= conversion < math.inf, "conversion", "at least 0 and finite", conversion)
    errors.require_type(isinstance(recipe, Recipe), "recipe", "a Recipe", recipe)
    whole = sum(shares.values())
    fits = all(share >= 0 for share in shares.values()) and 0 < whole < math.inf
    errors.require(fits, "shares", "finite shares of at least 0, at least one above 0", dict(shares))
    times, converting = {}, 0.0
    for part, share in shares.items():
        products = recipe.products(part) if part in _LINEAR else ("bf16",)
        each = share / len(products)
        times[part] = sum(each / known[precision] for precision in products)
        converting += conversion * each * sum(precision != "bf16" for precision in products)
    return Projection(whole / (sum(times.values()) + converting), times | {"conversion": converting})


def project_range(
    shape: TransformerShape | str, recipe: Recipe, ranges: Mapping[str, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """Return the least and greatest speed-up over ranges of the parameters.

    The keys of `ranges` are names of rates, "other" and "conversion"; the default is `REASONABLE`.
    The speed-up is monotonic in each parameter, so the function tries only the ends of each range.
    """
    ranges = dict(REASONABLE) | dict(ranges or {})
    for name, (low, high) in ranges.items():
        errors.choose("ranges", name, tuple(REASONABLE))
        errors.require(low <= high, "ranges", "pairs of a lower and an upper end", (low, high))
    found = []
    for corner in itertools.product(*ranges.values()):
        values = dict(zip(ranges, corner, strict=True))
        rest = {name: values.pop(name) for name in ("other", "conversion")}
        found.append(project(shape, recipe, rates=values, **rest).speed_up)
    return min(found), max(found)


def _shape(shape: TransformerShape | str) -> TransformerShape:
    return shape if isinstance(shape, TransformerShape) else SHAPES[errors.choose("shape", shape, tuple(SHAPES))]

"""Make synthetic weights, activations and gradients, and measure their errors.

Claims M2, M3, M5, M6 and M7 use the tensors of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from mxnum.analysis import Statistics, measure, synthetic
from mxnum.memory.dtypes import Array

SEED = 20260101
SHAPE = (512, 1024)
RULES = ("floor", "ceil", "even", "rceil")


@cache
def tensors() -> Mapping[str, Array]:
    """Return synthetic weights and gradients, and activations whose magnitudes vary by token."""
    kinds = (synthetic.weights, synthetic.activations, synthetic.gradients)
    return {kind.__name__: kind(*SHAPE, seed=SEED) for kind in kinds}


@cache
def found(
    tensor: str, fmt: str, rule: str, *, block: tuple[int, int] = (1, 32), offset: str | None = None
) -> Statistics:
    """Return the error statistics of a tensor. A second call returns the cached statistics."""
    return measure(tensors()[tensor], fmt, scale_rule=rule, block_shape=block, offset=offset)


def error(tensor: str, fmt: str, rule: str, **how: Any) -> float:
    """Return the R-MSE relative to the root mean square of the tensor."""
    return float(found(tensor, fmt, rule, **how).normalized_rmse)


def best_rule(tensor: str, fmt: str) -> str:
    """Return the scale rule with the least error; of equal rules, the first in `RULES`."""
    return min(RULES, key=lambda rule: error(tensor, fmt, rule))


def configuration(**more: Any) -> dict[str, Any]:
    """Return the settings that are needed to compute the numbers again."""
    return {"tensors": list(tensors()), "shape": SHAPE, "seed": SEED, "block": 32, "rounding": "rne", **more}

"""Why quantization errs, and by how much: the formula, the number and the picture.

Each public name is loaded from its module when it is first used, so that importing mxnum loads neither sympy nor
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxnum.analysis.piecewise import PiecewiseQuantizer
    from mxnum.analysis.scale_theory import ClampRegion, clamp_region, relative_gaps, scale_threshold
    from mxnum.analysis.statistics import Statistics, measure

#: Public name -> the module of this package it lives in.
_HOMES = {
    "ClampRegion": "scale_theory",
    "PiecewiseQuantizer": "piecewise",
    "Statistics": "statistics",
    "clamp_region": "scale_theory",
    "measure": "statistics",
    "relative_gaps": "scale_theory",
    "scale_threshold": "scale_theory",
}

__all__ = [
    "ClampRegion",
    "PiecewiseQuantizer",
    "Statistics",
    "clamp_region",
    "measure",
    "relative_gaps",
    "scale_threshold",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mxnum.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mxnum.analysis.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

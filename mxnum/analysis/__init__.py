"""Why quantization errs, and by how much: the formula, the number and the picture.

Each public name is loaded from its module when it is first used, so that importing mxnum loads neither sympy nor
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxnum.analysis import synthetic
    from mxnum.analysis.design_space import Candidate, Exploration, explore
    from mxnum.analysis.piecewise import PiecewiseQuantizer
    from mxnum.analysis.scale_theory import ClampRegion, clamp_region, relative_gaps, scale_threshold
    from mxnum.analysis.statistics import Statistics, measure

#: Public name -> the module of this package it lives in.
_HOMES = {
    "Candidate": "design_space",
    "ClampRegion": "scale_theory",
    "Exploration": "design_space",
    "PiecewiseQuantizer": "piecewise",
    "Statistics": "statistics",
    "clamp_region": "scale_theory",
    "explore": "design_space",
    "measure": "statistics",
    "relative_gaps": "scale_theory",
    "scale_threshold": "scale_theory",
}

__all__ = [
    "Candidate",
    "ClampRegion",
    "Exploration",
    "PiecewiseQuantizer",
    "Statistics",
    "clamp_region",
    "explore",
    "measure",
    "relative_gaps",
    "scale_threshold",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name == "synthetic":
        return importlib.import_module("mxnum.analysis.synthetic")
    if name not in _HOMES:
        raise AttributeError(f"module 'mxnum.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mxnum.analysis.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

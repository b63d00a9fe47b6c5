"""Compute the error of quantization as formulas, numbers and plots.

A public name loads its module when the name is first used, so importing mxnum loads neither sympy
nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxnum.analysis import synthetic
    from mxnum.analysis.arithmetics import Enclosure
    from mxnum.analysis.averages import BinadeAverage, Tooth, binade_average, sawtooth
    from mxnum.analysis.design_space import Candidate, Exploration, explore
    from mxnum.analysis.gamma import BlockError, GammaBias, block_error, gamma_bias
    from mxnum.analysis.ladder import ScaleLadder, scale_ladder
    from mxnum.analysis.piecewise import PiecewiseQuantizer
    from mxnum.analysis.product_difference import DifferencePart, ProductDifference, ProductStack, compare_products
    from mxnum.analysis.scale_theory import OverflowRegion, overflow_region, scale_threshold
    from mxnum.analysis.statistics import Statistics, measure

#: The public names of each module of this package.
_NAMES = {
    "arithmetics": ("Enclosure",),
    "averages": ("BinadeAverage", "Tooth", "binade_average", "sawtooth"),
    "design_space": ("Candidate", "Exploration", "explore"),
    "gamma": ("BlockError", "GammaBias", "block_error", "gamma_bias"),
    "ladder": ("ScaleLadder", "scale_ladder"),
    "piecewise": ("PiecewiseQuantizer",),
    "product_difference": ("DifferencePart", "ProductDifference", "ProductStack", "compare_products"),
    "scale_theory": ("OverflowRegion", "overflow_region", "scale_threshold"),
    "statistics": ("Statistics", "measure"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BinadeAverage",
    "BlockError",
    "Candidate",
    "DifferencePart",
    "Enclosure",
    "Exploration",
    "GammaBias",
    "OverflowRegion",
    "PiecewiseQuantizer",
    "ProductDifference",
    "ProductStack",
    "ScaleLadder",
    "Statistics",
    "Tooth",
    "binade_average",
    "block_error",
    "compare_products",
    "explore",
    "gamma_bias",
    "measure",
    "overflow_region",
    "sawtooth",
    "scale_ladder",
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

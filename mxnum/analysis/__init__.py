"""Why quantization errs, and by how much: the formula, the number and the picture.

Each public name is loaded from its module when it is first used, so that importing mxnum loads neither sympy nor
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mxnum import errors

if TYPE_CHECKING:
    from mxnum.analysis import synthetic
    from mxnum.analysis.averages import BinadeAverage, Tooth, binade_average, sawtooth
    from mxnum.analysis.compounding import CompoundedGain, compounded_gain
    from mxnum.analysis.crossing import DeadZone, Jump, LimitCycle, dead_zone, dwell, limit_cycle
    from mxnum.analysis.design_space import Candidate, Exploration, explore
    from mxnum.analysis.gamma import BlockError, GammaBias, block_error, gamma_bias
    from mxnum.analysis.law_comparison import LawComparison, compare_laws
    from mxnum.analysis.logit_equilibrium import Equilibrium, LogitAdvice, logit_advice, logit_rest
    from mxnum.analysis.logit_gradients import Beta, LogitGradientBias, Shrinking, logit_gradient_bias
    from mxnum.analysis.loss_tables import LossTable, loss_table, read_losses
    from mxnum.analysis.machines import Enclosure
    from mxnum.analysis.modes import Arrest, arrest, inverse_participation, mode_limit
    from mxnum.analysis.piecewise import PiecewiseQuantizer
    from mxnum.analysis.sampled_rest import sampled_logit_rest
    from mxnum.analysis.scale_theory import OverflowRegion, overflow_region, relative_gaps, scale_threshold
    from mxnum.analysis.scaling_law import ScalingFit, ScalingLaw, fit_scaling_law
    from mxnum.analysis.speed_up import Projection, Recipe, TransformerShape, project, project_range, project_shares
    from mxnum.analysis.stability import adam_limit, moment_matrix, stability_expression, stability_limit
    from mxnum.analysis.statistics import Statistics, measure

#: Public name -> the module of this package it lives in.
_HOMES = {
    "logit_rest": "logit_equilibrium",
    "logit_advice": "logit_equilibrium",
    "LogitAdvice": "logit_equilibrium",
    "Equilibrium": "logit_equilibrium",
    "logit_gradient_bias": "logit_gradients",
    "Shrinking": "logit_gradients",
    "LogitGradientBias": "logit_gradients",
    "Beta": "logit_gradients",
    "Arrest": "modes",
    "BinadeAverage": "averages",
    "BlockError": "gamma",
    "Candidate": "design_space",
    "OverflowRegion": "scale_theory",
    "CompoundedGain": "compounding",
    "DeadZone": "crossing",
    "Enclosure": "machines",
    "Exploration": "design_space",
    "GammaBias": "gamma",
    "Jump": "crossing",
    "LawComparison": "law_comparison",
    "LimitCycle": "crossing",
    "LossTable": "loss_tables",
    "PiecewiseQuantizer": "piecewise",
    "Projection": "speed_up",
    "Recipe": "speed_up",
    "ScalingFit": "scaling_law",
    "ScalingLaw": "scaling_law",
    "Statistics": "statistics",
    "Tooth": "averages",
    "TransformerShape": "speed_up",
    "adam_limit": "stability",
    "arrest": "modes",
    "binade_average": "averages",
    "block_error": "gamma",
    "overflow_region": "scale_theory",
    "compare_laws": "law_comparison",
    "compounded_gain": "compounding",
    "dead_zone": "crossing",
    "dwell": "crossing",
    "explore": "design_space",
    "fit_scaling_law": "scaling_law",
    "gamma_bias": "gamma",
    "limit_cycle": "crossing",
    "loss_table": "loss_tables",
    "measure": "statistics",
    "inverse_participation": "modes",
    "mode_limit": "modes",
    "moment_matrix": "stability",
    "project": "speed_up",
    "project_range": "speed_up",
    "project_shares": "speed_up",
    "read_losses": "loss_tables",
    "relative_gaps": "scale_theory",
    "sawtooth": "averages",
    "sampled_logit_rest": "sampled_rest",
    "scale_threshold": "scale_theory",
    "stability_expression": "stability",
    "stability_limit": "stability",
}

#: What 0.1 called them.
_OLD_NAMES = {"ClampRegion": "OverflowRegion", "clamp_region": "overflow_region"}

__all__ = [
    "Arrest",
    "Beta",
    "BinadeAverage",
    "BlockError",
    "Candidate",
    "CompoundedGain",
    "DeadZone",
    "Enclosure",
    "Equilibrium",
    "Exploration",
    "GammaBias",
    "Jump",
    "LawComparison",
    "LimitCycle",
    "LogitAdvice",
    "LogitGradientBias",
    "LossTable",
    "OverflowRegion",
    "PiecewiseQuantizer",
    "Projection",
    "Recipe",
    "ScalingFit",
    "ScalingLaw",
    "Shrinking",
    "Statistics",
    "Tooth",
    "TransformerShape",
    "adam_limit",
    "arrest",
    "binade_average",
    "block_error",
    "compare_laws",
    "compounded_gain",
    "dead_zone",
    "dwell",
    "explore",
    "fit_scaling_law",
    "gamma_bias",
    "inverse_participation",
    "limit_cycle",
    "logit_advice",
    "logit_gradient_bias",
    "logit_rest",
    "loss_table",
    "measure",
    "mode_limit",
    "moment_matrix",
    "overflow_region",
    "project",
    "project_range",
    "project_shares",
    "read_losses",
    "relative_gaps",
    "sampled_logit_rest",
    "sawtooth",
    "scale_threshold",
    "stability_expression",
    "stability_limit",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name == "synthetic":
        return importlib.import_module("mxnum.analysis.synthetic")
    if name in _OLD_NAMES:
        errors.warn_of_old_name(f"mxnum.analysis.{name}", _OLD_NAMES[name])
        name = _OLD_NAMES[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'mxnum.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mxnum.analysis.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

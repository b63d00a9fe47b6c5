"""Theory of training in block formats: stability, logit gradients, scaling laws, speed-ups.

- `stability`, `eigenmodes`: the stability of Adam under multiplicative noise in its gradients;
- `crossing`, `compounding`: the dead zone of a clamped block, and errors that compound over layers;
- `logit_gradients`, `logit_equilibrium`, `sampled_rest`: the effect of rounding the gradient of the
  logits;
- `loss_tables`, `scaling_law`, `huber_law`, `law_comparison`: the fit and comparison of scaling
  laws;
- `truncated_sums`: the mean result of a matrix unit that truncates toward zero;
- `speed_up`: the speed-up of a training step by faster products.
"""

from mxnum.lab.theory.compounding import CompoundedGain, compounded_gain
from mxnum.lab.theory.crossing import DeadZone, Jump, LimitCycle, dead_zone, dwell, limit_cycle
from mxnum.lab.theory.eigenmodes import Arrest, arrest, inverse_participation, mode_limit
from mxnum.lab.theory.law_comparison import LawComparison, compare_laws
from mxnum.lab.theory.logit_equilibrium import Equilibrium, LogitAdvice, logit_advice, logit_rest
from mxnum.lab.theory.logit_gradients import Beta, LogitGradientBias, Shrinking, logit_gradient_bias
from mxnum.lab.theory.loss_tables import LossTable, loss_table, read_losses
from mxnum.lab.theory.sampled_rest import sampled_logit_rest
from mxnum.lab.theory.scaling_law import ScalingFit, ScalingLaw, fit_scaling_law
from mxnum.lab.theory.speed_up import Projection, Recipe, TransformerShape, project, project_range, project_shares
from mxnum.lab.theory.stability import adam_limit, moment_matrix, stability_expression, stability_limit
from mxnum.lab.theory.truncated_sums import MeanSum, mean_sum

__all__ = [
    "Arrest",
    "Beta",
    "CompoundedGain",
    "DeadZone",
    "Equilibrium",
    "Jump",
    "LawComparison",
    "LimitCycle",
    "LogitAdvice",
    "LogitGradientBias",
    "LossTable",
    "MeanSum",
    "Projection",
    "Recipe",
    "ScalingFit",
    "ScalingLaw",
    "Shrinking",
    "TransformerShape",
    "adam_limit",
    "arrest",
    "compare_laws",
    "compounded_gain",
    "dead_zone",
    "dwell",
    "fit_scaling_law",
    "inverse_participation",
    "limit_cycle",
    "logit_advice",
    "logit_gradient_bias",
    "logit_rest",
    "loss_table",
    "mean_sum",
    "mode_limit",
    "moment_matrix",
    "project",
    "project_range",
    "project_shares",
    "read_losses",
    "sampled_logit_rest",
    "stability_expression",
    "stability_limit",
]

"""Training a residual MLP in low precision, to see what diverges and why.

    from mxnum.experiments import Experiment, train, uniform_precision
    runs = train(Experiment(precision=uniform_precision("mxfp4_e2m1")), seeds=(1, 2, 3))

``mxnum experiments`` runs whole studies. It needs the extra ``experiments`` (scipy, threadpoolctl).
"""

from mxnum.experiments.config import (
    BFLOAT16,
    BFLOAT16_TRAINING,
    FLOAT32,
    Experiment,
    Injection,
    Operand,
    Precision,
    uniform_precision,
)
from mxnum.experiments.loop import Run, Training, train

__all__ = [
    "BFLOAT16",
    "BFLOAT16_TRAINING",
    "FLOAT32",
    "Experiment",
    "Injection",
    "Operand",
    "Precision",
    "Run",
    "Training",
    "train",
    "uniform_precision",
]

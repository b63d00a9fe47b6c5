"""Train a residual MLP in low precision, to study which runs diverge and why.

    from mxnum.lab.mlp import Experiment, train, uniform_precision
    runs = train(Experiment(precision=uniform_precision("mxfp4_e2m1")), seeds=(1, 2, 3))

To run a whole study, use the command ``mxnum lab``. This package needs the extra ``experiments``
(scipy, threadpoolctl).
"""

from mxnum.lab.mlp.config import BFLOAT16_TRAINING, Experiment, Injection, uniform_precision
from mxnum.lab.mlp.loop import Run, Training, train

__all__ = [
    "BFLOAT16_TRAINING",
    "Experiment",
    "Injection",
    "Run",
    "Training",
    "train",
    "uniform_precision",
]

"""Draw the figures of the README: docs/figure.svg and docs/runaway.svg.

Run the script as ``python docs/figure.py``. The script needs the extras ``plots`` and
``experiments``. It computes the data of the first figure; the second figure shows stored runs.
"""

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

from mxnum import plots
from mxnum.lab.studies import report
from mxnum.output.palette import colour

HERE = Path(__file__).parent
matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "mxnum"  # a random salt would change the file in each run


def sawtooth() -> plt.Figure:
    """Draw the error of blocks of equal numbers in two formats."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for ax, fmt in zip(axes, ("mxfp8_e4m3", "mxfp4_e2m1"), strict=True):
        plots.sawtooth(fmt, ax=ax)
    axes[1].set_ylabel("")
    axes[1].get_legend().remove()
    return figure


def runaway() -> plt.Figure:
    """Draw the losses of the quick study: on the left in FP32, on the right with all in E2M1."""
    table = report.stored(HERE / "lab" / "results", "quick")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
    for ax, arm, title in zip(axes, ("FP32", "E2M1"), ("FP32", "everything in 4 bits (E2M1)"), strict=True):
        report.loss_figure(table, [arm], ax, colour, medians=True)
        ax.get_legend().remove()
        ax.set_title(title)
    axes[1].set_ylabel("")
    return figure


target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
for name, draw in (("figure", sawtooth), ("runaway", runaway)):
    draw().savefig(target / f"{name}.svg", metadata={"Date": None})

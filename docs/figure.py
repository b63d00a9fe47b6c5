"""Draws the figure of the README: ``python docs/figure.py`` writes docs/figure.svg (needs the extra ``plots``)."""

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

from mxnum import plots

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "mxnum"  # the same file from the same numbers
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, fmt in zip(axes, ("mxfp8_e4m3", "mxfp4_e2m1"), strict=True):
    plots.sawtooth(fmt, ax=ax)
axes[1].set_ylabel("")
axes[1].get_legend().remove()
target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "figure.svg")
figure.savefig(target, metadata={"Date": None})

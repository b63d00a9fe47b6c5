"""I3: the relative gaps between neighbouring values of E4M3."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum import Rounding, formats
from mxnum.analysis import PiecewiseQuantizer
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, answered

CLAIM = Claim(
    "I3",
    "The gaps of E4M3",
    "E4M3 has 126 positive codes. The relative gap between neighbouring values falls from 12.5 % to 6.7 % within a "
    "binade. The gaps from the seven subnormal values to the next values are 100, 50, 33.3, 25, 20, 16.7 and 14.3 %.",
    "The check decodes all codes.",
)


def derived() -> list[float]:
    """Return the gap above each positive E4M3 value except the largest, in percent."""
    levels = [v for v in PiecewiseQuantizer.of("e4m3", Rounding.SR).breakpoints if v > 0]
    return [100 * float(above / here - 1) for here, above in pairwise(levels)]


@CLAIM.check
def _check(context: Context) -> Evidence:
    values = sorted(v for v in formats.ELEMENTS["e4m3"].values() if v > 0 and math.isfinite(v))
    gaps = [100 * (b - a) / a for a, b in pairwise(values)]
    binade = [gap for value, gap in zip(values, gaps, strict=False) if 1 <= value < 2]
    claimed = (100, 50, 33.3, 25, 20, 16.7, 14.3)
    comparisons = [
        Comparison("positive codes", 126, len(values), 0),
        *(Comparison(f"gap above subnormal {i + 1}, %", claimed[i], gaps[i], 0.05) for i in range(len(claimed))),
        Comparison("first gap of a binade, %", 12.5, binade[0], 0.05),
        Comparison("last gap of a binade, %", 6.7, binade[-1], 0.05),
    ]
    statements = [
        Statement("the gap falls within a binade", all(a > b for a, b in pairwise(binade))),
        Statement("`mxnum.analysis` gives the same gaps", np.allclose(gaps, derived(), rtol=1e-12, atol=0)),
    ]
    answer = (
        f"E4M3 has {len(values)} positive codes, and within a binade the relative gap falls from {binade[0]:.1f} to "
        f"{binade[-1]:.1f} %."
    )
    return answered(Evidence(comparisons, statements), answer)


@CLAIM.figure(2.4)
def _draw(ax: Any, context: Context) -> str:
    found = derived()
    ax.step(np.arange(1, len(found) + 1), found, where="mid", lw=1)
    ax.set(xlabel="code", ylabel="relative gap to the next value, %", yscale="log")
    ax.yaxis.set_major_formatter("{x:g}")
    return (
        "The relative gap above each positive code of E4M3. The gap falls over the seven subnormals, and then within "
        "each binade."
    )

"""I2: how many blocks overflow, and how badly."""

from __future__ import annotations

from mxnum.analysis import measure, overflow_region
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, answered
from mxnum.lab.claims.samples import PARTS, log_measure, mantissas

CLAIM = Claim(
    "I2",
    "How many blocks overflow, and how badly",
    "If the mantissa of a block's largest value is uniform (in brackets: log-uniform), the share of blocks that "
    "overflow is 25 % (19.26 %) in E4M3, E5M2 and E3M2, 12.5 % (9.31 %) in E2M3, 50 % (41.50 %) in E2M1 and 1.56 % "
    "(1.13 %) in INT8. The largest relative error of clamping is 12.5 % in E4M3, E5M2 and E3M2, 6.25 % in E2M3, "
    "25 % in E2M1 and 0.78 % in INT8.",
    "The kernels quantize the midpoints of 65,536 equal parts of [1, 2). For the uniform distribution, all midpoints "
    "have the same weight. For the log-uniform distribution, the weight of a midpoint is the log2 width of its part.",
)
#: Three percentages for each format: the share of blocks that overflow with uniform mantissas, this
#: share with log-uniform mantissas, and the largest relative error of clamping. Each number is
#: followed by its tolerance, half a unit of its last digit.
FIGURES = {
    **dict.fromkeys(("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2"), ((25, 0.5), (19.26, 0.005), (12.5, 0.05))),
    "mxfp6_e2m3": ((12.5, 0.05), (9.31, 0.005), (6.25, 0.005)),
    "mxfp4_e2m1": ((50, 0.5), (41.50, 0.005), (25, 0.5)),
    "mxint8": ((1.56, 0.005), (1.13, 0.005), (0.78, 0.005)),
}


@CLAIM.check
def _check(context: Context) -> Evidence:
    f, comparisons, as_derived = mantissas(), [], []
    for name, claimed in FIGURES.items():
        got = measure(f, name, block_size=1, per="block")
        beyond = got.beyond_max > 0
        error = float((got.max_error / f)[beyond].max())
        found = (float(beyond.mean()), float(log_measure()[beyond].sum()), error)
        titles = "overflow %, uniform", "overflow %, log-uniform", "largest relative clamp error %"
        for title, (want, tolerance), value in zip(titles, claimed, found, strict=True):
            comparisons.append(Comparison(f"{name}: {title}", want, 100 * value, tolerance))
        region = overflow_region(name)
        share = float(region.upper - region.lower)
        as_derived.append(found[0] == share and 0 <= float(region.worst_error) - error < 1 / PARTS)
    derived = Statement(
        "with uniform mantissas, the share of blocks that overflow equals the derived share, and the derived bound "
        f"exceeds the largest error by less than 1/{PARTS}",
        all(as_derived),
        f"{sum(as_derived)} of {len(as_derived)} formats",
    )
    shares = {c.what: c.found for c in comparisons}
    answer = (
        f"All numbers agree: if mantissas are uniform, {shares['mxfp8_e4m3: overflow %, uniform']:.0f} % of blocks "
        f"overflow "
        f"in E4M3 and {shares['mxfp4_e2m1: overflow %, uniform']:.0f} % in E2M1."
    )
    configuration = {"mantissas": PARTS, "scale rule": "floor"}
    return answered(Evidence(comparisons, [derived], configuration=configuration), answer)

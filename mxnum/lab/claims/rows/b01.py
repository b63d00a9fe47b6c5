"""B1: closed forms for the bias and variance of blocks of clustered numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum import fake_quantize, formats
from mxnum.analysis import binade_average, gamma_bias
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Whose, answered
from mxnum.lab.claims.samples import SEED, SIGMA, kernels_agree, log_measure, mantissas
from mxnum.memory.dtypes import Array
from mxnum.output import palette

CLAIM = Claim(
    "B1",
    "Bias and variance of clustered blocks in closed form",
    "Closed forms give the bias and variance of the quantized values Q of a block of k clustered values x, for "
    "every format, scale rule and block size. Averaged log-uniformly over a binade, E[Q/x]-1 and E[Q]/E[x]-1 in "
    "percent are: -1.294 and -1.660 in E4M3 under floor, -0.712 and -0.866 under even, -0.070 and -0.033 under "
    "ceil and rceil; -6.225 and -7.185 in E2M1 under floor, -1.072 and -0.509 under the other rules. In E4M3 "
    "under floor, clamping causes -1.231 of the -1.294 percent of E[Q/x]-1.",
    "`mxnum.analysis` gives closed forms and expectations over clusters; the kernels must match both.",
    whose=Whose.OURS,
)
#: E[Q/x]-1 and E[Q]/E[x]-1 in percent, averaged log-uniformly over a binade, by format and scale
#: rule.
AVERAGES = {
    "mxfp8_e4m3": {
        "floor": (-1.294, -1.660), "even": (-0.712, -0.866), "ceil": (-0.070, -0.033), "rceil": (-0.070, -0.033),
    },
    "mxfp4_e2m1": {
        "floor": (-6.225, -7.185), "even": (-1.072, -0.509), "ceil": (-1.072, -0.509), "rceil": (-1.072, -0.509),
    },
}  # fmt: skip
#: The mean and standard deviation of each sampled cluster: a clamped cluster, a cluster on both
#: sides of a power of two, and an ordinary one.
CLUSTERS = ((0.93, 0.01), (0.99, 0.02), (0.6, 0.05))
BLOCKS = 1 << 13


@CLAIM.check
def _check(context: Context) -> Evidence:
    comparisons, distances = [], []
    for fmt, rules in AVERAGES.items():
        for rule, claimed in rules.items():
            context.tell(f"{fmt}, {rule}")
            average = binade_average(fmt, scale_rule=rule)
            exact = float(average.bias), float(average.ratio_of_means)
            for name, want, value in zip(("E[Q/x]-1", "E[Q]/E[x]-1"), claimed, exact, strict=True):
                comparisons.append(Comparison(f"{fmt} {rule}: {name}, %", want, 100 * value, 5e-4))
            distances += [abs(a - b) for a, b in zip(exact, _by_kernels(fmt, rule), strict=True)]
    clamp = float(binade_average("mxfp8_e4m3").overflow_bias)
    comparisons.append(
        Comparison("mxfp8_e4m3 floor: the part of E[Q/x]-1 that clamping causes, %", -1.231, 100 * clamp, 5e-4)
    )
    grid = Statement(
        "the kernels agree with the closed forms over 65536 mantissas within 1e-6",
        max(distances) < 1e-6,
        f"the largest difference is {max(distances):.1e}",
    )
    samples = []
    for i, (mu, sigma) in enumerate(CLUSTERS):
        x = sample(mu, sigma, i)
        for fmt in formats.names("e8m0"):
            context.tell(f"{fmt}, clusters around {mu}")
            for rule in AVERAGES["mxfp8_e4m3"]:
                zeta = quantized(x, fmt, rule) / x - 1
                expected = gamma_bias(fmt, mu, sigma, scale_rule=rule)
                samples.append((float(expected.bias), zeta.mean(axis=1)))
                samples.append((float(expected.variance), ((zeta - expected.bias) ** 2).mean(axis=1)))
    note = (
        "Each block has 32 numbers from the normal distribution of its cluster. Different blocks are independent. The "
        "quantized numbers of one block are not independent, because they share a scale."
    )
    clusters = {"clusters": [list(c) for c in CLUSTERS], "blocks": BLOCKS, "seed": SEED, "error bar": f"{SIGMA} sigma"}
    answer = (
        f"The closed forms give all claimed numbers, and the kernels agree. Averaged over a binade, the bias of E4M3 "
        f"under floor is {comparisons[0].found:.2f} %, of which clamping causes {100 * clamp:.2f} %."
    )
    return answered(Evidence(comparisons, [grid, kernels_agree(samples)], note, clusters), answer)


def _by_kernels(fmt: str, rule: str) -> tuple[float, float]:
    """Return E[Q/x]-1 and E[Q]/E[x]-1 for the kernels' Q, averaged over the grid of mantissas."""
    f, measure = mantissas().astype(np.float64), log_measure()
    q = quantized(mantissas(), fmt, rule, block_size=1)
    return float((measure * (q / f - 1)).sum()), float((measure * q).sum() / (measure * f).sum() - 1)


def sample(mu: float, sigma: float, key: int) -> Array:
    """Return blocks of 32 Gaussian numbers with mean `mu` and standard deviation `sigma`."""
    rng = np.random.default_rng([SEED, key])
    return (mu + sigma * rng.standard_normal((BLOCKS, 32))).astype(np.float32)


def quantized(x: Array, fmt: str, rule: str, **layout: Any) -> Array:
    """Return x quantized and dequantized, in float64."""
    return fake_quantize(x, fmt, scale_rule=rule, **layout).astype(np.float64)


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str:
    means = np.linspace(1, 2, 161)
    for deviation, line in ((0.005, "-"), (0.03, "--")):
        for rule in ("floor", "rceil"):
            biases = [100 * float(gamma_bias("mxfp8_e4m3", m, deviation, scale_rule=rule).bias) for m in means]
            ax.plot(means, biases, line, color=palette.colour(rule), lw=1.2, label=f"{rule}, deviation {deviation:g}")
    ax.set(xlabel="mean of the cluster", ylabel="bias, %")
    ax.legend(fontsize=8)
    return "The expected relative error of E4M3 blocks of 32 numbers that cluster around a mean, in closed form."

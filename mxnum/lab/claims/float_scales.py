"""Checks of what E4M3 scales do to blocks of 16, by formula and through the real kernels: B7, B8, B9, B10."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mxnum import hadamard, quantize, shared_scale
from mxnum.analysis import block_error
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement
from mxnum.lab.claims.judged import answered, unanimous
from mxnum.lab.claims.normal import SEED, SIGMA, kernels_agree, mean
from mxnum.lab.claims.registry import Context, check
from mxnum.memory.dtypes import Array

BLOCKS = 1 << 17
#: The largest magnitude of the tensors of normal numbers: what 2**20 of them usually reach, in standard deviations.
LARGEST = 5
#: A / (largest element * largest scale), a float32 number as the format has it.
_TENSOR_SCALE = float(np.float32(LARGEST / 2688))
_CONFIGURATION = {"seed": SEED, "blocks": BLOCKS, "block": 16, "tensor scale": _TENSOR_SCALE, "error bar": "5 sigma"}


@cache
def normal_blocks() -> Array:
    """One block of N(0, 1) a row, in float32."""
    return np.random.default_rng(SEED).standard_normal((BLOCKS, 16)).astype(np.float32)


def values(x: Array, fmt: str = "nvfp4", **options: Any) -> Array:
    """What x reads after quantization, in float64."""
    return quantize(x, fmt, **options).dequantize("float64")


@check("B7")
def biased_stochastic_rounding(context: Context) -> Evidence:
    """Gain and mean squared error of NVFP4 with stochastic rounding, plain and with head-room for the scale."""
    x = normal_blocks()
    wide = x.astype(np.float64)
    t: dict[str, Any] = {"tensor_scale": _TENSOR_SCALE}
    variants: tuple[tuple[str, dict[str, Any], float, float], ...] = (
        ("plain", {}, 0.99657, 0.0188),
        ("head-room 17/16", {"headroom": "17/16"}, 1.00003, 0.0236),
    )
    comparisons, samples = [], []
    for i, (name, arguments, gain, mse) in enumerate(variants):
        context.tell(name)
        exact = block_error("nvfp4", rounding="sr", **t, **arguments)
        larger = x * np.float32(17 / 16) if arguments else x
        scales = shared_scale(larger, "nvfp4", **t)
        error = values(x, rounding="sr", seed=SEED, stream=i, scales=scales, **t) - wide
        comparisons += [
            Comparison(f"{name}: gain", gain, float(exact.gain), 5e-6),
            Comparison(f"{name}: mean squared error", mse, float(exact.mse), 5e-5),
        ]
        samples += [(float(exact.gain), 1 + (error * wide).mean(axis=1)), (float(exact.mse), (error**2).mean(axis=1))]
    plain, ample = (block_error("nvfp4", rounding="sr", **t, **arguments) for _, arguments, *_ in variants)
    up = block_error("nvfp4", rounding="sr", scale_rule="rceil", **t)
    gains = [float(block_error("nvfp4", rounding="sr", tensor_scale=a / 2688).gain) for a in np.linspace(3.5, 6, 26)]
    statements = (
        kernels_agree(samples),
        Statement(
            "it is biased by numbers that are clamped; with head-room only those beyond the tensor scale are",
            plain.gain < 0.999 and 1 - ample.gain < 1e-5,
            f"{100 * plain.overflow:.2f}% beyond the largest element, {100 * ample.overflow:.1g}% with head-room; gain "
            f"{plain.gain:.6f} and {ample.gain:.7f}",
        ),
        Statement(
            "rounding the scale up (rceil) does the same, and costs less than head-room",
            1 - up.gain < 1e-5 and up.mse < ample.mse,
            f"gain {up.gain:.7f}, mean squared error {up.mse:.5f}",
        ),
        Statement(
            "some tensor of normal numbers has the gain claimed",
            min(gains) <= 0.99657 <= max(gains),
            f"{min(gains):.5f} to {max(gains):.5f} for a largest magnitude of 3.5 to 6",
        ),
    )
    note = (
        f"The figures claimed are a sample's, made for this ledger; ours are exact for a tensor whose largest "
        f"magnitude is {LARGEST}. A gain above 1 cannot be: stochastic rounding is unbiased where it does not clamp."
    )
    off = max(abs(c.found - c.claimed) for c in comparisons)
    answer = (
        "NVFP4 with stochastic rounding is biased by clamping, and head-room or rceil removes the bias. The claimed "
        f"figures were a sample's, and are up to {off:.5f} off."
    )
    return Evidence(
        tuple(comparisons), statements, note, _CONFIGURATION | {"rounding": "sr"},
        answer if unanimous(statements) else "", f"gain {float(plain.gain):.5f}",
    )  # fmt: skip


#: Block sizes of `block_sizes`, and binary logarithms of the standard deviations.
SIZES, WIDTHS = (8, 16, 32, 64, 128), tuple(range(-16, 1))


def relative_errors(fmt: str, sigma: float) -> list[float]:
    """The mean squared error over sigma**2 for each block size, by formula."""
    t: dict[str, Any] = {"tensor_scale": float(np.float32(LARGEST * sigma / 2688))} if fmt == "nvfp4" else {}
    return [float(block_error(fmt, sigma=sigma, block_size=k, **t).mse) / sigma**2 for k in SIZES]


def _rising(errors: list[float]) -> bool:
    """Whether some smaller block has the larger error."""
    return any(a > b for a, b in pairwise(errors))


@check("B8")
def block_sizes(context: Context) -> Evidence:
    """The error of N(0, sigma**2) by block size and sigma: E4M3 scales, with a tensor scale, and UE5M3 scales."""
    formats = {"E4M3": "e2m1:scale=e4m3", "UE5M3": "e2m1:scale=ue5m3", "E4M3 and a tensor scale": "nvfp4"}
    found: dict[str, dict[int, list[float]]] = {}
    for name, fmt in formats.items():
        context.tell(name)
        found[name] = {e: relative_errors(fmt, 2.0**e) for e in WIDTHS}
    rising = {name: [e for e in WIDTHS if _rising(errors[e])] for name, errors in found.items()}
    # A scale is subnormal if the largest number is below 6 * 2**-6; of 8 numbers that is likeliest.
    usual = [e for e in WIDTHS if math.erf(6 * 2.0**-6 / 2.0**e / math.sqrt(2)) ** 8 < 1e-3]
    small = 2.0**-8
    x = (normal_blocks()[: BLOCKS // 4].astype(np.float64) * small).astype(np.float32).reshape(-1, 128)
    samples = []
    for k in (8, 128):
        q = values(x, f"e2m1:block={k},scale=e4m3")
        exact = relative_errors("e2m1:scale=e4m3", small)[SIZES.index(k)]
        samples.append((exact, ((q - x) ** 2).mean(axis=1) / small**2))
    worst, least = found["E4M3"][-8][0], found["E4M3"][-8][-1]
    statements = (
        kernels_agree(samples),
        Statement(
            "with E4M3 scales alone, smaller blocks have larger errors on some narrow tensors",
            bool(rising["E4M3"]),
            f"sigma = 2^{max(rising['E4M3'])} and below; at 2^-8 {worst:.3f} sigma^2 for 8, {least:.4f} for 128",
        ),
        Statement(
            "never where fewer than one block in 1000 has a subnormal scale: underflow is the cause",
            not set(rising["E4M3"]) & set(usual),
            f"sigma = 2^{min(usual)} and above",
        ),
        Statement(
            "with a tensor scale they never have",
            not rising["E4M3 and a tensor scale"],
            "{:.5f} sigma^2 for 8, {:.5f} for 16, {:.5f} for 128, whatever sigma is".format(
                *(found["E4M3 and a tensor scale"][-8][i] for i in (0, 1, 4))
            ),
        ),
        Statement(
            "with UE5M3 scales they have 8 binades lower, where tensors are seldom found",
            bool(rising["UE5M3"]) and max(rising["UE5M3"]) == max(rising["E4M3"]) - 8,
            f"sigma = 2^{max(rising['UE5M3'])} and below",
        ),
    )
    note = (
        "So both are right: the effect exists, its cause is underflow, and a tensor scale ends it. UE5M3 moves it to "
        "where it does not matter."
    )
    evidence = Evidence((), statements, note, _CONFIGURATION | {"sizes": list(SIZES), "rounding": "rne"})
    answer = (
        f"With E4M3 scales alone smaller blocks have larger errors at sigma 2^{max(rising['E4M3'], default=0)} and "
        "below, by underflow of the scale; a tensor scale ends it, and UE5M3 moves it 8 binades down."
    )
    return answered(evidence, answer, f"{worst:.3f} against {least:.3f} sigma^2")


@check("B9")
def four_over_six(context: Context) -> Evidence:
    """The error of N(0, 1) when each block takes the better one of two scales, and how many take the larger."""
    x = normal_blocks()
    wide = x.astype(np.float64)
    t: dict[str, Any] = {"tensor_scale": _TENSOR_SCALE}
    exact = float(block_error("nvfp4", **t).mse)
    plain = ((values(x, **t) - wide) ** 2).mean(axis=1)
    chosen = {}
    for name in ("squared", "absolute"):
        context.tell(name)
        q = quantize(x, "nvfp4", scale_rule=f"four_over_six_{name}", **t)
        gained = ((q.dequantize("float64") - wide) ** 2).mean(axis=1) - plain
        takes_four = (np.asarray(q.scales) != shared_scale(x, "nvfp4", **t)).ravel().astype(float)
        chosen[name] = mean(gained), mean(takes_four)
    (gained, bar), (share, share_bar) = chosen["squared"]
    (absolute, _), (absolute_share, _) = chosen["absolute"]
    comparisons = (
        Comparison("mean squared error, one scale", 0.00904, exact, 5e-6),
        Comparison("mean squared error, four over six by squared error", 0.00756, exact + gained, 5e-6 + bar),
        Comparison("% of blocks that take 4", 45, 100 * share, 0.5 + 100 * share_bar),
    )
    statements = (
        kernels_agree([(exact, plain)]),
        Statement(
            "the squared error chooses better than the absolute one",
            gained < absolute,
            f"{exact + absolute:.5f} by absolute error, {100 * absolute_share:.1f}% of blocks take 4",
        ),
    )
    note = (
        f"What is gained over one scale is a sample's, the same under both rules; its bar are {SIGMA} standard errors."
    )
    evidence = Evidence(comparisons, statements, note, _CONFIGURATION | {"rounding": "rne"})
    answer = (
        f"Taking the better of two scales lowers the mean squared error of NVFP4 from {exact:.5f} to "
        f"{exact + gained:.5f}; {100 * share:.0f} % of blocks take 4."
    )
    return answered(evidence, answer, f"{exact + gained:.5f}")


#: Numbers of the crest factor, largest magnitude over root mean square, that part the blocks of 16.
CRESTS = (1.0, 1.75, 2.0, 2.2, 2.4, 2.6, 3.0, 4.0)
_NVFP4, _NVINT4 = "nvfp4", "int4:block=16,scale=e4m3,tensor_scale=float32"


def tensors(blocks: int = BLOCKS // 4) -> dict[str, Array]:
    """Blocks of 16 with ever heavier tails, in float32."""
    rng, shape = np.random.default_rng(SEED), (blocks, 16)
    made = {
        "normal": rng.standard_normal(shape),
        "Laplace": rng.laplace(size=shape),
        "Student, 3": rng.standard_t(3, shape),
        "lognormal, 2": rng.lognormal(0, 2, shape) * rng.choice([-1.0, 1.0], shape),
    }
    return {name: x.astype(np.float32) for name, x in made.items()}


def by_block(x: Array, fmt: str, transform: bool) -> Array:
    """The squared error of each block over its sum of squares, perhaps with the transform of 16 before quantization."""
    wide = x.astype(np.float64)
    error = values(hadamard(x, signs="transformer_engine") if transform else x, fmt)
    back = hadamard(error, signs="transformer_engine", inverse=True) if transform else error
    relative: Array = ((back - wide) ** 2).sum(axis=1) / (wide**2).sum(axis=1)
    return relative


@check("B10")
def crest_factors(context: Context) -> Evidence:
    """The relative error of blocks by crest factor, E2M1 and integers, with and without a Hadamard transform."""
    found, crest = {}, {}
    for name, x in tensors().items():
        context.tell(name)
        crest[name] = abs(x).max(axis=1) / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1))
        found[name] = {(f, h): by_block(x, f, h) for f in (_NVFP4, _NVINT4) for h in (False, True)}
    all_crests = np.concatenate([*crest.values()])
    every = {key: np.concatenate([of[key] for of in found.values()]) for key in found["normal"]}

    def means(low: float, high: float) -> str:
        inside = (all_crests >= low) & (all_crests < high)
        parts = [
            f"{every[f, False][inside].mean():.4f} to {every[f, True][inside].mean():.4f}" for f in (_NVFP4, _NVINT4)
        ]
        return f"crest {low:g} to {high:g}: NVFP4 {parts[0]}, NVINT4 {parts[1]}"

    def lowers(fmt: str, low: float, high: float) -> bool | None:
        inside = (all_crests >= low) & (all_crests < high)
        gained, bar = mean((every[fmt, True] - every[fmt, False])[inside])
        return None if abs(gained) < bar else gained < 0

    beats = []
    for name, of in found.items():
        best = min((of[_NVFP4, False], of[_NVFP4, True]), key=lambda v: float(v.mean()))
        gained, bar = mean(of[_NVINT4, True] - best)
        numbers = f"{name} {of[_NVINT4, True].mean():.5f} against {best.mean():.5f}"
        beats.append((numbers, None if abs(gained) < bar else gained < 0))
    decided = [holds for _, holds in beats]
    statements = (
        Statement(
            "NVINT4 with the transform beats NVFP4 with it and without it, on every tensor",
            None if None in decided and False not in decided else all(bool(holds) for holds in decided),
            "; ".join(numbers for numbers, _ in beats),
        ),
        Statement(
            "the transform lowers the error of integers where the crest factor is above 2.4",
            lowers(_NVINT4, 2.4, 4.01), means(2.4, 4.01),
        ),
        Statement(
            "and raises it where it is below 2", _opposite(lowers(_NVINT4, 1.0, 2.0)), means(1.0, 2.0),
        ),
        Statement(
            "the other way round for E2M1: it lowers the error below 2", lowers(_NVFP4, 1.0, 2.0),
            "blocks without outliers use the coarse end of E2M1, which the transform leaves",
        ),
        Statement(
            "and raises it above 2.4", _opposite(lowers(_NVFP4, 2.4, 4.01)),
            "; ".join(means(low, high) for low, high in pairwise(CRESTS)),
        ),
    )  # fmt: skip
    note = "Relative errors of single blocks of 16, to nearest even; the tensor scale is that of each tensor."
    evidence = Evidence((), statements, note, {"seed": SEED, "blocks": BLOCKS // 4, "error bar": f"{SIGMA} sigma"})
    answer = (
        f"With the transform NVINT4 beats NVFP4 on all {len(found)} tensors: it lowers the error of integers above the "
        "crest factor 2.4 and raises it below 2, and the other way round for E2M1."
    )
    return answered(evidence, answer, beats[0][0])


def _opposite(holds: bool | None) -> bool | None:
    return None if holds is None else not holds

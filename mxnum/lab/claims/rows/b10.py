"""B10: how the effect of a Hadamard transform depends on the crest factor of the block."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mxnum import hadamard
from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, answered
from mxnum.lab.claims.samples import BLOCKS_OF_16, SEED, SIGMA, mean, values
from mxnum.memory.dtypes import Array

CLAIM = Claim(
    "B10",
    "The Hadamard transform by crest factor",
    "After a Hadamard transform of size 16, NVINT4 (4-bit integers with NVFP4's scales) has a smaller error than NVFP4 "
    "(arXiv 2510.25602). Whether the transform lowers the relative error depends on the crest factor of the block.",
    "mxnum quantizes four random tensors, whose distributions have increasingly heavy tails.",
)
#: The blocks are grouped by crest factor (largest magnitude divided by root mean square). These
#: numbers are the bounds of the groups.
CRESTS = (1.0, 1.75, 2.0, 2.2, 2.4, 2.6, 3.0, 4.0)
NVFP4, NVINT4 = FORMATS = "nvfp4", "int4:block=16,scale=e4m3,tensor_scale=float32"
BLOCKS = BLOCKS_OF_16 // 4


def tensors(blocks: int = BLOCKS) -> dict[str, Array]:
    """Return blocks of 16 numbers from four distributions with increasingly heavy tails."""
    rng, shape = np.random.default_rng(SEED), (blocks, 16)
    made = {
        "normal": rng.standard_normal(shape),
        "Laplace": rng.laplace(size=shape),
        "Student, 3": rng.standard_t(3, shape),
        "lognormal, 2": rng.lognormal(0, 2, shape) * rng.choice([-1.0, 1.0], shape),
    }
    return {name: x.astype(np.float32) for name, x in made.items()}


def by_block(x: Array, fmt: str, transform: bool) -> Array:
    """Return the squared error of each block, divided by the block's sum of squares."""
    wide = x.astype(np.float64)
    error = values(hadamard(x, signs="transformer_engine") if transform else x, fmt)
    back = hadamard(error, signs="transformer_engine", inverse=True) if transform else error
    relative: Array = ((back - wide) ** 2).sum(axis=1) / (wide**2).sum(axis=1)
    return relative


def _is_less(difference: Array) -> bool | None:
    gained, bar = mean(difference)
    return None if abs(gained) < bar else gained < 0


NOTE = (
    "An error is the squared error of a block of 16, divided by the block's sum of squares. Numbers are rounded to "
    "nearest even, and each tensor has its own tensor scale."
)


@CLAIM.check
def _check(context: Context) -> Evidence:
    found, crests = {}, []
    for name, x in tensors().items():
        context.tell(name)
        crests.append(abs(x).max(axis=1) / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1)))
        found[name] = {(f, h): by_block(x, f, h) for f in FORMATS for h in (False, True)}
    crest = np.concatenate(crests)
    every = {key: np.concatenate([of[key] for of in found.values()]) for key in found["normal"]}

    def means(low: float, high: float) -> str:
        inside = (crest >= low) & (crest < high)
        parts = [f"from {every[f, False][inside].mean():.4f} to {every[f, True][inside].mean():.4f}" for f in FORMATS]
        return f"crest factor {low:g} to {high:g}: the error of NVFP4 changes {parts[0]}, and that of NVINT4 {parts[1]}"

    def lowers(fmt: str, low: float, high: float) -> bool | None:
        return _is_less((every[fmt, True] - every[fmt, False])[(crest >= low) & (crest < high)])

    def raises(fmt: str, low: float, high: float) -> bool | None:
        less = lowers(fmt, low, high)
        return None if less is None else not less

    beats = {}
    for name, of in found.items():
        best = min((of[NVFP4, False], of[NVFP4, True]), key=lambda v: float(v.mean()))
        numbers = f"{name} {of[NVINT4, True].mean():.5f} against {best.mean():.5f}"
        beats[numbers] = _is_less(of[NVINT4, True] - best)
    sure = list(beats.values())
    statements = [
        Statement(
            "NVINT4 with the transform has a smaller error than NVFP4, with or without the transform, on every tensor",
            None if None in sure and False not in sure else all(sure),
            "; ".join(beats),
        ),
        Statement(
            "the transform lowers the error of NVINT4 if the crest factor is above 2.4",
            lowers(NVINT4, 2.4, 4.01),
            means(2.4, 4.01),
        ),
        Statement(
            "the transform raises the error of NVINT4 if the crest factor is below 2",
            raises(NVINT4, 1.0, 2.0),
            means(1.0, 2.0),
        ),
        Statement(
            "the transform lowers the error of NVFP4 if the crest factor is below 2",
            lowers(NVFP4, 1.0, 2.0),
            "in blocks without outliers, fewer numbers are in the coarse range of E2M1 after the transform",
        ),
        Statement(
            "the transform raises the error of NVFP4 if the crest factor is above 2.4",
            raises(NVFP4, 2.4, 4.01),
            "; ".join(means(low, high) for low, high in pairwise(CRESTS)),
        ),
    ]
    evidence = Evidence((), statements, NOTE, {"seed": SEED, "blocks": BLOCKS, "error bar": f"{SIGMA} sigma"})
    answer = (
        f"With the transform, NVINT4 has a smaller error than NVFP4 on all {len(found)} tensors. The transform lowers "
        "the error of NVINT4 above a crest factor of 2.4 and raises it below 2; for NVFP4 the opposite holds."
    )
    return answered(evidence, answer, next(iter(beats)))

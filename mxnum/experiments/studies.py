"""The studies: which arms each compares, with how many seeds, and why. Settings were fixed before seeds were drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxnum import errors
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

#: Drawn once, by `secrets.randbelow`, after every setting below had been fixed. `--fresh` draws another.
FIRST_SEED = 39304300

E2M1, E4M3 = Operand("mxfp4_e2m1"), Operand("mxfp8_e4m3")


@dataclass(frozen=True)
class Study:
    """Arms that are compared on the same seeds: the same initial parameters, teacher and batches."""

    name: str
    question: str
    arms: Mapping[str, Experiment]
    #: How many seeds.
    seeds: int
    #: The arm that the others are compared with.
    control: str
    measure_every: int = 250


def layer_norm_only(gamma: Operand, beta: Operand | None = None) -> Precision:
    """bfloat16 vector operations, float32 products, and only the layer-norm parameters rounded otherwise."""
    return Precision(gamma=gamma, beta=gamma if beta is None else beta, vector="bfloat16")


BASE = Experiment()


def _with(precision: Precision, **changes: object) -> Experiment:
    return BASE.but(precision=precision, **changes)


_QUICK = {
    "FP32": BASE,
    "E4M3": _with(uniform_precision("mxfp8_e4m3")),
    "E2M1": _with(uniform_precision("mxfp4_e2m1")),
    "E2M1, LN FP32": _with(uniform_precision("mxfp4_e2m1", layer_norm=FLOAT32)),
}

_ONLY_LN = _with(layer_norm_only(E2M1))
_BF16 = _with(BFLOAT16_TRAINING)
_SLOW = {"betas": (0.9, 0.95)}

_MECHANISM = {
    "bf16": _BF16,
    "LN E2M1": _ONLY_LN,
    # Clamping: alone, and removed.
    "LN clamp, no rounding": _with(layer_norm_only(Operand("mxfp4_e2m1", error="clamp"))),
    "LN E2M1 rceil (no clamp)": _with(layer_norm_only(Operand("mxfp4_e2m1", scale_rule="rceil"))),
    # Which parameter.
    "gamma E2M1": _with(layer_norm_only(E2M1, BFLOAT16)),
    "beta E2M1": _with(layer_norm_only(BFLOAT16, E2M1)),
    # Coarse rounding on a plain grid, straight-through: no blocks, no scales, no clamping.
    "gamma grid 1/4": _with(layer_norm_only(Operand(error="grid", step=0.25), BFLOAT16)),
    "gamma grid 1/16": _with(layer_norm_only(Operand(error="grid", step=0.0625), BFLOAT16)),
    "beta grid 1/64": _with(layer_norm_only(BFLOAT16, Operand(error="grid", step=0.015625))),
    "beta grid 1/16": _with(layer_norm_only(BFLOAT16, Operand(error="grid", step=0.0625))),
    # The same sizes of error without the steps: no bias, or one sign only.
    "LN error, random sign": _with(layer_norm_only(Operand("mxfp4_e2m1", error="random_sign"))),
    "LN error, one-sided": _with(layer_norm_only(Operand("mxfp4_e2m1", error="one_sided"))),
    "LN error, shuffled": _with(layer_norm_only(Operand("mxfp4_e2m1", error="shuffle"))),
    # Stochastic rounding: no dead zone on average.
    "gamma E2M1 SR, beta RNE": _with(layer_norm_only(Operand("mxfp4_e2m1", rounding="sr"), E2M1)),
    "LN E2M1 SR": _with(layer_norm_only(Operand("mxfp4_e2m1", rounding="sr"))),
    # Finer blocks, finer elements.
    "LN E2M1, blocks of 8": _with(layer_norm_only(Operand("mxfp4_e2m1", block_size=8))),
    "LN E2M1, blocks of 1": _with(layer_norm_only(Operand("mxfp4_e2m1", block_size=1))),
    "LN E3M2": _with(layer_norm_only(Operand("mxfp6_e3m2"))),
    "LN E2M3": _with(layer_norm_only(Operand("mxfp6_e2m3"))),
    "LN E4M3": _with(layer_norm_only(E4M3)),
    # Nothing to round: gamma and beta stay where they start.
    "LN E2M1, beta frozen": _ONLY_LN.but(train_beta=False),
    "LN E2M1, gamma frozen": _ONLY_LN.but(train_gamma=False),
    "bf16, LN frozen": _BF16.but(train_gamma=False, train_beta=False),
    # Adam's memory.
    "bf16, beta2 0.95": _BF16.but(**_SLOW),
    "LN E2M1, beta2 0.95": _ONLY_LN.but(**_SLOW),
    "E2M1, beta2 0.95": _QUICK["E2M1"].but(**_SLOW),
}

_INJECTED = {
    f"zeta mean {mean:g}, deviation {deviation:g}": BASE.but(injection=Injection(mean, deviation))
    for mean, deviation in ((-0.25, 0), (-0.9, 0), (0, 0.5), (0, 1), (0, 2), (-0.5, 1), (0.5, 1))
}

STUDIES = {
    study.name: study
    for study in (
        Study(
            "quick",
            "Does low precision bring runaway divergence, and does layer norm in FP32 prevent it?",
            _QUICK,
            6,
            "FP32",
        ),
        Study(
            "confirm",
            "The same arms with more seeds, and bfloat16 with nothing but the layer-norm parameters in E2M1.",
            _QUICK | {"bf16": _BF16, "LN E2M1": _ONLY_LN},
            12,
            "FP32",
        ),
        Study("mechanism", "What about the rounding of gamma and beta drives the divergence?", _MECHANISM, 8, "bf16"),
        Study(
            "injection",
            "Synthetic zeta in the gradients of an FP32 run: does multiplicative noise of this size destabilise Adam?",
            {"FP32": BASE} | _INJECTED,
            6,
            "FP32",
        ),
    )
}


def get(name: str) -> Study:
    """A study by name."""
    return STUDIES[errors.choose("study", name, tuple(STUDIES))]

"""Define built-in studies with many similar arms; the other studies are in ``files/MODEL``.

The settings of these studies were fixed before their seeds were drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.lab.mlp.config import BFLOAT16_TRAINING, Experiment, Injection, uniform_precision
from mxnum.lab.studies import study_file
from mxnum.lab.studies.study import MODELS, Study
from mxnum.output.files import as_path
from mxnum.recipe import BFLOAT16, FLOAT32, Operand, Recipe

#: The first seed of "quick", drawn in the same way as `FIRST_SEED`. No other study uses the seeds
#: of "quick".
QUICK_SEED = 38475894

E2M1, E4M3 = Operand("mxfp4_e2m1"), Operand("mxfp8_e4m3")


def layer_norm_only(gamma: Operand, beta: Operand | None = None) -> Recipe:
    """Return a recipe that rounds only layer-norm parameters; vector operations use bfloat16."""
    return Recipe(gamma=gamma, beta=gamma if beta is None else beta, vector="bfloat16")


def _at_own_rate(arms: Mapping[str, Experiment]) -> dict[str, str]:
    """Return, for each arm, the FP32 arm at the same learning rate."""
    return {name: f"FP32, rate {arm.rate:g}" for name, arm in arms.items()}


BASE = Experiment()
#: A setting that takes a twentieth of the default setting's time. The learning rate of `SMALL` was
#: chosen on seeds 1 to 6, which are not reported. At the rate of `SMALL`, runs with E2M1 in layer
#: norm diverge within 4,000 steps, but few runs in bfloat16 diverge.
SMALL = {"width": 32, "batch": 64, "rate": 2.4e-2}


def small(arms: Mapping[str, Experiment], **changes: object) -> dict[str, Experiment]:
    """Return the arms in the setting `SMALL`, with further changes."""
    return {name: arm.but(**(SMALL | changes)) for name, arm in arms.items()}


def _with(precision: Recipe, **changes: object) -> Experiment:
    return BASE.but(precision=precision, **changes)


_BASIC = {
    "FP32": BASE,
    "E4M3": _with(uniform_precision("mxfp8_e4m3")),
    "E2M1": _with(uniform_precision("mxfp4_e2m1")),
    "E2M1, LN FP32": _with(uniform_precision("mxfp4_e2m1", layer_norm=FLOAT32)),
}

_ONLY_LN = _with(layer_norm_only(E2M1))
_BF16 = _with(BFLOAT16_TRAINING)
_CONFIRM = _BASIC | {"bf16": _BF16, "LN E2M1": _ONLY_LN}
_FROZEN = _BF16.but(train_gamma=False, train_beta=False)
_SLOW = {"betas": (0.9, 0.95)}

_MECHANISM = {
    "bf16": _BF16,
    "LN E2M1": _ONLY_LN,
    # Arms whose layer-norm parameters are clamped but not rounded, or rounded but not clamped.
    "LN clamp, no rounding": _with(layer_norm_only(Operand("mxfp4_e2m1", error="clamp"))),
    "LN E2M1 rceil (no clamp)": _with(layer_norm_only(Operand("mxfp4_e2m1", scale_rule="rceil"))),
    # Arms that round only one of the two parameters of layer norm.
    "gamma E2M1": _with(layer_norm_only(E2M1, BFLOAT16)),
    "beta E2M1": _with(layer_norm_only(BFLOAT16, E2M1)),
    # Arms that round coarsely to multiples of a number, without blocks, scales or clamping.
    "gamma grid 1/4": _with(layer_norm_only(Operand(error="grid", step=0.25), BFLOAT16)),
    "gamma grid 1/16": _with(layer_norm_only(Operand(error="grid", step=0.0625), BFLOAT16)),
    "beta grid 1/64": _with(layer_norm_only(BFLOAT16, Operand(error="grid", step=0.015625))),
    "beta grid 1/16": _with(layer_norm_only(BFLOAT16, Operand(error="grid", step=0.0625))),
    # Arms whose rounding errors are as large as E2M1's, but have random signs, have one sign, or
    # are permuted.
    "LN error, random sign": _with(layer_norm_only(Operand("mxfp4_e2m1", error="random_sign"))),
    "LN error, one-sided": _with(layer_norm_only(Operand("mxfp4_e2m1", error="one_sided"))),
    "LN error, shuffled": _with(layer_norm_only(Operand("mxfp4_e2m1", error="shuffle"))),
    # Arms with stochastic rounding, whose mean follows even a tiny change of gamma.
    "gamma E2M1 SR, beta RNE": _with(layer_norm_only(Operand("mxfp4_e2m1", rounding="sr"), E2M1)),
    "LN E2M1 SR": _with(layer_norm_only(Operand("mxfp4_e2m1", rounding="sr"))),
    # Arms with smaller blocks, or with elements of more bits.
    "LN E2M1, blocks of 8": _with(layer_norm_only(Operand("mxfp4_e2m1", block_size=8))),
    "LN E2M1, blocks of 1": _with(layer_norm_only(Operand("mxfp4_e2m1", block_size=1))),
    "LN E3M2": _with(layer_norm_only(Operand("mxfp6_e3m2"))),
    "LN E2M3": _with(layer_norm_only(Operand("mxfp6_e2m3"))),
    "LN E4M3": _with(layer_norm_only(E4M3)),
    # Arms in which gamma, beta or both keep their initial values.
    "LN E2M1, beta frozen": _ONLY_LN.but(train_beta=False),
    "LN E2M1, gamma frozen": _ONLY_LN.but(train_gamma=False),
    "bf16, LN frozen": _FROZEN,
    "bf16, gamma frozen": _BF16.but(train_gamma=False),
    "bf16, beta frozen": _BF16.but(train_beta=False),
    # Arms in which gamma is frozen at smaller values, to see what stabilises a run: the training of
    # gamma, or a small gamma.
    "bf16, LN frozen, gamma 1/2": _FROZEN.but(gamma_start=(0.5, 0.5)),
    "bf16, LN frozen, gamma 1/4": _FROZEN.but(gamma_start=(0.25, 0.25)),
    "bf16, LN frozen, gamma 1/8": _FROZEN.but(gamma_start=(0.125, 0.125)),
    # Arms in which gamma is small and frozen but beta is trained, to see whether rounding beta
    # alone causes a divergence.
    "bf16, gamma frozen at 1/4": _BF16.but(train_gamma=False, gamma_start=(0.25, 0.25)),
    "LN E2M1, gamma frozen at 1/4": _ONLY_LN.but(train_gamma=False, gamma_start=(0.25, 0.25)),
    "bf16, gamma frozen at 1/8": _BF16.but(train_gamma=False, gamma_start=(0.125, 0.125)),
    "LN E2M1, gamma frozen at 1/8": _ONLY_LN.but(train_gamma=False, gamma_start=(0.125, 0.125)),
    # Arms in which Adam's second moment adapts faster.
    "bf16, beta2 0.95": _BF16.but(**_SLOW),
    "bf16, LN frozen, beta2 0.95": _FROZEN.but(**_SLOW),
    "LN E2M1, beta2 0.95": _ONLY_LN.but(**_SLOW),
    "E2M1, beta2 0.95": _BASIC["E2M1"].but(**_SLOW),
}

_SEPARATING = (
    "bf16",
    "LN E2M1",
    "LN clamp, no rounding",
    "LN E2M1 rceil (no clamp)",
    "gamma E2M1",
    "beta E2M1",
    "LN error, random sign",
    "LN E2M1, beta2 0.95",
)

_INJECTED = {
    f"zeta mean {'minus ' * (mean < 0)}{abs(mean):g}, deviation {deviation:g}": BASE.but(
        injection=Injection(mean, deviation)
    )
    for mean, deviation in ((-0.25, 0), (-0.9, 0), (0, 0.25), (0, 0.5), (0, 1), (0, 2), (-0.5, 1), (0.5, 1))
}
_INJECTED |= {
    "zeta deviation 1, in LN alone": BASE.but(injection=Injection(0, 1, where="layer_norm")),
    "zeta deviation 0.5, in LN alone": BASE.but(injection=Injection(0, 0.5, where="layer_norm")),
    "zeta deviation 1, not in LN": BASE.but(injection=Injection(0, 1, where="not_layer_norm")),
    "zeta deviation 0.5, not in LN": BASE.but(injection=Injection(0, 0.5, where="not_layer_norm")),
    "zeta deviation 1, beta2 0.95": BASE.but(injection=Injection(0, 1), **_SLOW),
}

_ZETA = {
    f"{name}, 1500 steps": arm
    for name, arm in {
        "bf16": _BF16,
        "E4M3": _BASIC["E4M3"],
        "E2M1": _BASIC["E2M1"],
        "E2M1, LN FP32": _BASIC["E2M1, LN FP32"],
        "LN E2M1": _ONLY_LN,
        "LN E2M1 rceil": _MECHANISM["LN E2M1 rceil (no clamp)"],
        "LN clamp": _MECHANISM["LN clamp, no rounding"],
    }.items()
}

RATES = (1.2e-2, 1.7e-2, 2.4e-2, 3.4e-2, 4.8e-2)
_CRITICAL = {
    f"{name}, rate {rate:g}": BASE.but(**(SMALL | {"rate": rate}), precision=precision)
    for name, precision in {
        "FP32": Recipe(),
        "E4M3": uniform_precision("mxfp8_e4m3"),
        "E4M3 rceil": uniform_precision("mxfp8_e4m3", scale_rule="rceil"),
        "E2M1": uniform_precision("mxfp4_e2m1"),
        "E2M1 even": uniform_precision("mxfp4_e2m1", scale_rule="even"),
        "E2M1 rceil": uniform_precision("mxfp4_e2m1", scale_rule="rceil"),
    }.items()
    for rate in RATES
}

_ABLATIONS = {
    f"{activation}{'' if layer_norm else ', no LN'}, {name}": BASE.but(
        activation=activation, layer_norm=layer_norm, precision=precision
    )
    for activation in ("gelu", "relu", "swiglu")
    for layer_norm in (True, False)
    for name, precision in {"FP32": Recipe(), "E2M1": uniform_precision("mxfp4_e2m1")}.items()
}

#: The six differences between the paper's text and its released code. For each difference, a sign
#: of +1 in `fraction` means that the arm follows the released code.
DIFFERENCES = (
    "LN in bfloat16",
    "beta frozen",
    "GELU by tanh",
    "bump over the wrong axis",
    "ties away from zero",
    "teacher quantized",
)


def fraction() -> list[tuple[int, ...]]:
    """Return the 16 rows of signs of a 2^(6-2) fractional factorial design of resolution IV.

    Factors 1 to 4 are A, B, C and D; factor 5 is the product ABC, and factor 6 is the product BCD.
    """
    return [(a, b, c, d, a * b * c, b * c * d) for a, b, c, d in product((-1, 1), repeat=4)]


def with_differences(signs: tuple[int, ...], format: str) -> Experiment:
    """Return the experiment for `signs`, which has one sign for each of `DIFFERENCES`.

    If a sign is +1, the experiment follows the released code; if a sign is -1, it follows the
    paper's text.
    """
    ln, frozen, tanh, bump, away, teacher = (sign > 0 for sign in signs)
    rounding = "rna" if away else "rne"
    operand = Operand(format, rounding=rounding, scale_rule="released_bump" if bump else "floor")
    affine = replace(BFLOAT16, rounding=rounding) if ln else operand
    precision = Recipe(*(operand,) * 5, affine, affine, vector="bfloat16", vector_rounding="rna" if away else "rne")
    return BASE.but(
        precision=precision, train_beta=not frozen, gelu="tanh" if tanh else "exact", quantized_teacher=teacher
    )


_FACTORIAL = {
    "".join("+" if s > 0 else "-" for s in signs).replace("+", "C").replace("-", "T"): with_differences(
        signs, "mxfp4_e2m1"
    )
    for signs in fraction()
}


def _four_bit(format: str, scale_rule: str, stochastic: bool) -> Recipe:
    """Return the recipe of a 4-bit format with layer norm in bfloat16 (claim M10).

    With `stochastic`, gradients are rounded stochastically.
    """
    precision = uniform_precision(format, layer_norm=BFLOAT16, scale_rule=scale_rule)
    return replace(precision, gradients=replace(precision.gradients, rounding="sr")) if stochastic else precision


#: Arms at a quarter of the learning rate of `SMALL`. Few runs diverge at this lower rate, so final
#: losses can be compared.
_RECIPES = {
    name: BASE.but(**(SMALL | {"rate": 6e-3}), precision=precision)
    for name, precision in {
        "recipe FP32": Recipe(),
        "recipe bf16": BFLOAT16_TRAINING,
        "recipe E4M3": uniform_precision("mxfp8_e4m3", layer_norm=BFLOAT16),
        "recipe E2M3": uniform_precision("mxfp6_e2m3", layer_norm=BFLOAT16),
        "recipe E3M2": uniform_precision("mxfp6_e3m2", layer_norm=BFLOAT16),
        "recipe E2M1 floor": _four_bit("mxfp4_e2m1", "floor", False),
        "recipe E2M1 even": _four_bit("mxfp4_e2m1", "even", False),
        "recipe E2M1 floor, SR gradients": _four_bit("mxfp4_e2m1", "floor", True),
        "recipe E2M1 even, SR gradients": _four_bit("mxfp4_e2m1", "even", True),
        "recipe E2M1 ceil, SR gradients": _four_bit("mxfp4_e2m1", "ceil", True),
        "recipe E3M0 ceil, SR gradients": _four_bit("mxfp4_e3m0", "ceil", True),
    }.items()
}

PAPER_SCALE = {"width": 512, "batch": 2048, "rate": 6e-4, "steps": 9000}
_PAPER_SCALE = Experiment().but(**PAPER_SCALE)
_PAPER = {
    f"paper scale, {name}": _PAPER_SCALE.but(precision=precision)
    for name, precision in {
        "FP32": Recipe(),
        "E4M3": uniform_precision("mxfp8_e4m3"),
        "E4M3, LN bf16": uniform_precision("mxfp8_e4m3", layer_norm=BFLOAT16),
        "E2M1": uniform_precision("mxfp4_e2m1"),
        "E4M3 rceil": uniform_precision("mxfp8_e4m3", scale_rule="rceil"),
        "E4M3 forward only": uniform_precision("mxfp8_e4m3").forward_only(),
    }.items()
}
_PAPER["paper scale, released code"] = with_differences((1,) * 6, "mxfp8_e4m3").but(**PAPER_SCALE)

#: Learning rates above the paper's rate; each is about the square root of 2 times the previous
#: rate.
PAPER_RATES = (8.5e-4, 1.2e-3, 1.7e-3, 2.4e-3, 3.4e-3, 4.8e-3, 6.8e-3)
_PAPER_RATES = {
    f"{name}, rate {rate:g}": _PAPER_SCALE.but(rate=rate, steps=6000, precision=precision)
    for name, precision in {"FP32": Recipe(), "E4M3": uniform_precision("mxfp8_e4m3")}.items()
    for rate in PAPER_RATES
}

_AT_PAPER_SCALE: dict[str, Any] = {"measure_every": 50, "measure_above": 3.0, "keeps_checkpoints": True}
IN_PYTHON: dict[str, Study | Path] = {
    study.name: study
    for study in (
        Study(
            "quick", "Does training with everything in 4 bits run away where FP32 does not?",
            small({name: _BASIC[name] for name in ("FP32", "E2M1", "E2M1, LN FP32")}, rate=3.4e-2, steps=8000),
            16, "FP32", first_seed=QUICK_SEED, horizon=4000, own_folder="quick",
        ),
        Study(
            "confirm",
            "At width 64, does the loss rise sooner in E4M3, in E2M1, or with layer norm alone in E2M1?",
            _CONFIRM, 12, "FP32",
        ),
        Study("small", "Do the arms of 'confirm' diverge at width 32?", small(_CONFIRM), 12, "FP32"),
        Study(
            "mechanism", "Which property of the rounding of gamma and beta drives the divergence?",
            small(_MECHANISM), 12, "bf16",
        ),
        Study(
            "mechanism-64", "At width 64, which property of the rounding of gamma and beta drives the divergence?",
            {name: _MECHANISM[name] for name in _SEPARATING}, 4, "bf16",
        ),
        Study(
            "injection",
            "Random relative errors (zeta) are added to the gradients of an FP32 run: do they destabilise Adam?",
            small({"FP32": BASE} | _INJECTED), 12, "FP32",
        ),
        Study(
            "zeta", "In which arms does rounding disturb the gradients, and by how much?",
            small(_ZETA, steps=1500), 6, "bf16, 1500 steps", measure_every=50,
        ),
        Study(
            "critical-rate", "How likely is divergence at each rate?",
            _CRITICAL, 8, "FP32, rate 0.024", controls=_at_own_rate(_CRITICAL),
        ),
        Study("recipes", "How far from FP32 do recipes in 8, 6 and 4 bits end?", _RECIPES, 8, "recipe FP32"),
        Study(
            "ablations", "How do layer norm and the activation change excursions?", small(_ABLATIONS), 8, "gelu, FP32"
        ),
        Study(
            "factorial",
            "Which of the six differences between the paper's text and code matter? In names of arms, C follows "
            "the code, T the text.",
            small(_FACTORIAL), 8, "TTTTTT",
        ),
        Study(
            "paper-scale", "At the paper's size, do runs in E4M3 diverge, and do runs in FP32?",
            _PAPER, 2, "paper scale, FP32", **_AT_PAPER_SCALE,
        ),
        Study(
            "paper-rates", "At which learning rates does the loss rise in E4M3 and in FP32, at the paper's size?",
            _PAPER_RATES, 2, "FP32, rate 0.0012", controls=_at_own_rate(_PAPER_RATES), **_AT_PAPER_SCALE,
        ),
    )
}  # fmt: skip
FILES = Path(__file__).parent / "files"
#: The built-in studies of each model by name; each is a `Study` or the path of a study file.
SHIPPED: dict[str, dict[str, Study | Path]] = {
    model: {path.stem: path for path in sorted(FILES.glob(f"{model}/*.toml"))} for model in MODELS
}
#: The studies of the MLP.
STUDIES = SHIPPED["mlp"] = IN_PYTHON | SHIPPED["mlp"]


def get(name: str) -> Study:
    """Return a study of the MLP by its name; a study from a file gets its own folder of runs."""
    found = STUDIES[errors.choose("study", name, tuple(STUDIES))]
    return found if isinstance(found, Study) else replace(study_file.read(found), own_folder=name)


def read(config: str | Path, model: str = "mlp") -> Study:
    """Return the study in the file `config`, or the built-in study with this name."""
    found = SHIPPED[model].get(str(config)) or as_path(config)
    if isinstance(found, Study):
        return found
    errors.require(found.exists(), "config", f"a TOML file or one of {errors.joined(SHIPPED[model])}", str(config))
    return study_file.read(found, model)


def outline(study: Study | Path) -> tuple[str, int, tuple[str, ...]]:
    """Return the question, the number of seeds and the names of the arms of a study."""
    if isinstance(study, Study):
        return study.question, study.seeds, tuple(study.arms)
    table = study_file.parsed(study)
    return table["question"], table["seeds"], study_file.names_of(table)

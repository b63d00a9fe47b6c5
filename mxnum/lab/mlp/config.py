"""Define the settings of an experiment, which are stored with every result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from mxnum import errors, formats
from mxnum.lab.configuration import check_fields
from mxnum.recipe import BFLOAT16, OPERANDS, Operand, Recipe


@dataclass(frozen=True)
class Injection:
    """Synthetic noise: each step replaces a gradient g by g * (1 + mean + deviation * n).

    The numbers n are drawn from the standard normal distribution, anew in each step.
    """

    mean: float = 0.0
    deviation: float = 0.0
    #: The parameters whose gradients get the noise: all parameters, only the parameters of layer
    #: norm, or all except the parameters of layer norm.
    where: Literal["all", "layer_norm", "not_layer_norm"] = "all"
    #: True if all elements of all gradients share one number n in each step; False if each element
    #: has a number n of its own.
    common: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Experiment:
    """All settings of a training run except its seed.

    If the paper arXiv 2506.20752 names a setting, the field has the same name.
    """

    width: int = 64
    layers: int = 4
    batch: int = 256
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    #: The hidden width of a layer divided by `width`. SwiGLU ignores `expansion`: its hidden width
    #: is 8/3 of `width`, rounded up to a multiple of 32.
    expansion: int = 4
    layer_norm: bool = True
    initialization: Literal["uniform", "xavier"] = "uniform"
    #: The bounds between which initial values of gamma are drawn uniformly; with None, gamma starts
    #: at 1.
    gamma_start: tuple[float, float] | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    rate: float = 1.2e-2
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    momentum: float = 0.0
    label_noise: float = 0.005
    #: True to subtract the mean of each input vector from its components. The teacher's labels
    #: depend on this mean, but layer norm removes it from the inputs of the student's layers. So
    #: the loss cannot fall to zero if inputs keep their means.
    centred_inputs: bool = False
    steps: int = 4000
    precision: Recipe = field(default_factory=Recipe)
    #: The form of GELU: "exact" (erf) or "tanh".
    gelu: Literal["exact", "tanh"] = "exact"
    train_gamma: bool = True
    train_beta: bool = True
    #: True to quantize the teacher's matrix products in the same way as the student's. The paper's
    #: released code does this, because it replaces PyTorch's linear layer globally.
    quantized_teacher: bool = False
    #: The number of the random stream of label noise; different numbers give independent noise.
    noise_draw: int = 0
    injection: Injection | None = None
    #: Factors on the learning rates of W1 and of beta, and on the initial values of W1.
    w1_rate: float = 1.0
    beta_rate: float = 1.0
    w1_start: float = 1.0
    #: The norms of W1 and W2 at this step limit the norms in all later steps; None for no limits.
    cap_norms_at: int | None = None
    #: The formats in which the moments of Adam (`moments`) and the parameters (`masters`) are
    #: stored between steps: an MX format or "bfloat16". Blocks of an MX format lie along rows; the
    #: scale rule is floor, and rounding is to nearest even.
    moments: str | None = None
    masters: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, from_zero=("noise_draw", "cap_norms_at"))
        for name, values in (("betas", self.betas), ("momentum", (self.momentum,))):
            errors.require(all(0 <= v < 1 for v in values), name, "at least 0 and below 1", getattr(self, name))
        low, high = self.gamma_start or (1, 1)
        errors.require(low <= high, "gamma_start", "two bounds, the lower bound first", self.gamma_start)
        for name in ("rate", "w1_rate", "beta_rate", "w1_start"):
            errors.require(getattr(self, name) > 0, name, "positive", getattr(self, name))
        turned = [name for name in OPERANDS if getattr(getattr(self.precision, name), "transform", None)]
        errors.require(not turned, "precision", "a recipe without transforms (only mxnum.torch has them)", turned)
        for name in OPERANDS:
            operand = getattr(self.precision, name)
            if operand is not None and operand.is_mx:
                fmt = formats.get(operand.format)
                errors.require(fmt.scale.power_of_two, name, "in a format with E8M0 scales", fmt.name)
            if operand is not None and name not in ("gamma", "beta"):
                is_plain = operand.error == "quantize" and not operand.matched
                errors.require(is_plain, name, "an operand with error='quantize' and matched=False", str(operand))
        stepwise = self.precision.vector_steps
        errors.require(not stepwise, "precision", "a recipe without vector_steps (only mxnum.torch has them)", stepwise)
        draws = "sr" in (self.precision.weights.rounding, self.precision.activations.rounding)
        accepted = "False if weights or activations are rounded stochastically"
        errors.require(not (self.quantized_teacher and draws), "quantized_teacher", accepted, True)
        for stored in (self.moments, self.masters):
            Operand(stored)

    @property
    def hidden(self) -> int:
        if self.activation == "swiglu":
            return -(-round(8 * self.width / 3) // 32) * 32
        return self.expansion * self.width

    @property
    def inner(self) -> int:
        """The number of outputs of a layer's first product; with SwiGLU, twice the hidden width."""
        return 2 * self.hidden if self.activation == "swiglu" else self.hidden

    def but(self, **changes: Any) -> Experiment:
        """Return a copy in which the given fields have new values.

        Keywords may also be fields of `Recipe`; the keyword ``uniform`` sets all operands of the
        recipe.

        >>> Experiment().but(rate=1e-3, vector="bfloat16").precision.vector
        'bfloat16'
        """
        own, inner = ({f.name for f in fields(kind)} & set(changes) for kind in (Experiment, Recipe))
        errors.known_fields(dict.fromkeys(set(changes) - inner - {"uniform"}), Experiment, "an experiment")
        precision = Recipe.of(changes.get("precision", self.precision))
        if "uniform" in changes:
            uniform = Recipe.from_dict({"uniform": changes["uniform"]})
            precision = precision.but(**{operand: getattr(uniform, operand) for operand in OPERANDS})
        precision = precision.but(**{name: changes[name] for name in inner})
        return replace(self, **{name: changes[name] for name in own} | {"precision": precision})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain dictionaries, for JSON; `from_dict` is the inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Experiment:
        """Return the experiment with the given field values; missing fields have their defaults.

        >>> Experiment.from_dict(Experiment(rate=0.5).to_dict()) == Experiment(rate=0.5)
        True
        """
        values = errors.known_fields(dict(table), cls, "an experiment")
        if "precision" in values:
            values["precision"] = Recipe(**errors.known_fields(dict(values["precision"]), Recipe, "precision"))
        return cls(**values)


def uniform_precision(format: str, *, layer_norm: Operand | None = None, **operand: Any) -> Recipe:
    """Return a recipe with one format for weights, activations and gradients, forward and backward.

    Vector operations are in bfloat16. `layer_norm` is the operand for gamma and beta; by default,
    gamma and beta are in `format` too.
    """
    return Recipe.uniform(format, layer_norm=layer_norm, vector="bfloat16", **operand)


BFLOAT16_TRAINING = Recipe(gamma=BFLOAT16, beta=BFLOAT16, vector="bfloat16")


def vector_code(precision: Recipe) -> int:
    """Return the kernels' argument `bf16`, which says how vector operations round.

    0 means no rounding, 1 means rounding to nearest even, and 2 means rounding to nearest with ties
    away from zero.
    """
    return 0 if precision.vector == "float32" else 1 if precision.vector_rounding == "rne" else 2

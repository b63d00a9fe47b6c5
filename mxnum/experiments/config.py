"""What an experiment is: frozen, comparable, and stored beside every result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from mxnum import errors, formats
from mxnum.formats import MXFormat
from mxnum.modes import Rounding, ScaleRule

#: How the error of a quantized layer-norm parameter is applied; see `Operand.error`.
ERRORS = ("quantize", "clamp", "random_sign", "one_sided", "shuffle", "grid")
#: Where synthetic noise goes; see `Injection.where`.
PLACES = ("all", "layer_norm", "not_layer_norm")
ACTIVATIONS = ("gelu", "relu", "swiglu")


@dataclass(frozen=True)
class Operand:
    """How one tensor is rounded before it is used. The default leaves it as it is.

    Examples
    --------
    >>> Operand("mxfp4_e2m1", scale_rule="rceil").describe()
    'mxfp4_e2m1 rceil'
    """

    #: An MX format, "bfloat16", or None.
    format: str | None = None
    #: A `ScaleRule`, or "released_bump": the bump of the released code, which takes its maximum over the wrong axis.
    scale_rule: str = "floor"
    rounding: str = "rne"
    #: None: the format's own.
    block_size: int | None = None
    #: For gamma and beta only. With e = Q(x) - x the value used is: "quantize": x + e; "random_sign": x + e with a
    #: fresh random sign for each element and step (no bias, the same size); "one_sided": x - |e|; "shuffle": x + e
    #: with e permuted among the features at each step; "clamp": x cut off where the format saturates, and not
    #: rounded; "grid": x rounded to a multiple of `step`, without blocks or scales.
    error: str = "quantize"
    step: float = 0.0
    #: The error has the size that the floor rule's has, to nearest, in the same format: the same root mean square,
    #: layer by layer. "clamp" then cuts where its error has that size; the others are scaled.
    matched: bool = False

    def __post_init__(self) -> None:
        if self.format not in (None, "bfloat16"):
            formats.get(self.format)
        if self.scale_rule != "released_bump":
            errors.choose_member("scale_rule", self.scale_rule, ScaleRule)
        errors.choose_member("rounding", self.rounding, Rounding)
        errors.choose("error", self.error, ERRORS)
        if self.format == "bfloat16" and self.rounding not in ("rne", "rna"):
            raise ValueError(f"Argument 'rounding' must be 'rne' or 'rna' for bfloat16, not {self.rounding!r}.")

    @property
    def mx_format(self) -> MXFormat:
        """The format; only for an operand that has one."""
        if self.format in (None, "bfloat16"):
            raise ValueError(f"Operand {self.describe()!r} has no MX format.")
        return formats.get(self.format)

    @property
    def is_mx(self) -> bool:
        return self.format not in (None, "bfloat16") and self.error != "grid"

    def describe(self) -> str:
        """One line for tables."""
        if self.error == "grid":
            return f"multiples of {self.step:g}"
        parts = [self.format or "float32"]
        parts += [self.scale_rule] * (self.scale_rule != "floor") + [self.rounding] * (self.rounding != "rne")
        parts += [f"blocks of {self.block_size}"] * (self.block_size is not None)
        return " ".join(parts + [self.error] * (self.error != "quantize") + ["of floor's size"] * self.matched)


FLOAT32 = Operand()
BFLOAT16 = Operand("bfloat16")


@dataclass(frozen=True)
class Precision:
    """What is rounded, and how. The default is float32 throughout.

    A matrix product takes its operands quantized along the axis that is summed: weights and activations along the
    input features on the way forward; activations and output gradients along the batch for the weight's gradient;
    weights and output gradients along the output features for the input's gradient. With `vector="bfloat16"` the
    weights are rounded to bfloat16 before they are quantized, and so are the results of products, of layer norm, of the
    activation, and the parameter gradients. The residual stream, the master weights and the loss stay float32.
    """

    weights: Operand = FLOAT32
    activations: Operand = FLOAT32
    weights_backward: Operand = FLOAT32
    activations_backward: Operand = FLOAT32
    gradients: Operand = FLOAT32
    gamma: Operand = FLOAT32
    beta: Operand = FLOAT32
    vector: Literal["float32", "bfloat16"] = "float32"
    #: How `vector` rounds: "rne", or "rna" as the released code does.
    vector_rounding: Literal["rne", "rna"] = "rne"
    #: Whether `vector` rounds the input and output of the activation.
    round_activation: bool = True

    @property
    def bf16(self) -> int:
        """The code that the kernels take."""
        return 0 if self.vector == "float32" else 1 if self.vector_rounding == "rne" else 2

    @property
    def is_float32(self) -> bool:
        return self == Precision()


@dataclass(frozen=True)
class Injection:
    """Synthetic noise: a gradient g is replaced by g (1 + mean + deviation n), n standard normal, fresh each step."""

    mean: float = 0.0
    deviation: float = 0.0
    #: "all" parameters, only those of "layer_norm", or all but those.
    where: Literal["all", "layer_norm", "not_layer_norm"] = "all"
    #: One n for all elements of a step, which is the noise of a quadratic in one dimension.
    common: bool = False

    def __post_init__(self) -> None:
        errors.choose("where", self.where, PLACES)


@dataclass(frozen=True)
class Experiment:
    """One training run but for its seed. Names are those of the paper where it has them."""

    width: int = 64
    layers: int = 4
    batch: int = 256
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    #: The hidden width is this times the width; for SwiGLU it is 8/3 of it, rounded to a multiple of 32.
    expansion: int = 4
    layer_norm: bool = True
    initialization: Literal["uniform", "xavier"] = "uniform"
    #: What gamma starts from: 1, or uniform between two bounds.
    gamma_start: tuple[float, float] | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    rate: float = 1.2e-2
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    momentum: float = 0.0
    label_noise: float = 0.005
    #: Subtract the mean of each input vector: removes the loss floor that layer norm causes.
    centred_inputs: bool = False
    steps: int = 4000
    precision: Precision = field(default_factory=Precision)
    #: "exact" (erf) or "tanh".
    gelu: Literal["exact", "tanh"] = "exact"
    train_gamma: bool = True
    train_beta: bool = True
    #: The teacher's products are quantized like the student's (the released code patches the linear layer globally).
    quantized_teacher: bool = False
    #: Which of the independent draws of the label noise is used.
    noise_draw: int = 0
    injection: Injection | None = None
    #: Times `rate`: the rates of W1 and of beta. Times its draw: what W1 starts from.
    w1_rate: float = 1.0
    beta_rate: float = 1.0
    w1_start: float = 1.0
    #: From this step on the norm of each W1 and W2 is kept from growing beyond what it is then.
    cap_norms_at: int | None = None
    #: An MX format (floor, to nearest, even along rows) or "bfloat16" in which both moments of Adam, or the parameters
    #: between steps, are stored.
    moments: str | None = None
    masters: str | None = None

    def __post_init__(self) -> None:
        errors.choose("activation", self.activation, ACTIVATIONS)
        errors.choose("initialization", self.initialization, ("uniform", "xavier"))
        errors.choose("optimizer", self.optimizer, ("adam", "sgd"))
        errors.choose("gelu", self.gelu, ("exact", "tanh"))
        for name in ("width", "layers", "batch", "steps"):
            errors.integer(name, getattr(self, name), 1, 1 << 40)
        for name in ("rate", "w1_rate", "beta_rate", "w1_start"):
            errors.require(getattr(self, name) > 0, name, "positive", getattr(self, name))
        if self.cap_norms_at is not None:
            errors.integer("cap_norms_at", self.cap_norms_at, 0, 1 << 40)
        for stored in (self.moments, self.masters):
            Operand(stored)

    @property
    def hidden(self) -> int:
        if self.activation == "swiglu":
            return -(-round(8 * self.width / 3) // 32) * 32
        return self.expansion * self.width

    @property
    def inner(self) -> int:
        """Outputs of the first product: SwiGLU has two for each hidden feature."""
        return 2 * self.hidden if self.activation == "swiglu" else self.hidden

    def but(self, **changes: Any) -> Experiment:
        """The same with other values; those of `Precision` may be named directly.

        >>> Experiment().but(rate=1e-3, vector="bfloat16").precision.vector
        'bfloat16'
        """
        inner = {f.name for f in fields(Precision)} & set(changes)
        known(dict.fromkeys(set(changes) - inner), Experiment, "an experiment")
        if inner:
            precision = changes.pop("precision", self.precision)
            changes["precision"] = replace(precision, **{name: changes.pop(name) for name in inner})
        return replace(self, **changes)


def uniform_precision(format: str, *, layer_norm: Operand | None = None, **operand: Any) -> Precision:
    """One format for weights, activations and gradients, forward and backward, with vector operations in bfloat16.

    `layer_norm` rounds gamma and beta; without it they are in the format too.
    """
    each = Operand(format, **operand)
    affine = each if layer_norm is None else layer_norm
    return Precision(each, each, each, each, each, affine, affine, vector="bfloat16")


BFLOAT16_TRAINING = Precision(gamma=BFLOAT16, beta=BFLOAT16, vector="bfloat16")


def to_dict(value: Any) -> Any:
    """A frozen configuration as plain dictionaries, for JSON."""
    return dataclasses.asdict(value)


def experiment_from(table: Mapping[str, Any]) -> Experiment:
    """The inverse of `to_dict`; also reads a table of a TOML file, where omitted values keep their defaults.

    >>> experiment_from(to_dict(Experiment(rate=0.5))) == Experiment(rate=0.5)
    True
    """
    values = dict(table)
    if "precision" in values:
        inner = dict(values["precision"])
        known(inner, Precision, "precision")
        made: dict[str, Any]
        made = {k: Operand(**known(dict(v), Operand, k)) if isinstance(v, Mapping) else v for k, v in inner.items()}
        values["precision"] = Precision(**made)
    if values.get("injection") is not None:
        values["injection"] = Injection(**known(dict(values["injection"]), Injection, "injection"))
    for name in ("betas", "gamma_start"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    return Experiment(**known(values, Experiment, "an experiment"))


def known(table: dict[str, Any], kind: Any, where: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """The table, if it has only names that `kind` has; else ValueError."""
    names = [f.name for f in fields(kind)] + list(also)
    for name in table:
        errors.choose(f"name in {where}", name, names)
    return table

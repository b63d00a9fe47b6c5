"""Recipes: which tensors training rounds, and how. All training code of mxnum reads a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from mxnum import errors, formats, units
from mxnum.formats import MXFormat
from mxnum.modes import Rounding, ScaleRule, scale_rules

__all__ = ["BFLOAT16", "FLOAT32", "OPERANDS", "Operand", "Recipe"]

#: The values of `Operand.error`.
ERRORS = ("quantize", "clamp", "random_sign", "one_sided", "shuffle", "grid")
#: The values of `Operand.transform`.
TRANSFORMS = ("hadamard",)


@dataclass(frozen=True)
class Operand:
    """The format, scale rule and rounding of one tensor in training. `Operand()` rounds nothing.

    Examples
    --------
    >>> print(Operand("mxfp4_e2m1", scale_rule="rceil"))
    mxfp4_e2m1 rceil
    """

    #: An MX format, "bfloat16", or None for no rounding.
    format: str | None = None
    #: A rule for the format's scales, or None for the format's default rule. "released_bump" is the
    #: rule in the code released with arXiv 2506.20752. That code takes maxima over the wrong axis.
    scale_rule: str | None = None
    rounding: str = "rne"
    #: The length of a block, or None for the format's block length.
    block_size: int | None = None
    #: How the error e = Q(x) - x of gamma and beta is applied, where Q(x) is x rounded to the
    #: format. Only `mxnum.lab.mlp` reads `error`. "quantize" replaces x by Q(x). "random_sign" adds
    #: e with a random sign for each element and step, so the error has no bias. "one_sided"
    #: replaces x by x - abs(e). "shuffle" permutes the errors among the features at each step.
    #: "clamp" clips x to the range of its block, without rounding. "grid" rounds x to a multiple of
    #: `step`, without blocks or scales.
    error: str = "quantize"
    step: float = 0.0
    #: If True, the error e of each layer is rescaled to the same root mean square as the error of
    #: the scale rule `floor` with rounding to nearest, in the same format. With "clamp", the
    #: magnitude at which x is clipped is chosen to give this root mean square.
    matched: bool = False
    #: The number of rows and of columns of a tile. Tiles replace blocks along the summed axis. With
    #: tiles, the forward and the backward product of a weight use the same rounded numbers.
    block_shape: tuple[int, int] | None = None
    #: None, or "hadamard", which multiplies blocks of 16 along the summed axis by an orthogonal
    #: matrix before quantizing. Both operands of a product use the same matrix, so the exact
    #: product does not change. Only `mxnum.torch` reads `transform`.
    transform: Literal["hadamard"] | None = None

    def __post_init__(self) -> None:
        given: Any = self.format
        if isinstance(given, MXFormat):
            object.__setattr__(self, "format", given.notation)
        rules = tuple(ScaleRule) if self.format in (None, "bfloat16") else scale_rules(formats.get(self.format))
        if self.scale_rule is None:
            object.__setattr__(self, "scale_rule", str(rules[0]))
        elif self.scale_rule != "released_bump":
            errors.choose_member("scale_rule", self.scale_rule, rules)
        errors.choose_member("rounding", self.rounding, Rounding)
        errors.choose("error", self.error, ERRORS)
        if self.format == "bfloat16" and self.rounding not in ("rne", "rna"):
            raise ValueError(f"Argument 'rounding' must be 'rne' or 'rna' for bfloat16, not {self.rounding!r}.")
        if self.block_size is not None:
            errors.positive_integer("block_size", self.block_size)
        if self.block_shape is not None:
            if self.block_size is not None:
                raise errors.exclusive("block_size", "block_shape")
            lengths = errors.block_lengths("block_shape", self.block_shape)
            errors.require(len(lengths) == 2, "block_shape", "two lengths", self.block_shape)
            object.__setattr__(self, "block_shape", lengths)
        if self.transform is not None:
            errors.choose("transform", self.transform, TRANSFORMS)
        if self.format in (None, "bfloat16"):
            usual = {"rounding": "rne", "scale_rule": str(rules[0]), "block_size": None, "block_shape": None}
            for name in usual if self.format is None else list(usual)[1:]:
                value = getattr(self, name)
                errors.require(value == usual[name], "format", f"an MX format if {name}={value!r}", self.format)

    @classmethod
    def of(cls, value: Any) -> Operand:
        """Return the operand that a user's argument describes.

        `value` is the name of a format, "float32", None, a mapping or an operand.

        >>> Operand.of("mxint8") == Operand.of({"format": "mxint8"}) == Operand("mxint8")
        True
        """
        if isinstance(value, Operand):
            return value
        if isinstance(value, Mapping):
            return cls(**errors.known_fields(dict(value), cls, "an operand"))
        accepted = value is None or isinstance(value, str | MXFormat)
        errors.require_type(accepted, "operand", "a format, 'float32', a mapping or an Operand", value)
        return cls() if value == "float32" else cls(value)

    @property
    def mx_format(self) -> MXFormat:
        """The `MXFormat` of the operand. An operand in float32 or bfloat16 raises ValueError."""
        if self.format in (None, "bfloat16"):
            raise ValueError(f"Operand {str(self)!r} has no MX format.")
        return formats.get(self.format)

    @property
    def is_mx(self) -> bool:
        """True if the operand is quantized to an MX format."""
        return self.format not in (None, "bfloat16") and self.error != "grid"

    def keywords(self, axis: int) -> dict[str, Any]:
        """Return the keywords with which `mxnum.quantize` rounds this operand along `axis`."""
        options: dict[str, Any] = {"rounding": self.rounding, "scale_rule": self.scale_rule}
        if self.block_shape is not None:
            return {**options, "block_shape": self.block_shape}
        return {**options, "axis": axis, "block_size": self.block_size}

    def __str__(self) -> str:
        if self.error == "grid":
            return f"multiples of {self.step:g}"
        parts = [self.format or "float32"]
        parts += [str(self.scale_rule)] * (self.scale_rule != Operand(self.format).scale_rule)
        parts += [self.rounding] * (self.rounding != "rne")
        parts += [f"blocks of {self.block_size}"] * (self.block_size is not None)
        if self.block_shape is not None:
            parts.append("tiles of {} x {}".format(*self.block_shape))
        parts += [self.transform] if self.transform else []
        return " ".join(parts + [self.error] * (self.error != "quantize") + ["of floor's size"] * self.matched)


def plain(operand: Operand) -> str | dict[str, Any]:
    """Return a string or a dictionary from which `Operand.of` makes this operand.

    If the operand sets nothing but its format, the result is the format's name, or "float32".
    """
    unusual = {"format": operand.format, **_unusual(operand, Operand(operand.format))}
    if set(unusual) == {"format"}:
        return str(operand.format or "float32")
    return {name: list(value) if isinstance(value, tuple) else value for name, value in unusual.items()}


FLOAT32 = Operand()
BFLOAT16 = Operand("bfloat16")


@dataclass(frozen=True)
class Recipe:
    """The tensors that training rounds, and how. `Recipe()` leaves all tensors in float32.

    The operands of a matrix product are quantized along the summed axis. The forward pass sums over
    the input features. The product for the weight's gradient sums over the batch. The product for
    the input's gradient sums over the output features.

    With `vector="bfloat16"` every operand of a product is first rounded to bfloat16. An operand
    with a format is then quantized. The results of products, of layer norm and of the activation
    function are rounded to bfloat16. Parameter gradients are rounded to bfloat16, too. The residual
    stream, the master weights and the loss stay float32.

    Examples
    --------
    >>> print(Recipe.uniform("mxfp8_e4m3", layer_norm="float32", scale_rule="rceil"))
    mxfp8_e4m3 rceil; gamma, beta float32
    """

    weights: Operand = FLOAT32
    activations: Operand = FLOAT32
    weights_backward: Operand = FLOAT32
    activations_backward: Operand = FLOAT32
    #: The output gradients in the backward pass. If `gradients_for_weights` is given, it replaces
    #: `gradients` in the product that gives the weight's gradient.
    gradients: Operand = FLOAT32
    gamma: Operand = FLOAT32
    beta: Operand = FLOAT32
    vector: Literal["float32", "bfloat16"] = "float32"
    #: The rounding of `vector`: "rne", or "rna" as in the code released with arXiv 2506.20752.
    vector_rounding: Literal["rne", "rna"] = "rne"
    #: True if `vector` also rounds the input and output of the activation function.
    round_activation: bool = True
    #: The output gradients in the product that gives the weight's gradient. None means `gradients`.
    gradients_for_weights: Operand | None = None
    #: The matrix unit whose sums of products are emulated; None for torch's own sums. The argument
    #: `accumulate` of `mxnum.torch` overrides `unit`. Only `mxnum.torch` reads `unit` and
    #: `unit_backward`.
    unit: str | None = None
    #: The matrix unit of the two products of the backward pass. None means the same unit as `unit`.
    unit_backward: str | None = None
    #: True if `vector` rounds the result of every step within layer norm, as in microxcaling; False
    #: if `vector` rounds only the input and the output of layer norm. Only `mxnum.torch` reads
    #: `vector_steps`.
    vector_steps: bool = False

    def __post_init__(self) -> None:
        errors.choose("vector", self.vector, ("float32", "bfloat16"))
        errors.choose("vector_rounding", self.vector_rounding, ("rne", "rna"))
        for name in ("round_activation", "vector_steps"):
            errors.require_type(isinstance(getattr(self, name), bool), name, "True or False", getattr(self, name))
        for name in OPERANDS:
            value = getattr(self, name)
            if name != "gradients_for_weights" or value is not None:
                object.__setattr__(self, name, Operand.of(value))
        for name in ("unit", "unit_backward"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, units.get(getattr(self, name)).name)
        for name in ("gamma", "beta"):
            transform = getattr(self, name).transform
            errors.require(transform is None, f"{name}.transform", f"None, because {name} is in no product", transform)
        for_weights = "gradients" if self.gradients_for_weights is None else "gradients_for_weights"
        for first, second in (*_TOGETHER, ("activations_backward", for_weights)):
            one, other = getattr(self, first), getattr(self, second)
            accepted = f"{one.transform!r}, the transform of {first!r} in the same product"
            errors.require(one.transform == other.transform, f"{second}.transform", accepted, other.transform)

    @classmethod
    def uniform(
        cls, format: str | MXFormat | None, *, layer_norm: Any = None, vector: str = "float32", **operand: Any
    ) -> Recipe:
        """Return a recipe with one format for weights, activations and gradients, in both passes.

        `layer_norm` is the operand for gamma and beta ("float32" for no rounding). By default gamma
        and beta have the same format as weights, activations and gradients. With
        ``vector="bfloat16"``, a `format` or `layer_norm` of "float32" means bfloat16. The remaining
        keywords are fields of `Operand`.
        """
        each = replace(Operand.of(format), **errors.known_fields(operand, Operand, "an operand"))
        rows = replace(each, block_shape=None, transform=None)
        affine = rows if layer_norm is None else Operand.of(layer_norm)
        return cls(each, each, each, each, each, affine, affine, vector=vector)  # type: ignore[arg-type]

    @classmethod
    def named(cls, name: str, format: str | MXFormat | None = None) -> Recipe:
        """Return the recipe of a paper or vendor. `name` is a key of `names()`.

        `format` replaces the format that the paper or vendor uses.
        """
        entry = NAMED[errors.choose("name", name, tuple(NAMED))]
        return entry.make(entry.format if format is None else format)

    @staticmethod
    def names() -> dict[str, str]:
        """Return the names of all named recipes, and the source of each."""
        return {name: entry.source for name, entry in NAMED.items()}

    @classmethod
    def of(cls, value: Any) -> Recipe:
        """Return the recipe that a user's argument describes.

        `value` is a key of `names()`, a format for all operands, a mapping or a recipe.

        >>> Recipe.of("mxfp4_e2m1") == Recipe.uniform("mxfp4_e2m1", layer_norm="float32")
        True
        """
        if isinstance(value, Recipe):
            return value
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        accepted = isinstance(value, str | MXFormat)
        errors.require_type(accepted, "recipe", "a Recipe, a name, a format or a mapping", value)
        if isinstance(value, str) and value in cls.names():
            return cls.named(value)
        is_name = isinstance(value, str) and ":" not in value
        if is_name and formats.find("recipe", value, formats.names()) is None:
            errors.choose("recipe", value, (*cls.names(), *formats.names()))
        return cls.uniform(value, layer_norm=FLOAT32)

    def but(self, **changes: Any) -> Recipe:
        """Return a copy of the recipe with changed fields.

        >>> Recipe.uniform("mxfp8_e4m3").but(gradients="mxfp8_e5m2").gradients.format
        'mxfp8_e5m2'
        """
        return replace(self, **errors.known_fields(changes, Recipe, "a recipe"))

    def forward_only(self) -> Recipe:
        """Return a copy with a backward pass in float32, or in bfloat16 if `vector` is bfloat16."""
        none = dict.fromkeys(("weights_backward", "activations_backward", "gradients"), FLOAT32)
        return self.but(**none, gradients_for_weights=None)

    def weights_only(self) -> Recipe:
        """Return a recipe that rounds only the weights of products, in the same way as `self`."""
        return Recipe(weights=self.weights, weights_backward=self.weights_backward)

    def __str__(self) -> str:
        """Return one line that describes the recipe. Operands with equal rounding form one group.

        >>> print(Recipe.named("bfloat16"))
        bfloat16; vector operations in bfloat16
        """
        groups: dict[str, list[str]] = {}
        for name in OPERANDS:
            value = getattr(self, name)
            if value is not None:
                is_half = value != FLOAT32 and getattr(self, f"{name}_backward", value) == FLOAT32
                if value.format is None and value.error != "grid" and self.vector == "bfloat16":
                    value = replace(value, format="bfloat16", rounding=self.vector_rounding)
                groups.setdefault(str(value), []).append(name.replace("_", " ") + " (forward only)" * is_half)
        (first, _), *others = sorted(groups.items(), key=lambda group: -len(group[1]))
        words = [first] + [f"{', '.join(names)} {what}" for what, names in others]
        if self.vector != "float32":
            words.append("vector operations in bfloat16" + " rna" * (self.vector_rounding == "rna"))
        if self.unit is not None:
            words.append(f"sums of {self.unit}" + f", backward of {self.unit_backward}" * bool(self.unit_backward))
        return "; ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from the default, as values that JSON and TOML can store.

        An operand that sets nothing but a format is stored as the format's name.
        """
        unusual = _unusual(self, Recipe())
        return {name: plain(value) if isinstance(value, Operand) else value for name, value in unusual.items()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Recipe:
        """Return the recipe that a table from `to_dict` describes.

        For each operand, the table holds either the name of a format or another table. The key
        ``uniform`` sets all operands.

        >>> print(Recipe.from_dict({"uniform": "mxfp8_e4m3", "gamma": "float32", "beta": "float32"}))
        mxfp8_e4m3; gamma, beta float32
        """
        errors.require_type(isinstance(table, Mapping), "table", "a mapping", table)
        values = errors.known_fields(dict(table), cls, "a recipe", ("uniform",))
        uniform = values.pop("uniform", None)
        base = cls() if uniform is None else cls.uniform(**_fields(Operand.of(uniform)))
        for name in set(values) & set(OPERANDS):
            values[name] = Operand.of(values[name])
        return base.but(**values)


#: The fields of a recipe that are operands.
OPERANDS = (
    "weights", "activations", "weights_backward", "activations_backward", "gradients", "gradients_for_weights",
    "gamma", "beta",
)  # fmt: skip
#: Pairs of operands that are multiplied with each other and so need the same transform.
_TOGETHER = (
    ("weights", "activations"),
    ("weights_backward", "gradients"),
)


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _unusual(value: Any, usual: Any) -> dict[str, Any]:
    return {name: given for name, given in _fields(value).items() if given != getattr(usual, name)}


# Recipes that papers and vendors use, with their sources.

Format = str | MXFormat


class Named(NamedTuple):
    """A named recipe: a function that makes the recipe for a format, and facts about the recipe."""

    make: Callable[[Format], Recipe]
    #: The format that the paper or program uses.
    format: str
    #: The paper or program from which the recipe comes, and what the recipe does.
    source: str


def _microxcaling(format: Format) -> Recipe:
    """Make microxcaling's recipe.

    Ties are rounded away from zero everywhere (microxcaling's `round="nearest"`). Vector
    operations, gamma and beta are in bfloat16.
    """
    affine = Operand("bfloat16", rounding="rna")
    recipe = Recipe.uniform(format, rounding="rna", layer_norm=affine, vector="bfloat16")
    return recipe.but(vector_rounding="rna", vector_steps=True)


def _nvidia_nvfp4(format: Format) -> Recipe:
    """Make NVIDIA's recipe for NVFP4.

    Each tile of 16 x 16 weights has one scale. Gradients are rounded stochastically. A Hadamard
    transform is applied to both operands of the product that computes the weight's gradient.
    """
    weights, along = Operand.of({"format": format, "block_shape": (16, 16)}), Operand.of({"format": format})
    turned = Operand.of({"format": format, "transform": "hadamard"})
    stochastic = Operand.of({"format": format, "rounding": "sr"})
    turned_too = Operand.of({"format": format, "rounding": "sr", "transform": "hadamard"})
    return Recipe(weights, along, weights, turned, stochastic, gradients_for_weights=turned_too)


#: The shape of a tile that is larger than any tensor, so that each tensor has one scale.
_WHOLE = (1 << 30, 1 << 30)


def _hopper_fp8(format: Format) -> Recipe:
    """Make the recipe of FP8 training on Hopper GPUs: each tensor has one scale.

    Gradients are E5M2. The products of the backward pass add partial sums in float32, like
    TransformerEngine with use_split_accumulator.
    """
    of_gradients = "e5m2:scale=float32" if format == _FP8 else format
    forward, backward = (Operand.of({"format": f, "block_shape": _WHOLE}) for f in (format, of_gradients))
    recipe = Recipe(forward, forward, forward, forward, backward, unit="hopper_fp8")
    return recipe.but(unit_backward="hopper_fp8_promoted")


def _deepseek_v3(format: Format) -> Recipe:
    """Make DeepSeek-V3's recipe.

    Each block of 1 x 128 activations or gradients has one scale. Each tile of 128 x 128 weights has
    one scale.
    """
    weights, rows = Operand.of({"format": format, "block_shape": (128, 128)}), Operand.of(format)
    return Recipe(weights, rows, weights, rows, rows, unit="hopper_fp8_promoted")


_FP8 = "e4m3:scale=float32"
NAMED = {
    "float32": Named(lambda _: Recipe(), "mxfp8_e4m3", "Nothing is rounded."),
    "bfloat16": Named(
        lambda _: Recipe(gamma=BFLOAT16, beta=BFLOAT16, vector="bfloat16"),
        "mxfp8_e4m3",
        "The baseline of arXiv 2506.20752: operands and results of products, and vector operations, are in bfloat16.",
    ),
    "uniform": Named(
        lambda format: Recipe.uniform(format, vector="bfloat16"),
        "mxfp8_e4m3",
        "arXiv 2506.20752: all operands, including gamma and beta, are in one format; vector operations are in "
        "bfloat16.",
    ),
    "forward only": Named(
        lambda format: Recipe.uniform(format, vector="bfloat16").forward_only(),
        "mxfp8_e4m3",
        "The first mitigation of arXiv 2506.20752: gradients are not quantized.",
    ),
    "bfloat16 activations": Named(
        lambda format: Recipe(Operand.of(format), weights_backward=Operand.of(format), vector="bfloat16"),
        "mxfp8_e4m3",
        "The second mitigation of arXiv 2506.20752: activations, gradients and layer norm are in bfloat16.",
    ),
    "weights only": Named(
        lambda format: Recipe.uniform(format).weights_only(),
        "mxfp4_e2m1",
        "Only weights are rounded, as for inference with formats such as MXFP4 in gpt-oss.",
    ),
    "microxcaling": Named(
        _microxcaling,
        "mxfp8_e4m3",
        "microsoft/microxcaling with bfloat=16, block_size=32 and its default rounding, ties away from zero.",
    ),
    "torchao mxfp8": Named(
        lambda format: Recipe.uniform(format, layer_norm=FLOAT32, scale_rule="rceil"),
        "mxfp8_e4m3",
        "torchao.prototype.moe_training.mxfp8_linear (0.18): ScaleCalculationMode.RCEIL, E4M3 in all three products.",
    ),
    "nvidia mxfp8": Named(
        lambda format: Recipe.uniform(format, layer_norm=FLOAT32, scale_rule="rceil"),
        "mxfp8_e4m3",
        "TransformerEngine's MXFP8BlockScaling and arXiv 2506.08027: E4M3 everywhere, scales rounded up.",
    ),
    "nvidia nvfp4": Named(
        _nvidia_nvfp4,
        "nvfp4",
        "TransformerEngine's NVFP4BlockScaling and arXiv 2509.25149: weights in tiles of 16 x 16, gradients "
        "rounded stochastically, Hadamard transforms (size 16, fixed signs) before products for weight gradients.",
    ),
    "hopper fp8": Named(
        _hopper_fp8,
        _FP8,
        "TransformerEngine's Float8CurrentScaling on Hopper: E4M3, gradients in E5M2, a float32 scale for each tensor. "
        "Sums as in the unit hopper_fp8 (backward pass: hopper_fp8_promoted). Assumption: scales are rounded to "
        "nearest.",
    ),
    "deepseek v3": Named(
        _deepseek_v3,
        "e4m3:block=128,scale=float32",
        "DeepSeek-V3 (arXiv 2412.19437) and DeepGEMM: E4M3, a float32 scale for each 1 x 128 activations or gradients "
        "and for each 128 x 128 weights. Sums as in the unit hopper_fp8_promoted: total = fma(scale * scale, "
        "accumulator, total). Assumption: nvcc compiles the multiplication and the addition to this fma.",
    ),
    "blackwell mxfp8": Named(
        lambda format: Recipe.uniform(format, layer_norm=FLOAT32, scale_rule="rceil").but(unit="blackwell_mxfp8"),
        "mxfp8_e4m3",
        "'nvidia mxfp8' with sums as in the unit blackwell_mxfp8. Assumption: instructions add in index order along K.",
    ),
    "blackwell nvfp4": Named(
        lambda format: _nvidia_nvfp4(format).but(unit="blackwell_nvfp4"),
        "nvfp4",
        "'nvidia nvfp4' with sums as in the unit blackwell_nvfp4. Assumption: tensor scales multiply the result in "
        "float32.",
    ),
}

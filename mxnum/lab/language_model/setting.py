"""Define the settings of a language model and its training, which are stored with every result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from mxnum import errors
from mxnum.lab.configuration import check_fields
from mxnum.recipe import Recipe


@dataclass(frozen=True)
class Setting:
    """All settings of a training run except its seed.

    By default, the model has the activation, norms and positions of OLMo, as in Su et al. (arXiv
    2506.20752).
    """

    # The source.
    source: Literal["markov", "text"] = "markov"
    #: The text file of the source "text". With a vocabulary of 256 the symbols are the text's
    #: bytes; a larger vocabulary adds the commonest byte pairs of the text.
    text: str = ""
    vocabulary: int = 64
    #: For "markov": the previous `order` symbols determine which `choices` symbols can come next.
    #: The probabilities of these choices form a geometric series with factor `ratio`.
    order: int = 1
    choices: int = 4
    ratio: float = 1.0
    #: The number of classes of words; a word is a sequence of `order` symbols. All words of a class
    #: have the same possible next symbols (`sources.Markov`). With 0 classes, a hash of each word
    #: selects the `choices` symbols that can come next. A model needs fewer steps to learn fewer
    #: classes.
    classes: int = 0
    source_seed: int = 0

    # The model.
    width: int = 64
    layers: int = 2
    heads: int = 2
    activation: Literal["gelu", "swiglu"] = "gelu"
    #: The hidden width of the MLP divided by `width`. SwiGLU uses 2/3 of this hidden width, rounded
    #: up to a multiple of 32.
    expansion: int = 4
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    #: True for rotary positions; otherwise the model learns a vector for each position.
    rope: bool = True
    #: True to normalize queries and keys.
    qk_norm: bool = True
    #: The initial distribution of weights: normal with standard deviation `start_deviation`, or
    #: uniform between ±1 / sqrt(inputs).
    start: Literal["normal", "fan_in"] = "normal"
    start_deviation: float = 0.02

    # The training. The loss is the mean over the `sequences` x `context` tokens of a step.
    context: int = 64
    sequences: int = 32
    steps: int = 1000
    #: AdamW, or stochastic gradient descent (SGD) with momentum `beta1`. SGD ignores `beta2` and
    #: `epsilon`, and needs other learning rates than AdamW.
    optimizer: Literal["adamw", "sgd"] = "adamw"
    rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-15
    weight_decay: float = 0.0
    clip: float = 1.0
    schedule: Literal["cosine", "constant"] = "cosine"
    #: `warm_up` is the share of the steps in which the learning rate rises. `last_rate` is the
    #: final learning rate of the cosine schedule, as a share of `rate`.
    warm_up: float = 0.1
    last_rate: float = 0.1
    label_smoothing: float = 0.0

    # Rounding.
    #: A `Recipe`, or the name of a recipe.
    recipe: Recipe = field(default_factory=Recipe)
    #: The parts of the model that the recipe rounds: all linear and norm layers; only the last
    #: layer, which makes the logits; all layers but the last; only the products of attention; or
    #: only the embedding.
    where: Literal["all", "last", "not_last", "attention", "embedding"] = "all"
    #: True to round the products of attention too, if `where` is "all" or "not_last".
    attention: bool = False
    #: The loss is multiplied by this factor before the backward pass, and the gradients of the
    #: parameters are divided by the factor after the pass.
    factor: float = 1.0
    #: True to subtract the mean over the vocabulary from the rounded gradient of the logits.
    #: `centred` requires a recipe that rounds only gradients, and `where="last"`.
    centred: bool = False

    # Each of `centred`, `centred_weight` and `z_loss` prevents all logits from drifting together.
    #: True to subtract the mean row from the last layer's weight after each optimizer step
    #: (`mxnum.torch.center_output_weights`).
    centred_weight: bool = False
    #: The weight of the z-loss in the training loss. The z-loss is the mean over tokens of the
    #: squared log-sum-exp of the logits; recorded losses do not include the z-loss.
    z_loss: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, from_zero=("source_seed", "classes"))
        for name in ("rate", "factor", "ratio", "epsilon", "clip", "start_deviation"):
            errors.require(getattr(self, name) > 0, name, "positive", getattr(self, name))
        errors.require(self.z_loss >= 0, "z_loss", "0 or positive", self.z_loss)
        for name in ("beta1", "beta2", "warm_up", "last_rate", "label_smoothing"):
            errors.require(0 <= getattr(self, name) <= 1, name, "between 0 and 1", getattr(self, name))
        errors.require(self.width % (2 * self.heads) == 0, "width", f"a multiple of {2 * self.heads}", self.width)
        errors.require(2 <= self.vocabulary <= 65536, "vocabulary", "from 2 to 65536", self.vocabulary)
        if self.source == "text":
            errors.require(bool(self.text), "text", "the path of a file", self.text)
        elif self.source == "markov":
            accepted = f"at most the vocabulary, {self.vocabulary}"
            errors.require(self.choices <= self.vocabulary, "choices", accepted, self.choices)
            errors.require(self.classes <= self.vocabulary, "classes", accepted, self.classes)
            errors.require(self.order <= self.context, "order", f"at most the context, {self.context}", self.order)
        if self.centred:
            alone = Recipe(gradients=self.recipe.gradients, gradients_for_weights=self.recipe.gradients_for_weights)
            fits = self.where == "last" and self.recipe == alone
            errors.require(fits, "centred", "False unless only the gradients of the last layer are rounded", True)

    @property
    def tokens(self) -> int:
        """The number of tokens in a step, N."""
        return self.sequences * self.context

    @property
    def hidden(self) -> int:
        """The hidden width of the MLP."""
        if self.activation == "swiglu":
            return -(-round(2 * self.expansion * self.width / 3) // 32) * 32
        return self.expansion * self.width

    def but(self, **changes: Any) -> Setting:
        """Return a copy in which the given fields have new values.

        >>> print(Setting().but(recipe="mxfp8_e4m3", where="last").recipe)
        mxfp8_e4m3; gamma, beta float32
        """
        return replace(self, **errors.known_fields(changes, Setting, "a setting"))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for JSON; `from_dict` is the inverse."""
        table = {f.name: getattr(self, f.name) for f in fields(self)}
        return table | {"recipe": self.recipe.to_dict()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Setting:
        """Return the setting with the given field values; missing fields have their defaults.

        >>> Setting.from_dict(Setting(width=128).to_dict()) == Setting(width=128)
        True
        """
        kept = {name: value for name, value in table.items() if name != "states"}  # stored by version 0.2
        return cls(**errors.known_fields(kept, Setting, "a setting"))

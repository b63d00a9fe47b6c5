"""What a language model and its training are: frozen, comparable, and stored beside every result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from mxnum import errors
from mxnum.lab.configuration import check_fields
from mxnum.recipe import Recipe


@dataclass(frozen=True)
class Setting:
    """All settings of a training run except its seed. The default block is OLMo's (Su et al., arXiv 2506.20752)."""

    # What is read.
    source: Literal["markov", "hidden_markov", "text"] = "markov"
    #: A text file, for "text". A vocabulary of 256 is its bytes; more are pairs, learnt on the text itself.
    text: str = ""
    vocabulary: int = 64
    #: Symbols before it that a symbol depends on ("markov"), how many may come, and the ratio of their probabilities.
    order: int = 1
    choices: int = 4
    ratio: float = 1.0
    #: Classes of words that have the same choices: the fewer, the sooner they are learnt; 0: each word has its own.
    classes: int = 0
    #: Hidden states ("hidden_markov").
    states: int = 8
    source_seed: int = 0

    # The model.
    width: int = 64
    layers: int = 2
    heads: int = 2
    activation: Literal["gelu", "swiglu"] = "gelu"
    #: The hidden width is this times the width; for SwiGLU 2/3 of that, rounded to a multiple of 32.
    expansion: int = 4
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    #: Rotary positions; without them a vector for each position is learnt.
    rope: bool = True
    #: Queries and keys are normalized.
    qk_norm: bool = True
    #: Weights start from a normal distribution with `start_deviation`, or uniformly up to 1 / sqrt(inputs).
    start: Literal["normal", "fan_in"] = "normal"
    start_deviation: float = 0.02

    # The training. A step has `sequences` x `context` tokens, over which the loss is a mean.
    context: int = 64
    sequences: int = 32
    steps: int = 1000
    #: AdamW, or stochastic gradient descent whose momentum is `beta1`; it has no `beta2` and no `epsilon`, and needs
    #: other rates.
    optimizer: Literal["adamw", "sgd"] = "adamw"
    rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-15
    weight_decay: float = 0.0
    clip: float = 1.0
    schedule: Literal["cosine", "constant"] = "cosine"
    #: Shares: of the steps in which the rate rises, and of the rate that is left at the end of the cosine.
    warm_up: float = 0.1
    last_rate: float = 0.1
    label_smoothing: float = 0.0

    # What is rounded.
    #: A `Recipe`, or what names one.
    recipe: Recipe = field(default_factory=Recipe)
    #: What has the recipe: all linear and norm layers, the last alone, which makes the logits, all but that; or nothing
    #: but the products of attention, or the embedding.
    where: Literal["all", "last", "not_last", "attention", "embedding"] = "all"
    #: Whether the products of attention have it, too, with "all" and "not_last".
    attention: bool = False
    #: The loss is multiplied by it before the backward pass, and the gradients of the parameters are divided by it.
    factor: float = 1.0
    #: Subtract from the rounded gradient of the logits its mean over the vocabulary. Only where the recipe rounds
    #: nothing but the gradients of the last layer.
    centred: bool = False

    # What else may keep all logits from drifting together.
    #: After each optimizer step the last layer's weight loses its mean row (`mxnum.torch.center_output_weights`).
    centred_weight: bool = False
    #: This times the mean square of log sum exp of a token's logits is added to the loss that is trained on; `losses`
    #: and the loss at the end are without it.
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
        """N, the tokens of a step."""
        return self.sequences * self.context

    @property
    def hidden(self) -> int:
        """The width within the MLP."""
        if self.activation == "swiglu":
            return -(-round(2 * self.expansion * self.width / 3) // 32) * 32
        return self.expansion * self.width

    def but(self, **changes: Any) -> Setting:
        """A copy with other values.

        >>> print(Setting().but(recipe="mxfp8_e4m3", where="last").recipe)
        mxfp8_e4m3; gamma, beta float32
        """
        return replace(self, **errors.known_fields(changes, Setting, "a setting"))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `from_dict` is the inverse."""
        table = {f.name: getattr(self, f.name) for f in fields(self)}
        return table | {"recipe": self.recipe.to_dict()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Setting:
        """A setting from plain values; what is left out has its default.

        >>> Setting.from_dict(Setting(width=128).to_dict()) == Setting(width=128)
        True
        """
        return cls(**errors.known_fields(dict(table), Setting, "a setting"))

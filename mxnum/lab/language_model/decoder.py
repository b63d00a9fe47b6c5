"""Define a small decoder, and the loop that trains the decoder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import mxnum.torch as mxt
from mxnum.lab import storage
from mxnum.lab.interruptions import Interruptions
from mxnum.lab.language_model.measurements import centring, errors_of, measured, operands_of
from mxnum.lab.language_model.setting import Setting
from mxnum.lab.language_model.sources import EVALUATION, START, TRAINING, generator, source_of
from mxnum.lab.torch_threads import one_thread
from mxnum.output.files import written_whole
from mxnum.recipe import Operand

Tensor = Any
#: The number of batches in the final evaluation. Runs with the same seed use the same evaluation
#: batches.
BATCHES = 16


# The model.


def norm(kind: str, width: int) -> nn.Module:
    """Return a norm layer with a weight but no bias, as in the language models of Su et al."""
    return nn.LayerNorm(width, bias=False) if kind == "layer_norm" else nn.RMSNorm(width, eps=1e-5)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer without a bias."""
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """Causal attention. The setting can add rotary positions and query-key normalization."""

    def __init__(self, setting: Setting):
        super().__init__()
        self.heads, each = setting.heads, setting.width // setting.heads
        self.qkv, self.out = linear(setting.width, 3 * setting.width), linear(setting.width, setting.width)
        self.norm_q, self.norm_k = (norm(setting.norm, each) if setting.qk_norm else nn.Identity() for _ in range(2))
        self.rope = setting.rope
        speeds = 10_000.0 ** -(torch.arange(0, each, 2) / each)
        angles = torch.arange(setting.context)[:, None] * speeds
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply attention to x; x and the result have the shape (sequences, context, width)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.turned(self.norm_q(q)), self.turned(self.norm_k(k))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))

    def turned(self, x: Tensor) -> Tensor:
        """Return x with each pair of features rotated by an angle that grows with the position."""
        if not self.rope:
            return x
        first, second = x.chunk(2, -1)
        length = x.shape[-2]
        return x * self.cos[:length] + torch.cat([-second, first], -1) * self.sin[:length]


class Perceptron(nn.Module):
    """A perceptron of two layers with GELU, or of three layers with SwiGLU."""

    def __init__(self, setting: Setting):
        super().__init__()
        self.up, self.down = linear(setting.width, setting.hidden), linear(setting.hidden, setting.width)
        self.gate = linear(setting.width, setting.hidden) if setting.activation == "swiglu" else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the perceptron to each position."""
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention, followed by a perceptron.

    Both read the normalized residual stream, and add their output to the stream.
    """

    def __init__(self, setting: Setting):
        super().__init__()
        self.norm_attention, self.attention = norm(setting.norm, setting.width), Attention(setting)
        self.norm_mlp, self.mlp = norm(setting.norm, setting.width), Perceptron(setting)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to the residual stream."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Decoder(nn.Module):
    """A decoder from symbols to logits; its embedding and last layer share no weights."""

    def __init__(self, setting: Setting, vocabulary: int, seed: int = 0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, setting.width)
        positions = torch.zeros(0 if setting.rope else setting.context, setting.width)
        self.positions = nn.Parameter(positions, requires_grad=not setting.rope)
        self.blocks = nn.ModuleList(Block(setting) for _ in range(setting.layers))
        self.norm, self.head = norm(setting.norm, setting.width), linear(setting.width, vocabulary)
        self.start(setting, seed)

    def start(self, setting: Setting, seed: int) -> None:
        """Draw the initial matrices; the weights of norms stay 1."""
        random = torch.Generator().manual_seed(int(generator(seed, [START]).integers(1 << 62)))
        for parameter in self.parameters():
            if parameter.ndim == 2 and parameter.numel():
                reach = 1 / math.sqrt(parameter.shape[1])
                if setting.start == "normal":
                    nn.init.normal_(parameter, std=setting.start_deviation, generator=random)
                else:
                    nn.init.uniform_(parameter, -reach, reach, generator=random)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return logits (sequences, context, vocabulary) for symbols (sequences, context)."""
        x = self.embedding(symbols)
        if self.positions.shape[0]:
            x = x + self.positions[: symbols.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def emulated(model: Decoder, setting: Setting, seed: int) -> mxt.Emulation:
    """Return an emulation that applies the setting's recipe to the setting's layers."""
    products, recipe, where = "blocks.*.attention", setting.recipe, setting.where
    recipes: dict[str, Any] = {"embedding": None, "*": recipe}
    if where == "not_last":
        recipes = {"head": None} | recipes
    elif where != "all":
        recipes = {{"last": "head", "attention": products, "embedding": "embedding"}[where]: recipe, "*": None}
    attends = where == "attention" or (setting.attention and where in ("all", "not_last"))
    return mxt.emulate(model, recipes, attention=products if attends else (), seed=seed)


# The training.


@dataclass
class Run:
    """The history of one training run: losses, measurements and final evaluation."""

    seed: int
    setting: Setting
    losses: list[float] = field(default_factory=list)
    #: The steps at which measurements were made, and the results of `measurements.measured` and
    #: `measurements.errors_of` at these steps.
    measured_at: list[int] = field(default_factory=list)
    measured: dict[str, list[Any]] = field(default_factory=dict)
    #: The final loss on new batches, averaged over the symbols with at least `order` symbols before
    #: them.
    evaluation: float = math.nan
    #: The lower and the upper bound of the source's entropy in nats; None if they are unknown.
    entropy: tuple[float, float] | None = None
    #: For texts, the mean number of bytes per symbol. A loss divided by this number is in nats per
    #: byte.
    bytes_per_symbol: float | None = None
    model: Decoder | None = None

    def save(self, directory: Path) -> None:
        """Write `seed-N.npz` (losses, measurements), then `seed-N.json` (settings, results)."""
        arrays = {f"measured_{name}": np.stack(values) for name, values in self.measured.items()}
        arrays |= {"losses": np.asarray(self.losses), "measured_at": np.asarray(self.measured_at, np.int64)}
        storage.write_arrays(directory / f"seed-{self.seed}.npz", arrays)
        table = {
            "seed": self.seed, "diverged": None, "steps": len(self.losses), "evaluation": self.evaluation,
            "entropy": self.entropy, "bytes_per_symbol": self.bytes_per_symbol, "setting": self.setting.to_dict(),
            "environment": storage.environment() | {"torch": torch.__version__},
        }  # fmt: skip
        storage.write_json(directory / f"seed-{self.seed}.json", table)


def train(
    setting: Setting,
    seed: int,
    *,
    measure_every: int = 0,
    checkpoint: Path | None = None,
    checkpoint_every: int = 500,
    checkpoint_seconds: float = 120,
    report: Callable[[int, float], None] | None = None,
    device: str = "cpu",
) -> Run:
    """Train a decoder. On the CPU, a resumed run gives the same bits as an uninterrupted run.

    Training on the CPU uses one thread.

    Runs with the same seed are paired: their initial weights and batches depend on the seed, the
    source and the shape of the model, not on the recipe.

    Parameters
    ----------
    measure_every
        The number of steps from one measurement to the next; 0 means no measurements. A measurement
        covers the rounding errors of the operands and the gradient of the logits.
    checkpoint
        The path of the checkpoint file. If the file exists, training continues from it. Training
        writes the file every `checkpoint_every` steps, every `checkpoint_seconds` seconds and
        before an interruption. At the end, training deletes the file.
    report
        A function that is called after each step with the number of steps so far and the loss of
        the step.
    device
        "cpu" or "cuda". Initial weights and batches do not depend on the device, because they are
        drawn on the CPU.
    """
    source, run = source_of(setting), Run(seed, setting)
    run.entropy, run.bytes_per_symbol = source.entropy, getattr(source, "bytes_per_symbol", None)
    model = run.model = Decoder(setting, source.vocabulary, seed).to(device)
    emulation = emulated(model, setting, seed)
    measured_steps = range(0, setting.steps, measure_every) if measure_every > 0 else range(0)
    watch = mxt.watch(model, steps=[step + 1 for step in measured_steps])  # `watch` counts steps from 1
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(setting, parameters)

    def batch(what: int, index: int) -> Tensor:
        random = generator(seed, [what, index])
        symbols = source.batch(random, setting.sequences, setting.context + 1, held_out=what == EVALUATION)
        return torch.from_numpy(symbols).to(device)

    saved, around = time.monotonic(), mxt.rounding_by(centring) if setting.centred else nullcontext()
    with one_thread(), around, Interruptions() as interruptions:
        if checkpoint is not None and checkpoint.exists():
            load(checkpoint, run, optimizer, emulation)
        for step in range(len(run.losses), setting.steps):
            symbols = batch(TRAINING, step)
            logits, targets = model(symbols[:, :-1]), symbols[:, 1:].flatten()
            measures = step in measured_steps
            if measures:
                logits.retain_grad()
            loss = functional.cross_entropy(logits.flatten(0, 1), targets, label_smoothing=setting.label_smoothing)
            optimizer.zero_grad()
            ((loss + penalty_of(setting, logits)) * setting.factor).backward()
            for parameter in parameters:
                parameter.grad /= setting.factor
            nn.utils.clip_grad_norm_(parameters, setting.clip)
            if measures:
                run.measured_at.append(step)
                seen = measured(logits, targets, model.head, gradient_of_logits(setting))
                for name, value in (seen | errors_of(watch.rows(), emulation.step)).items():
                    run.measured.setdefault(name, []).append(value)
            for group in optimizer.param_groups:
                group["lr"] = rate_at(setting, step)
            optimizer.step()
            if setting.centred_weight:
                mxt.center_output_weights(model, "head")
            run.losses.append(loss.item())
            if report is not None:
                report(step + 1, run.losses[-1])
            is_due = (step + 1) % checkpoint_every == 0 or time.monotonic() - saved >= checkpoint_seconds
            if checkpoint is not None and (is_due or interruptions.waiting):
                save(checkpoint, run, optimizer, emulation)
                saved = time.monotonic()
            interruptions.deliver()
        watch.stop()
        model.eval()
        with torch.no_grad():
            found = [evaluated(model, batch(EVALUATION, index), source.order) for index in range(BATCHES)]
        run.evaluation = float(np.mean(found))
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return run


def operands_at_the_end(run: Run) -> dict[str, Any]:
    """Return the linear layers' operands in the trained model, on the first evaluation batch."""
    assert run.model is not None
    source, setting, model = source_of(run.setting), run.setting, run.model
    random = generator(run.seed, [EVALUATION, 0])
    symbols = torch.from_numpy(source.batch(random, setting.sequences, setting.context + 1, held_out=True))
    symbols = symbols.to(next(model.parameters()).device)

    def loss() -> Tensor:
        return functional.cross_entropy(model(symbols[:, :-1]).flatten(0, 1), symbols[:, 1:].flatten())

    return operands_of(model, loss)


def gradient_of_logits(setting: Setting) -> Operand:
    """Return the format, scale rule and rounding of the gradient of the logits."""
    return setting.recipe.gradients if setting.where in ("all", "last") else Operand()


def penalty_of(setting: Setting, logits: Tensor) -> Tensor | float:
    """Return the z-loss, which keeps the log sum exp of each token's logits near zero."""
    return setting.z_loss * logits.logsumexp(-1).square().mean() if setting.z_loss else 0.0


def optimizer_of(setting: Setting, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of a setting; `train` sets the learning rate at each step."""
    rate, decay = setting.rate, setting.weight_decay
    if setting.optimizer == "sgd":
        return torch.optim.SGD(parameters, rate, setting.beta1, weight_decay=decay)
    return torch.optim.AdamW(parameters, rate, (setting.beta1, setting.beta2), setting.epsilon, decay, fused=True)


def rate_at(setting: Setting, step: int) -> float:
    """Return the learning rate of a step: a linear warm-up, then a constant or a cosine decay."""
    rising = max(1, round(setting.warm_up * setting.steps))
    if step < rising:
        return setting.rate * (step + 1) / rising
    if setting.schedule == "constant":
        return setting.rate
    share = (step - rising) / max(1, setting.steps - rising)
    return setting.rate * (setting.last_rate + (1 - setting.last_rate) * (1 + math.cos(math.pi * share)) / 2)


def evaluated(model: Decoder, symbols: Tensor, order: int) -> float:
    """Return the mean loss over the symbols with at least `order` symbols before them."""
    first = max(order - 1, 0)
    logits = model(symbols[:, :-1])[:, first:]
    return float(functional.cross_entropy(logits.flatten(0, 1), symbols[:, 1 + first :].flatten()))


def save(path: Path, run: Run, optimizer: Any, emulation: mxt.Emulation) -> None:
    """Write the checkpoint that `load` reads."""
    assert run.model is not None
    measured = {name: torch.from_numpy(np.stack(values)) for name, values in run.measured.items()}
    about = json.dumps({"setting": run.setting.to_dict(), "seed": run.seed})
    state = {
        "model": run.model.state_dict(), "optimizer": optimizer.state_dict(), "emulation": emulation.state_dict(),
        "losses": run.losses, "measured_at": run.measured_at, "measured": measured, "about": about,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        torch.save(state, partial)


def load(path: Path, run: Run, optimizer: Any, emulation: mxt.Emulation) -> None:
    """Restore a checkpoint of the same setting and seed into a new run."""
    assert run.model is not None
    state = torch.load(path, weights_only=True, map_location=next(run.model.parameters()).device)
    about = json.loads(state.get("about", "{}"))  # checkpoints of version 0.2 lack the entry "about"
    if about and (Setting.from_dict(about["setting"]).to_dict(), about["seed"]) != (run.setting.to_dict(), run.seed):
        raise ValueError(
            f"The checkpoint {str(path)!r} was made with another setting or seed; remove it, rename the arm, or use "
            "another folder."
        )
    run.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    emulation.load_state_dict(state["emulation"])
    run.losses, run.measured_at = state["losses"], state["measured_at"]
    run.measured = {name: list(values.cpu().numpy()) for name, values in state["measured"].items()}

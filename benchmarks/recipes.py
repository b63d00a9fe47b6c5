"""Time a training step of a small Llama and of a small GPT-2 under every recipe."""

from __future__ import annotations

import copy
from typing import Any

from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "What does each recipe cost in a training step?"
TEXT = """A small Llama and a small GPT-2 of transformers (4 layers, d = 128, 4 heads, random weights; 4 sequences
of 256 tokens), with attention emulated. The baseline is the same step in float32: forward, loss and gradients,
without the optimizer. Each recipe of `mxnum.Recipe.names()` is measured in alternation with the baseline. *nvfp4,
gradients sr* is "nvfp4" with stochastically rounded gradients."""

_LIMITS = {"mxfp8_e4m3": 1.3, "nvfp4, gradients sr": 1.7}


def measure(session: Session) -> Cells:
    """Yield the cells of the table: the times of each model under each recipe."""
    table = Table("recipes_step", "A training step", "× the step in float32")
    try:
        import torch
        import transformers
    except ModuleNotFoundError as problem:
        yield table, Measurement("any", "Llama", skipped=f"{problem.name} is not installed")
        return
    import mxnum as mx
    import mxnum.torch as mxt

    torch.manual_seed(session.seed)
    stochastic = {"uniform": "nvfp4", "gradients": {"format": "nvfp4", "rounding": "sr"}}
    recipes = {
        "mxfp8_e4m3": "mxfp8_e4m3", "mxfp4_e2m1": "mxfp4_e2m1", "nvfp4": "nvfp4", "nvfp4, gradients sr": stochastic,
        **{name: name for name in mx.Recipe.names()},
    }  # fmt: skip
    for column, plain, attention in _models(transformers):
        symbols = torch.randint(512, (4, 256))
        baseline = _step(plain, symbols)
        for row, given in recipes.items():
            model = copy.deepcopy(plain)
            mxt.emulate(model, mx.Recipe.of(given), attention=attention, seed=session.seed)
            yield from session.compare(
                table, baseline, Case(row, column, _step(model, symbols), limit=_LIMITS.get(row))
            )


def _models(transformers: Any) -> Any:
    llama = transformers.LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4
    )
    yield "Llama", transformers.LlamaForCausalLM(llama), "*.self_attn"
    gpt2 = transformers.GPT2Config(
        vocab_size=512, n_positions=256, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    yield "GPT-2", transformers.GPT2LMHeadModel(gpt2), "*.attn"


def _step(model: Any, symbols: Any) -> Any:
    def run() -> object:
        model.zero_grad()
        model(symbols, labels=symbols).loss.backward()
        return model

    return run

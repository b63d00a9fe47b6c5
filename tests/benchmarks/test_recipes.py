"""Tests that the benchmark of recipes measures every recipe on both models."""

from __future__ import annotations

import pytest

import mxnum as mx
from benchmarks import recipes
from benchmarks.questions import Session

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def small(transformers):
    """Yield models with one layer each; the benchmark's own models have four."""
    llama = transformers.LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    yield "Llama", transformers.LlamaForCausalLM(llama), "*.self_attn"
    gpt2 = transformers.GPT2Config(
        vocab_size=512, n_positions=256, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    yield "GPT-2", transformers.GPT2LMHeadModel(gpt2), "*.attn"


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize("names", [("bfloat16",), pytest.param(None, marks=pytest.mark.full)])
def test_each_recipe_is_measured_on_each_model(names, monkeypatch):
    names = names or mx.Recipe.names()
    monkeypatch.setattr(recipes, "_models", small)
    monkeypatch.setattr(mx.Recipe, "names", staticmethod(lambda: names))
    cells = [cell for _, cell in recipes.measure(Session(rounds=1, seconds=0, least=1))]
    rows = {"mxfp8_e4m3", "mxfp4_e2m1", "nvfp4", "nvfp4, gradients sr", *names}
    assert {(cell.row, cell.column) for cell in cells} == {(row, name) for row in rows for name in ("Llama", "GPT-2")}
    assert [cell.failed or cell.skipped for cell in cells] == [""] * len(cells)

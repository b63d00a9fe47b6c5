"""Tests of emulating, training and compiling small random models of `transformers`."""

from __future__ import annotations

import copy

import pytest

from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
IDS = torch.arange(256).reshape(16, 16) ** 2 % 96


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))


def gpt2():
    torch.manual_seed(0)
    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"vocab_size": 96, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **still))


def losses(model, steps=2):
    """Train a model for some steps, and return the losses."""
    optimizer, found = torch.optim.AdamW(model.parameters(), 1e-3), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


CASES = [(llama, "*.self_attn"), (gpt2, "*.attn")]


@pytest.mark.parametrize(("make", "attention"), CASES)
def test_two_steps_of_training_stay_close_to_the_plain_model(make, attention):
    plain = make()
    want = losses(copy.deepcopy(plain))
    for name in ("mxfp8_e4m3", "nvidia nvfp4"):
        model, checkpointed = copy.deepcopy(plain), copy.deepcopy(plain)
        for each in (model, checkpointed):
            emulation = mxt.emulate(each, Recipe.of(name), attention=attention, seed=1)
        assert emulation.left_alone == {}
        found = losses(model)
        assert found == pytest.approx(want, rel=0.02)
        assert found != want
        checkpointed.gradient_checkpointing_enable()
        assert losses(checkpointed.train()) == found
    mxt.restore(model)
    assert type(model) is type(plain)
    assert list(model.state_dict()) == list(plain.state_dict())


def test_compiled():
    model = llama().eval()
    mxt.emulate(model, "mxfp8_e4m3", attention="*.self_attn")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(IDS, use_cache=False).logits, model(IDS, use_cache=False).logits)


def test_attention_of_an_unknown_kind_raises():
    # Regression: `emulate` accepted the attention "eager". The model raised an error only when it
    # ran, and a compiled model raised none.
    model = llama()
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match=r"must not name 'model.layers.0.self_attn', which .* by 'eager'"):
        mxt.emulate(model, "mxfp8_e4m3", attention="*.self_attn")
    mxt.emulate(model, "mxfp8_e4m3")


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(("make", "attention"), CASES)
def test_attention_is_listed_where_it_is_not_emulated(make, attention, implementation):
    # Regression: the search for attention looked for a name that these models' code does not use.
    model = make()
    model.set_attn_implementation(implementation)
    emulation = mxt.emulate(model, "mxfp8_e4m3")
    names = [name for name in dict(model.named_modules()) if name.endswith(attention[1:])]
    assert len(names) == 2
    assert list(emulation.left_alone) == names
    assert all(implementation in emulation.left_alone[name].replace("scaled_dot_pro", "sdpa") for name in names)
    rows = emulation.coverage(IDS, labels=IDS).rows()
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    seen = [row for row in rows if row["module"] in names]
    assert [row["emulated"] for row in seen] == [False, False]
    assert sum(row["flops"] for row in seen) == 2 * 2 * 2 * IDS.numel() * 16 * 64
    if implementation == "sdpa":
        mxt.restore(model)
        rows = mxt.emulate(model, "mxfp8_e4m3", attention=attention).coverage(IDS).rows()
        assert [row["emulated"] for row in rows if row["module"] in names] == [True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_compute_as_their_own_class_does_with_rounded_gamma(dtype):
    norm = llama().model.norm.to(dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.3, 1.9, 64))
    x = torch.randn(4, 64, dtype=dtype)
    twin = copy.deepcopy(norm)
    with torch.no_grad():
        twin.weight.copy_(mxt.fake_quantize(norm.weight, "mxfp4_e2m1"))
    want, unrounded = twin(x), norm(x)
    mxt.emulate(norm, Recipe(gamma="mxfp4_e2m1"))
    assert torch.equal(norm(x), want)
    assert not torch.equal(want, unrounded)
    mxt.set_recipe(norm, None)
    assert torch.equal(norm(x), unrounded)


def test_conv1d_has_the_bits_of_a_linear_layer():
    conv = gpt2().transformer.h[0].mlp.c_fc
    torch.nn.init.normal_(conv.bias)
    twin = torch.nn.Linear(64, 256)
    with torch.no_grad():
        twin.weight.copy_(conv.weight.T)
        twin.bias.copy_(conv.bias)
    recipe = {"uniform": "mxfp4_e2m1", "gradients": {"format": "mxfp4_e2m1", "rounding": "sr"}}
    for each in (conv, twin):
        mxt.emulate(each, Recipe.of(recipe), seed=3)
    inputs = [torch.linspace(-2, 3, 3 * 5 * 64).sin().view(3, 5, 64).requires_grad_() for _ in range(2)]
    outputs = [each(x) for each, x in zip((conv, twin), inputs, strict=True)]
    assert torch.equal(*outputs)
    for y in outputs:
        y.cos().sum().backward()
    assert torch.equal(inputs[0].grad, inputs[1].grad)
    assert torch.equal(conv.weight.grad, twin.weight.grad.T)
    assert torch.equal(conv.bias.grad, twin.bias.grad)


def test_subclass_with_another_forward_is_left_alone():
    class Shifted(type(llama().model.norm)):
        def forward(self, hidden_states):
            return self.weight * hidden_states + 1

    emulation = mxt.emulate(torch.nn.Sequential(Shifted(8)), "mxfp8_e4m3")
    assert emulation.left_alone == {"0": "(Shifted) is of a class that emulate() does not know"}


def test_tied_weight_with_two_recipes_raises():
    model = gpt2()
    two = {"lm_head": "mxfp8_e4m3", "*": "mxfp4_e2m1"}
    told = "weight that 'transformer.wte' and 'lm_head' share in the same way in both modules, not to mxfp4_e2m1 and"
    with pytest.raises(ValueError, match=told):
        mxt.emulate(model, two)
    mxt.emulate(model, {"lm_head": None, "*": "mxfp4_e2m1"})
    mxt.restore(model)
    mxt.emulate(model, "mxfp4_e2m1")
    with pytest.raises(ValueError, match=told):
        mxt.set_recipe(model, two)
    assert str(model.lm_head._mx.how.recipe) == str(Recipe.of("mxfp4_e2m1"))

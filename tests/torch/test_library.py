"""Tests of mxnum's torch operations under torch.compile, opcheck, vmap and export."""

from __future__ import annotations

import pytest

from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
nn = torch.nn
pytestmark = pytest.mark.skipif(torch.__version__ < (2, 5), reason="torch 2.4 does not compile all operations")
STOCHASTIC = Recipe.uniform("mxfp4_e2m1", rounding="sr", vector="bfloat16")


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def calls():
    """Return, by name, calls that cover every torch operation: (operation, arguments)."""
    from mxnum.torch.functions import How

    ops, position = torch.ops.mxnum, torch.tensor([3, 1, 2])
    how = How(STOCHASTIC)
    key = (5, 0, position, 0)
    return {
        "matmul": (ops.matmul, (numbers(2, 3, 32), numbers(2, 32, 8), None, False, how.matmul, *key)),
        "linear": (ops.matmul, (numbers(3, 32), numbers(8, 32), numbers(8), True, how.linear, *key)),
        "fake_quantize": (
            ops.fake_quantize, (numbers(3, 64).detach().T.requires_grad_(), how.weights, 0, 0, True, *key)
        ),
        "bfloat16": (ops.bfloat16, (numbers(3, 4), "rna", True, True)),
        "convolution": (
            ops.convolution, (numbers(2, 8, 5, 5), numbers(4, 8, 3, 3), [1, 1], [1, 1], [1, 1], how.linear, *key),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["matmul", "linear", "fake_quantize", "bfloat16", "convolution"])
def test_torch_checks_the_operations(name):
    operation, arguments = calls()[name]
    found = torch.library.opcheck(operation.default, arguments)
    assert set(found.values()) == {"SUCCESS"}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.norm = nn.Linear(32, 64), nn.LayerNorm(64)
        self.attend = nn.MultiheadAttention(64, 2, batch_first=True)
        self.outer = nn.Linear(64, 32)

    def forward(self, x):
        h = self.norm(torch.relu(self.inner(x)))
        return self.outer(h + self.attend(h, h, h, need_weights=False)[0])


def step(model, function, x):
    """Return the loss and the gradients of one training step."""
    model.zero_grad()
    loss = function(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def test_a_compiled_model_has_the_same_bits_and_is_compiled_once():
    model, x = Model(), numbers(3, 8, 32).detach()
    emulation = mxt.emulate(model, STOCHASTIC, seed=7)
    plain = [step(model, model, x) for _ in range(4)]
    emulation.load_state_dict({"seed": 7, "step": 0})
    torch._dynamo.reset()
    graphs = []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    made = [step(model, compiled, x) for _ in range(4)]
    assert all(torch.equal(a, b) for one, two in zip(plain, made, strict=True) for a, b in zip(one, two, strict=True))
    assert emulation.step == 4
    emulation.load_state_dict({"seed": 7, "step": 0})
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend=counted)
    for _ in range(4):
        compiled(x)
    assert len(graphs) <= 2  # the step number is a tensor, so no step compiles again
    mxt.set_recipe(model, "mxint8")
    assert torch.equal(compiled(x), model(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own
def test_torchs_compiler_keeps_every_rounding():
    """Check that compiled models round to bfloat16.

    torch's compiler may remove casts, so mxnum has its own operation for this rounding.
    """
    cpp_builder = pytest.importorskip("torch._inductor.cpp_builder")
    try:
        cpp_builder.get_cpp_compiler()
    except Exception:
        pytest.skip("torch finds no C++ compiler")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 32, bias=False), nn.ReLU()), numbers(8, 32).detach()
    emulation = mxt.emulate(model, STOCHASTIC, seed=7)
    plain = [step(model, model, x) for _ in range(2)]
    emulation.load_state_dict({"seed": 7, "step": 0})
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True)
    for want in plain:
        assert all(torch.equal(a, b) for a, b in zip(step(model, compiled, x), want, strict=True))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch's compiler causes this warning
def test_functions_compile():
    x, w = numbers(4, 64), numbers(8, 64, seed=1)
    for call in (
        lambda x, w: mxt.linear(x, w, recipe="mxfp8_e4m3"),
        lambda x, w: mxt.fake_quantize(x, "mxfp4_e2m1") @ w.T,
        lambda x, w: mxt.linear(x, w, recipe="uniform", accumulate="block"),
        lambda x, w: mxt.matmul(x, w.T, "mxint8", gradient="clipped"),
        lambda x, w: mxt.layer_norm(x, 64, w[0], w[1], "uniform"),
        lambda x, w: mxt.layer_norm(x, 64, w[0], w[1], "microxcaling"),
        lambda x, w: mxt.rms_norm(x, 64, w[0], "uniform"),
        lambda x, w: mxt.attention(x, w, w, is_causal=True),
    ):
        torch.compiler.reset()
        y, want = torch.compile(call, fullgraph=True, backend="aot_eager")(x, w), call(x, w)
        assert torch.equal(y, want)
        made, usual = (torch.autograd.grad(each.square().sum(), (x, w)) for each in (y, want))
        assert all(torch.equal(one, other) for one, other in zip(made, usual, strict=True))


def test_batches_by_vmap():
    a, b = numbers(3, 5, 64), numbers(3, 64, 8, seed=1)
    assert torch.equal(torch.vmap(lambda x: mxt.fake_quantize(x, "mxint8"))(a), mxt.fake_quantize(a, "mxint8"))
    assert torch.equal(torch.vmap(mxt.matmul)(a, b), torch.stack([mxt.matmul(x, y) for x, y in zip(a, b, strict=True)]))
    with pytest.raises(ValueError, match=r"Operation mxnum.fake_quantize cannot round stochastically"):
        torch.vmap(lambda x: mxt.fake_quantize(x, "mxint8", rounding="sr", seed=1))(a)


def test_export():
    model, x = Model().eval(), numbers(3, 8, 32).detach()
    mxt.emulate(model, "mxfp8_e4m3")
    program = torch.export.export(model, (x,))
    assert torch.equal(program.module()(x), model(x))
    assert any("mxnum.matmul" in str(node.target) for node in program.graph.nodes)


@pytest.mark.parametrize("strict", [False, True])
def test_export_in_training_leaves_the_step_alone(strict):
    model, x = nn.Sequential(nn.Linear(32, 8)), numbers(3, 32).detach()
    emulation = mxt.emulate(model, STOCHASTIC, seed=1)
    y = model(x)
    program = torch.export.export(model, (x,), strict=strict)
    assert type(emulation._steps.position) is torch.Tensor
    assert emulation.step == 1
    assert torch.equal(program.module()(x), y)


def test_masked_attention_compiles():
    class Attending(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    model, x = nn.Sequential(Attending()), numbers(2, 8, 32)
    mxt.emulate(model, "mxfp4_e2m1", attention="0")
    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(x), model(x))


def test_texts_say_what_products_round():
    from dataclasses import replace

    from mxnum.torch.functions import How
    from mxnum.torch.operands import Product, operand_of, operand_text, product

    for recipe in (STOCHASTIC, Recipe.named("nvidia nvfp4", "mxfp4_e2m1"), Recipe.uniform("mxint8", block_size=16)):
        how, for_weights = How(recipe, "block", "clipped"), recipe.gradients_for_weights or recipe.gradients
        activations, across = recipe.activations, recipe.activations_backward
        assert product(how.linear) == Product(
            activations, recipe.weights, across, recipe.weights_backward, recipe.gradients, for_weights, "block", True,
        )  # fmt: skip
        along = replace(across, transform=recipe.gradients.transform)
        assert product(how.matmul) == Product(
            activations, activations, across, along, recipe.gradients, for_weights, "block", True, True
        )
        assert operand_of(operand_text(recipe.weights)) == recipe.weights

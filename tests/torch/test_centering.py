"""Tests of centering the output layer: what it changes, what it keeps, and errors it raises."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from torch import nn  # noqa: E402


class Model(nn.Module):
    """An embedding and a head of 40 rows, in float64 so that rounding errors are negligible."""

    def __init__(self, bias=True, tied=False, rows=40):
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.head = nn.Embedding(rows, 16), nn.Linear(16, rows, bias=bias)
        self.alias = self.head  # a module under two names does not count as tied weights
        if tied:
            self.head.weight = self.embedding.weight
        self.double()

    def forward(self, symbols):
        return self.head(torch.tanh(self.embedding(symbols)))


SYMBOLS = torch.arange(40)


@pytest.mark.parametrize("bias", [False, True])
def test_logits_of_a_token_change_by_one_number(bias):
    model = Model(bias)
    with torch.no_grad():
        model.head.weight += 0.3
    before = model(SYMBOLS)
    assert mxt.center_output_weights(model, "head") is None
    after = model(SYMBOLS)
    change = after - before
    assert change.abs().min() > 1e-3
    torch.testing.assert_close(change, change[:, :1].expand_as(change), rtol=0, atol=1e-12)
    torch.testing.assert_close(after.log_softmax(-1), before.log_softmax(-1), rtol=0, atol=1e-12)
    assert model.head.weight.mean(0).abs().max() < 1e-15
    assert not bias or model.head.bias.mean().abs() < 1e-15
    assert model.head.weight.requires_grad
    assert model.head.weight.grad_fn is None


def test_padding_rows_are_shifted_but_do_not_count_in_the_mean():
    model = Model()
    whole, before = copy.deepcopy(model), model.head.weight.detach().clone()
    with torch.no_grad():
        model.head.weight[30:] = before[30:] = 100.0
    logits = model(SYMBOLS)
    mxt.center_output_weights(model, "head", vocabulary=30)
    assert model.head.weight[:30].mean(0).abs().max() < 1e-15
    assert torch.equal(model.head.weight[30:], before[30:] - before[:30].sum(0) / 30)
    torch.testing.assert_close(model(SYMBOLS).softmax(-1), logits.softmax(-1), rtol=0, atol=1e-12)
    one, other = copy.deepcopy(whole), copy.deepcopy(whole)
    mxt.center_output_weights(one, "head", vocabulary=40)
    mxt.center_output_weights(other, "head")
    assert torch.equal(one.head.weight, other.head.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_weights_are_summed_in_float32(dtype):
    """Check a weight whose mean row is exact, although the sum of its rows overflows float16."""
    model = nn.Sequential(nn.Linear(4, 40, bias=False).to(dtype))
    with torch.no_grad():
        model[0].weight[:20], model[0].weight[20:] = 1024.0, 3072.0
    mxt.center_output_weights(model, "0")
    assert model[0].weight.dtype == dtype
    assert torch.equal(
        model[0].weight, torch.tensor([-1024.0, 1024.0], dtype=dtype).repeat_interleave(20)[:, None].expand(40, 4)
    )


def test_emulated_head_is_centered_like_a_plain_head():
    plain, model = Model().float(), Model().float()
    mxt.emulate(model, {"head": "mxfp8_e4m3", "*": None})
    for each in (plain, model):
        mxt.center_output_weights(each, "head")
    assert torch.equal(plain.head.weight, model.head.weight)
    assert torch.equal(plain.head.bias, model.head.bias)


def test_a_wrapped_model_has_the_wrapper_in_its_names():
    model = Model()
    mxt.center_output_weights(nn.ModuleDict({"module": model}), "module.head")
    assert model.head.weight.mean(0).abs().max() < 1e-15


def test_a_tied_weight_is_refused_unless_asked_for():
    model = Model(tied=True)
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="another module unless tied=True, but 'embedding' has the same weight"):
        mxt.center_output_weights(model, "head")
    assert torch.equal(model.head.weight, before.head.weight)
    mxt.center_output_weights(model, "head", tied=True)
    assert model.embedding.weight is model.head.weight
    assert model.embedding.weight.mean(0).abs().max() < 1e-15


def parametrized():
    model = Model()
    nn.utils.parametrizations.weight_norm(model.head)
    return model


def with_weight(weight):
    model = Model(bias=False)
    model.head.weight = nn.Parameter(weight, requires_grad=False)
    return model


class Transposed(nn.Module):
    """A layer whose weight has a column for each symbol, like transformers' class Conv1D."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(16, 40))


@pytest.mark.parametrize(
    ("model", "name", "changes", "message"),
    [
        (Model, "lm_head", {}, "'name' must be the name of a module of the model, not 'lm_head'"),
        (Model, "embedding", {}, "must be the name of a torch.nn.Linear, whose weight has a row for each symbol, not"),
        (lambda: nn.ModuleDict({"head": Transposed()}), "head", {}, "not 'head, a Transposed'"),
        (Model, "head", {"vocabulary": 41}, "'vocabulary' must be between 1 and 40, not 41"),
        (Model, "head", {"vocabulary": 0}, "'vocabulary' must be between 1 and 40, not 0"),
        (parametrized, "head", {}, "must store 'weight' as a parameter of its own, but derives it"),
        (
            lambda: with_weight(torch.zeros(640)),
            "head",
            {},
            r"a 2-D weight in memory.* not Parameter\[640\] of torch.float32",
        ),
        (lambda: with_weight(torch.zeros(40, 16, dtype=torch.int8)), "head", {}, "of torch.int8 on cpu"),
        (lambda: with_weight(torch.zeros(40, 16).to(torch.float8_e4m3fn)), "head", {}, "of torch.float8_e4m3fn"),
        (lambda: Model().to("meta"), "head", {}, "of torch.float64 on meta"),
    ],
)
def test_modules_without_a_mean_row_raise(model, name, changes, message):
    model = model()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=message):
        mxt.center_output_weights(model, name, **changes)
    for key, value in model.state_dict().items():
        assert value.is_meta or torch.equal(value, before[key]), key


def test_the_first_argument_is_a_model():
    with pytest.raises(TypeError, match=r"'model' must be a torch.nn.Module, not 'Tensor'"):
        mxt.center_output_weights(torch.zeros(40, 16), "head")

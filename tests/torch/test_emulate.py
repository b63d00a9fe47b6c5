"""Tests of emulating models in place, and of restoring them."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import mxnum as mx
from mxnum.recipe import FLOAT32, Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from mxnum.torch.modules import sites_of  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore:emulate\\(\\) did not emulate")


class Own(nn.Linear):
    """A user-defined subclass of Linear that computes the same."""


class Other(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, 32)
        self.block = nn.ModuleDict({"attend": Attending(), "norm": nn.LayerNorm(32), "mlp": Own(32, 32)})
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.rms = nn.RMSNorm(32)
        self.other = Other(32, 32)
        self.head = nn.Linear(32, 40)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.block["attend"](self.block["norm"](x))
        x = x + torch.relu(self.block["mlp"](x))
        return self.head(self.other(self.rms(self.conv(x))))


IDS = torch.arange(24).reshape(3, 8)


def trained(model, steps=3, rate=0.1):
    """Train a model for some steps, and return the losses."""
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(IDS).flatten(0, 1), (IDS.flatten() + 1) % 40)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_what_is_emulated_and_what_is_left_alone():
    model = Model()
    keys, parameters = list(model.state_dict()), list(model.parameters())
    emulation = mxt.emulate(model, "mxfp4_e2m1")
    assert list(model.state_dict()) == keys
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert set(emulation.modules) == {
        "embed", "block.attend.qkv", "block.norm", "block.mlp", "conv", "rms", "head"
    }  # fmt: skip
    assert str(emulation).endswith(
        ". Left alone: block.attend (Attending) calls scaled_dot_product_attention, which is emulated only if "
        "attention= names the module; other (Other) is of a class that emulate() does not know."
    )
    two = mxt.emulate(nn.Sequential(Other(4, 4), nn.Linear(4, 4), Other(4, 4)))
    assert (
        str(two) == "1 module is emulated: 1 Linear. Left alone: each of 0, 2 (Other) is of a class that emulate() "
        "does not know."
    )
    assert list(mxt.emulate(Model(), "mxfp4_e2m1", attention="*.attend").left_alone) == ["other"]
    assert str(emulation).startswith(
        "7 modules are emulated: 1 Embedding, 2 Linear, 1 LayerNorm (gamma and beta not rounded), 1 Own"
    )
    assert isinstance(model.block["mlp"], Own)
    assert "mxfp4_e2m1" in repr(model.head)


def test_restoring_leaves_nothing():
    model, twin = Model(), Model()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    emulation = mxt.emulate(model, "mxfp4_e2m1", attention="block.attend")
    trained(model)
    mxt.restore(model)
    assert str(emulation).startswith("8 modules are emulated: ")
    twin.load_state_dict(model.state_dict())
    assert torch.equal(model(IDS), twin(IDS))
    for name, module in model.named_modules():
        assert type(module) is type(twin.get_submodule(name))
        assert set(module.__dict__) == set(before[name])
    mxt.emulate(model, "mxint8")  # and once more
    with pytest.raises(ValueError, match="must not be emulated yet"):
        mxt.emulate(model, "mxint8")


def test_each_kind_computes_what_its_function_does():
    model = Model()
    mxt.emulate(model, Recipe.uniform("mxfp4_e2m1"))
    x = torch.randn(3, 8, 32)

    def q(parameter, axis=-1):
        return mx.fake_quantize(parameter.detach(), "mxfp4_e2m1", axis=axis)

    table = q(model.embed.weight)
    assert torch.equal(model.embed(IDS), table[IDS])
    norm = model.block["norm"]
    assert torch.equal(norm(x), nn.functional.layer_norm(x, (32,), q(norm.weight), q(norm.bias), norm.eps))
    assert torch.equal(model.rms(x), nn.functional.rms_norm(x, (32,), q(model.rms.weight)))
    assert torch.equal(model.head(x), mxt.linear(x, model.head.weight, model.head.bias, "mxfp4_e2m1"))
    conv = model.conv
    want = nn.functional.conv1d(q(x, 1), q(conv.weight, 1), conv.bias, padding=1)
    assert torch.allclose(conv(x), want, atol=1e-6)


def test_convolutions():
    torch.manual_seed(1)
    for options in ({}, {"stride": 2, "dilation": 2}, {"padding": "same"}, {"padding": 2, "padding_mode": "circular"}):
        layer, x = nn.Conv2d(32, 16, 3, **options), torch.randn(32, 32, 9, 9)
        plain, module = copy.deepcopy(layer), copy.deepcopy(layer)
        mxt.emulate(module, Recipe())
        y, want = module(x), plain(x)
        assert torch.allclose(y, want, atol=1e-5)
        assert module(x[0]).shape == plain(x[0]).shape
        y.square().sum().backward()
        want.square().sum().backward()
        assert torch.allclose(module.weight.grad, plain.weight.grad, rtol=1e-4, atol=1e-2)
    mxt.restore(module)
    mxt.emulate(module, Recipe(gradients="mxint8", activations_backward="mxint8", weights_backward="mxint8"))
    x.requires_grad_()
    y = module(x)
    grad = torch.randn_like(y)
    dx, dw = torch.autograd.grad(y, (x, module.weight), grad)
    along, across = mx.fake_quantize(grad, "mxint8", axis=1), mx.fake_quantize(grad, "mxint8", axis=0)
    weight = mx.fake_quantize(module.weight.detach(), "mxint8", axis=0)
    padded = nn.functional.pad(x.detach(), module._reversed_padding_repeated_twice, mode="circular")
    samples = mx.fake_quantize(padded, "mxint8", axis=0)
    assert torch.allclose(dw, nn.grad.conv2d_weight(samples, weight.shape, across), atol=1e-3)
    inner = nn.grad.conv2d_input(padded.shape, weight, along)
    assert torch.allclose(dx.sum(), inner.sum(), rtol=1e-3)


def test_recipes_by_name_predicate_and_filter():
    by_name = mxt.emulate(Model(), {"head": None, "block.*": "mxint8", "*": Recipe.named("microxcaling")})
    assert "head" not in by_name.modules
    assert sites_of(by_name.modules)["block.mlp"].how.recipe == Recipe.of("mxint8")
    assert sites_of(by_name.modules)["conv"].how.recipe == Recipe.named("microxcaling")
    by_predicate = mxt.emulate(Model(), lambda name, module: "mxint4" if isinstance(module, nn.LayerNorm) else None)
    assert set(by_predicate.modules) == {"block.norm"}
    filtered = mxt.emulate(Model(), "mxint8", ["block.*", "head"])
    assert set(filtered.modules) == {"block.attend.qkv", "block.norm", "block.mlp", "head"}
    chosen = mxt.emulate(Model(), "mxint8", lambda name, module: name == "head")
    assert set(chosen.modules) == {"head"}


def test_recipe_may_change_during_training():
    straight, changed = Model(), Model()
    mxt.emulate(straight, "mxfp4_e2m1")
    mxt.emulate(changed, "mxfp4_e2m1")
    assert trained(straight) == trained(changed)
    mxt.set_recipe(changed, {"head": "mxfp8_e4m3", "*": "mxfp4_e2m1"})
    assert trained(straight) != trained(changed)
    mxt.set_recipe(changed, None)
    plain = Model()
    plain.load_state_dict(changed.state_dict())
    assert torch.allclose(torch.tensor(trained(changed)), torch.tensor(trained(plain)), rtol=1e-5)
    mxt.set_recipe(changed, "mxint8")
    assert changed.head._mx.how.recipe == Recipe.of("mxint8")


def test_recipe_none_is_float32_also_with_sums_by_blocks():
    # Regression: after `set_recipe(None)`, the next forward pass raised an error, because
    # `accumulate="block"` needs operands in an MX format.
    x, changed = torch.randn(4, 64), nn.Sequential(nn.Linear(64, 8))
    plain = copy.deepcopy(changed)
    mxt.emulate(changed, "mxint8", accumulate="block", gradient="clipped")
    first = changed[0]._mx.how
    mxt.set_recipe(changed, None)
    assert torch.equal(changed(x), plain(x))
    mxt.set_recipe(changed, "mxint8")
    assert changed[0]._mx.how == first


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_continue_with_the_same_bits(way):
    model = Model()
    emulation = mxt.emulate(model, Recipe.uniform("mxfp4_e2m1", rounding="sr"), seed=4)
    trained(model, 1)
    if way == "deepcopy":
        copied = copy.deepcopy(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        copied = torch.load(file, weights_only=False)
    assert trained(copied, 2) == trained(model, 2)
    assert copied.head._mx.number != model.head._mx.number
    mxt.restore(copied)
    assert type(copied.head) is nn.Linear
    assert emulation.modules["head"] is model.head


def test_encoder_layers_in_evaluation_are_emulated():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2), torch.randn(3, 8, 32)
    emulation = mxt.emulate(encoder, "mxfp4_e2m1")
    training = encoder(x)
    encoder.eval()
    with torch.no_grad():
        assert torch.equal(encoder(x), training)
    mxt.restore(encoder)
    assert encoder.layers[0].activation_relu_or_gelu == 1
    assert len(emulation.modules) == 10


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
def test_encoders_accept_masks_and_unemulated_ones_stay_unchanged():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(3, 8, 32)
    mask = torch.arange(24).reshape(3, 8) % 8 > 5
    with torch.no_grad():
        want = encoder(x, src_key_padding_mask=mask)
        mxt.emulate(encoder, Recipe())
        y = encoder(x, src_key_padding_mask=mask)
        assert torch.allclose(y[:, :6], want[:, :6], atol=1e-5)
        mxt.restore(encoder)
        assert encoder.use_nested_tensor
        mxt.emulate(encoder, "mxfp4_e2m1", filter="layers.1.*")
        assert not encoder.use_nested_tensor
        assert [each.activation_relu_or_gelu for each in encoder.layers] == [1, 0]


def test_attention_names_modules_that_call_torchs_attention():
    class Eager(nn.Module):
        def forward(self, x):
            return (x @ x.mT).softmax(-1) @ x

    model = nn.Sequential(Eager())
    mxt.emulate(model, "mxint8", attention="0")
    with pytest.raises(ValueError, match="'attention' must be names of modules that call scaled_dot_product_attention"):
        model(torch.randn(2, 4, 32))
    torch.manual_seed(0)
    wide, narrow = (nn.Sequential(Attending(), nn.MultiheadAttention(32, 2)) for _ in range(2))
    narrow.load_state_dict(wide.state_dict())
    # The pattern "*" and the name of the module that calls torch's attention give the same outputs.
    emulation = mxt.emulate(wide, "mxfp4_e2m1", attention="*")
    assert set(emulation.modules) == {"", "0", "0.qkv", "1"}
    mxt.emulate(narrow, "mxfp4_e2m1", attention="0")
    x = torch.randn(3, 8, 32)
    assert torch.equal(wide[0](x), narrow[0](x))
    assert torch.equal(wide[1](x, x, x)[0], narrow[1](x, x, x)[0])


def test_embedding_rows_have_the_bits_of_the_quantized_table():
    for options in ("nvfp4", "mxfp4_e2m1", {"uniform": {"format": "mxint4", "block_shape": [4, 8]}}):
        table = nn.Embedding(40, 32)
        with torch.no_grad():
            table.weight[3] *= 1000  # row 3 decides the tensor scale of nvfp4
        recipe = Recipe.of(options)
        mxt.emulate(table, recipe)
        want = mx.fake_quantize(table.weight.detach(), recipe.weights.mx_format, **recipe.weights.keywords(-1))
        assert torch.equal(table(IDS), want[IDS])


def test_tiles_of_convolutions_lie_along_channels():
    layer, x = nn.Conv2d(32, 16, 3), torch.randn(2, 32, 8, 8)
    mxt.emulate(layer, Recipe(weights={"format": "mxint4", "block_shape": (16, 16)}))
    weight = mx.fake_quantize(layer.weight.detach(), "mxint4", blocks=(16, 16, 1, 1))
    assert torch.allclose(layer(x), nn.functional.conv2d(x, weight, layer.bias), atol=1e-5)


def test_training_lowers_the_loss():
    model = Model()
    mxt.emulate(model, "uniform", attention=["block.attend"])
    losses = trained(model, 30, 0.5)
    assert losses[-1] < 0.5 * losses[0]


def wrapped():
    return torch.compile(Model(), backend="eager")


WRONG = {
    "module": (lambda: mxt.emulate([1]), "'model' must be a torch.nn.Module, not 'list'"),
    "recipe": (lambda: mxt.emulate(Model(), "mxfp7"), "'recipe' must be one of"),
    "none": (lambda: mxt.emulate(Model(), {"*": 3}), "'recipe' must be a Recipe, a name, a format or a mapping"),
    "pattern": (lambda: mxt.emulate(Model(), {"haed": None, "*": "mxint8"}), "Pattern 'haed' must match the name of"),
    "hidden pattern": (lambda: mxt.emulate(Model(), {"*": "mxint8", "head": None}), "Pattern 'head' must come before"),
    "class": (lambda: mxt.emulate(Model(), filter=nn.Linear), "'filter' must be patterns of names or a function"),
    "filter": (lambda: mxt.emulate(Model(), "mxint8", "blocks.*"), r"Pattern 'blocks\.\*' must match"),
    "attention": (lambda: mxt.emulate(Model(), "mxint8", attention="att"), "Pattern 'att' must match"),
    "attention of a Linear": (
        lambda: mxt.emulate(Model(), "mxint8", attention="head"),
        "Pattern 'head' must match the name of a module that computes attention",
    ),
    "choice": (lambda: mxt.emulate(Model(), "mxint8", [3]), "'filter' must be patterns of names or a function"),
    "bool": (lambda: mxt.emulate(Model(), "mxint8", True), "'filter' must be patterns of names or a function, not T"),
    "accumulate": (lambda: mxt.emulate(Model(), "mxint8", accumulate="blk"), "'accumulate' must be one of"),
    "seed": (lambda: mxt.emulate(Model(), "mxint8", seed=0.5), "'seed' must be an integer"),
    "worker": (lambda: mxt.emulate(Model(), "mxint8", worker=-1), "'worker' must be between 0 and 2147483647"),
    "compiled": (lambda: mxt.emulate(wrapped(), "mxint8"), "'model' must be emulated before it is compiled or wrapped"),
    "restore": (lambda: mxt.restore(Model()), "'model' must be a model that emulate"),
    "set": (lambda: mxt.set_recipe(Model(), "mxint8"), "'model' must be a model that emulate"),
    "float64": (lambda: mxt.emulate(Model().double(), "mxint8", accumulate="block").modules["head"](
        torch.ones(1, 32, dtype=torch.float64)), "'accumulate' must be None for torch.float64, not 'block'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_a_sentence_and_changes_nothing(case):
    call, message = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_wrong_call_changes_nothing():
    model = Model()
    with pytest.raises(ValueError, match="must match"):
        mxt.emulate(model, {"head": "mxint8", "haed": "mxint8"})
    assert not any(isinstance(module, mxt.modules.Emulated) for module in model.modules())
    mxt.emulate(model.block, "mxint8")
    with pytest.raises(ValueError, match=r"must not have emulated modules, but 'block.attend.qkv' is one"):
        mxt.emulate(model, "mxint8")


def test_layers_that_are_left_alone_say_why():
    model = nn.ModuleDict({
        "grouped": nn.Conv1d(8, 8, 3, groups=2), "bounded": nn.Embedding(4, 8, max_norm=1.0), "rnn": nn.GRU(8, 8),
        "patched": nn.Linear(4, 4), "lazy": nn.LazyLinear(4),
    })  # fmt: skip
    model["patched"].forward = lambda x: x
    emulation = mxt.emulate(model, "mxint8")
    assert emulation.left_alone == {
        "grouped": "(Conv1d) convolves in groups",
        "bounded": "(Embedding) renormalizes its weights",
        "rnn": "(GRU) is of a class that emulate() does not know",
        "patched": "(Linear) has a forward method set on the instance",
        "lazy": "(LazyLinear) has no parameters before its first call",
    }
    assert str(emulation).startswith("No module is emulated. Left alone: grouped (Conv1d) convolves in groups; ")


@pytest.mark.parametrize("options", [{"filter": lambda name, module: isinstance(module, nn.Linear)},
                                     {"recipe": {"*.self_attn": None, "*": "mxint8"}}])  # fmt: skip
def test_parts_of_attention_that_is_left_out_are_listed(options):
    """Check that `left_alone` lists the layer out_proj of each attention module left out."""
    model = nn.Sequential(nn.TransformerEncoderLayer(32, 2, 64), nn.MultiheadAttention(32, 2))
    emulation = mxt.emulate(model, filter=options.get("filter"), recipe=options.get("recipe", "mxint8"))
    assert {"0.linear1", "0.linear2"} <= set(emulation.modules)
    reason = "(NonDynamicallyQuantizableLinear) is inside a MultiheadAttention that is left out"
    left = ["0.self_attn.out_proj"] + ["1.out_proj"] * ("filter" in options)
    assert emulation.left_alone == dict.fromkeys(left, reason)
    assert mxt.emulate(nn.MultiheadAttention(32, 2)).left_alone == {}


def test_convolutions_have_no_defined_sums():
    emulation = mxt.emulate(nn.Sequential(nn.Conv1d(4, 4, 3), nn.Linear(6, 2)), "mxint8", accumulate="block")
    assert str(emulation).endswith(
        ". Left alone: 0 (Conv1d) is a convolution, which emulate() supports only with the sums of torch or AMX."
    )


def test_types_of_weights():
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        layer = nn.Linear(64, 8).to(dtype)
        mxt.emulate(layer, "mxfp8_e4m3")
        assert layer(torch.ones(2, 64, dtype=dtype)).dtype == dtype


def test_operands_that_are_float32_are_not_touched():
    model, plain = Model(), Model()
    mxt.emulate(model, Recipe(gamma=FLOAT32))
    assert torch.allclose(model(IDS), plain(IDS), atol=1e-6)


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, 32))

    def forward(self, x):
        return (1 + self.weight) * x


class Column(nn.Module):
    """A linear layer without a bias; its weight has a column for each output."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 16))

    def forward(self, x):
        return x @ self.weight


class Narrower(Gain):
    def forward(self, x):
        return super().forward(x) / 2


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr("mxnum.torch.modules._registered", {})
    mxt.register(Gain, "norm")
    mxt.register(Column, "transposed_linear")


def test_registered_classes_are_emulated(registered):
    torch.manual_seed(0)
    gain, column, x = Gain(), Column(), torch.randn(4, 32)
    net = nn.Sequential(gain, column)
    emulation = mxt.emulate(net, mx.Recipe.uniform("mxfp4_e2m1", layer_norm="mxfp4_e2m1"))
    assert emulation.left_alone == {}
    q = mxt.fake_quantize
    middle = (1 + q(gain.weight, "mxfp4_e2m1")) * x
    assert torch.equal(net(x), q(middle, "mxfp4_e2m1") @ q(column.weight, "mxfp4_e2m1", axis=0))
    twin = pickle.loads(pickle.dumps(net))
    assert torch.equal(twin(x), net(x))
    mxt.restore(net)
    assert [type(each) for each in net] == [Gain, Column]


class Row(nn.Module):
    """A linear layer that a user defines; its weight has a row for each output."""

    def __init__(self, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 32))
        if bias is not None:
            self.bias = bias

    def forward(self, x):
        return nn.functional.linear(x, self.weight, getattr(self, "bias", None))


@pytest.mark.parametrize("bias", [None, nn.Parameter(torch.arange(16.0))], ids=["no bias", "bias"])
def test_registered_linear_layer_is_emulated_like_linear(registered, bias):
    torch.manual_seed(0)
    mxt.register(Row, "linear")
    own, plain = Row(bias), nn.Linear(32, 16, bias=bias is not None)
    plain.load_state_dict(own.state_dict())
    nets = nn.Sequential(own), nn.Sequential(plain)
    x, results = torch.randn(4, 32), []
    for net in nets:
        assert mxt.emulate(net, mx.Recipe.uniform("mxfp4_e2m1")).left_alone == {}
        y = net(x)
        y.square().sum().backward()
        results.append([y, *(parameter.grad for parameter in net.parameters())])
    assert len(results[0]) == 2 + (bias is not None)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert not torch.equal(results[0][0], x @ own.weight.T + (0 if bias is None else bias))


def test_a_subclass_with_a_forward_of_its_own_is_not_registered(registered):
    assert list(mxt.emulate(nn.Sequential(Narrower(), Gain()), "mxint8").left_alone) == ["0"]


def test_what_can_be_registered():
    with pytest.raises(TypeError, match="'cls' must be a class of modules, not"):
        mxt.register(Gain(), "norm")
    with pytest.raises(ValueError, match=r"'kind' must be one of .*'linear', .*'norm'.*, not 'gain'"):
        mxt.register(Gain, "gain")

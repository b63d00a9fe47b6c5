"""Tests of the report that says which products of a model are emulated."""

from __future__ import annotations

import copy

import pytest

from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore:emulate\\(\\) did not emulate")
attend = nn.functional.scaled_dot_product_attention


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def flops(emulation, *inputs):
    """Return the FLOPs of each module, and assert that the shares add up to one."""
    rows, found = emulation.coverage(*inputs).rows(), {}
    assert sum(row["share"] for row in rows) == pytest.approx(1, abs=1e-12)
    for row in rows:
        key = row["module"], row["emulated"]
        found[key] = found.get(key, 0) + row["flops"]
    return found


class Everything(nn.Module):
    """A model with products in modules of all kinds, and in functions."""

    def __init__(self):
        super().__init__()
        self.linear, self.conv, self.back = nn.Linear(32, 48), nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(6, 4, 3)
        self.gru, self.lstm, self.bilinear = nn.GRU(8, 5), nn.LSTM(8, 5), nn.Bilinear(8, 7, 6)
        self.attention = nn.MultiheadAttention(32, 2)

    def forward(self, x):
        self.conv(self.back(x[:6, None, :12].expand(6, 6, 12)))
        self.gru(x[:, :8]), self.lstm(x[:, :8]), self.bilinear(x[:, :8], x[:, :7]), self.attention(x, x, x)
        attend(*x.view(3, 2, 2, 2, 16).unbind())
        nn.functional.linear(x, self.linear.weight)
        torch.einsum("ij,kj->ik", x, x)
        x @ x[0]
        return self.linear(x)


def test_every_product_is_counted():
    emulation, x = mxt.emulate(Everything()), numbers(12, 32)
    assert flops(emulation, x) == {
        ("back", False): 2 * 6 * 6 * 12 * 4 * 3,
        ("conv", True): 2 * 6 * 6 * 12 * 4 * 3,
        ("gru", False): 2 * 12 * (8 + 5) * 15,
        ("lstm", False): 2 * 12 * (8 + 5) * 20,
        ("bilinear", False): 2 * 12 * 8 * 7 * 6,
        ("attention", True): 2 * 12 * 32 * 128 + 2 * 2 * 12 * 12 * 32,
        ("", False): 2 * 2 * 2 * 2 * 2 * (16 + 16) + 2 * 12 * 32 * (48 + 12 + 1),
        ("linear", True): 2 * 12 * 32 * 48,
    }
    products = {row["product"] for row in emulation.coverage(x).rows() if row["module"] == ""}
    assert {"scaled_dot_product_attention", "mm", "mv"} < products


class Changing(nn.Module):
    """A model whose forward pass changes its state."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(16, 32, max_norm=0.5), nn.BatchNorm1d(32)
        self.drop, self.out = nn.Dropout(0.5), nn.Linear(32, 32)
        self.register_buffer("mean", torch.zeros(32))
        self.calls = 0

    def forward(self, x):
        self.calls, self.mean = self.calls + 1, self.mean + 1
        return self.drop(self.out(self.norm(self.table(x))))


def test_the_model_stays_as_it_is():
    model, x = Changing(), torch.arange(16)
    emulation = mxt.emulate(model, Recipe.uniform("mxfp8_e4m3", rounding="sr"))
    model(x).sum().backward()
    watch = mxt.watch(model)

    def state():
        tensors = {**model.state_dict(), **{name: p.grad for name, p in model.named_parameters()}}
        rest = model.calls, emulation.step, emulation._steps._counted, len(watch.rows()), torch.get_rng_state().tolist()
        flags = [(module.training, len(module._forward_hooks)) for module in model.modules()]
        return {name: x.tolist() for name, x in tensors.items()}, rest, flags

    before, next_one = state(), copy.deepcopy(model)
    (row,) = emulation.coverage(x).rows()
    assert (row["module"], row["emulated"]) == ("out", True)
    assert state() == before
    torch.manual_seed(0)
    want = next_one(x)
    torch.manual_seed(0)
    assert torch.equal(model(x), want)
    assert len(watch.rows()) > 0

    broken = mxt.emulate(nn.Sequential(nn.Linear(32, 32), nn.Linear(16, 4)))
    with pytest.raises(ValueError, match="features"):
        broken.coverage(numbers(4, 32))
    assert not any(module._forward_pre_hooks for module in broken._model)


def test_layers_turned_off_by_set_recipe_are_not_emulated():
    model, x = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)), numbers(4, 32)
    emulation = mxt.emulate(model)
    mxt.set_recipe(model, {"0": "bfloat16", "1": None})
    assert list(flops(emulation, x)) == [("0", True), ("1", False)]
    copied = copy.deepcopy(model)
    mxt.set_recipe(copied, "mxint8")
    assert emulation.coverage(x).emulated == 0.5
    assert copied._mx_emulation.coverage(x).emulated == 1


def test_coverage_counts_products_that_torchs_fast_paths_would_hide():
    x = numbers(2, 6, 32)
    layer = nn.TransformerEncoderLayer(32, 2, 48, batch_first=True).eval()
    emulation = mxt.emulate(layer, {"self_attn*": None, "*": "mxint8"})
    with torch.no_grad():
        found = flops(emulation, x)
    assert found["linear1", True] == found["linear2", True] == 2 * 12 * 32 * 48
    assert found["self_attn", False] == 2 * 12 * 32 * 128 + 2 * 2 * 2 * 6 * 6 * 32
    if hasattr(torch.compiler, "set_stance"):
        model = nn.Sequential(nn.Linear(32, 32), torch.compile(nn.Linear(32, 32), backend="eager"))
        emulation = mxt.emulate(model)
        model.compile(backend="eager")
        model(x)
        assert list(flops(emulation, x)) == [("0", True), ("1._orig_mod", True)]


def test_scripts_hooks_and_lazy_modules():
    with pytest.warns(DeprecationWarning, match="jit"):
        model = nn.Sequential(torch.jit.script(nn.Linear(32, 32)), nn.LazyLinear(8))
    with pytest.warns(UserWarning, match="1 .LazyLinear. has no parameters before its first call"):
        emulation = mxt.emulate(model)
    with pytest.raises(ValueError, match="'model' must be called once to initialize its lazy modules"):
        emulation.coverage(numbers(4, 32))
    model(numbers(4, 32))
    assert flops(emulation, numbers(4, 32)) == {("", False): 2 * 4 * 32 * 32, ("1", False): 2048}


def test_equal_layers_share_a_line_of_the_table():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(32, 96)

        def forward(self, x):
            return x @ self.up.weight.mT @ self.up.weight + self.up(x)[..., :32]

    model = nn.Sequential()
    model.blocks, model.head = nn.Sequential(Block(), Block(), Block()), nn.Linear(32, 32)
    emulation = mxt.emulate(model, {"blocks.2.up": None, "*": "mxfp8_e4m3"})
    assert str(emulation.coverage(numbers(4, 32))).split("\n") == [
        "module       product   share  emulated",
        "-----------  -------  ------  --------",
        "blocks.*     mm       64.29%  no",
        "blocks.*.up  matmul   21.43%  yes",
        "blocks.2.up  addmm    10.71%  no",
        "head         matmul    3.57%  yes",
        "",
        "Emulated: 25.00% of the FLOPs.",
    ]
    assert str(mxt.emulate(nn.ReLU()).coverage(numbers(3))) == "No product was computed."


def test_one_warning_names_modules_that_multiply_by_their_own_weights():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.gain = nn.Parameter(torch.ones(2, 8, 8)), nn.Parameter(torch.ones(8, 1, 1))

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.pos_embedding = nn.Parameter(torch.ones(1, 8, 8))

    class Scaled(nn.Embedding):
        def forward(self, x):
            return 2 * super().forward(x)

    still = {"norm": nn.BatchNorm1d(3), "table": Scaled(3, 4), "bag": nn.EmbeddingBag(3, 4), "act": nn.PReLU(4)}
    still["positions"] = Positions()
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    layers = nn.ModuleList([nn.ModuleDict({"gru": nn.GRU(3, 4), "experts": Experts()}) for _ in range(2)])
    model = nn.ModuleDict({**still, "layers": layers, "weighted": weighted, "bilinear": nn.Bilinear(3, 3, 3)})
    with pytest.warns(UserWarning, match="emulate") as seen:
        emulation = mxt.emulate(model)
    assert [str(each.message) for each in seen] == [
        "emulate() did not emulate modules that may multiply by their weights: layers.*.gru (GRU) is of a class that "
        "emulate() does not know; layers.*.experts (Experts) is of a class that emulate() does not know; bilinear "
        "(Bilinear) is of a class that emulate() does not know. If this is intended, exclude them by filter= or the "
        "recipe None; emulation.coverage(inputs) shows their share of the FLOPs."
    ]
    assert seen[0].filename == __file__
    assert set(emulation.modules) == {"weighted"}
    assert {*still} < set(emulation.left_alone)
    mxt.restore(model)
    # The call must not warn; the test settings turn warnings into errors.
    mxt.emulate(model, {"layers.*": None, "bilinear": None, "*": "mxint8"})


class Inner(nn.Module):
    """Attention computed by torch's function, or as two products with a softmax between them."""

    def __init__(self, written_out=False):
        super().__init__()
        self.written_out = written_out

    def forward(self, x):
        return (x @ x.mT).softmax(-1) @ x if self.written_out else attend(x, x, x)


def test_attention_inside_a_module_that_is_named_is_not_called_left_alone():
    # Regression: the attention in `outer` was emulated, but `left_alone` listed it.
    model = nn.Sequential()
    model.outer, model.other = nn.Sequential(Inner()), Inner()
    model.outer.__class__ = type("Outer", (nn.Sequential,), {})
    emulation = mxt.emulate(model, attention="outer")
    assert set(emulation.left_alone) == {"other"}
    found = {row["module"]: row["emulated"] for row in emulation.coverage(numbers(2, 8, 32)).rows()}
    assert found == {"outer.0": True, "other": False}


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="compilers of older versions are not tried")
def test_compiled_attention_that_is_written_out_raises():
    # Regression: attention written out as products raised no error in compiled models.
    model = nn.Sequential(Inner(written_out=True))
    mxt.emulate(model, attention="0")
    with pytest.raises(ValueError, match="names of modules that call scaled_dot_product_attention"):
        torch.compile(model, backend="eager")(numbers(2, 8, 32))


def test_parts_of_attention_of_your_own_class_are_not_called_emulated():
    # The forward pass of a MultiheadAttention reads the weight of its module out_proj without
    # calling the module.
    class Own(nn.MultiheadAttention):
        def forward(self, x):
            return super().forward(x, x, x)[0]

    emulation = mxt.emulate(nn.Sequential(Own(32, 2)))
    assert (set(emulation.modules), set(emulation.left_alone)) == (set(), {"0", "0.out_proj"})


def test_quantized_modules_are_listed():
    model = nn.Sequential(nn.Linear(8, 8))
    model[0].__dict__["_packed_params"] = object()
    del model[0].weight, model[0].bias
    model[0].__class__ = type("Quantized", (nn.Module,), {"forward": lambda self, x: x})
    with pytest.warns(UserWarning, match="0 .Quantized. is of a class that emulate.. does not know"):
        mxt.emulate(model)

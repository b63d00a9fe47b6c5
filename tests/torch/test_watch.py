"""Tests of `watch`, which measures the operands of an emulated model."""

from __future__ import annotations

import re

import pytest

import mxnum as mx
from mxnum.analysis import measure
from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
nn = torch.nn


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 32))


def x(step=0):
    return torch.randn(48, 64, generator=torch.Generator().manual_seed(step)) * 3


def run(net, steps=1, rate=0.05):
    """Train a model for `steps` steps."""
    optimizer = torch.optim.SGD(net.parameters(), rate)
    for step in range(steps):
        optimizer.zero_grad()
        net(x(step)).square().mean().backward()
        optimizer.step()


def of(watch, **wanted):
    """Return the rows of a watch that have the given values in the named columns."""
    return [row for row in watch.rows() if all(row[name] == value for name, value in wanted.items())]


def test_the_figures_are_those_of_measure():
    net = model()
    mxt.emulate(net, "mxfp4_e2m1")
    watch = mxt.watch(net)
    weight = net[3].weight.detach().clone()
    run(net)
    for operand, tensor, axis in (("activations", x(), -1), ("activations_backward", x(), 0)):
        (row,) = of(watch, module="0", operand=operand)
        want = measure(tensor.numpy(), "mxfp4_e2m1", axis=axis)
        scales = mx.shared_scale(tensor.numpy(), "mxfp4_e2m1", axis=axis)
        assert row["rmse"] == pytest.approx(want.normalized_rmse)
        assert row["beyond_max"] == pytest.approx(want.beyond_max_rate)
        assert row["underflow"] == pytest.approx(want.underflow_rate)
        assert (row["scale_least"], row["scale_greatest"]) == (scales.min(), scales.max())
        assert row["scales_at_ends"] == 0
    (row,) = of(watch, module="3", operand="weights_backward")
    assert row["rmse"] == pytest.approx(measure(weight.numpy(), "mxfp4_e2m1", axis=0).normalized_rmse)
    names = {(row["module"], row["operand"]) for row in watch.rows()}
    both = {"activations", "weights", "activations_backward", "gradients_for_weights"}
    assert names == {("0", n) for n in both} | {("3", n) for n in both | {"gradients", "weights_backward"}}


def test_scales_that_are_floats():
    net = nn.Sequential(nn.Linear(128, 128))
    with torch.no_grad():
        net[0].weight[:, :16] = 0
    mxt.emulate(net, {"*": Recipe(weights="nvfp4", activations="e4m3:scale=float32,block=128")})
    watch, tensor = mxt.watch(net), torch.randn(4, 128)
    net(tensor)
    (row,) = of(watch, operand="weights")
    scales = mx.quantize(net[0].weight.detach(), "nvfp4").scales
    assert (row["scale_least"], row["scale_greatest"]) == (0, scales.max())
    assert row["scales_at_ends"] == ((scales == 0) | (scales == 0x7E)).sum() >= 128
    (row,) = of(watch, operand="activations")
    scales = mx.quantize(tensor, "e4m3:scale=float32,block=128").scales
    assert (row["scale_least"], row["scale_greatest"]) == (scales.min(), scales.max())
    assert "scales_at_ends" not in row


def test_rows_have_steps_and_shares_of_flipped_codes():
    net = model()
    mxt.emulate(net, Recipe.uniform("mxint4"))
    watch = mxt.watch(net, every=2)
    run(net, 5, rate=1.0)
    assert {row["step"] for row in watch.rows()} == {2, 4}
    first, second = of(watch, module="3", operand="weights")
    assert "flips" not in first
    assert 0 < second["flips"] < 1
    assert len(of(watch, operand="gamma")) == 2
    with torch.no_grad():
        net.eval()(x())  # step 5, in evaluation mode, gives no rows
    net.train()
    watch.stop()
    run(net, 2)
    assert {row["step"] for row in watch.rows()} == {2, 4}
    other = mxt.watch(net, steps=[8])
    run(net, 3)
    assert {row["step"] for row in other.rows()} == {8}


def test_compare_gives_the_error_of_gradients():
    net, plain = model(), model()
    emulation = mxt.emulate(net, "mxfp4_e2m1")
    watch = mxt.watch(net)

    def loss(net):
        return net(x()).square().mean()

    found = watch.compare(net, lambda: loss(net))
    assert emulation.step == 0
    assert all(p.grad is None for p in net.parameters())
    g = torch.cat([p.flatten() for p in torch.autograd.grad(loss(net), list(net.parameters()))]).double()
    h = torch.cat([p.flatten() for p in torch.autograd.grad(loss(plain), list(plain.parameters()))]).double()
    assert found["zeta"] == pytest.approx(float((g - h).norm() / h.norm()), rel=1e-4)
    assert found["cosine"] == pytest.approx(float(g @ h / g.norm() / h.norm()), rel=1e-4)
    names = {f"{row['module']}.{row['operand']}" for row in watch.rows() if "zeta" in row}
    assert names == {name for name, _ in net.named_parameters()} | {".gradient"}
    mxt.set_recipe(net, None)
    assert watch.compare(net, lambda: loss(net))["zeta"] == 0


def test_compare_works_with_sums_by_blocks():
    # Regression: with the mode `block`, which needs blocks, the float32 pass raised an error.
    net = nn.Linear(64, 32)
    mxt.emulate(net, "mxfp4_e2m1", accumulate="block")
    found = mxt.watch(net).compare(net, lambda: net(torch.randn(4, 64)).square().mean())
    assert 0 < found["zeta"] < 1


def test_compare_leaves_the_model_unchanged():
    # Regression: `compare` ran forward passes, and did not restore the buffers that they change.
    net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))
    mxt.emulate(net, "mxfp4_e2m1")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    watch = mxt.watch(net)
    assert watch.compare(net, lambda: net(torch.randn(4, 64)).square().mean())["zeta"] > 0
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    for loss in (lambda: net(torch.randn(4, 64)), lambda: 1.0):
        with pytest.raises(TypeError, match="'loss' must be a function that returns a tensor of one number"):
            watch.compare(net, loss)


def test_recomputed_and_shared_modules_are_measured():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)
            return self.layer(x)

    net = Twice()
    mxt.emulate(net, "mxint8")
    watch = mxt.watch(net)
    net(torch.randn(4, 32)).sum().backward()
    assert sorted(row["operand"] for row in watch.rows() if row["operand"].startswith("activations")) == [
        "activations", "activations 2", "activations_backward", "activations_backward 2"
    ]  # fmt: skip


def test_operands_of_attention_have_their_own_names():
    """Check that queries, keys, values and probabilities of attention have names of their own."""
    torch.manual_seed(0)
    net = nn.MultiheadAttention(64, 2, batch_first=True)
    mxt.emulate(net, "mxfp4_e2m1")
    watch, x = mxt.watch(net), torch.randn(4, 48, 64)
    for _ in range(2):
        net(x.requires_grad_(), x, x)[0].square().sum().backward()
    of_layer = (
        "activations",
        "weights",
        "gradients",
        "weights_backward",
        "gradients_for_weights",
        "activations_backward",
    )
    parts = ("queries", "keys", "probabilities", "values")
    want = {*of_layer, *(f"{name} of out_proj" for name in of_layer)}
    want |= {name for part in parts for name in (part, f"{part}_backward", f"gradients_for_{part}")}
    assert sorted(row["operand"] for row in of(watch, step=2)) == sorted(want)
    (row,) = of(watch, step=1, operand="weights_backward of out_proj")
    weight = net.out_proj.weight.detach().numpy()
    assert row["rmse"] == pytest.approx(measure(weight, "mxfp4_e2m1", axis=0).normalized_rmse)
    with torch.no_grad():
        keys = (
            mxt.linear(x, net.in_proj_weight[64:128], net.in_proj_bias[64:128], "mxfp4_e2m1")
            .unflatten(-1, (2, 32))
            .transpose(1, 2)
        )
    (row,) = of(watch, step=1, operand="keys")
    assert row["rmse"] == pytest.approx(measure(keys.numpy(), "mxfp4_e2m1").normalized_rmse)
    flipping = {row["operand"] for row in of(watch, step=2) if "flips" in row}
    assert flipping == {name for name in want if name.startswith("weights")}
    net(x, x[:, :5], x[:, :5])
    assert {"weights of k_proj", "weights of v_proj"} <= {row["operand"] for row in of(watch, step=3)}


def test_a_compiled_model_is_watched_too():
    net, twin = model(), model()
    for each in (net, twin):
        mxt.emulate(each, "mxfp4_e2m1")
    watches = mxt.watch(net), mxt.watch(twin)
    run(net, 2)
    compiled = torch.compile(twin, backend="aot_eager")
    optimizer = torch.optim.SGD(twin.parameters(), 0.05)
    for step in range(2):
        optimizer.zero_grad()
        compiled(x(step)).square().mean().backward()
        optimizer.step()
    one, two = ({(r["step"], r["module"], r["operand"]): r["rmse"] for r in w.rows()} for w in watches)
    assert one == two


class Writer:
    def __init__(self):
        self.calls = []

    def add_scalar(self, tag, value, step):
        self.calls.append((tag, value, step))


def test_tables_and_writers():
    net = model()
    mxt.emulate(net, "mxfp4_e2m1")
    watch, writer = mxt.watch(net), Writer()
    assert watch.table() == "Nothing has been watched yet."
    run(net, 2)
    title, table, legend = watch.table(1, full=True).split("\n\n")
    assert title == "Step 1"
    assert [line.split(":")[0] for line in legend.splitlines() if line[0] != " "] == [
        "rmse", "beyond max", "underflow", "scales", "scales at ends"
    ]  # fmt: skip
    lines = table.splitlines()
    ruler = next(i for i, line in enumerate(lines) if line.startswith("--"))
    assert sorted(" ".join(lines[:ruler]).split()) == [
        "at",
        "beyond",
        "ends",
        "max",
        "rmse",
        "scales",
        "scales",
        "underflow",
    ]
    below = lines[ruler + 1 :]
    assert [line for line in below if not line.startswith(" ")] == ["0", "3"]
    assert len(below) == 2 + len(of(watch, step=1))
    weights = of(watch, module="0", operand="weights", step=1)[0]
    assert next(line for line in below if line.startswith("  weights ")).split() == [
        "weights", f"{weights['rmse']:.3g}", f"{weights['beyond_max']:.3g}", f"{weights['underflow']:.3g}",
        str(weights["scale_least"]), "to", str(weights["scale_greatest"]), str(weights["scales_at_ends"]),
    ]  # fmt: skip
    watch.write(writer)
    count = len(writer.calls)
    watch.write(writer)
    assert len(writer.calls) == count
    written = {(tag, step): value for tag, value, step in writer.calls}
    assert len(written) == count
    assert written["mxnum_rmse/0.weights", 1] == of(watch, module="0", operand="weights", step=1)[0]["rmse"]
    assert {tag.split("/")[0] for tag, _ in written} == {
        f"mxnum_{name}" for row in watch.rows() for name in row if name not in ("step", "module", "operand")
    }
    assert all(re.fullmatch(r"[\w./]+", tag) for tag, _ in written)


def test_the_table_shows_the_worst_ten_operands():
    net = nn.Sequential(model(), nn.Linear(32, 32))
    mxt.emulate(net, "mxfp4_e2m1")
    watch = mxt.watch(net)
    run(net, 1)
    ranked = sorted(watch.rows(), key=lambda row: row["rmse"], reverse=True)
    assert len(ranked) > 10
    title, chosen, table, _ = watch.table().split("\n\n")
    assert (title, chosen) == ("Step 1", f"10 of {len(ranked)} rows, chosen by rmse (full=True shows all)")
    listed = [line.split()[:2] for line in table.splitlines() if line.startswith("  ") and "." in line]
    want = [[row["operand"], f"{row['rmse']:.3g}"] for row in ranked[:10]]
    assert sorted(listed) == sorted(want)
    listed = [line for line in watch.table(full=True).splitlines() if line.startswith("  ") and "." in line]
    assert len(listed) == len(ranked)
    watch.compare(net, lambda: net(x(0)).square().mean())
    assert "(the whole model)" in watch.table()


def test_tables_fit_a_terminal():
    """Check that tables fit in 80 columns.

    Regression: tables had 110 columns, so terminals wrapped each line.
    """
    net = nn.ModuleDict({"transformer": nn.ModuleDict({"encoder_layers": nn.ModuleList([model()])})})
    net.forward = net["transformer"]["encoder_layers"][0].forward
    mxt.emulate(net, "e4m3:block=32,scale=float32")
    watch = mxt.watch(net)
    run(net, 3)
    watch.compare(net, lambda: net(x(0)).square().mean())
    lines = watch.table().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("transformer.encoder_layers.0.0") for line in lines) >= 2
    assert "(the whole model)" in lines
    assert "flips" in watch.table()


def test_figures():
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    net = model()
    mxt.emulate(net, "mxfp4_e2m1")
    watch = mxt.watch(net)
    run(net, 3)
    ax = watch.figure("beyond_max", "activations").axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "3"]
    values = ax.images[0].get_array()
    assert values.shape == (2, 3)
    assert values[1, 2] == of(watch, module="3", operand="activations", step=3)[0]["beyond_max"]
    with pytest.raises(ValueError, match="'quantity' must be one of"):
        watch.figure("error")
    with pytest.raises(ValueError, match=r"'operand' must be one of .* for which 'rmse' was recorded"):
        watch.figure("rmse", "gamma")


def test_what_is_wrong_is_said_in_a_sentence():
    net = model()
    with pytest.raises(ValueError, match="'model' must be a model that emulate"):
        mxt.watch(net)
    mxt.emulate(net, "mxint8")
    mxt.watch(net)
    with pytest.raises(ValueError, match="must not be watched already"):
        mxt.watch(net)
    mxt.restore(net)  # this ends watching
    mxt.emulate(net, "mxint8")
    with pytest.raises(ValueError, match="'every' must be at least 1"):
        mxt.watch(net, 0)
    with pytest.raises(TypeError, match="'steps' must be a list of steps, not 3"):
        mxt.watch(net, steps=3)
    # Regression: if `steps` was given, the argument `every` was ignored.
    with pytest.raises(ValueError, match="'every' must not be given together with 'steps'"):
        mxt.watch(net, 2, steps=[3])
    net.requires_grad_(False)
    with pytest.raises(ValueError, match="'model' must be one with parameters that require a gradient"):
        mxt.watch(net).compare(net, lambda: net(x()).sum())


def test_rows_without_a_step_are_refused():
    # Regression: if only a part of the model was called, all rows were stored under step 0.
    model = nn.Sequential(nn.Sequential(nn.Linear(32, 8)))
    mxt.emulate(model, "mxfp8_e4m3")
    observed = mxt.watch(model)
    with pytest.raises(RuntimeError, match=r"'0\.0' is watched in training, but no training step was begun"):
        model[0](torch.ones(2, 32))
    model(torch.ones(2, 32))
    assert {row["step"] for row in observed.rows()} == {1}
    with pytest.raises(ValueError, match=r"'step' must be one of the watched steps \[1\], not 3"):
        observed.table(3)

"""Tests that random bits depend only on the seed, the module, the operand and the step."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import mxnum as mx
from mxnum.recipe import Recipe

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from mxnum.torch.modules import sites_of  # noqa: E402

nn = torch.nn
STOCHASTIC = Recipe.uniform("mxfp4_e2m1", rounding="sr")


class Model(nn.Module):
    def __init__(self, checkpointed=None):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU()) for _ in range(2)])
        self.checkpointed = checkpointed

    def forward(self, x):
        for part in self.parts:
            if self.checkpointed is None:
                x = part(x)
            else:
                x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=self.checkpointed)
        return x


def x():
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()


def gradients(model, steps=1):
    """Run `steps` steps, and return the last loss and the last gradients."""
    for _ in range(steps):
        model.zero_grad()
        loss = model(x()).square().mean()
        loss.backward()
    return [loss, *(p.grad.clone() for p in model.parameters())]


def same(a, b):
    return all(torch.equal(left, right) for left, right in zip(a, b, strict=True))


def test_torchs_random_state_does_not_change():
    model = Model()
    before = torch.get_rng_state()
    mxt.emulate(model, STOCHASTIC, seed=1)
    gradients(model, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_steps_seeds_and_modules_draw_different_bits():
    model = Model()
    emulation = mxt.emulate(model, STOCHASTIC, seed=1)
    first, again = model(x()), model(x())
    assert emulation.step == 2
    assert not torch.equal(first, again)
    model.eval()
    assert torch.equal(model(x()), again)  # evaluation does not advance the step
    other = Model()
    mxt.emulate(other, STOCHASTIC, seed=2)
    assert not torch.equal(other(x()), first)
    seeds = {site.seed for site in sites_of(emulation.modules).values()}
    assert len(seeds) == 4


def test_a_restart_continues_with_the_same_bits():
    whole, before, after = Model(), Model(), Model()
    mxt.emulate(whole, STOCHASTIC, seed=9)
    want = gradients(whole, 4)
    first = mxt.emulate(before, STOCHASTIC, seed=9)
    gradients(before, 2)
    second = mxt.emulate(after, STOCHASTIC)
    after.load_state_dict(before.state_dict())
    second.load_state_dict(first.state_dict())
    assert first.state_dict() == {"seed": 9, "step": 2}
    assert same(gradients(after, 2), want)
    with pytest.raises(ValueError, match="'state' must be a mapping with the two keys 'seed' and 'step'"):
        second.load_state_dict({"seed": 1})
    with pytest.raises(ValueError, match="'step' must be between 0"):
        second.load_state_dict({"seed": 1, "step": -1})
    assert second.seed == 9  # Regression: a state with a wrong step raised the error, but changed the seed


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_draw_the_same_bits_again(reentrant):
    plain, checkpointed = Model(), Model(reentrant)
    for model in (plain, checkpointed):
        mxt.emulate(model, STOCHASTIC, seed=3)
    assert same(gradients(plain, 2), gradients(checkpointed, 2))
    outer = Model()
    emulation = mxt.emulate(outer, STOCHASTIC, seed=3)
    for _ in range(2):
        outer.zero_grad()
        loss = torch.utils.checkpoint.checkpoint(outer, x(), use_reentrant=reentrant).square().mean()
        loss.backward()
    assert emulation.step == 2
    assert same([loss, *(p.grad for p in outer.parameters())], gradients_of(Model(), 2))


@pytest.mark.parametrize("order", ["one after the other", "backwards", "at once"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_layers_draw_the_bits_of_their_own_step(reentrant, order):
    plain, checkpointed = Model(), Model(reentrant)
    found = []
    for model in (plain, checkpointed):
        mxt.emulate(model, STOCHASTIC, seed=3)
        losses = [model(x()).square().mean() for _ in range(3)]
        losses = {"at once": [sum(losses)], "backwards": losses[::-1]}.get(order, losses)
        for loss in losses:
            loss.backward()
        found.append([p.grad for p in model.parameters()])
    assert same(*found)


@dataclass
class Output:
    loss: torch.Tensor
    name: str = "plain"


class Told(Model):
    """A model that returns a dataclass."""

    def forward(self, x):
        return Output(super().forward(x).square().mean())


def test_recomputed_layers_keep_their_step_if_the_output_is_a_dataclass():
    plain, checkpointed = Told(), Told(False)
    for model in (plain, checkpointed):
        mxt.emulate(model, STOCHASTIC, seed=3)
        for output in [model(x()) for _ in range(3)][::-1]:
            output.loss.backward()
    assert same([p.grad for p in plain.parameters()], [p.grad for p in checkpointed.parameters()])


def test_step_is_kept_for_backward_in_inference_mode_and_on_meta():
    model, other = Model(), Model()
    mxt.emulate(other, STOCHASTIC, seed=3)
    with torch.inference_mode(), torch.device("meta"):
        emulation = mxt.emulate(model, STOCHASTIC, seed=3)
    with torch.inference_mode():
        first = model(x())
    assert emulation.step == 1
    assert torch.equal(first, other(x()))
    for each in (model, other):
        each.eval()
    assert same(gradients(model), gradients(other))


def gradients_of(model, steps):
    mxt.emulate(model, STOCHASTIC, seed=3)
    return gradients(model, steps)


def test_generators():
    def drawn():
        return torch.Generator().manual_seed(11)

    one, two = mxt.emulate(Model(), STOCHASTIC, seed=drawn()), mxt.emulate(Model(), STOCHASTIC, seed=drawn())
    assert one.seed == two.seed
    generator = drawn()
    first, second = (mxt.fake_quantize(x(), "mxfp4_e2m1", rounding="sr", seed=generator) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first, mxt.fake_quantize(x(), "mxfp4_e2m1", rounding="sr", seed=drawn()))
    assert torch.equal(first, mx.fake_quantize(x().detach(), "mxfp4_e2m1", rounding="sr", seed=one.seed))


class Mixed(nn.Module):
    """A model with one module of each kind that has operands with a batch axis."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.conv = nn.Embedding(16, 32), nn.Conv1d(8, 8, 3, padding=1)
        self.attend = nn.MultiheadAttention(32, 2, batch_first=True)
        self.norm, self.out = nn.LayerNorm(32), nn.Linear(32, 4)

    def forward(self, ids):
        x = self.conv(self.embed(ids))
        return self.out(self.norm(x + self.attend(x, x, x)[0]))


def draws(ids, worker=0, samples=None):
    """Return the origin of the random bits of each operand: (seed, stream, first index, size)."""
    found = []

    def kernel(x, operand, axis, *, seed, stream, first=0):
        found.append((seed, stream, first, x.numel()))
        return mx.fake_quantize(x, operand.mx_format, axis=axis, rounding="sr", seed=seed, stream=stream, first=first)

    model = Mixed()
    emulation = mxt.emulate(model, STOCHASTIC, seed=5, worker=worker)
    if samples is not None:
        emulation.set_samples(*samples)
    with mxt.rounding_by(kernel):
        model(ids).square().sum().backward()
    return found


def test_samples_draw_the_bits_that_they_have_in_the_whole_batch():
    ids = torch.arange(96).reshape(12, 8) % 16
    whole = draws(ids)
    equal = [draws(part, worker) for worker, part in enumerate(ids.chunk(3))]
    other = [draws(ids[:2], samples=(0, 2)), draws(ids[2:], samples=(2, 10))]
    assert len(whole) == 39
    for parts in (equal, other):
        shared = 0
        for (seed, stream, first, size), *these in zip(whole, *parts, strict=True):
            assert first == 0
            assert all(part[:2] == (seed, stream) for part in these)
            # Parameters get the same random bits in all parts of a batch.
            if all(part[3] == size for part in these):
                assert all(part[2] == 0 for part in these)
                shared += 1
                continue
            for _, _, begin, count in these:  # each part begins where the previous part ends
                assert begin == first
                first += count
            assert first == size
        assert shared == 11


def test_wrong_numbers_of_samples_raise():
    emulation = mxt.emulate(layer := nn.Linear(32, 8), STOCHASTIC)
    emulation.set_samples(5, 7)
    assert emulation.step == 0
    with pytest.raises(ValueError, match="'count' must be a divisor of 512, the size of an operand, not 7"):
        layer(x())
    for wrong in ((-1, 1), (0, 0), (0.5, 1)):
        with pytest.raises((ValueError, TypeError), match=r"'(first|count)' must be"):
            emulation.set_samples(*wrong)


def test_gradient_accumulation_may_hold_two_graphs():
    model = Model()
    mxt.emulate(model, STOCHASTIC, seed=2)
    # The backward pass of the first call must still use the step of the first call.
    (model(x()).sum() + model(x()).sum()).backward()
    together = [p.grad.clone() for p in model.parameters()]
    other = Model()
    mxt.emulate(other, STOCHASTIC, seed=2)
    other(x()).sum().backward()
    other(x()).sum().backward()
    for a, p in zip(together, other.parameters(), strict=True):
        assert torch.allclose(a, p.grad, rtol=1e-4, atol=1e-4)


class Trained(nn.Module):
    """A model with a method for training steps, as in PyTorch Lightning."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(32, 32)

    def training_step(self, x):
        return self.net(x).sum()


def test_layers_raise_if_the_step_does_not_advance():
    # Only the forward pass of the whole model advances the step. Regression: if training called
    # only parts of the model, every step drew the random bits of the first step.
    model = Trained()
    emulation = mxt.emulate(model, STOCHASTIC, seed=1)
    with pytest.raises(RuntimeError, match=r"Module 'net' draws .* or call emulation.advance_step\(\)"):
        model.training_step(x())
    model.eval()
    model.training_step(x())  # no error: in evaluation mode, the step need not advance
    model.train()
    seen = []
    for _ in range(2):
        emulation.advance_step()
        seen.append(model.training_step(x()))
    assert emulation.step == 2
    assert not torch.equal(*seen)


def test_parts_of_a_called_model_raise_if_called_alone():
    model = nn.Sequential(nn.Linear(32, 32))
    mxt.emulate(model, STOCHASTIC, seed=1)
    model(x())
    with pytest.raises(RuntimeError, match="Module '0' draws random bits"):
        model[0](x())


def test_a_restored_worker_draws_its_own_bits():
    model, ids = Mixed(), torch.arange(32).reshape(4, 8) % 16

    def drawn():
        found = []

        def kernel(x, operand, axis, *, seed, stream, first=0):
            found.append((seed, stream, first, x.numel()))
            return x.clone()

        with mxt.rounding_by(kernel):
            model(ids)
        return found

    emulation = mxt.emulate(model, STOCHASTIC, seed=5, worker=1)
    before = emulation.state_dict()
    first = drawn()
    emulation.load_state_dict(before)
    assert drawn() == first
    assert any(start > 0 for _, _, start, _ in first)

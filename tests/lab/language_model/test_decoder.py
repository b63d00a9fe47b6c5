"""Tests of the language model and its training: seeds, checkpoints, emulation, measurements."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from mxnum.lab.language_model import Decoder, Setting, train  # noqa: E402
from mxnum.lab.language_model.decoder import rate_at  # noqa: E402
from mxnum.lab.language_model.measurements import centring  # noqa: E402
from mxnum.lab.language_model.sources import TRAINING, generator, source_of  # noqa: E402
from mxnum.recipe import Operand  # noqa: E402

TINY = Setting(vocabulary=40, choices=2, width=32, heads=2, layers=1, context=16, sequences=2, steps=6)
LAST = {"recipe": {"gradients": "mxfp8_e4m3"}, "where": "last"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"activation": "swiglu", "norm": "rms_norm"}, {"rope": False, "qk_norm": False, "start": "fan_in"}],
)
def test_outputs_depend_on_the_past_alone(changes):
    model = Decoder(TINY.but(**changes), 40, seed=1)
    symbols = torch.arange(16)[None] % 40
    other = symbols.clone()
    other[:, 9:] = 3
    first, second = model(symbols), model(other)
    assert first.shape == (1, 16, 40)
    assert torch.equal(first[:, :9], second[:, :9])
    assert not torch.allclose(first[:, 9:], second[:, 9:])


def test_positions_are_relative_with_rope():
    attention = Decoder(TINY, 40).blocks[0].attention
    x = torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    constant = x[:, :, :1].expand(-1, -1, 16, -1)
    turned = attention.turned(constant)
    products = turned @ turned.transpose(-1, -2)
    assert torch.allclose(products[0, 0].diagonal(-3), products[0, 0, 3, 0].expand(13), atol=1e-4)


def test_it_learns():
    run = train(TINY.but(steps=150, sequences=8, start="fan_in"), 1)
    assert run.entropy == pytest.approx((np.log(2), np.log(2)))
    assert run.losses[0] > 3.4
    assert run.evaluation < 2.2


def test_sgd_is_what_one_computes_by_hand():
    setting = TINY.but(optimizer="sgd", rate=0.5, schedule="constant", warm_up=0.0, clip=1e9, steps=3, weight_decay=0.1)
    model = Decoder(setting, 40, 2)
    parameters = [p for p in model.parameters() if p.requires_grad]
    momenta = [torch.zeros_like(p) for p in parameters]
    for step in range(3):
        symbols = torch.from_numpy(source_of(setting).batch(generator(2, [TRAINING, step]), 2, 17))
        loss = torch.nn.functional.cross_entropy(model(symbols[:, :-1]).flatten(0, 1), symbols[:, 1:].flatten())
        for i, gradient in enumerate(torch.autograd.grad(loss, parameters)):
            momenta[i] = setting.beta1 * momenta[i] + gradient + 0.1 * parameters[i].detach()
            parameters[i].data -= 0.5 * momenta[i]
    trained = train(setting, 2).model
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(trained.get_parameter(name), parameter, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    "changes", [{}, {"optimizer": "sgd"}, {"centred_weight": True, "z_loss": 1e-4}], ids=["adamw", "sgd", "remedies"]
)
def test_training_continues_bit_for_bit(tmp_path, changes):
    drawn = {"gradients": {"format": "mxfp8_e4m3", "rounding": "sr"}}
    stochastic = TINY.but(recipe=drawn, where="last", **changes)
    whole = train(stochastic, 3, measure_every=2)
    again = train(stochastic, 3, measure_every=2)
    assert whole.losses == again.losses
    assert train(stochastic, 4).losses != whole.losses
    path = tmp_path / "checkpoint.pt"

    def stop(step, loss):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(stochastic, 3, measure_every=2, checkpoint=path, checkpoint_every=2, report=stop)
    assert path.exists()
    seen = []
    went_on = train(stochastic, 3, measure_every=2, checkpoint=path, report=lambda step, loss: seen.append(step))
    assert seen == [5, 6]
    assert not path.exists()
    with pytest.raises(KeyboardInterrupt):
        train(stochastic, 3, checkpoint=path, checkpoint_every=2, report=stop)
    # A run with another setting or seed must not continue from this checkpoint, because its losses
    # would come from two runs.
    for other, seed in ((stochastic.but(rate=1e-3), 3), (stochastic, 4)):
        with pytest.raises(ValueError, match="was made with another setting or seed; remove it"):
            train(other, seed, checkpoint=path)
    assert went_on.losses == whole.losses
    assert went_on.evaluation == whole.evaluation
    assert went_on.measured_at == whole.measured_at
    for name, values in whole.measured.items():
        assert np.array_equal(np.stack(values), np.stack(went_on.measured[name])), name
    for one, other in zip(whole.model.parameters(), went_on.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_arms_of_a_seed_have_the_same_start_and_batches():
    plain, last = (train(TINY.but(**changes), 5, measure_every=3) for changes in ({}, LAST))
    assert plain.losses[0] == last.losses[0], "the arms differ only in the backward pass"
    assert plain.losses[1:] != last.losses[1:]
    assert "beyond_max" in last.measured
    assert set(plain.measured) == {"probability", "common_weight"}


def test_a_factor_that_is_a_power_of_two_changes_nothing():
    """Check that scaling the loss by a power of two before the backward pass changes no loss."""
    for changes in ({}, LAST):
        one, two = (train(TINY.but(factor=factor, **changes), 2).losses for factor in (1.0, 4.0))
        assert one == two
    assert train(TINY.but(factor=1.2, **LAST), 2).losses != one


@pytest.mark.parametrize(("where", "one", "some", "without"), [
    ("last", {"head"}, set(), set()),
    ("attention", {"blocks.0.attention"}, set(), set()),
    ("embedding", {"embedding"}, set(), set()),
    ("not_last", None, {"blocks.0.mlp.up", "norm"}, {"head", "embedding", "blocks.0.attention"}),
    ("all", None, {"blocks.0.mlp.up", "norm", "head"}, {"embedding", "blocks.0.attention"}),
])  # fmt: skip
def test_where_selects_the_emulated_modules(where, one, some, without):
    from mxnum.lab.language_model.decoder import emulated

    setting = TINY.but(recipe="mxfp8_e4m3", where=where)
    names = set(emulated(Decoder(TINY, 40), setting, 0).modules)
    assert names == one if one else some <= names and not names & without
    with_products = set(emulated(Decoder(TINY, 40), setting.but(attention=True), 0).modules)
    assert ("blocks.0.attention" in with_products) == (where in ("all", "not_last", "attention"))
    assert train(setting, 2).losses != train(TINY, 2).losses


def test_measuring_changes_nothing_and_gives_operand_errors():
    """Check that measurements change no loss, and that they yield the weights' rounding error."""
    import mxnum as mx

    setting = TINY.but(recipe={"weights": "mxfp4_e2m1"}, where="last")
    looked, plain = train(setting, 2, measure_every=4), train(setting, 2)
    assert looked.losses == plain.losses
    assert looked.measured_at == [0, 4]
    assert looked.measured["error"] == looked.measured["error_weights"]
    assert "error_gradients" not in looked.measured
    w = Decoder(setting, 40, 2).head.weight.detach().numpy().astype(np.float64)
    e = mx.fake_quantize(w, "mxfp4_e2m1", axis=1) - w
    assert looked.measured["error"][0] == pytest.approx(float(np.sqrt((e**2).sum() / (w**2).sum())), rel=1e-6)


def test_measured_biases_equal_predictions():
    from mxnum.lab.studies.language_model import predicted_biases

    run = train(TINY.but(**LAST), 7, measure_every=3)
    assert run.measured["beyond_max"][0] == 1
    predicted = predicted_biases(run.setting, run.measured["probability"])
    assert predicted == pytest.approx([float(x) for x in run.measured["gradient_bias"]], abs=0.01)
    assert run.measured["gradient_sum"][0] == pytest.approx(-predicted[0], abs=0.02)


def test_centred_gradients_sum_to_zero():
    x = torch.randn(4, 40, generator=torch.Generator().manual_seed(1))
    for axis in (0, 1):
        assert centring(x, Operand("mxfp8_e4m3"), axis).sum(-1).abs().max() < 1e-5
    losses = {c: train(TINY.but(centred=c, **LAST), 2).losses for c in (False, True)}
    assert losses[False] != losses[True]


def test_centred_weight_has_no_mean_row_after_any_step():
    """Check that the mean row of a centred weight is zero after each step, but not at the start."""
    whole, plain = (train(TINY.but(centred_weight=c, **LAST), 2, measure_every=2) for c in (True, False))
    assert whole.losses[0] == plain.losses[0]
    assert whole.losses[1:] != plain.losses[1:]
    first, *others = whole.measured["common_weight"]
    assert first == plain.measured["common_weight"][0] > 0.1
    assert max(others) < 1e-6
    assert whole.model.head.weight.mean(0).abs().max() < 1e-8


def test_z_loss_is_trained_on_and_not_reported():
    """Check that the loss in training includes the z-loss, and that the reported loss does not."""
    setting = TINY.but(optimizer="sgd", rate=0.5, schedule="constant", warm_up=0.0, clip=1e9, steps=1, z_loss=0.5)
    model = Decoder(setting, 40, 2)
    symbols = torch.from_numpy(source_of(setting).batch(generator(2, [TRAINING, 0]), 2, 17))
    logits = model(symbols[:, :-1]).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, symbols[:, 1:].flatten())
    (loss + 0.5 * torch.log(torch.exp(logits).sum(-1)).pow(2).mean()).backward()
    run = train(setting, 2)
    assert run.losses == [loss.item()]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            by_hand = parameter.detach() - 0.5 * parameter.grad
            torch.testing.assert_close(run.model.get_parameter(name), by_hand, rtol=1e-5, atol=1e-6, msg=name)
    later = train(TINY.but(z_loss=0.5), 2)
    assert later.evaluation != train(TINY, 2).evaluation
    assert later.evaluation == pytest.approx(train(TINY, 2).evaluation, abs=0.5), "the penalty is about 0.5 x 13"


def test_the_rate_rises_and_falls():
    setting = TINY.but(steps=100, rate=1.0)
    rates = [rate_at(setting, step) for step in range(100)]
    assert rates[0] == 0.1
    assert rates[9] == rates[10] == max(rates) == 1
    assert rates[99] == pytest.approx(0.1, abs=1e-3)
    assert rate_at(setting.but(schedule="constant"), 99) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 33}, "'width' must be a multiple of 4"),
        ({"activation": "relu"}, "'activation' must be one of"),
        ({"choices": 41}, "'choices' must be at most the vocabulary, 40"),
        # Regression: if the source's order exceeded the model's context, no position was evaluated,
        # so the loss was NaN.
        ({"order": 17}, "'order' must be at most the context, 16"),
        ({"factor": 0}, "'factor' must be positive"),
        ({"centred": True}, "'centred' must be False unless"),
        ({"z_loss": -1e-4}, "'z_loss' must be 0 or positive"),
        ({"centred_weight": 1}, "'centred_weight' must be True or False"),
        ({"source": "text"}, "'text' must be the path of a file"),
        ({"recipe": "mxfp8_e9m9"}, "'recipe' must be one of"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TINY.but(**changes)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxnum as mx
from mxnum.lab import storage
from mxnum.lab.mlp.config import BFLOAT16_TRAINING, Experiment, Injection, uniform_precision
from mxnum.lab.mlp.loop import Training, load, save, train
from mxnum.lab.mlp.model import KINDS, Network
from mxnum.recipe import Operand

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

E2M1 = uniform_precision("mxfp4_e2m1")
SMALL = Experiment(width=32, layers=2, batch=32, steps=12, precision=E2M1)


def test_training_lowers_the_loss():
    (run,) = train(Experiment(width=32, layers=2, batch=64, steps=150, rate=3e-3), (1,))
    assert run.steps == 150
    assert run.diverged is None
    assert np.mean(run.losses[-10:]) < 0.2 * run.losses[0]


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (1, "Argument 'seeds' must be a list of integers, not 1"),
        ((1.5,), "Argument 'seeds' must be an integer, not 1.5"),
        ((-1,), "Argument 'seeds' must be between 0 and"),
        ((), "Argument 'seeds' must be a list of at least one integer"),
        ((1, 2, 1), "Argument 'seeds' must be a list of different integers"),
    ],
)
def test_wrong_seeds_are_refused_in_a_sentence(seeds, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train(SMALL, seeds)


def test_resume_gives_the_same_trajectory(tmp_path):
    injected = SMALL.but(injection=Injection(0.1, 0.5), gamma=Operand("mxfp4_e2m1", rounding="sr"))
    for experiment in (SMALL, injected, SMALL.but(optimizer="sgd", momentum=0.9)):
        whole = train(experiment, (1, 2), measure_every=4)
        checkpoint = tmp_path / "checkpoint.npz"

        def stop(step, losses, active):
            if step == 7:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(experiment, (1, 2), measure_every=4, checkpoint=checkpoint, checkpoint_every=5, report=stop)
        assert checkpoint.exists()
        resumed = train(experiment, (1, 2), measure_every=4, checkpoint=checkpoint, checkpoint_every=5)
        assert not checkpoint.exists()
        for a, b in zip(whole, resumed, strict=True):
            assert a.losses == b.losses
            assert np.array_equal(a.parameters, b.parameters)
            assert a.measured_at == b.measured_at
            assert all(np.array_equal(a.measured[k], b.measured[k]) for k in a.measured)


def test_a_run_is_the_same_alone_and_stacked():
    alone, stacked = train(SMALL, (2,)), train(SMALL, (1, 2, 3))
    assert alone[0].losses == stacked[1].losses


#: A setting whose loss explodes at once: Adam changes each parameter by about the learning
#: rate, 30.
WILD = SMALL.but(rate=30.0, steps=60, precision=Experiment().precision)


def test_diverging_runs_are_not_stopped():
    runs = train(WILD, (1, 2))
    assert [run.steps for run in runs] == [60, 60]
    assert None not in {run.diverged for run in runs}
    assert train(SMALL.but(steps=60), (1,))[0].diverged is None


#: Each option of the training, with a value that changes the first twelve steps.
SWITCHES = {
    "w1_rate": 0.25,
    "beta_rate": 0.25,
    "w1_start": 0.5,
    "cap_norms_at": 3,
    "moments": "mxfp8_e4m3",
    "masters": "bfloat16",
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_act_and_resume(switch, tmp_path):
    experiment = SMALL.but(**{switch: SWITCHES[switch]})
    whole = train(experiment, (1, 2))
    assert whole[0].losses != train(SMALL, (1,))[0].losses

    def stop(step, losses, runs):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(experiment, (1, 2), checkpoint=tmp_path / "c.npz", checkpoint_every=5, report=stop)
    resumed = train(experiment, (1, 2), checkpoint=tmp_path / "c.npz")
    assert [run.losses for run in resumed] == [run.losses for run in whole]
    # A run that is trained alone has the same losses as if it is trained together with other runs.
    assert train(experiment, (2,))[0].losses == whole[1].losses


@pytest.mark.parametrize("changes", [{"rate": 0.0}, {"w1_rate": -1.0}, {"cap_norms_at": -1}, {"moments": "fp3"}])
def test_switches_out_of_range_are_refused(changes):
    with pytest.raises(ValueError, match="Argument"):
        SMALL.but(**changes)


def test_rates_of_one_kind_of_parameter():
    for switch, kind in (("w1_rate", "w1"), ("beta_rate", "beta")):
        for optimizer in ("adam", "sgd"):
            plain, slow = (Training(e.but(optimizer=optimizer), (1,)) for e in (SMALL, SMALL.but(**{switch: 0.25})))
            start = {k: getattr(plain.network.parameters, k).copy() for k in KINDS}
            for each in (plain, slow):
                each.advance()
            for k in KINDS:
                moved, slowly = (getattr(t.network.parameters, k) - start[k] for t in (plain, slow))
                assert np.abs(slowly).max() == pytest.approx(np.abs(moved).max() * (0.25 if k == kind else 1), rel=1e-3)


def test_norms_stay_below_the_cap():
    training = Training(SMALL.but(rate=0.05, cap_norms_at=2, precision=Experiment().precision), (1, 2))
    free = Training(training.experiment.but(cap_norms_at=None), (1, 2))
    for _ in range(3):
        training.advance(), free.advance()
    # Before the step from which norms are capped, the runs with and without the cap are equal.
    assert np.array_equal(training.network.parameters.flat, free.network.parameters.flat)
    norms = [np.linalg.norm(p, axis=(-2, -1)) for p in (free.network.parameters.w1, free.network.parameters.w2)]
    for _ in range(9):
        training.advance(), free.advance()
    for kind, cap in zip(("w1", "w2"), norms, strict=True):
        capped, grown = (np.linalg.norm(getattr(t.network.parameters, kind), axis=(-2, -1)) for t in (training, free))
        assert np.all(capped <= cap * (1 + 1e-6))
        assert np.any(grown > cap * 1.01)


def test_what_is_stored_in_a_format_is_in_it():
    training = Training(SMALL.but(moments="mxfp8_e4m3", masters="bfloat16"), (1,))
    training.advance()
    bits = training.network.parameters.flat.view(np.uint32)
    assert not np.any(bits & 0xFFFF)
    holder = training.network.gradients
    for moments in (training.first, training.second):
        holder.flat[...] = moments
        rows = holder.w1[0, 0]
        assert np.any(rows)
        assert np.array_equal(rows, mx.fake_quantize(rows, "mxfp8_e4m3"))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    power=st.integers(-4, 3),
    seed=st.integers(0, 2**31),
    optimizer=st.sampled_from(["adam", "sgd"]),
    precision=st.sampled_from(
        [
            Experiment().precision,
            BFLOAT16_TRAINING,
            E2M1,
            uniform_precision("mxfp8_e4m3", scale_rule="even"),
            uniform_precision("mxfp6_e2m3", scale_rule="rceil", block_size=16),
        ]
    ),
)
def test_a_frozen_gain_is_a_rate_and_a_start_of_w1(power, seed, optimizer, precision):
    """Check that freezing gamma at g acts like scaling the initial W1 and its learning rate.

    The test multiplies the initial W1 by g, and its learning rate by g in Adam and by g^2 in SGD.
    Freezing and scaling are equivalent because W1 (g LN(x)) = (g W1) LN(x). If g is a power of two
    and no number overflows or underflows, the runs are equal in every bit, at any precision.

    Scaling W1 by g divides its gradient and the first moment by g, and the second moment by g^2.
    These factors cancel in Adam's step, because epsilon is negligible in this test.
    """
    gain = 2.0**power
    base = Experiment(
        width=32, layers=2, batch=16, steps=8, rate=2.0**-7, epsilon=1e-30, optimizer=optimizer, precision=precision,
        train_gamma=False, train_beta=False,
    )  # fmt: skip
    frozen, moved = (
        train(each, (seed,))[0]
        for each in (
            base.but(gamma_start=(gain, gain)),
            base.but(w1_start=gain, w1_rate=gain if optimizer == "adam" else gain * gain),
        )
    )
    assert frozen.losses == moved.losses
    shapes = [(kind, p.size) for kind, p in vars(Network(base, (seed,)).parameters).items() if kind in KINDS]
    start = 0
    for kind, size in shapes:
        one, other = frozen.parameters[start : start + size], moved.parameters[start : start + size]
        if kind != "gamma":
            assert np.array_equal(one * np.float32(gain if kind == "w1" else 1), other), kind
        start += size


def test_measuring_does_not_change_the_run():
    plain, measured = train(SMALL, (1,))[0], train(SMALL, (1,), measure_every=3)[0]
    assert plain.losses == measured.losses
    assert measured.measured_at == [0, 3, 6, 9]


def test_frozen_parameters_stay():
    for name, flag in (("gamma", "train_gamma"), ("beta", "train_beta")):
        training = Training(SMALL.but(**{flag: False}), (1,))
        start = getattr(training.network.parameters, name).copy()
        training.advance()
        assert np.array_equal(getattr(training.network.parameters, name), start)
        training = Training(SMALL, (1,))
        training.advance()
        assert not np.array_equal(getattr(training.network.parameters, name), start)


def test_injection_has_the_asked_mean_and_deviation():
    training, plain = Training(SMALL.but(injection=Injection(-0.25, 0.5)), (1,)), Training(SMALL, (1,))
    for t in (training, plain):
        t.network.loss_and_gradients(*t.batches(0), 0)
    training._inject()
    g = plain.network.gradients.flat
    zeta = training.network.gradients.flat[g != 0] / g[g != 0] - 1
    assert zeta.mean() == pytest.approx(-0.25, abs=0.02)
    assert zeta.std() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("where", ["layer_norm", "not_layer_norm"])
def test_injection_reaches_only_the_asked_parameters(where):
    injected = SMALL.but(steps=1, injection=Injection(0.5, 0.5, where=where))
    training, plain = Training(injected, (1,)), Training(SMALL, (1,))
    for each in (training, plain):
        each.network.loss_and_gradients(*each.batches(0), 0)
    training._inject()
    changed = {
        kind
        for kind in KINDS
        if not np.array_equal(getattr(training.network.gradients, kind), getattr(plain.network.gradients, kind))
    }
    assert changed == ({"gamma", "beta"} if where == "layer_norm" else {"bias", "w1", "w2"})


@pytest.mark.parametrize("change", [{"quantized_teacher": True}, {"noise_draw": 1}, {"centred_inputs": True}])
def test_switches_of_the_data(change):
    assert train(SMALL.but(steps=1), (1,))[0].losses != train(SMALL.but(steps=1, **change), (1,))[0].losses


def test_a_measurement_that_a_checkpoint_lacks(tmp_path):
    started = Training(SMALL, (1,))
    started.advance(measure=True)
    del started.runs[0].measured["zeta"], started.runs[0].measured["gamma_rms"]
    save(started, tmp_path / "old.npz")
    continued = Training(SMALL, (1,))
    load(continued, tmp_path / "old.npz")
    continued.advance(measure=True)
    measured = continued.runs[0].measured
    assert {len(values) for values in measured.values()} == {2}
    assert np.isnan(measured["zeta"]).tolist() == [True, False]
    assert np.isnan(measured["gamma_rms"]).tolist() == [[True, True], [False, False]]


def test_a_run_is_stored_with_everything(tmp_path):
    (run,) = train(SMALL, (5,), measure_every=6)
    run.save(tmp_path)
    arrays, table = storage.read_arrays(tmp_path / "seed-5.npz"), storage.read_json(tmp_path / "seed-5.json")
    assert arrays["losses"].tolist() == run.losses
    assert arrays["measured_zeta"].shape == (2,)
    assert arrays["measured_gamma_in_last_bin"].shape == (2, 2)
    assert Experiment.from_dict(table["experiment"]) == SMALL
    assert (table["seed"], table["diverged"]) == (5, None)
    assert "numpy" in table["environment"]


def losses_in_a_new_process(threads):
    code = (
        "from tests.lab.mlp.test_loop import SMALL; from mxnum.lab.mlp.loop import train; "
        "print([x.hex() for r in train(SMALL.but(width=64, batch=256, steps=4), (1, 2)) for x in r.losses])"
    )
    names = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_bits_do_not_depend_on_the_number_of_threads():
    assert losses_in_a_new_process(1) == losses_in_a_new_process(2)

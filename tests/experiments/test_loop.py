from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mxnum.experiments import divergence, storage
from mxnum.experiments.config import Experiment, Injection, Operand, experiment_from, uniform_precision
from mxnum.experiments.loop import Training, load, progress_line, save, train
from mxnum.experiments.model import KINDS

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

E2M1 = uniform_precision("mxfp4_e2m1")
SMALL = Experiment(width=32, layers=2, batch=32, steps=12, precision=E2M1)


def test_a_loss_falls():
    (run,) = train(Experiment(width=32, layers=2, batch=64, steps=150, rate=3e-3), (1,))
    assert run.steps == 150
    assert run.diverged is None
    assert np.mean(run.losses[-10:]) < 0.2 * run.losses[0]


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


#: A rate at which this network explodes at once; Adam's step is about the rate.
WILD = SMALL.but(rate=30.0, steps=60, precision=Experiment().precision)


def test_diverged_runs_end_or_go_on(tmp_path):
    calm = SMALL.but(precision=Experiment().precision, steps=60)
    (ended,) = train(WILD, (1,))
    (full,) = train(WILD, (1,), stop_when_diverged=False)
    assert ended.diverged == full.diverged is not None
    assert full.steps == 60
    assert ended.losses == full.losses[: ended.steps]
    assert train(calm, (1,))[0].diverged is None


def test_survivors_keep_their_bits_and_resume(tmp_path, monkeypatch):
    # Seeds that stop at different steps: those left go on as if alone, also from a checkpoint.
    monkeypatch.setattr(divergence, "FACTOR", 1.1)
    monkeypatch.setattr(divergence, "IN_A_ROW", 3)
    experiment = SMALL.but(steps=80)
    seeds = tuple(range(8))
    together = train(experiment, seeds)
    stops = {run.diverged for run in together}
    assert len(stops) >= 3
    for run in together[:3]:
        assert train(experiment, (run.seed,))[0].losses == run.losses
    middle = sorted(run.steps for run in together)[3] + 1
    checkpoint = tmp_path / "c.npz"

    def stop(step, losses, active):
        if step == middle + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(experiment, seeds, checkpoint=checkpoint, checkpoint_every=middle, report=stop)
    resumed = train(experiment, seeds, checkpoint=checkpoint)
    for a, b in zip(together, resumed, strict=True):
        assert a.losses == b.losses
        assert a.diverged == b.diverged


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
    assert experiment_from(table["experiment"]) == SMALL
    assert (table["seed"], table["diverged"]) == (5, None)
    assert "numpy" in table["environment"]


def losses_in_a_new_process(threads):
    code = (
        "from tests.experiments.test_loop import SMALL; from mxnum.experiments.loop import train; "
        "print([x.hex() for r in train(SMALL.but(width=64, batch=256, steps=4), (1, 2)) for x in r.losses])"
    )
    names = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_bits_do_not_depend_on_the_number_of_threads():
    assert losses_in_a_new_process(1) == losses_in_a_new_process(2)


def test_progress_line(capsys, monkeypatch):
    report = progress_line(12, "small")
    train(SMALL, (1, 2), report=report)
    assert "small: step 12 of 12, 2 running" in capsys.readouterr().out

import math

import pytest

from mxnum.lab import storage
from mxnum.lab.mlp.config import Experiment, Injection
from mxnum.lab.studies import critical
from mxnum.lab.studies.critical import critical_rate, curve, predicted_ratio, sgd_limits, shift

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

SMALL = Experiment(width=32, layers=1, batch=32, optimizer="sgd", steps=120)


def test_the_limit_is_enclosed_and_a_bias_moves_it_as_predicted():
    stable, unstable = critical_rate(SMALL, 1, 0.5, 500)
    assert 0.5 < stable < unstable <= stable * 1.02
    said = []
    table = sgd_limits((1,), SMALL, [Injection(-0.5, 0)], said.append)
    (row,) = table["rows"]
    assert said[1].startswith("mean -0.5, deviation 0: ")
    assert row["predicted"] == 2
    # Halving every gradient doubles the largest stable learning rate.
    assert row["ratios"][0] == pytest.approx(2, rel=0.03)


def test_what_was_found_is_not_looked_for_again(tmp_path, monkeypatch):
    path, asked = tmp_path / "limits.json", []

    def limits(experiment, seed, low, high):
        asked.append((experiment.injection, seed))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return 1.0 + seed + len(asked), 1.01 * (1.0 + seed + len(asked))

    monkeypatch.setattr(critical, "critical_rate", limits)

    def write():
        critical.write_sgd_limits(path, (3, 4), SMALL, [Injection(-0.5, 0)], lambda text: None)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not path.exists()
    before = list(asked)
    assert before[:2] == [(None, 3), (None, 4)]
    write()
    assert asked == [*before, before[-1]]  # only the limit that was interrupted is computed again
    assert storage.read_json(path)["without"]["4"] == [7.0, 7.07]
    assert list(tmp_path.iterdir()) == [path]
    # `write` ignores partial results from another machine, and computes all four limits again.
    storage.write_json(path.with_suffix(".partial.json"), {"environment": {}, "limits": {}})
    write()
    assert len(asked) == len(before) + 1 + 4


def test_the_prediction():
    assert predicted_ratio(0, 1) == 0.5
    assert math.isclose(predicted_ratio(1, 1), 2 / 5)
    assert predicted_ratio(-1, 0) == 0


def test_bounds_that_do_not_enclose_the_limit_raise():
    with pytest.raises(ValueError, match="must enclose the limit of seed 1"):
        critical_rate(SMALL, 1, 1e-3, 2e-3)


def studied(**first):
    """Return the table of a study in which seeds 0, 1, 2 of each arm diverge at the given steps."""
    experiment = {"steps": 100}
    arms = {
        f"{kind}, rate {rate:g}": {
            "experiment": experiment,
            "runs": [{"seed": i, "diverged": d, "steps": 100} for i, d in enumerate(diverged)],
        }
        for kind, by_rate in first.items()
        for rate, diverged in by_rate.items()
    }
    return {"control": "FP32, rate 1", "arms": arms}


NO, YES = None, 50


def test_curve_and_shift_of_critical_rates():
    plain = {1: [NO, NO, NO], 2: [NO, NO, YES], 4: [NO, YES, YES]}
    # In E2M1, each seed diverges at half the learning rate at which it diverges in FP32. Seed 0
    # never diverges in FP32, so the next rate, 8, counts as its critical rate.
    low = {1: [NO, NO, YES], 2: [NO, YES, YES], 4: [YES, YES, YES]}
    table = studied(FP32=plain, E2M1=low, E4M3=plain)
    assert curve(table)["E2M1"] == [(1, 1, 3), (2, 2, 3), (4, 3, 3)]
    assert shift(table, "E2M1") == pytest.approx((0.5, 0.5, 0.5))
    assert shift(table, "E4M3") == pytest.approx((1, 1, 1))
    # A seed's critical rate is the lowest rate at which it diverges, even if it does not diverge at
    # a higher rate.
    table = studied(FP32=plain, odd={1: [YES, YES, YES], 2: [NO, NO, NO], 4: [NO, NO, NO]})
    assert shift(table, "odd")[0] == pytest.approx((1 / 8 * 1 / 4 * 1 / 2) ** (1 / 3))
    assert shift(studied(FP32={1: [NO] * 3}, E2M1={1: [YES] * 3}), "E2M1") is None

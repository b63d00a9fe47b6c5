import math

import pytest

from mxnum.experiments.config import Experiment, Injection
from mxnum.experiments.critical import critical_rate, predicted_ratio, sgd_limits

pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

SMALL = Experiment(width=32, layers=1, batch=32, optimizer="sgd", steps=120)


def test_the_limit_is_enclosed_and_a_bias_moves_it_as_predicted():
    ((stable, unstable),) = critical_rate(SMALL, (1,), 0.5, 500).values()
    assert 0.5 < stable < unstable <= stable * 1.02
    said = []
    table = sgd_limits((1,), SMALL, [Injection(-0.5, 0)], said.append)
    (row,) = table["rows"]
    assert said[1].startswith("mean -0.5, deviation 0: ")
    assert row["predicted"] == 2
    assert row["ratios"][0] == pytest.approx(2, rel=0.03)  # scaling the gradient is scaling the rate


def test_the_prediction():
    assert predicted_ratio(0, 1) == 0.5
    assert math.isclose(predicted_ratio(1, 1), 2 / 5)
    assert predicted_ratio(-1, 0) == 0


def test_bounds_that_do_not_enclose_it():
    with pytest.raises(ValueError, match="must enclose the limit of seed 1"):
        critical_rate(SMALL, (1,), 1e-3, 2e-3)

import numpy as np

from mxnum.lab.mlp.divergence import Watch, first_divergence, is_near_spike


def test_twenty_in_a_row_are_needed():
    start = [1.0, 0.5]
    assert first_divergence(start + [50.0] * 30) is None  # a loss must exceed 100 times the least loss to diverge
    assert first_divergence(start + [50.1] * 20) == 2
    assert first_divergence(start + [50.1] * 19 + [50.0] + [50.1] * 19) is None
    assert first_divergence(start + [50.1] * 19 + [50.0] + [50.1] * 20) == 22


def test_what_is_not_finite_diverges_at_once():
    assert first_divergence([1.0, np.nan]) == 1
    assert first_divergence([1.0, 2.0, np.inf, 1.0]) == 2


def test_the_first_step_is_kept():
    watch = Watch(2)
    for step in range(60):
        watch.see(step, np.array([1.0, 1.0 if step < 10 or step > 40 else 1000.0]))
    assert watch.first.tolist() == [-1, 10]


def test_near_a_spike():
    assert not is_near_spike([], 3.0)
    assert not is_near_spike([9.0], 3.0)
    assert is_near_spike([1.0] * 600 + [4.0] * 499, 3.0)
    assert not is_near_spike([1.0] * 600 + [4.0] * 500, 3.0)
    assert is_near_spike([1.0] * 600 + [4.0] * 500 + [12.1], 3.0)  # a second spike, from a plateau at 4
    for lost in (np.nan, np.inf):
        assert is_near_spike([1.0, lost], 3.0)
        assert not is_near_spike([lost], 3.0)
        assert not is_near_spike([1.0] + [lost] * 500, 3.0)

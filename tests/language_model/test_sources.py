"""Sources: what comes after what, and entropies against counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

from mxnum.language_model import HiddenMarkov, Markov, Setting, Text, source_of


@pytest.mark.parametrize(
    ("vocabulary", "order", "choices", "ratio"), [(64, 1, 4, 1.0), (7, 3, 3, 0.5), (4096, 2, 8, 0.9)]
)
def test_a_chain_has_the_entropy_that_it_says(vocabulary, order, choices, ratio):
    source = Markov(vocabulary, order, choices, ratio, seed=3)
    weights = [ratio**i for i in range(choices)]
    by_hand = -sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)
    assert source.entropy == pytest.approx((by_hand, by_hand))
    made = source.batch(np.random.default_rng(0), 64, 200)
    words = np.lib.stride_tricks.sliding_window_view(made, order, axis=1)[:, :-1]
    choice = source.next_of(words) == made[:, order:, None]
    assert (choice.sum(-1) == 1).all(), "what comes is one of the choices, which differ"
    counts = choice.sum((0, 1)) / choice.sum()
    assert np.allclose(counts, source.probabilities, atol=0.02)


def test_choices_differ_between_words_and_seeds():
    every = np.arange(64)[:, None]
    first, second = (Markov(64, 1, 4, seed=seed).next_of(every) for seed in (0, 1))
    assert (first == second).mean() < 0.1
    assert len(np.unique(first[:, 0])) > 30


@pytest.mark.parametrize(("vocabulary", "states"), [(8, 3), (64, 8)])
def test_the_entropy_of_hidden_states_is_enclosed(vocabulary, states):
    source = HiddenMarkov(vocabulary, states, seed=1)
    low, high = source.entropy
    assert 0 < low <= high < math.log(vocabulary)
    assert source.stationary @ source.moves == pytest.approx(source.stationary)
    made = source.batch(np.random.default_rng(2), 400, 220)
    belief, losses = np.broadcast_to(source.stationary, (400, states)), []
    for t in range(made.shape[1]):  # the forward algorithm: the exact probability of what comes
        seen = belief * source.shows[:, made[:, t]].T
        losses.append(-np.log(seen.sum(1)))
        belief = seen / seen.sum(1, keepdims=True) @ source.moves
    late = np.mean(losses[20:], axis=0)
    error = late.std() / 20
    assert low - 4 * error <= late.mean() <= high + 4 * error


def test_text_is_read_by_bytes(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(200)))
    made = Text(path).batch(np.random.default_rng(0), 5, 11)
    assert made.shape == (5, 11)
    assert (np.diff(made, axis=1) == 1).all()
    with pytest.raises(ValueError, match="'text' must be a file of more than 200 bytes"):
        Text(path).batch(np.random.default_rng(0), 5, 200)
    with pytest.raises(ValueError, match="'vocabulary' must be 256 for text"):
        source_of(Setting(source="text", text=str(path)))

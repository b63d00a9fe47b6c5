"""Draw random tensors that resemble those of training, for studies without real tensors.

The tensors are models, not measurements. A result computed with these tensors holds only for the
distributions that the docstrings define.
"""

from __future__ import annotations

import numpy as np

from mxnum.memory.dtypes import Array


def weights(rows: int = 512, columns: int = 1024, *, seed: int = 0, deviation: float = 0.02) -> Array:
    """Draw a float32 matrix (outputs, inputs) of independent normal numbers."""
    rng = np.random.default_rng([seed, 1])
    return (deviation * rng.standard_normal((rows, columns))).astype(np.float32)


def activations(
    tokens: int = 512,
    channels: int = 1024,
    *,
    seed: int = 0,
    token_spread: float = 1.0,
    channel_spread: float = 0.0,
    channel_mean: float = 0.0,
) -> Array:
    """Draw a float32 matrix (tokens, channels) whose magnitudes vary by token and by channel.

    Element (t, c) is (mean_c + n) a_t b_c with n standard normal, a_t = exp(token_spread z_t),
    b_c = exp(channel_spread z_c), mean_c = channel_mean z'_c and all z standard normal.
    """
    rng = np.random.default_rng([seed, 2])
    token = np.exp(token_spread * rng.standard_normal((tokens, 1)))
    channel = np.exp(channel_spread * rng.standard_normal((1, channels)))
    mean = channel_mean * rng.standard_normal((1, channels))
    return ((mean + rng.standard_normal((tokens, channels))) * token * channel).astype(np.float32)


def gradients(rows: int = 512, columns: int = 1024, *, seed: int = 0, spread: float = 1.5) -> Array:
    """Draw independent lognormal magnitudes with random signs, as a float32 matrix.

    The logarithm of a magnitude has the standard deviation `spread`.
    """
    rng = np.random.default_rng([seed, 3])
    magnitude = 1e-4 * np.exp(spread * rng.standard_normal((rows, columns)))
    signs: Array = rng.choice([-1.0, 1.0], (rows, columns))
    return (magnitude * signs).astype(np.float32)

"""Kernels that round to E2M1 stochastically: correct kernels, and kernels with mistakes."""

from __future__ import annotations

import numpy as np

GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def fractions(x):
    """Return the code at or below each magnitude, and the position in the gap above this code.

    The position is a fraction of the gap, from 0 to 1.
    """
    y = np.minimum(np.abs(x.astype(np.float64)), 6)
    below = np.minimum(np.searchsorted(GRID, y, side="right") - 1, 6)
    return below, (y - GRID[below]) / (GRID[below + 1] - GRID[below])


def signed(codes, x):
    return (codes | (np.signbit(x) << 3)).astype(np.uint8)


def rounded(x, u, change=lambda delta, x: delta):
    """Round x to codes: away from zero where `u` is less than the position in the gap.

    `change` can replace the position by a wrong one.
    """
    below, delta = fractions(x)
    return signed(below + (u < change(delta, x)), x)


def uniform(seed, shape):
    return np.random.default_rng(seed).random(shape)


def with_bits(bits, seed, x, whole=np.floor, least=0):
    """Round as mxnum does: add a random integer of `bits` bits to the position in the gap.

    `whole` first rounds the position to `bits` bits. The random integer is at least `least`.
    """
    below, delta = fractions(x)
    random = np.random.default_rng(seed).integers(least, 1 << bits, x.shape)
    return signed(below + (whole(delta * (1 << bits)) + random >= 1 << bits), x)


def block_scales(x):
    """Return the scale codes by the floor rule, and the numbers divided by their scales."""
    largest = np.abs(x).max(axis=1).astype(np.float64)
    usable = np.isfinite(largest)
    exponent = np.frexp(np.where(usable & (largest > 0), largest, 1))[1] - 3
    exponent = np.clip(np.where(largest > 0, exponent, -127), -127, 127)
    y = np.where(usable[:, None], x.astype(np.float64), 0) * np.exp2(-exponent.astype(np.float64))[:, None]
    return np.where(usable, exponent + 127, 255).astype(np.uint8), np.where(usable[:, None], y, 0)


def blocks(draw):
    """Return a quantizer whose random numbers come from `draw(seed, shape)`."""

    def quantize(x, seed):
        scales, y = block_scales(x)
        return np.where(scales[:, None] == 255, 0, rounded(y, draw(seed, x.shape))), scales

    return quantize


def plain(change):
    """Return an encoder with correct random numbers, whose probabilities `change` alters."""
    return lambda x, seed: rounded(x, uniform(seed, x.shape), change)


def drawing(draw):
    """Return an encoder whose random numbers come from `draw(seed, shape)`."""
    return lambda x, seed: rounded(x, draw(seed, x.shape))


def generator_of_period_256(seed, shape):
    words, state = np.empty(shape, np.uint32), seed & 0xFF
    cycle = np.empty(256, np.uint32)
    for i in range(256):
        state = (state * 77 + 13) & 0xFF
        cycle[i] = state
    words[:] = np.resize(cycle, shape)
    return words / 256


def lfsr():
    """Return an encoder whose random numbers come from a 12-bit linear-feedback shift register.

    The encoder takes no seed: each call continues where the previous call ended.
    """
    cycle, state = np.empty(4095), 1
    for i in range(4095):
        cycle[i] = state / 4096
        for _ in range(16):
            state = state >> 1 | ((state ^ state >> 1 ^ state >> 2 ^ state >> 8) & 1) << 11
    assert len(set(cycle)) == 4095
    at = [0]

    def encoder(x):
        first, at[0] = at[0], at[0] + x.size
        return rounded(x, cycle[np.arange(first, at[0]) % 4095].reshape(x.shape))

    return encoder


def shift_register(seed, shape):
    """Return random numbers of eight bits from a shift register.

    The register shifts by only one bit per element, so neighbouring numbers share seven bits.
    """
    size = int(np.prod(shape))
    bits = np.random.default_rng(seed).integers(0, 2, size + 8)
    return sum(bits[i : i + size] * 2.0 ** (-1 - i) for i in range(8)).reshape(shape)


def stream_from(seed, shape):
    """Return random numbers of one fixed stream, which start at a position set by the seed.

    Consecutive seeds return the same numbers, shifted by four positions.
    """
    stream = np.random.Philox(0)
    stream.advance(seed)
    return np.random.Generator(stream).random(shape)


def antithetic(seed, shape):
    u = uniform(seed, shape)
    u[1::2] = 1 - u[::2][: len(u[1::2])]
    return u


def noise_and_truncation(x, seed):
    """Add noise of up to 0.5, then truncate; gaps wider than 0.5 would need more noise."""
    noise = 0.5 * uniform(seed, x.shape) * np.sign(np.where(np.isfinite(x), x, 0))
    below, delta = fractions(np.where(np.isfinite(x), x, 9) + noise)
    return signed(below + (delta == 1), x)


def noise_and_nearest(x, seed):
    """Add noise of up to half a gap in both directions, then round to nearest.

    The result is wrong for numbers that lie close to a smaller neighbouring gap.
    """
    y = np.clip(x.astype(np.float64), -6, 6)
    below, _ = fractions(y)
    noisy = np.abs(y) + (uniform(seed, x.shape) - 0.5) * (GRID[below + 1] - GRID[below])
    return signed(np.abs(noisy[:, None] - GRID).argmin(axis=1), x)


def moves_exact_values(x, seed):
    codes = rounded(x, uniform(seed, x.shape))
    rarely = uniform([seed, 1], x.shape) < 2.0**-9
    return codes + (rarely & np.isin(x, GRID[:-1])).astype(np.uint8)


def moves_saturated_values(x, seed):
    codes = rounded(x, uniform(seed, x.shape))
    return codes - ((uniform([seed, 1], x.shape) < 2.0**-6) & (np.abs(x) > 6)).astype(np.uint8)


def skips_a_code(x, seed):
    codes = rounded(x, uniform(seed, x.shape))
    rarely = (uniform([seed, 1], x.shape) < 2.0**-12) & (np.abs(x) > 1.5) & (np.abs(x) < 2)
    return codes - 2 * rarely.astype(np.uint8)


def sometimes_without_sign(x, seed):
    codes = rounded(x, uniform(seed, x.shape))
    return np.where((codes == 8) & (uniform([seed, 1], x.shape) < 0.1) & (x != 0), 0, codes)


def counts_zero_in(x, seed):
    """Compare with <= instead of <, so that the random integer 0 moves representable numbers."""
    below, delta = fractions(x)
    return signed(np.minimum(7, below + (np.floor(16 * uniform(seed, x.shape)) / 16 <= delta)), x)


def draws_scales(x, seed):
    scales, _ = block_scales(x)
    scales = scales + ((uniform([seed, 1], scales.shape) < 0.01) & (scales < 254) & (scales > 0)).astype(np.uint8)
    y = np.where((scales == 255)[:, None], 0, x) * np.exp2(127 - scales.astype(np.float64))[:, None]
    return np.where(scales[:, None] == 255, 0, rounded(y, uniform(seed, x.shape))), scales


def of_ceil(x, seed):
    """Round without mistakes, but with the scale rule "ceil" instead of "floor"."""
    scales, y = block_scales(x)
    more = (np.frexp(np.abs(y).max(axis=1))[0] > 0.5) & (scales < 254)
    scales = scales + more.astype(np.uint8)
    return np.where(scales[:, None] == 255, 0, rounded(y / 2.0 ** more[:, None], uniform(seed, x.shape))), scales


class Cached:
    """A kernel that draws its random words once and uses them in every call."""

    def __init__(self):
        self.words = {}

    def __call__(self, x, seed):
        return rounded(x, self.words.setdefault(x.shape, uniform(seed, x.shape)))

"""How far a count may be from what is expected: exact binomial tails, their power, and bounds that always hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def tail(k: int, n: int, p: float, q: float | None = None) -> float:
    """The probability that at least k of n draws succeed, each with probability 0 < p < 1. (q is 1 - p.)"""
    q = 1 - p if q is None else q
    if k <= 0 or k > n:
        return float(k <= 0)
    if k <= n * p:  # the other tail is the short one
        return 1 - tail(n - k + 1, n, q, p)
    log_p, log_q = (math.log1p(-other) if other < 0.5 else math.log(one) for one, other in ((p, q), (q, p)))
    first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_p + (n - k) * log_q
    # Each term from the one before it. Twelve standard deviations further on nothing is left to add.
    j = np.arange(min(n - k, int(12 * math.sqrt(n * p * q)) + 100), dtype=np.float64)
    ratios = (n - k - j) / (k + 1 + j) * (p / q)
    return math.exp(first) * (1 + float(np.cumprod(ratios).sum()))


def p_value(k: int, n: int, p: float) -> float:
    """Twice the tail on the side of k: at most `level` with a probability of at most `level`, whatever n and p."""
    if p in (0, 1):
        return float(k == n * p)
    return min(1.0, 2 * (tail(k, n, p) if k >= n * p else tail(n - k, n, 1 - p, p)))


def critical(n: int, p: float, level: float) -> tuple[int, int]:
    """The counts up to which, and from which, `p_value` is at most `level`; -1 and n + 1 where there are none."""
    return n - _from(n, 1 - p, p, level), _from(n, p, 1 - p, level)


def _from(n: int, p: float, q: float, level: float) -> int:
    """The smallest k above n p with a tail of at most level / 2."""
    low, high = math.floor(n * p), n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle, n, p, q) <= level / 2 else (middle, high)
    return high


def power(n: int, p: float, truth: float, level: float) -> float:
    """The probability that n draws contradict p at that level when the probability is `truth`."""
    if p in (0, 1):  # a single draw does
        return float(1 - abs(1 - p - truth) ** n)
    low, high = critical(n, p, level)
    if truth in (0, 1):
        return float(low >= 0 if truth == 0 else high <= n)
    return tail(high, n, truth) + tail(n - low, n, 1 - truth, truth)


def weakest(n: int, p: float, bias: float, level: float) -> float:
    """The smaller power of the two for p + bias and p - bias, where those are probabilities."""
    truths = [truth for truth in (p + bias, p - bias) if 0 <= truth <= 1]
    return min(power(n, p, truth, level) for truth in truths)


def draws_for(bias: float, wanted: float, level: float) -> int:
    """How many draws see a bias with that power, whatever p: at 1/2, where the spread is largest (within 1%)."""
    n = math.ceil(1 / bias)
    while weakest(n, 0.5, bias, level) < wanted:
        n = math.ceil(1.2 * n)
    low = n // 2
    while n - low > max(1, 0.01 * n):
        middle = (low + n) // 2
        low, n = (low, middle) if weakest(middle, 0.5, bias, level) >= wanted else (middle, n)
    return n


def deviation(variance: Any, level: float) -> Any:
    """How far a sum of independent draws may be from its expectation: farther with a probability of at most `level`.

    Bernstein's inequality, for terms that are at most 1 from their expectations, each with a probability of its own.
    """
    exponent = math.log(2 / level)
    return exponent / 3 + np.sqrt(exponent**2 / 9 + 2 * variance * exponent)

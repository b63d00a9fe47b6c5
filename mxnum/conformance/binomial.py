"""Tests of binomial counts: exact tails, their power, and bounds that always hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def tail(k: int, n: int, p: float, q: float | None = None) -> float:
    """Return the probability that at least k of n draws succeed, each with probability 0 < p < 1.

    `q` is 1 - p, for callers that know it more exactly.
    """
    q = 1 - p if q is None else q
    if k <= 0 or k > n:
        return float(k <= 0)
    if k <= n * p:  # the other tail is the shorter sum
        return 1 - tail(n - k + 1, n, q, p)
    log_p, log_q = (math.log1p(-other) if other < 0.5 else math.log(one) for one, other in ((p, q), (q, p)))
    first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_p + (n - k) * log_q
    # Each term comes from the one before it. Terms beyond twelve standard deviations are
    # negligible.
    j = np.arange(min(n - k, int(12 * math.sqrt(n * p * q)) + 100), dtype=np.float64)
    ratios = (n - k - j) / (k + 1 + j) * (p / q)
    return math.exp(first) * (1 + float(np.cumprod(ratios).sum()))


def p_value(k: int, n: int, p: float) -> float:
    """Return twice the tail on the side of k, the p-value of k successes in n draws.

    It is at most `level` with a probability of at most `level`, whatever n and p.
    """
    if p in (0, 1):
        return float(k == n * p)
    return min(1.0, 2 * (tail(k, n, p) if k >= n * p else tail(n - k, n, 1 - p, p)))


def critical(n: int, p: float, level: float) -> tuple[int, int]:
    """Return the largest low count and the smallest high count whose `p_value` is at most `level`.

    They are -1 and n + 1 where no count is that unlikely.
    """
    return n - _from(n, 1 - p, p, level), _from(n, p, 1 - p, level)


def _from(n: int, p: float, q: float, level: float) -> int:
    """Return the smallest k above n p whose tail is at most level / 2."""
    low, high = math.floor(n * p), n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle, n, p, q) <= level / 2 else (middle, high)
    return high


def power(n: int, p: float, truth: float, level: float) -> float:
    """Return the probability that n draws contradict p at that level if the probability is `truth`."""
    if p in (0, 1):  # a single draw that goes the other way contradicts p
        return float(1 - abs(1 - p - truth) ** n)
    low, high = critical(n, p, level)
    if truth in (0, 1):
        return float(low >= 0 if truth == 0 else high <= n)
    return tail(high, n, truth) + tail(n - low, n, 1 - truth, truth)


def weakest(n: int, p: float, bias: float, level: float) -> float:
    """Return the smaller power of those for p + bias and p - bias, leaving out what is no probability."""
    truths = [truth for truth in (p + bias, p - bias) if 0 <= truth <= 1]
    return min(power(n, p, truth, level) for truth in truths)


def draws_for(bias: float, wanted: float, level: float) -> int:
    """Return how many draws detect a bias with power `wanted`, whatever p (within 1%).

    The number is that for p = 1/2, where the spread is largest.
    """
    n = math.ceil(1 / bias)
    while weakest(n, 0.5, bias, level) < wanted:
        n = math.ceil(1.2 * n)
    low = n // 2
    while n - low > max(1, 0.01 * n):
        middle = (low + n) // 2
        low, n = (low, middle) if weakest(middle, 0.5, bias, level) >= wanted else (middle, n)
    return n


def deviation(variance: Any, level: float) -> Any:
    """Return the distance from its expectation that a sum of independent draws rarely exceeds.

    The sum exceeds it with a probability of at most `level`. This is Bernstein's inequality, for
    terms that are at most 1 from their expectations, each with its own probability.
    """
    exponent = math.log(2 / level)
    return exponent / 3 + np.sqrt(exponent**2 / 9 + 2 * variance * exponent)

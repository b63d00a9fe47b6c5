"""Statistical tests of counts and of dependence that are valid for any number of draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum.memory.dtypes import Array


def tail(k: int, n: int, p: float, q: float | None = None) -> float:
    """Return the probability that at least k of n draws succeed, for 0 < p < 1.

    Pass `q` if you know 1 - p more exactly than a subtraction in float64 computes it.
    """
    q = 1 - p if q is None else q
    if k <= 0 or k > n:
        return float(k <= 0)
    if k <= n * p:  # the other tail of the distribution has fewer terms
        return 1 - tail(n - k + 1, n, q, p)
    log_p, log_q = (math.log1p(-other) if other < 0.5 else math.log(one) for one, other in ((p, q), (q, p)))
    first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_p + (n - k) * log_q
    # Each term is the previous term times a ratio. Terms beyond twelve standard deviations are
    # negligible.
    j = np.arange(min(n - k, int(12 * math.sqrt(n * p * q)) + 100), dtype=np.float64)
    ratios = (n - k - j) / (k + 1 + j) * (p / q)
    return math.exp(first) * (1 + float(np.cumprod(ratios).sum()))


def p_value(k: int, n: int, p: float) -> float:
    """Return the p-value of k successes in n draws: twice the tail that begins at k.

    If p is the true probability, P(p-value <= level) <= level for all n and all levels.
    """
    if p in (0, 1):
        return float(k == n * p)
    return min(1.0, 2 * (tail(k, n, p) if k >= n * p else tail(n - k, n, 1 - p, p)))


def critical(n: int, p: float, level: float) -> tuple[int, int]:
    """Return the two critical counts of a test of p at `level`, one on each side of n p.

    The first result is the largest count below n p that contradicts p, or -1 if there is none. The
    second result is the smallest count above n p that contradicts p, or n + 1 if there is none.
    """
    return n - _from(n, 1 - p, p, level), _from(n, p, 1 - p, level)


def _from(n: int, p: float, q: float, level: float) -> int:
    """Return the smallest k above n p for which P(at least k successes) is at most level / 2."""
    low, high = math.floor(n * p), n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle, n, p, q) <= level / 2 else (middle, high)
    return high


def power(n: int, p: float, truth: float, level: float) -> float:
    """Return the chance that n draws contradict p at `level` if the true probability is `truth`."""
    if p in (0, 1):  # a single draw whose outcome has probability 0 contradicts p
        return float(1 - abs(1 - p - truth) ** n)
    low, high = critical(n, p, level)
    if truth in (0, 1):
        return float(low >= 0 if truth == 0 else high <= n)
    return tail(high, n, truth) + tail(n - low, n, 1 - truth, truth)


def weakest(n: int, p: float, bias: float, level: float) -> float:
    """Return the power of the test against a bias in the direction that is harder to detect.

    The true probability is p + bias or p - bias. The function ignores a value outside 0..1.
    """
    truths = [truth for truth in (p + bias, p - bias) if 0 <= truth <= 1]
    return min(power(n, p, truth, level) for truth in truths)


def draws_for(bias: float, wanted: float, level: float) -> int:
    """Return how many draws are needed to detect `bias` with power `wanted` at p = 1/2.

    The result may be up to 1% too large. At p = 1/2 the counts vary most, so this number of draws
    suffices for nearly all p.
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
    """Return a bound on abs(S - E(S)), where S is a sum of independent draws.

    `variance` is the variance of S. By Bernstein's inequality, abs(S - E(S)) exceeds the bound with
    a probability of at most `level`. Draws may have different probabilities, but each draw differs
    from its expectation by at most 1.
    """
    exponent = math.log(2 / level)
    return exponent / 3 + np.sqrt(exponent**2 / 9 + 2 * variance * exponent)


#: The largest distance, in elements, between two compared draws that round away from zero with
#: probability 1/4.
NEAR = 64


@dataclass(frozen=True)
class Echo:
    """A dependence: two draws that are `distance` apart agree too often or too rarely."""

    distance: int
    #: The call that made a pair's second draw, relative to the call that made the first: 0 is the
    #: same call, 1 the next call, -1 the previous call.
    calls: int
    share: float
    expected: float
    pairs: int
    what: str

    @property
    def strength(self) -> float:
        return abs(self.share - self.expected)

    def text(self, block: int) -> str:
        """Return a sentence that describes the dependence."""
        if self.distance:
            rows = f" ({_counted(self.distance // block, 'block')})" if block and self.distance % block == 0 else ""
            place = f"{_counted(self.distance, 'element')} further on{rows}"
        else:
            place = "at the same index"
        other = f"the one {place}" + (("", " in the next call", " in the previous call")[self.calls])
        seen = f"An element and {other} {self.what} in {_share_text(self.share)} of {self.pairs} pairs"
        return f"{seen}; independent draws would do so in {_share_text(self.expected)}."


def comparisons(length: int) -> int:
    """Return the number of comparisons that `echoes` makes for calls with `length` elements."""
    reach = length // 2
    return 3 * reach + 1 + 2 * min(NEAR, reach) + 1


def echoes(halves: Sequence[Array], quarters: Sequence[Array], level: float) -> list[Echo]:
    """Return the dependences between the draws of two successive calls, the strongest first.

    Each call is a vector with one entry for each element: +1 if its draw rounds away from zero, -1
    if its draw rounds toward zero, 0 if nothing is drawn. The draws in `halves` round away from
    zero with probability 1/2, the draws in `quarters` with probability 1/4. `quarters` may be
    empty.
    """
    first, second = (half.astype(np.float64) for half in halves)
    reach = len(first) // 2
    found = _agreements(first, first, range(1, reach + 1), 0, level)
    found += _agreements(first, second, range(reach + 1), 1, level)
    found += _agreements(second, first, range(1, reach + 1), -1, level)
    for distance in range(min(NEAR, reach) + 1 if len(quarters) else 0):
        found += _together(quarters[0], quarters[0], distance, 0, level) if distance else []
        found += _together(quarters[0], quarters[1], distance, 1, level)
    return sorted(found, key=lambda echo: (-round(echo.strength, 2), abs(echo.calls), echo.distance))


#: The shortest period, in elements, at which the probabilities of repeating draws are judged.
LEAST_PERIOD = 1024


def period(within: Sequence[Echo]) -> int:
    """Return the period at which the draws of a call repeat, or 0.

    `within` lists the dependences between the draws of the call. The result is 0 if a repetition
    does not explain all these dependences, or if the period is shorter than `LEAST_PERIOD`.
    """
    distances = sorted(echo.distance for echo in within)
    repeats = distances and all(echo.share == 1 for echo in within)
    if not repeats or distances[0] < LEAST_PERIOD or any(distance % distances[0] for distance in distances):
        return 0
    return distances[0]


def _agreements(a: Array, b: Array, distances: range, calls: int, level: float) -> list[Echo]:
    """Return a dependence for each distance at which draws agree too often or too rarely.

    Each draw rounds away from zero with probability 1/2.
    """
    together = _correlation(a, b, distances.stop)[distances.start :]
    pairs = _correlation(abs(a), abs(b), distances.stop)[distances.start :]
    # Count only an excess that neither chance nor a common bias of all draws explains.
    excess = np.minimum(abs(together), abs(together - pairs * _mean(a) * _mean(b))) / 2
    found = np.flatnonzero(excess > deviation(pairs / 4, level)).tolist()
    shares = (pairs[found] + together[found]) / 2 / pairs[found]
    return [
        Echo(distances[i], calls, float(share), 0.5, int(pairs[i]), "round in the same direction")
        for i, share in zip(found, shares, strict=True)
    ]


def _correlation(a: Array, b: Array, count: int) -> Array:
    """Return the sums of a[i] b[i + d] for d below `count`.

    The sums are integers, so the results of the Fourier transforms are rounded to integers.
    """
    size = 1 << (len(a) + count).bit_length()
    product = np.conj(np.fft.rfft(a, size)) * np.fft.rfft(b, size)
    sums: Array = np.rint(np.fft.irfft(product, size)[:count])
    return sums


def _mean(a: Array) -> float:
    return float(a.sum() / max(1, abs(a).sum()))


def _together(a: Array, b: Array, distance: int, calls: int, level: float) -> list[Echo]:
    """Return the dependence between draws at one distance, as a list of at most one `Echo`.

    Draws depend on each other if both round away from zero in too many or too few pairs.
    Each draw rounds away from zero with probability 1/4. The pairs of draws are disjoint, and
    therefore independent.
    """
    first, second = a[: len(a) - distance], b[distance:]
    apart = (np.arange(len(first)) // max(1, distance)) % 2 == 0 if calls == 0 else True
    known = (first != 0) & (second != 0) & apart
    pairs, both = int(known.sum()), int(((first > 0) & (second > 0) & known).sum())
    by_shares = (1 + _mean(a)) / 2 * (1 + _mean(b)) / 2
    excess = min(abs(both - pairs / 16), abs(both - pairs * by_shares))
    if excess <= deviation(pairs * 15 / 256, level):
        return []
    return [Echo(distance, calls, both / pairs, 1 / 16, pairs, "both round away from zero (each with probability 1/4)")]


def smallest_correlation(pairs: int, power: float, level: float) -> float:
    """Return the least correlation that a test of `pairs` pairs finds with probability `power`."""
    low, high = 0.0, 1.0
    while high - low > 0.001:
        rho = (low + high) / 2
        # Pairs are treated as independent of each other, which is nearly true for a small
        # correlation.
        enough = math.ceil(pairs / 2 + deviation(pairs / 4, level))
        low, high = (low, rho) if tail(enough, pairs, (1 + rho) / 2) >= power else (rho, high)
    return high


def groups(half: Array, block: int) -> int:
    """Return the largest size of groups in which all draws round in the same direction, or 1.

    A group consists of consecutive elements. The function tries the powers of two and the block
    length as sizes.
    """
    sizes = sorted({1 << i for i in range(1, max(2, len(half).bit_length() - 5))} | ({block} if block else set()))
    found = 1
    for size in sizes:
        whole = half[: len(half) // size * size].reshape(-1, size)
        lowest = np.where(whole == 0, 1, whole).min(axis=1)
        highest = np.where(whole == 0, -1, whole).max(axis=1)
        if not (lowest >= highest).all():
            break
        found = size
    return found if abs(_mean(half)) < 1 else 1


def same_answers(calls: Array, names: Sequence[str]) -> list[str]:
    """Return at most one sentence, about calls that should differ but give the same answer.

    Each row of `calls` is a call: a vector of +1, -1 and 0, as in `echoes`.
    """
    drawn = calls[calls != 0]
    if not drawn.size or abs(drawn.sum()) == drawn.size:
        return []  # all draws round in the same direction, so equal calls prove nothing
    if all(abs(call.sum()) == abs(call).sum() for call in calls):
        return ["In each call all equal elements round in the same direction: the call uses one random word for all."]
    _, kind, copies = np.unique(calls, axis=0, return_inverse=True, return_counts=True)
    if len(copies) == len(calls):
        return []
    if len(copies) == 1:
        return [f"All answers are the same ({names[0]} to {names[-1]})."]
    alike = [name for name, of in zip(names, kind.ravel(), strict=True) if of == np.argmax(copies)]
    more = f" and {len(alike) - 4} more" if len(alike) > 4 else ""
    return [f"The calls gave only {len(copies)} different answers: {', '.join(alike[:4])}{more} give the same bits."]


def likeness(calls: Array, names: Sequence[str], level: float) -> list[str]:
    """Return sentences about pairs of calls that agree too often or too rarely to be independent.

    The function compares elements at the same index, and returns at most three sentences.
    """
    wide = calls.astype(np.float64)
    together, pairs = wide @ wide.T, abs(wide) @ abs(wide).T
    means = wide.sum(axis=1) / np.maximum(1, abs(wide).sum(axis=1))
    excess = np.minimum(abs(together), abs(together - pairs * np.outer(means, means))) / 2
    first, second = np.nonzero(np.triu(excess > deviation(pairs / 4, level), 1))
    return [
        f"{names[i]} and {names[j]}: elements at the same index round in the same direction in "
        f"{_share_text((1 + together[i, j] / pairs[i, j]) / 2)} of {int(pairs[i, j])} pairs, not in 50%."
        for i, j in zip(first[:3].tolist(), second[:3].tolist(), strict=True)
    ]


def _share_text(share: float) -> str:
    return f"{100 * share:.4g}%"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"

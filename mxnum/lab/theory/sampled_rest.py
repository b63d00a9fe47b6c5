"""Simulate, with mxnum's kernels, where logits come to rest if their whole gradient is rounded.

`logit_rest` assumes that rounding changes only the target's component, and that all other
components are right on average. In a block without the target, however, the largest predicted
probability p decides the scale. If the mantissa of the largest p is above the element format's
largest mantissa, p may overflow, and then rounding makes p smaller. The share of blocks that
overflow depends on how a model's predictions scatter around their means. This module draws random
contexts. Each context has its own order of symbols, its own deviations from the mean logits, and a
target. The kernels round the gradients of the contexts. Step by step, the module changes the mean
logits until all symbols have the same mean gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxnum import FloatScaleRule, MXFormat, Rounding, ScaleRule, errors, fake_quantize, formats
from mxnum.lab.theory.logit_equilibrium import Equilibrium, probabilities_of
from mxnum.memory.dtypes import Array

#: The number of steps of the search; the result is the mean over the last quarter of the steps.
_STEPS = 60
#: The largest change of a logit in a step.
_FARTHEST = 0.5
#: Step s of the search divides the changes of the logits by 1 + s / `_STEADY`, so that logits come
#: to rest even where the gradient jumps.
_STEADY = 20
#: The initial p of a symbol is at least `_LEAST` divided by the number of symbols. `_TINY` replaces
#: smaller divisors and smaller arguments of logarithms.
_LEAST, _TINY = 1e-3, 1e-30


def sampled_logit_rest(
    q: Any,
    format: str | MXFormat = "mxfp8_e4m3",
    tokens: int = 1 << 15,
    factor: float = 1.0,
    *,
    noise: float = 0.01,
    along: str = "vocabulary",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    rounding: str | Rounding = "rne",
    block_size: int | None = None,
    rows: int = 2048,
    seed: int = 0,
) -> Equilibrium:
    """Return the simulated equilibrium of the logits if the next symbol has probabilities q.

    Parameters
    ----------
    q
        Probabilities that sum to 1. Symbols with the same q come to rest at the same p.
    tokens, factor
        The numbers N and c. The gradient of the target's logit is (p - 1) c/N; the gradient of
        every other logit is p c/N.
    noise
        The loss of the model without rounding minus the entropy, in nats. Logits scatter around
        their mean with a standard deviation of sqrt(2 noise). A noise of 0 means a model that has
        learnt everything.
    along
        The direction of blocks: "vocabulary" for the product that gives the gradient of the last
        layer's input, or "tokens" for the product that gives the gradient of the last layer's
        weight. With "tokens", the simulation assumes that each target decides the scale of its
        block.
    format, scale_rule, rounding, block_size
        Arguments of `mxnum.fake_quantize`.
    rows, seed
        The number of contexts to draw, and the seed. If the format has a tensor scale, set `rows`
        to the number of tokens in a training step, because the tensor scale depends on the largest
        gradient of all contexts.

    In the result, p and the excess are means over contexts. The excess is relative to a model that
    has the same noise and does not round its gradient.

    >>> q = np.append(np.full(16, 1 / 16), np.zeros(240))
    >>> round(sampled_logit_rest(q, tokens=2048, noise=0.1, rows=256).excess, 2)
    0.06
    """
    wanted = probabilities_of(q)
    fmt = formats.get(format)
    unit = float(factor) / errors.positive_integer("tokens", tokens)
    errors.require(
        2.0**-40 <= unit <= 2.0**40, "factor", "such that factor / tokens is between 2**-40 and 2**40", factor
    )
    errors.require(0 <= noise < 100, "noise", "from 0 to below 100 nats", noise)
    axis = {"vocabulary": 1, "tokens": 0}[errors.choose("along", along, ("vocabulary", "tokens"))]
    drawn = errors.positive_integer("rows", rows), errors.integer("seed", seed, 0, 2**63 - 1)
    contexts = _Contexts(wanted, np.sqrt(2 * noise), *drawn)
    mode = errors.choose_member("rounding", rounding, Rounding)
    largest = fmt.element.max * fmt.scale.value(fmt.scale.max_code)

    def rounded(gradient: Array, pulls: Array, step: int) -> tuple[Array, Array]:
        options: dict[str, Any] = {"scale_rule": scale_rule, "rounding": mode}
        options |= {"seed": seed, "stream": step} if mode.is_stochastic else {}
        if fmt.tensor_scale is not None:
            options["tensor_scale"] = np.float32(np.abs(gradient).max() * unit / float(largest))
        whole, alone = (np.asarray(each * unit, np.float32) for each in (gradient, pulls))
        whole = fake_quantize(whole, fmt, axis=axis, block_size=block_size, **options)
        return whole / unit, fake_quantize(alone, fmt, block_size=1, **options) / unit

    _, unrounded, _ = contexts.rest(lambda gradient, pulls, _: (gradient, pulls))
    p, excess, drift = contexts.rest(rounded)
    pull = float((wanted * (1 - p)).sum())
    return Equilibrium(p, excess - unrounded, drift, -drift / pull if pull else 0.0)


class _Contexts:
    """Contexts with the same q; each has its own target, noise and order of symbols."""

    def __init__(self, q: Array, deviation: float, rows: int, seed: int):
        random = np.random.default_rng(seed)
        #: `values` has the distinct probabilities in q. `of_symbol` has each symbol's index in
        #: `values`, and `counts` has the number of symbols for each of the `values`.
        self.values, self.of_symbol, self.counts = np.unique(q, return_inverse=True, return_counts=True)
        symbols = random.permuted(np.tile(np.arange(q.size), (rows, 1)), axis=1)
        #: The next three attributes describe the symbol at each position of each context: the index
        #: of its q in `values`, whether it can be the target, and whether it is the target.
        self.of_position = self.of_symbol[symbols]
        self.may_come = self.values[self.of_position] > 0
        self.comes = symbols == random.choice(q.size, size=(rows, 1), p=q)
        self.noise = deviation * random.standard_normal((rows, q.size))

    def means_over(self, where: Array) -> Callable[[Array], Array]:
        """Return a function that averages values over the positions `where`, for each distinct q.

        The function's argument has one value for each of these positions. If no symbol at these
        positions has a certain q, the average for this q is 0.
        """
        group, length = self.of_position[where], self.counts.size
        counts = np.maximum(np.bincount(group, minlength=length), 1)

        def mean(values: Array) -> Array:
            found: Array = np.bincount(group, values, minlength=length) / counts
            return found

        return mean

    def rest(self, rounded: Callable[[Array, Array, int], tuple[Array, Array]]) -> tuple[Array, float, float]:
        """Return the p of each symbol, the excess loss and the drift of logits that are at rest.

        `rounded(gradient, pulls, step)` returns two rounded arrays. `gradient` has the gradients of
        the contexts, and `pulls` has 1 - p for each symbol that can be the target.
        """
        q, total, others = self.values, self.counts.sum(), ~self.comes
        mean_of_all = self.means_over(np.ones(self.comes.shape, bool))
        mean_of_others, mean_of_possible = self.means_over(others), self.means_over(self.may_come)
        logits = np.log(np.maximum(q, _LEAST / total))
        kept = []
        for step in range(_STEPS):
            p = np.exp(logits[self.of_position] + self.noise)
            p /= p.sum(axis=1, keepdims=True)
            gradient, pulls = p - self.comes, 1 - p[self.may_come]
            changed, pulled = rounded(gradient, pulls, step)
            pushes = mean_of_others((changed - gradient)[others])
            mean_p = mean_of_all(p.ravel())
            mean = mean_p - q + (1 - q) * pushes - q * mean_of_possible(pulled - pulls)
            drift = float(mean @ self.counts)
            if step >= _STEPS * 3 // 4:
                nats = mean_of_possible(np.log(p[self.may_come]))
                excess = q * (np.log(np.maximum(q, _TINY)) - nats) * self.counts
                kept.append((mean_p, float(excess.sum()), drift))
            towards = (drift / total - mean) / np.maximum(mean_p, _TINY)
            logits += np.clip(towards / (1 + step / _STEADY), -_FARTHEST, _FARTHEST)
        mean_p, excess, drift = (np.mean(each, axis=0) for each in zip(*kept, strict=True))
        return mean_p[self.of_symbol], float(excess), float(drift)

"""Judge kernels that draw their own random bits, with statistical tests of stated power."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from mxnum import errors
from mxnum.conformance.bits import Generator
from mxnum.conformance.calling import OF_TENSORS, Implementation
from mxnum.conformance.judging.report import ConformanceError, Profile, StochasticReport
from mxnum.conformance.operations import known, make_task
from mxnum.conformance.stochastic.trial import Trial
from mxnum.definition.by_numpy import looks_at_elements
from mxnum.formats import FLOATS, MXFormat


def check_stochastic(
    function: Callable[..., Any],
    *,
    format: str | MXFormat,
    operation: str = "quantize",
    sr_bits: int | None = None,
    seeded: bool | None = None,
    bias: float = 1 / 256,
    power: float = 0.99,
    false_alarm: float = 1e-4,
    seed: int = 0,
    accept: str | Iterable[str] | None = None,
    strict: bool = False,
    arrays: str = "numpy",
    scales: str = "plain",
    **modes: Any,
) -> StochasticReport:
    """Judge a callable that rounds with its own random bits, and return the report.

    Each number may only become one of its two neighbouring codes, and must become the code farther
    from zero with the right probability (see `sr_bits`). The codes of zero, of representable
    numbers and of saturated numbers must not change from call to call. Scales must be right and not
    random. The same seed must give the same bits, and different seeds must give different bits. The
    draws for different elements must be independent, in one call and in successive calls. The
    function raises `ConformanceError` if a callable violates one of these conditions.

    Parameters
    ----------
    function
        The callable under test, called as ``function(x)`` or ``function(x, seed)``. Arguments and
        answers have the types that `check` describes. For ``encode``, x has the shape (n,) and the
        answers are element codes. For ``quantize``, x has the shape (n, block) and the answers are
        ``(codes, scales)``. If the format has a tensor scale, x holds the blocks of one tensor. A
        parameter called ``largest`` then receives the tensor's largest magnitude, and a parameter
        called ``tensor_scale`` receives the tensor scale.
    sr_bits
        The number of random bits that the callable claims, 1 to 64. A number lies at some fraction
        of the gap between its two neighbours, counted from the neighbour nearer to zero. The right
        probability is this fraction, truncated to `sr_bits` bits; None means the exact fraction.
        The report says which numbers of random bits fit the answers.
    seeded
        True if the callable takes a seed. If `seeded` is None, the callable gets a seed if it needs
        two arguments, or if its second argument is called ``seed``.
    bias, power
        An error of `bias` in the probability of a single case is detected with a probability of at
        least `power`. `bias` and `power` determine the number of draws: about 14 / bias² for each
        of about sixty cases. With the defaults, the check takes seconds.
    false_alarm
        An upper limit for the probability that a right callable fails the check. There are three
        kinds of tests: of single cases, of groups of cases, and of dependence. Each kind gets a
        third of the limit, divided equally among the tests of this kind (Bonferroni).
    seed
        The seed for the cases and their order.
    accept, strict, arrays, scales
        As in `check`. With ``accept="sr_fraction"``, the callable may round the fraction to the
        nearest number of `sr_bits` bits instead of truncating the fraction.
    **modes
        ``source``, ``scale_rule``, ``overflow``, ``nonfinite``, ``block``: the modes that the
        callable claims.

    Examples
    --------
    >>> import mxnum as mx
    >>> from mxnum.conformance import check_stochastic
    >>> kernel = lambda x, seed: mx.encode(x, "e2m1", rounding="sr", seed=seed)
    >>> report = check_stochastic(kernel, format="mxfp4_e2m1", operation="encode", bias=1/16)
    >>> print(report.conforms, *report.fits, sep="; ")
    True; the exact fraction; 7 random bits or more
    """
    errors.choose("operation", operation, ("encode", "quantize"))
    rounding = modes.pop("rounding", "sr")
    errors.require(rounding == "sr", "rounding", "'sr', or left out", rounding)
    task = make_task(operation, format, **known(modes))
    errors.choose("source", task.source.name, tuple(FLOATS))
    by_elements = task.has_scales and looks_at_elements(task.scale_rule)
    errors.require(not by_elements, "scale_rule", "'nearest' or 'rceil' for check_stochastic", str(task.scale_rule))
    errors.require(not task.has_scales or task.block > 1, "block", "at least 2 for quantize", task.block)
    if sr_bits is not None:
        sr_bits = errors.integer("sr_bits", sr_bits, 1, 64)
    for name, value, most in (("bias", bias, 0.25), ("power", power, 0.9999), ("false_alarm", false_alarm, 0.5)):
        errors.require(0 < value <= most, name, f"above 0 and at most {most}", value)
    seeds = takes_seed(function) if seeded is None else bool(seeded)
    rng = Generator(errors.integer("seed", seed, 0, (1 << 64) - 1))
    trial = Trial(Implementation(function, arrays, scales), task, sr_bits, seeds, rng)
    report = trial.run(bias, power, false_alarm, Profile.of(accept))
    if not report.conforms or (strict and not report.is_equal):
        raise ConformanceError(report)
    return report


def takes_seed(function: Callable[..., Any]) -> bool:
    """Return True if a callable needs two arguments, or if the second argument is ``seed``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ValueError(
            "Argument 'seeded' must be True or False for a function whose signature cannot be read."
        ) from None
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in named if p.name not in OF_TENSORS]
    needed = [p for p in named if p.default is p.empty]
    errors.require(
        bool(named) and len(needed) <= 2, "function", "a callable of (x) or (x, seed)", str(inspect.signature(function))
    )
    return len(needed) == 2 or (len(named) >= 2 and named[1].name == "seed")

"""Check a Python callable: make cases, call it, judge its answers, and report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mxnum import errors
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases.batches import cases, has_nan
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.report import Case, ConformanceError, Profile, Report
from mxnum.conformance.operations import known, make_task
from mxnum.conformance.task import Columns, number_of
from mxnum.formats import MXFormat


def check(
    function: Callable[..., Any],
    *,
    format: str | MXFormat,
    operation: str = "quantize",
    level: int = 1,
    seed: int = 0,
    count: int | None = None,
    accept: str | Iterable[str] | None = None,
    strict: bool = False,
    shrink: bool = True,
    arrays: str = "numpy",
    scales: str = "plain",
    **modes: Any,
) -> Report:
    """Compare a callable with the right answers, and return the report.

    A bug raises `ConformanceError`.

    Parameters
    ----------
    function
        The callable under test. The function gets arrays of many cases at once, and may overwrite
        these arrays. The arguments and results of the function are:

        - ``encode``: ``function(x)`` returns element codes. The array x has the shape (n,). It
          holds codes if ``source`` is an element format, else floats.
        - ``quantize``: ``function(x)`` returns ``(codes, scales)``. The array x has the shape
          (n, block), and the scales have the shape (n,) or (n, 1). Instead of codes and scales,
          ``function(x)`` may return the values that they encode, in the type of x.
        - ``scale``: ``function(x)`` returns scale codes.
        - ``dequantize``: ``function(codes, scales)`` returns floats. Each element has its own
          scale.
        - ``dot``: ``function(a_codes, a_scales, b_codes, b_scales)`` returns n float32 numbers.
          Tensor scales are 1.
        - ``mma``, and ``dot`` if `accumulate` is a matrix unit: ``function(a, b, c)`` returns n
          numbers of the type of c. The arrays a and b have the shape (n, K) and the unit's operand
          type; c has the shape (n,). If the unit has scales, the arguments are
          ``(a_codes, a_scales, b_codes, b_scales, c)``.

        With ``rounding="sr"`` the last argument is the array of random words. The callable may
        return arrays or tensors. Codes may be integers, or have the element's own type of ml_dtypes
        or torch, or be bytes of the shape (n, block * bits / 8), packed row by row. Scales are
        integers or float8_e8m0fnu.
    format
        An MX format, which also sets the block length, or the type of arrays that a matrix unit
        takes (``"e4m3"``, ``"float16"``).
    level, seed, count
        Level 1 checks every boundary and its neighbours, special values and extreme scales. Level 2
        checks `count` random cases.
    accept
        Names of choices (see `mxnum.conformance.CHOICES`) that the implementation documents, or
        ``"all"``.
    strict
        If True, an answer that follows a permitted choice also raises an error, unless `accept` has
        this choice.
    shrink
        Search for the smallest failing input with the package Hypothesis, if installed.
    arrays
        The type of the arguments: ``"numpy"`` arrays, ``"torch"`` tensors, or ``"cuda"`` tensors.
        Codes and scales are uint8, random words are uint32. The operands of a matrix unit have the
        unit's operand type. If torch lacks this type, the operands are passed as codes.
    scales
        Layout of the returned scales: ``"plain"``, or ``"swizzled"`` for tensor cores
        (`mxnum.interop.swizzle`). The callable must swizzle the scales as a matrix of n rows and
        one column, padding included; `check` does not compare the padding.
    **modes
        The modes that the callable claims to implement: ``source``, ``rounding``, ``scale_rule``,
        ``overflow``, ``nonfinite``, ``sr_bits``, ``accumulate`` and ``block``. A mode that has no
        effect on the operation raises ValueError. ``accumulate`` may be a `mxnum.units.MatrixUnit`
        or its name. Two further settings choose the size of the cases. ``dot_blocks`` is the number
        of blocks in each operand of ``dot``. The default, four blocks, is the smallest number that
        shows in which order blocks are summed. ``k`` is the number of products in each case of a
        matrix unit.

    Examples
    --------
    >>> import numpy as np, ml_dtypes
    >>> from mxnum.conformance import check
    >>> cast = lambda x: x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    >>> check(cast, format="mxfp8_e4m3", operation="encode", overflow="ieee").bugs
    0
    """
    task = make_task(operation, format, **known(modes))
    implementation = Implementation(function, arrays, scales)
    collector = Collector(task, Profile.of(accept))
    judge_all(collector, implementation, cases(task, level=level, seed=seed, count=count))
    report = collector.report()
    if report.bugs or (strict and not report.is_equal):
        smallest, note = _smallest(implementation, report) if shrink else (None, "")
        raise ConformanceError(report, smallest, note)
    return report


def judge_all(collector: Collector, implementation: Implementation, batches: Iterable[Columns]) -> None:
    """Call an implementation with all cases and judge its answers.

    If the definition has no answer for a NaN, the implementation may raise an error for a batch in
    which every case has a NaN. The report then only mentions the error.
    """
    task, number = collector.task, 1
    for inputs in batches:
        try:
            answers = implementation.answers(task, inputs)
        except Exception as problem:
            if task.takes_nan or not has_nan(task, inputs).all():
                raise
            collector.coverage.refused = type(problem).__name__
            continue
        collector.add(inputs, answers, number)
        number += number_of(inputs)


def _smallest(implementation: Implementation, report: Report) -> tuple[Case | None, str]:
    """Return the smallest failing case, or None and the reason why there is none."""
    try:
        from mxnum.conformance.shrink import smallest_failure

        return smallest_failure(implementation, report), ""
    except ModuleNotFoundError as problem:
        if problem.name != "hypothesis":
            raise
        return None, f"The search for the smallest failing input needs Hypothesis ({errors.install('test')})."
    except Exception as problem:  # the callable may raise an error if it gets fewer cases at once
        return (
            None,
            f"The smallest failing input was not found: given fewer cases at once, the function raised {problem!r}.",
        )

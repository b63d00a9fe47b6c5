"""Checking a Python callable, and finding the smallest input that shows what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.conformance.cases import cases
from mxnum.conformance.expected import as_bits, as_floats
from mxnum.conformance.judge import BUG, judge
from mxnum.conformance.task import Columns, Field, Task, make_task
from mxnum.conformance.verdict import Case, Judge, Profile, Report
from mxnum.dtypes import Array, code_dtype
from mxnum.formats import MXFormat

#: Examples that hypothesis tries while it looks for a small failure.
EXAMPLES = 1000


class ConformanceError(AssertionError):
    """An implementation differs from the right answers in a way that no legitimate choice explains."""

    def __init__(self, report: Report, smallest: Case | None) -> None:
        self.report, self.smallest = report, smallest
        text = report.text()
        if smallest is not None:
            text += f"\nSmallest failing input found: {smallest.text(report.task)}"
        super().__init__(text)


def check(
    function: Callable[..., Any],
    *,
    format: str | MXFormat,
    operation: str = "quantize",
    level: int = 1,
    seed: int = 0,
    count: int | None = None,
    accept: str | Iterable[str] | Profile | None = None,
    strict: bool = False,
    shrink: bool = True,
    **modes: Any,
) -> Report:
    """Compare a callable with the right answers; the report, or `ConformanceError` if there is a bug.

    Parameters
    ----------
    function
        What is tested, called with numpy arrays of many cases at once:

        - ``encode``: ``function(x)`` gives element codes; x has the shape (n,);
        - ``quantize``: ``function(x)`` gives ``(codes, scales)``; x has the shape (n, block);
        - ``scale``: ``function(x)`` gives scale codes;
        - ``dequantize``: ``function(codes, scales)`` gives floats, one scale an element;
        - ``dot``: ``function(a_codes, a_scales, b_codes, b_scales)`` gives n float32 numbers.

        With ``rounding="sr"`` the random words come as one more argument.
    format
        An MX format; block lengths follow it.
    level, seed, count
        Level 1: every boundary and its neighbours, special values, extreme scales. Level 2: random cases, so many.
    accept
        Names of choices (see `mxnum.conformance.CHOICES`) that the implementation documents, or ``"all"``.
    strict
        Raise for choices that are not accepted as well.
    shrink
        Look for the smallest input with hypothesis, where that is installed.
    **modes
        ``source``, ``rounding``, ``scale_rule``, ``overflow``, ``nonfinite``, ``sr_bits``, ``accumulate``, ``block``:
        what the callable claims to do.

    Examples
    --------
    >>> import numpy as np, ml_dtypes
    >>> from mxnum.conformance import check
    >>> cast = lambda x: x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    >>> check(cast, format="mxfp8_e4m3", operation="encode", overflow="ieee").bugs
    0
    """
    task = make_task(operation, format, **modes)
    judge_of_all = Judge(task, Profile.of(accept))
    line = 1
    for inputs in cases(task, level=level, seed=seed, count=count):
        judge_of_all.add(inputs, answers_of(function, task, inputs), line)
        line += len(next(iter(inputs.values())))
    report = judge_of_all.report()
    if report.bugs or (strict and not report.is_equal):
        smallest = smallest_failure(function, report) if shrink else None
        raise ConformanceError(report, smallest)
    return report


def answers_of(function: Callable[..., Any], task: Task, inputs: Columns) -> Columns:
    """Call the implementation with a batch of cases, and bring what it gives into columns."""
    count = len(next(iter(inputs.values())))
    arguments: list[Array] = []
    match task.operation:
        case "encode":
            arguments = [as_floats(inputs["x"][:, 0], task.source)]
        case "quantize" | "scale":
            arguments = [as_floats(inputs["x"], task.source)]
        case "dequantize":
            arguments = [inputs["code"][:, 0].copy(), inputs["scale"][:, 0].copy()]
        case _:
            arguments = [inputs[name] for name in ("a", "a_scale", "b", "b_scale")]
    if task.is_stochastic:
        words = inputs["random"]
        arguments.append(words[:, 0].copy() if task.operation == "encode" else words)
    with np.errstate(all="ignore"):
        result = function(*arguments)
    if task.operation == "quantize":
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(f"Argument 'function' must give (codes, scales), not {type(result).__name__}.")
        codes, scales = result
        if task.block > 1 and (np.size(codes), np.size(scales)) == (count, count * task.block):
            raise ValueError("Argument 'function' must give (codes, scales), not (scales, codes).")
        given = {"scale": scales, "codes": codes}
    else:
        given = {task.outputs[0].name: result}
    return {field.name: _column(given[field.name], field, count, task) for field in task.outputs}


def _column(value: Any, field: Field, count: int, task: Task) -> Array:
    array: Array = np.asarray(value)
    accepted = f"of {count} x {field.count} elements" if field.count > 1 else f"of {count} elements"
    errors.require(array.size == count * field.count, f"function: {field.name}", accepted, array.shape)
    if field.kind == "float":
        errors.require_type(
            array.dtype.itemsize == field.bits // 8, f"function: {field.name}", task.source.name, array.dtype
        )
        return as_bits(array, task.source).reshape(count, field.count)
    dtype = code_dtype(field.bits)
    if array.dtype.kind not in "ui":  # a float8 or E8M0 type
        errors.require_type(array.dtype.itemsize == 1, f"function: {field.name}", "an array of codes", array.dtype)
        array = np.ascontiguousarray(array).view(np.uint8)
    mask = (1 << field.bits) - 1
    result: Array = (array.astype(np.int64) & mask).astype(dtype)
    shaped: Array = result.reshape(count, field.count)
    return shaped


def smallest_failure(
    function: Callable[..., Any], report: Report, first: Case | None = None, examples: int = EXAMPLES
) -> Case | None:
    """The smallest input that hypothesis finds for a failure of a report (the first); that failure if it finds none.

    None without hypothesis.
    """
    if not report.first:
        return next(iter(report.examples.values()), None)
    first = first or report.first[0]
    try:
        from mxnum.conformance.shrink import search
    except ModuleNotFoundError:
        return None
    task = report.task

    def wrong(inputs: Columns) -> Array:
        found = judge(task, inputs, answers_of(function, task, inputs), {})
        alike = np.array([first.part is None or part == first.part for part in found.parts])
        fails: Array = ((found.verdicts & BUG) != 0) & alike
        return fails

    known = [first.inputs, *(case.inputs for case in report.first if case.part == first.part)]
    inputs = search(task, wrong, known, examples)
    if inputs is None:
        return first
    again = Judge(task, report.profile, keep=1)
    again.add(inputs, answers_of(function, task, inputs))
    found = again.report().first
    return found[0] if found else first

"""Check a Python callable, and find the smallest input that shows what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.conformance.calling import SCALES, answers_of, chosen
from mxnum.conformance.cases import cases, grid
from mxnum.conformance.cases.coverage import has_nan
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.judge import BUG, judge
from mxnum.conformance.judging.report import Case, ConformanceError, Profile, Report
from mxnum.conformance.judging.right import as_floats, with_tensor
from mxnum.conformance.task import Columns, Task, known, make_task
from mxnum.formats import MXFormat
from mxnum.memory.dtypes import Array, code_dtype

hypothesis: Any = errors.package("hypothesis", "test")
st: Any = errors.package("hypothesis.strategies", "test")


def search(task: Task, wrong: Callable[[Columns], Array], known: Sequence[Columns], examples: int) -> Columns | None:
    """Return a failing case (columns of one row), as small as possible; None if none is found.

    `wrong` says for each case of a batch whether it fails. Simple numbers are tried first; the
    numbers of the known failures only if simple ones do not fail. Hypothesis shrinks step by step
    and can miss a simpler case. Each number of its case is therefore replaced by the simplest
    number that still fails.
    """
    settings = hypothesis.settings(
        database=None, derandomize=True, deadline=None, max_examples=examples,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    for seen in ([], known) if "x" in known[0] else ([],):
        try:
            found: Columns = hypothesis.find(_inputs(task, seen), lambda one: bool(wrong(one)[0]), settings=settings)
        except hypothesis.errors.NoSuchExample:
            continue
        return _simplest(task, wrong, found, _pool(task, seen)) if "x" in found else found
    return _simplest(task, wrong, known[0], _pool(task, known)) if "x" in known[0] and wrong(known[0])[0] else None


def _simplest_tensor(task: Task, wrong: Callable[[Columns], Array], case: Columns) -> Columns:
    """Return the case in the first tensor with which it still fails: the block alone, or one of a plain size."""
    sizes = _largest(task, [case])
    batch = {name: np.repeat(column, len(sizes), axis=0) for name, column in case.items()}
    batch["largest"] = np.array(sizes, batch["largest"].dtype).reshape(-1, 1)
    batch = with_tensor(task, batch)
    fails = np.flatnonzero(wrong(batch))
    return {name: column[fails[:1]] for name, column in batch.items()} if fails.size else case


def _largest(task: Task, seen: Sequence[Columns]) -> list[int]:
    """Return largest magnitudes of tensors, as bit patterns.

    0 stands for the block's own. Plain numbers follow, then those of the cases seen.
    """
    plain = [float(v) for v in (2688, 12, 6, 1, 5.25) if v <= task.source.max]
    known = [int(case["largest"][0, 0]) for case in seen]
    return list(dict.fromkeys([0, *grid.narrowed(np.array(plain), task.source).tolist(), *known]))


def _simplest(task: Task, wrong: Callable[[Columns], Array], found: Columns, pool: list[int]) -> Columns:
    """Return the case with each number replaced by zero or by the first in the pool with which it still fails."""
    case = {name: column.copy() for name, column in found.items()}
    for _ in range(3):
        before = case["x"].copy()
        for place in np.flatnonzero(case["x"][0]):
            now = int(case["x"][0, place])
            simpler = [0, *(pool[: pool.index(now)] if now in pool else pool)]
            batch = {name: np.repeat(column, len(simpler), axis=0) for name, column in case.items()}
            batch["x"][:, place] = simpler
            fails = np.flatnonzero(wrong(with_tensor(task, batch)))
            if fails.size:
                case["x"][0, place] = simpler[int(fails[0])]
                case = with_tensor(task, case)
        if task.has_tensor:
            case = _simplest_tensor(task, wrong, case)
        if np.array_equal(before, case["x"]):
            break
    order = np.argsort(case["x"][0] == 0, kind="stable")  # zeros last
    in_front = {name: column[:, order] if column.shape[1] == len(order) else column for name, column in case.items()}
    return in_front if wrong(in_front)[0] else case


def _inputs(task: Task, seen: Sequence[Columns]) -> Any:
    """Return a strategy for cases of few numbers: simple ones, boundaries, and those of the cases seen."""

    def column(name: str, numbers: Sequence[int]) -> Array:
        field = next(field for field in task.inputs if field.name == name)
        filled = [*numbers, *[0] * (field.count - len(numbers))]
        return np.array(filled, np.uint64).astype(code_dtype(field.bits)).reshape(1, -1)

    def of_tensor(largest: int) -> Columns:
        return {"largest": column("largest", [largest])} if task.has_tensor else {}

    tensors = st.sampled_from(_largest(task, seen)) if task.has_tensor else st.just(0)
    if task.operation in ("encode", "quantize", "scale"):
        numbers = st.sampled_from(_pool(task, seen))
        length = task.inputs[0].count
        words = st.one_of(st.just(0), st.integers(0, (1 << task.sr_bits) - 1))

        def build(x: list[int], random: int, largest: int) -> Columns:
            inputs = {"x": column("x", x)}
            if task.is_stochastic:
                inputs["random"] = column("random", [random] * length)
            return with_tensor(
                task, {**inputs, **({"largest": column("largest", [largest])} if task.has_tensor else {})}
            )

        lists = st.lists(numbers, min_size=1, max_size=length)
        return st.builds(build, lists, words if task.is_stochastic else st.just(0), tensors)
    scales = st.sampled_from(_scale_codes(task))
    codes = st.integers(0, (1 << task.element.bits) - 1)
    if task.operation == "dequantize":

        def pair(scale: int, code: int, largest: int) -> Columns:
            inputs = {"scale": column("scale", [scale]), "code": column("code", [code])}
            return with_tensor(
                task, {**inputs, **({"largest": column("largest", [largest])} if task.has_tensor else {})}
            )

        return st.builds(pair, scales, codes, tensors)
    pairs = st.lists(st.tuples(codes, codes), min_size=1, max_size=task.block * task.dot_blocks)
    sides = st.lists(scales, min_size=task.dot_blocks, max_size=task.dot_blocks)

    def dot(pairs: list[tuple[int, int]], a_scale: list[int], b_scale: list[int]) -> Columns:
        return {
            "a_scale": column("a_scale", a_scale), "a": column("a", [a for a, _ in pairs]),
            "b_scale": column("b_scale", b_scale), "b": column("b", [b for _, b in pairs]),
        }  # fmt: skip

    return st.builds(dot, pairs, sides, sides)


def _scale_codes(task: Task) -> list[int]:
    """Return codes of scales, those near 1 first; of wide floats, powers of two and the ends."""
    number = task.format.scale.number
    one = task.format.scale.bias if number is None else number.bias << number.mantissa_bits
    step = 1 if task.scale_bits <= 8 or number is None else 1 << number.mantissa_bits
    codes = {*range(0, 1 << task.scale_bits, step), 1, (1 << task.scale_bits) - 1}
    return sorted(codes, key=lambda code: abs(code - one))


def _pool(task: Task, seen: Sequence[Columns]) -> list[int]:
    """Return bit patterns to choose from, simple ones first."""
    source = task.source
    powers = np.ldexp(1.0, np.arange(max(source.emin, -40), min(source.emax, 40) + 1))
    simple = grid.with_neighbours(grid.narrowed(np.concatenate([grid.points(task.element), powers]), source), source)
    parts = [simple, grid.special_patterns(source, nan=task.takes_nan), *(case["x"].ravel() for case in seen)]
    bits = np.unique(np.concatenate(parts))
    floats = as_floats(bits, source)
    order = sorted(range(len(bits)), key=lambda i: (grid.simplicity(floats[i]), int(bits[i])))
    return [int(bits[i]) for i in order]


#: Number of examples that hypothesis tries to find a small failure.
EXAMPLES = 1000


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
    """Compare a callable with the right answers. Return the report; raise `ConformanceError` if there is a bug.

    Parameters
    ----------
    function
        The callable under test. It is called with arrays of many cases at once, which it may
        overwrite:

        - ``encode``: ``function(x)`` gives element codes; x has the shape (n,);
        - ``quantize``: ``function(x)`` gives ``(codes, scales)``; x has the shape (n, block), scales (n,) or (n, 1);
          or it returns the values that the codes and scales stand for, in the type of x;
        - ``scale``: ``function(x)`` gives scale codes;
        - ``dequantize``: ``function(codes, scales)`` gives floats, one scale an element;
        - ``dot``: ``function(a_codes, a_scales, b_codes, b_scales)`` gives n float32 numbers; tensor scales are 1.

        With ``rounding="sr"`` the random words are one more argument. The callable may return
        arrays or tensors. Codes are integers, the element's own type of ml_dtypes or torch, or
        bytes that are packed row by row, of the shape (n, block * bits / 8). Scales are integers or
        float8_e8m0fnu.
    format
        An MX format, which also sets the block length.
    level, seed, count
        Level 1: every boundary and its neighbours, special values, extreme scales. Level 2: `count`
        random cases.
    accept
        Names of choices (see `mxnum.conformance.CHOICES`) that the implementation documents, or ``"all"``.
    strict
        Raise for choices that are not accepted as well.
    shrink
        Search for the smallest failing input with hypothesis, if it is installed.
    arrays
        The type of the arguments: ``"numpy"`` arrays, ``"torch"`` tensors, or ``"cuda"`` tensors.
        Codes and scales are uint8, random words are uint32.
    scales
        Layout of the scales that the callable returns: ``"plain"``, or ``"swizzled"`` as tensor
        cores read them (`mxnum.interop.swizzle`), for a matrix of n rows and one column of scales.
    **modes
        ``source``, ``rounding``, ``scale_rule``, ``overflow``, ``nonfinite``, ``sr_bits``, ``accumulate``, ``block``:
        the modes that the callable claims to implement. A mode that has no effect here raises
        ValueError. ``dot_blocks``: the number of blocks in each operand of ``dot``. The default is
        four, the least that shows in which order an implementation sums blocks.

    Examples
    --------
    >>> import numpy as np, ml_dtypes
    >>> from mxnum.conformance import check
    >>> cast = lambda x: x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    >>> check(cast, format="mxfp8_e4m3", operation="encode", overflow="ieee").bugs
    0
    """
    task = make_task(operation, format, **known(modes))
    arrays, scales = chosen(arrays), errors.choose("scales", scales, SCALES)
    judge_of_all = Collector(task, Profile.of(accept))
    judge_all(judge_of_all, function, cases(task, level=level, seed=seed, count=count), arrays, scales)
    report = judge_of_all.report()
    if report.bugs or (strict and not report.is_equal):
        smallest, note = _smallest(function, report, arrays, scales) if shrink else (None, "")
        raise ConformanceError(report, smallest, note)
    return report


def judge_all(
    judge_of_all: Collector, function: Callable[..., Any], batches: Iterable[Columns], arrays: str, scales: str
) -> None:
    """Call a function with all cases and judge its answers.

    The function may raise for batches of NaNs that have no answer; their cases are then skipped.
    """
    task, number = judge_of_all.task, 1
    for inputs in batches:
        try:
            answers = answers_of(function, task, inputs, arrays, scales)
        except Exception as problem:
            if task.takes_nan or not has_nan(task, inputs).all():
                raise
            judge_of_all.coverage.refused = type(problem).__name__
            continue
        judge_of_all.add(inputs, answers, number)
        number += len(next(iter(inputs.values())))


def _smallest(function: Callable[..., Any], report: Report, arrays: str, scales: str) -> tuple[Case | None, str]:
    """Return the smallest failing case, or None and the reason why there is none."""
    try:
        return smallest_failure(function, report, arrays=arrays, scales=scales), ""
    except ModuleNotFoundError as problem:
        if problem.name != "hypothesis":
            raise
        return None, f"The smallest failing input was not looked for: that needs hypothesis ({errors.install('test')})."
    except Exception as problem:  # whatever the callable raises for a few cases at once
        return None, f"The smallest failing input was not found: for fewer cases the function raised {problem!r}."


def smallest_failure(
    function: Callable[..., Any],
    report: Report,
    first: Case | None = None,
    examples: int = EXAMPLES,
    arrays: str = "numpy",
    scales: str = "plain",
) -> Case:
    """Return the smallest input for which hypothesis finds the same failure as the report's first.

    If hypothesis finds none, the first failure itself is returned. Needs hypothesis.
    """
    first = first or next(iter(report.failures or report.examples.values()))
    if not report.failures:
        return first

    task = report.task

    def wrong(inputs: Columns) -> Array:
        found = judge(task, inputs, answers_of(function, task, inputs, arrays, scales), {})
        alike = np.array([first.part is None or part == first.part for part in found.parts])
        fails: Array = ((found.verdicts & BUG) != 0) & alike
        return fails

    known = [first.inputs, *(case.inputs for case in report.failures if case.part == first.part)]
    inputs = search(task, wrong, known, examples)
    if inputs is None:
        return first
    again = Collector(task, report.profile, keep=1)
    again.add(inputs, answers_of(function, task, inputs, arrays, scales))
    found = again.report().failures
    return found[0] if found else first

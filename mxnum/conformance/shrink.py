"""Find a small failing case with Hypothesis, from simple numbers and those of known failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.conformance.bits import as_floats
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases import grid
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.judge import BUG, judge
from mxnum.conformance.judging.report import Case, Report
from mxnum.conformance.judging.right import with_tensor
from mxnum.conformance.task import Columns, Field, Task, select
from mxnum.formats import FLOATS, ElementFormat
from mxnum.memory.dtypes import Array, code_dtype

hypothesis: Any = errors.package("hypothesis", "test")
st: Any = errors.package("hypothesis.strategies", "test")

#: The number of examples that Hypothesis tries in its search for a small failure.
EXAMPLES = 1000
Wrong = Callable[[Columns], Array]


def smallest_failure(
    implementation: Implementation, report: Report, first: Case | None = None, examples: int = EXAMPLES
) -> Case:
    """Return the smallest case found that fails in the same way as the case `first`.

    By default, `first` is the report's first failure. If the search finds no case, return `first`.
    """
    first = first or next(iter(report.failures or report.examples.values()))
    if not report.failures:
        return first
    task = report.task

    def wrong(inputs: Columns) -> Array:
        found = judge(task, inputs, implementation.answers(task, inputs))
        alike = np.array([first.part is None or part == first.part for part in found.parts])
        return np.asarray(((found.verdicts & BUG) != 0) & alike)

    known = [first.inputs, *(case.inputs for case in report.failures if case.part == first.part)]
    inputs = search(task, wrong, known, examples)
    if inputs is None:
        return first
    again = Collector(task, report.profile, keep=1)
    again.add(inputs, implementation.answers(task, inputs))
    return next(iter(again.report().failures), first)


def search(task: Task, wrong: Wrong, known: Sequence[Columns], examples: int) -> Columns | None:
    """Return a failing case (columns of one row), as small as possible, or None.

    `wrong` takes a batch of cases, and returns True for each case that fails. The search tries
    simple numbers first, and the numbers of the known failures only if no simple numbers fail.

    Hypothesis can miss a simpler case. The search therefore replaces each number of the case that
    Hypothesis finds by the simplest number with which the case still fails.
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
    if "c" in known[0] and wrong(known[0])[0]:
        return _with_fewer_products(wrong, known[0])
    return _simplest(task, wrong, known[0], _pool(task, known)) if "x" in known[0] and wrong(known[0])[0] else None


def _with_fewer_products(wrong: Wrong, found: Columns) -> Columns:
    """Return the dot product with every number set to zero that the failure does not need."""
    case = {name: column.copy() for name, column in found.items()}
    for names, at in [*((("a", "b"), place) for place in range(case["a"].shape[1])), (("c",), 0)]:
        simpler = {name: column.copy() for name, column in case.items()}
        for name in names:
            simpler[name][0, at] = 0
        case = simpler if wrong(simpler)[0] else case
    return case


def _simplest(task: Task, wrong: Wrong, found: Columns, pool: list[int]) -> Columns:
    """Return a case with simpler numbers that still fails.

    For each number, the function tries zero and then the numbers in `pool`, and takes the first one
    with which the case still fails.
    """
    case = {name: column.copy() for name, column in found.items()}
    for _ in range(3):
        before = case["x"].copy()
        for place in np.flatnonzero(case["x"][0]):
            now = int(case["x"][0, place])
            simpler = [0, *(pool[: pool.index(now)] if now in pool else pool)]
            batch = select(case, [0] * len(simpler))
            batch["x"][:, place] = simpler
            fails = np.flatnonzero(wrong(with_tensor(task, batch)))
            if fails.size:
                case["x"][0, place] = simpler[int(fails[0])]
                case = with_tensor(task, case)
        if task.has_tensor:
            case = _simplest_tensor(task, wrong, case)
        if np.array_equal(before, case["x"]):
            break
    order = np.argsort(case["x"][0] == 0, kind="stable")  # move zeros to the end of the block
    in_front = {name: column[:, order] if column.shape[1] == len(order) else column for name, column in case.items()}
    return in_front if wrong(in_front)[0] else case


def _simplest_tensor(task: Task, wrong: Wrong, case: Columns) -> Columns:
    """Return the case as part of the simplest tensor in which the case still fails.

    The function tries, in this order, the block alone, tensors whose largest magnitude is a simple
    number, and the case's own tensor.
    """
    sizes = _largest(task, [case])
    batch = select(case, [0] * len(sizes))
    batch["largest"] = np.array(sizes, batch["largest"].dtype).reshape(-1, 1)
    batch = with_tensor(task, batch)
    fails = np.flatnonzero(wrong(batch))
    return select(batch, fails[:1]) if fails.size else case


def _inputs(task: Task, seen: Sequence[Columns]) -> Any:
    """Return a Hypothesis strategy that generates cases.

    The numbers of a case are simple numbers, boundary numbers, or numbers of the cases in `seen`.
    If a case has fewer numbers than a block has elements, zeros fill the rest of the block.
    """
    fields = [field for field in task.inputs if field.name != "tensor_scale"]
    elements = [field for field in fields if field.kind in ("element", "operand")]
    codes = st.integers(0, (1 << task.element.bits) - 1)
    if task.element.bits > 8:
        codes = st.sampled_from(_floats(task.element))
    made: dict[str, Any] = {}
    for field in fields:
        if field.kind in ("float", "code"):
            made[field.name] = st.lists(st.sampled_from(_pool(task, seen)), min_size=1, max_size=field.count)
        elif field.kind == "addend":
            made[field.name] = st.lists(st.sampled_from(_floats(task.source)), min_size=1, max_size=1)
        elif field.kind == "scale":
            scales = st.sampled_from(_scale_codes(task))
            made[field.name] = st.lists(scales, min_size=field.count, max_size=field.count)
        elif field.kind == "random":
            words = st.one_of(st.just(0), st.integers(0, (1 << task.sr_bits) - 1))
            made[field.name] = words.map(lambda word, count=field.count: [word] * count)
        elif field.kind == "tensor":
            made[field.name] = st.sampled_from(_largest(task, seen)).map(lambda largest: [largest])
    if elements:
        row = st.tuples(*[codes] * len(elements))
        made["elements"] = st.lists(row, min_size=1, max_size=elements[0].count)

    def column(field: Field, numbers: Sequence[int]) -> Array:
        filled = [*numbers, *[0] * (field.count - len(numbers))]
        return np.array(filled, np.uint64).astype(code_dtype(field.bits)).reshape(1, -1)

    def build(elements_made: Any = (), **numbers: Any) -> Columns:
        numbers |= {field.name: [row[i] for row in elements_made] for i, field in enumerate(elements)}
        return with_tensor(task, {field.name: column(field, numbers[field.name]) for field in fields})

    return st.builds(build, made.pop("elements", st.just(())), **made)


def _largest(task: Task, seen: Sequence[Columns]) -> list[int]:
    """Return the candidates for a tensor's largest magnitude, as bit patterns in order of trial.

    The first candidate, 0, means the block's own largest magnitude. A few simple numbers follow,
    and then the largest magnitudes of the cases in `seen`.
    """
    plain = [float(v) for v in (2688, 12, 6, 1, 5.25) if v <= task.source.max]
    known = [int(case["largest"][0, 0]) for case in seen]
    return list(dict.fromkeys([0, *grid.narrowed(np.array(plain), task.source).tolist(), *known]))


def _scale_codes(task: Task) -> list[int]:
    """Return scale codes, sorted by their distance from the code of scale 1.

    If scales have more than 8 bits, the result has only the codes of powers of two, and the
    smallest and largest codes.
    """
    number = task.format.scale.number
    one = task.format.scale.bias if number is None else number.bias << number.mantissa_bits
    step = 1 if task.scale_bits <= 8 or number is None else 1 << number.mantissa_bits
    codes = {*range(0, 1 << task.scale_bits, step), 1, (1 << task.scale_bits) - 1}
    return sorted(codes, key=lambda code: abs(code - one))


def _floats(source: ElementFormat) -> list[int]:
    """Return the bit patterns of special floats, powers of two and their neighbours.

    The simplest floats come first.
    """
    bits = grid.with_neighbours(grid.narrowed(_powers(source), source), source)
    bits = np.unique(np.concatenate([bits, grid.special_patterns(source)]))
    floats = as_floats(bits, source)
    return [int(bits[i]) for i in sorted(range(len(bits)), key=lambda i: (grid.simplicity(floats[i]), int(bits[i])))]


def _powers(source: ElementFormat) -> Array:
    return np.ldexp(1.0, np.arange(max(source.emin, -40), min(source.emax, 40) + 1))


def _pool(task: Task, seen: Sequence[Columns]) -> list[int]:
    """Return the bit patterns of the numbers that the search tries, the simplest first."""
    source = task.source
    if source.name not in FLOATS:
        codes = np.arange(1 << source.bits)
        values = as_floats(codes, source)
        known = codes[task.takes_nan | ~np.isnan(values)].tolist()
        return sorted(known, key=lambda code: (grid.simplicity(values[code]), code))
    points = np.concatenate([grid.points(task.element), _powers(source)])
    simple = grid.with_neighbours(grid.narrowed(points, source), source)
    parts = [simple, grid.special_patterns(source, nan=task.takes_nan), *(case["x"].ravel() for case in seen)]
    bits = np.unique(np.concatenate(parts))
    floats = as_floats(bits, source)
    order = sorted(range(len(bits)), key=lambda i: (grid.simplicity(floats[i]), int(bits[i])))
    return [int(bits[i]) for i in order]

"""Find the rules and units that reproduce the answers of a matrix unit: `identify`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.formats import ElementFormat
from mxnum.units.identify.cases import Maker, first_cases, mixed
from mxnum.units.identify.family import (
    FIELDS,
    Array,
    Cases,
    Evaluator,
    Problem,
    Rule,
    evaluate,
    join,
    rules_of,
    table_of,
)
from mxnum.units.identify.registered import rule_of, unit_of
from mxnum.units.identify.search import Search, canonical, core_of
from mxnum.units.unit import OPERANDS, MatrixUnit

#: The search for the nearest rule accepts rules with at most `FEW` wrong answers.
FEW = 3
#: `Identification.further_cases` searches for cases that separate rules. Each step of this search
#: compares at most 2 * COMPARED rules.
COMPARED = 32
#: Each step of the search for further cases tries PART random cases, and MIXED cases that mix two
#: others.
PART, MIXED = 200, 1050
#: Rules that give equal answers to this many further cases count as equivalent.
POOL = 60_000


@dataclass
class Identification:
    """The result of `identify`: the rules and units that reproduce the answers of a function."""

    problem: Problem
    cases: Cases
    answers: Array
    #: The rules of the family that reproduce every answer, as a table of integers.
    table: Array = field(repr=False)
    #: None if a rule reproduces all answers; otherwise the tried rule with the fewest errors.
    nearest: Rule | None = None
    #: Indices of the cases for which the function gave two different answers.
    unstable: list[int] = field(default_factory=list)
    #: The names of the registered units that reproduce every answer.
    registered: list[str] = field(default_factory=list)
    #: A table of the rules that reproduce the answers of ordinary cases (`cases.ordinary`). The
    #: next round searches the rules in `left` or, if `complete` is True, the rules in `table`.
    left: Array | None = field(default=None, repr=False)
    #: True if `rules` contains every rule of the family that reproduces all answers.
    complete: bool = False

    @cached_property
    def rules(self) -> list[Rule]:
        """The rules of the family that reproduce every answer; empty if no rule does."""
        return rules_of(self.table, self.problem.k)

    @property
    def fields(self) -> dict[str, list[Any]]:
        """For each field of a rule, the values of this field in `rules`."""
        return {name: list(dict.fromkeys(getattr(rule, name) for rule in self.rules)) for name in FIELDS}

    @property
    def unit(self) -> MatrixUnit | None:
        """A `MatrixUnit` that adds by one of `rules`; None if no `MatrixUnit` can do so."""
        stated = (unit_of(rule, self.problem) for rule in self.rules)
        return next((unit for unit in stated if unit is not None), None)

    @property
    def nan_seen(self) -> bool:
        """True if any answer is a NaN; otherwise the bits of NaN results are unknown."""
        return canonical(self.problem, self.answers)[1] is not None

    def contradictions(self) -> list[int]:
        """Return indices of cases that contradict the nearest rule, sorted by number of terms."""
        if self.rules or self.nearest is None:
            return []
        answers, _ = canonical(self.problem, self.answers)
        wrong = np.flatnonzero(evaluate(self.nearest, self.problem, self.cases) != answers)
        terms = ((self.cases.a != 0) & (self.cases.b != 0)).sum(axis=1) + (self.cases.c != 0)
        return [int(i) for i in sorted(wrong, key=lambda i: int(terms[i]))]

    def further_cases(self, seed: int = 1, pool: int = POOL, count: int = 24) -> Cases | None:
        """Return cases for which the remaining rules give different answers, or None."""
        rules = shuffled(self.table, seed)
        if not self.nan_seen and len(rules):
            other = rules[:1].copy()
            other[:, FIELDS.index("nan")] ^= 1
            rules = np.concatenate([other, rules])
        if len(rules) < 2:
            return None
        evaluator, random = Evaluator(self.problem), np.random.default_rng(seed)
        bits = np.unique(rules[:, FIELDS.index("fraction_bits")])
        depths = tuple(bits[bits > 0].tolist()) if len(bits) > 1 else ()
        found: list[Cases] = []
        for index in range(-(-pool // (PART + MIXED))):
            # Each step compares the first rules with another part of the table. `shuffled` puts one
            # rule of each core first.
            start = index * COMPARED % len(rules)
            some = np.unique(np.concatenate([rules[:COMPARED], rules[start : start + COMPARED]]), axis=0)
            part = random_cases(self.problem, seed, index, depths)
            part = join(part, mixed(self.problem, join(part, self.cases), MIXED, random))
            chosen = separating(evaluator.answers(some[np.lexsort(some.T)], part), count)
            found += [part.at(np.array(chosen))] if chosen else []
            if sum(len(cases.c) for cases in found) >= count // 4:
                break
        return join(*found) if found else None

    def to_json(self) -> str:
        """Return this result of `identify` as JSON."""
        nearest = asdict(self.nearest) if self.nearest is not None and not self.rules else None
        unit = self.unit
        return json.dumps(
            {
                "problem": asdict(self.problem), "cases": len(self.cases.c), "identified": bool(self.rules),
                "fields": self.fields, "registered": self.registered, "unit": unit and pasted(unit),
                "nearest": nearest, "contradictions": self.contradictions(), "unstable": self.unstable,
            },
            indent=2,
        )  # fmt: skip

    def __str__(self) -> str:
        from mxnum.units.identify.report import report

        return report(self)


def shuffled(table: Array, seed: int) -> Array:
    """Return the rules in random order, except that one rule of each core comes first.

    Rules of one core differ only in the fields in `search.SIDES`.
    """
    table = np.random.default_rng(seed).permutation(table)
    first = np.unique(core_of(table), return_index=True)[1]
    rest = np.setdiff1d(np.arange(len(table)), first)
    return np.asarray(table[np.concatenate([np.sort(first), rest])])


@lru_cache(512)
def random_cases(problem: Problem, seed: int, index: int, depths: tuple[int, ...]) -> Cases:
    """Return part `index` of the random cases of a seed; `depths` is passed to `Maker`.

    A quarter of these cases is of the kind "pair" and a quarter of the kind "residue", because both
    kinds separate similar rules.
    """
    maker = Maker(problem, (seed, index), depths)
    return join(maker.make(PART // 2), maker.make(PART // 4, "pair"), maker.make(PART // 4, "residue"))


def separating(answers: Array, count: int) -> list[int]:
    """Return the indices of at most `count` cases (columns) that tell many rules (rows) apart."""
    columns = np.flatnonzero((answers != answers[0]).any(axis=0))
    if not len(columns):
        return []
    labels = np.stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in answers.T[columns]])
    classes, chosen = np.zeros(len(answers), np.int64), list[int]()
    for _ in range(count):
        split = np.sort(classes * len(answers) + labels, axis=1)
        parts = (np.diff(split, axis=1) != 0).sum(axis=1)
        best = int(np.argmax(parts))
        if parts[best] == classes.max():
            break
        chosen.append(int(columns[best]))
        classes = np.unique(classes * len(answers) + labels[best], return_inverse=True)[1].reshape(-1)
    return chosen


def pasted(unit: MatrixUnit) -> str:
    """Return the Python expression that makes a unit."""
    blank = MatrixUnit(unit.name, unit.operands, unit.k, unit.terms, unit.fraction_bits)
    names = ["name", "operands", "k", "terms", "fraction_bits", "result_bits", "rounding", "accumulator", "addend"]
    names += [name for name in ("order", "group", "scales") if getattr(unit, name) != getattr(blank, name)]
    return f"MatrixUnit({', '.join(f'{name}={getattr(unit, name)!r}' for name in names)})"


def identify(
    f: Callable[..., Any],
    operands: str | tuple[str, str] = "float16",
    k: int = 16,
    accumulator: str = "float32",
    *,
    scales: tuple[str, int] | None = None,
    library: str = "numpy",
    count: int = 300,
    rounds: int = 10,
    seed: int = 0,
) -> Identification:
    """Call `f(a, b, c)` on cases, and return the rules of addition that reproduce its answers.

    Parameters
    ----------
    f
        A function that returns the dot product of each row of `a` and the same row of `b`, plus
        `c`. `a` and `b` have the shape (cases, k), `c` and the result have the shape (cases,). If
        `scales` is given, `f` has two more parameters: the scale codes of `a` and the scale codes
        of `b`, each of shape (cases, k / block).
    operands
        The format of `a` and `b`, or a pair of formats if they differ.
    k
        The number of products that one instruction adds.
    accumulator
        The type of `c` and the result: float32, float16 or bfloat16.
    scales
        The format of block scales (e8m0, e4m3 or ue5m3) and the length of a block.
    library
        The library whose arrays `f` takes: numpy, torch, cupy or numba. Arrays of cupy and numba
        are on a GPU. These GPU arrays hold bfloat16 numbers and floats of at most 8 bits as codes.
    count
        The number of cases in the first round.
    rounds
        The maximum number of rounds after the first; each of them adds cases.
    seed
        The seed of the random cases.

    Returns
    -------
    Identification
        The rules that reproduce every answer. As text, the result lists the possible values of each
        field or, if no rule fits, the smallest case that contradicts the nearest rule.

    Examples
    --------
    >>> import numpy as np
    >>> from mxnum.units.identify import identify
    >>> def sequential(a, b, c):
    ...     for x, y in zip(a.T, b.T):
    ...         c = c + x.astype(np.float32) * y.astype(np.float32)
    ...     return c
    >>> found = identify(sequential, "float16", k=2)
    >>> found.fields["terms"], found.fields["add_rounding"]
    ([1], ['rne'])
    """
    problem = problem_of(operands, k, accumulator, scales)
    errors.choose("library", library, ("numpy", "torch", "cupy", "numba"))
    cases = first_cases(problem, count, seed)
    ask = _asker(f, problem, library, len(cases.c))
    answers, again = ask(cases), ask(cases)
    unstable = [int(i) for i in np.flatnonzero(answers != again)]
    if unstable:
        return Identification(problem, cases, answers, table_of([], k), unstable=unstable)
    found = judge(problem, cases, answers)
    for round_number in range(1, rounds + 1):
        more = None
        if found.rules:
            more = found.further_cases(seed + round_number)
        if more is None:
            break
        cases, answers = join(cases, more), np.concatenate([answers, ask(more)])
        found = judge(problem, cases, answers, found)
    return found


def problem_of(
    operands: str | tuple[str, ...], k: int, accumulator: str, scales: tuple[str, int] | None = None
) -> Problem:
    """Return the `Problem` that the arguments of `identify` describe."""
    pair = (operands, operands) if isinstance(operands, str) else tuple(operands)
    errors.require(len(pair) == 2, "operands", "a format or two formats", operands)
    return Problem(pair[0], pair[1], k, accumulator, *(scales or ()))


def judge(problem: Problem, cases: Cases, answers: Array, before: Identification | None = None) -> Identification:
    """Return an `Identification` with the rules of the family that reproduce the answers.

    The search continues from `before`, the result of the earlier rounds.
    """
    answers = answers.astype(np.int64)
    search = Search(problem, cases, answers)
    if before is None or before.left is None:
        table = search.run()
    else:
        table = search.narrowed(before.left, before.table, before.complete)
    found = Identification(problem, cases, answers, table, left=search.left, complete=search.complete)
    expected, nan = canonical(problem, answers)
    from mxnum.units import get, names

    known = [(name, get(name)) for name in names()]
    fitting = [
        (name, rule) for name, unit in known if (rule := rule_of(unit, problem)) is not None
    ]  # fmt: skip
    found.registered = [name for name, rule in fitting if (evaluate(rule, problem, cases) == expected).all()]
    # The table of an incomplete search is a sample, which may lack the rules of registered units.
    if len(table) and not search.complete:
        agreeing = table_of([rule for name, rule in fitting if name in found.registered], problem.k)
        found.table = np.unique(np.concatenate([agreeing, table]), axis=0)
    if not len(table):
        near = rules_of(Search(problem, cases, answers, FEW).run(), problem.k)
        known_rules = [rule for _, rule in fitting] or [Rule(problem.k, nan=nan or 0x7FFFFFFF)]
        near += [replace(rule, addend="none") if search.ignores_addend else rule for rule in known_rules]
        found.nearest = min(near, key=lambda rule: int((evaluate(rule, problem, cases) != expected).sum()))
    return found


def _asker(f: Callable[..., Any], problem: Problem, library: str, count: int) -> Callable[[Cases], Array]:
    """Return a function that calls `f` on cases and returns the bits of its answers.

    Libraries choose a kernel by the shape of the arrays, so all calls of `f` get arrays of the same
    shape. Each call gets `count` cases; if there are too few, some cases are repeated.
    """

    def ask(cases: Cases) -> Array:
        here = len(cases.c)
        index = np.resize(np.arange(here), (-(-here // count), count))
        return np.concatenate([ask_once(cases.at(part)) for part in index])[:here]

    def ask_once(cases: Cases) -> Array:
        a, b = (_array(x[:, : problem.k], fmt, library) for x, fmt in zip(cases[:2], problem.formats, strict=True))
        scales = [_raw(x[:, problem.k :].astype(np.uint8), library) for x in cases[:2] if problem.blocks]
        with np.errstate(all="ignore"):  # special values are ordinary inputs here, not errors
            d = f(a, b, _array(cases.c, problem.result, library), *scales)
        d = _on_host(d, library)
        wanted = problem.accumulator if library == "numpy" or problem.accumulator != "bfloat16" else "uint16"
        errors.require_dtype("f", d.dtype, np.dtype(wanted), " as its result")
        errors.require(d.shape == cases.c.shape, "f", f"a function with results of shape {cases.c.shape}", d.shape)
        return np.ascontiguousarray(d).view(f"u{d.itemsize}").astype(np.int64)

    return ask


def _on_host(d: Any, library: str) -> Array:
    """Return an array of a library as a numpy array; bfloat16 numbers of torch become codes."""
    if library == "torch":
        d = d.detach().cpu()
        return np.asarray(d.view(_torch().uint16).numpy() if d.dtype == _torch().bfloat16 else d.numpy())
    return np.asarray(d.get() if library == "cupy" else d.copy_to_host() if library == "numba" else d)


def _torch() -> Any:
    return errors.package("torch", "torch")


#: For each format, the name of its dtype in numpy, ml_dtypes and torch.
_DTYPES = {
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "bfloat16": "bfloat16", "float16": "float16", "float32": "float32",
    "tf32": "float32", "e3m2": "float6_e3m2fn", "e2m3": "float6_e2m3fn", "e2m1": "float4_e2m1fn",
}  # fmt: skip


def _array(codes: Array, fmt: ElementFormat, library: str) -> Any:
    """Return codes as an array of a library, with the dtype of the format if there is one."""
    if fmt is OPERANDS["tf32"]:
        codes = codes << 13
    width = 32 if fmt is OPERANDS["tf32"] else (fmt.bits + 7) // 8 * 8
    raw = codes.astype(f"u{width // 8}")
    dtype = _DTYPES.get(fmt.name)
    if dtype in ("float16", "float32"):
        raw = raw.view(dtype)
    found = _raw(raw, library)
    if dtype and raw.dtype.kind == "u" and library == "torch":
        return found.view(getattr(_torch(), dtype))
    if dtype and raw.dtype.kind == "u" and library == "numpy":
        import ml_dtypes

        return found.view(getattr(ml_dtypes, dtype))
    return found


def _raw(codes: Array, library: str) -> Any:
    """Convert a numpy array to an array of `library`."""
    if library == "torch":
        return _torch().from_numpy(codes)
    if library == "cupy":
        return errors.package("cupy", "cuda").asarray(codes)
    return errors.package("numba.cuda", "cuda").to_device(codes) if library == "numba" else codes

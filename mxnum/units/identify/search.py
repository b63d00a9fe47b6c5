"""The search: which rules of the family reproduce all answers.

1. Structure cases rule out most ways to group and order the products.
2. Ordinary cases decide alignment, fraction bits and roundings: many rules in each evaluation.
3. The other fields are found one after the other, on all cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np

from mxnum.units.identify.cases import SPAN, ordinary, structural
from mxnum.units.identify.family import (
    ALIGNMENTS,
    COMBINATIONS,
    FIELDS,
    INFINITIES,
    ROUNDINGS,
    Adder,
    Array,
    Cases,
    Problem,
    Rule,
    evaluate_all,
    order_of,
)
from mxnum.units.identify.registered import orders

T = TypeVar("T")

#: The fraction bits that the family has; None is an exact sum.
FRACTION_BITS = (*range(4, 37), None)
#: The values of the fields that only special cases show.
SIDES: dict[str, tuple[Any, ...]] = {
    "flush_operands": (False, True),
    "flush_addend": (False, True),
    "flush_result": (False, True),
    "zero_exponent": (-126, None, -133),
    "zero": ("plus", "ieee"),
    "overflow": ("infinity", "largest"),
    "infinities": INFINITIES,
}
#: The fields of a unit that has no subnormal numbers.
FLUSHED: dict[str, Any] = {"flush_operands": True, "flush_addend": True, "flush_result": True}
#: The integer bits that the family has; None is enough.
CARRIES = (None, *range(2, 13))
#: The most rules that fit the ordinary cases for which the other fields are found, and the number
#: of these for which all their values are tried at once.
CORES, LEADING = 64, 4
#: The cases after which rules that do not fit are dropped.
STAGES = (3, 12, 48)


def canonical(problem: Problem, answers: Array) -> tuple[Array, int | None]:
    """Return answers as integers, and the bits of their NaN: -1 if they vary, None without a NaN.

    NaN answers whose bits vary become -1.
    """
    fmt = problem.result
    answers = answers.astype(np.int64)
    is_nan = answers & ((1 << (fmt.bits - 1)) - 1) > fmt.max_code + 1
    found = np.unique(answers[is_nan])
    if len(found) > 1:
        return np.where(is_nan, -1, answers), -1
    return answers, int(found[0]) if len(found) else None


def structures(problem: Problem) -> Iterator[Rule]:
    """Yield the ways to group, order and combine the products, and the places of the addend."""
    k = problem.k
    m = problem.sum.mantissa_bits
    for terms in [t for t in range(1, k + 1) if k % t == 0]:
        for combine, addends in COMBINATIONS.items():
            if (terms == k and combine != "chain") or (combine == "halves" and k // terms <= 3):
                continue
            if combine in ("tree", "halves") and k // terms == 2:
                continue
            seen = set()
            for order in orders(k) if terms < k else [(1, 1)]:
                rule = Rule(terms, combine, order=order, result_bits=m)
                groups = _groups(rule, k)
                if groups in seen:
                    continue
                seen.add(groups)
                for addend in addends:
                    yield replace(rule, addend=addend)


def carries(core: Rule) -> list[int | None]:
    """Return the carry limits that a sum of the rule can reach, and None."""
    largest = core.terms * (2 if core.normalize else 4) + (2 if core.combine == "chain" else 0)
    return [carry for carry in CARRIES if carry is None or (core.fraction_bits and 1 << carry < largest)]


def core_of(rule: Rule) -> tuple[Any, ...]:
    """Return the fields of a rule that are not in `SIDES`."""
    return tuple(getattr(rule, name) for name in FIELDS if name not in SIDES)


def with_each(cores: list[Rule], sides: list[tuple[Any, ...]]) -> list[Rule]:
    """Return each core with each of the values of the fields `SIDES`."""
    changes = [dict(zip(SIDES, values, strict=True)) for values in sides]
    return [replace(core, **change) for core in cores for change in changes]


def _groups(rule: Rule, k: int) -> tuple[frozenset[int], ...]:
    indices = order_of(rule, k)
    return tuple(frozenset(indices[i : i + rule.terms]) for i in range(0, k, rule.terms))


class Search:
    """Searches the family for the rules that give `answers`, but for `wrong` of them."""

    def __init__(self, problem: Problem, cases: Cases, answers: Array, wrong: int = 0) -> None:
        self.problem, self.cases, self.wrong = problem, cases, wrong
        self.answers, self.nan = canonical(problem, answers)
        self.fine, self.sparse = ordinary(problem, cases, self.answers)
        if self.sparse.sum() < 30:
            self.sparse = self.fine
        self.left: list[Rule] = []
        #: True if the other fields are found for every rule that gives the ordinary answers.
        self.complete = False
        self.random = np.random.default_rng(0)
        self.result_bits = self._result_bits()
        fmt = problem.result
        normal = cases.c >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1) != 0
        alone = normal & (cases.a == 0).all(axis=1) & (cases.b == 0).all(axis=1)
        #: True if no addend comes out again where all products are zero.
        self.ignores_addend = bool(alone.any()) and not self.answers[alone].any()
        self.base: dict[str, Any] = {} if self.nan is None else {"nan": self.nan}
        if self.nan is None and problem.accumulator == "float16":
            self.base = {"nan": 0x7FFF}

    def _result_bits(self) -> tuple[int, ...]:
        """Return the fraction bits that results may have, from the zeros at the end of all answers.

        More bits than the answers use are possible where many answers have few terms. The next
        number and that of the accumulator are kept, so that the cases must rule them out.
        """
        m = self.problem.sum.mantissa_bits
        if self.problem.result is not self.problem.sum:
            return (m,)
        some = self.answers[self.fine & (self.answers != 0)] | 1 << m
        zeros = np.sort(np.frexp((some & -some).astype(np.float64))[1] - 1)
        least = m - int(zeros[self.wrong]) if len(zeros) > self.wrong else m
        return tuple(sorted({bits for bits in (least, least + 1, m) if max(least, 1) <= bits <= m}))

    def narrowed(self, left: list[Rule], rules: list[Rule], complete: bool) -> list[Rule]:
        """Return the rules that still fit, of those that fitted fewer cases.

        `left` holds the rules that gave the ordinary answers. `complete` says that `rules` has all
        of them with all other fields that fit.
        """
        self.complete = complete
        if complete:
            self.left = left
            kept = self._fitting(rules, self._evaluate, np.arange(len(self.answers))[::-1], self._wrong)
            if kept:
                return kept
        self.left = self._fitting(left, self._evaluate, np.flatnonzero(self.sparse), self._differ)
        return self.with_sides(self.left)

    def run(self) -> list[Rule]:
        """Return the rules that reproduce the answers."""
        for sides in (dict[str, Any](), {"carry": 2}, FLUSHED, {"carry": 2, **FLUSHED}):
            shapes = [shape for shape in structures(self.problem) if (shape.addend == "none") == self.ignores_addend]
            cores = self.cores([replace(shape, **self.base, **sides) for shape in shapes])
            self.left, found = cores, self.with_sides(cores)
            if found:
                break
        return found

    def cores(self, candidates: list[Rule]) -> list[Rule]:
        """Return rules that give the ordinary answers, whatever else they do."""
        found, small = structural(self.problem, self.cases)
        if len(found):
            cases, survived = self.cases.at(found), self.answers[found] == small
            candidates = [r for r in candidates if self._fits_structure(r, cases, survived, small)]
        order = self.random.permutation(np.flatnonzero(self.sparse))
        kept = []
        for structure in candidates:
            outside = structure.addend == "after" or structure.combine != "chain"
            for align in ALIGNMENTS:
                for normalize in (False, True):
                    for add_rounding in ROUNDINGS if outside else ("rne",):
                        rule = replace(structure, align=align, normalize=normalize, add_rounding=add_rounding)
                        kept += self._numbers(rule, order, align == "rtz" and not normalize)
        return kept

    def _fits_structure(self, rule: Rule, cases: Cases, survived: Array, small: int) -> bool:
        full = rule.result_bits
        adder = Adder(rule, self.problem, {"fraction_bits": (1, SPAN + 2), "result_bits": (full, full)})
        return bool((((adder(cases) == small) != survived).sum(axis=1) <= self.wrong).any())

    def _numbers(self, rule: Rule, order: Array, exact: bool) -> list[Rule]:
        """Return the rule with each choice of fraction bits, result bits and rounding that fits."""
        m = self.problem.sum.mantissa_bits
        narrow = self.result_bits if rule.addend == "term" else (m,)
        kept: list[Rule] = []
        finite = FRACTION_BITS[:-1]
        if rule.terms == 1 and rule.combine != "chain":  # a term alone loses nothing beyond its own bits
            finite = tuple(f for f in finite if f < sum(fmt.mantissa_bits for fmt in self.problem.formats) + 1)
        names = "fraction_bits", "result_bits", "rounding"

        def evaluate(numbers: list[tuple[Any, ...]], cases: Cases) -> Array:
            return Adder(rule, self.problem, dict(zip(names, zip(*numbers, strict=True), strict=True)))(cases)

        for some in (finite, (None,) if exact else ()):
            numbers = [(f, bits, how) for f in some for how in ROUNDINGS for bits in narrow]
            fits = self._fitting(numbers, evaluate, order, self._differ)
            kept += [replace(rule, fraction_bits=f, result_bits=bits, rounding=how) for f, bits, how in fits]
        return kept

    def _fitting(
        self,
        items: list[T],
        evaluate: Callable[[list[T], Cases], Array],
        order: Array,
        differ: Callable[[Array, Array], Array],
    ) -> list[T]:
        """Return the items that fit the cases `order`; most are dropped after a few cases."""
        wrong, done = np.zeros(len(items), np.int64), 0
        for until in (*STAGES, len(order)):
            part = order[done:until]
            if items and len(part):
                wrong = wrong + differ(evaluate(items, self.cases.at(part)), part).sum(axis=1)
                items = [item for item, w in zip(items, wrong, strict=True) if w <= self.wrong]
                wrong, done = wrong[wrong <= self.wrong], until
        return items

    def _differ(self, answers: Array, part: Array) -> Array:
        sign = 1 << (self.problem.result.bits - 1)
        both_zero = ((answers | self.answers[part]) & (sign - 1)) == 0
        return np.asarray((answers != self.answers[part]) & ~both_zero)

    def with_sides(self, cores: list[Rule]) -> list[Rule]:
        """Return the cores with all values of the other fields that reproduce the answers."""
        with_carries = [replace(core, carry=carry) for core in cores for carry in carries(core)]
        fine = self.random.permutation(np.flatnonzero(self.fine))
        cores = self._fitting(with_carries, self._evaluate, fine, self._differ)
        special = self.random.permutation(np.flatnonzero(~self.fine))
        order, sides = np.concatenate([special, fine]), list(product(*SIDES.values()))
        cores = [cores[i] for i in self.random.permutation(len(cores))]
        cores.sort(key=lambda core: core.fraction_bits is not None)  # an exact sum is always tried
        self.complete = len(cores) <= CORES
        rules: list[Rule] = []
        while cores:
            tried, cores = cores[:LEADING], cores[LEADING:]
            new = self._fitting(with_each(tried, sides), self._evaluate, order, self._wrong)
            rules += new
            if new:  # the others need the same values, as a rule
                likely = list(dict.fromkeys(tuple(getattr(rule, name) for name in SIDES) for rule in new))
                others = cores[: CORES - LEADING]
                rules += self._fitting(with_each(others, likely), self._evaluate, order, self._wrong)
                fitted = {core_of(rule) for rule in rules}
                rest = [core for core in others if core_of(core) not in fitted]
                return rules + self._fitting(with_each(rest, sides), self._evaluate, order, self._wrong)
        return rules

    def _evaluate(self, rules: list[Rule], cases: Cases) -> Array:
        return evaluate_all(rules, self.problem, cases)

    def _wrong(self, answers: Array, part: Array) -> Array:
        return np.asarray(answers != self.answers[part])


def spread(rules: list[Rule], count: int) -> list[Rule]:
    """Return at most `count` of the rules, evenly spaced."""
    if len(rules) <= count:
        return rules
    return [rules[int(i)] for i in np.linspace(0, len(rules) - 1, count).round()]

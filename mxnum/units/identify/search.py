"""The search: which rules of the family reproduce all answers.

1. Structure cases rule out most ways to group and order the products.
2. Ordinary cases decide alignment, fraction bits and roundings: many rules in each evaluation.
3. The other fields are found one after the other, on all cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mxnum.units.identify.cases import SPAN, ordinary, structural
from mxnum.units.identify.family import (
    ALIGNMENTS,
    COMBINATIONS,
    ROUNDINGS,
    Adder,
    Array,
    Cases,
    Problem,
    Rule,
    evaluate,
)
from mxnum.units.identify.registered import orders

#: The fraction bits that the family has; None is an exact sum.
FRACTION_BITS = (*range(4, 37), None)
#: The values of the fields that only special cases show.
SIDES: dict[str, tuple[Any, ...]] = {
    "carry": (None, *range(2, 9)),
    "flush_operands": (False, True),
    "flush_addend": (False, True),
    "flush_result": (False, True),
    "zero_exponent": (-126, None, -133),
    "zero": ("plus", "ieee"),
    "overflow": ("infinity", "largest"),
    "infinities": ("ieee", "nan", "finite"),
}
#: The most rules that fit the ordinary cases for which the other fields are found, and the most of
#: these for which all their values are tried. Both are spread over the rules that fit.
CORES, CORES_WITH_ALL_SIDES = 32, 4


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
    m = problem.result.mantissa_bits
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


def _groups(rule: Rule, k: int) -> tuple[frozenset[int], ...]:
    from mxnum.units.identify.family import order_of

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
        self.result_bits = self._result_bits()
        self.base: dict[str, Any] = {} if self.nan is None else {"nan": self.nan}
        if self.nan is None and problem.accumulator == "float16":
            self.base = {"nan": 0x7FFF}

    def _result_bits(self) -> tuple[int, ...]:
        """Return the fraction bits that results may have, from the zeros at the end of all answers.

        More bits than the answers use are possible where many answers have few terms. The next
        number and that of the accumulator are kept, so that the cases must rule them out.
        """
        m = self.problem.result.mantissa_bits
        some = self.answers[self.fine & (self.answers != 0)] | 1 << m
        zeros = np.sort(np.frexp((some & -some).astype(np.float64))[1] - 1)
        least = m - int(zeros[self.wrong]) if len(zeros) > self.wrong else m
        return tuple(sorted({bits for bits in (least, least + 1, m) if max(least, 1) <= bits <= m}))

    def run(self, before: list[Rule] | None = None) -> list[Rule]:
        """Return the rules that reproduce the answers.

        `before` holds the rules that gave the ordinary answers among fewer cases.
        """
        found: list[Rule] = []
        if before is not None:
            self.left = [rule for rule in before if self.differ(rule).sum() <= self.wrong]
            return self.with_sides(self.left)
        flushed: dict[str, Any] = {"flush_operands": True, "flush_addend": True, "flush_result": True}
        for sides in ({}, flushed):
            cores = self.cores([replace(r, **self.base, **sides) for r in structures(self.problem)])
            self.left, found = cores, self.with_sides(cores)
            if found:
                break
        return found

    def cores(self, candidates: list[Rule]) -> list[Rule]:
        """Return rules that give the ordinary answers, whatever else they do."""
        found, survived = structural(self.problem, self.cases, self.answers)
        if found.any():
            candidates = [r for r in candidates if self._fits_structure(r, found, survived)]
        order = np.flatnonzero(self.sparse)
        order = np.random.default_rng(0).permutation(order)
        kept = []
        for structure in candidates:
            outside = structure.addend != "term" or structure.combine != "chain"
            for align in ALIGNMENTS:
                for normalize in (False, True):
                    for add_rounding in ROUNDINGS if outside else ("rne",):
                        rule = replace(structure, align=align, normalize=normalize, add_rounding=add_rounding)
                        kept += self._numbers(rule, order, align == "rtz" and not normalize)
        return kept

    def _fits_structure(self, rule: Rule, found: Array, survived: Array) -> bool:
        full = rule.result_bits
        adder = Adder(rule, self.problem, [(1, full, "rtz"), (SPAN + 2, full, "rtz")])
        predicted = structural(self.problem, self.cases.at(found), adder(self.cases.at(found)))[1]
        return bool(((predicted != survived[found]).sum(axis=1) <= self.wrong).any())

    def _numbers(self, rule: Rule, order: Array, exact: bool) -> list[Rule]:
        """Return the rule with each choice of fraction bits, result bits and rounding that fits."""
        m = self.problem.result.mantissa_bits
        narrow = self.result_bits if rule.addend == "term" else (m,)
        kept: list[Rule] = []
        finite = FRACTION_BITS[:-1]
        if rule.terms == 1 and rule.combine != "chain":  # a term alone loses nothing beyond its own bits
            finite = tuple(f for f in finite if f < sum(fmt.mantissa_bits for fmt in self.problem.formats) + 1)
        for some in (finite, (None,) if exact else ()):
            numbers = [(f, bits, how) for f in some for how in ROUNDINGS for bits in narrow]
            wrong, done = np.zeros(len(numbers), np.int64), 0
            for until in (3, 12, 48, len(order)):
                part = order[done:until]
                if not numbers or not len(part):
                    continue
                answers = Adder(rule, self.problem, numbers)(self.cases.at(part))
                wrong = wrong + self._differ(answers, part).sum(axis=1)
                numbers = [n for n, w in zip(numbers, wrong, strict=True) if w <= self.wrong]
                wrong, done = wrong[wrong <= self.wrong], until
            kept += [replace(rule, fraction_bits=f, result_bits=bits, rounding=how) for f, bits, how in numbers]
        return kept

    def _differ(self, answers: Array, part: Array) -> Array:
        sign = 1 << (self.problem.result.bits - 1)
        both_zero = ((answers | self.answers[part]) & (sign - 1)) == 0
        return np.asarray((answers != self.answers[part]) & ~both_zero)

    def differ(self, rule: Rule) -> Array:
        """Return which sparse ordinary cases contradict a rule, whatever its other fields are."""
        part = np.flatnonzero(self.sparse)
        return self._differ(evaluate(rule, self.problem, self.cases.at(part)), part)

    def mismatches(self, rule: Rule) -> Array:
        """Return which cases contradict a rule."""
        return np.asarray(evaluate(rule, self.problem, self.cases) != self.answers)

    def with_sides(self, cores: list[Rule]) -> list[Rule]:
        """Return the cores with all values of the other fields that reproduce the answers."""
        cores = [rule for core in cores if (rule := self._with_carry(core)) is not None]
        settled = [rule for core in spread(cores, CORES) if (rule := self._settle(core)) is not None]
        kept = dict.fromkeys(settled)
        for rule in spread(settled, CORES_WITH_ALL_SIDES):
            for name, values in SIDES.items():
                for value in values:
                    other = replace(rule, **{name: value})
                    if other not in kept and self.mismatches(other).sum() <= self.wrong:
                        kept[other] = None
        return list(kept)

    def _with_carry(self, core: Rule) -> Rule | None:
        """Return the rule with the carry limit that fits all ordinary cases; None if none does."""
        part = np.flatnonzero(self.fine)
        carries = (None,) if core.fraction_bits is None else SIDES["carry"]
        for carry in carries:
            rule = replace(core, carry=carry)
            if self._differ(evaluate(rule, self.problem, self.cases.at(part)), part).sum() <= self.wrong:
                return rule
        return None

    def _settle(self, rule: Rule) -> Rule | None:
        """Return the rule with the other fields set to the values that fit best; None if none fits."""
        least = int(self.mismatches(rule).sum())
        for _ in range(3):
            before = least
            for name, values in SIDES.items():
                for value in values:
                    if least <= self.wrong:
                        return rule
                    other = replace(rule, **{name: value})
                    count = int(self.mismatches(other).sum())
                    if count < least:
                        rule, least = other, count
            if least == before:
                break
        return rule if least <= self.wrong else None


def spread(rules: list[Rule], count: int) -> list[Rule]:
    """Return at most `count` of the rules, evenly spaced."""
    if len(rules) <= count:
        return rules
    return [rules[int(i)] for i in np.linspace(0, len(rules) - 1, count).round()]

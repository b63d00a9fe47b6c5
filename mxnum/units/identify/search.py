"""Search the family of rules for those that reproduce all answers.

First, structure cases (`cases.Maker.structure`) rule out most ways to group and order the products.
Second, ordinary cases decide alignment, fraction bits, roundings and carry limits; many rules are
evaluated at once. Third, all cases decide the remaining fields (`SIDES`), whose values are tried in
all combinations.
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
    FIELDS,
    INFINITIES,
    ROUNDINGS,
    Array,
    Cases,
    Evaluator,
    Problem,
    Rule,
    code,
    order_of,
    orders,
    table_of,
)

#: The numbers of fraction bits that the search tries; None stands for an exact sum.
FRACTION_BITS = (*range(4, 37), None)
#: The possible values of the fields that only special cases, such as zeros, can decide.
SIDES: dict[str, tuple[Any, ...]] = {
    "flush_operands": (False, True),
    "flush_addend": (False, True),
    "flush_result": (False, True),
    "zero_exponent": (None, -126, -133),
    "zero": ("plus", "ieee"),
    "overflow": ("infinity", "largest"),
    "infinities": INFINITIES,
}
#: The values of fields in the rule of a unit that has no subnormal numbers.
FLUSHED: dict[str, Any] = {"flush_operands": True, "flush_addend": True, "flush_result": True}
#: The limits that the search tries for the integer bits of a sum; None means no limit.
CARRIES = (None, *range(2, 13))
#: The search decides the fields in `SIDES` for batches of `CORES` rules. A result has at most
#: `MOST` rules; if more rules fit, the result is a sample of them.
CORES, MOST = 512, 8192
#: The approximate limit on the number of products that a batch adds, over all rules and cases.
EFFORT = 200_000_000


def canonical(problem: Problem, answers: Array) -> tuple[Array, int | None]:
    """Return the answers as integers, and the bit pattern of the NaN answers.

    If NaN answers have several bit patterns, the function replaces each NaN answer by -1, and
    returns -1 as the bit pattern. The bit pattern is None if no answer is a NaN.
    """
    fmt = problem.result
    answers = answers.astype(np.int64)
    is_nan = answers & ((1 << (fmt.bits - 1)) - 1) > fmt.max_code + 1
    found = np.unique(answers[is_nan])
    if len(found) > 1:
        return np.where(is_nan, -1, answers), -1
    return answers, int(found[0]) if len(found) else None


def structures(problem: Problem) -> Iterator[Rule]:
    """Yield a rule for each way to group, order and combine products and to add the addend."""
    k, m = problem.k, problem.sum.mantissa_bits
    for group in (1, *problem.groups):
        for terms in [t for t in range(group, k + 1, group) if k % t == 0]:
            for combine, addends in COMBINATIONS.items():
                if (terms == k and combine != "chain") or (combine == "halves" and k // terms <= 3):
                    continue
                if combine in ("tree", "halves") and k // terms == 2:
                    continue
                seen = set()
                for order in orders(k) if terms < k and group == 1 else [(1, 1)]:
                    groups = _groups(order, terms, k)
                    if groups not in seen:
                        seen.add(groups)
                        rule = Rule(terms, combine, order=order, result_bits=m, group=group)
                        yield from (replace(rule, addend=addend) for addend in addends)


def _groups(order: tuple[int, int], terms: int, k: int) -> tuple[frozenset[int], ...]:
    indices = order_of(order, k)
    return tuple(frozenset(indices[i : i + terms]) for i in range(0, k, terms))


def varied(table: Array, k: int, **values: tuple[Any, ...]) -> Array:
    """Return copies of each rule in a table, one for each combination of the given field values."""
    for name, some in values.items():
        count = len(table)
        table = np.repeat(table, len(some), axis=0)
        table[:, FIELDS.index(name)] = np.tile([code(name, value, k) for value in some], count)
    return table


def with_carries(table: Array, k: int) -> Array:
    """Return each rule without a carry limit, and with each carry limit that its sums can reach.

    Rules that add groups of products exactly get no carry limit.
    """
    column = {name: table[:, FIELDS.index(name)] for name in FIELDS}
    largest = column["terms"] * (4 >> column["normalize"]) + np.where(column["combine"] == 0, 2, 0)
    parts = [varied(table, k, carry=(None,))]
    for carry in CARRIES[1:]:
        reached = (column["fraction_bits"] > 0) & (column["group"] == 1) & (1 << carry < largest)
        parts.append(varied(table[reached], k, carry=(carry,)))
    return np.concatenate(parts)


def core_of(table: Array) -> Array:
    """Return a number for each rule; rules that differ only in `SIDES` get the same number."""
    kept = [i for i, name in enumerate(FIELDS) if name not in SIDES]
    return np.unique(table[:, kept], axis=0, return_inverse=True)[1].reshape(-1)


class Search:
    """A search for the rules of the family that contradict at most `wrong` of the `answers`.

    Rules are rows of a table (`family.table_of`).
    """

    def __init__(self, problem: Problem, cases: Cases, answers: Array, wrong: int = 0) -> None:
        self.problem, self.cases, self.wrong = problem, cases, wrong
        self.evaluator = Evaluator(problem)
        self.answers, self.nan = canonical(problem, answers)
        self.fine, self.sparse = ordinary(problem, cases, self.answers)
        if self.sparse.sum() < 30:
            self.sparse = self.fine
        self.left = np.empty((0, len(FIELDS)), np.int64)
        #: True if the fields in `SIDES` were tried for every rule that reproduces the answers of
        #: ordinary cases.
        self.complete = False
        self.random = np.random.default_rng(0)
        self.result_bits = self._result_bits()
        fmt = problem.result
        normal = cases.c >> fmt.mantissa_bits & ((1 << fmt.exponent_bits) - 1) != 0
        alone = normal & (cases.a[:, : problem.k] == 0).all(axis=1) & (cases.b[:, : problem.k] == 0).all(axis=1)
        #: True if the answer is zero in each case with zero operands and a normal addend.
        self.ignores_addend = bool(alone.any()) and not self.answers[alone].any()
        self.base: dict[str, Any] = {} if self.nan is None else {"nan": self.nan}
        if self.nan is None and problem.accumulator == "float16":
            self.base = {"nan": 0x7FFF}

    def _result_bits(self) -> tuple[int, ...]:
        """Return the possible values of `Rule.result_bits`, judged by the answers' trailing zeros.

        The unit may round to more fraction bits than its answers show, because sums of few terms
        need few bits.
        """
        m = self.problem.sum.mantissa_bits
        if self.problem.result is not self.problem.sum:
            return (m,)
        some = self.answers[self.fine & (self.answers != 0)] | 1 << m
        zeros = np.sort(np.frexp((some & -some).astype(np.float64))[1] - 1)
        least = m - int(zeros[self.wrong]) if len(zeros) > self.wrong else m
        return tuple(range(max(least, 1), m + 1))

    def narrowed(self, left: Array, rules: Array, complete: bool) -> Array:
        """Return the rules that fit all cases, those of earlier rounds and the new ones.

        `rules` holds rules that fitted all cases of the earlier rounds, and `complete` is True if
        no other rule fitted them. `left` holds the rules that fitted the ordinary cases.
        """
        self.complete = complete
        if self.nan is not None:  # the earlier rounds may have had no NaN answer
            for table in (left, rules):
                table[:, FIELDS.index("nan")] = self.nan
        if complete:
            self.left = left
            return self._fitting(rules, np.arange(len(self.answers))[::-1])
        self.left = self._fitting(left, np.flatnonzero(self.sparse), zeros=True)
        return self.with_sides(self.left)

    def run(self) -> Array:
        """Return the rules that reproduce the answers."""
        for sides in (dict[str, Any](), {"carry": 2}, FLUSHED, {"carry": 2, **FLUSHED}):
            shapes = [shape for shape in structures(self.problem) if (shape.addend == "none") == self.ignores_addend]
            self.left = self.cores([replace(shape, **self.base, **sides) for shape in shapes])
            found = self.with_sides(self.left)
            if len(found):
                break
        return found

    def cores(self, shapes: list[Rule]) -> Array:
        """Return the rules that fit ordinary cases, among variants of `shapes`.

        The variants differ in alignment, in roundings, and in numbers of bits.
        """
        k, m = self.problem.k, self.problem.sum.mantissa_bits
        found, small = structural(self.problem, self.cases)
        order = self.random.permutation(np.flatnonzero(self.sparse))
        kept = [np.empty((0, len(FIELDS)), np.int64)]
        for shape in shapes:
            table = table_of([shape], k)
            if len(found) and not self._fits_structure(table, found, small):
                continue
            chained = shape.combine == "chain"
            finite: tuple[Any, ...] = FRACTION_BITS[:-1]
            if shape.terms == 1 and not chained:  # a sum of one term is exact if it keeps all bits of the term
                finite = tuple(f for f in finite if f < sum(fmt.mantissa_bits for fmt in self.problem.formats) + 1)
            outside = ROUNDINGS if shape.addend == "after" or not chained else ("rne",)
            bits = self.result_bits if chained and shape.addend != "after" else (m,)
            table = varied(table, k, add_rounding=outside, rounding=ROUNDINGS, result_bits=bits)
            ways = (False, True) if shape.group == 1 else (False,)
            inexact = varied(table, k, align=ALIGNMENTS, normalize=ways, fraction_bits=finite)
            table = np.concatenate([inexact, varied(table, k, fraction_bits=(None,))])
            kept.append(self._fitting(table, order, zeros=True))
        return np.concatenate(kept)

    def _fits_structure(self, table: Array, found: Array, small: int) -> bool:
        """Return True if the rule and the unit give the answer `small` in the same structure cases.

        The function tries the rule with few and with many fraction bits. One of these two variants
        must fit, except for at most `self.wrong` cases.
        """
        answers = self.evaluator.answers(
            varied(table, self.problem.k, fraction_bits=(1, SPAN + 2)), self.cases.at(found)
        )
        different = ((answers == small) != (self.answers[found] == small)).sum(axis=1)
        return bool((different <= self.wrong).any())

    def _fitting(self, table: Array, order: Array, zeros: bool = False) -> Array:
        """Return the rules that fit the cases in `order`.

        If `zeros` is True, the sign of a zero may differ.
        """
        sign = 1 << (self.problem.result.bits - 1) if zeros else 0
        return self.evaluator.fitting(table, self.cases.at(order), self.answers[order], sign, self.wrong)

    def with_sides(self, cores: Array) -> Array:
        """Return rules that reproduce all answers, at most `MOST`.

        The function tries the rules in `cores` with other carry limits, and with other values of
        the fields in `SIDES`.
        """
        fine = self.random.permutation(np.flatnonzero(self.fine))
        # In ordinary cases the fields in `SIDES` seldom matter, except for the sign of a zero.
        telling = self.random.permutation(np.flatnonzero(~self.fine | (self.answers == 0)))
        cores = cores[self.random.permutation(len(cores))]
        exact = cores[:, FIELDS.index("fraction_bits")] < 0  # rules with exact sums are tried first
        cores = np.concatenate([cores[exact], cores[~exact]])
        each = self.problem.k * max(len(telling), 1) * len(varied(cores[:1], self.problem.k, **SIDES))
        most = max(EFFORT // max(each, 1), 32)
        self.complete = True
        rules = tried = cores[:0]
        while len(cores) and not len(rules):
            tried, cores = cores[:CORES], cores[CORES:]
            tried = self._fitting(with_carries(tried, self.problem.k), fine, zeros=True)
            while len(tried) and not len(rules):
                some, tried = tried[:most], tried[most:]
                rules = self._fitting(varied(some, self.problem.k, **SIDES), telling)
                self.complete = self.complete and len(rules) <= MOST
                rules = self.random.permutation(rules)[:MOST] if len(rules) > MOST else rules
                rules = self._fitting(rules, fine)
        self.complete = self.complete and not len(cores) and not len(tried)
        return rules

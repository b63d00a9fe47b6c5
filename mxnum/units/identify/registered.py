"""Registered units as rules of the family, and rules as a `MatrixUnit`."""

from __future__ import annotations

from mxnum.formats import FLOATS
from mxnum.units.identify.family import Problem, Rule, order_of
from mxnum.units.unit import ACCUMULATORS, OPERANDS, ZERO_EXPONENT, MatrixUnit


def orders(k: int) -> list[tuple[int, int]]:
    """Return the orders of the family: index order, runs dealt to 2, 4, ... sums, swapped pairs."""
    powers = [1 << i for i in range(k.bit_length())]
    return [(1, 1), *((w, s) for s in powers[1:] for w in powers if w * s < k), (1, -2)]


def rule_of(unit: MatrixUnit, k: int) -> Rule | None:
    """Return the rule of an instruction of a unit; None if the family does not hold it."""
    if unit.scales or unit.group > 1 or unit.promotion:
        return None
    rule = Rule(
        unit.terms if unit.terms < k else k, addend=unit.addend, fraction_bits=unit.fraction_bits,
        rounding=unit.rounding, result_bits=unit.result_bits, zero_exponent=ZERO_EXPONENT,
        nan=(1 << (FLOATS[unit.accumulator].bits - 1)) - 1,
    )  # fmt: skip
    if not unit.order:
        return rule
    from dataclasses import replace

    same = [order for order in orders(k) if tuple(order_of(replace(rule, order=order), k)) == unit.order]
    return replace(rule, order=same[0]) if same else None


def unit_of(rule: Rule, problem: Problem, name: str = "mine") -> MatrixUnit | None:
    """Return the `MatrixUnit` of a rule; None if a unit cannot state it."""
    stated = Rule(
        rule.terms, addend=rule.addend, order=rule.order, fraction_bits=rule.fraction_bits, rounding=rule.rounding,
        result_bits=rule.result_bits, nan=(1 << (problem.result.bits - 1)) - 1,
    )  # fmt: skip
    full = rule.result_bits == problem.result.mantissa_bits
    if rule != stated or rule.rounding == "floor" or (rule.rounding == "rne" and not full):
        return None
    if rule.fraction_bits is None or rule.addend in ("before", "none") or not {problem.a, problem.b} <= set(OPERANDS):
        return None
    if problem.accumulator not in ACCUMULATORS:
        return None
    return MatrixUnit(
        name, tuple(dict.fromkeys((problem.a, problem.b))), (problem.k,), rule.terms, rule.fraction_bits,
        rule.result_bits, rule.rounding, problem.accumulator, rule.addend,
        () if rule.order == (1, 1) else tuple(order_of(rule, problem.k)),
    )  # fmt: skip

"""Convert registered units to rules of the family in `family.py`, and rules to a `MatrixUnit`."""

from __future__ import annotations

from mxnum.formats import FLOATS
from mxnum.units.identify.family import FIELDS, Problem, Rule, order_of, orders
from mxnum.units.unit import ACCUMULATORS, OPERANDS, MatrixUnit


def rule_of(unit: MatrixUnit, problem: Problem) -> Rule | None:
    """Return the rule by which a unit computes the instruction of a `Problem`.

    The result is None if the unit lacks the instruction, or if no rule of the family describes how
    the unit computes it.
    """
    operands, k = {problem.a, problem.b} <= set(unit.operands), problem.k
    if not operands or unit.accumulator != problem.accumulator or k not in unit.k or unit.promotion:
        return None
    if (problem.scale, problem.block) not in (unit.scales or [("", 0)]):
        return None
    order = unit.order or tuple(range(k))
    same = [one for one in orders(k) if tuple(order_of(one, k)) == order]
    if not same or (unit.group > 1 and unit.group not in problem.groups):
        return None
    return Rule(
        min(unit.terms, k), addend=unit.addend, order=same[0], fraction_bits=unit.fraction_bits,
        rounding=unit.rounding, result_bits=unit.result_bits,
        nan=(1 << (FLOATS[unit.accumulator].bits - 1)) - 1, group=unit.group,
    )  # fmt: skip


def unstated(rule: Rule, problem: Problem) -> list[str]:
    """Return the names of the fields of `rule` and `problem` that no `MatrixUnit` can describe."""
    stated = Rule(
        rule.terms, addend=rule.addend, order=rule.order, fraction_bits=rule.fraction_bits, rounding=rule.rounding,
        result_bits=rule.result_bits, nan=(1 << (problem.result.bits - 1)) - 1, group=rule.group,
    )  # fmt: skip
    full = rule.result_bits == problem.result.mantissa_bits
    lacks = {name: getattr(rule, name) != getattr(stated, name) for name in FIELDS}
    lacks["rounding"] = rule.rounding == "floor" or (rule.rounding == "rne" and not full)
    lacks["fraction_bits"] = rule.fraction_bits is None
    lacks["addend"] = rule.addend in ("before", "none")
    lacks["operands"] = not {problem.a, problem.b} <= set(OPERANDS)
    lacks["accumulator"] = problem.accumulator not in ACCUMULATORS
    return [name for name, is_lacking in lacks.items() if is_lacking]


def unit_of(rule: Rule, problem: Problem, name: str = "mine") -> MatrixUnit | None:
    """Return the `MatrixUnit` of a rule; None if no `MatrixUnit` can describe the rule."""
    if rule.fraction_bits is None or unstated(rule, problem):
        return None
    return MatrixUnit(
        name, tuple(dict.fromkeys((problem.a, problem.b))), (problem.k,), rule.terms, rule.fraction_bits,
        rule.result_bits, rule.rounding, problem.accumulator, rule.addend,
        () if rule.order == (1, 1) else tuple(order_of(rule.order, problem.k)),
        rule.group, ((problem.scale, problem.block),) if problem.scale else (),
    )  # fmt: skip

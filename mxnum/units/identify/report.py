"""Write the result of `identify` as text."""

from __future__ import annotations

from typing import Any

from mxnum.units.identify.cases import one_of
from mxnum.units.identify.family import Cases, Problem, Rule, evaluate
from mxnum.units.identify.identification import POOL, Identification, pasted
from mxnum.units.identify.registered import unstated

_FIELDS = {
    "terms": "products in a sum", "combine": "sums are combined by", "addend": "addend", "order": "order",
    "align": "alignment", "fraction_bits": "fraction bits", "normalize": "products are normalized",
    "rounding": "rounding of a sum", "result_bits": "fraction bits of a sum",
    "add_rounding": "rounding of additions outside", "carry": "integer bits of a sum",
    "flush_operands": "subnormal operands flushed", "flush_addend": "subnormal addends flushed",
    "flush_result": "subnormal results flushed", "zero_exponent": "exponent of a zero", "zero": "sign of a zero result",
    "overflow": "beyond the largest number", "infinities": "infinite inputs", "nan": "NaN",
    "group": "products that are added exactly to form one term",
}  # fmt: skip
#: For each field that can be None, the text for None.
_NONE = {"fraction_bits": "exact", "carry": "enough", "zero_exponent": "without influence"}


def report(found: Identification) -> str:
    """Return a text that lists the possible values of each field, or says why no rule fits."""
    problem, count = found.problem, len(found.cases.c)
    scales = f", {problem.scale} scales in blocks of {problem.block}" if problem.block else ""
    head = f"{problem.a} x {problem.b}, K = {problem.k}, {problem.accumulator}{scales}: {count} answers."
    if found.unstable:
        return "\n".join([
            head, f"The sums are not deterministic: {len(found.unstable)} of {count} cases gave two answers.",
            f"First of these: {case_text(problem, found.cases, found.unstable[0])}",
        ])  # fmt: skip
    if not found.rules:
        return "\n".join([head, *_contradicted(found)])
    lines = [head, "These rules reproduce every answer:"]
    fields = {name: values for name, values in found.fields.items() if _is_shown(name, found)}
    lines += [f"  {_FIELDS[name]}: {_values(name, values)}" for name, values in fields.items()]
    lines.append(f"The rule with the fewest unusual fields: {_one(min(found.rules, key=_unusual))}.")
    lines.append(f"Registered units that agree: {', '.join(found.registered) or 'none'}.")
    open_fields = [_FIELDS[name] for name, values in fields.items() if len(values) > 1]
    if open_fields:
        lines.append(f"These cases do not determine: {', '.join(open_fields)}.")
    if not found.complete:
        lines.append("Other rules may fit too, so these values are a sample. Further cases would rule out some rules.")
    more = found.further_cases()
    if more is not None:
        first = case_text(problem, more, 0)
        lines.append(f"{len(more.c)} further cases separate the remaining rules. The first: {first}")
    elif open_fields:
        lines.append(f"None of {POOL:,} further cases separates the remaining rules.")
    lines.append(f"To paste: {pasted(found.unit)}" if found.unit else _unpasted(found))
    return "\n".join(lines)


def _is_shown(name: str, found: Identification) -> bool:
    """Return True if the field can affect the answers under at least one of the rules."""
    if name == "add_rounding":
        return any(rule.combine != "chain" or rule.addend == "after" for rule in found.rules)
    if name == "flush_addend":
        return any(rule.addend != "none" for rule in found.rules)
    return (name != "group" or bool(found.problem.groups)) and (name != "nan" or found.nan_seen)


def _unpasted(found: Identification) -> str:
    """Return a sentence that names the fields whose values a `MatrixUnit` cannot express."""
    fewest = min((unstated(rule, found.problem) for rule in found.rules), key=len)
    return f"A MatrixUnit cannot express these rules because of: {', '.join(_FIELDS.get(n, n) for n in fewest)}."


def _contradicted(found: Identification) -> list[str]:
    wrong = found.contradictions()
    if found.nearest is None or not wrong:
        return ["No rule that identify knows reproduces every answer."]
    rule, index, count = found.nearest, wrong[0], len(found.cases.c)
    right = int(evaluate(rule, found.problem, found.cases.at(slice(index, index + 1)))[0])
    digits = found.problem.result.bits // 4
    near = f"{len(wrong)} of {count} answers contradict the nearest rule: {_one(rule)}."
    few = "Perhaps these answers are wrong." if len(wrong) <= 3 else "So the unit follows a rule unknown to identify."
    return [
        "No rule that identify knows reproduces every answer.",
        f"{near} {few}",
        f"The smallest contradicting case: {case_text(found.problem, found.cases, index)}; "
        f"the answer is 0x{int(found.answers[index]):0{digits}X}, the rule gives 0x{max(right, 0):0{digits}X}.",
    ]


def _unusual(rule: Rule) -> int:
    """Return the number of fields that differ from their defaults.

    The value None of `fraction_bits` (exact sums) does not count as a difference.
    """
    default = Rule(rule.terms)
    changed = sum(getattr(rule, name) != getattr(default, name) for name in _FIELDS)
    return int(changed) - (rule.fraction_bits is None)


def _one(rule: Rule) -> str:
    default = Rule(rule.terms)
    told = [f"terms={rule.terms}"]
    told += [f"{n}={getattr(rule, n)!r}" for n in _FIELDS if n != "terms" and getattr(rule, n) != getattr(default, n)]
    return ", ".join(told)


def _values(name: str, values: list[Any]) -> str:
    if name == "nan":
        return ", ".join("several" if v < 0 else f"0x{v:X}" for v in values)
    if name == "order":
        names = {(1, 1): "index order", (1, -2): "each pair of indices swapped (1, 0, 3, 2, ...)"}
        dealt = [names.get((w, s), f"runs of {w} indices assigned in turn to {s} sums") for w, s in values]
        return " or ".join(dealt)
    if name == "fraction_bits" and len(values) > 1:
        finite = sorted(v for v in values if v is not None)
        told = [f"{finite[0]} to {finite[-1]}" if len(finite) > 1 else f"{finite[0]}"] if finite else []
        return " or ".join(told + ["exact"] * (None in values))
    words = {None: _NONE.get(name, "none"), True: "yes", False: "no"}
    return " or ".join(words.get(v, str(v)) if isinstance(v, bool | None) else str(v) for v in values)


def case_text(problem: Problem, cases: Cases, index: int) -> str:
    """Return the nonzero products and the addend of a case as text, in hexadecimal codes."""
    x, y = problem.formats
    shown = [
        f"a[{i}]*b[{i}] = 0x{int(cases.a[index, i]):0{-(-x.bits // 4)}X}*0x{int(cases.b[index, i]):0{-(-y.bits // 4)}X}"
        for i in range(problem.k)
        if cases.a[index, i] or cases.b[index, i]
    ]
    one = one_of(problem)
    for name, codes in (("scales_a", cases.a), ("scales_b", cases.b)):
        some = enumerate(codes[index, problem.k :])
        shown += [f"{name}[{i}] = 0x{int(code):02X}" for i, code in some if code != one]
    return ", ".join([*shown, f"c = 0x{int(cases.c[index]):0{problem.result.bits // 4}X}"])

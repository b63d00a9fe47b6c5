"""Rounding, stated without a rounding operator: which real numbers have a given code.

The theorems of this module do not use the rounding function `proofs.specs.conversions.rounded`.
Instead, the theorems compare the exact x / 2**scale with the element's values, which come from the
standards' tables, and with the exact midpoints between these values.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import pairwise

import z3

from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import prove
from proofs.specs import conversions, tables
from proofs.specs.tables import Element
from proofs.theorem import Outcome, Theorem

STATEMENTS = {
    "rne": "To nearest, ties to even: let v be |x| / 2**(scale - 127). v lies between the midpoints to the code's two "
    "neighbours, and on a midpoint only if the code is even. The largest value also gets every larger v. The sign is "
    "kept.",
    "rna": "To nearest, ties away from zero: let v be |x| / 2**(scale - 127). v is at or above the midpoint to the "
    "neighbour below and strictly below the midpoint to the neighbour above. The largest value also gets every larger "
    "v. The sign is kept.",
    "rtz": "Toward zero: the code's magnitude is the greatest that is not above |x| / 2**(scale - 127). The sign is "
    "kept.",
    "rtp": "Upward: the code's value is the least that is not below x / 2**(scale - 127), or the largest value if "
    "there is none.",
    "rtn": "Downward: the code's value is the greatest that is not above x / 2**(scale - 127), or minus the largest "
    "value if there is none.",
    "rto": "To odd: let v be x / 2**(scale - 127). The code's value is exactly v; or the code is odd, and v lies "
    "strictly between its two neighbours; or the value has the largest magnitude, and |v| is beyond it.",
}
HYPOTHESES = ("x is any finite number of its type", "scale is any E8M0 code but 0xFF", "overflow saturates")


def bound(code: z3.BitVecRef, sort: z3.FPSortRef, bounds: list[Fraction | None]) -> z3.FPRef:
    """Return bounds[code] as an exact number; a bound of None means infinity."""
    infinity = z3.fpPlusInfinity(sort)

    def entry(index: int) -> z3.FPRef:
        value = bounds[index]
        return infinity if value is None else z3.FPVal(float(value), sort)

    return conversions.table(code, entry, len(bounds), z3.fpNaN(sort))


def stands_for(code: z3.BitVecRef, size: z3.FPRef, negative: z3.BoolRef, element: Element, rounding: str) -> z3.BoolRef:
    """Return the condition that `code` is the right magnitude code for the magnitude `size`.

    The condition is false for codes above `element.last`, which have no finite value.
    """
    sort = size.sort()
    values = [element.value(index) for index in range(element.last + 1)]
    middles = [(below + above) / 2 for below, above in pairwise(values)]
    minus_one = Fraction(-1)  # less than every magnitude

    def between(
        low: list[Fraction | None], high: list[Fraction | None], closed_low: z3.BoolRef, closed_high: z3.BoolRef
    ) -> z3.BoolRef:
        least, most = bound(code, sort, low), bound(code, sort, high)
        return z3.And(
            z3.If(closed_low, z3.fpLEQ(least, size), z3.fpLT(least, size)),
            z3.If(closed_high, z3.fpLEQ(size, most), z3.fpLT(size, most)),
        )

    yes, no = z3.BoolVal(True), z3.BoolVal(False)
    even = z3.Extract(0, 0, code) == 0
    last_or = code == element.last
    match rounding:
        case "rne":
            return between([minus_one, *middles], [*middles, None], even, z3.Or(even, last_or))
        case "rna":
            return between([minus_one, *middles], [*middles, None], yes, no)
        case "rtz":
            return between([*values], [*values[1:], None], yes, no)
        case "rto":
            exact = z3.fpEQ(bound(code, sort, [*values]), size)
            inside = between([minus_one, *values[:-1]], [*values[1:], None], no, no)
            beyond = z3.And(last_or, z3.fpGT(size, bound(code, sort, [*values])))
            return z3.Or(exact, z3.And(z3.Not(even), inside), beyond)
    away = between([minus_one, *values[:-1]], [*values[:-1], None], no, yes)
    toward = between([*values], [*values[1:], None], yes, no)
    return z3.If(negative, toward, away) if rounding == "rtp" else z3.If(negative, away, toward)


def check(source: str, element: str, rounding: str) -> Outcome:
    """Prove that every finite number gets the code that `stands_for` requires."""
    float_type, target = tables.FLOATS[source], tables.ELEMENTS[element]
    width = inputs.conversion_word(FLOATS[source], ELEMENTS[element])
    x, scale = inputs.pattern("x", float_type.bits), inputs.scale()
    kernel = make_encode(FLOATS[source], ELEMENTS[element], Rounding(rounding), Overflow.SATURATE)
    unread = z3.BitVecVal(0, width)
    result, _ = run(kernel, inputs.word(x, width), inputs.natural(scale, width), unread)
    code, _ = inputs.code_of(result, target.bits)
    code_negative, magnitude = conversions.sign_and_magnitude(code, target)
    definitions: conversions.Definitions = []
    value = conversions.widen(x, float_type, conversions.wide_sort(float_type, target))
    number = conversions.unscaled(value, scale, definitions)
    negative = conversions.sign_bit(x)
    same_sign = code_negative == negative
    if target.twos_complement:
        same_sign = z3.Or(magnitude == 0, same_sign)
    goal = z3.And(stands_for(magnitude, z3.fpAbs(number.value), negative, target, rounding), same_sign)
    finite = z3.Not(z3.Or(z3.fpIsNaN(value), z3.fpIsInf(value)))
    premises = [*definitions, finite, scale != tables.SCALE_NAN]
    return prove(premises, goal, show=(x, scale), example=((x, 0), (scale, 127)))


def theorems() -> list[Theorem]:
    found = []
    for source in ("float32", "float64"):
        for element in tables.ELEMENTS:
            for rounding, statement in STATEMENTS.items():
                kernel = make_encode(FLOATS[source], ELEMENTS[element], Rounding(rounding), Overflow.SATURATE)
                found.append(
                    Theorem(
                        name=f"neighbours/{source}/{element}/{rounding}",
                        statement=statement,
                        kernels=(kernel.__name__,),
                        check=partial(check, source, element, rounding),
                        hypotheses=HYPOTHESES,
                        functions=(kernel,),
                    )
                )
    return found

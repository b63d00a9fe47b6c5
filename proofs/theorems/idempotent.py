"""Quantizing twice gives the same values as quantizing once, under the hypotheses of each theorem.

Let A be the largest magnitude of a block, and T the largest magnitude of its quantized values.
Rounding is monotone (structure/monotone), so T is A rounded toward zero or away from zero. In `rne`
and `rna`, T is A rounded in this mode. If A is an infinity, T is the value to which an infinity
saturates.

The proofs treat only A and T, but the result holds for the whole block. The second quantization
uses the scale of the first quantization or half of this scale. Under both scales the element format
represents all quantized values, so the second quantization does not change them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import z3

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import prove, together
from proofs.specs import tables
from proofs.theorem import Outcome, Theorem
from proofs.theorems.scales import HYPOTHESES

STATEMENT = (
    "Let T be the largest magnitude of a block's quantized values, finite in the float type. The scale that the rule "
    "finds for T is the scale of the block or half of it. Quantizing T under the scale found for T gives T, in every "
    "rounding mode. Twice any value of the element is also a value, unless it exceeds the largest. So a second "
    "quantization changes no value of the block."
)
ANY, NEAREST = ("rtz", "rtp"), ("rne", "rna")
#: In a list of rounding modes, the entry "infinity" is the case in which the largest magnitude A is
#: infinite and saturates.
INFINITY = "infinity"


#: The rules for which the theorem holds. It is false for `half_up` and `floor_plus_one`: there the
#: largest element of a block can be rounded up so far that the scale doubles. Under the doubled
#: scale, the small numbers of the block keep fewer digits.
RULES = ("floor", "ceil", "even", "rceil")
#: The pairs (float type, element format) in the fast tier of proofs: one element format with a NaN
#: code, and one without.
FAST = (("float32", "e4m3"), ("float32", "e2m1"))


def roundings(element: str, rule: str) -> tuple[str, ...]:
    """Return the rounding modes of A, the block's largest magnitude, that the theorem covers.

    The modes are `ANY`, except for the rule `even` in e4m3, where they are `NEAREST`. In e4m3 under
    `even`, rounding toward zero can make the largest number so small that the second scale is half
    the first scale. The largest number divided by this second scale is then 480, above e4m3's
    largest value, 448. Under every rule except `ceil`, A may also be an infinity, so the result
    includes `INFINITY`. Under `ceil` the theorem is false for infinities.
    """
    modes = NEAREST if (element, rule) == ("e4m3", "even") else ANY
    return modes if rule == "ceil" else (*modes, INFINITY)


def kernels(source: str, element: str, rule: str, rounding: str) -> tuple[Callable[..., Any], ...]:
    """Return kernels that find a scale, encode, decode, encode again by rtz, and again by rtp."""
    float_type, target = FLOATS[source], ELEMENTS[element]
    return (
        make_shared_scale(float_type, target, ScaleRule(rule)),
        make_encode(
            float_type, target, Rounding.RTZ if rounding == INFINITY else Rounding(rounding), Overflow.SATURATE
        ),
        make_decode(target, float_type),
        make_encode(float_type, target, Rounding.RTZ, Overflow.SATURATE),
        make_encode(float_type, target, Rounding.RTP, Overflow.SATURATE),
    )


def check(source: str, element: str, rule: str, rounding: str) -> Outcome:
    """Prove the theorem for one rounding mode of a block's largest magnitude."""
    float_type, target = tables.FLOATS[source], ELEMENTS[element]
    scale_of, encode, decode, *again = kernels(source, element, rule, rounding)
    width = inputs.conversion_word(FLOATS[source], target)
    amax = inputs.pattern("amax", float_type.bits)
    zero = z3.BitVecVal(0, width)

    def word(x: z3.BitVecRef) -> z3.BitVecRef:
        return z3.ZeroExt(width - x.size(), x) if x.size() < width else x

    def value(code: z3.BitVecRef, scale: z3.BitVecRef) -> z3.BitVecRef:
        return inputs.code_of(run(decode, code, scale)[0], float_type.bits)[0]

    scale, _ = run(scale_of, word(amax))
    infinity = z3.BitVecVal(float_type.infinity, width)
    code, _ = run(encode, infinity if rounding == INFINITY else word(amax), scale, zero)
    top = value(code, scale)
    other, _ = run(scale_of, word(top))
    stays = [value(run(kernel, word(top), other, zero)[0], other) == top for kernel in again]
    finite = [z3.ULE(amax, float_type.last), z3.ULE(top, float_type.last)]
    goal = z3.And(z3.Or(other == scale, other == scale - 1), *stays)
    return prove(finite, goal, engines=("bitwuzla",), show=(amax,), example=((amax, float_type.infinity >> 1),))


def doubles(element: str) -> bool:
    """Return True if the double of each element value is also a value or exceeds the largest."""
    e = ELEMENTS[element]
    values = {Fraction(e.value(code)) for code in range(e.max_code + 1)}
    return all(2 * v in values for v in values if 2 * v <= max(values))


def check_all(source: str, element: str, rule: str) -> Outcome:
    """Prove the theorem for all rounding modes that `roundings` returns."""
    if not doubles(element):
        return Outcome("refuted", "by hand", 0.0, "twice some value of the element is not a value of the element")
    modes = roundings(element, rule)
    return together([(rounding, partial(check, source, element, rule, rounding)) for rounding in modes])


def theorems() -> list[Theorem]:
    found = []
    for source in ("float32", "float64"):
        for element in tables.ELEMENTS:
            for rule in RULES:
                modes = roundings(element, rule)
                used = dict.fromkeys(kernel for mode in modes for kernel in kernels(source, element, rule, mode))
                found.append(
                    Theorem(
                        f"idempotent/{source}/{element}/{rule}",
                        STATEMENT,
                        tuple(dict.fromkeys(kernel.__name__ for kernel in used)),
                        partial(check_all, source, element, rule),
                        (
                            *HYPOTHESES,
                            "A, the largest magnitude before quantization, is rounded in "
                            f"{'every mode' if 'rtz' in modes else 'rne or rna'}",
                            "infinities in the block saturate" if INFINITY in modes else "no infinity is in the block",
                        ),
                        "fast" if (source, element) in FAST else "full",
                        tuple(used),
                    )
                )
    return found

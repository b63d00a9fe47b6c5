"""Numbers beyond the largest value: the results of saturation and of IEEE overflow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove, together
from proofs.specs import conversions, tables
from proofs.theorem import Outcome, Theorem, Tier

SATURATES = (
    "Under overflow='saturate', only NaN gives a special code. In every rounding mode, every finite x gives a code "
    "whose magnitude is at most that of the largest value, and an infinity gives exactly the largest value."
)
SMTLIB = (
    "Under overflow='ieee', e5m2 is the IEEE 754 format with 5 exponent bits and 2 fraction bits. In all five IEEE "
    "rounding modes, the code is SMT-LIB's own conversion of x / 2**(scale - 127) to this format, infinities and "
    "signed zeros included."
)
BOUNDARY = (
    "Let v be |x| / 2**(scale - 127). Under overflow='ieee', a finite x becomes infinity (e5m2) or NaN (e4m3) in "
    "exactly these cases. e4m3: v > 464 in rne, v >= 464 in rna, v > 448 and x > 0 in rtp, v > 448 and x < 0 in rtn. "
    "e5m2: v >= 61440 in rne and rna, v > 57344 and x > 0 in rtp, v > 57344 and x < 0 in rtn. In rtz and rto: never. "
    "In sr: never if v is at most the largest value (448, 57344), and always from the next multiple of the gap on "
    "(480, 65536). An infinite x becomes infinity or NaN in every mode."
)
NUMBERS = (
    "x is any bit pattern of its type but NaN",
    "scale is any E8M0 code but 0xFF",
    "random is any integer below 2**30",
)
LARGEST = {"e4m3": 448, "e5m2": 57344}
NEXT = {"e4m3": 480, "e5m2": 65536}
HALFWAY = {"e4m3": 464, "e5m2": 61440}
#: True if the code of the largest value is even, so that `HALFWAY` rounds down to this value under
#: rounding to nearest even.
TIE_STAYS = {"e4m3": True, "e5m2": False}


def encoder(source: str, element: str, rounding: str, overflow: str) -> Callable[..., Any]:
    """Return the Python function of an encoder."""
    return make_encode(FLOATS[source], ELEMENTS[element], Rounding(rounding), Overflow(overflow))


class Given:
    """Symbolic inputs of an encoder, the exact x / 2**(scale - 127), and the codes of x."""

    def __init__(self, source: str, element: str) -> None:
        self.source, self.element = tables.FLOATS[source], tables.ELEMENTS[element]
        self.width = inputs.conversion_word(FLOATS[source], ELEMENTS[element])
        self.x, self.scale, self.random = inputs.pattern("x", self.source.bits), inputs.scale(), inputs.random()
        self.negative = conversions.sign_bit(self.x)
        magnitude = self.x & ((1 << (self.source.bits - 1)) - 1)
        self.infinite = magnitude == self.source.infinity
        self.definitions: conversions.Definitions = []
        self.premises = [z3.ULE(magnitude, self.source.infinity), self.scale != tables.SCALE_NAN]

    def number(self) -> z3.FPRef:
        """Return x / 2**(scale - 127) for finite x."""
        wide = conversions.widen(self.x, self.source, conversions.wide_sort(self.source, self.element))
        return conversions.unscaled(wide, self.scale, self.definitions).value

    def code(self, rounding: str, overflow: str) -> z3.BitVecRef:
        """Return the code of x in the given modes."""
        kernel = encoder(self.source.name, self.element.name, rounding, overflow)
        scale, random = inputs.natural(self.scale, self.width), inputs.natural(self.random, self.width)
        result, _ = run(kernel, inputs.word(self.x, self.width), scale, random)
        return inputs.code_of(result, self.element.bits)[0]

    def magnitude(self, rounding: str, overflow: str) -> z3.BitVecRef:
        """Return the magnitude part of the code of x, without the sign, in the given modes."""
        return conversions.sign_and_magnitude(self.code(rounding, overflow), self.element)[1]

    def prove(self, goal: z3.BoolRef, engines: tuple[str, ...] = BOTH) -> Outcome:
        """Prove a goal for every x except NaN, and for every scale code except 0xFF."""
        show, example = (self.x, self.scale, self.random), ((self.x, 0), (self.scale, 127))
        return prove([*self.premises, *self.definitions], goal, engines=engines, show=show, example=example)


def saturates(source: str, element: str) -> Outcome:
    """Prove the statement `SATURATES` for a source and an element."""
    given = Given(source, element)
    goals = []
    for rounding in conversions.ROUNDINGS:
        magnitude = given.magnitude(rounding, "saturate")
        goals += [z3.ULE(magnitude, given.element.last), z3.Implies(given.infinite, magnitude == given.element.last)]
    return given.prove(z3.And(*goals))


def is_smtlib_conversion(source: str, rounding: str) -> Outcome:
    """Prove the statement `SMTLIB` for a source and a rounding."""
    given = Given(source, "e5m2")
    sort = z3.FPSort(5, 3)
    infinity = z3.If(given.negative, z3.fpMinusInfinity(sort), z3.fpPlusInfinity(sort))
    converted = z3.If(given.infinite, infinity, z3.fpToFP(conversions.MODES[rounding], given.number(), sort))
    return given.prove(z3.fpBVToFP(given.code(rounding, "ieee"), sort) == converted)


def boundary(source: str, element: str, rounding: str) -> Outcome:
    """Prove the statement `BOUNDARY` for a source, an element and a rounding."""
    given = Given(source, element)
    number = given.number()
    size = z3.fpAbs(number)

    def value(literal: int) -> z3.FPRef:
        return z3.FPVal(float(literal), number.sort())

    special = given.element.nan if given.element.infinity is None else given.element.infinity
    left = given.magnitude(rounding, "ieee") == special
    above_largest = z3.fpGT(size, value(LARGEST[element]))
    from_halfway = z3.fpGEQ(size, value(HALFWAY[element]))
    match rounding:
        case "rne" if TIE_STAYS[element]:
            expected = z3.fpGT(size, value(HALFWAY[element]))
        case "rne" | "rna":
            expected = from_halfway
        case "rtp":
            expected = z3.And(above_largest, z3.Not(given.negative))
        case "rtn":
            expected = z3.And(above_largest, given.negative)
        case _:
            expected = z3.BoolVal(False)
    finite = left == expected
    if rounding == "sr":
        always = z3.Implies(z3.fpGEQ(size, value(NEXT[element])), left)
        finite = z3.And(always, z3.Implies(z3.Not(above_largest), z3.Not(left)))
    return given.prove(z3.If(given.infinite, left, finite))


def theorems() -> list[Theorem]:
    found = []

    def state(
        name: str, statement: str, check: Callable[[], Outcome], made: list[Callable[..., Any]], tier: Tier
    ) -> None:
        kernels = tuple(kernel.__name__ for kernel in made)
        found.append(Theorem(f"overflow/{name}", statement, kernels, check, NUMBERS, tier, tuple(made)))

    for source in tables.FLOATS:
        tier: Tier = "fast" if source in ("float32", "float64") else "full"
        made = [encoder(source, element, r, "saturate") for element in tables.ELEMENTS for r in conversions.ROUNDINGS]
        cases = [(element, partial(saturates, source, element)) for element in tables.ELEMENTS]
        state(f"saturates/{source}", SATURATES, partial(together, cases), made, tier)
        tier = "fast" if source == "float32" else "full"
        made = [encoder(source, "e5m2", rounding, "ieee") for rounding in conversions.MODES]
        cases = [(rounding, partial(is_smtlib_conversion, source, rounding)) for rounding in conversions.MODES]
        state(f"smtlib/{source}/e5m2", SMTLIB, partial(together, cases), made, tier)
        for element in LARGEST:
            made = [encoder(source, element, rounding, "ieee") for rounding in conversions.ROUNDINGS]
            cases = [(rounding, partial(boundary, source, element, rounding)) for rounding in conversions.ROUNDINGS]
            state(f"boundary/{source}/{element}", BOUNDARY, partial(together, cases), made, tier)
    return found

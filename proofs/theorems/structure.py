"""Rounding to every element is monotone, symmetric, idempotent, and inverse to decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum.definition.convert import make_decode, make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove, together
from proofs.specs import conversions, tables
from proofs.specs.tables import Element, Float
from proofs.theorem import Outcome, Theorem

MONOTONE = (
    "Encoding is monotone: under the same scale and random integer, x <= y implies code(x) <= code(y) in the order of "
    "the element's numbers. Special codes for overflow are ordered beyond the largest numbers. (The proof compares "
    "each x with the next float away from zero; a finite chain of such steps connects x and y.) So a check at all "
    "breakpoints covers all inputs."
)
SYMMETRIC = (
    "Encoding -x gives the negated code of x, under every scale but NaN and in every mode. Upward and downward "
    "rounding change places, and stochastic rounding uses the same random integer for both numbers."
)
INVERSE = (
    "Encoding undoes decoding: encode(decode(code, scale), scale) = code, for every code with a finite value that an "
    "encoder can produce. This holds in every rounding and overflow mode and for all random bits, if the float type "
    "holds the decoded value exactly (float64 always does, float32 unless the value overflows). So quantizing twice "
    "under the same scale is the same as quantizing once."
)
MIRRORED = {"rtp": "rtn", "rtn": "rtp"}
ANYTHING = ("x is any number or infinity of its type", "scale is any E8M0 code", "random is any integer below 2**30")


def encoder(source: str, element: str, rounding: str, overflow: str) -> Callable[..., Any]:
    """Return the Python function of an encoder."""
    return make_encode(FLOATS[source], ELEMENTS[element], Rounding(rounding), Overflow(overflow))


def overflows(element: str) -> tuple[str, ...]:
    """Return the overflow modes that give different results for the element."""
    return conversions.OVERFLOWS if element in ("e4m3", "e5m2") else ("saturate",)


class Encoding:
    """Symbolic inputs of the encoders from a float type to an element."""

    def __init__(self, source: str, element: str) -> None:
        self.source: Float = tables.FLOATS[source]
        self.element: Element = tables.ELEMENTS[element]
        self.width = inputs.conversion_word(FLOATS[source], ELEMENTS[element])
        self.x = inputs.pattern("x", self.source.bits)
        self.scale, self.random = inputs.scale(), inputs.random()
        self.magnitude = self.x & ((1 << (self.source.bits - 1)) - 1)
        self.negative = conversions.sign_bit(self.x)
        self.show = self.x, self.scale, self.random
        self.example = (self.x, 0), (self.scale, 127)

    def code(self, x: z3.BitVecRef, rounding: str, overflow: str) -> z3.BitVecRef:
        """Return the code of x in the given modes."""
        kernel = encoder(self.source.name, self.element.name, rounding, overflow)
        extended = z3.SignExt(self.width - x.size(), x) if x.size() < self.width else x
        scale, random = inputs.natural(self.scale, self.width), inputs.natural(self.random, self.width)
        return inputs.code_of(run(kernel, extended, scale, random)[0], self.element.bits)[0]

    def order(self, code: z3.BitVecRef) -> z3.BitVecRef:
        """Return a signed integer for a code; the integers have the order of the codes' numbers."""
        negative, magnitude = conversions.sign_and_magnitude(code, self.element)
        magnitude = z3.ZeroExt(1, magnitude)
        return z3.If(negative, -magnitude, magnitude)

    def negated(self, code: z3.BitVecRef) -> z3.BitVecRef:
        """Return the code of the number with the opposite sign."""
        return -code if self.element.twos_complement else code ^ (1 << (self.element.bits - 1))


def monotone(source: str, element: str, rounding: str, engines: tuple[str, ...]) -> Outcome:
    """Prove the statement `MONOTONE` for a source, an element and a rounding."""
    given = Encoding(source, element)
    goals = []
    for overflow in overflows(element):
        here, next_out = (given.order(given.code(x, rounding, overflow)) for x in (given.x, given.x + 1))
        goals.append(z3.If(given.negative, next_out <= here, here <= next_out))
        # The codes of +0 and -0 must have order 0, so that negative numbers are ordered below
        # positive numbers.
        for zero in (0, 1 << (given.x.size() - 1)):
            goals.append(given.order(given.code(z3.BitVecVal(zero, given.x.size()), rounding, overflow)) == 0)
    premises = [z3.ULT(given.magnitude, given.source.infinity)]
    return prove(premises, z3.And(*goals), engines=engines, show=given.show, example=given.example)


def symmetric(source: str, element: str) -> Outcome:
    """Prove the statement `SYMMETRIC` for a source and an element."""
    given = Encoding(source, element)
    goals = []
    for overflow in overflows(element):
        for rounding in conversions.ROUNDINGS:
            minus_x = given.code(given.x ^ (1 << (given.x.size() - 1)), MIRRORED.get(rounding, rounding), overflow)
            goals.append(minus_x == given.negated(given.code(given.x, rounding, overflow)))
    premises = [z3.ULE(given.magnitude, given.source.infinity), given.scale != tables.SCALE_NAN]
    return prove(premises, z3.And(*goals), engines=BOTH, show=given.show, example=given.example)


def inverse(source: str, element: str) -> Outcome:
    """Prove the statement `INVERSE` for a source and an element."""
    given = Encoding(source, element)
    width = inputs.conversion_word(ELEMENTS[element], FLOATS[source])
    code = inputs.pattern("code", given.element.bits)
    decode = make_decode(ELEMENTS[element], FLOATS[source])
    decoded, _ = run(decode, inputs.natural(code, width), inputs.natural(given.scale, width))
    x, _ = inputs.code_of(decoded, given.source.bits)
    definitions: conversions.Definitions = []
    sort = conversions.wide_sort(given.source, given.element)
    # The value is NaN for a code without a finite value, and for an integer's most negative code,
    # which encoders never produce.
    value = conversions.element_value(code, given.element, sort)
    exact = z3.fpEQ(conversions.scaled(value, given.scale, definitions).value, conversions.widen(x, given.source, sort))
    goals = [
        given.code(x, rounding, overflow) == code
        for overflow in overflows(element)
        for rounding in conversions.ROUNDINGS
    ]
    premises = [*definitions, z3.Not(z3.fpIsNaN(value)), given.scale != tables.SCALE_NAN]
    if source != "float64":
        premises.append(exact)
    return prove(
        premises,
        z3.And(*goals),
        engines=BOTH,
        show=(code, given.scale, given.random),
        example=((code, 0), (given.scale, 127)),
    )


def theorems() -> list[Theorem]:
    found = []
    for source in tables.FLOATS:
        for element in tables.ELEMENTS:
            encoders = tuple(
                encoder(source, element, rounding, overflow)
                for rounding in conversions.ROUNDINGS
                for overflow in conversions.OVERFLOWS
            )
            names = tuple(kernel.__name__ for kernel in encoders)
            by_rounding = [
                (rounding, partial(monotone, source, element, rounding, ("bitwuzla",)))
                for rounding in conversions.ROUNDINGS
            ]
            found.append(
                Theorem(
                    f"structure/monotone/{source}/{element}",
                    MONOTONE,
                    names,
                    partial(together, by_rounding),
                    ANYTHING,
                    "fast" if source == "float32" else "full",
                    encoders,
                )
            )
            found.append(
                Theorem(
                    f"structure/symmetric/{source}/{element}",
                    SYMMETRIC,
                    names,
                    partial(symmetric, source, element),
                    ANYTHING,
                    functions=encoders,
                )
            )
            decode = make_decode(ELEMENTS[element], FLOATS[source])
            found.append(
                Theorem(
                    f"structure/inverse/{source}/{element}",
                    INVERSE,
                    (decode.__name__, *names),
                    partial(inverse, source, element),
                    ("code is any code with a finite value", "scale is any E8M0 code but 0xFF", ANYTHING[2]),
                    functions=(decode, *encoders),
                    tier="fast" if source == "float64" else "full",
                )
            )
    return found

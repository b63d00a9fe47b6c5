"""The shared scale: the definition of each rule, and properties on which users rely.

A = f * 2**E with 1 <= f < 2 is the block's largest finite magnitude. The proofs convert A exactly
to a wider float type, and read f and E from the bits of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import z3

from mxnum.definition.scale import make_shared_scale
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import ScaleRule
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove, together
from proofs.specs import conversions, scales, tables
from proofs.theorem import Outcome, Theorem

DEFINITION = (
    "Let A = f * 2**E, with 1 <= f < 2, be the block's largest magnitude. Under `floor`, the scale code is E - emax + "
    "127. The other rules add 1: `ceil` if f > 1, `even` if f >= 2 - 2**-(m+1) for m mantissa bits, `rceil` if f "
    "exceeds the significand of the largest value, `half_up` if f >= 7/4, and `floor_plus_one` always. The result is "
    "clamped to 0..254. For A = 0, the code is 0."
)
CLAMP = (
    "Let A = f * 2**E, with 1 <= f < 2, be the block's largest magnitude. Under `floor` and `even`, A lies beyond the "
    "largest element times the scale if and only if f exceeds the significand of the largest value and the rule has "
    "not added 1. This holds unless the scale is clamped."
)
NEVER_EXCEEDS = (
    "Under `ceil` and `rceil`, no number of the block exceeds the largest element times the scale, unless the scale is "
    "clamped at 254."
)
MINIMAL = (
    "Under `rceil`, no smaller scale is possible: with a scale code that is one less, the largest magnitude A would "
    "exceed the largest element times the scale."
)
EVEN = (
    "The rule `even` rounds A to the element's number of mantissa bits, ties to even, and then applies the rule "
    "`floor` to the result, which may be the next power of two."
)
HYPOTHESES = ("A, the block's largest magnitude, is any finite number of the source type that is not negative",)


class Block:
    """A symbolic largest magnitude A, its exact exponent and significand, and its scale codes."""

    def __init__(self, source: str, element: str) -> None:
        self.source, self.element = tables.FLOATS[source], tables.ELEMENTS[element]
        self.amax = inputs.pattern("amax", self.source.bits)
        self.definitions: conversions.Definitions = []
        value = conversions.widen(self.amax, self.source, conversions.wide_sort(self.source))
        self.exact = conversions.Exact(value, self.definitions)
        self.zero = z3.fpIsZero(value)
        self.finite = [z3.Not(conversions.sign_bit(self.amax)), z3.ULE(self.amax, self.source.last)]

    def code(self, rule: str) -> z3.BitVecRef:
        """Return the scale code that the kernel of a rule computes from the largest magnitude A."""
        kernel = make_shared_scale(FLOATS[self.source.name], ELEMENTS[self.element.name], ScaleRule(rule))
        width = 64 if self.source.bits == 64 else 32
        return run(kernel, z3.ZeroExt(width - self.source.bits, self.amax) if width > self.source.bits else self.amax)[
            0
        ]

    def quotient(self, code: z3.BitVecRef) -> z3.FPRef:
        """Return A / 2**(code - 127) exactly, for any code from -1 to 255."""
        width = self.exact.exponent_bits
        return self.exact.times(z3.BitVecVal(tables.SCALE_BIAS, width) - z3.Extract(width - 1, 0, code)).value

    def exceeds(self, code: z3.BitVecRef) -> z3.BoolRef:
        """Return the condition that A exceeds the largest element times the scale of `code`."""
        largest = float(self.element.value(self.element.last))
        return z3.fpGT(self.quotient(code), z3.FPVal(largest, self.exact.sort))

    def prove(self, goal: z3.BoolRef) -> Outcome:
        """Prove a goal for every possible largest magnitude A."""
        one = self.source.infinity >> 1  # a positive finite pattern
        return prove(
            [*self.finite, *self.definitions], goal, engines=BOTH, show=(self.amax,), example=((self.amax, one),)
        )


def definition(source: str, element: str, rule: str) -> Outcome:
    """Prove the statement `DEFINITION` for one kernel."""
    block = Block(source, element)
    code = block.code(rule)
    return block.prove(code == scales.shared_code(block.exact, block.element, rule, code.size()))


def clamp(source: str, element: str, rule: str) -> Outcome:
    """Prove the statement `CLAMP` for one kernel."""
    block = Block(source, element)
    code, exponent = block.code(rule), scales.unclamped(block.exact, block.element, rule)
    beyond = scales.exceeds_largest_significand(block.exact, block.element)
    within = z3.And(exponent >= 0, exponent <= scales.LAST, z3.Not(block.zero))
    expected = z3.And(beyond, z3.Not(scales.bumps(block.exact, block.element, rule)))
    return block.prove(z3.Implies(within, block.exceeds(code) == expected))


def never_exceeds(source: str, element: str, rule: str) -> Outcome:
    """Prove the statement `NEVER_EXCEEDS` for one kernel."""
    block = Block(source, element)
    code, exponent = block.code(rule), scales.unclamped(block.exact, block.element, rule)
    return block.prove(z3.Implies(exponent <= scales.LAST, z3.Not(block.exceeds(code))))


def minimal(source: str, element: str, rule: str) -> Outcome:
    """Prove the statement `MINIMAL` for one kernel."""
    block = Block(source, element)
    code = block.code(rule)
    return block.prove(z3.Implies(code > 0, block.exceeds(code - 1)))


def even_rounds_then_floors(source: str, element: str, rule: str) -> Outcome:
    """Prove the statement `EVEN` for one kernel."""
    block = Block(source, element)
    code = block.code(rule)
    exponent, mantissa = block.exact.exponent, block.element.mantissa
    quotient = block.exact.times(z3.BitVecVal(mantissa, exponent.size()) - exponent).value
    rounded = z3.fpRoundToIntegral(z3.RNE(), quotient)
    two = z3.FPVal(float(2 << mantissa), block.exact.sort)
    carried = z3.If(z3.fpEQ(rounded, two), z3.BitVecVal(1, exponent.size()), z3.BitVecVal(0, exponent.size()))
    result = exponent + carried - block.element.emax + tables.SCALE_BIAS
    expected = scales.clamped(result)
    return block.prove(z3.Or(block.zero, code == z3.ZeroExt(code.size() - expected.size(), expected)))


def theorems() -> list[Theorem]:
    found = []

    def state(kind: str, statement: str, check: Callable[..., Outcome], rules: tuple[str, ...]) -> None:
        for source in tables.FLOATS:
            for rule in rules:
                kernels = [make_shared_scale(FLOATS[source], element, ScaleRule(rule)) for element in ELEMENTS.values()]
                cases = [(element, partial(check, source, element, rule)) for element in tables.ELEMENTS]
                found.append(
                    Theorem(
                        name=f"scale/{kind}/{source}/{rule}",
                        statement=statement,
                        kernels=tuple(kernel.__name__ for kernel in kernels),
                        check=partial(together, cases),
                        hypotheses=HYPOTHESES,
                        functions=tuple(kernels),
                    )
                )

    state("definition", DEFINITION, definition, scales.RULES)
    state("clamp-iff", CLAMP, clamp, ("floor", "even"))
    state("never-exceeds", NEVER_EXCEEDS, never_exceeds, ("ceil", "rceil"))
    state("minimal", MINIMAL, minimal, ("rceil",))
    state("even-rounds", EVEN, even_rounds_then_floors, ("even",))
    return found

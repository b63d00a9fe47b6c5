"""Stochastic rounding equals exact integer arithmetic; the proof needs no theory of floats.

The proof represents abs(x) / 2**(scale - 127) and the table's values by integers of 128 bits, in
units of 2**-30 of the element's smallest step. Numbers are rounded down to this unit. Let delta be
the position of the number in its gap, from 0 to 1. Rounding down cannot change
floor(delta * 2**30), because every gap is a multiple of the smallest step.
"""

from __future__ import annotations

from functools import partial

import z3

from mxnum.definition.convert import make_encode
from mxnum.definition.random import make_align_random
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove, together
from proofs.specs import conversions, tables
from proofs.specs.tables import RANDOM_BITS, Element, Float
from proofs.theorem import Outcome, Theorem

THRESHOLD = (
    "Let delta, from 0 to 1, be the position of |x| / 2**(scale - 127) in the gap between its two neighbouring values. "
    "Stochastic rounding gives the neighbour away from zero if and only if floor(delta * 2**30) + R >= 2**30. So "
    "exactly floor(delta * 2**30) of the 2**30 integers R round away from zero. For uniform R, the mean magnitude of "
    "the result is lower + floor(delta * 2**30) / 2**30 * gap. This mean is exact if delta has at most 30 bits, and "
    "its error is always below gap / 2**30."
)
MONOTONE = "With a larger random integer, the result is never closer to zero."
ALIGN = (
    "With r random bits (1 to 30), let R be the low r bits of the random word; the other bits are ignored. The kernel "
    "shifts R to the top of 30 bits and compares 30 bits. Its decision is the one that the definition requires for r "
    "bits: floor(delta * 2**r) + R >= 2**r."
)
WIDE = 128
HYPOTHESES = (
    "x is any finite number of its type, and |x| / 2**(scale - 127) is at most the largest value",
    "scale is any E8M0 code but 0xFF",
    "R is any integer below 2**30",
)


def fixed_point(
    x: z3.BitVecRef, scale: z3.BitVecRef, source: Float, element: Element
) -> tuple[z3.BitVecRef, z3.BoolRef]:
    """Return abs(x) / 2**(scale - 127) as an integer, and the condition that the integer fits.

    The integer has `WIDE` bits. It counts units of 2**(element.unit - 30), rounded down.
    """
    fraction_bits = source.precision - 1
    field = z3.ZeroExt(WIDE - source.exponent_bits, z3.Extract(source.bits - 2, fraction_bits, x))
    fraction = z3.ZeroExt(WIDE - fraction_bits, z3.Extract(fraction_bits - 1, 0, x))
    significand = z3.If(field == 0, fraction, fraction | (1 << fraction_bits))
    # |x| = significand * 2**(max(field, 1) - 1 + emin - fraction bits)
    least = source.emin - fraction_bits + tables.SCALE_BIAS - (element.unit - RANDOM_BITS)
    power = z3.If(field == 0, z3.BitVecVal(1, WIDE), field) - 1 + least - z3.ZeroExt(WIDE - 8, scale)
    in_reach = power < WIDE - source.precision
    return z3.If(power < 0, z3.LShR(significand, -power), significand << power), in_reach


class Gap:
    """The two neighbouring values of the element between which abs(x) / 2**(scale - 127) lies."""

    def __init__(self, amount: z3.BitVecRef, element: Element) -> None:
        self.below = z3.FreshConst(z3.BitVecSort(element.bits), "below")

        def counted(index: int) -> z3.BitVecRef:
            return z3.BitVecVal(element.magnitudes[index] << RANDOM_BITS, WIDE)

        nothing = z3.BitVecVal(0, WIDE)
        self.low = conversions.table(self.below, counted, element.last, nothing)
        self.high = conversions.table(self.below, lambda index: counted(index + 1), element.last, nothing)
        self.premises = [
            z3.ULT(self.below, element.last),
            z3.ULE(self.low, amount),
            z3.Or(z3.ULT(amount, self.high), z3.And(amount == self.high, self.below == element.last - 1)),
        ]


def threshold(source: str, element: str, engines: tuple[str, ...]) -> Outcome:
    """Prove the statement `THRESHOLD` for a source and an element."""
    float_type, target = tables.FLOATS[source], tables.ELEMENTS[element]
    width = inputs.conversion_word(FLOATS[source], ELEMENTS[element])
    x, scale, random = inputs.pattern("x", float_type.bits), inputs.scale(), inputs.random()
    kernel = make_encode(FLOATS[source], ELEMENTS[element], Rounding.SR, Overflow.SATURATE)
    result, _ = run(kernel, inputs.word(x, width), inputs.natural(scale, width), inputs.natural(random, width))
    code, _ = inputs.code_of(result, target.bits)
    _, magnitude = conversions.sign_and_magnitude(code, target)
    amount, in_reach = fixed_point(x, scale, float_type, target)
    gap = Gap(amount, target)
    # delta30 = floor(delta * 2**30) means delta30 * gap <= (amount - low) * 2**30 < (delta30 + 1) *
    # gap. The gap is a multiple of 2**30, so the inequalities below are divided by 2**30.
    delta30 = z3.FreshConst(z3.BitVecSort(RANDOM_BITS + 1), "delta30")
    step = z3.LShR(gap.high - gap.low, RANDOM_BITS)
    lower = z3.ZeroExt(WIDE - delta30.size(), delta30) * step
    definition = [
        z3.ULE(delta30, 1 << RANDOM_BITS),
        z3.ULE(lower, amount - gap.low),
        z3.ULT(amount - gap.low, lower + step),
    ]
    away = z3.UGE(z3.ZeroExt(1, delta30) + z3.ZeroExt(2, random), 1 << RANDOM_BITS)
    finite = z3.ULT(x & ((1 << (float_type.bits - 1)) - 1), float_type.infinity)
    premises = [finite, scale != tables.SCALE_NAN, in_reach, *gap.premises, *definition]
    goal = magnitude == gap.below + z3.If(away, z3.BitVecVal(1, target.bits), z3.BitVecVal(0, target.bits))
    example = ((x, 0), (scale, 127), (random, 0))
    return prove(premises, goal, engines=engines, show=(x, scale, random), example=example)


def monotone(source: str, element: str) -> Outcome:
    """Prove the statement `MONOTONE` for a source and an element."""
    float_type, target = tables.FLOATS[source], tables.ELEMENTS[element]
    width = inputs.conversion_word(FLOATS[source], ELEMENTS[element])
    x, scale, random = inputs.pattern("x", float_type.bits), inputs.scale(), inputs.random()
    larger = inputs.random("larger")
    goals = []
    for overflow in Overflow:
        kernel = make_encode(FLOATS[source], ELEMENTS[element], Rounding.SR, overflow)
        words = inputs.word(x, width), inputs.natural(scale, width)
        results = (run(kernel, *words, inputs.natural(integer, width))[0] for integer in (random, larger))
        less, more = (conversions.sign_and_magnitude(inputs.code_of(r, target.bits)[0], target)[1] for r in results)
        goals.append(z3.ULE(less, more))
    example = ((x, 0), (scale, 127), (random, 0), (larger, 0))
    show = x, scale, random, larger
    return prove([z3.ULE(random, larger)], z3.And(*goals), engines=BOTH, show=show, example=example)


def align(bits: int) -> Outcome:
    """Prove the statement `ALIGN` for `bits` random bits.

    delta30 is floor(delta * 2**30), so its leading `bits` bits are floor(delta * 2**bits).
    """
    word, delta30 = z3.BitVec("word", 32), z3.BitVec("delta30", RANDOM_BITS)
    aligned, _ = run(make_align_random(bits), word)
    integer = z3.ZeroExt(32 - bits, z3.Extract(bits - 1, 0, word))
    delta = z3.ZeroExt(32 - bits, z3.Extract(RANDOM_BITS - 1, RANDOM_BITS - bits, delta30))
    by_definition = z3.UGE(delta + integer, 1 << bits)
    by_kernel = z3.UGE(z3.ZeroExt(2, delta30) + aligned, 1 << RANDOM_BITS)
    goal = z3.And(by_definition == by_kernel, z3.ULT(aligned, 1 << RANDOM_BITS))
    return prove([], goal, engines=BOTH, show=(word, delta30), example=((word, 0), (delta30, 0)))


def theorems() -> list[Theorem]:
    aligners = tuple(make_align_random(bits) for bits in range(1, RANDOM_BITS + 1))
    each = [(f"{bits} bits", partial(align, bits)) for bits in range(1, RANDOM_BITS + 1)]
    words = ("word is any 32-bit word", "delta is any number from 0 to below 1")
    names = tuple(kernel.__name__ for kernel in aligners)
    found = [Theorem("stochastic/align", ALIGN, names, partial(together, each), words, functions=aligners)]
    for source in ("float32", "float64"):
        for element in tables.ELEMENTS:
            kernels = tuple(
                make_encode(FLOATS[source], ELEMENTS[element], Rounding.SR, overflow) for overflow in Overflow
            )
            quick = source == "float32" and element in ("e4m3", "e2m1", "int8")
            names = tuple(kernel.__name__ for kernel in kernels)
            found += [
                Theorem(
                    f"stochastic/threshold/{source}/{element}",
                    THRESHOLD,
                    names[:1],
                    partial(threshold, source, element, ("bitwuzla",)),
                    HYPOTHESES,
                    "fast" if quick else "full",
                    kernels[:1],
                ),
                Theorem(
                    f"stochastic/monotone/{source}/{element}",
                    MONOTONE,
                    names,
                    partial(monotone, source, element),
                    (
                        "x is any bit pattern of its type",
                        "scale is any E8M0 code",
                        "the two random integers are any below 2**30",
                    ),
                    "fast" if source == "float32" else "full",
                    kernels,
                ),
            ]
    return found

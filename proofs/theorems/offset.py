"""Asymmetric scaling: midpoint, difference, half range and decoding equal exact sums, rounded once.

Exact sums and differences of two floats can need hundreds of bits. For the difference x - offset,
SMT-LIB's own subtraction is used. For midpoint, half range and decoding, the sum is first rounded
to odd, in a float type with two bits more than the widest type involved. A sum rounded to odd, and
then to the narrower type, equals the exact sum rounded once (Boldo and Melquiond, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum.definition import offset as kernels
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import ScaleRule
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import prove
from proofs.specs import conversions, scales, tables
from proofs.theorem import Outcome, Theorem, Tier

FLOAT16 = tables.FLOATS["float16"]
#: These theorems ask only bitwuzla, because sums are hard for solvers. bitwuzla answers in seconds
#: to minutes, z3 often not at all.
ENGINES = ("bitwuzla",)
TIMEOUT = 3600
#: The sums that the fast tier checks; every other sum takes minutes.
FAST = ("midpoint/bfloat16", "difference/float32", "decode/e2m1/bfloat16")

MIDPOINT = (
    "The offset of a block is the exact (largest + smallest) / 2, rounded once to nearest even in float16, and "
    "saturated at 65504 in magnitude."
)
DIFFERENCE = (
    "x - offset is the difference that IEEE 754 defines, rounded to nearest even in float32 (in float64 for float64 "
    "input). This includes infinities, signed zeros and subnormals. If x is NaN, the result is NaN with the sign of x."
)
HALF_RANGE = (
    "The scale of the half range is the one that the scale rule gives for the exact A = |largest - smallest| / 2, not "
    "for a rounded difference."
)
DECODE = (
    "Decoding with an offset gives the exact (table value of the code) * 2**(scale - 127) + offset, rounded once to "
    "nearest even. Infinities and NaN are added as IEEE 754 defines it. A NaN result is the canonical NaN. Under scale "
    "0xFF, the result is NaN."
)
ORDER = (
    "`to_ordered` maps numbers to integers in the same order, with both zeros equal. `from_ordered` undoes "
    "`to_ordered`, except that both zeros become +0."
)


def word_of(float_type: tables.Float) -> int:
    """Return the width of the word in which kernels read a float type."""
    return 64 if float_type.bits == 64 else 32


def rounded_to_odd(a: z3.FPRef, b: z3.FPRef, definitions: conversions.Definitions) -> z3.FPRef:
    """Return a + b, rounded to odd in the type of a and b.

    The sign of a zero sum is the sign that IEEE 754 defines.
    """
    down, up = z3.fpAdd(z3.RTN(), a, b), z3.fpAdd(z3.RTP(), a, b)
    odd = z3.Extract(0, 0, conversions.Exact(down, definitions).bits) == 1
    return z3.If(z3.fpEQ(down, up), z3.fpAdd(z3.RNE(), a, b), z3.If(odd, down, up))


def is_finite(x: z3.BitVecRef, float_type: tables.Float) -> z3.BoolRef:
    """Return the condition that a pattern is a finite number."""
    sort = conversions.sort_of(float_type)
    value = z3.fpBVToFP(x, sort)
    return z3.Not(z3.Or(z3.fpIsNaN(value), z3.fpIsInf(value)))


def midpoint(source: str) -> Outcome:
    """Prove the statement `MIDPOINT` for a source."""
    float_type = tables.FLOATS[source]
    width = word_of(float_type)
    ends = inputs.pattern("largest", float_type.bits), inputs.pattern("smallest", float_type.bits)
    result, _ = run(kernels.make_midpoint(FLOATS[source]), *(inputs.word(end, width) for end in ends))
    definitions: conversions.Definitions = []
    a, b = (conversions.widen(end, float_type, conversions.wide_sort(float_type, extra=2)) for end in ends)
    total = conversions.Exact(rounded_to_odd(a, b, definitions), definitions)
    half = total.times(z3.BitVecVal(-1, total.exponent_bits)).value
    expected = z3.fpToFP(z3.RNE(), half, conversions.sort_of(FLOAT16))
    largest = z3.fpBVToFP(z3.BitVecVal(FLOAT16.last, 16), conversions.sort_of(FLOAT16))
    saturated = z3.If(z3.fpIsNegative(expected), z3.fpNeg(largest), largest)
    expected = z3.If(z3.fpIsInf(expected), saturated, expected)
    pattern, clean = inputs.code_of(result, 16)
    premises = [is_finite(end, float_type) for end in ends]
    goal = z3.And(clean, z3.fpBVToFP(pattern, conversions.sort_of(FLOAT16)) == expected)
    example = [(end, 0) for end in ends]
    return prove([*premises, *definitions], goal, engines=ENGINES, show=ends, example=example, timeout=TIMEOUT)


def difference(source: str) -> Outcome:
    """Prove the statement `DIFFERENCE` for a source."""
    float_type = tables.FLOATS[source]
    result_type = tables.FLOATS["float64" if source == "float64" else "float32"]
    width = word_of(float_type)
    x, offset = inputs.pattern("x", float_type.bits), inputs.pattern("offset", 16)
    kernel = kernels.make_difference(FLOATS[source])
    result, _ = run(kernel, inputs.word(x, width), inputs.word(offset, width))
    sort = conversions.sort_of(result_type)
    minuend, subtrahend = conversions.widen(x, float_type, sort), conversions.widen(offset, FLOAT16, sort)
    expected, value = z3.fpSub(z3.RNE(), minuend, subtrahend), z3.fpBVToFP(result, sort)
    sign_kept = z3.Implies(z3.fpIsNaN(minuend), conversions.sign_bit(result) == conversions.sign_bit(x))
    goal = z3.If(z3.fpIsNaN(expected), z3.And(z3.fpIsNaN(value), sign_kept), value == expected)
    example = ((x, 0), (offset, 0))
    return prove([], goal, engines=ENGINES, show=(x, offset), example=example, timeout=TIMEOUT)


def half_range_kernels(source: str) -> tuple[Callable[..., Any], ...]:
    """Return the kernels that compute the scale of the half range from numbers of a source type.

    There is one kernel for each pair of an element and a scale rule.
    """
    pairs = [(element, rule) for element in ELEMENTS.values() for rule in ScaleRule]
    return tuple(kernels.make_half_range_scale(FLOATS[source], element, rule) for element, rule in pairs)


def half_range(source: str) -> Outcome:
    """Prove the statement `HALF_RANGE` for all elements and rules with one solver question.

    One question suffices, because the difference largest - smallest is the hard part, and this
    difference is the same for all elements and rules.
    """
    float_type = tables.FLOATS[source]
    width = word_of(float_type)
    ends = inputs.pattern("largest", float_type.bits), inputs.pattern("smallest", float_type.bits)
    words = [inputs.word(end, width) for end in ends]
    definitions: conversions.Definitions = []
    a, b = (conversions.widen(end, float_type, conversions.wide_sort(float_type, extra=2)) for end in ends)
    total = conversions.Exact(rounded_to_odd(a, z3.fpNeg(b), definitions), definitions)
    amax = total.times(z3.BitVecVal(-1, total.exponent_bits))
    goals = []
    for element in tables.ELEMENTS.values():
        for rule in scales.RULES:
            kernel = kernels.make_half_range_scale(FLOATS[source], ELEMENTS[element.name], ScaleRule(rule))
            goals.append(run(kernel, *words)[0] == scales.shared_code(amax, element, rule, width))
    premises = [is_finite(end, float_type) for end in ends]
    example = [(end, 0) for end in ends]
    return prove(
        [*premises, *definitions], z3.And(*goals), engines=ENGINES, show=ends, example=example, timeout=TIMEOUT
    )


def decode(element: str, target: str) -> Outcome:
    """Prove the statement `DECODE` for an element and a float type."""
    source, float_type = tables.ELEMENTS[element], tables.FLOATS[target]
    width = inputs.conversion_word(ELEMENTS[element], FLOATS[target])
    code, scale, offset = inputs.pattern("code", source.bits), inputs.scale(), inputs.pattern("offset", 16)
    kernel = kernels.make_decode_offset(ELEMENTS[element], FLOATS[target])
    result, _ = run(kernel, inputs.word(code, width), inputs.natural(scale, width), inputs.word(offset, width))
    definitions: conversions.Definitions = []
    sort = conversions.wide_sort(float_type, extra=2)
    negative, magnitude = conversions.sign_and_magnitude(code, source)
    value = conversions.element_value(code, source, sort, every_code=True)
    product = z3.If(z3.fpIsNaN(value), value, conversions.scaled(value, scale, definitions).value)
    if source.infinity is not None:
        infinity = z3.If(negative, z3.fpMinusInfinity(sort), z3.fpPlusInfinity(sort))
        product = z3.If(magnitude == source.infinity, infinity, product)
    total = rounded_to_odd(product, conversions.widen(offset, FLOAT16, sort), definitions)
    expected = z3.If(
        scale == tables.SCALE_NAN,
        z3.fpNaN(conversions.sort_of(float_type)),
        z3.fpToFP(z3.RNE(), total, conversions.sort_of(float_type)),
    )
    pattern, clean = inputs.code_of(result, float_type.bits)
    correct = z3.If(
        z3.fpIsNaN(expected),
        pattern == float_type.nan,
        z3.fpBVToFP(pattern, conversions.sort_of(float_type)) == expected,
    )
    show = code, scale, offset
    example = ((code, 0), (scale, 127), (offset, 0))
    return prove(definitions, z3.And(clean, correct), engines=ENGINES, show=show, example=example, timeout=TIMEOUT)


def order(source: str) -> Outcome:
    """Prove the statement `ORDER` for a source."""
    float_type = tables.FLOATS[source]
    sort, width = conversions.sort_of(float_type), word_of(float_type)
    to_ordered, from_ordered = kernels.make_to_ordered(FLOATS[source]), kernels.make_from_ordered(FLOATS[source])
    x, y = inputs.pattern("x", float_type.bits), inputs.pattern("y", float_type.bits)
    a, b = (run(to_ordered, z3.SignExt(width - v.size(), v) if v.size() < width else v)[0] for v in (x, y))
    first, second = z3.fpBVToFP(x, sort), z3.fpBVToFP(y, sort)
    back = z3.Extract(float_type.bits - 1, 0, run(from_ordered, a)[0])
    returns = z3.If(z3.fpIsZero(first), back == 0, back == x)
    agrees = z3.And((a < b) == z3.fpLT(first, second), (a == b) == z3.fpEQ(first, second))
    comparable = z3.Not(z3.Or(z3.fpIsNaN(first), z3.fpIsNaN(second)))
    goal = z3.And(z3.Implies(comparable, agrees), returns)
    return prove([], goal, engines=("z3", "bitwuzla"), show=(x, y), example=((x, 0), (y, 0)))


def theorems() -> list[Theorem]:
    ends = ("largest and smallest are any finite numbers of the source type, in either order",)
    found = []

    def state(
        name: str,
        statement: str,
        made: tuple[Callable[..., Any], ...],
        check: Callable[[], Outcome],
        hypotheses: tuple[str, ...],
    ) -> None:
        tier: Tier = "fast" if name in FAST or name.startswith("order/") else "full"
        names = tuple(kernel.__name__ for kernel in made)
        found.append(Theorem(f"offset/{name}", statement, names, check, hypotheses, tier, made))

    for source, float_type in FLOATS.items():
        state(f"midpoint/{source}", MIDPOINT, (kernels.make_midpoint(float_type),), partial(midpoint, source), ends)
        state(f"half-range/{source}", HALF_RANGE, half_range_kernels(source), partial(half_range, source), ends)
        patterns = ("x is any bit pattern of its type", "offset is any float16 pattern")
        subtract = (kernels.make_difference(float_type),)
        state(f"difference/{source}", DIFFERENCE, subtract, partial(difference, source), patterns)
        ordering = (kernels.make_to_ordered(float_type), kernels.make_from_ordered(float_type))
        state(f"order/{source}", ORDER, ordering, partial(order, source), ("x and y are any two bit patterns",))
    for element in tables.ELEMENTS:
        for target in tables.FLOATS:
            made = (kernels.make_decode_offset(ELEMENTS[element], FLOATS[target]),)
            everything = ("code is any code of the element", "scale is any E8M0 code", "offset is any float16 pattern")
            state(f"decode/{element}/{target}", DECODE, made, partial(decode, element, target), everything)
    return found

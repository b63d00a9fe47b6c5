"""Every encoder gives the result of the standard, for every input.

Each theorem covers finite, infinite and NaN inputs, all 256 scale codes and all 2**30 random
integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum import formats
from mxnum.definition.convert import make_encode
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove
from proofs.specs import conversions, tables
from proofs.theorem import Outcome, Theorem, Tier

ENCODE = (
    "Let v be x / 2**(scale - 127), exact, and let q be max(floor(log2 |v|), emin) - mantissa bits. The encoder gives "
    "the code of round(v / 2**q) * 2**q, with the sign of x (an integer zero has no sign). Beyond the largest value "
    "and for infinities, the overflow mode determines the code. NaN gives the NaN code with the sign of x, or the "
    "largest value if the element has no NaN. Under scale 0xFF, the code is 0."
)
NARROW = (
    "The conversion gives x / 2**(scale - 127), rounded once to the float type as IEEE 754 defines it (by SMT-LIB's "
    "own conversion if SMT-LIB has the mode). Under overflow='saturate', infinities and numbers beyond the largest "
    "become the largest number. NaN gives the canonical NaN. Under scale 0xFF, the result is 0."
)
HYPOTHESES = ("x is any bit pattern of its type", "scale is any E8M0 code", "random is any integer below 2**30")
FORMATS = {**formats.ELEMENTS, **formats.FLOATS}


def kernels(source: str, target: str, rounding: str) -> list[Callable[..., Any]]:
    """Return the encoders of both overflow modes."""
    return [
        make_encode(FORMATS[source], FORMATS[target], Rounding(rounding), Overflow(overflow))
        for overflow in conversions.OVERFLOWS
    ]


def check(source: str, target: str, rounding: str, engines: tuple[str, ...]) -> Outcome:
    """Prove the statement `ENCODE` (for float types: `NARROW`) in both overflow modes."""
    width = inputs.conversion_word(FORMATS[source], FORMATS[target])
    source_type = tables.FLOATS[source]
    x, scale, random = inputs.pattern("x", source_type.bits), inputs.scale(), inputs.random()
    target_type = tables.ELEMENTS[target] if target in tables.ELEMENTS else tables.FLOATS[target]
    conversion = conversions.Conversion(source_type, target_type, rounding, x, scale, random)
    # If the target has no special codes, both overflow modes have the same goals, which are proved
    # only once.
    goals: dict[int, z3.BoolRef] = {}
    for overflow, kernel in zip(conversions.OVERFLOWS, kernels(source, target, rounding), strict=True):
        result, _ = run(kernel, inputs.word(x, width), inputs.natural(scale, width), inputs.natural(random, width))
        code, clean = inputs.code_of(result, target_type.bits)
        goals |= {goal.get_id(): goal for goal in (clean, conversion.gives(overflow, code))}
    example = ((x, 0), (scale, 127))
    return prove(
        conversion.definitions, z3.And(*goals.values()), engines=engines, show=(x, scale, random), example=example
    )


def theorem(source: str, target: str, rounding: str, engines: tuple[str, ...], prefix: str, tier: Tier) -> Theorem:
    """Return the theorem on an encoder, in both overflow modes."""
    functions = tuple(kernels(source, target, rounding))
    return Theorem(
        name=f"{prefix}/{source}/{target}/{rounding}",
        statement=ENCODE if target in tables.ELEMENTS else NARROW,
        kernels=tuple(function.__name__ for function in functions),
        check=partial(check, source, target, rounding, engines),
        hypotheses=HYPOTHESES,
        tier=tier,
        functions=functions,
    )


def in_fast_tier(source: str, target: str, rounding: str) -> bool:
    """Return True if the theorem is in the fast tier, whose proofs take a few minutes.

    The fast tier has no theorems on encoders from 16-bit types to elements: the theorems of
    `widening` replace them. It has no theorems on encoders from float64 to elements, except for
    stochastic rounding: the theorems of `neighbours` replace them.
    """
    if target in tables.FLOATS:
        return source == "float32" and target != "float64"
    return source == "float32" or (source == "float64" and rounding == "sr")


def theorems() -> list[Theorem]:
    found = []
    for source in tables.FLOATS:
        for target in (*tables.ELEMENTS, *tables.FLOATS):
            if target == source:
                continue
            for rounding in conversions.ROUNDINGS:
                if not in_fast_tier(source, target, rounding):
                    found.append(theorem(source, target, rounding, BOTH, "encode", "full"))
                elif source == "float32" and target in tables.ELEMENTS and rounding == "rne":
                    found.append(theorem(source, target, rounding, BOTH, "encode", "fast"))
                else:
                    found.append(theorem(source, target, rounding, ("bitwuzla",), "encode", "fast"))
                    found.append(theorem(source, target, rounding, ("z3",), "encode-second-solver", "full"))
    return found

"""Encoders of 16-bit inputs give the same codes as the float32 encoder for the same number."""

from __future__ import annotations

from functools import partial

import z3

from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import prove
from proofs.specs import conversions, tables
from proofs.theorem import Outcome, Theorem

STATEMENT = (
    "Encoding a bfloat16 or float16 number gives the same code as encoding the float32 number of the same value, in "
    "every rounding and overflow mode. So every theorem about the codes of float32 encoders also holds for these "
    "encoders."
)
#: Only the solver bitwuzla proves these theorems, because z3 takes several times as long.
ENGINES = ("bitwuzla",)
FLOAT32 = tables.FLOATS["float32"]


def check(source: str, element: str) -> Outcome:
    """Prove that the encoders of a 16-bit type and of float32 agree on an element."""
    float_type = tables.FLOATS[source]
    x, scale, random = inputs.pattern("x", float_type.bits), inputs.scale(), inputs.random()
    wide = z3.FreshConst(z3.BitVecSort(FLOAT32.bits), "wide")
    value = conversions.widen(x, float_type, conversions.sort_of(FLOAT32))
    same_number = z3.fpBVToFP(wide, conversions.sort_of(FLOAT32)) == value
    same_nan = wide == conversions.with_sign(FLOAT32, conversions.sign_bit(x), FLOAT32.nan)
    natural = inputs.natural(scale, 32), inputs.natural(random, 32)
    goals = []
    for rounding in Rounding:
        for overflow in Overflow:
            narrow_kernel, wide_kernel = (
                make_encode(FLOATS[name], ELEMENTS[element], rounding, overflow) for name in (source, "float32")
            )
            goals.append(run(narrow_kernel, inputs.word(x, 32), *natural)[0] == run(wide_kernel, wide, *natural)[0])
    premises = [z3.If(z3.fpIsNaN(value), same_nan, same_number)]
    return prove(premises, z3.And(*goals), engines=ENGINES, show=(x, scale, random), example=((x, 0), (scale, 127)))


def theorems() -> list[Theorem]:
    found = []
    for source in ("bfloat16", "float16"):
        for element in tables.ELEMENTS:
            kernels = tuple(
                make_encode(FLOATS[name], ELEMENTS[element], rounding, overflow)
                for name in (source, "float32")
                for rounding in Rounding
                for overflow in Overflow
            )
            found.append(
                Theorem(
                    name=f"widening/{source}/{element}",
                    statement=STATEMENT,
                    kernels=tuple(kernel.__name__ for kernel in kernels),
                    check=partial(check, source, element),
                    hypotheses=(
                        "x is any bit pattern of its type",
                        "scale is any E8M0 code",
                        "random is any integer below 2**30",
                    ),
                    functions=kernels,
                )
            )
    return found

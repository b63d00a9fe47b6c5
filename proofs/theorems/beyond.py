"""Fast encoding and decoding under every scale, by a conversion at scale 1 and a float product.

The theorems say that the codes and values are those of the definition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import z3

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.pack import SR_BITS
from mxnum.engine.rounding import any_scale, float_additions
from mxnum.engine.rounding.paths import ROUNDINGS
from mxnum.formats import E8M0, ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import run
from proofs.machines.solve import prove
from proofs.theorem import Outcome, Theorem
from proofs.theorems.magic import swept
from proofs.theorems.scaled import Floats

FLOAT32 = FLOATS["float32"]
CODE = (
    "`bring` divides a number by its scale in float32, and limits the magnitude of the quotient. At scale 1, the "
    "quotient has the code that the number has under its scale, and it is in the domain of the float additions."
)
DECODING = "The value of a code at scale 1, multiplied by the scale of the block, is the value of the definition."
ENVIRONMENT = "float32 operations round to nearest even and keep subnormals"


def check_code(name: str, rounding: Rounding, overflow: Overflow) -> Outcome:
    """Prove the statement `CODE` for an element, a rounding and an overflow mode."""
    element = ELEMENTS[name]
    domain = float_additions.domain(element, rounding)
    x, scale, random = z3.BitVec("x", 32), z3.BitVec("scale", 32), z3.BitVec("random", 32)
    floats, unit = Floats(), z3.BitVecVal(any_scale.UNIT, 32)
    brought, safe = run(any_scale.bring, x, scale)
    encode = make_encode(FLOAT32, element, rounding, overflow)
    got, _ = run(encode, brought, unit, random)
    want, _ = run(encode, x, scale, random)
    in_domain = (brought & 0x7FFFFFFF) <= domain.greatest_x
    given = [(x & 0x7FFFFFFF) <= FLOAT32.max_code, scale >= 0, scale <= 254, z3.ULT(random, 1 << SR_BITS)]
    goal = z3.And(got == want, in_domain, *safe)
    if not domain.least_scale <= any_scale.UNIT <= domain.greatest_scale:
        return Outcome("refuted", "by hand", 0.0, "scale 1 is outside the domain")
    return prove([*given, *floats.equations], goal, engines=("bitwuzla",), show=(x, scale, random))


def check_decoding(name: str) -> Outcome:
    """Compare fast decoding with the definition, for all codes under all scales."""
    started = time.perf_counter()
    element = ELEMENTS[name]
    least, greatest = float_additions.decoding_domain(element)
    codes, scales = np.meshgrid(np.arange(1 << element.bits), np.arange(E8M0.nan_code))
    with np.errstate(all="ignore"):
        got = any_scale.value_of_code_anywhere(codes, scales, float_additions.constants(element))
    outcome = swept(got, make_decode(element, FLOAT32)(codes, scales), 32, started)
    if not least <= any_scale.UNIT <= greatest:
        return Outcome("refuted", outcome.solver, outcome.seconds, "scale 1 is outside the domain")
    return outcome


def theorems() -> list[Theorem]:
    return [*_rounding_theorems(), *_decoding_theorems()]


def _rounding_theorems() -> Iterator[Theorem]:
    for (name, element), rounding, overflow in product(ELEMENTS.items(), ROUNDINGS, Overflow):
        if overflow == Overflow.IEEE and element.specials == "none":
            continue
        functions: tuple[Callable[..., Any], ...] = (
            any_scale.bring,
            make_encode(FLOAT32, element, rounding, overflow),
        )
        yield Theorem(
            name=f"beyond/code/{name}/{rounding}/{overflow}",
            statement=CODE,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_code, name, rounding, overflow),
            hypotheses=("x is any finite float32", "scale is any code but NaN", ENVIRONMENT),
            functions=(*functions, float_additions.domain),
        )


def _decoding_theorems() -> Iterator[Theorem]:
    for name, element in ELEMENTS.items():
        functions: tuple[Callable[..., Any], ...] = (
            any_scale.value_of_code_anywhere,
            any_scale.return_to,
            float_additions.value_of_code,
            float_additions.constants,
            make_decode(element, FLOAT32),
        )
        yield Theorem(
            name=f"beyond/decode/{name}",
            statement=DECODING,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_decoding, name),
            hypotheses=("code is any element code", "scale is any code but NaN", ENVIRONMENT),
            functions=(*functions, float_additions.decoding_domain),
        )

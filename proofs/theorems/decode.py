"""Decoding is right for every element, every float type, and every code under every scale."""

from __future__ import annotations

from functools import partial

from mxnum.definition.convert import make_decode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import BOTH, prove
from proofs.specs import conversions, tables
from proofs.theorem import Outcome, Theorem

DECODE = (
    "The decoder gives the value of the code in the standard's table, times 2**(scale - 127), rounded once to nearest "
    "even. On overflow, and for an infinite code, the result is infinity. For a NaN code, and under scale 0xFF, the "
    "result is the canonical NaN."
)


def check(element: str, target: str) -> Outcome:
    """Prove the statement `DECODE` for an element and a float type."""
    source, float_type = tables.ELEMENTS[element], tables.FLOATS[target]
    width = inputs.conversion_word(ELEMENTS[element], FLOATS[target])
    code, scale = inputs.pattern("code", source.bits), inputs.scale()
    kernel = make_decode(ELEMENTS[element], FLOATS[target])
    result, _ = run(kernel, inputs.word(code, width), inputs.natural(scale, width))
    pattern, clean = inputs.code_of(result, float_type.bits)
    definitions: conversions.Definitions = []
    correct = conversions.decodes(source, float_type, code, scale, pattern, definitions)
    return prove(definitions, clean & correct, engines=BOTH, show=(code, scale), example=((code, 0), (scale, 127)))


def theorems() -> list[Theorem]:
    return [
        Theorem(
            name=f"decode/{element}/{target}",
            statement=DECODE,
            kernels=(f"decode_{element}_{target}",),
            check=partial(check, element, target),
            hypotheses=("code is any code of the element, even if no encoder produces it", "scale is any E8M0 code"),
            functions=(make_decode(ELEMENTS[element], FLOATS[target]),),
        )
        for element in tables.ELEMENTS
        for target in tables.FLOATS
    ]

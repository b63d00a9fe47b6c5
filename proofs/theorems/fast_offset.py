"""Asymmetric scaling by float32 additions equals the definition, in encoding and decoding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import z3

from mxnum.definition.offset import OFFSET, make_decode_offset, make_difference
from mxnum.engine.rounding import as_float32, float_additions, offset_additions
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.prove.sym import run
from proofs.machines.solve import prove
from proofs.theorem import Outcome, Theorem
from proofs.theorems.magic import float_results, run_fast

DIFFERENCE = (
    "The float32 difference of number and offset, both widened to float32, is the difference of the definition. If the "
    "difference is NaN, both results are NaN and have the same sign."
)
SUM = (
    "The float32 sum of a code's value and the offset, widened to float32, is the value that the definition decodes "
    "with this offset."
)
ENGINES = ("bitwuzla",)
TIMEOUT = 3600


def difference(source: str) -> Outcome:
    """Prove the statement `DIFFERENCE` for numbers of one float type."""
    float_type = FLOATS[source]
    x, offset = z3.BitVec("x", float_type.bits), z3.BitVec("offset", 16)
    wide_x = z3.SignExt(32 - float_type.bits, x) if float_type.bits < 32 else x
    wide_offset = z3.ZeroExt(16, offset)
    subtract, widen = offset_additions.make_fast_difference(float_type), as_float32.make_widen(OFFSET)
    got, safe = run_fast(lambda x, offset: subtract(x, widen(offset)), wide_x, wide_offset)
    want, _ = run(make_difference(float_type), wide_x, wide_offset)
    is_nan = z3.UGT(want & 0x7FFFFFFF, 0x7F800000)
    same = z3.If(is_nan, z3.And(z3.UGT(got & 0x7FFFFFFF, 0x7F800000), (got ^ want) >= 0), got == want)
    return prove(
        [_is_finite(offset), *float_results()],
        z3.And(same, *safe),
        engines=ENGINES,
        show=(x, offset),
        example=((x, 0), (offset, 0)),
        timeout=TIMEOUT,
    )


def total(name: str) -> Outcome:
    """Prove the statement `SUM` for one element format."""
    element = ELEMENTS[name]
    least, greatest = float_additions.decoding_domain(element)
    constants, widen = float_additions.constants(element), as_float32.make_widen(OFFSET)
    code, scale, offset = z3.BitVec("code", element.bits), z3.BitVec("scale", 8), z3.BitVec("offset", 16)
    wide = z3.ZeroExt(32 - element.bits, code), z3.ZeroExt(24, scale), z3.ZeroExt(16, offset)

    def fast(code: Any, scale: Any, offset: Any) -> Any:
        value: Any = float_additions.value_of_code(code, scale, constants)
        return offset_additions.fast_sum(value, widen(offset))  # type: ignore[no-untyped-call]

    got, safe = run_fast(fast, *wide)
    want, _ = run(make_decode_offset(element, FLOATS["float32"]), *wide)
    return prove(
        [z3.UGE(scale, least), z3.ULE(scale, greatest), _is_finite(offset), *float_results()],
        z3.And(got == want, *safe),
        engines=ENGINES,
        show=(code, scale, offset),
        example=((code, 0), (scale, 127), (offset, 0)),
        timeout=TIMEOUT,
    )


def _is_finite(offset: z3.BitVecRef) -> z3.BoolRef:
    return (offset & 0x7FFF) <= OFFSET.max_code


def theorems() -> Iterator[Theorem]:
    finite = "offset is any finite float16"
    rounding = "float32 additions round to nearest even"
    for source in ("float32", "bfloat16", "float16"):
        pair = offset_additions.make_fast_difference(FLOATS[source]), make_difference(FLOATS[source])
        names = tuple(function.__name__ for function in pair)
        yield Theorem(
            name=f"magic/difference/{source}",
            statement=DIFFERENCE,
            kernels=names,
            check=partial(difference, source),
            hypotheses=("x is any bit pattern of its type", finite, rounding),
            tier="full",
            functions=(*pair, as_float32.make_widen(OFFSET)),
        )
    for name, element in ELEMENTS.items():
        functions = (
            offset_additions.fast_sum,
            float_additions.value_of_code,
            make_decode_offset(element, FLOATS["float32"]),
        )
        yield Theorem(
            name=f"magic/sum/{name}",
            statement=SUM,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(total, name),
            hypotheses=(
                "code is any code of the element, and scale is in the float additions' `decoding_domain`", finite,
                rounding,
            ),
            tier="fast" if name == "e2m1" else "full",
            functions=(
                *functions, float_additions.constants, float_additions.decoding_domain, as_float32.make_widen(OFFSET)
            ),
        )  # fmt: skip

"""The fast formulation equals the definition wherever loops use it."""

from __future__ import annotations

from functools import partial
from typing import Any

import z3

from mxnum import formats
from mxnum.engine import magic
from mxnum.modes import Overflow, Rounding
from mxnum.scalar.convert import make_decode, make_encode
from proofs.solve import prove
from proofs.sym import Sym, run
from proofs.theorem import Outcome, Theorem

FLOAT32 = formats.FLOATS["float32"]
CODE = "The code made with one float32 addition is the code of the definition, to nearest even, saturating."
VALUE = "The value made with two float32 additions is the value of the definition's code under the same scale."
DECODING = "The value made by moving the fields of a code into place is the value of the definition."
ROUNDING_HYPOTHESES = (
    "x is any float32 and scale any code within the limits of mxnum.engine.magic.domain",
    "float32 additions round to nearest even",
)
#: Defining equations of the sums met while a function runs; floats have no bit-vector term of their own.
_sums: list[z3.BoolRef] = []


def _float_arithmetic(a: Sym, b: Any, subtract: bool) -> Sym:
    x, y = (z3.fpBVToFP(bits, z3.Float32()) for bits in (a.value, a.lift(b)))
    result = z3.FreshConst(z3.BitVecSort(32), "sum")
    total = z3.fpSub(z3.RNE(), x, y) if subtract else z3.fpAdd(z3.RNE(), x, y)
    _sums.append(z3.fpBVToFP(result, z3.Float32()) == total)
    return Sym(result, a.obligations)


def check(name: str, value: bool) -> Outcome:
    element = formats.ELEMENTS[name]
    least, greatest, last_field = magic.domain(element)
    x, scale = z3.BitVec("x", 32), z3.BitVec("scale", 32)
    in_domain = [scale >= least, scale <= greatest, z3.ULE(z3.Extract(30, 23, x), last_field)]
    _sums.clear()
    magic.FLOAT_ARITHMETIC[Sym] = _float_arithmetic
    make_fast = magic.make_nearest_even_value if value else magic.make_nearest_even_code
    fast, safe = run(make_fast(element), x, scale)
    encode = make_encode(FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    want, _ = run(encode, x, scale, z3.BitVecVal(0, 32))
    if value:
        want, _ = run(make_decode(element, FLOAT32), want, scale)
    return prove([*in_domain, *_sums], z3.And(fast == want, *safe), show=(x, scale))


def check_decoding(name: str) -> Outcome:
    element = formats.ELEMENTS[name]
    least, greatest = magic.decoding_domain(element)
    code, scale = z3.BitVec("code", element.bits), z3.BitVec("scale", 8)
    wide = z3.ZeroExt(32 - element.bits, code), z3.ZeroExt(24, scale)
    _sums.clear()
    magic.FLOAT_ARITHMETIC[Sym] = _float_arithmetic
    fast, safe = run(magic.make_value_of_code(element), *wide)
    want, _ = run(make_decode(element, FLOAT32), *wide)
    in_domain = [z3.UGE(scale, least), z3.ULE(scale, greatest)]
    return prove([*in_domain, *_sums], z3.And(fast == want, *safe), show=(code, scale))


def theorems() -> list[Theorem]:
    found = []
    for name in magic.ELEMENTS:
        element = formats.ELEMENTS[name]
        encode = make_encode(FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
        decode = make_decode(element, FLOAT32)
        code, value = magic.make_nearest_even_code(element), magic.make_nearest_even_value(element)
        for kind, functions in (("code", (code, encode)), ("value", (value, encode, decode))):
            found.append(
                Theorem(
                    name=f"magic/{kind}/{name}",
                    statement=CODE if kind == "code" else VALUE,
                    kernels=tuple(function.__name__ for function in functions),
                    check=partial(check, name, kind == "value"),
                    hypotheses=ROUNDING_HYPOTHESES,
                    functions=functions,
                )
            )
    for name, element in formats.ELEMENTS.items():
        pair = magic.make_value_of_code(element), make_decode(element, FLOAT32)
        found.append(
            Theorem(
                name=f"magic/decode/{name}",
                statement=DECODING,
                kernels=tuple(function.__name__ for function in pair),
                check=partial(check_decoding, name),
                hypotheses=("code is any element code and scale any within mxnum.engine.magic.decoding_domain",),
                functions=pair,
            )
        )
    return found

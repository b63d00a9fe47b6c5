"""Theorems that the formulas of CUDA kernels give the results of the definition.

The theorems cover finite inputs, and every scale but NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.scale import make_shared_scale
from mxnum.engine.cuda import scaled
from mxnum.engine.machine import lanes
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.prove.sym import Sym, run
from proofs.machines.solve import prove, together
from proofs.theorem import Outcome, Theorem
from proofs.theorems.magic import OPERATIONS

FLOAT32 = FLOATS["float32"]
CODE = (
    "The code that CUDA kernels compute with one float32 product (two products for float16 numbers) and one sum is the "
    "code of the definition. It is rounded to nearest even and saturates. This holds for every finite number under "
    "every scale."
)
VALUE = (
    "The value that CUDA kernels compute with two float32 products, a sum and a difference is the value of the "
    "definition's code. It is rounded to nearest even and saturates. This holds for every finite number under every "
    "scale."
)
SCALE = (
    "The scale code that CUDA kernels compute by an addition that carries into the exponent field is that of the "
    "definition, for every scale rule and every finite magnitude."
)
DECODING = (
    "The value that CUDA kernels compute by moving a code's fields and two float32 products is that of the definition."
)
Function = Callable[..., Any]
_down: Function = scaled.down
_up: Function = scaled.up
ENVIRONMENT = "float32 operations round to nearest even and keep subnormals"


class Floats:
    """The float operations of a symbolically executed function.

    SMT-LIB has no function from a float to its bits. So the result of each operation is a new
    bit-vector constant, and an equation says which float the constant represents.
    """

    def __init__(self) -> None:
        self.equations: list[z3.BoolRef] = []
        lanes.FLOAT_ARITHMETIC[Sym] = self.compute

    def compute(self, operation: str, a: Any, b: Any) -> Sym:
        """Return the result of an operation, and record the equation that defines the result."""
        word = a if isinstance(a, Sym) else b
        x, y = (z3.fpBVToFP(word.lift(bits), z3.Float32()) for bits in (a, b))
        result = z3.FreshConst(z3.BitVecSort(32), operation)
        self.equations.append(z3.fpBVToFP(result, z3.Float32()) == OPERATIONS[operation](z3.RNE(), x, y))
        return Sym(result, word.obligations)


def _finite(source: ElementFormat, x: z3.BitVecRef) -> list[z3.BoolRef]:
    """Return premises which state that x is the sign-extended bit pattern of a finite number."""
    half = 1 << (source.bits - 1)
    within = [] if source.bits == 32 else [x >= -half, x < half]
    return [*within, (x & (half - 1)) <= source.max_code]


def check_code(source: ElementFormat, element: ElementFormat) -> Outcome:
    """Prove the statement `CODE` for a source type and an element format."""
    x, scale = z3.BitVec("x", 32), z3.BitVec("scale", 32)
    floats = Floats()
    code = scaled.make_code(source, element)
    fast, safe = run(lambda x, scale: code(x, _down(scale)), x, scale)
    encode = make_encode(source, element, Rounding.RNE, Overflow.SATURATE)
    want, _ = run(encode, x, scale, z3.BitVecVal(0, 32))
    return _prove(floats, _finite(source, x), scale, z3.And(fast == want, *safe), (x, scale))


def check_value(element: ElementFormat) -> Outcome:
    """Prove the statement `VALUE` for an element format."""
    x, scale = z3.BitVec("x", 32), z3.BitVec("scale", 32)
    floats = Floats()
    value = scaled.make_value(element)
    fast, safe = run(lambda x, scale: value(x, _down(scale), _up(scale)), x, scale)
    encode = make_encode(FLOAT32, element, Rounding.RNE, Overflow.SATURATE)
    code, _ = run(encode, x, scale, z3.BitVecVal(0, 32))
    want, _ = run(make_decode(element, FLOAT32), code, scale)
    return _prove(floats, _finite(FLOAT32, x), scale, z3.And(fast == want, *safe), (x, scale))


def check_decoding(element: ElementFormat) -> Outcome:
    """Prove the statement `DECODING` for an element format."""
    code, scale = z3.BitVec("code", 32), z3.BitVec("scale", 32)
    floats = Floats()
    decoded = scaled.make_decoded(element)
    fast, safe = run(lambda code, scale: decoded(code, _up(scale)), code, scale)
    want, _ = run(make_decode(element, FLOAT32), code, scale)
    within = [code >= 0, code < 1 << element.bits]
    return _prove(floats, within, scale, z3.And(fast == want, *safe), (code, scale))


def check_scale(source: ElementFormat, element: ElementFormat) -> Outcome:
    """Prove the statement `SCALE` for all scale rules."""
    return together((rule, partial(_check_rule, source, element, rule)) for rule in ScaleRule)


def _check_rule(source: ElementFormat, element: ElementFormat, rule: ScaleRule) -> Outcome:
    amax = z3.BitVec("amax", 32)
    floats = Floats()
    fast, safe = run(scaled.make_scale(source, element, rule), amax)
    want, _ = run(make_shared_scale(source, element, rule), amax)
    within = [amax >= 0, amax <= source.max_code, *floats.equations]
    return prove(within, z3.And(fast == want, *safe), engines=("bitwuzla",), show=(amax,))


def _prove(
    floats: Floats, hypotheses: list[z3.BoolRef], scale: z3.BitVecRef, goal: z3.BoolRef, show: tuple[z3.BitVecRef, ...]
) -> Outcome:
    assumed = [*hypotheses, scale >= 0, scale <= 254, *floats.equations]
    return prove(assumed, goal, engines=("bitwuzla",), show=show)


def theorems() -> list[Theorem]:
    found = []
    for name in scaled.ELEMENTS:
        element = ELEMENTS[name]
        for source in (FLOATS[name] for name in scaled.SOURCES):
            functions: list[Function] = [
                scaled.make_code(source, element),
                make_encode(source, element, Rounding.RNE, Overflow.SATURATE),
            ]
            check = partial(check_code, source, element)
            found.append(
                _theorem(f"code/{source.name}/{name}", CODE, f"x is any finite {source.name}", check, functions)
            )
        functions = [
            scaled.make_value(element),
            make_encode(FLOAT32, element, Rounding.RNE, Overflow.SATURATE),
            make_decode(element, FLOAT32),
        ]
        value = partial(check_value, element)
        found.append(_theorem(f"value/{name}", VALUE, "x is any finite float32", value, functions))
    for name, element in ELEMENTS.items():
        functions = [scaled.make_decoded(element), make_decode(element, FLOAT32)]
        decoding = partial(check_decoding, element)
        found.append(_theorem(f"decode/{name}", DECODING, f"code is any {name} code", decoding, functions))
        for source in FLOATS.values():
            if scaled.covers_scale(source, element):
                functions = [make(source, element, rule) for rule in ScaleRule for make in _SCALES]
                given, rules = (
                    f"amax is any finite {source.name} that is not negative",
                    partial(check_scale, source, element),
                )
                found.append(_theorem(f"scale/{source.name}/{name}", SCALE, given, rules, functions))
    return found


_SCALES = scaled.make_scale, make_shared_scale


def _theorem(name: str, statement: str, given: str, check: Callable[[], Outcome], functions: list[Function]) -> Theorem:
    return Theorem(
        name=f"scaled/{name}",
        statement=statement,
        kernels=tuple(function.__name__ for function in functions),
        check=check,
        hypotheses=(given, "the scale is any code but NaN", ENVIRONMENT),
        functions=(*functions, _down, _up),
    )

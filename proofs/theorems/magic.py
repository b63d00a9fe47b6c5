"""The fast formulation (float32 additions) equals the definition wherever loops use it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import z3

from mxnum import formats
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.pack import SR_BITS
from mxnum.definition.scale import make_shared_scale
from mxnum.engine.machine import lanes
from mxnum.engine.rounding import as_float32, float_additions
from mxnum.engine.rounding.paths import ROUNDINGS, RULES
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.prove.sym import Sym, run
from proofs.machines.solve import prove, together
from proofs.theorem import Outcome, Theorem, Verdict

FLOAT32 = formats.FLOATS["float32"]
CODE = "The code that the fast formulation computes with float32 additions is the code of the definition."
VALUE = (
    "The value that the fast formulation computes with float32 additions is the value of the definition's code under "
    "the same scale."
)
SCALE = (
    "`fast_scale` computes a scale code by one addition to the bits of the largest magnitude. If the magnitude is zero "
    "or normal, the result is the shared scale of the definition. If it is subnormal, the result is below the domain "
    "of every rounding."
)
CONVERSION = (
    "The fast formulation's value of a code, converted from float32 to this float type, is the value of the definition "
    "in this type."
)
WIDENING = (
    "Widening a 16-bit number to float32 does not change the number. As the largest magnitude of a block, the widened "
    "number gives the same shared scale as the 16-bit number."
)
PRODUCT = (
    "The value that the fast formulation computes as the product of a number and a power of two is the value of the "
    "definition."
)
DECODING = (
    "The value that the fast formulation computes by moving the fields of a code into place is the value of the "
    "definition."
)
ROUNDING_HYPOTHESES = (
    "x is any float32 number and scale is any code, both in the `domain` of the float additions",
    "random in 0..2**30-1",
    "float32 additions and products round to nearest even",
)
#: Equations that define the results of float operations. SMT-LIB has no function from a float to
#: its bit pattern. So the pattern of each result is a new symbol, and an equation says that the
#: pattern, read as a float, is the result.
_results: list[z3.BoolRef] = []
OPERATIONS = {"add": z3.fpAdd, "subtract": z3.fpSub, "multiply": z3.fpMul}


def _float_arithmetic(operation: str, *operands: Any) -> Sym:
    a = operands[0]
    if operation == "truncate":
        return _truncate(a)
    if operation == "float32":
        half = z3.fpBVToFP(z3.Extract(15, 0, a.value), z3.Float16())
        return _float_result("widened", z3.fpFPToFP(z3.RNE(), half, z3.Float32()), a)
    if operation == "narrowed":
        return _float_result("narrowed", z3.fpFPToFP(z3.RNE(), z3.fpBVToFP(a.value, z3.Float64()), z3.Float32()), a)
    floats = [z3.fpBVToFP(a.lift(bits), z3.Float32()) for bits in operands]
    return _float_result(operation, OPERATIONS[operation](z3.RNE(), *floats), a)


def _float_result(name: str, value: z3.FPRef, operand: Sym) -> Sym:
    result = z3.FreshConst(z3.BitVecSort(32), name)
    _results.append(z3.fpBVToFP(result, z3.Float32()) == value)
    return Sym(result, operand.obligations)


def _truncate(a: Sym) -> Sym:
    """Return the integer part of a float32, and require a proof that it is below 2**31."""
    field = z3.LShR(a.value & 0x7FFFFFFF, 23)
    a.obligations.append(z3.ULT(field, 127 + 31))
    significand = (a.value & 0x7FFFFF) | 0x800000
    exponent = field - (127 + 23)
    whole = z3.If(exponent < 0, z3.LShR(significand, 0 - exponent), significand << exponent)
    whole = z3.If(z3.ULT(field, 127), z3.BitVecVal(0, 32), whole)
    return Sym(z3.If(a.value < 0, 0 - whole, whole), a.obligations)


def check(name: str, rounding: Rounding, overflow: Overflow, value: bool) -> Outcome:
    """Prove the statement `CODE`, or `VALUE` if `value` is True."""
    element = formats.ELEMENTS[name]
    domain = float_additions.domain(element, rounding)
    constants = float_additions.constants(element, rounding, overflow)
    x, scale, random = z3.BitVec("x", 32), z3.BitVec("scale", 32), z3.BitVec("random", 32)
    in_domain = [
        scale >= domain.least_scale,
        scale <= domain.greatest_scale,
        (x & 0x7FFFFFFF) <= domain.greatest_x,
        z3.ULT(random, 1 << SR_BITS),
    ]
    fast = _fast(element, rounding, value)
    got, safe = run_fast(lambda x, scale, random: fast(x, scale, random, constants), x, scale, random)
    want, _ = run(make_encode(FLOAT32, element, rounding, overflow), x, scale, random)
    if value:
        want, _ = run(make_decode(element, FLOAT32), want, scale)
    return prove([*in_domain, *_results], z3.And(got == want, *safe), show=(x, scale, random))


def check_scale(rule: ScaleRule, names: tuple[str, ...]) -> Outcome:
    """Prove the statement `SCALE` for a rule and the named elements."""
    return together((name, partial(_check_scale, name, rule)) for name in names)


def _check_scale(name: str, rule: ScaleRule) -> Outcome:
    element = formats.ELEMENTS[name]
    constants, amax = float_additions.constants(element, rule=rule), z3.BitVec("amax", 32)
    finite = [amax >= 0, amax <= FLOAT32.max_code]
    got, safe = run_fast(lambda amax: float_additions.fast_scale(amax, constants), amax)
    want, _ = run(make_shared_scale(FLOAT32, element, rule), amax)
    least = min(float_additions.domain(element, rounding).least_scale for rounding in ROUNDINGS)
    right = z3.If(z3.Or(amax == 0, amax >= 1 << 23), got == want, got < least)
    return prove(finite, z3.And(right, *safe), show=(amax,))


def check_decoding(name: str) -> Outcome:
    """Prove the statement `DECODING` for an element."""
    element = formats.ELEMENTS[name]
    least, greatest = float_additions.decoding_domain(element)
    constants = float_additions.constants(element)
    code, scale = z3.BitVec("code", element.bits), z3.BitVec("scale", 8)
    wide = z3.ZeroExt(32 - element.bits, code), z3.ZeroExt(24, scale)
    got, safe = run_fast(lambda code, scale: float_additions.value_of_code(code, scale, constants), *wide)
    want, _ = run(make_decode(element, FLOAT32), *wide)
    in_domain = [z3.UGE(scale, least), z3.ULE(scale, greatest)]
    return prove([*in_domain, *_results], z3.And(got == want, *safe), show=(code, scale))


def check_conversion(name: str, type_name: str) -> Outcome:
    """Compare fast decoding with the definition, for all codes under all scales of the domain."""
    started = time.perf_counter()
    element, target = formats.ELEMENTS[name], formats.FLOATS[type_name]
    least, greatest = float_additions.decoding_domain(element)
    codes, scales = np.meshgrid(np.arange(1 << element.bits), np.arange(least, greatest + 1))
    with np.errstate(invalid="ignore"):
        values = float_additions.value_of_code(codes, scales, float_additions.constants(element))
        got = as_float32.make_convert_value(target)(values)
    return swept(got, make_decode(element, target)(codes, scales), target.bits, started)


def check_product(name: str) -> Outcome:
    """Compare decoding by a product with the definition, for all codes and scales of the domain."""
    started = time.perf_counter()
    element = formats.ELEMENTS[name]
    least, greatest = float_additions.product_domain(element)
    codes, scales = np.meshgrid(np.arange(1 << element.bits), np.arange(least, greatest + 1))
    with np.errstate(invalid="ignore"):
        got = float_additions.make_value_by_product(element)(codes, scales, float_additions.constants(element))
    return swept(got.astype(np.int64), make_decode(element, FLOAT32)(codes, scales), 32, started)


def check_widening(type_name: str) -> Outcome:
    """Compare fast widening with the definition, for all finite patterns of a 16-bit type."""
    started = time.perf_counter()
    source = formats.FLOATS[type_name]
    x = np.arange(1 << 16)
    x = x[(x & 0x7FFF) <= source.max_code]
    widen = as_float32.make_widen(source)
    got, want = [widen(x)], [make_decode(source, FLOAT32)(x, formats.E8M0.bias)]
    amax = x[x <= source.max_code]
    for element, rule in product(formats.ELEMENTS.values(), RULES):
        got.append(make_shared_scale(FLOAT32, element, rule)(widen(amax)))
        want.append(make_shared_scale(source, element, rule)(amax))
    return swept(np.concatenate(got), np.concatenate(want), 32, started)


def swept(got: Any, want: Any, bits: int, started: float) -> Outcome:
    """Compare the low `bits` bits of two arrays of patterns, and return the outcome."""
    if not want.size or got.shape != want.shape:
        return Outcome("error", "sweep", time.perf_counter() - started, f"{got.shape} is compared with {want.shape}")
    mask = (1 << bits) - 1
    different = (
        int(np.count_nonzero((got & mask) != (want & mask))) if bits < 64 else int(np.count_nonzero(got != want))
    )
    verdict: Verdict = "refuted" if different else "proved"
    return Outcome(verdict, "sweep", time.perf_counter() - started, f"{different} of {got.size} differ")


def run_fast(function: Callable[..., Any], *arguments: z3.BitVecRef) -> tuple[Any, list[z3.BoolRef]]:
    """Run a function with `run`, and record the equations that define its float operations."""
    _results.clear()
    lanes.FLOAT_ARITHMETIC[Sym] = _float_arithmetic
    return run(function, *arguments)


def float_results() -> list[z3.BoolRef]:
    """Return the equations of the float operations of the last `run_fast`."""
    return list(_results)


def _fast(element: formats.ElementFormat, rounding: Rounding, value: bool) -> Any:
    make = float_additions.make_value if value else float_additions.make_code
    return make(rounding, float_additions.breaks_ties_by_parity(element))


def theorems() -> list[Theorem]:
    return [*_rounding_theorems(), *_scale_theorems(), *_decoding_theorems()]


def _rounding_theorems() -> Iterator[Theorem]:
    for name, element in formats.ELEMENTS.items():
        for rounding, overflow, value in product(ROUNDINGS, Overflow, (False, True)):
            if overflow == Overflow.IEEE and element.specials == "none":
                continue
            functions = (
                _fast(element, rounding, value),
                float_additions.constants,
                make_encode(FLOAT32, element, rounding, overflow),
                *((make_decode(element, FLOAT32),) if value else ()),
            )
            yield Theorem(
                name=f"magic/{'value' if value else 'code'}/{name}/{rounding}/{overflow}",
                statement=VALUE if value else CODE,
                kernels=tuple(function.__name__ for function in functions),
                check=partial(check, name, rounding, overflow, value),
                hypotheses=ROUNDING_HYPOTHESES,
                tier="fast" if rounding == Rounding.RNE or (name, overflow) == ("e2m1", "saturate") else "full",
                functions=(*functions, float_additions.domain),
            )


def _scale_theorems() -> Iterator[Theorem]:
    for rule in RULES:
        functions = (
            float_additions.fast_scale,
            float_additions.constants,
            make_shared_scale(FLOAT32, formats.ELEMENTS["e4m3"], rule),
        )
        of_others = [make_shared_scale(FLOAT32, element, rule) for element in formats.ELEMENTS.values()]
        yield Theorem(
            name=f"magic/scale/{rule}",
            statement=SCALE,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_scale, rule, tuple(formats.ELEMENTS)),
            hypotheses=("amax is any nonnegative finite float32",),
            functions=(*functions, float_additions.domain, *of_others),
        )


def _decoding_theorems() -> Iterator[Theorem]:
    for name, element in formats.ELEMENTS.items():
        of_scale = "code is any code of the element, and scale is in the float additions' `decoding_domain`"
        functions: tuple[Any, ...] = (
            float_additions.value_of_code,
            float_additions.constants,
            make_decode(element, FLOAT32),
        )
        yield Theorem(
            name=f"magic/decode/{name}",
            statement=DECODING,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_decoding, name),
            hypotheses=(of_scale,),
            functions=(*functions, float_additions.decoding_domain),
        )
        functions = (
            float_additions.make_value_by_product(element),
            float_additions.constants,
            make_decode(element, FLOAT32),
        )
        yield Theorem(
            name=f"magic/product/{name}",
            statement=PRODUCT,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_product, name),
            hypotheses=("code is any code of the element, and scale is in the float additions' `product_domain`",),
            functions=(*functions, float_additions.product_domain),
        )
        for type_name, target in formats.FLOATS.items():
            functions = (
                float_additions.value_of_code,
                as_float32.make_convert_value(target),
                float_additions.constants,
                make_decode(element, target),
            )
            yield Theorem(
                name=f"magic/convert/{name}/{type_name}",
                statement=CONVERSION,
                kernels=tuple(function.__name__ for function in functions),
                check=partial(check_conversion, name, type_name),
                hypotheses=(of_scale,),
                functions=(*functions, float_additions.decoding_domain),
            )
    for type_name in ("bfloat16", "float16"):
        source = formats.FLOATS[type_name]
        pair = as_float32.make_widen(source), make_decode(source, FLOAT32)
        both = product((source, FLOAT32), formats.ELEMENTS.values(), RULES)
        scales = [make_shared_scale(of, element, rule) for of, element, rule in both]
        yield Theorem(
            name=f"magic/widen/{type_name}",
            statement=WIDENING,
            kernels=tuple(function.__name__ for function in pair),
            check=partial(check_widening, type_name),
            hypotheses=("x is any finite number of the 16-bit type",),
            functions=(*pair, *scales),
        )

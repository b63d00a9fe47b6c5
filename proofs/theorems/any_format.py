"""The fast formulations equal the definition for every element of at most eight bits.

The theorems of this module also cover elements that are in no standard. The element's width in
bits, its bias and its largest code are symbolic (`proofs.machines.any_element`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

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
from proofs.machines.any_element import MOST_BITS, AnyElement, any_element, kinds
from proofs.machines.solve import prove, together
from proofs.theorem import Outcome, Theorem
from proofs.theorems.magic import float_results, run_fast
from proofs.theorems.narrowing import low_word

FLOAT32 = formats.FLOATS["float32"]
CODE = (
    "The code that the fast formulation computes with float32 additions is the code of the definition, for every "
    "element with this number of mantissa bits."
)
SOURCE = (
    "A number that is first converted to float32 gets the same code from the definition as without the conversion, for "
    "every element with this number of mantissa bits. 16-bit numbers are widened exactly, and float64 numbers are "
    "rounded to odd."
)
SCALE = (
    "The fast formulation converts the block's largest magnitude to float32 and computes a scale code from its bits. "
    "The definition computes the same scale code from the magnitude before conversion, for every element with this "
    "number of mantissa bits. This holds if the magnitude is zero, or if the magnitude and the computed scale are in "
    "the domain of the float additions."
)
DECODING = (
    "The value that the fast formulation computes from a code, converted to the target's float type, is the value of "
    "the definition, for every element with this number of mantissa bits."
)
SAFE = (
    "No intermediate result leaves a word of 32 bits when the definition encodes float32 or decodes to float32, or "
    "when the fast formulation computes the value of a code. This holds for every element with this number of mantissa "
    "bits."
)
ANY = (
    f"the element is any format of at most {MOST_BITS} bits, with any number of exponent bits, any bias and any "
    "special codes"
)
LIMITS = "scales and numbers are in the domain of the float additions (in decoding: the `decoding_domain`)"
RANDOM = "random in 0..2**30-1"
NOT_DRAWN = "for float64 numbers, the rounding is not stochastic"
ENVIRONMENT = "float32 operations round to nearest even"
#: Only bitwuzla proves these theorems, because it takes seconds where z3 takes minutes.
ENGINES = ("bitwuzla",)
MANTISSAS = range(MOST_BITS - 1)
SOURCES = ("bfloat16", "float16", "float64")


def _elements(mantissa_bits: int, overflow: Overflow, width: int = 32) -> Iterator[tuple[str, AnyElement]]:
    for kind in kinds(mantissa_bits, specials_met=overflow == Overflow.IEEE):
        yield kind, any_element(mantissa_bits, kind, width)


def _within(element: AnyElement, rounding: Rounding, x: Any, scale: Any, random: Any) -> list[z3.BoolRef]:
    domain: Any = float_additions.domain(element, rounding)  # type: ignore[arg-type]
    return [
        *element.premises,
        scale >= 0,
        scale <= 254,
        scale >= domain.least_scale.value,
        scale <= domain.greatest_scale.value,
        (x & 0x7FFFFFFF) <= domain.greatest_x,
        z3.ULT(random, 1 << SR_BITS),
    ]


def _value(word: Any) -> Any:
    return word.value


def check_code(mantissa_bits: int, rounding: Rounding, overflow: Overflow) -> Outcome:
    """Prove the statement `CODE` for all kinds of elements with `mantissa_bits` mantissa bits."""
    return together(
        (kind, partial(_check_code, element, rounding, overflow))
        for kind, element in _elements(mantissa_bits, overflow)
    )


def _check_code(element: AnyElement, rounding: Rounding, overflow: Overflow) -> Outcome:
    x, scale, random = (z3.BitVec(name, 32) for name in ("x", "scale", "random"))
    constants = float_additions.constants(element, rounding, overflow)  # type: ignore[arg-type]
    function = float_additions.make_code(rounding, element.mantissa_bits == 0)
    got, safe = run_fast(lambda x, scale, random: function(x, scale, random, constants), x, scale, random)
    want, _ = run(make_encode(FLOAT32, element, rounding, overflow), x, scale, random)  # type: ignore[arg-type]
    premises = [*_within(element, rounding, x, scale, random), *float_results()]
    return prove(premises, z3.And(got == want, *safe), engines=ENGINES, show=(x, scale, random, *element.words))


def check_source(mantissa_bits: int, type_name: str) -> Outcome:
    """Prove the statement `SOURCE` for all modes, except stochastic rounding of float64."""
    source = formats.FLOATS[type_name]
    cases = [
        (f"{rounding} {overflow} {kind}", partial(_check_source, source, mantissa_bits, kind, rounding, overflow))
        for rounding, overflow in product(ROUNDINGS, Overflow)
        if not (source.bits == 64 and rounding == Rounding.SR)
        for kind in kinds(mantissa_bits, specials_met=overflow == Overflow.IEEE)
    ]
    return together(cases)


def _check_source(source: Any, mantissa_bits: int, kind: str, rounding: Rounding, overflow: Overflow) -> Outcome:
    scale, random = z3.BitVec("scale", 32), z3.BitVec("random", 32)
    x, narrowed, premises, element, same = _widened(source, mantissa_bits, kind)
    wide = (z3.SignExt(x.size() - 32, word) for word in (scale, random))
    want, _ = run(make_encode(source, element, rounding, overflow), x, *wide)  # type: ignore[arg-type]
    got, _ = run(make_encode(FLOAT32, same, rounding, overflow), narrowed, scale, random)  # type: ignore[arg-type]
    premises = [*premises, *_within(same, rounding, narrowed, scale, random)]
    return prove(premises, z3.Extract(31, 0, want) == got, engines=ENGINES, show=(x, scale, random, *same.words))


def _widened(source: Any, mantissa_bits: int, kind: str) -> tuple[Any, Any, list[z3.BoolRef], AnyElement, AnyElement]:
    """Return a symbolic finite x, x as float32, the premises, and a symbolic element twice.

    The words of the first copy of the element have the width of x; those of the second copy have 32
    bits.
    """
    lanes.LOW_WORD[Sym] = low_word
    width = 64 if source.bits == 64 else 32
    x, half = z3.BitVec("x", width), 1 << (source.bits - 1)
    premises = [(x & (half - 1)) <= source.max_code]
    if source.bits < width:
        premises += [x >= -half, x < half]
    narrowed, _ = run_fast(_widening(source), x)
    premises += float_results()
    same = any_element(mantissa_bits, kind)
    if width == 32:
        return x, narrowed, premises, same, same
    element = any_element(mantissa_bits, kind, width)
    equal = [a == z3.SignExt(32, b) for a, b in zip(element.words, same.words, strict=True)]
    return x, narrowed, [*premises, *element.premises, *equal], element, same


def _widening(source: Any) -> Callable[..., Any]:
    """Return the function that converts numbers of the type `source` to float32.

    The function for float64 rounds to odd with integer operations. Loops use float conversions
    instead, which give the same results by the theorem `narrowing/conversion`.
    """
    return as_float32.to_odd if source.name == "float64" else as_float32.make_widen(source)


def check_scale(mantissa_bits: int, type_name: str) -> Outcome:
    """Prove `SCALE` for all scale rules and for all elements with `mantissa_bits` mantissa bits."""
    return together(
        (f"{rule} {kind}", partial(_check_scale, formats.FLOATS[type_name], mantissa_bits, kind, rule))
        for rule in RULES
        for kind in kinds(mantissa_bits, specials_met=False)
    )


def _check_scale(source: Any, mantissa_bits: int, kind: str, rule: ScaleRule) -> Outcome:
    amax, narrowed, premises, element, same = _widened(source, mantissa_bits, kind)
    constants = float_additions.constants(same, rule=rule)  # type: ignore[arg-type]
    got, safe = run(lambda narrowed: float_additions.fast_scale(narrowed, constants), narrowed)
    want, _ = run(make_shared_scale(source, element, rule), amax)  # type: ignore[arg-type]
    domain: Any = float_additions.domain(same, Rounding.RNE)  # type: ignore[arg-type]
    in_domain = z3.And(
        got >= domain.least_scale.value, got <= domain.greatest_scale.value, narrowed <= domain.greatest_x
    )
    right = z3.Implies(z3.Or(amax == 0, in_domain), got == z3.Extract(31, 0, want))
    premises = [*premises, *same.premises, amax >= 0]
    return prove(premises, z3.And(right, *safe), engines=ENGINES, show=(amax, *same.words))


def check_decoding(mantissa_bits: int, type_name: str) -> Outcome:
    """Prove the statement `DECODING` for all elements with `mantissa_bits` mantissa bits."""
    found = {*kinds(mantissa_bits, specials_met=False), *kinds(mantissa_bits, specials_met=True)}
    return together((kind, partial(_check_decoding, mantissa_bits, kind, type_name)) for kind in sorted(found))


def _check_decoding(mantissa_bits: int, kind: str, type_name: str) -> Outcome:
    target, element = formats.FLOATS[type_name], any_element(mantissa_bits, kind)
    code, scale = z3.BitVec("code", 32), z3.BitVec("scale", 32)
    constants = float_additions.constants(element)  # type: ignore[arg-type]
    value, safe = run_fast(lambda code, scale: float_additions.value_of_code(code, scale, constants), code, scale)
    wide, premises = element, [*element.premises, *float_results()]
    if target.bits == 64:
        wide = any_element(mantissa_bits, kind, 64)
        premises += [a == z3.SignExt(32, b) for a, b in zip(wide.words, element.words, strict=True)] + wide.premises
    extended = [z3.SignExt(target.bits - 32, word) if target.bits == 64 else word for word in (code, scale)]
    want, _ = run(make_decode(wide, target), *extended)  # type: ignore[arg-type]
    got = _converted(value, target)
    premises += _codes(element, kind, code, scale)
    return prove(premises, z3.And(got == want, *safe), engines=ENGINES, show=(code, scale, *element.words))


def _codes(element: AnyElement, kind: str, code: Any, scale: Any) -> list[z3.BoolRef]:
    """Return the premises that a code and a scale are in the domain of fast decoding."""
    least, greatest = map(_value, float_additions.decoding_domain(element))  # type: ignore[arg-type]
    within = [code >= 0, code < z3.BitVecVal(1, 32) << element.bits.value, scale >= 0, scale <= 254]
    within += [scale >= least, scale <= greatest]
    if kind == "float":  # the kinds "nan" and "ieee" cover codes above the largest value's code
        within.append((code & ((z3.BitVecVal(1, 32) << (element.bits.value - 1)) - 1)) <= element.max_code.value)
    return within


def check_safety(mantissa_bits: int) -> Outcome:
    """Prove the statement `SAFE`: encoding and decoding meet all obligations of `Sym`.

    An operation adds its obligations to the list of its left operand. Fields of the element share a
    list of their own, so `_prove_safe` also reads the element's list.
    """
    # Roundings for which the fast formulation has the same domain are checked together.
    drawn = (Rounding.SR,), tuple(rounding for rounding in ROUNDINGS if rounding != Rounding.SR)
    cases = [
        (f"encode {kind} {overflow} {some[0]}", partial(_check_safe_encoding, mantissa_bits, kind, overflow, some))
        for overflow, some in product(Overflow, drawn)
        for kind in kinds(mantissa_bits, specials_met=overflow == Overflow.IEEE)
    ]
    found = {*kinds(mantissa_bits, specials_met=False), *kinds(mantissa_bits, specials_met=True)}
    cases += [(f"decode {kind}", partial(_check_safe_decoding, mantissa_bits, kind)) for kind in sorted(found)]
    return together(cases)


def _check_safe_encoding(mantissa_bits: int, kind: str, overflow: Overflow, roundings: tuple[Rounding, ...]) -> Outcome:
    element = any_element(mantissa_bits, kind)
    x, scale, random = (z3.BitVec(name, 32) for name in ("x", "scale", "random"))
    owed = []
    for rounding in roundings:
        owed += run(make_encode(FLOAT32, element, rounding, overflow), x, scale, random)[1]  # type: ignore[arg-type]
    return _prove_safe(element, _within(element, roundings[0], x, scale, random), owed, x, scale, random)


def _check_safe_decoding(mantissa_bits: int, kind: str) -> Outcome:
    element, code, scale = any_element(mantissa_bits, kind), z3.BitVec("code", 32), z3.BitVec("scale", 32)
    constants = float_additions.constants(element)  # type: ignore[arg-type]
    _, owed = run_fast(lambda code, scale: float_additions.value_of_code(code, scale, constants), code, scale)
    results = float_results()
    owed += run(make_decode(element, FLOAT32), code, scale)[1]  # type: ignore[arg-type]
    return _prove_safe(element, [*element.premises, *_codes(element, kind, code, scale), *results], owed, code, scale)


def _prove_safe(element: AnyElement, premises: list[z3.BoolRef], owed: list[z3.BoolRef], *show: Any) -> Outcome:
    distinct = {one.get_id(): one for one in (*owed, *element.max_code.obligations)}
    return prove(premises, z3.And(*distinct.values()), engines=ENGINES, show=(*show, *element.words))


def _converted(value: z3.BitVecRef, target: Any) -> z3.BitVecRef:
    """Convert the bits of a float32 number to bits of the type `target`.

    The conversion follows IEEE 754. A NaN becomes the NaN code of `target`.
    """
    if target.name == "float32":
        return value
    if target.name == "bfloat16":
        got, _ = run(as_float32.make_convert_value(target), value)
        return got
    sort = {"float64": z3.Float64(), "float16": z3.Float16()}[target.name]
    number = z3.fpBVToFP(value, z3.Float32())
    bits = z3.fpToIEEEBV(z3.fpFPToFP(z3.RNE(), number, sort))
    bits = z3.If(z3.fpIsNaN(number), z3.BitVecVal(target.nan_code, target.bits), bits)
    return bits if target.bits == 64 else z3.ZeroExt(32 - target.bits, bits)


def theorems() -> list[Theorem]:
    return [*_code_theorems(), *_other_theorems(), *_safety_theorems()]


def _code_theorems() -> Iterator[Theorem]:
    for mantissa_bits, rounding, overflow in product(MANTISSAS, ROUNDINGS, Overflow):
        code = float_additions.make_code(rounding, mantissa_bits == 0)
        example = make_encode(FLOAT32, formats.ELEMENTS["e4m3"], rounding, overflow)
        yield Theorem(
            name=f"any/code/m{mantissa_bits}/{rounding}/{overflow}",
            statement=CODE,
            kernels=(code.__name__, "magic.constants", "make_encode"),
            check=partial(check_code, mantissa_bits, rounding, overflow),
            hypotheses=(ANY, LIMITS, RANDOM, ENVIRONMENT),
            tier="full",
            functions=(code, float_additions.constants, float_additions.domain, example),
        )


def _other_theorems() -> Iterator[Theorem]:
    e4m3 = formats.ELEMENTS["e4m3"]
    for mantissa_bits, source in product(MANTISSAS, formats.FLOATS.values()):
        widen, decode = _widening(source), make_decode(e4m3, source)
        encodes = tuple(make_encode(source, e4m3, rounding, Overflow.IEEE) for rounding in ROUNDINGS)
        scales = tuple(make_shared_scale(source, e4m3, rule) for rule in RULES)
        about: list[tuple[str, str, Callable[..., Outcome], tuple[Callable[..., Any], ...]]] = [
            ("scale", SCALE, check_scale, (float_additions.fast_scale, float_additions.constants, widen, *scales)),
            ("decode", DECODING, check_decoding, (float_additions.value_of_code, float_additions.constants, decode)),
        ]
        given = (NOT_DRAWN,) if source.bits == 64 else (RANDOM,)
        if source.name in SOURCES:
            about.append(("source", SOURCE, check_source, (widen, *encodes)))
        for family, statement, check, functions in about:
            yield Theorem(
                name=f"any/{family}/m{mantissa_bits}/{source.name}",
                statement=statement,
                kernels=tuple(function.__name__ for function in functions),
                check=partial(check, mantissa_bits, source.name),
                hypotheses=(ANY, LIMITS, *given) if family == "source" else (ANY, LIMITS),
                tier="full",
                functions=(*functions, float_additions.domain, float_additions.decoding_domain),
            )


def _safety_theorems() -> Iterator[Theorem]:
    e4m3 = formats.ELEMENTS["e4m3"]
    encodes = tuple(
        make_encode(FLOAT32, e4m3, rounding, overflow) for rounding, overflow in product(ROUNDINGS, Overflow)
    )
    functions: list[Callable[..., Any]] = [*encodes, make_decode(e4m3, FLOAT32), float_additions.value_of_code]
    functions += [float_additions.constants, float_additions.domain, float_additions.decoding_domain]
    for mantissa_bits in MANTISSAS:
        yield Theorem(
            name=f"any/safety/m{mantissa_bits}",
            statement=SAFE,
            kernels=("make_encode", "make_decode", float_additions.value_of_code.__name__),
            check=partial(check_safety, mantissa_bits),
            hypotheses=(ANY, LIMITS, RANDOM),
            tier="full",
            functions=tuple(functions),
        )

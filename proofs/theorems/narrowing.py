"""Narrowing float64 to float32 changes no code and no scale in the domain of fast loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import z3

from mxnum import formats
from mxnum.definition.convert import make_encode
from mxnum.definition.pack import SR_BITS
from mxnum.definition.scale import make_shared_scale
from mxnum.engine.machine import lanes
from mxnum.engine.rounding import as_float32, float_additions
from mxnum.engine.rounding.paths import ROUNDINGS, RULES
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.prove.sym import Sym, run
from proofs.machines.solve import prove, together
from proofs.theorem import Outcome, Theorem
from proofs.theorems.magic import float_results, run_fast

FLOAT32, FLOAT64 = formats.FLOATS["float32"], formats.FLOATS["float64"]
ROUNDED = "A float64 number has the same code after it is rounded to odd in float32."
STOCHASTIC = (
    "A float64 number is split into a leading part, which is a float32 number, and a rest, which is added to the "
    "random bits. The code that the fast formulation computes from both is the code of the definition."
)
CONVERSION = (
    "`to_odd_by_conversion`, which rounds a float64 number to odd by a float conversion, gives the same float32 number "
    "as `to_odd`, which rounds in integers."
)
SCALE = (
    "The scale code that `fast_scale` computes from a float64 magnitude rounded to odd in float32 is the shared scale "
    "of the definition. This holds if the magnitude is zero, or if it and the computed scale are in the domain of some "
    "rounding."
)
HYPOTHESES = (
    "x is any finite float64 number and scale is any code, both in the `domain` of the float additions",
    "random in 0..2**30-1",
)


def low_word(word: Sym) -> Sym:
    """Return a word's low 32 bits; record the obligation that they sign-extend to the word."""
    low = z3.Extract(31, 0, word.value)
    word.obligations.append(z3.SignExt(32, low) == word.value)
    return Sym(low, word.obligations)


def _finite() -> tuple[z3.BitVecRef, z3.BoolRef]:
    x = z3.BitVec("x", 64)
    return x, (x & 0x7FFFFFFFFFFFFFFF) <= FLOAT64.max_code


def check(name: str, rounding: Rounding, overflow: Overflow) -> Outcome:
    """Prove the statement `ROUNDED`, or `STOCHASTIC` for stochastic rounding."""
    lanes.LOW_WORD[Sym] = low_word
    element = formats.ELEMENTS[name]
    domain, (x, finite) = float_additions.domain(element, rounding), _finite()
    scale, random = z3.BitVec("scale", 32), z3.BitVec("random", 32)
    encode = make_encode(FLOAT64, element, rounding, overflow)
    want, _ = run(encode, x, z3.SignExt(32, scale), z3.SignExt(32, random))
    if rounding == Rounding.SR:
        narrowed, safe = run(as_float32.leading_part, x)
        got, more = _stochastic(element, overflow, x, scale, random)
        safe, floats = [*safe, *more], float_results()
    else:
        narrowed, safe = run(as_float32.to_odd, x)
        got, _ = run(make_encode(FLOAT32, element, rounding, overflow), narrowed, scale, random)
        floats = []
    within = [
        finite,
        (narrowed & 0x7FFFFFFF) <= domain.greatest_x,
        scale >= domain.least_scale,
        scale <= domain.greatest_scale,
        z3.ULT(random, 1 << SR_BITS),
    ]
    return prove([*within, *floats], z3.And(z3.Extract(31, 0, want) == got, *safe), show=(x, scale, random))


def _stochastic(element: Any, overflow: Overflow, x: Any, scale: Any, random: Any) -> tuple[Any, list[z3.BoolRef]]:
    constants = float_additions.constants(element, Rounding.SR, overflow)
    code = float_additions.make_code(Rounding.SR, float_additions.breaks_ties_by_parity(element))

    def split(scale: Sym, random: Sym) -> Any:
        wide = Sym(x, scale.obligations)
        leading = as_float32.leading_part(wide)
        return code(leading, scale, random + as_float32.rest(wide, leading, scale, constants), constants)

    return run_fast(split, scale, random)


def check_conversion() -> Outcome:
    """Prove the statement `CONVERSION` for every finite float64 number."""
    lanes.LOW_WORD[Sym] = low_word
    x, finite = _finite()
    want, _ = run(as_float32.to_odd, x)
    got, safe = run_fast(as_float32.to_odd_by_conversion, x)
    return prove([finite, *float_results()], z3.And(got == want, *safe), show=(x,))


def check_scale(rule: ScaleRule) -> Outcome:
    """Prove the statement `SCALE` for a rule and all elements."""
    return together((name, partial(_check_scale, name, rule)) for name in formats.ELEMENTS)


def _check_scale(name: str, rule: ScaleRule) -> Outcome:
    lanes.LOW_WORD[Sym] = low_word
    element = formats.ELEMENTS[name]
    constants, (amax, finite) = float_additions.constants(element, rule=rule), _finite()
    narrowed, safe = run(as_float32.to_odd, amax)
    got, more = run(lambda narrowed: float_additions.fast_scale(narrowed, constants), narrowed)
    want, _ = run(make_shared_scale(FLOAT64, element, rule), amax)
    domains = [float_additions.domain(element, rounding) for rounding in ROUNDINGS]
    in_domain = z3.And(
        got >= min(domain.least_scale for domain in domains),
        got <= max(domain.greatest_scale for domain in domains),
        narrowed <= max(domain.greatest_x for domain in domains),
    )
    right = z3.Implies(z3.Or(amax == 0, in_domain), z3.SignExt(32, got) == want)
    return prove([finite, amax >= 0], z3.And(right, *safe, *more), show=(amax,))


def theorems() -> list[Theorem]:
    functions = as_float32.to_odd_by_conversion, as_float32.to_odd
    conversion = Theorem(
        name="narrowing/conversion",
        statement=CONVERSION,
        kernels=tuple(function.__name__ for function in functions),
        check=check_conversion,
        hypotheses=("x is any finite float64", "conversions to float32 round to nearest even"),
        functions=functions,
    )
    return [*_rounding_theorems(), *_scale_theorems(), conversion]


def _rounding_theorems() -> Iterator[Theorem]:
    for (name, element), rounding, overflow in product(formats.ELEMENTS.items(), ROUNDINGS, Overflow):
        if overflow == Overflow.IEEE and element.specials == "none":
            continue
        encode = make_encode(FLOAT64, element, rounding, overflow)
        functions: tuple[Callable[..., Any], ...] = (
            as_float32.to_odd,
            encode,
            make_encode(FLOAT32, element, rounding, overflow),
        )
        if rounding == Rounding.SR:
            code = float_additions.make_code(rounding, float_additions.breaks_ties_by_parity(element))
            functions = (
                as_float32.leading_part,
                as_float32.rest,
                code,
                float_additions.constants,
                encode,
            )
        yield Theorem(
            name=f"narrowing/{name}/{rounding}/{overflow}",
            statement=STOCHASTIC if rounding == Rounding.SR else ROUNDED,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check, name, rounding, overflow),
            hypotheses=HYPOTHESES,
            tier="full" if rounding == Rounding.SR else "fast",
            functions=(*functions, float_additions.domain),
        )


def _scale_theorems() -> Iterator[Theorem]:
    for rule in RULES:
        example = make_shared_scale(FLOAT64, formats.ELEMENTS["e4m3"], rule)
        functions: tuple[Callable[..., Any], ...] = (
            float_additions.fast_scale,
            float_additions.constants,
            as_float32.to_odd,
            example,
        )
        of_others = [make_shared_scale(FLOAT64, element, rule) for element in formats.ELEMENTS.values()]
        yield Theorem(
            name=f"narrowing/scale/{rule}",
            statement=SCALE,
            kernels=tuple(function.__name__ for function in functions),
            check=partial(check_scale, rule),
            hypotheses=("amax is any finite float64 number that is not negative",),
            functions=(*functions, float_additions.domain, *of_others),
        )

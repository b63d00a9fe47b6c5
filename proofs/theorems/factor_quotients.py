"""Float scales, all elements: the definition and the fast formulation divide correctly.

The theorems of `factor_arithmetic` say that a quotient rounded to 53 bits lies on the same side of
every threshold as the exact quotient.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import z3

from mxnum import formats
from mxnum.definition import float_scale
from mxnum.definition.convert import make_encode
from mxnum.engine.machine import lanes
from mxnum.engine.rounding import as_float32, by_factors, float_additions
from mxnum.engine.rounding import paths as fast_paths
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import Sym, run
from proofs.machines.checks import outcome_of, patched
from proofs.machines.ratios import EXPONENTS, covers
from proofs.machines.solve import prove
from proofs.specs.float_scales import (
    FACTOR,
    FLOAT32,
    SCALES,
    any_quotient,
    is_leading,
    leading_of_float64,
    over_factors,
    pack_nothing,
    packing,
    unpacking,
)
from proofs.theorem import Outcome, Theorem
from proofs.theorems.narrowing import low_word

DIVIDED = (
    "Before it rounds x / factor to an element, the definition computes the right leading digits of the quotient, and "
    "a last digit that says whether a remainder is left. This holds for every nonzero x and every nonzero factor."
)
ROUNDED = (
    "The fast formulation rounds every float64 quotient to the code that the definition gives for the quotient's "
    "leading digits and the digit that says whether a remainder is left."
)
QUOTIENT_ROUNDINGS = fast_paths.QUOTIENTS.roundings


def check_digits(source: Any, mantissa_bits: int, over: Any = float_scale) -> Outcome:
    """Prove `DIVIDED` for every scale format, and elements with `mantissa_bits` mantissa bits."""
    element = formats.ElementFormat("any", 7 - mantissa_bits, mantissa_bits, 1)
    count = [0]

    def problems() -> Iterator[str]:
        for scale in SCALES:
            with patched(over, make_unpack=unpacking(over.make_unpack, EXPONENTS), make_pack=pack_nothing):
                encode = over.make_encode_over(source, element, scale, Rounding.RNE, Overflow.SATURATE)
            every = []
            for ratios, got in over_factors(encode, source, over.factor_width(scale)):
                count[0] += 1
                every.append(ratios)
                if not is_leading(got, ratios, mantissa_bits + 2):
                    yield f"{scale.name}: ratios from {ratios.low} to {ratios.high} get the wrong digits {got[1]:#b}"
            if not covers(every, Fraction(1, 2), Fraction(2)):
                yield f"{scale.name}: the intervals of ratios do not cover every ratio once"

    return outcome_of(problems(), "ratios", lambda: f"{count[0]} intervals of ratios")


def check_rounded(
    element: Any, rounding: Rounding, overflow: Overflow, over: Any = float_scale, fast: Any = by_factors
) -> Outcome:
    """Prove the statement `ROUNDED` from the theorems `magic/code` and `narrowing/conversion`.

    These two theorems say that the fast formulation rounds the quotient to odd, and then encodes it
    as the definition does.
    """
    lanes.LOW_WORD[Sym] = low_word
    domain = float_additions.domain(element, rounding)
    if not (domain.least_scale <= fast.UNIT <= domain.greatest_scale and domain.greatest_x >= fast._GREATEST):
        return Outcome("refuted", "-", 0.0, "quotients are outside the domain of magic/code")
    encode32 = make_encode(FLOAT32, element, rounding, overflow)
    (q, finite), x = any_quotient(), z3.BitVec("x", 64)
    obligations: list[z3.BoolRef] = []
    additions = _Changed(
        fast.float_additions, make_code=lambda *how: lambda x, scale, random, e: encode32(x, scale, random)
    )
    with patched(
        fast,
        float_additions=additions,
        _make_factor=lambda scale: None,
        make_number=lambda source: lambda x: x,
        divide_float64=lambda a, b: Sym(q, obligations),
        to_odd_by_conversion=as_float32.to_odd,
        wide=lambda word: word,
    ):
        made = inspect.unwrap(fast.by_quotients)(FLOAT32, element, SCALES[0], rounding, overflow, None)
        got = made.element(Sym(x, obligations), (None, None), 0).value
    pack = packing(over, "make_encode_over", FLOAT32, element, SCALES[0], rounding, overflow)
    exponent, significand = leading_of_float64(q, element.mantissa_bits + 2)
    sign, zero = z3.LShR(x, 31) & 1, z3.BitVecVal(0, 64)
    want, safe = run(pack, sign, exponent, significand, zero, zero)
    goal = z3.And(z3.SignExt(32, got) & ((1 << element.bits) - 1) == want, *obligations, *safe)
    return prove(finite, goal, engines=("bitwuzla",), show=(q, x), example=((q, 0x3FF << 52), (x, 0)))


class _Changed:
    """A wrapper of a module that replaces some of the module's attributes."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.module, self.names = module, names

    def __getattr__(self, name: str) -> Any:
        return self.names[name] if name in self.names else getattr(self.module, name)


def theorems() -> Iterator[Theorem]:
    e4m3 = formats.SCALES["e4m3"]
    for source, mantissa_bits in product(formats.FLOATS.values(), range(7)):
        element = formats.ElementFormat("any", 7 - mantissa_bits, mantissa_bits, 1)
        yield Theorem(
            name=f"factors/digits/{source.name}/m{mantissa_bits}",
            statement=DIVIDED,
            kernels=("make_encode_over",),
            check=partial(check_digits, source, mantissa_bits),
            hypotheses=(FACTOR, "the element has the mantissa bits in the theorem's name; scales have any float type"),
            functions=(float_scale.make_encode_over(source, element, e4m3, Rounding.RNE, Overflow.SATURATE),),
        )
    for element, rounding, overflow in product(formats.ELEMENTS.values(), QUOTIENT_ROUNDINGS, Overflow):
        if overflow == Overflow.IEEE and element.specials == "none":
            continue
        encode = float_scale.make_encode_over(FLOAT32, element, e4m3, rounding, overflow)
        divided = by_factors.by_quotients(FLOAT32, element, e4m3, rounding, overflow, None)
        assert divided is not None
        yield Theorem(
            name=f"factors/rounded/{element.name}/{rounding}/{overflow}",
            statement=ROUNDED,
            kernels=("by_quotients", encode.__name__),
            check=partial(check_rounded, element, rounding, overflow),
            hypotheses=(
                "the quotient is zero, infinity or any positive normal float64 number",
                "`to_odd` and the definition's float32 encoder replace loop functions that equal them "
                "(narrowing/conversion, magic/code)",
            ),
            functions=(divided.prepare, divided.at, divided.element, encode, as_float32.to_odd, float_additions.domain),
        )

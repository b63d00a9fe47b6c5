"""Prove that the definition and the fast formulation find the same float scale.

Both divide the largest magnitude of a block by (tensor scale * largest value of the element). The
definition computes the leading digits of the quotient, whereas the fast formulation computes a
float64 quotient.
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
from mxnum.engine.rounding import by_factors
from mxnum.engine.rounding import paths as fast_paths
from mxnum.modes import FloatScaleRule
from mxnum.prove.sym import Sym, run
from proofs.machines.checks import outcome_of, patched
from proofs.machines.ratios import EXPONENTS
from proofs.machines.solve import prove, together
from proofs.specs.float_scales import (
    FLOAT32,
    MOST_DIGITS,
    SCALES,
    any_quotient,
    is_leading,
    leading_of_float64,
    over_tensor_scales,
    pack_nothing,
    packing,
    unpacking,
)
from proofs.theorem import Outcome, Theorem

FOUND = (
    "The fast formulation rounds every float64 quotient to the scale code that the definition gives for the quotient's "
    "leading digits and the digit that says whether a remainder is left."
)
DIVIDED = (
    "Before it rounds to a scale, the definition computes the right leading digits of (largest magnitude) / (largest "
    "element * tensor scale), and a last digit that says whether a remainder is left."
)
FOUND_BY: Any = fast_paths.FOUND.rules


def check_found(scale: Any, rule: FloatScaleRule, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    """Prove the statement `FOUND` for a scale format and a scale rule."""
    (q, finite), obligations, results = any_quotient(), list[z3.BoolRef](), list[z3.BoolRef]()

    def arithmetic(operation: Any) -> Any:
        def result(a: Any, b: Any) -> Sym:
            bits = z3.FreshConst(z3.BitVecSort(64), "result")
            a, b = (
                z3.fpBVToFP(word.value if isinstance(word, Sym) else z3.BitVecVal(word, 64), z3.Float64())
                for word in (a, b)
            )
            results.append(z3.fpBVToFP(bits, z3.Float64()) == operation(z3.RNE(), a, b))
            return Sym(bits, obligations)

        return result

    element = formats.ELEMENTS["e2m1"]
    with patched(
        fast,
        make_number=lambda source: lambda x: x,
        multiply_float64=lambda a, b: a,
        float32_to_float64=lambda a: a,
        low_word=lambda a: a,
        divide_float64=lambda a, b: Sym(q, obligations),
        add_float64=arithmetic(z3.fpAdd),
        subtract_float64=arithmetic(z3.fpSub),
    ):
        got = inspect.unwrap(fast.make_scale)(FLOAT32, element, scale, rule)(q, q).value
    pack = packing(over, "make_float_scale", FLOAT32, element, scale, rule)
    exponent, significand = leading_of_float64(q, scale.number.mantissa_bits + 2)
    zero = z3.BitVecVal(0, 64)
    want, safe = run(pack, zero, exponent, significand, zero, zero)
    premises, goal = [*finite, *results], z3.And(got == want, *obligations, *safe)
    return prove(premises, goal, engines=("bitwuzla",), show=(q,))


def check_scale_digits(source: Any, scale: Any, over: Any = float_scale) -> Outcome:
    """Prove the statement `DIVIDED` for a source type and a scale format.

    The proof covers all sequences of leading digits that the quotient can have.
    """
    count, digits = [0], scale.number.mantissa_bits + 2

    def problems() -> Iterator[str]:
        for goal, (element, shift) in _goals().items():
            with patched(over, make_unpack=unpacking(over.make_unpack, EXPONENTS, 0), make_pack=pack_nothing):
                find = over.make_float_scale(source, element, scale, FloatScaleRule.NEAREST)
            for ratios, got in over_tensor_scales(find, source):
                count[0] += 1
                if ratios.low > ratios.high or not is_leading(got, ratios.times(Fraction(1, goal)), digits, shift):
                    yield f"{element.name}: ratios from {ratios.low} to {ratios.high} get the wrong digits {got[1]:#b}"

    return outcome_of(problems(), "ratios", lambda: f"{count[0]} intervals of ratios")


def check_scale_digits_alone(source: Any, scale: Any, over: Any = float_scale) -> Outcome:
    """Prove the statement `DIVIDED` with a solver, for a scale format with many significands.

    There are too many significands to try them all. Formats with such scales have no tensor scale,
    so the divisor is the largest value of an element.
    """
    return together(
        (element.name, partial(_digits_alone, source, element, scale, over)) for element, _ in _goals().values()
    )


def _goals() -> dict[int, tuple[Any, int]]:
    """Return the largest value of each element format.

    The mapping contains (element format, exponent) for each significand of a largest value. If
    several formats have the same significand, the mapping contains only one of these formats.
    """
    largest = (
        (element, *float_scale._number_of_code(element, element.max_code)) for element in formats.ELEMENTS.values()
    )
    return {goal: (element, shift) for element, goal, shift in largest}


def _digits_alone(source: Any, element: Any, scale: Any, over: Any) -> Outcome:
    x, obligations = z3.BitVec("x", 64), list[z3.BoolRef]()
    with patched(over, make_unpack=unpacking(over.make_unpack, 0, None), make_pack=pack_nothing):
        find = over.make_float_scale(source, element, scale, FloatScaleRule.NEAREST)
    exponent, quotient = find(Sym(x, obligations), float_scale.ONE)
    goal, shift = float_scale._number_of_code(element, element.max_code)
    last, digits, wide = goal.bit_length() - 1, scale.number.mantissa_bits + 2, 160 - 64
    is_less = z3.SignExt(wide, -(exponent.value + shift + last))
    amount, found = z3.ZeroExt(wide, x), z3.ZeroExt(wide, quotient.value)
    whole, rest = z3.LShR(found, 1), found & 1
    # The dividend, ``x / 2**source.mantissa_bits``, and the divisor, ``goal / 2**last``, lie in [1,
    # 2). Let q be the exact quotient, in units of the last digit of `whole`. Then `exact` is
    # ``q * goal * 2**source.mantissa_bits``.
    exact = amount << (digits + last + is_less)
    low, high = (whole * goal) << source.mantissa_bits, ((whole + 1) * goal) << source.mantissa_bits
    right = [
        z3.ULE(is_less, 1),
        z3.UGE(whole, 1 << digits),
        z3.ULT(whole, 2 << digits),
        z3.ULT(exact, high),
        z3.If(rest == 0, exact == low, z3.UGT(exact, low)),
    ]
    premises = [z3.LShR(x, source.mantissa_bits) == 1]
    return prove(premises, z3.And(*right, *obligations), engines=("bitwuzla",), show=(x,))


def theorems() -> Iterator[Theorem]:
    e2m1 = formats.ELEMENTS["e2m1"]
    for scale, rule in product(SCALES, FOUND_BY):
        fast, defined = (
            make(FLOAT32, e2m1, scale, rule) for make in (by_factors.make_scale, float_scale.make_float_scale)
        )
        yield Theorem(
            name=f"factors/scale/{scale.name}/{rule}",
            statement=FOUND,
            kernels=(fast.__name__, defined.__name__),
            check=partial(check_found, scale, rule),
            hypotheses=(
                "the quotient is zero, infinity or any positive normal float64 number",
                "float64 sums and differences round to nearest even",
            ),
            functions=(fast, defined),
        )
    for source, scale in product(formats.FLOATS.values(), SCALES):
        is_alone = scale.number.mantissa_bits > MOST_DIGITS
        defined = float_scale.make_float_scale(source, e2m1, scale, FloatScaleRule.NEAREST)
        yield Theorem(
            name=f"factors/scale-digits/{source.name}/{scale.name}",
            statement=DIVIDED,
            kernels=("make_float_scale",),
            check=partial(check_scale_digits_alone if is_alone else check_scale_digits, source, scale),
            hypotheses=(
                "the largest magnitude is any positive finite number of the source type, and the element is one of the "
                "eight",
                "scales are float32, and the tensor scale is 1"
                if is_alone
                else "scales are not float32, and the tensor scale is any positive finite float32 number",
            ),
            functions=(defined,),
        )

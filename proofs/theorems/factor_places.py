"""Prove that 4-bit codes under float scales can be found by comparing numbers with thresholds.

The codes equal those of the definition. A threshold is the factor times the boundary between two
codes (named `place`). By the theorems of `factor_arithmetic`, thresholds are exact in float64.
Before loops compare float32 numbers with thresholds, they may round the thresholds up to float32.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from mxnum import formats
from mxnum.definition import float_scale
from mxnum.definition.unpack import FINITE
from mxnum.engine.rounding import by_factors
from mxnum.engine.rounding import paths as fast_paths
from mxnum.modes import Overflow, Rounding
from proofs.machines.checks import ON_DICTIONARIES, outcome_of, patched
from proofs.machines.ratios import EXPONENTS, Place, Ratios, Size, covers
from proofs.machines.solve import together
from proofs.specs.float_scales import FACTOR, FLOAT32, SCALES, over_factors, unpacking
from proofs.theorem import Outcome, Theorem

PLACES = (
    "Comparing |x| with the products of thresholds and the factor gives the code of the definition, for every ratio of "
    "x to the factor, and for a factor of zero."
)
#: Ratios beyond 2**±`FAR` are on the same side of all thresholds.
FAR = 16
BY_PLACES = tuple(formats.ELEMENTS[name] for name in fast_paths.PLACES.elements)
BY_PLACES_ROUNDINGS = fast_paths.PLACES.roundings


def check_places(
    source: Any, element: Any, scale: Any, rounding: Rounding, over: Any = float_scale, fast: Any = by_factors
) -> Outcome:
    """Prove the statement `PLACES` for a source, an element, a scale and a rounding.

    The module `over` has the definition, and the module `fast` has the fast formulation. Either
    module may be a mutant.
    """
    count = [0]

    def problems() -> Iterator[str]:
        if not all(2.0 ** (1 - FAR) < value < 2.0 ** (FAR - 1) for value in map(element.value, (1, element.max_code))):
            yield "the element has values outside the range of ratios that is checked"
        if fast.by_places(source, element, scale, rounding, None) is not maker_by_places(fast, source, element)(
            source, element, scale, rounding, None
        ):
            yield "other functions are used"
        code_of, of_nothing = _code_by_places(fast, source, element, scale, rounding)
        every = []
        for ratios, sign, wanted in _defined_codes(over, source, element, scale, rounding):
            every += [ratios] * (1 - sign)
            count[0] += len(EXPONENTS)
            for exponent in range(-FAR, FAR + 1):
                of_ratio = ratios.times(Fraction(2) ** exponent)
                code = code_of(Size(of_ratio, sign))
                if np.any((wanted[np.clip(EXPONENTS, -FAR, FAR) == exponent] - code) % 16):
                    yield f"x / factor from {of_ratio.low} to {of_ratio.high}, sign {sign}: got {code % 16:#x}"
        if not covers(every, Fraction(1, 2), Fraction(2)):
            yield "the intervals of ratios do not cover every ratio once"
        for sign in (0, 1):
            zero = code_of(Size(Ratios(Fraction(0), Fraction(0)), sign)) % 16
            for want in (*_defined_zeros(over, source, element, scale, rounding, sign), of_nothing(sign)):
                if want % 16 != zero:
                    yield f"zeros, sign {sign}"

    return outcome_of(problems(), "ratios", lambda: f"{count[0]} intervals of ratios")


def maker_by_places(fast: Any, source: Any, element: Any) -> Any:
    """Return the factory that `by_places` calls for the given source and element."""
    doubles = element.mantissa_bits == 1 and source.name in ("float32", "bfloat16")
    return fast.by_doublings if doubles else fast.by_seven_places


def _code_by_places(
    fast: Any, source: Any, element: Any, scale: Any, rounding: Rounding
) -> tuple[Callable[[Size], int], Callable[[int], int]]:
    """Return two functions that find a code by comparing |x| with thresholds.

    The first function returns the code of a `Size` under the factor 1. Other nonzero factors need
    no check of their own: thresholds are exact, so the code depends only on x / factor. The second
    function returns the code of the largest number of a given sign under the factor 0.
    """

    def multiply(factor: int, place: int) -> Any:
        return Place(Fraction(float(np.int64(place).view(np.float64)))) if factor else 0

    with (
        patched(
            fast,
            _make_factor=lambda scale: lambda code, tensor: code,
            _first_from=lambda is_wide: lambda place, from_on: place if from_on else place + 1,
            multiply_float64=multiply,
            **ON_DICTIONARIES,
        ),
        patched(fast.as_float32, make_widen=lambda source: lambda x: x),
    ):
        made = inspect.unwrap(maker_by_places(fast, source, element))(source, element, scale, rounding, None)
        constants = []
        for factor in (0, 1):
            table: dict[int, Any] = {}
            made.prepare(factor, 0, table, 0, 1)
            constants.append(made.at(table, 0, 1))
    bits, largest = (64, source.max_code) if source.bits == 64 else (32, FLOAT32.max_code)

    def of_nothing(sign: int) -> int:
        return int(made.element(largest - (sign << (bits - 1)), constants[0], 0))

    return (lambda size: int(made.element(size, constants[1], 0))), of_nothing


def _defined_codes(
    over: Any, source: Any, element: Any, scale: Any, rounding: Rounding
) -> Iterator[tuple[Ratios, int, Any]]:
    """Yield tuples of an interval of ratios, a sign, and the definition's code for each exponent.

    A ratio is the significand of x divided by the significand of the factor. The intervals together
    cover every x and every factor.
    """
    for sign in (0, 1):
        with patched(over, make_unpack=unpacking(over.make_unpack, EXPONENTS, sign=sign)):
            encode = over.make_encode_over(source, element, scale, rounding, Overflow.SATURATE)
        for ratios, codes in over_factors(encode, source, over.factor_width(scale)):
            yield ratios, sign, codes


def _defined_zeros(over: Any, source: Any, element: Any, scale: Any, rounding: Rounding, sign: int) -> list[int]:
    """Return the definition's codes in three cases whose result is zero.

    The three cases of (x, factor) are (0, nonzero), (largest number, 0) and (0, 0).
    """
    encode = over.make_encode_over(source, element, scale, rounding, Overflow.SATURATE)
    some, negative = 1 << over.factor_width(scale), sign << (source.bits - 1)
    minus = -(1 << 63) if sign and source.bits == 64 else negative
    return [int(encode(x + minus, 0, factor, FINITE, 0)) for x, factor in ((0, some), (source.max_code, 0), (0, 0))]


def theorems() -> Iterator[Theorem]:
    e4m3 = formats.SCALES["e4m3"]
    for source, element, rounding in product(formats.FLOATS.values(), BY_PLACES, BY_PLACES_ROUNDINGS):
        encode = float_scale.make_encode_over(source, element, e4m3, rounding, Overflow.SATURATE)
        made = by_factors.by_places(source, element, e4m3, rounding, None)
        cases = [(scale.name, partial(check_places, source, element, scale, rounding)) for scale in SCALES]
        yield Theorem(
            name=f"factors/places/{source.name}/{element.name}/{rounding}",
            statement=PLACES,
            kernels=("by_places", encode.__name__),
            check=partial(together, cases),
            hypotheses=(FACTOR, "scales have any float type"),
            functions=(made.prepare, made.at, made.element, encode),
        )

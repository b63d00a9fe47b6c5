"""Prove that the value of a code under a float scale is factor times element, rounded once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import z3

from mxnum import formats
from mxnum.definition import float_scale
from mxnum.definition.pack import make_pack
from mxnum.definition.unpack import FINITE, ZERO_EXPONENT
from mxnum.engine.rounding import by_factors
from mxnum.modes import Overflow, Rounding
from mxnum.prove.sym import Sym, run
from proofs.machines.checks import ON_DICTIONARIES, outcome_of, patched
from proofs.machines.ratios import DOUBLED, Form, Place, Ratios, Size, paths
from proofs.machines.solve import prove, together
from proofs.specs.float_scales import FLOAT32, SCALES
from proofs.theorem import Outcome, Theorem
from proofs.theorems.factor_arithmetic import bits_of_value
from proofs.theorems.factor_places import BY_PLACES, maker_by_places

VALUES = (
    "For each code, the fast formulation and the definition multiply the factor by the same number, with the same "
    "sign, before they round the product. Codes of infinity and NaN give the infinity and the NaN of the definition."
)
NARROWED = (
    "The fast formulation rounds the product of an element and a factor to the float type as the definition does."
)


@dataclass(frozen=True)
class _Product:
    """The exact product of a number and the factor, with its sign."""

    number: Fraction
    sign: int = 0

    def __or__(self, sign_bit: int) -> _Product:
        return _Product(self.number, int(sign_bit != 0))

    __ror__ = __or__

    def __add__(self, doublings: int) -> _Product:
        return replace(self, number=self.number * DOUBLED[doublings]) if doublings else self

    def __sub__(self, doublings: int) -> _Product:
        return replace(self, number=self.number / DOUBLED[doublings])


def check_values(element: Any, target: Any, over: Any = float_scale, fast: Any = by_factors) -> Outcome:
    """Check that the definition and the fast formulation multiply the factor by the same number.

    `check_narrowed` checks the rounding of the product.
    """
    count = [0]

    def problems() -> Iterator[str]:
        pack = make_pack(target, Rounding.RNE, Overflow.IEEE, target.mantissa_bits + 1, float_scale.WORD)
        ways = [_values(fast, element, target), *_tables_of_values(fast, element, target)]
        for scale, code in product(SCALES, range(1 << element.bits)):
            wanted: list[Any] = []
            for at, sign, exponent, total, kind in _defined_products(over, element, target, scale, code):
                if kind != FINITE:
                    wanted.append(int(pack(sign, 0, 0, kind, 0)) % (1 << target.bits))
                    continue
                is_form, down = isinstance(total, Form), exponent - at + over.factor_width(scale)
                wanted.append(_Product(total.b * Fraction(2) ** down if is_form else Fraction(total), int(sign)))
            count[0] += 1
            for way in ways:
                got = way(code)
                got = got if isinstance(got, _Product) else int(got) % (1 << target.bits)
                if any(got != want for want in wanted) or not wanted:
                    yield f"code {code:#x}: {got}, not {wanted}"

    return outcome_of(problems(), "sweep", lambda: f"{count[0]} codes")


def _defined_products(over: Any, element: Any, target: Any, scale: Any, code: int) -> Iterator[Any]:
    """Yield the numbers that the definition packs as the value of a code, for all factors.

    Each number is a tuple (position of the leading bit, sign, exponent, significand, kind).
    """
    with patched(over, make_pack=lambda *how: lambda *packed: (how[3], *packed[:4])):
        decode = over.make_decode_over(element, scale, target)

    def on_forms(_: Form, factor: Form) -> Any:
        return decode(code, 0, factor, FINITE)

    for _, packed in paths(on_forms, (1, over.factor_width(scale) + 1), Fraction(0), Fraction(1)):
        yield packed


def _multiply(a: Any, b: Any) -> Any:
    """Return the factor times a float64 number.

    One of `a` and `b` holds the number's bits; the other one represents the factor.
    """
    bits = a if isinstance(a, int | np.integer) else b
    number = float(np.int64(bits).view(np.float64))
    return _Product(Fraction(number)) if np.isfinite(number) else None


def _values(fast: Any, element: Any, target: Any) -> Callable[[int], Any]:
    names = {"multiply_float64": _multiply, "make_narrow": lambda target: _unchanged}

    def value(code: int) -> Any:
        with patched(fast, wide=lambda word: word, **names):
            return inspect.unwrap(fast._make_value_of)(element, target)(code, "factor")

    return value


def _tables_of_values(fast: Any, element: Any, target: Any) -> list[Callable[[int], Any]]:
    """Return the functions that compute a code's value from the table of a block."""
    ways: list[Callable[[int], Any]] = []
    if element in BY_PLACES:
        ways.append(partial(_value_by_places, fast, element, target))
    if element.bits == 4 and not element.integer and target == FLOAT32:
        ways.append(partial(_value_by_code, fast, element))
    return ways


def _value_by_places(fast: Any, element: Any, target: Any, code: int) -> Any:
    """Return the value of `code` times the factor, found by comparisons with thresholds."""
    magnitude, sign = _magnitude_of(element, code)
    if magnitude > element.max_code:  # the most negative integer, which encoders never produce
        return _values(fast, element, target)(code)
    size = Size(Ratios(Fraction(element.value(magnitude)), Fraction(element.value(magnitude))), sign)
    with on_products(fast), patched(fast.as_float32, make_widen=lambda source: lambda x: x):
        made = inspect.unwrap(maker_by_places(fast, target, element))(target, element, SCALES[0], Rounding.RNE, target)
        table: dict[int, Any] = {}
        made.prepare("factor", 0, table, 0, 1)
        for place, value in table.items():
            table[place] = Place(value.number)
        made.prepare_more("factor", 0, table, 0, 1)
        return product_of(made.element(size, made.at(table, 0, 1), 0))


def _magnitude_of(element: Any, code: int) -> tuple[int, int]:
    sign, half = code >> (element.bits - 1), 1 << (element.bits - 1)
    return (2 * half - code if sign else code) if element.integer else code % half, sign


def _value_by_code(fast: Any, element: Any, code: int) -> Any:
    with on_products(fast):
        made, table = inspect.unwrap(fast._by_values)(element, SCALES[0]), dict[int, Any]()
        made.prepare("factor", 0, table, 0, 1)
        return product_of(made.element(code, made.at(table, 0, 1), 0))


def product_of(value: Any) -> Any:
    """Return `value` as a `_Product`; a value that is not a `_Product` is the bits of a zero."""
    return value if isinstance(value, _Product) else _Product(Fraction(0), int(value != 0))


def _unchanged(number: Any) -> Any:
    return number


def on_products(fast: Any) -> Any:
    """Patch `fast` so that the factor is a nonzero symbol and tables are dicts of `_Product`s."""
    return patched(
        fast,
        _make_factor=lambda scale: lambda code, tensor: _Factor(),
        _first_from=lambda is_wide: lambda place, from_on: place,
        multiply_float64=_multiply,
        float64_to_float32=_unchanged,
        make_narrow=lambda target: _unchanged,
        **ON_DICTIONARIES,
    )


class _Factor:
    """A factor that is not zero."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __lt__(self, other: int) -> bool:
        return True

    def __ge__(self, other: int) -> bool:
        return True


def check_narrowed(target: Any, fast: Any = by_factors) -> Outcome:
    """Prove the statement `NARROWED` for products of all widths."""
    widths = {element + 1 + float_scale.factor_width(scale) for element in range(7) for scale in SCALES}
    widths = {max(width, target.mantissa_bits + 1) for width in widths}
    return together((f"{width} bits", partial(_narrowed, target, width, fast)) for width in sorted(widths))


def _narrowed(target: Any, width: int, fast: Any) -> Outcome:
    p, results, obligations = z3.BitVec("product", 64), list[z3.BoolRef](), list[z3.BoolRef]()
    got = bits_of_value(fast, target, Sym(p, obligations), results)
    fraction, zero = (p & ((1 << 52) - 1)) | (1 << 52), z3.BitVecVal(0, 64)
    significand = z3.LShR(fraction, 52 - width) if width < 52 else fraction << (width - 52)
    exponent = z3.If(p == 0, z3.BitVecVal(ZERO_EXPONENT, 64), z3.LShR(p, 52) - 1023)
    pack = make_pack(target, Rounding.RNE, Overflow.IEEE, width, float_scale.WORD)
    want, safe = run(pack, zero, exponent, z3.If(p == 0, zero, significand), zero, zero)
    premises = [p >= 0, p < (1023 + 700) << 52, z3.Or(p == 0, p >= (1023 - 1000) << 52), *results]
    if width < 52:
        premises.append(p & ((1 << (52 - width)) - 1) == 0)
    mask = (1 << target.bits) - 1 if target.bits < 64 else -1
    goal = z3.And(got & mask == want & mask, *obligations, *safe)
    return prove(premises, goal, engines=("bitwuzla",), show=(p,))


def theorems() -> Iterator[Theorem]:
    for element, target in product(formats.ELEMENTS.values(), formats.FLOATS.values()):
        defined = float_scale.make_decode_over(element, SCALES[0], target)
        fast = by_factors.decoding(element, SCALES[0], target)
        assert fast is not None
        functions = [fast.prepare, fast.at, fast.element, by_factors._make_value_of(element, target), defined]
        if element in BY_PLACES:
            made = by_factors.by_places(target, element, SCALES[0], Rounding.RNE, target)
            functions += [made.prepare, made.at, made.element]
        yield Theorem(
            name=f"factors/values/{element.name}/{target.name}",
            statement=VALUES,
            kernels=("decoding", defined.__name__),
            check=partial(check_values, element, target),
            hypotheses=("the factor is any finite number but zero (which gives zeros), with scales of any float type",),
            functions=tuple(functions),
        )
    for target in formats.FLOATS.values():
        example = float_scale.make_decode_over(formats.ELEMENTS["e2m1"], SCALES[0], target)
        yield Theorem(
            name=f"factors/narrowed/{target.name}",
            statement=NARROWED,
            kernels=(by_factors.make_narrow(target).__name__, "make_pack"),
            check=partial(check_narrowed, target),
            hypotheses=(
                "the product is zero, or a float64 number from 2**-1000 to below 2**700 with at most the bits of such "
                "products",
                "conversions between float types round to nearest even",
            ),
            functions=(by_factors.make_narrow(target), example),
        )

"""A symbolic element format with a given number of mantissa bits and a given kind.

The number of bits, the bias and the code of the largest value are symbolic words. A theorem about
the symbolic format therefore holds for every format of at most eight bits with the same number of
mantissa bits and the same kind (see `any_element`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import z3

from mxnum.formats import ElementFormat
from mxnum.prove.sym import Sym

#: The largest number of bits of a code. Loops store each code in one byte.
MOST_BITS = 8
#: An upper bound of the magnitude of the bias of any `ElementFormat`.
_BIAS = 1100


class _Small(Sym):
    """A symbolic word whose value is at most `MOST_BITS`.

    Comparing the word with a larger int therefore needs no solver.
    """

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: Any) -> Any:
        return False if _is_large(other) else super().__eq__(other)

    def __lt__(self, other: Any) -> Any:
        return True if _is_large(other) else super().__lt__(other)

    def __gt__(self, other: Any) -> Any:
        return False if _is_large(other) else super().__gt__(other)


def _is_large(other: Any) -> bool:
    return isinstance(other, int) and other > MOST_BITS


class AnyElement(SimpleNamespace):
    """A symbolic `ElementFormat`, with the premises under which its words describe a format."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    premises: list[z3.BoolRef]
    #: The symbolic words, whose values a counterexample shows.
    words: tuple[z3.BitVecRef, ...]


def any_element(mantissa_bits: int, kind: str, width: int = 32) -> AnyElement:
    """Return a symbolic element that represents every element of a kind.

    The kinds are "integer", "float" (any float), "nan" (floats with a NaN but no infinity) and
    "ieee" (floats with a NaN and infinities). In the kind "float", the code of the largest value is
    arbitrary. A theorem may therefore use this kind only if it involves no code above that code.
    """
    obligations: list[z3.BoolRef] = []
    bits, bias, largest = (z3.BitVec(f"{name}_{width}", width) for name in ("bits", "bias", "max_code"))
    integer, specials = kind == "integer", {"integer": "none", "float": "nan"}.get(kind, kind)
    premises = [bits >= mantissa_bits + 2, bits <= MOST_BITS, bias >= -_BIAS, bias <= _BIAS]
    all_ones = (z3.BitVecVal(1, width) << (bits - 1)) - 1
    premises.append(largest >= 1 << mantissa_bits)
    premises.append(
        {
            "integer": largest == all_ones,
            "float": largest <= all_ones,
            "nan": largest == all_ones - 1,
            "ieee": largest == all_ones - (1 << mantissa_bits),
        }[kind]
    )
    if integer:
        premises += [bits == mantissa_bits + 2, bias == 1]
    word_bits, word_bias, word_largest = _Small(bits, obligations), Sym(bias, obligations), Sym(largest, obligations)
    return AnyElement(
        name=f"any{mantissa_bits}",
        kind=kind,
        bits=word_bits,
        mantissa_bits=mantissa_bits,
        bias=word_bias,
        emin=1 - word_bias,
        emax=(word_largest >> mantissa_bits) - word_bias,
        max_code=word_largest,
        integer=integer,
        specials=specials,
        canonical_nan=False,
        infinity_code=word_largest + 1 if specials == "ieee" else None,
        nan_code=None if specials == "none" else Sym(all_ones, obligations),
        premises=premises,
        words=(bits, bias, largest),
    )


def kinds(mantissa_bits: int, specials_met: bool) -> tuple[str, ...]:
    """Return the kinds for `any_element` that together cover all elements of a theorem.

    The elements have at most `MOST_BITS` bits. `specials_met` is True for a theorem that involves
    special codes. For such a theorem, the result contains only kinds with special codes.
    """
    integers = ("integer",) if 1 <= mantissa_bits <= MOST_BITS - 2 else ()
    if not specials_met:
        return ("float", *integers)
    return (
        *(("nan",) if mantissa_bits <= MOST_BITS - 2 else ()),
        *(("ieee",) if 1 <= mantissa_bits <= MOST_BITS - 3 else ()),
    )


def stands_for(element: AnyElement, concrete: ElementFormat) -> bool:
    """Return True if a concrete format satisfies the premises and equals each symbolic field."""
    solver = z3.Solver()
    values = dict(zip(element.words, (concrete.bits, concrete.bias, concrete.max_code), strict=True))
    solver.add(*element.premises, *(word == value for word, value in values.items()))
    if solver.check() != z3.sat or element.mantissa_bits != concrete.mantissa_bits:
        return False
    model = solver.model()
    return element.integer == concrete.integer and all(
        model.eval(getattr(element, name).value).as_signed_long() == getattr(concrete, name)
        for name in ("bits", "bias", "emin", "emax", "max_code", *_special_codes(element))
    )


def _special_codes(element: AnyElement) -> tuple[str, ...]:
    return {"nan": ("nan_code",), "ieee": ("infinity_code", "nan_code")}.get(element.kind, ())

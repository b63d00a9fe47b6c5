"""Compute sums as matrix units do, by the rule of a `MatrixUnit`, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors, formats
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import Overflow, Rounding
from mxnum.reference.blocks import Array
from mxnum.reference.numbers import (
    FLOAT32,
    NAN,
    SCALE_NAN,
    ZERO,
    Exact,
    decode_exact,
    floor_log2,
    layout,
    plus,
    round_to,
    times,
    to,
    two_to,
)
from mxnum.reference.products import Blocked
from mxnum.units import MatrixUnit

#: The element format of each dtype whose floats have fewer than 16 bits.
_NARROW = {
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float6_e3m2fn": "e3m2", "float6_e2m3fn": "e2m3",
    "float4_e2m1fn": "e2m1",
}  # fmt: skip
ONE = Exact("finite", False, Fraction(1))


class Part(NamedTuple):
    """An exact number, and its significand and exponent. The significand need not be normalized."""

    exact: Exact
    significand: Fraction
    #: Minus infinity for zeros, because a zero does not influence the alignment of other terms.
    exponent: float


def part(value: Exact, emin: int) -> Part:
    """Return a number as a `Part`. Subnormal numbers get the exponent `emin`."""
    if value.kind != "finite" or value.magnitude == 0:
        return Part(value, Fraction(0), -math.inf)
    exponent = max(floor_log2(value.magnitude), emin)
    return Part(value, value.number / two_to(exponent), exponent)


_ZERO = part(ZERO, 0)


class _Operand(NamedTuple):
    elements: list[Part]
    scales: list[Part]
    #: The length of a block; 0 if the vector has no scales.
    block: int


def _operand(x: Array | Blocked, unit: MatrixUnit, name: str) -> _Operand:
    """Return a vector's elements and scales; raise ValueError if the unit does not accept them."""
    if isinstance(x, Blocked):
        fmt = formats.get(x.format)
        scale, kind = fmt.scale, (fmt.scale.name, x.block)
        promoted = unit.promotion and kind == ("float32", unit.promotion)
        errors.require(kind in unit.scales or bool(promoted), name, unit.takes, kind)
        values = [ONE if scale.number is None else decode_exact(0, scale.number)] * len(x.scales)
        for i, code in enumerate(x.scales):
            if scale.number is not None:
                bits = int(code.view(np.uint32)) if scale.bits == 32 else int(code)
                values[i] = decode_exact(bits, scale.number)
            else:
                values[i] = NAN if code == SCALE_NAN else Exact("finite", False, two_to(int(code) - scale.bias))
        emin = -scale.bias if scale.number is None else layout(scale.number).emin
        element, codes = fmt.element, x.codes
        scales = [part(value, emin) for value in values]
    else:
        called = _NARROW.get(x.dtype.name, x.dtype.name)
        called = "tf32" if called == "float32" else called
        errors.require(called in unit.operands and not unit.scales, name, unit.takes, called)
        element = unit.formats[called]
        codes = x.view(f"u{x.itemsize}")
        codes, scales = codes >> 13 if called == "tf32" else codes, []
    errors.require(element.name in unit.operands, name, unit.takes, element.name)
    elements = [part(decode_exact(int(code), element), layout(element).emin) for code in codes]
    return _Operand(elements, scales, x.block if isinstance(x, Blocked) else 0)


def fused_sum(terms: Sequence[tuple[Fraction, float]], fraction_bits: int) -> Fraction:
    """Return the sum of terms (significand, exponent) after aligning and truncating them.

    Each term is truncated to a multiple of 2**(E - fraction_bits), where E is the largest exponent
    of all terms.
    """
    largest = max(exponent for _, exponent in terms)
    if largest == -math.inf:
        return Fraction(0)
    unit = two_to(int(largest) - fraction_bits)
    return sum((math.trunc(s * two_to(int(e)) / unit) * unit for s, e in terms if s), Fraction(0))


def rounded(total: Fraction, unit: MatrixUnit) -> Exact:
    """Return the sum in the format of the result; a sum that is too large becomes infinite."""
    accumulator = FLOATS[unit.accumulator]
    if unit.rounding == "rne":
        result = to(Exact("finite", total < 0, abs(total)), accumulator)
    elif abs(total) >= two_to(1 + floor_log2(decode_exact(layout(accumulator).largest, accumulator).magnitude)):
        return Exact("inf", total < 0)
    else:
        kept = ElementFormat("kept", accumulator.exponent_bits, unit.result_bits, accumulator.bias, "ieee")
        code = round_to(Exact("finite", total < 0, abs(total)), kept, Rounding.RTZ, Overflow.IEEE)
        result = decode_exact(code, kept)
    return ZERO if result.kind == "finite" and result.magnitude == 0 else result


def _groups(
    a: _Operand, b: _Operand, unit: MatrixUnit, indices: Sequence[int], scaled: bool
) -> Iterator[tuple[Exact, Fraction, float]]:
    """Yield the exact value, the significand and the exponent of each term of a fused sum."""
    for start in range(0, len(indices), unit.group):
        some = indices[start : start + unit.group]
        pairs = [(_at(a.elements, k), _at(b.elements, k)) for k in some]
        value, significand = ZERO, Fraction(0)
        for p, q in pairs:
            value = plus(value, times(p.exact, q.exact))
            product = p.significand * q.significand
            significand += product * two_to(int(p.exponent + q.exponent)) if product else 0
        exponent: float = 0
        if unit.group == 1:
            (p, q) = pairs[0]
            significand, exponent = p.significand * q.significand, p.exponent + q.exponent
        if scaled:
            for x in (a, b):
                scale = _at(x.scales, some[0] // x.block)
                value = times(value, scale.exact)
                significand, exponent = significand * scale.significand, exponent + scale.exponent
        yield value, significand, exponent


def _at(parts: Sequence[Part], index: int) -> Part:
    """Return the `Part` at an index of a vector, or zero beyond the vector's end."""
    return parts[index] if index < len(parts) else _ZERO


def _instruction(a: _Operand, b: _Operand, unit: MatrixUnit, start: int, k: int, c: Exact) -> Exact:
    """Return a·b + c as one instruction computes it, for `k` products from index `start` on."""
    accumulator = FLOATS[unit.accumulator]
    order = unit.order or tuple(range(k))
    total = c if unit.addend == "term" else ZERO
    for first in range(0, k, unit.terms):
        indices = [start + index for index in order[first : first + unit.terms]]
        scaled = bool(unit.scales)
        addend = part(total, layout(accumulator).emin)
        groups = list(_groups(a, b, unit, indices, scaled))
        value = total
        for exact, _, _ in groups:
            value = plus(value, exact)
        if value.kind != "finite":
            total = value
            continue
        terms = [(addend.significand, addend.exponent), *((s, e) for _, s, e in groups)]
        total = rounded(fused_sum(terms, unit.fraction_bits), unit)
    return total if unit.addend == "term" else to(plus(total, c), accumulator)


def unit_dot(a: Array | Blocked, b: Array | Blocked, unit: MatrixUnit, c: Any = 0.0, k: int | None = None) -> int:
    """Return the bit pattern of a·b + c in the unit's accumulator.

    The operands are arrays of floats or `Blocked` vectors. Floats of fewer than 16 bits have the
    types of ml_dtypes. Arrays of float32 are TF32 operands: their last 13 bits are dropped. `k` is
    the length K of the unit's instructions; None means the last length in `unit.k`.
    """
    x, y = _operand(a, unit, "a"), _operand(b, unit, "b")
    k = unit.k[-1] if k is None else k
    accumulator = FLOATS[unit.accumulator]
    start = decode_exact(int(np.asarray(c, unit.accumulator).view(f"u{accumulator.bits // 8}")), accumulator)
    scaled = unit.promotion and isinstance(a, Blocked)
    total = start
    partial = ZERO if unit.promotion else start
    for first in range(0, len(x.elements), k):
        partial = _instruction(x, y, unit, first, k, partial)
        done = first + k
        if unit.promotion and (done % unit.promotion == 0 or done >= len(x.elements)):
            if scaled:
                factors = (_at(side.scales, first // unit.promotion).exact for side in (x, y))
                partial = times(to(times(*factors), FLOAT32), partial)
            total, partial = to(plus(total, partial), FLOAT32), ZERO
    return bits_of(total if unit.promotion else partial, accumulator)


def bits_of(value: Exact, accumulator: ElementFormat) -> int:
    """Return the bit pattern of a result; any NaN has all bits set except the sign."""
    if value.kind == "nan":
        return int((1 << (accumulator.bits - 1)) - 1)
    return round_to(value, accumulator)

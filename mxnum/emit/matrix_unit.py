"""The fused sum of a matrix unit: products and an addend are aligned, added, and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from mxnum import errors, units
from mxnum.definition.fused_sum import INVALID, MINUS, PLUS, align, make_add, make_finish, make_parts
from mxnum.definition.unpack import FINITE, INFINITE, NAN
from mxnum.definition.word import dialect, select
from mxnum.emit.model import Emitted
from mxnum.emit.program import Function, Program
from mxnum.formats import FLOATS, ElementFormat
from mxnum.modes import Rounding
from mxnum.units import MatrixUnit

_WORD = 64
_SIGNIFICANDS = (
    "Terms are not normalized. Zeros have an exponent that is less than that of any other term. "
    "Subnormal numbers have the exponent of the smallest normal number."
)


@dataclass(frozen=True)
class SumModel(Emitted):
    """The functions of a fused sum. Codes and results are bit patterns."""

    unit: MatrixUnit
    operands: tuple[ElementFormat, ElementFormat]
    #: ``(c)``
    addend_exponent: Function
    addend_state: Function
    #: ``(largest, a, b)``
    larger_exponent: Function
    #: ``(state, a, b)``
    product_state: Function
    #: ``(c, largest)``
    aligned_addend: Function
    #: ``(a, b, largest)``
    aligned_product: Function
    #: ``(total, largest, state)``
    rounded: Function
    #: ``add(a, b)`` adds two numbers of the accumulator's type; None if the unit adds the addend as
    #: a term of the sum.
    add: Function | None

    @property
    def about(self) -> str:
        """One line that says what the functions compute."""
        a, b = self.operands
        rules = "; ".join(self.unit.describe().split("\nevidence", 1)[0].splitlines()[1:])
        return f"a fused sum of the matrix unit {self.unit.name}, for {a.name} times {b.name} operands: {rules}"

    @property
    def comment(self) -> str:
        """The comment of the function `fused_sum`."""
        after = (
            "In the first sum of an instruction, c is 0. Call add to add the addend to the last result."
            if self.add is not None
            else "In an instruction of several sums, each result is the addend c of the next sum."
        )
        return (
            f"Return the {self.unit.accumulator} bits of a fused sum of c and up to {self.unit.terms} products.\n\n"
            f"Terms are aligned to the largest exponent, truncated toward zero to {self.unit.fraction_bits} fraction "
            f"bits, and added exactly; the sum is rounded once. {after}"
        )

    @property
    def roots(self) -> tuple[Function, ...]:
        """The functions that users of the program call, without `fused_sum`.

        The printers add `fused_sum` to the program.
        """
        return () if self.add is None else (self.add,)


def sum_model_of(unit: str | MatrixUnit, a: str | None, b: str | None, name: str) -> SumModel:
    """Return the model of a unit; raise ValueError unless its terms are products without scales."""
    row = units.get(unit)
    if row.group > 1 or row.scales:
        raise ValueError(
            f"Argument 'unit' must be a unit whose terms are single products without scales, not {row.name!r}."
        )
    first = errors.choose("a", a or row.operands[0], row.operands)
    operands = row.formats[first], row.formats[errors.choose("b", b or first, row.operands)]
    program = Program({"make_finish": "IEEE 754-2019 4.3: rounding directions."})
    comments = _comments(row)
    named = {
        made.__name__: program.add(made, made.__name__, _WORD, comments[made.__name__])
        for made in _functions(row, *operands)
    }
    add = None
    if row.addend == "after":
        add = program.add(make_add(FLOATS[row.accumulator]), "add", _WORD, "Add two accumulators, to nearest even.")
    return SumModel(name, program, row, operands, add=add, **named)


def _comments(unit: MatrixUnit) -> dict[str, str]:
    """Return the comment of each function, by the function's name."""
    rule = "toward zero" if unit.rounding == "rtz" else "to nearest even"
    return {
        "addend_exponent": f"The exponent of the addend. {_SIGNIFICANDS}",
        "addend_state": "The state of a sum of only the addend: 0 if finite, 1 for inf, 2 for -inf, 3 for NaN.",
        "larger_exponent": "The larger of an exponent and the exponent of a product.",
        "product_state": "The state of a sum after one more product: 0 if finite, 1 for inf, 2 for -inf, 3 for NaN.",
        "aligned_addend": "The addend in units of the last fraction bit of the sum.",
        "aligned_product": "A product in units of the last fraction bit of the sum.",
        "rounded": f"Round a sum once, {rule}, to {unit.result_bits} fraction bits.",
    }


def _functions(unit: MatrixUnit, a: ElementFormat, b: ElementFormat) -> tuple[Callable[..., Any], ...]:
    """Return the functions that make up a fused sum; each has the name of a field of `SumModel`."""
    accumulator = FLOATS[unit.accumulator]
    parts_a, parts_b, parts_c = make_parts(a), make_parts(b), make_parts(accumulator)
    finish, align_term = make_finish(accumulator, Rounding(unit.rounding)), cast(Callable[..., Any], align)
    FRACTION_BITS, BELOW = unit.fraction_bits, accumulator.mantissa_bits - unit.result_bits
    POINT = a.mantissa_bits + b.mantissa_bits
    LEFT, RIGHT = max(FRACTION_BITS - POINT, 0), max(POINT - FRACTION_BITS, 0)
    LEFT_C = max(FRACTION_BITS - accumulator.mantissa_bits, 0)
    RIGHT_C = max(accumulator.mantissa_bits - FRACTION_BITS, 0)

    @dialect
    def addend_exponent(c: Any) -> Any:
        _, exponent, _, _ = parts_c(c)
        return exponent

    @dialect
    def addend_state(c: Any) -> Any:
        sign, _, _, kind = parts_c(c)
        infinite = select(sign == 0, PLUS, MINUS)
        return select(kind == NAN, INVALID, select(kind == INFINITE, infinite, 0))

    @dialect
    def larger_exponent(largest: Any, a: Any, b: Any) -> Any:
        _, exponent_a, _, _ = parts_a(a)
        _, exponent_b, _, _ = parts_b(b)
        exponent = exponent_a + exponent_b
        return select(exponent > largest, exponent, largest)

    @dialect
    def product_state(state: Any, a: Any, b: Any) -> Any:
        sign_a, _, significand_a, kind_a = parts_a(a)
        sign_b, _, significand_b, kind_b = parts_b(b)
        zero_a = select(kind_a == FINITE, select(significand_a == 0, 1, 0), 0)
        zero_b = select(kind_b == FINITE, select(significand_b == 0, 1, 0), 0)
        invalid = select(kind_a == INFINITE, zero_b, 0) | select(kind_b == INFINITE, zero_a, 0)
        kind = select(invalid == 1, NAN, select(kind_a > kind_b, kind_a, kind_b))
        infinite = select(sign_a == sign_b, PLUS, MINUS)
        return state | select(kind == NAN, INVALID, select(kind == INFINITE, infinite, 0))

    @dialect
    def aligned_addend(c: Any, largest: Any) -> Any:
        sign, exponent, significand, _ = parts_c(c)
        return align_term(sign, exponent, significand, largest, LEFT_C, RIGHT_C)

    @dialect
    def aligned_product(a: Any, b: Any, largest: Any) -> Any:
        sign_a, exponent_a, significand_a, _ = parts_a(a)
        sign_b, exponent_b, significand_b, _ = parts_b(b)
        return align_term(sign_a ^ sign_b, exponent_a + exponent_b, significand_a * significand_b, largest, LEFT, RIGHT)

    @dialect
    def rounded(total: Any, largest: Any, state: Any) -> Any:
        return finish(total, largest, FRACTION_BITS, BELOW, state)

    return addend_exponent, addend_state, larger_exponent, product_state, aligned_addend, aligned_product, rounded

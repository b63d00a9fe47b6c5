"""Explain in exact arithmetic, step by step, how one number or one block is quantized."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, assert_never

import numpy as np

from mxnum import reference
from mxnum.conformance.bits import as_floats
from mxnum.conformance.cases.grid import magnitudes, threshold
from mxnum.conformance.judging.right import element_codes, right_scales, tensor_scales, unsigned, with_tensor
from mxnum.conformance.task import Task
from mxnum.definition.pack import limits
from mxnum.formats import E8M0, ElementFormat, MXFormat, ScaleFormat
from mxnum.memory.dtypes import code_dtype
from mxnum.modes import FloatScaleRule, ScaleRule
from mxnum.reference import numbers


def number(x: float | Fraction) -> str:
    """Return a number as text: a short exact decimal, or a significand times 2**n.

    If digits are cut off, the decimal ends with "...".
    """
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    exact = Fraction(x)
    if exact == 0:
        return "-0" if isinstance(x, float) and math.copysign(1, x) < 0 else "0"
    e = reference_exponent(abs(exact))
    short = f"{float(exact):.10g}" if abs(e) < 1000 else ""
    if short and len(short) <= 14 and (Fraction(short) == exact or -30 <= e <= 40):
        return short if Fraction(short) == exact else f"{short}..."
    significand = exact / Fraction(2) ** e
    text = f"{float(significand):.10g}"
    return f"{text}{'' if Fraction(text) == significand else '...'} * 2^{e}"


def fraction_text(f: Fraction) -> str:
    """Return a fraction of a gap as text: a quotient such as 3/8 if it is short, or a decimal."""
    if f.denominator == 1:
        return str(f.numerator)
    if f.denominator <= 64:
        return f"{f.numerator}/{f.denominator}"
    near = f"{float(f):.9g}"
    if Fraction(near) == f:
        return near
    half = Fraction(1, 2)
    if abs(f - half) < Fraction(1, 10**6):
        return f"1/2 {'+' if f > half else '-'} {float(abs(f - half)):.3g}"
    return near if 0 < float(near) < 1 else ("just above 0" if f < half else "just below 1")


def reference_exponent(x: Fraction) -> int:
    """Return the exponent E with 2**E <= x < 2**(E+1)."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


@dataclass(frozen=True)
class FloatScaleSteps:
    """The steps from the values of a block to the code of its scale."""

    task: Task
    #: The index of the element with the largest finite magnitude, and that magnitude. The index is
    #: None if the block is NaN or has no nonzero finite number, because then no element decides the
    #: scale.
    place: int | None
    maximum: Fraction
    #: The tensor scale, or 1 if the format has no tensor scale.
    tensor_scale: Fraction
    #: The quotient that is rounded to a scale: maximum / (largest value of the element format *
    #: tensor scale). The scale rules "four over six" may multiply the quotient by 3/2.
    quotient: Fraction
    #: The codes of the two nearest scales, below and above the quotient, and the position of the
    #: quotient between them. `above` is None if the quotient is beyond the largest scale.
    below: int
    above: int | None
    fraction: Fraction | None
    rule: str
    code: int

    @property
    def scale(self) -> ScaleFormat:
        return self.task.format.scale

    @property
    def divided(self) -> str:
        """The division that gives the quotient, as text."""
        largest = number(self.task.element.max)
        has_tensor = self.task.format.tensor_scale is not None
        return f"{number(self.maximum)} / {f'({largest} * {number(self.tensor_scale)})' if has_tensor else largest}"

    def named(self, code: int) -> str:
        """Return a scale and its code, as text."""
        return f"{number(self.scale.value(code))} (0x{code:0{(self.task.scale_bits + 3) // 4}X})"

    def sentence(self) -> str:
        """Return a sentence that explains the scale code."""
        if self.place is None:
            return f"{self.rule}."
        about = f"the largest magnitude is {number(self.maximum)} (element {self.place}); "
        about += f"{self.divided} = {number(self.quotient)} "
        if self.above is None:
            return f"{about}is beyond the largest scale, so the scale is the largest: {self.named(self.code)}."
        if self.fraction == 0:
            return f"{about}is a scale; {self.rule}: {self.named(self.code)}."
        between = f"lies between {self.named(self.below)} and {self.named(self.above)}"
        at = f"at {fraction_text(self.fraction or Fraction(0))} of the gap"
        return f"{about}{between}, {at}; {self.rule}: {self.named(self.code)}."


def _float_scale_steps(task: Task, values: list[float], tensor: Fraction, code: int) -> FloatScaleSteps:
    """Return the steps that lead to the scale code `code`.

    The function computes the steps in exact rationals from the values of elements and scales. If
    the steps lead to another code, the function raises AssertionError.
    """
    scale, rule, largest = task.format.scale, task.scale_rule, Fraction(task.element.max)
    assert isinstance(rule, FloatScaleRule)
    place, maximum, why = _decisive(task, values)
    if place is None:
        return FloatScaleSteps(task, None, maximum, tensor, Fraction(0), 0, None, None, why, code)
    quotient, chosen = maximum / (largest * tensor), ""
    if rule.error_power:
        six, four = _rounded(scale, quotient, rule)[0], _rounded(scale, quotient * Fraction(3, 2), rule)[0]
        numbers = [Fraction(v) for v in values if math.isfinite(v)]
        errors = [_error(task, numbers, Fraction(scale.value(c)) * tensor, rule.error_power) for c in (six, four)]
        takes_four = errors[1] < errors[0]
        what = "absolute errors" if rule.error_power == 1 else "squared errors"
        how = f"the sum of {what} is {number(errors[1])} with maximum 4 and {number(errors[0])} with maximum 6"
        chosen = f" (four over six maps the maximum to {'4' if takes_four else '6'}: {how})"
        quotient *= Fraction(3, 2) if takes_four else 1
    found, below, above, fraction, why = _rounded(scale, quotient, rule)
    if found != code:
        raise AssertionError(f"explanation {why!r} gives the code {found}, but the definition gives {code}")
    return FloatScaleSteps(task, place, maximum, tensor, quotient, below, above, fraction, why + chosen, code)


def _rounded(
    scale: ScaleFormat, quotient: Fraction, rule: FloatScaleRule
) -> tuple[int, int, int | None, Fraction | None, str]:
    """Return the code to which the quotient is rounded, and the reasons for it.

    The reasons are the codes below and above, the quotient's position between them, and the rule.
    """
    low, high = 0, scale.max_code + 1
    while high - low > 1:  # bisection, since larger codes have larger values
        middle = (low + high) // 2
        low, high = (middle, high) if Fraction(scale.value(middle)) <= quotient else (low, middle)
    here = Fraction(scale.value(low))
    if low == scale.max_code:
        beyond = quotient > here
        return low, low, None if beyond else low, Fraction(0), "it is the largest scale" if not beyond else "saturates"
    fraction = (quotient - here) / (Fraction(scale.value(low + 1)) - here)
    if fraction == 0:
        return low, low, low + 1, fraction, "it stays"
    if rule.rounds_up:
        return low + 1, low, low + 1, fraction, "rceil rounds to the one above"
    half = Fraction(1, 2)
    if fraction == half:
        return low + low % 2, low, low + 1, fraction, "a tie, which rounds to the even code"
    return low + (fraction > half), low, low + 1, fraction, "nearest rounds to the nearer one"


def _error(task: Task, numbers: list[Fraction], factor: Fraction, power: int) -> Fraction:
    """Return the sum of abs(error)**power if numbers are rounded to nearest at scale `factor`."""
    grid = [Fraction(task.element.value(code)) for code in range(task.element.max_code + 1)]
    total = Fraction(0)
    for x in numbers:
        y = abs(x) / factor if factor else Fraction(0)
        code = min(range(len(grid)), key=lambda c: (abs(grid[c] - y), c % 2))
        total += abs(abs(x) - grid[code] * factor) ** power
    return total


@dataclass(frozen=True)
class Neighbour:
    """The grid value below or above a number, and its code (None beyond the largest value)."""

    code: int | None
    value: Fraction


@dataclass(frozen=True)
class ElementSteps:
    """The steps from one number to an element code."""

    element: ElementFormat
    #: The number; its divisor (scale * tensor scale, or the scale alone); the divisor in words.
    x: float
    factor: Fraction
    divisor: str
    #: The magnitude that is rounded, and its neighbours in the grid of magnitudes. If nothing is
    #: rounded (NaN, infinity, a scale of zero), `magnitude`, `below` and `above` are None.
    magnitude: Fraction | None
    below: Neighbour | None
    above: Neighbour | None
    #: The position of the magnitude between its neighbours: 0 at `below`, 1 at `above`.
    fraction: Fraction | None
    rule: str
    code: int

    @property
    def negative(self) -> bool:
        return math.copysign(1, self.x) < 0

    @property
    def value(self) -> float:
        return self.element.value(self.code)

    @property
    def is_tie(self) -> bool:
        return self.fraction == Fraction(1, 2)

    def sentence(self) -> str:
        """Return a sentence that names the rounded number, its neighbours and the rounding rule."""
        if self.magnitude is None or self.below is None or self.above is None:
            return f"{self.rule}."
        scaled = f" / {self.divisor} = {number(self.signed)}" if self.factor != 1 else ""
        if self.fraction == 0:
            return f"{number(self.x)}{scaled} {self.rule}."
        return (
            f"{number(self.x)}{scaled} lies between {self._named(self.below)} and {self._named(self.above)}, at "
            f"{fraction_text(self.fraction or Fraction(0))} of the gap; {self.rule}."
        )

    @property
    def signed(self) -> Fraction:
        magnitude = self.magnitude or Fraction(0)
        return -magnitude if self.negative else magnitude

    def value_of(self, neighbour: Neighbour) -> Fraction:
        """Return the value of a neighbour, with the sign of the rounded number."""
        return -neighbour.value if self.negative else neighbour.value

    def _named(self, neighbour: Neighbour) -> str:
        value = number(self.value_of(neighbour))
        if neighbour.code is None:
            return f"{value} (beyond the largest value)"
        digits = (self.element.bits + 3) // 4
        return f"{value} (0x{neighbour.code:0{digits}X})"


@dataclass(frozen=True)
class ScaleSteps:
    """The steps from the values of a block to its scale code."""

    #: The index of the element with the largest finite magnitude, and that magnitude. The index is
    #: None if the block is NaN or has no nonzero finite number, because then no element decides the
    #: scale.
    place: int | None
    maximum: Fraction
    #: maximum = fraction * 2**exponent.
    exponent: int
    fraction: Fraction
    emax: int
    rule: str
    #: The exponent that the rule gives, and the E8M0 code of that exponent after clipping.
    wanted: int
    code: int

    @property
    def amount(self) -> str:
        """The maximum as "number = fraction * 2^exponent"; without "=" if both sides are equal."""
        shown, product = number(self.maximum), f"{number(self.fraction)} * 2^{self.exponent}"
        return shown if shown == product else f"{shown} = {product}"

    def sentence(self) -> str:
        """Return a sentence that explains the scale code."""
        if self.place is None or self.code == E8M0.nan_code:
            return f"{self.rule}."
        limited = f", limited to {self.code - E8M0.bias}" if self.wanted != self.code - E8M0.bias else ""
        return (
            f"the largest magnitude is {self.amount} (element {self.place}), emax is {self.emax}; {self.rule}, so "
            f"the exponent is {self.wanted}{limited}, code 0x{self.code:02X}."
        )


@dataclass(frozen=True)
class BlockSteps:
    """The steps from a block to its scale and its element codes."""

    task: Task
    scale: ScaleSteps | FloatScaleSteps
    elements: list[ElementSteps] = field(default_factory=list)
    #: The tensor scale, if the format has one.
    tensor_scale: float | None = None


def explain_element(
    task: Task, bits: int, scale_code: int | None = None, random: int = 0, tensor: float | None = None
) -> ElementSteps:
    """Return the steps from a number's bit pattern to an element code.

    The scale is 1 unless a scale code is given.
    """
    e, source = task.element, task.source
    column = np.array([[bits]], code_dtype(source.bits))
    x = float(as_floats(column, source)[0, 0])
    if math.isnan(x):  # converting a NaN to float may lose the NaN's sign
        x = math.copysign(x, -1 if bits >> (source.bits - 1) else 1)
    words = np.array([[random]], np.uint32) if task.rounding.is_stochastic else None
    held = None if scale_code is None else np.array([[scale_code]])
    of_tensor = None if tensor is None or held is None else np.array([[tensor]], np.float32)
    code = int(element_codes(task, column, held, words, of_tensor)[0, 0])
    scale = 1.0 if scale_code is None else task.format.scale.value(scale_code)
    factor, divisor = _factor(task, scale, scale_code, tensor)
    if math.isnan(scale):
        rule = "the scale is NaN, so the element code is 0 and means nothing"
        return ElementSteps(e, x, factor, divisor, None, None, None, None, rule, code)
    saturates = task.overflow.of(e.specials).saturates
    if not math.isfinite(x):
        if math.isnan(x):
            rule = "NaN becomes the NaN code" if e.nan_code is not None else "NaN has no code in this element"
        else:
            rule = "infinity saturates" if saturates else "infinity becomes infinity, or NaN if the element has none"
        return ElementSteps(e, x, factor, divisor, None, None, None, None, rule, code)
    if factor == 0 or math.isinf(scale):
        rule = f"the scale is {'infinite' if factor else 'zero'}, so the element is zero"
        return ElementSteps(e, x, factor, divisor, None, None, None, None, rule, code)
    y, grid = abs(Fraction(x)) / factor, [Fraction(v) for v in magnitudes(e).tolist()]
    below, above = _neighbours(e, grid, y, x)
    delta = (y - below.value) / (above.value - below.value)
    rule, away = _rounding_rule(task, math.copysign(1, x) < 0, _parity(e, below.value), delta, random)
    rounded = above.value if away else below.value
    if rounded > grid[-1]:
        stays = limits(task.rounding)[math.copysign(1, x) < 0]
        sign = -1 if math.copysign(1, x) < 0 else 1
        beyond_it = f"beyond the largest, {number(sign * grid[-1])}"
        # If delta is 0 here, the number needs no rounding, but is beyond the largest value.
        rule = f"is {beyond_it}" if delta == 0 else f"{rule}; {number(sign * rounded)} is {beyond_it}"
        if saturates:
            rule += ": it saturates"
        elif stays:
            rule += f", and {task.rounding} gives the largest value"
        else:
            rule += ": it overflows to " + ("infinity" if e.specials == "ieee" else "NaN")
    steps = ElementSteps(e, x, factor, divisor, y, below, above, delta, rule, code)
    want = min(rounded, grid[-1])
    if math.isfinite(steps.value) and abs(Fraction(steps.value)) != want:
        raise AssertionError(f"explanation {rule!r} gives {want}, but the definition gives {steps.value}")
    return steps


def _neighbours(e: ElementFormat, grid: list[Fraction], y: Fraction, x: float) -> tuple[Neighbour, Neighbour]:
    """Return the two neighbours of a magnitude y in the grid of element magnitudes.

    The grid is extended beyond its largest value. The codes of the neighbours have the sign of x.
    """
    step = grid[-1] - grid[-2] if e.mantissa_bits else grid[-1]
    if y >= grid[-1] + step:
        gap = max(step, Fraction(2) ** (reference_exponent(y) - e.mantissa_bits))
        low = y // gap * gap
        return Neighbour(None, low), Neighbour(None, low + gap)
    place = max(i for i, v in enumerate(grid) if v <= y)
    below = Neighbour(_code(e, place, x), grid[place])
    if place + 1 == len(grid):
        return below, Neighbour(None, grid[-1] + step)
    return below, Neighbour(_code(e, place + 1, x), grid[place + 1])


def _factor(task: Task, scale: float, code: int | None, tensor: float | None) -> tuple[Fraction, str]:
    """Return the number by which elements are divided, as an exact fraction and in words.

    If the scale is infinite or NaN, elements are not divided. The fraction is then computed as if
    the scale were 1.
    """
    factor = Fraction(scale) if math.isfinite(scale) else Fraction(1)
    if task.format.scale.power_of_two:
        return factor, f"2^{(E8M0.bias if code is None else code) - E8M0.bias}"
    if tensor is None or code is None:
        text = number(scale)
        return factor, f"({text})" if "*" in text else text
    return factor * Fraction(tensor), f"({number(scale)} * {number(tensor)})"


def _code(e: ElementFormat, place: int, x: float) -> int:
    """Return the code of the grid value at index `place`, with the sign of x."""
    if e.integer:
        return (-place) % (1 << e.bits) if math.copysign(1, x) < 0 else place
    return place + ((1 << (e.bits - 1)) if math.copysign(1, x) < 0 else 0)


def _parity(e: ElementFormat, value: Fraction) -> int:
    """Return 0 if the code of a magnitude is even, and 1 if it is odd.

    Codes are continued beyond the largest value.
    """
    exponent = max(reference_exponent(value), e.emin) if value else e.emin
    if e.integer:
        exponent = 0
    steps = value / Fraction(2) ** (exponent - e.mantissa_bits)
    return int((exponent - (0 if e.integer else e.emin)) * 2**e.mantissa_bits + steps) % 2


def _rounding_rule(task: Task, negative: bool, parity: int, delta: Fraction, random: int) -> tuple[str, bool]:
    """Return the rounding rule in words, and True if it rounds the number away from zero."""
    if delta == 0:
        return "is representable and stays", False
    mode, r, half = task.rounding, task.sr_bits, Fraction(1, 2)
    away = numbers.goes_away(mode, negative, parity, delta, random % 2**r, r)
    end, taken = "away from" if away else "toward", "even" if away == bool(parity) else "odd"
    if mode.is_stochastic:
        added = f"{math.floor(delta * 2**r)} + {random % 2**r} {'>=' if away else '<'} 2^{r}"
        return f"{mode} adds R to the first {r} fraction bits, {added}, so the result is rounded {end} zero", away
    ends = [numbers.goes_away(mode, negative, parity, each, 0, r) for each in (half / 2, 3 * half / 2)]
    is_nearest, by_parity = ends == [False, True], numbers.goes_away(mode, negative, 1 - parity, delta, 0, r) != away
    by_sign = numbers.goes_away(mode, not negative, parity, delta, 0, r) != away
    if is_nearest and delta != half:
        return f"{mode} rounds to the nearer one", away
    if is_nearest and by_parity:
        chosen = f"here the one {'away from' if away else 'nearer'} zero"
        return f"a tie, which {mode} rounds to the {taken} code, {chosen}", away
    if is_nearest:
        return f"a tie, which {mode} rounds {end} zero", away
    if by_parity:
        return f"{mode} rounds to the neighbour whose code is {taken}", away
    return f"{mode} rounds {('down' if away == negative else 'up') if by_sign else f'{end} zero'}", away


def explain_scale(task: Task, bits: Any, tensor: float | None = None) -> ScaleSteps | FloatScaleSteps:
    """Return the steps from a block's bit patterns to its scale code.

    `tensor` is the tensor scale, or None if the format has no tensor scale.
    """
    column = np.asarray(bits).reshape(1, -1)
    values = [float(v) for v in as_floats(column, task.source)[0]]
    inputs = {"x": column}
    if task.has_tensor:
        inputs["tensor_scale"] = np.array([[tensor]], np.float32).view(np.uint32)
    code = int(right_scales(_of_length(task, len(values)), inputs)[0, 0])
    if not task.format.scale.power_of_two:
        return _float_scale_steps(task, values, Fraction(1 if tensor is None else tensor), code)
    assert isinstance(task.scale_rule, ScaleRule)
    e, (place, maximum, why) = task.element, _decisive(task, values)
    if place is None:
        wanted = 0 if code == E8M0.nan_code else -E8M0.bias
        return ScaleSteps(None, maximum, 0, Fraction(1), e.emax, why, wanted, code)
    exponent = reference_exponent(maximum)
    f = maximum / Fraction(2) ** exponent
    rule, wanted = _scale_rule(task.scale_rule, e, f, exponent)
    if code != min(max(wanted, -127), 127) + E8M0.bias:
        raise AssertionError(f"explanation {rule!r} gives the exponent {wanted}, but the definition gives code {code}")
    return ScaleSteps(place, maximum, exponent, f, e.emax, rule, wanted, code)


def _decisive(task: Task, values: list[float]) -> tuple[int | None, Fraction, str]:
    """Return the index and magnitude of the element that decides the scale, and a remark.

    The element with the largest finite magnitude decides the scale. No element decides the scale if
    that magnitude is 0, or if a NaN or an infinity makes the whole block NaN. In these cases the
    index is None and the remark says why; otherwise the remark is empty.
    """
    finite = [(abs(Fraction(v)), -i) for i, v in enumerate(values) if math.isfinite(v)]
    maximum, minus_place = max(finite, default=(Fraction(0), 0))
    bad = next((i for i, v in enumerate(values) if not math.isfinite(v)), None)
    if bad is not None and task.nonfinite.by_block:
        nan = f"code 0x{task.format.scale.nan_code:02X}, element codes 0"
        return None, maximum, f"element {bad} is {values[bad]}, so the block is NaN: {nan}"
    if maximum == 0:
        zero = "code 0" if task.format.scale.power_of_two else "the scale is 0"
        return None, maximum, f"no nonzero finite element: {zero}"
    return -minus_place, maximum, ""


def _scale_rule(rule: ScaleRule, e: ElementFormat, f: Fraction, exponent: int) -> tuple[str, int]:
    """Return the rule in words, and the scale's exponent for a maximum of f times 2**exponent."""
    base, limit = exponent - e.emax, Fraction(threshold(e, rule))
    match rule:
        case ScaleRule.FLOOR:
            return "floor takes E - emax", base
        case ScaleRule.CEIL | ScaleRule.RCEIL:
            more, because = f > limit, " + 1 because f >" if f > limit else " because f <="
        case ScaleRule.EVEN | ScaleRule.HALF_UP:
            more, because = f >= limit, " + 1 because f >=" if f >= limit else " because f <"
        case ScaleRule.FLOOR_PLUS_ONE:
            return "floor_plus_one takes E - emax + 1", base + 1
        case _:
            assert_never(rule)
    return f"{rule} takes E - emax{because} {number(limit)}", base + more


def explain_block(task: Task, bits: Any, random: Any = None, tensor: float | None = None) -> BlockSteps:
    """Return the steps that quantize a block; check that the reference gives the same codes.

    If `tensor` is None, the tensor scale is computed from this block alone.
    """
    flat = np.asarray(bits).ravel()
    if task.has_tensor and tensor is None:
        tensor = float(tensor_scales(with_tensor(task, {"x": flat.reshape(1, -1)}))[0, 0])  # type: ignore[index]
    scale = explain_scale(task, flat, tensor)
    words = np.zeros(len(flat), np.uint32) if random is None else np.asarray(random).ravel()
    elements = [explain_element(task, int(b), scale.code, int(w), tensor) for b, w in zip(flat, words, strict=True)]
    fmt = _of_length(task, len(flat)).format
    q = reference.quantize(
        as_floats(flat, task.source), fmt, rounding=task.rounding, scale_rule=task.scale_rule, overflow=task.overflow,
        nonfinite=task.nonfinite, random_bits=words if task.rounding.is_stochastic else None, sr_bits=task.sr_bits,
        tensor_scale=None if tensor is None else np.array(tensor, np.float32),
    )  # fmt: skip
    if unsigned(q.scales).tolist() != [scale.code] or q.codes.tolist() != [step.code for step in elements]:
        raise AssertionError("the explanation differs from the reference")
    return BlockSteps(task, scale, elements, tensor)


def _of_length(task: Task, length: int) -> Task:
    """Return the task with its block length changed to `length`."""
    fmt = task.format
    return replace(task, format=MXFormat(task.element, fmt.scale, max(1, length), fmt.name, fmt.tensor_scale))

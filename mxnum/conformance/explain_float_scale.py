"""Explain how a block gets a scale that is a float: the quotient, its neighbours among the scales, and the rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mxnum.conformance.exact_text import fraction_text, number
from mxnum.conformance.task import Task
from mxnum.formats import ScaleFormat
from mxnum.modes import FloatScaleRule


@dataclass(frozen=True)
class FloatScaleSteps:
    """The steps from the values of a block to the code of its scale."""

    task: Task
    #: The index of the largest finite magnitude (None if there is no nonzero finite one), and its
    #: value.
    place: int | None
    maximum: Fraction
    #: The tensor scale; 1 without one.
    tensor_scale: Fraction
    #: The quotient that is rounded: the maximum over the largest element and the tensor scale. The
    #: rule four over six may take 3/2 of it.
    quotient: Fraction
    #: The codes of the scales around the quotient (`above` is None past the largest), and the
    #: position of the quotient between them.
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
        """The division that gives the quotient, in words."""
        largest = number(self.task.element.max)
        has_tensor = self.task.format.tensor_scale is not None
        return f"{number(self.maximum)} / {f'({largest} * {number(self.tensor_scale)})' if has_tensor else largest}"

    def named(self, code: int) -> str:
        """Return a scale and its code, as text."""
        return f"{number(self.scale.value(code))} (0x{code:0{(self.task.scale_bits + 3) // 4}X})"

    def sentence(self) -> str:
        """Return a sentence that says how the code comes about."""
        if self.place is None:
            return f"{self.rule}."
        about = f"the largest magnitude is {number(self.maximum)} (element {self.place}); "
        about += f"{self.divided} = {number(self.quotient)} "
        if self.above is None:
            return f"{about}is beyond the largest scale, which is taken: {self.named(self.code)}."
        if self.fraction == 0:
            return f"{about}is a scale; {self.rule}: {self.named(self.code)}."
        between = f"lies between {self.named(self.below)} and {self.named(self.above)}"
        at = f"at {fraction_text(self.fraction or Fraction(0))} of the gap"
        return f"{about}{between}, {at}; {self.rule}: {self.named(self.code)}."


def float_scale_steps(task: Task, values: list[float], tensor: Fraction, code: int) -> FloatScaleSteps:
    """Return the steps to a known code, derived from the values of the formats. Raise if they give another code."""
    scale, rule, largest = task.format.scale, task.scale_rule, Fraction(task.element.max)
    assert scale.number is not None
    assert isinstance(rule, FloatScaleRule)
    finite = [(abs(Fraction(v)), -i) for i, v in enumerate(values) if math.isfinite(v)]
    maximum, minus_place = max(finite, default=(Fraction(0), 0))
    bad = next((i for i, v in enumerate(values) if not math.isfinite(v)), None)
    if bad is not None and task.nonfinite.by_block:
        why = f"element {bad} is {values[bad]}, so the block is NaN: code 0x{scale.nan_code:02X}, element codes 0"
        return FloatScaleSteps(task, None, maximum, tensor, Fraction(0), 0, None, None, why, code)
    if maximum == 0:
        why = "no nonzero finite element: the scale is 0"
        return FloatScaleSteps(task, None, maximum, tensor, Fraction(0), 0, None, None, why, code)
    quotient, chosen = maximum / (largest * tensor), ""
    if rule.error_power:
        six, four = _rounded(scale, quotient, rule)[0], _rounded(scale, quotient * Fraction(3, 2), rule)[0]
        numbers = [Fraction(v) for v in values if math.isfinite(v)]
        errors = [_error(task, numbers, Fraction(scale.value(c)) * tensor, rule.error_power) for c in (six, four)]
        takes_four = errors[1] < errors[0]
        what = "absolute errors" if rule.error_power == 1 else "squared errors"
        how = f"its sum of {what} is {number(errors[1])} beside {number(errors[0])}"
        chosen = f", after {'4' if takes_four else '6'} was made of the maximum: for 4 {how} for 6"
        quotient *= Fraction(3, 2) if takes_four else 1
    found, below, above, fraction, why = _rounded(scale, quotient, rule)
    if found != code:
        raise AssertionError(f"explanation {why!r} gives {found}, the kernel code {code}")
    return FloatScaleSteps(task, -minus_place, maximum, tensor, quotient, below, above, fraction, why + chosen, code)


def _rounded(
    scale: ScaleFormat, quotient: Fraction, rule: FloatScaleRule
) -> tuple[int, int, int | None, Fraction | None, str]:
    """Return the code of a quotient, the codes around it, its position between them, and the rule in words."""
    low, high = 0, scale.max_code + 1
    while high - low > 1:  # codes are in the order of their values
        middle = (low + high) // 2
        low, high = (middle, high) if Fraction(scale.value(middle)) <= quotient else (low, middle)
    here = Fraction(scale.value(low))
    if low == scale.max_code:
        beyond = quotient > here
        return low, low, None if beyond else low, Fraction(0), "is the largest scale" if not beyond else "saturates"
    fraction = (quotient - here) / (Fraction(scale.value(low + 1)) - here)
    if fraction == 0:
        return low, low, low + 1, fraction, "it stays"
    if rule.rounds_up:
        return low + 1, low, low + 1, fraction, "rceil takes the one above"
    half = Fraction(1, 2)
    if fraction == half:
        return low + low % 2, low, low + 1, fraction, "a tie, which goes to the even code"
    return low + (fraction > half), low, low + 1, fraction, "nearest takes the nearer one"


def _error(task: Task, numbers: list[Fraction], factor: Fraction, power: int) -> Fraction:
    """Return the sum of the errors, to that power, of numbers rounded to nearest even under a factor."""
    grid = [Fraction(task.element.value(code)) for code in range(task.element.max_code + 1)]
    total = Fraction(0)
    for x in numbers:
        y = abs(x) / factor if factor else Fraction(0)
        code = min(range(len(grid)), key=lambda c: (abs(grid[c] - y), c % 2))
        total += abs(abs(x) - grid[code] * factor) ** power
    return total

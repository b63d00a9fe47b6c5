"""The long-division machine, which runs the definition's division on integers of any size.

If remainders were formulas, a solver would have to try both values of each digit of a quotient.
Therefore this machine replaces each remainder by a new unknown. The proof that a remainder lies in
[0, divisor) uses only the previous remainder and a linear equation. A digit is stored with the
product digit * divisor, so the product of quotient and divisor stays linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

from mxnum.definition import word

#: Seconds that a solver may take for one question.
LIMIT = 20


@dataclass
class Division:
    """The state of an execution: the divisor, known facts, and goals that were not proved."""

    divisor: z3.ArithRef
    known: list[z3.BoolRef]
    problems: list[str] = field(default_factory=list)
    remainders: list[z3.ArithRef] = field(default_factory=list)
    digits: list[Digit] = field(default_factory=list)

    def cut(self, value: z3.ArithRef) -> z3.ArithRef:
        """Check that a remainder is in [0, divisor), and return a new unknown that equals it."""
        name = z3.Int(f"remainder{len(self.remainders)}")
        nearby = [*self.known[:2], *self._of_the_last()]
        self.require(z3.And(value >= 0, value < self.divisor), nearby, f"remainder {len(self.remainders)}")
        self.remainders.append(name)
        self.known += [name == value, name >= 0, name < self.divisor]
        return name

    def _of_the_last(self) -> list[z3.BoolRef]:
        """Return the known facts about the last digit and the last remainder."""
        return self.known[-6:]

    def require(self, goal: z3.BoolRef, known: list[z3.BoolRef], what: str) -> None:
        """Record a problem unless the known facts imply the goal."""
        solver = z3.Solver()
        solver.set("timeout", 1000 * LIMIT)
        solver.add(*known, z3.Not(goal))
        if solver.check() != z3.unsat:
            self.problems.append(what)


class Whole:
    """A symbolic integer. For a quotient, `times` is the product of quotient and divisor."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, division: Division, value: Any, times: Any = None) -> None:
        self.division, self.value, self.times = division, value, times

    def __lshift__(self, amount: Any) -> Whole:
        if isinstance(amount, Digit):
            return Whole(self.division, z3.If(amount.value == 0, self.value, 2 * self.value))
        times = None if self.times is None else self.times * (1 << amount)
        return Whole(self.division, self.value * (1 << amount), times)

    def __sub__(self, other: Whole | int) -> Whole:
        if isinstance(other, int):
            return Whole(self.division, self.value - other)
        return Whole(self.division, self.division.cut(self.value - other.value))

    def __rsub__(self, other: int) -> Whole:
        return Whole(self.division, other - self.value)

    def __lt__(self, other: Whole) -> Answer:
        return Answer(self.division, self.value < other.value)

    def __eq__(self, other: Any) -> Answer:  # type: ignore[override]
        return Answer(self.division, self.value == other, self)


class Digit(Whole):
    """A binary digit, 0 or 1."""

    def __init__(self, division: Division, is_one: z3.BoolRef) -> None:
        count = len(division.digits)
        super().__init__(division, z3.Int(f"digit{count}"), z3.Int(f"digit{count}_times_divisor"))
        of_zero, of_one = (z3.And(self.value == i, self.times == i * division.divisor) for i in (0, 1))
        division.known += [z3.If(is_one, of_one, of_zero), z3.Or(of_zero, of_one)]
        division.digits.append(self)

    def __ror__(self, whole: Whole | int) -> Whole:
        """Return `whole`, an even number, with its last binary digit set to this digit."""
        value, times = (whole, whole * self.division.divisor) if isinstance(whole, int) else (whole.value, whole.times)
        return Whole(self.division, value + self.value, times + self.times)

    def __lshift__(self, amount: int) -> Whole:
        return Whole(self.division, self.value * (1 << amount), self.times * (1 << amount))


@dataclass
class Answer:
    """The outcome of a comparison. For ==, `of` is the left operand; for <, `of` is None."""

    division: Division
    holds: z3.BoolRef
    of: Whole | None = None


def _select(answer: Answer, if_true: Any, if_false: Any) -> Any:
    both = if_true, if_false
    if not any(isinstance(one, Whole) for one in both) and sorted(both) == [0, 1]:
        return Digit(answer.division, answer.holds if both == (1, 0) else z3.Not(answer.holds))
    if isinstance(answer.of, Digit) and if_true == 0 and if_false.value is answer.division.divisor:
        return Whole(answer.division, answer.of.times)
    a, b = (whole.value if isinstance(whole, Whole) else whole for whole in both)
    return Whole(answer.division, z3.If(answer.holds, a, b), getattr(if_false, "times", None))


word.SELECT[Answer] = _select


def divide(function: Callable[..., tuple[Any, Any]], widths: tuple[int, int], digits: int) -> list[str]:
    """Prove a division of normalized numbers; return the goals that are not proved.

    `widths` are the positions of the leading bits of dividend and divisor. `function` takes the
    dividend and the divisor and returns (exponent, significand). The significand without its last
    bit must be the greatest integer q with q * divisor <= shifted dividend. The shift is `digits`
    binary digits, and one more if the quotient is below 1. The last bit of the significand must be
    1 if there is a remainder, and 0 if there is none.
    """
    a, d = z3.Ints("dividend divisor")
    ranges = [z3.And(n >= 1 << w, n < 2 << w) for n, w in ((a, widths[0]), (d, widths[1]))]
    common = max(widths)
    moved, divisor = a * (1 << (common - widths[0])), z3.Int("common_divisor")
    division = Division(divisor, [divisor == d * (1 << (common - widths[1])), z3.And(*ranges)])
    exponent, significand = function(_Positive(division, a), _Divisor(division, d))
    rest, is_less = division.digits[-1], division.digits[0]
    quotient, product = (significand.value - rest.value), (significand.times - rest.times)
    exact = z3.If(is_less.value == 0, moved, 2 * moved) * (1 << (digits + 1))
    last = division.remainders[-1]
    for goal, what in (
        (is_less.value == z3.If(moved < divisor, 1, 0), "which is less"),
        (exponent.value == -is_less.value, "the exponent"),
        (exact == product + 2 * last, "the digits"),
        (z3.And(last >= 0, last < divisor), "what is left"),
        (rest.value == z3.If(last == 0, 0, 1), "whether anything is left"),
        (z3.And(quotient >= 2 << digits, quotient < 4 << digits), "the leading digit"),
    ):
        division.require(goal, division.known, what)
    some = z3.Solver()
    some.add(*division.known, a == (2 << widths[0]) - 1, d == 1 << widths[1])
    if some.check() != z3.sat:
        division.problems.append("the premises are not shown to be satisfiable")
    return division.problems


class _Positive(Whole):
    """A normalized number, which is never zero."""

    def __eq__(self, other: Any) -> Any:
        return False if other == 0 else NotImplemented


class _Divisor(_Positive):
    """The divisor that `divide` passes to the checked function.

    The checked function shifts this divisor left to align it with the dividend. The shifted divisor
    is `Division.divisor`.
    """

    def __lshift__(self, amount: Any) -> Whole:
        value = self.division.divisor
        self.division.require(value == self.value * (1 << amount), self.division.known, "the divisor's place")
        return Whole(self.division, value)

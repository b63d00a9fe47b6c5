"""Define number systems that evaluate a closed form: sympy, the balls of arb, intervals of mpmath.

A number system that evaluates a closed form is called an *arithmetic* here. `closed_form` computes
only with ``+ - * /`` and the methods of `Arithmetic`, so it runs in each arithmetic. sympy gives a
formula, arb encloses the value of the formula, and mpmath encloses the value independently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from mxnum import errors


@dataclass(frozen=True)
class Enclosure:
    """A proved interval: the true value lies between the exact rationals `lower` and `upper`."""

    lower: Fraction
    upper: Fraction

    @property
    def midpoint(self) -> float:
        return float((self.lower + self.upper) / 2)

    @property
    def radius(self) -> float:
        """Half the width, rounded up to a float."""
        return math.nextafter(float((self.upper - self.lower) / 2), math.inf)

    def __contains__(self, value: float | Fraction) -> bool:
        return self.lower <= Fraction(value) <= self.upper

    def __repr__(self) -> str:
        return f"<Enclosure {self}>"

    def __str__(self) -> str:
        return f"{self.midpoint:.17g} +/- {self.radius:.2g}"


class Arithmetic(Protocol):
    """The functions that a closed form needs besides + - * /."""

    def number(self, value: Fraction) -> Any:
        """Return an exact rational as a number of the arithmetic."""

    def erf(self, x: Any) -> Any:
        """Return the error function of x."""

    def exp(self, x: Any) -> Any:
        """Return the exponential of x."""

    def log(self, x: Any) -> Any:
        """Return the natural logarithm of x."""

    def sqrt(self, x: Any) -> Any:
        """Return the square root of x."""

    def pi(self) -> Any:
        """Return pi."""

    def power(self, x: Any, n: int) -> Any:
        """Return x ** n for n >= 1, also if x is an interval that contains zero."""

    def inverse_normal(self, mu: Any, sigma: Any, lower: Fraction, upper: Fraction) -> Any:
        """Return the integral from `lower` to `upper` of 1/x times the density of N(mu, sigma**2).

        The interval [lower, upper] must not contain 0.
        """


def _squarings(x: Any, n: int) -> Any:
    """Return x ** n, computed by multiplications only.

    The libraries' power functions use the logarithm, which is undefined for an interval that
    contains zero.
    """
    if n == 1:
        return x
    half = _squarings(x, n // 2)
    return half * half * x if n % 2 else half * half


class SympyArithmetic:
    """The arithmetic whose numbers are sympy expressions.

    In this arithmetic, `closed_form` returns a formula. The formula contains the integral of
    density / x as an unevaluated `Integral`, which ``evalf`` computes.
    """

    def __init__(self) -> None:
        import sympy

        self._sympy = sympy
        self.variable = sympy.Symbol("x", real=True)

    def number(self, value: Fraction) -> Any:
        return self._sympy.Rational(value)

    def erf(self, x: Any) -> Any:
        return self._sympy.erf(x)

    def exp(self, x: Any) -> Any:
        return self._sympy.exp(x)

    def log(self, x: Any) -> Any:
        return self._sympy.log(x)

    def sqrt(self, x: Any) -> Any:
        return self._sympy.sqrt(x)

    def pi(self) -> Any:
        return self._sympy.pi

    def power(self, x: Any, n: int) -> Any:
        return x**n

    def inverse_normal(self, mu: Any, sigma: Any, lower: Fraction, upper: Fraction) -> Any:
        x, sympy = self.variable, self._sympy
        density = sympy.exp(-((x - mu) ** 2) / (2 * sigma**2)) / (sigma * sympy.sqrt(2 * sympy.pi))
        return sympy.Integral(density / x, (x, self.number(lower), self.number(upper)))


class ArbArithmetic:
    """The arithmetic whose numbers are arb balls of python-flint. A ball encloses the true value.

    Use this arithmetic inside ``with arithmetic.precision():``.
    """

    def __init__(self, prec: int) -> None:
        self._flint = errors.package("flint", "proofs")
        self.prec = prec

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Set flint's precision to `prec` during a `with` statement."""
        before = self._flint.ctx.prec
        self._flint.ctx.prec = self.prec
        try:
            yield
        finally:
            self._flint.ctx.prec = before

    def number(self, value: Fraction) -> Any:
        return self._flint.arb(self._flint.fmpq(value.numerator, value.denominator))

    def erf(self, x: Any) -> Any:
        return x.erf()

    def exp(self, x: Any) -> Any:
        return x.exp()

    def log(self, x: Any) -> Any:
        return x.log()

    def sqrt(self, x: Any) -> Any:
        return x.sqrt()

    def pi(self) -> Any:
        return self._flint.arb.pi()

    def power(self, x: Any, n: int) -> Any:
        return _squarings(x, n)

    def inverse_normal(self, mu: Any, sigma: Any, lower: Fraction, upper: Fraction) -> Any:
        acb = self._flint.acb
        rate, scale = -1 / (2 * sigma**2), 1 / (sigma * (2 * self.pi()).sqrt())

        def integrand(z: Any, _: bool) -> Any:  # the second argument matters only for functions with branch cuts
            return (rate * (z - mu) ** 2).exp() * scale / z

        return acb.integral(integrand, acb(self.number(lower)), acb(self.number(upper))).real

    def bound(self, x: Any) -> Any:
        """Return an exact number that is at least abs(x)."""
        return x.abs_upper()

    def hull(self, x: Any, slack: Any) -> Enclosure:
        """Return the interval of x, widened on both sides by the magnitude of `slack`."""
        lower, upper = (x - abs(slack)).lower(), (x + abs(slack)).upper()
        ends = [Fraction(int(end.fmpq().p), int(end.fmpq().q)) for end in (lower, upper)]
        return Enclosure(*ends)


class IntervalArithmetic:
    """The arithmetic whose numbers are intervals of mpmath, independent of flint.

    This arithmetic computes erf and the integral of density / x as series with a bounded remainder.
    """

    def __init__(self, prec: int) -> None:
        from mpmath.ctx_iv import MPIntervalContext

        self._iv = MPIntervalContext()
        self._iv.prec = self.prec = prec

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Do nothing: unlike flint, mpmath stores the precision in this object, not globally."""
        yield

    def number(self, value: Fraction) -> Any:
        return self._iv.mpf(value.numerator) / value.denominator

    def exp(self, x: Any) -> Any:
        return self._iv.exp(x)

    def log(self, x: Any) -> Any:
        return self._iv.log(x)

    def sqrt(self, x: Any) -> Any:
        return self._iv.sqrt(x)

    def pi(self) -> Any:
        return self._iv.pi

    def power(self, x: Any, n: int) -> Any:
        return _squarings(x, n)

    def _around(self, x: Any, radius: Any) -> Any:
        return x + radius * self._iv.mpf([-1, 1])

    def erf(self, x: Any) -> Any:
        """Return erf(x), as exp(-x*x) * 2/sqrt(pi) * sum of 2**n x**(2n+1) / (1*3*...*(2n+1)).

        All terms have the same sign, and the ratio of successive terms is 2x*x/(2n+3).
        """
        square = x * x
        # If x > 1, then 1 - erf(x) lies between 0 and exp(-x*x). This bound is below 2**-prec if
        # x*x > 0.7 prec.
        if float(abs(x).a) ** 2 > 0.7 * self._iv.prec and float(abs(x).a) > 1:
            one = self._iv.mpf(1 if x.a > 0 else -1)
            return one - one * self.exp(-square) * self._iv.mpf([0, 1])
        largest = float(abs(square).b)
        term = total = x
        n = 0
        while True:
            n += 1
            term = term * (2 * square) / (2 * n + 1)
            total = total + term
            ratio = 2 * largest / (2 * n + 3)
            if ratio < 0.5 and float(abs(term).b) <= 2.0 ** -(self._iv.prec + 2) * (1e-300 + float(abs(total).a)):
                break
            if ratio < 0.5 and float(abs(term).b) == 0:
                break
        # The sum of the remaining terms is at most term * ratio / (1 - ratio) <= term.
        rest = abs(term).b
        return self._around(total, rest) * self.exp(-square) * 2 / self.sqrt(self.pi())

    def inverse_normal(self, mu: Any, sigma: Any, lower: Fraction, upper: Fraction) -> Any:
        """Return the integral of density / x, computed from a power series of 1/x.

        The series is 1/x = sum over n of (-1)**n (x-c)**n / c**(n+1), where c is the middle of the
        interval. A recurrence gives the moments of x - c.
        """
        if max(abs(lower), abs(upper)) > 2 * min(abs(lower), abs(upper)):
            middle = (lower + upper) / 2
            parts = ((lower, middle), (middle, upper))
            return sum((self.inverse_normal(mu, sigma, *part) for part in parts), self.number(Fraction(0)))
        c, half = (lower + upper) / 2, (upper - lower) / 2
        terms = math.ceil((self.prec + 4) / -math.log2(abs(half / c)))
        # A step n of the recurrence multiplies rounding errors by at most |mu - c| + sigma sqrt(n),
        # and divides them by c.
        spread = float(abs(mu - self.number(c)).b) + float(sigma.b) * math.sqrt(terms)
        growth = terms * math.log2(max(1.0, spread / abs(float(c))))
        before, self._iv.prec = self._iv.prec, self._iv.prec + math.ceil(growth)
        try:
            return self._series(mu, sigma, lower, upper, terms)
        finally:
            self._iv.prec = before

    def _series(self, mu: Any, sigma: Any, lower: Fraction, upper: Fraction, terms: int) -> Any:
        c, half = (lower + upper) / 2, (upper - lower) / 2
        r = abs(half / c)  # at most 1/3
        a, b = self.number(lower), self.number(upper)
        center, shift, variance = self.number(c), mu - self.number(c), sigma * sigma
        root = self.sqrt(2 * variance)

        def density(x: Any) -> Any:
            return self.exp(-((x - mu) ** 2) / (2 * variance)) / (sigma * self.sqrt(2 * self.pi()))

        mass = (self.erf((b - mu) / root) - self.erf((a - mu) / root)) / 2
        at_lower, at_upper = density(a), density(b)
        before, moment = self.number(Fraction(0)), mass
        total, sign, inverse = self.number(Fraction(0)), 1, 1 / center
        power_lower, power_upper = self.number(Fraction(1)), self.number(Fraction(1))
        for n in range(terms):
            total = total + sign * moment * inverse
            # Integration by parts gives E[(x-c)**(n+1)] from E[(x-c)**n] and E[(x-c)**(n-1)].
            edge = variance * (power_upper * at_upper - power_lower * at_lower)
            before, moment = moment, shift * moment + n * variance * before - edge
            power_lower, power_upper = power_lower * (a - center), power_upper * (b - center)
            sign, inverse = -sign, inverse / center
        rest = self.number(r**terms / (abs(c) * (1 - r))) * abs(mass)
        return self._around(total, abs(rest).b)

    def bound(self, x: Any) -> Any:
        """Return an exact number that is at least abs(x)."""
        return abs(x).b

    def hull(self, x: Any, slack: Any) -> Enclosure:
        """Return the interval of x, widened on both sides by the magnitude of `slack`."""
        wide = self._around(x, abs(slack).b)
        ends = []
        for end in (wide.a, wide.b):
            sign, mantissa, exponent, _ = end._mpi_[0]
            ends.append((-1 if sign else 1) * Fraction(int(mantissa)) * Fraction(2) ** exponent)
        return Enclosure(*ends)

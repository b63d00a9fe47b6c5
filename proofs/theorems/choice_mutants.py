"""Check that proofs fail for mistakes in stochastic rounding, four over six and long division."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from mxnum.definition import float_scale, random
from mxnum.engine.loops import four_over_six as choice
from mxnum.engine.rounding import stochastic_over as fast
from mxnum.formats import ELEMENTS, FLOATS, SCALES
from proofs.mutants.modules import stated
from proofs.theorem import Outcome, Theorem
from proofs.theorems import four_over_six, stochastic_over

STATEMENT = (
    "A mistake planted in long division, in stochastic rounding under float scales or in the choice of four over six "
    "is found: the theorem about the changed function is refuted."
)
FLOAT32, E2M1 = FLOATS["float32"], ELEMENTS["e2m1"]


def decided(bits: int) -> Callable[..., Outcome]:
    """Return a function that runs `check_decided` on a changed module, in `bits`-bit words."""
    return lambda changed: stochastic_over.check_decided(E2M1, bits, changed)


def of(check: Callable[..., Outcome], name: str) -> Callable[..., Outcome]:
    """Return a function that runs `check` on the function `name` of a changed module."""
    return lambda changed: check(getattr(changed, name))


DIGITS = partial(stochastic_over.check_digits, FLOAT32, 1)
THRESHOLD = partial(stochastic_over.check_threshold, E2M1)
CHOSEN = partial(stochastic_over.check_chosen, E2M1, FLOAT32)
AIM = partial(four_over_six.check_aim, FLOAT32, SCALES["e4m3"])
TERMS, NEAREST = of(four_over_six.check_terms, "_difference"), of(four_over_six.check_nearest, "_nearest")

#: (name, module, text, replacement, the check that must refute the changed module)
MUTANTS: tuple[tuple[str, ModuleType, str, str, Callable[..., Outcome]], ...] = (
    ("digit-without-rest", float_scale, "rest = rest - select(digit == 0, 0, divisor)",
     "rest = rest - select(digit == 0, 0, divisor << 1)", DIGITS),
    ("digits-short", float_scale, "(SR_BITS + 1 if rounding", "(SR_BITS - 2 if rounding", THRESHOLD),
    ("rest-of-nothing", float_scale, "(quotient << 1) | select(rest == 0, 0, 1)",
     "(quotient << 1) | select(rest == 0, 1, 0)", DIGITS),
    ("low-word-first", random, "return middle >> 16, ((middle", "return middle >> 15, ((middle",
     of(stochastic_over.check_product, "multiply_32x32")),
    ("no-carry", random, "(a >> 16) * b + (low >> 16)", "(a >> 16) * b",
     of(stochastic_over.check_product, "multiply_32x32")),
    ("ties-stay", fast, "select(x_low - _HALF < low - _HALF, 0, 1)", "select(low - _HALF < x_low - _HALF, 1, 0)",
     decided(64)),
    ("signed-words", fast, "x_low - _HALF < low - _HALF", "x_low < low", decided(32)),
    ("zero-draws", fast, "return select(random == 0, 0, reaches)", "return reaches", decided(32)),
    ("subnormals-normal", fast, "x = select(subnormal, x, (x", "x = select(subnormal, (x & 0x7FFFFF) | 0x800000, (x",
     decided(64)),
    ("gap-of-another-binade", fast, "select(step == 0, 0, step - 1) + LEAST", "step + LEAST", decided(64)),
    ("high-words-alone", fast, "reaches = select(x_high == high, reaches, ", "reaches = select(x_high == high, 1, ",
     decided(64)),
    ("digits-lost", fast, "has_digits = (factor & ((1 << 53 - _DIGITS) - 1)) == 0", "has_digits = factor == factor",
     stochastic_over.check_constants),
    ("beyond-the-largest", fast, "select(magnitude == MAX, 0, up)", "up", CHOSEN),
    ("value-of-another", fast, "make_value_by_code(7)", "make_value_by_code(8)", CHOSEN),
    ("aim", float_scale, "element.max_code if aim is None else aim", "element.max_code", AIM),
    ("tie-down", choice, "v = v if x < 0.75 * f else f", "v = v if x <= 0.75 * f else f", NEAREST),
    ("no-six", choice, "return v if x <= 5.0 * f else 6.0 * f", "return v", NEAREST),
    ("place-moved", choice, "x > multiply_float32(f, _7_2)", "x > multiply_float32(f, _3)", TERMS),
    ("terms-too-sure", choice, "2.0**-19.8 + 2.0**-20", "2.0**-20.8", four_over_six.check_added),
    ("squares-too-sure", choice, "2.0**-18.8 + 2.0**-20", "2.0**-19.8", four_over_six.check_added),
    ("sums-too-sure", choice, "_LOST = 2.0**-100", "_LOST = 2.0**-106", four_over_six.check_lost),
)  # fmt: skip


def theorems() -> list[Theorem]:
    return [
        stated(f"factors/choice-mutant/{name}", STATEMENT, module, old, new, theorem)
        for name, module, old, new, theorem in MUTANTS
    ]

"""Mutants of the exact sum, of asymmetric scaling and of the random bits."""

from __future__ import annotations

from proofs.mutants import probes
from proofs.mutants.mutation import Mutant, of_module


def mutants() -> list[Mutant]:
    """Return all mutants of this file."""
    return [*_add(), *_offset(), *_random()]


def _add() -> list[Mutant]:
    subtract, middle, small = probes.difference(), probes.midpoint(), probes.decode_offset("e2m1", "bfloat16")
    sticky = "(smaller >> distance) | select(lost == 0, 0, 1)"
    swap = "select(exponent_a == exponent_b, b - a, exponent_b - exponent_a) > 0"
    entries = (
        ("lost-sticky", sticky, "smaller >> distance", subtract),
        ("sticky-always", sticky, "(smaller >> distance) | 1", subtract),
        (
            "sticky-mask-short",
            "lost = smaller & ((1 << distance) - 1)",
            "lost = smaller & ((1 << distance) - 2)",
            probes.decode_offset("int8", "float16"),
        ),
        ("two-guard-bits", "GUARD = 3", "GUARD = 1", subtract),
        ("far-too-near", "FAR = width + GUARD + 1", "FAR = width - 1", subtract),
        ("adds-always", "select(sign_a == sign_b, larger + smaller, larger - smaller)", "larger + smaller", subtract),
        (
            "signs-swapped",
            "select(sign_a == sign_b, larger + smaller, larger - smaller)",
            "select(sign_a == sign_b, larger - smaller, larger + smaller)",
            middle,
        ),
        ("sign-of-smaller", "select(swap, sign_b, sign_a))", "select(swap, sign_a, sign_b))", middle),
        ("zero-negative", "sign_a & sign_b", "sign_a | sign_b", middle),
        ("no-swap-of-equals", swap, "(exponent_b - exponent_a) > 0", small),
        ("swap-inverted", swap, swap.replace("> 0", "< 0"), middle),
        ("no-carry-bit", "select(swap, exponent_b, exponent_a) + 1", "select(swap, exponent_b, exponent_a)", middle),
        (
            "infinities-cancel",
            "select(both_infinite, sign_a ^ sign_b, 0) == 1, NAN",
            "select(both_infinite, 0, 0) == 1, NAN",
            subtract,
        ),
        ("infinity-sign", "select(kind_b == FINITE, sign, sign_b), sign_a)", "sign, sign_a)", subtract),
        (
            *("swap-of-same", swap, swap.replace("> 0", ">= 0"), small, "equivalent"),
            "swapping numbers of equal magnitude changes nothing: their signs agree, or the sum is zero",
        ),
    )
    return of_module("add", *entries)


def _offset() -> list[Mutant]:
    half = probes.half_range_scale("e4m3", "floor")
    decode = probes.decode_offset("e4m3")
    width = "max(working_width(element, target), OFFSET.mantissa_bits)"
    minus = "1 - sign_b, exponent_b, b, kind_b)\n        return pack"
    entries = (
        (
            "midpoint-not-halved",
            "return pack(sign, exponent - 1, total, kind, 0)",
            "return pack(sign, exponent, total, kind, 0)",
            probes.midpoint(),
        ),
        (
            "midpoint-overflows",
            "Overflow.SATURATE, sum_width(width)",
            "Overflow.IEEE, sum_width(width)",
            probes.midpoint(),
        ),
        ("difference-adds", minus, minus.replace("1 - sign_b", "sign_b"), probes.difference()),
        ("half-range-not-halved", "scale_rule(exponent - 1, total)", "scale_rule(exponent, total)", half),
        ("half-range-largest", "return scale_rule(exponent - 1, total)", "return scale_rule(exponent_a, a)", half),
        (
            "ordered-negated",
            "select(x < 0, 0 - magnitude, magnitude)",
            "select(x < 0, magnitude, magnitude)",
            probes.ordered(),
        ),
        ("ordered-sign-lost", "select(negative, magnitude | SIGN_BIT, magnitude)", "magnitude", probes.ordered()),
        ("scale-inverted", "exponent_a + scale - SCALE_BIAS", "exponent_a - scale + SCALE_BIAS", decode),
        (
            "scales-the-offset",
            "sign_b, exponent_b, b, kind_b\n        )",
            "sign_b, exponent_b + scale - SCALE_BIAS, b, kind_b\n        )",
            decode,
        ),
        ("nan-scale-as-power", "return select(scale == SCALE_NAN, NAN_CODE, value)", "return value", decode),
        ("offset-does-not-fit", width, "working_width(element, target)", probes.decode_offset("e4m3", "bfloat16")),
        (
            *("offset-fits-float32", width, "working_width(element, target)", decode, "equivalent"),
            "a float32 significand is wider than that of an offset (for bfloat16 it is a mistake)",
        ),
    )
    return of_module("offset", *entries)


def _random() -> list[Mutant]:
    low = probes.align_random(8)
    philox = probes.philox()
    entries = (
        ("all-bits", "(word & MASK) << UP", "word << UP", low),
        ("mask-one-less", "MASK = (1 << sr_bits) - 1", "MASK = (1 << (sr_bits - 1)) - 1", low),
        ("aligned-one-lower", "UP = SR_BITS - sr_bits", "UP = SR_BITS - sr_bits - 1", low),
        ("not-aligned", "(word & MASK) << UP", "word & MASK", low),
        ("nine-rounds", "_ROUNDS = 10", "_ROUNDS = 9", philox),
        (
            "multipliers-swapped",
            "_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57",
            "_MULTIPLIER_1, _MULTIPLIER_0 = 0xD2511F53, 0xCD9E8D57",
            philox,
        ),
        (
            "words-swapped",
            "high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0",
            "high_0 ^ c1 ^ k0, low_1, high_1 ^ c3 ^ k1, low_0",
            philox,
        ),
        ("key-not-advanced", "k1 = (k1 + _WEYL_1) & _WORD", "k1 = k1", philox),
        ("carry-lost", "(a >> 16) * b + (low >> 16)", "(a >> 16) * b", philox),
    )
    return of_module("random", *entries)

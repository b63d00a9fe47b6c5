"""Probes for mutants: a probe has a kernel, symbolic inputs, and a function that judges results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import z3

from mxnum import formats
from mxnum.definition.word import word_bits
from mxnum.modes import Overflow, Rounding, ScaleRule
from proofs.specs import rational_sums, rationals
from proofs.specs.rationals import ELEMENTS, FLOATS, RANDOM_BITS

#: One variant of the source: a mapping from the name of each scalar module to its functions, such
#: as {"pack": {"make_pack": ..., ...}, ...}.
Modules = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Input:
    """An argument of a kernel, with the width and the range of the values that callers pass."""

    name: str
    bits: int
    #: True if the input is sign-extended to the kernel's word, like the bit pattern of a float;
    #: False if the input is zero-extended, like a natural number.
    signed: bool = False
    #: Callers pass only values below `end`. If the input is signed, this limit applies to the bits
    #: without the sign bit. None: callers pass all values.
    end: int | None = None


@dataclass(frozen=True)
class Probe:
    """One kernel, its symbolic inputs, and a function that judges its results."""

    name: str
    build: Callable[[Modules], Callable[..., Any]]
    inputs: tuple[Input, ...]
    word: int
    #: `correct(result as an unsigned word, *inputs)` is True if the specification gives that
    #: result.
    correct: Callable[..., bool]

    def variables(self) -> list[z3.BitVecRef]:
        """Return one bit-vector per input."""
        return [z3.BitVec(entry.name, entry.bits) for entry in self.inputs]

    def assumptions(self, variables: list[z3.BitVecRef]) -> list[z3.BoolRef]:
        """Return the premises about inputs, such as that callers pass finite floats only."""
        return [
            z3.ULT(variable & ((1 << (entry.bits - 1)) - 1) if entry.signed else variable, entry.end)
            for entry, variable in zip(self.inputs, variables, strict=True)
            if entry.end is not None
        ]

    def words(self, variables: list[z3.BitVecRef]) -> list[z3.BitVecRef]:
        """Return the inputs, sign- or zero-extended to the kernel's word."""
        return [
            (z3.SignExt if entry.signed else z3.ZeroExt)(self.word - entry.bits, variable)
            for entry, variable in zip(self.inputs, variables, strict=True)
        ]

    def arguments(self, values: list[int]) -> list[int]:
        """Return the inputs as Python integers."""
        return [
            value - (1 << entry.bits) if entry.signed and value >> (entry.bits - 1) else value
            for entry, value in zip(self.inputs, values, strict=True)
        ]


@dataclass(frozen=True)
class ConcreteProbe:
    """A kernel, tried on listed inputs, because solvers cannot handle its multiplications."""

    name: str
    build: Callable[[Modules], Callable[..., Any]]
    candidates: tuple[tuple[int, ...], ...]
    #: `correct(result, *inputs)` is True if the result is right.
    correct: Callable[..., bool]


def _format(name: str) -> formats.ElementFormat:
    return formats.element(name)


def _finite(name: str, source: str) -> Input:
    return Input(name, FLOATS[source].bits, signed=True, end=FLOATS[source].infinity)


def encode(element: str, rounding: str, overflow: str = "saturate", source: str = "float32") -> Probe:
    """Return a `Probe` of an encoder, for every input, scale and random integer."""
    kinds = _format(source), _format(element)
    modes = Rounding[rounding.upper()], Overflow[overflow.upper()]

    def correct(result: int, x: int, scale: int, random: int) -> bool:
        right = rationals.encode(FLOATS[source], ELEMENTS[element], rounding, overflow, x, scale, random)
        return result == right

    return Probe(
        f"encode_{source}_{element}_{rounding}_{overflow}",
        lambda modules: modules["convert"]["make_encode"](*kinds, *modes),
        (Input("x", FLOATS[source].bits, signed=True), Input("scale", 8), Input("random", RANDOM_BITS)),
        word_bits(*kinds),
        correct,
    )


def decode(element: str, target: str = "float32") -> Probe:
    """Return a `Probe` of a decoder, for every code and scale."""
    kinds = _format(element), _format(target)

    def correct(result: int, code: int, scale: int) -> bool:
        return result == rationals.decode(ELEMENTS[element], FLOATS[target], code, scale)

    return Probe(
        f"decode_{element}_{target}",
        lambda modules: modules["convert"]["make_decode"](*kinds),
        (Input("code", ELEMENTS[element].bits), Input("scale", 8)),
        word_bits(*kinds),
        correct,
    )


def scale(element: str, rule: str, source: str = "float32") -> Probe:
    """Return a `Probe` of a scale rule, for every finite largest magnitude."""
    float_type = FLOATS[source]

    def correct(result: int, amax: int) -> bool:
        return result == rationals.shared_scale(ELEMENTS[element], rule, rationals.magnitude_value(float_type, amax))

    return Probe(
        f"shared_scale_{source}_{element}_{rule}",
        lambda modules: modules["scale"]["make_shared_scale"](
            _format(source), _format(element), ScaleRule[rule.upper()]
        ),
        (Input("amax", float_type.bits - 1, end=float_type.infinity),),
        32,
        correct,
    )


def midpoint(source: str = "float32") -> Probe:
    """Return a `Probe` of a block's offset, for all finite largest and smallest numbers."""

    def correct(result: int, largest: int, smallest: int) -> bool:
        return result == rational_sums.midpoint(FLOATS[source], largest, smallest)

    return Probe(
        f"midpoint_{source}",
        lambda modules: modules["offset"]["make_midpoint"](_format(source)),
        (_finite("largest", source), _finite("smallest", source)),
        32,
        correct,
    )


def difference(source: str = "float32") -> Probe:
    """Return a `Probe` of x - offset, for all x and offsets that are not NaN."""
    target = FLOATS["float64" if source == "float64" else "float32"]

    def correct(result: int, x: int, offset: int) -> bool:
        right = rational_sums.difference(FLOATS[source], target, x, offset)
        if right == target.nan:  # the payload of a NaN is not specified
            return result % target.sign_bit > target.infinity
        return result == right

    not_nan = Input("x", FLOATS[source].bits, signed=True, end=FLOATS[source].infinity + 1)
    return Probe(
        f"difference_{source}",
        lambda modules: modules["offset"]["make_difference"](_format(source)),
        (not_nan, Input("offset", 16, signed=True, end=rational_sums.OFFSET.infinity + 1)),
        target.bits,
        correct,
    )


def half_range_scale(element: str, rule: str, source: str = "float32") -> Probe:
    """Return a `Probe` of the scale for (largest - smallest) / 2, if both numbers are finite."""

    def correct(result: int, largest: int, smallest: int) -> bool:
        return result == rational_sums.half_range_scale(FLOATS[source], ELEMENTS[element], rule, largest, smallest)

    return Probe(
        f"half_range_scale_{source}_{element}_{rule}",
        lambda modules: modules["offset"]["make_half_range_scale"](
            _format(source), _format(element), ScaleRule[rule.upper()]
        ),
        (_finite("largest", source), _finite("smallest", source)),
        64 if source == "float64" else 32,
        correct,
    )


def decode_offset(element: str, target: str = "float32") -> Probe:
    """Return a `Probe` of a decoder with a finite offset."""

    def correct(result: int, code: int, scale: int, offset: int) -> bool:
        return result == rational_sums.decode_offset(ELEMENTS[element], FLOATS[target], code, scale, offset)

    return Probe(
        f"decode_offset_{element}_{target}",
        lambda modules: modules["offset"]["make_decode_offset"](_format(element), _format(target)),
        (Input("code", ELEMENTS[element].bits), Input("scale", 8), _finite("offset", "float16")),
        word_bits(_format(element), _format(target)),
        correct,
    )


def ordered(source: str = "float32") -> Probe:
    """Return a `Probe` of the conversion to an ordered integer and back.

    The conversion changes only -0, which becomes +0.
    """

    def build(modules: Modules) -> Callable[..., Any]:
        forth = modules["offset"]["make_to_ordered"](_format(source))
        back = modules["offset"]["make_from_ordered"](_format(source))
        return lambda x: back(forth(x))

    def correct(result: int, x: int) -> bool:
        return result == (0 if x == FLOATS[source].sign_bit else x)

    return Probe(f"ordered_{source}", build, (Input("x", FLOATS[source].bits, signed=True),), 32, correct)


def align_random(sr_bits: int) -> Probe:
    """Return a `Probe` of the alignment of a random word for stochastic rounding."""

    def correct(result: int, word: int) -> bool:
        return result == (word % (1 << sr_bits)) * (1 << (RANDOM_BITS - sr_bits))

    return Probe(
        f"align_random_{sr_bits}",
        lambda modules: modules["random"]["make_align_random"](sr_bits),
        (Input("word", 32),),
        64,
        correct,
    )


def philox() -> ConcreteProbe:
    """Return a probe of Philox, on its authors' test inputs and on inputs with one bit set."""
    ones, pi = (0xFFFFFFFF,) * 6, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
    single = tuple(tuple(int(i == place) for i in range(6)) for place in range(6))

    def correct(result: tuple[int, ...], *inputs: int) -> bool:
        return result == philox_reference(inputs)

    return ConcreteProbe(
        "philox4x32", lambda modules: modules["random"]["philox4x32"], ((0,) * 6, ones, pi, *single), correct
    )


def philox_reference(inputs: tuple[int, ...]) -> tuple[int, ...]:
    """Return the words of Philox4x32-10 by its authors' formulas, with 64-bit products."""
    counter, key = list(inputs[:4]), list(inputs[4:])
    for _ in itertools.repeat(None, 10):
        high_0, low_0 = divmod(0xD2511F53 * counter[0], 1 << 32)
        high_1, low_1 = divmod(0xCD9E8D57 * counter[2], 1 << 32)
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0]
        key = [(key[0] + 0x9E3779B9) % (1 << 32), (key[1] + 0xBB67AE85) % (1 << 32)]
    return tuple(counter)

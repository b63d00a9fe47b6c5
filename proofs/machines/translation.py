"""Check that compilers translate kernels correctly (translation validation).

A kernel's compiled code and its Python function are both executed on bit-vectors. They must give
equal results for every input of the kernel's domain. `llvm.py` executes LLVM IR and `ptx.py`
executes PTX; both use this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import z3

from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.float_scale import (
    factor_width,
    make_decode_over,
    make_encode_over,
    make_factor,
    make_float_scale,
    make_tensor_scale,
    number_of,
)
from mxnum.definition.offset import (
    OFFSET,
    difference_format,
    make_decode_offset,
    make_difference,
    make_from_ordered,
    make_half_range_scale,
    make_midpoint,
    make_to_ordered,
)
from mxnum.definition.pack import SR_BITS
from mxnum.definition.random import make_align_random
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import dialect, word_bits
from mxnum.formats import ELEMENTS, FLOATS, SCALES, ElementFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Overflow, Rounding, ScaleRule
from mxnum.prove.execution import Execution, UnsupportedCode
from mxnum.prove.solvers import ask_bit_vectors
from mxnum.prove.sym import run
from proofs.machines.solve import BOTH, TIMEOUT, ask, prove
from proofs.theorem import Outcome, Theorem

Tier = Literal["fast", "full"]
#: Proofs about kernels for which z3 takes several times as long as bitwuzla use only bitwuzla.
QUICK = ("bitwuzla",)


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel: its domain (a set of integers) and the type it is passed in."""

    name: str
    #: The width in bits: the domain is every integer of this width.
    bits: int
    signed: bool
    #: The name of the numba type, or "lane" for 32-bit lanes.
    type: str
    #: True if the domain lacks the most negative integer, whose negation does not fit in `bits`
    #: bits.
    symmetric: bool = False

    @property
    def symbol(self) -> z3.BitVecRef:
        return z3.BitVec(self.name, self.bits)

    def widened(self, width: int) -> z3.BitVecRef:
        """Return the argument's value in a word of `width` bits."""
        if width < self.bits:
            raise ValueError(f"{self.name} of {self.bits} bits does not fit in a word of {width} bits")
        extend = z3.SignExt if self.signed else z3.ZeroExt
        return extend(width - self.bits, self.symbol)

    @property
    def passed(self) -> z3.BitVecRef:
        """The argument as a word of the width that compiled code uses for the argument's type."""
        return self.widened(32 if self.type == "lane" else int(self.type.removeprefix("u").removeprefix("int")))

    @property
    def hypotheses(self) -> list[z3.BoolRef]:
        return [self.symbol != -(1 << (self.bits - 1))] if self.symmetric else []

    def __str__(self) -> str:
        low, high = (f"-2**{self.bits - 1}", self.bits - 1) if self.signed else ("0", self.bits)
        low += "+1" if self.symmetric else ""
        return f"{self.name} is any integer in {low}..2**{high}-1, passed as {self.type}"


@dataclass(frozen=True)
class Kernel:
    """A Python function of `mxnum.definition`, and the arguments of its compiled code."""

    make: Callable[[], Callable[..., Any]]
    #: The number of bits (32 or 64) of the words with which the Python function is executed.
    word: int
    arguments: tuple[Argument, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(argument.type for argument in self.arguments)

    def plain(self) -> Kernel:
        """Return the kernel with int64 arguments, the type in which numba passes Python ints."""
        return replace(self, arguments=tuple(replace(argument, type="int64") for argument in self.arguments))


@dataclass(frozen=True)
class Family:
    """A group of kernels that one theorem covers."""

    name: str
    kernels: tuple[Kernel, ...]
    tier: Tier = "full"
    engines: tuple[str, ...] = BOTH


#: A machine compiles a Python function for the named numba types, and executes the compiled code on
#: bit-vectors of the types' widths.
Machine = Callable[[Callable[..., Any], tuple[str, ...], Sequence[z3.BitVecRef]], Execution]


def theorem(family: Family, prefix: str, statement: str, machine: Machine) -> Theorem:
    """Return the theorem that a compiler translates the kernels of a family correctly."""
    functions = tuple(kernel.make() for kernel in family.kernels)
    return Theorem(
        name=f"{prefix}/{family.name}",
        statement=statement,
        kernels=tuple(function.__name__ for function in functions),
        check=partial(check, family, machine),
        hypotheses=tuple(dict.fromkeys(str(argument) for kernel in family.kernels for argument in kernel.arguments)),
        tier=family.tier,
        functions=functions,
    )


def check(family: Family, machine: Machine) -> Outcome:
    """Check that a family is not empty, and that the compiled code of every kernel is right."""
    started = time.perf_counter()
    if not family.kernels:
        return Outcome("error", "-", 0.0, "there is no kernel: nothing was checked")
    for kernel in family.kernels:
        outcome = compare(kernel, machine, family.engines)
        if outcome.verdict != "proved":
            return replace(outcome, detail=f"{kernel.make().__name__}: {outcome.detail}")
    return Outcome("proved", "+".join(family.engines), time.perf_counter() - started)


def compare(kernel: Kernel, machine: Machine, engines: Sequence[str]) -> Outcome:
    """Prove that a compiled kernel has no undefined behaviour and equals its Python function."""
    started = time.perf_counter()
    function = kernel.make()
    arguments = kernel.arguments
    try:
        compiled = machine(function, kernel.types, [argument.passed for argument in arguments])
    except UnsupportedCode as problem:
        return Outcome("error", "-", time.perf_counter() - started, f"not understood: {problem}")
    result, _ = run(function, *(argument.widened(kernel.word) for argument in arguments))
    # By the theorems of `proofs.theorems.safety`, the function returns the same integer in a word
    # of `kernel.word` bits and in every wider word.
    expected = z3.SignExt(compiled.result.size() - kernel.word, result)
    conditions = [compiled.result == expected, *compiled.obligations]
    goal = z3.And(*conditions) if len(conditions) > 1 else conditions[0]
    return _decide([h for argument in arguments for h in argument.hypotheses], goal, engines, arguments)


def _decide(
    hypotheses: list[z3.BoolRef], goal: z3.BoolRef, engines: Sequence[str], arguments: Sequence[Argument]
) -> Outcome:
    """Prove a goal as `prove` does, but first ask the solvers without z3's simplifications.

    `prove` applies z3's simplifications to every question, because questions with floats need them.
    Without these simplifications bitwuzla is three times as fast, because it recognizes that the
    compiled code and the Python function are nearly the same circuit.
    """
    started = time.perf_counter()
    question = z3.Goal()
    question.add(*hypotheses, z3.Not(goal))
    if ask(hypotheses, "z3") == "sat" and all(
        ask_bit_vectors(question, engine, TIMEOUT) == "unsat" for engine in engines
    ):
        return Outcome("proved", "+".join(engines), time.perf_counter() - started)
    return prove(hypotheses, goal, engines=engines, show=[argument.symbol for argument in arguments])


# --- The kernels, and the types that the array loops call them with


def families() -> list[Family]:
    """Return the families of all kernels that the array loops call.

    Each float32 encoder has a family of its own; most other families have several kernels.
    """
    return [*_encoders(), *_decoders(), *_scales(), *_offsets(), *_words(), *_float_scales()]


def plain_families() -> list[Family]:
    """Return families of float32 kernels called with Python ints."""
    found = {
        f"encode/float32/{element.name}": [encoder for _, encoder in _encoders_of(FLOATS["float32"], element)]
        for element in ELEMENTS.values()
    }
    found["decode/float32"] = [_decoder(element, FLOATS["float32"]) for element in ELEMENTS.values()]
    for element in ELEMENTS.values():
        found[f"shared_scale/float32/{element.name}"] = _scales_of(FLOATS["float32"], element)
    return [Family(f"int64/{name}", tuple(kernel.plain() for kernel in kernels)) for name, kernels in found.items()]


_SCALE = Argument("scale", 8, False, "uint8")
_OFFSET = Argument("offset", 16, False, "uint16")
_CODE = Argument("code", 8, False, "uint8")
_RANDOM = Argument("random", SR_BITS, False, "int64")


def _pattern(source: ElementFormat, name: str = "x", type_: str | None = None) -> Argument:
    """Return an argument whose domain is the bit patterns of a float type, as signed integers."""
    return Argument(name, source.bits, True, type_ or f"int{source.bits}")


def _encoders_of(source: ElementFormat, target: ElementFormat) -> list[tuple[str, Kernel]]:
    """Return pairs: the name "rounding/overflow" of an encoder, and the encoder.

    An element without special values has the same encoder for both overflow modes, so the list has
    this encoder once.
    """
    overflows = [Overflow.SATURATE] if target.specials == "none" else list(Overflow)
    return [
        (
            f"{rounding}/{overflow}",
            Kernel(
                partial(make_encode, source, target, rounding, overflow),
                word_bits(source, target),
                (_pattern(source), _SCALE, _RANDOM),
            ),
        )
        for rounding in Rounding
        for overflow in overflows
    ]


def _encoders() -> list[Family]:
    found = []
    for source in FLOATS.values():
        for target in (*ELEMENTS.values(), *(f for f in FLOATS.values() if f.bits < source.bits)):
            name, encoders = f"encode/{source.name}/{target.name}", _encoders_of(source, target)
            if source.name == "float32" and target.name in ELEMENTS:
                found += [Family(f"{name}/{mode}", (kernel,), "fast", QUICK) for mode, kernel in encoders]
            else:
                # The full tier checks all modes; the fast tier checks one mode for e4m3, e2m1 and
                # bfloat16.
                sample = {"e4m3": "rne/saturate", "e2m1": "sr/saturate", "bfloat16": "rne/ieee"}.get(target.name)
                found += [Family(f"{name}/{mode}", (one,), "fast", QUICK) for mode, one in encoders if mode == sample]
                found.append(Family(name, tuple(kernel for _, kernel in encoders)))
    return found


def _decoder(element: ElementFormat, target: ElementFormat) -> Kernel:
    return Kernel(partial(make_decode, element, target), word_bits(element, target), (_CODE, _SCALE))


def _decoders() -> list[Family]:
    return [
        Family(
            f"decode/{element.name}/{target.name}",
            (_decoder(element, target),),
            "fast" if target.name == "float32" or element.name == "e4m3" else "full",
        )
        for target in FLOATS.values()
        for element in ELEMENTS.values()
    ]


def _scales_of(source: ElementFormat, element: ElementFormat) -> list[Kernel]:
    # The argument is a block's largest finite magnitude, so the sign bit is 0.
    amax = Argument("amax", source.bits - 1, False, f"int{source.bits}")
    word = word_bits(source, element)
    return [Kernel(partial(make_shared_scale, source, element, rule), word, (amax,)) for rule in ScaleRule]


def _scales() -> list[Family]:
    return [
        Family(
            f"shared_scale/{source.name}/{element.name}",
            tuple(_scales_of(source, element)),
            "fast" if source.name == "float32" else "full",
        )
        for source in FLOATS.values()
        for element in ELEMENTS.values()
    ]


def _offsets() -> list[Family]:
    found = []
    for source in FLOATS.values():
        difference_word = word_bits(source, difference_format(source))
        # Array loops take these arguments from `from_ordered`, which returns int64.
        extremes = (_pattern(source, "largest", "int64"), _pattern(source, "smallest", "int64"))
        midpoint = Kernel(partial(make_midpoint, source), word_bits(source, OFFSET), extremes)
        difference = Kernel(partial(make_difference, source), difference_word, (_pattern(source), _OFFSET))
        found += [
            Family(f"midpoint/{source.name}", (midpoint,), "full", QUICK),
            Family(f"difference/{source.name}", (difference,), "full", QUICK),
        ]
        for element in ELEMENTS.values():
            rules = [
                Kernel(partial(make_half_range_scale, source, element, rule), word_bits(source, element), extremes)
                for rule in ScaleRule
            ]
            decode_offset = Kernel(
                partial(make_decode_offset, element, source), word_bits(element, source), (_CODE, _SCALE, _OFFSET)
            )
            found += [
                Family(f"half_range_scale/{source.name}/{element.name}", tuple(rules), "full", QUICK),
                Family(f"decode_offset/{element.name}/{source.name}", (decode_offset,), "full", QUICK),
            ]
    return found


def _words() -> list[Family]:
    found = []
    for source in FLOATS.values():
        ordered = Argument("ordered", source.bits, True, f"int{source.bits}", symmetric=True)
        both = (
            Kernel(partial(make_to_ordered, source), 64, (_pattern(source),)),
            Kernel(partial(make_from_ordered, source), 64, (ordered,)),
        )
        found.append(Family(f"ordered/{source.name}", both, "fast"))
    aligned = [
        Kernel(partial(make_align_random, sr_bits), 64, (Argument("word", 32, False, "int64"),))
        for sr_bits in range(1, SR_BITS + 1)
    ]
    return [*found, Family("align_random", tuple(aligned), "fast")]


_SOME = (Rounding.RNE, Rounding.SR)
#: Each entry has an element, the float type of its scales, and the source types and the roundings
#: for which this format is checked. NVFP4 is checked for all source types and roundings.
_OVER_FLOATS: tuple[tuple[str, str, Iterable[str], Iterable[Rounding]], ...] = (
    ("e2m1", "e4m3", FLOATS, Rounding),
    ("e2m1", "ue5m3", ("float32",), _SOME),
    ("e4m3", "float32", ("float32",), _SOME),
    ("e5m2", "bfloat16", ("float32",), _SOME),
    ("int4", "float16", ("float32",), _SOME),
)


def _float_scales() -> list[Family]:
    """Return the families of kernels for formats whose scales are floats.

    These kernels find scales, compute factors, encode and decode. The kernels that find scales and
    factors are checked for NVFP4 only: for float32 scales, no solver answered within minutes.
    """
    found = []
    for element_name, scale_name, sources, roundings in _OVER_FLOATS:
        element, scale = ELEMENTS[element_name], SCALES[scale_name]
        is_nvfp4 = (element_name, scale_name) == ("e2m1", "e4m3")
        if is_nvfp4:
            both = _word("scale", number_of(scale).bits), _word("tensor", 32)
            parts = tuple(Kernel(partial(_part_of_factor, scale, part), 64, both) for part in range(3))
            found.append(Family(f"factor/{scale_name}", parts, "fast", QUICK))
        factor = _word("exponent", 12, True), _word("significand", factor_width(scale) + 1), _word("kind", 2)
        for source in map(FLOATS.__getitem__, sources):
            name = f"{source.name}/{element_name}/{scale_name}"
            tier: Tier = "fast" if name == "float32/e2m1/e4m3" else "full"
            encode, x = partial(make_encode_over, source, element, scale), _word("x", source.bits, True)
            for rounding in roundings:
                kernel = Kernel(partial(encode, rounding, Overflow.SATURATE), 64, (x, *factor, _RANDOM))
                found.append(
                    Family(f"encode_over/{rounding}/{name}", (kernel,), tier if rounding in _SOME else "full", QUICK)
                )
            code = _word("code", element.bits)
            decode = Kernel(partial(make_decode_over, element, scale, source), 64, (code, *factor))
            found.append(Family(f"decode_over/{name}", (decode,), tier, QUICK))
            if is_nvfp4:
                amax, tensor = _word("amax", source.bits - 1), _word("tensor", 32)
                find = Kernel(partial(make_tensor_scale, source, element, scale), 64, (amax,))
                found.append(Family(f"tensor_scale/{name}", (find,), tier, QUICK))
                for rule in (FloatScaleRule.NEAREST, FloatScaleRule.RCEIL):
                    find = Kernel(partial(make_float_scale, source, element, scale, rule), 64, (amax, tensor))
                    found.append(Family(f"float_scale/{rule}/{name}", (find,), "full", QUICK))
    return found


@cache
def _part_of_factor(scale: ScaleFormat, part: int) -> Callable[..., Any]:
    """Return a function that computes the exponent, the significand or the kind of a factor."""
    factor = make_factor(scale)

    @dialect
    def part_of_factor(code: Any, tensor: Any) -> Any:
        return factor(code, tensor)[part]

    return part_of_factor


def _word(name: str, bits: int, signed: bool = False) -> Argument:
    return Argument(name, bits, signed, "int64")

"""No intermediate result leaves its word, so theorems hold for Python ints, int32, int64 and GPUs.

`mxnum.prove.sym` records an obligation for every addition, subtraction, multiplication, left shift
and shift amount. This module proves these obligations for every kernel of the eight elements under
E8M0 scales. Each proof is for the word size of the compiled kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import z3

from mxnum.definition import offset
from mxnum.definition.convert import make_decode, make_encode
from mxnum.definition.random import make_align_random
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import word_bits
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.prove.sym import run
from proofs.machines import inputs
from proofs.machines.solve import prove
from proofs.specs import tables
from proofs.theorem import Outcome, Theorem, Tier

SAFE = (
    "No intermediate result overflows the kernel's signed word, no left shift loses a bit, and every shift amount is "
    "smaller than the word size. So the kernel computes the same in 32-bit words (64-bit words if float64 is "
    "involved), in wider words and on Python ints."
)
Kernel = Callable[..., Any]


def safe(
    kernels: list[Kernel], width: int, symbols: tuple[z3.BitVecRef, ...], premises: tuple[z3.BoolRef, ...]
) -> Outcome:
    """Prove the obligations of the kernels; an obligation that kernels share is proved once.

    The proof covers both sign and zero extension of bit patterns.
    """
    words = [inputs.natural(a, width) if str(a) in NATURALS else inputs.word(a, width) for a in symbols]
    distinct: dict[int, z3.BoolRef] = {}
    for kernel in kernels:
        distinct |= {obligation.get_id(): obligation for obligation in run(kernel, *words)[1]}
    example = tuple((argument, 0) for argument in symbols)
    return prove(premises, z3.And(*distinct.values()), engines=ENGINES, show=symbols, example=example)


#: The only solver that proves the obligations, in the fast tier and in the full tier.
ENGINES = ("bitwuzla",)
NATURALS = ("scale", "random")


def arguments(*names_and_bits: tuple[str, int]) -> tuple[z3.BitVecRef, ...]:
    """Return symbols for patterns of the given names and widths."""
    return tuple(inputs.pattern(name, bits) for name, bits in names_and_bits)


def theorems() -> list[Theorem]:
    scale, random = ("scale", 8), ("random", tables.RANDOM_BITS)
    found: list[Theorem] = []

    def state(
        name: str,
        kernels: list[Kernel],
        width: int,
        inputs_of_kernel: tuple[tuple[str, int], ...],
        hypotheses: tuple[z3.BoolRef, ...] = (),
        words: tuple[str, ...] = (
            "the inputs are any bit patterns",
            "scale is any E8M0 code",
            "random is any integer below 2**30",
        ),
        tier: Tier = "fast",
    ) -> None:
        symbols = arguments(*inputs_of_kernel)
        found.append(
            Theorem(
                name=f"safety/{name}",
                statement=SAFE,
                kernels=tuple(kernel.__name__ for kernel in kernels),
                check=partial(safe, kernels, width, symbols, hypotheses),
                hypotheses=words,
                tier=tier,
                functions=tuple(kernels),
            )
        )

    for source in FLOATS.values():
        for target in (*ELEMENTS.values(), *FLOATS.values()):
            if target is source:
                continue
            encoders = [
                make_encode(source, target, rounding, overflow) for rounding in Rounding for overflow in Overflow
            ]
            state(
                f"encode/{source.name}/{target.name}",
                encoders,
                word_bits(source, target),
                (("x", source.bits), scale, random),
            )
    for target in FLOATS.values():
        for element in ELEMENTS.values():
            width, code = word_bits(element, target), ("code", element.bits)
            state(f"decode/{element.name}/{target.name}", [make_decode(element, target)], width, (code, scale))
            shifted = [offset.make_decode_offset(element, target)]
            tier: Tier = "fast" if target.name == "float32" else "full"
            state(
                f"decode-offset/{element.name}/{target.name}", shifted, width, (code, scale, ("offset", 16)), tier=tier
            )
    for source in FLOATS.values():
        width = 64 if source.bits == 64 else 32
        pairs = [(element, rule) for element in ELEMENTS.values() for rule in ScaleRule]
        scales = [make_shared_scale(source, element, rule) for element, rule in pairs]
        state(f"shared-scale/{source.name}", scales, width, (("amax", source.bits),))
        ends = ("largest", source.bits), ("smallest", source.bits)
        halves = [offset.make_half_range_scale(source, element, rule) for element, rule in pairs]
        state(f"half-range-scale/{source.name}", halves, width, ends)
        state(f"midpoint/{source.name}", [offset.make_midpoint(source)], width, ends)
        state(
            f"difference/{source.name}", [offset.make_difference(source)], width, (("x", source.bits), ("offset", 16))
        )
        state(f"to-ordered/{source.name}", [offset.make_to_ordered(source)], width, (("x", source.bits),))
        ordered = inputs.pattern("ordered", source.bits)
        state(
            f"from-ordered/{source.name}",
            [offset.make_from_ordered(source)],
            width,
            (("ordered", source.bits),),
            (ordered != z3.BitVecVal(1 << (source.bits - 1), source.bits),),
            ("the input is any integer that `to_ordered` can return",),
        )
    state("align-random", [make_align_random(bits) for bits in range(1, 31)], 32, (("word", 32),))
    return found

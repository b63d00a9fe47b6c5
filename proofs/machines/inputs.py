"""Symbolic arguments of a kernel, as wide as the values that callers pass.

Theorems therefore need no hypotheses about ranges. The argument "scale", for example, has eight
bits, so it stands for any scale code. A pattern that is narrower than the kernel's word is either
sign- or zero-extended, because kernels have to accept both.
"""

from __future__ import annotations

import z3

from mxnum.definition.word import word_bits
from mxnum.formats import ElementFormat
from proofs.specs.tables import RANDOM_BITS

#: Symbolic bits that choose between sign and zero extension.
EXTENSION = "extension"


def pattern(name: str, bits: int) -> z3.BitVecRef:
    """Return a symbol for any pattern of `bits` bits."""
    return z3.BitVec(name, bits)


def scale(name: str = "scale") -> z3.BitVecRef:
    """Return a symbol for any E8M0 code, 0xFF included."""
    return z3.BitVec(name, 8)


def random(name: str = "random") -> z3.BitVecRef:
    """Return a symbol for any random integer below 2**30."""
    return z3.BitVec(name, RANDOM_BITS)


def word(value: z3.BitVecRef, width: int) -> z3.BitVecRef:
    """Return a pattern in the kernel's word; a free bit chooses sign or zero extension."""
    missing = width - value.size()
    if missing == 0:
        return value
    choice = z3.BitVec(f"{EXTENSION}_{value}", 1)
    return z3.If(choice == 1, z3.SignExt(missing, value), z3.ZeroExt(missing, value))


def natural(value: z3.BitVecRef, width: int) -> z3.BitVecRef:
    """Return a nonnegative integer (scale code, random bits) zero-extended to the kernel's word."""
    return z3.ZeroExt(width - value.size(), value)


def code_of(result: z3.BitVecRef, bits: int) -> tuple[z3.BitVecRef, z3.BoolRef]:
    """Return the low `bits` bits of a result, and the condition that no higher bit is set."""
    if result.size() == bits:
        return result, z3.BoolVal(True)
    return z3.Extract(bits - 1, 0, result), z3.LShR(result, bits) == 0


def conversion_word(source: ElementFormat, target: ElementFormat) -> int:
    """Return the width of the words in which the compiled conversion computes."""
    return word_bits(source, target)

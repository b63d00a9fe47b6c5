"""Symbolic arguments of a kernel, with as many bits as the values that callers pass.

Theorems therefore need no hypotheses about ranges. For example, the argument "scale" has eight
bits, so a theorem covers exactly the scale codes. A bit pattern that is narrower than the kernel's
word may be extended by copies of its sign bit or by zeros. Theorems cover both extensions, because
kernels have to accept both.
"""

from __future__ import annotations

import z3

from mxnum.definition.word import word_bits
from mxnum.formats import ElementFormat
from proofs.specs.tables import RANDOM_BITS

#: Symbolic bits that choose between sign and zero extension.
EXTENSION = "extension"


def pattern(name: str, bits: int) -> z3.BitVecRef:
    """Return a symbolic bit pattern of `bits` bits."""
    return z3.BitVec(name, bits)


def scale(name: str = "scale") -> z3.BitVecRef:
    """Return a symbolic E8M0 code, which may also be 0xFF (NaN)."""
    return z3.BitVec(name, 8)


def random(name: str = "random") -> z3.BitVecRef:
    """Return a symbolic random integer, which may be any integer from 0 to 2**30 - 1."""
    return z3.BitVec(name, RANDOM_BITS)


def word(value: z3.BitVecRef, width: int) -> z3.BitVecRef:
    """Return a pattern extended to `width` bits; a symbolic bit chooses sign or zero extension."""
    missing = width - value.size()
    if missing == 0:
        return value
    choice = z3.BitVec(f"{EXTENSION}_{value}", 1)
    return z3.If(choice == 1, z3.SignExt(missing, value), z3.ZeroExt(missing, value))


def natural(value: z3.BitVecRef, width: int) -> z3.BitVecRef:
    """Return a scale code or random bits, extended by zeros to the width of the kernel's word."""
    return z3.ZeroExt(width - value.size(), value)


def code_of(result: z3.BitVecRef, bits: int) -> tuple[z3.BitVecRef, z3.BoolRef]:
    """Return the low `bits` bits of a result, and the condition that no higher bit is set."""
    if result.size() == bits:
        return result, z3.BoolVal(True)
    return z3.Extract(bits - 1, 0, result), z3.LShR(result, bits) == 0


def conversion_word(source: ElementFormat, target: ElementFormat) -> int:
    """Return the width of the words in which the compiled conversion computes."""
    return word_bits(source, target)

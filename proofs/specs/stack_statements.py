"""The operations of software stacks for NVFP4, stated with the solver's IEEE floats.

Each statement repeats the operations of the program that it names. SMT-LIB's fp.min stands for
`fminf`, and `clamp` (which returns NaN for NaN) for `torch.clamp`. This module uses nothing of
`mxnum`; constants are literal bit patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import z3

RNE = z3.RNE()
FLOAT32 = z3.Float32()


def bits(pattern: int) -> z3.FPRef:
    """Return the float32 number of a bit pattern."""
    return z3.simplify(z3.fpBVToFP(z3.BitVecVal(pattern, 32), FLOAT32))


ZERO, ONE, SIX = bits(0), bits(0x3F800000), bits(0x40C00000)
LARGEST = bits(0x7F7FFFFF)
SIXTH = bits(0x3E2AAAAB)  # The float32 number that is nearest to 1/6.
# E4M3's largest number (448), least positive number (2^-9) and least normal number (2^-6).
LARGEST_E4M3, LEAST_E4M3, LEAST_NORMAL_E4M3 = bits(0x43E00000), bits(0x3B000000), bits(0x3C800000)
# 448 * 6, and the float32 number that is nearest to 1 / (448 * 6).
BOTH, BOTH_INVERSE = bits(0x45280000), bits(0x39C30C31)
HUNDRED_MILLION = bits(0x4CBEBC20)

mul, div = partial(z3.fpMul, RNE), partial(z3.fpDiv, RNE)


def clamp(x: z3.FPRef, least: z3.FPRef, most: z3.FPRef) -> z3.FPRef:
    """Return torch.clamp of a number; a NaN stays NaN."""
    return z3.If(z3.fpIsNaN(x), x, z3.fpMin(z3.fpMax(x, least), most))


@dataclass(frozen=True)
class Statement:
    """The formulas of one stack for its global scale, block scales, factors and decoded values."""

    #: `of_tensor(largest magnitude)` is the global scale that the software stores. `of_tensor`
    #: computes in the type of its argument if `in_type` is true, and otherwise in float32.
    of_tensor: Callable[[z3.FPRef], z3.FPRef]
    #: `of_block(largest magnitude, global scale)` is the block's scale before it is rounded to
    #: E4M3. If `in_type`, `of_block` has a third argument, the function that rounds to the tensor's
    #: type.
    of_block: Callable[..., z3.FPRef]
    #: `factor(block scale, global scale)` is the number by which the stack multiplies inputs before
    #: it rounds them to elements. If `divides`, the stack divides inputs by this number.
    factor: Callable[[z3.FPRef, z3.FPRef], z3.FPRef]
    #: `reads(element, block scale, global scale, largest magnitude of the tensor)` is the decoded
    #: value.
    reads: Callable[[z3.FPRef, z3.FPRef, z3.FPRef, z3.FPRef], z3.FPRef]
    #: True if the stack rounds x / factor to elements, False if it rounds x * factor.
    divides: bool = False
    #: True if -0 gets the code of +0. The -0 may be a negative number that underflowed in float32.
    zero_loses_sign: bool = False
    in_type: bool = False
    #: The E4M3 code that replaces a scale of zero; 0 if the stack keeps a scale of zero.
    for_zero: int = 0
    #: True if the global scale may be 0 or infinity.
    keeps_any: bool = True


# NVIDIA/TransformerEngine, common/cast/nvfp4/core_nvfp4.cuh


def _te_tensor(amax: z3.FPRef) -> z3.FPRef:
    scale = z3.fpMin(div(BOTH, amax), LARGEST)
    return z3.If(z3.Or(z3.fpIsZero(amax), z3.fpIsZero(scale)), ONE, scale)


def _te_block(amax: z3.FPRef, S: z3.FPRef) -> z3.FPRef:
    return z3.fpMin(mul(amax, mul(S, SIXTH)), LARGEST)


def _te_2025_block(amax: z3.FPRef, S: z3.FPRef) -> z3.FPRef:
    return z3.fpMin(mul(div(amax, SIX), S), LARGEST)


def _te_factor(scale: z3.FPRef, S: z3.FPRef) -> z3.FPRef:
    return z3.fpMin(div(ONE, mul(scale, div(ONE, S))), LARGEST)


def _te_reads(element: z3.FPRef, scale: z3.FPRef, S: z3.FPRef, amax: z3.FPRef) -> z3.FPRef:
    return mul(element, mul(mul(scale, amax), BOTH_INVERSE))


# pytorch/ao, prototype/mx_formats/nvfp4_tensor.py


def _over_both(amax: z3.FPRef) -> z3.FPRef:
    return div(amax, BOTH)


def _ao_block(amax: z3.FPRef, p: z3.FPRef) -> z3.FPRef:
    return clamp(div(div(amax, SIX), p), LEAST_NORMAL_E4M3, LARGEST_E4M3)


def _ao_factor(scale: z3.FPRef, p: z3.FPRef) -> z3.FPRef:
    return div(div(ONE, p), scale)


def _ao_reads(element: z3.FPRef, scale: z3.FPRef, p: z3.FPRef, amax: z3.FPRef) -> z3.FPRef:
    return mul(element, mul(p, scale))


def _ao_single_block(amax: z3.FPRef, p: z3.FPRef) -> z3.FPRef:
    return clamp(div(amax, SIX), LEAST_NORMAL_E4M3, LARGEST_E4M3)


# vllm-project/vllm, quantization/utils/nvfp4_emulation_utils.py: 1.0 / (x + (x == 0) * 1e8)


def _reciprocal(x: z3.FPRef) -> z3.FPRef:
    return div(ONE, z3.If(z3.fpEQ(x, ZERO), HUNDRED_MILLION, x))


def _vllm_tensor(amax: z3.FPRef) -> z3.FPRef:
    return z3.If(z3.fpIsZero(amax), ONE, mul(div(ONE, amax), BOTH))


def _vllm_block(amax: z3.FPRef, S: z3.FPRef) -> z3.FPRef:
    return clamp(mul(S, mul(amax, SIXTH)), z3.fpNeg(LARGEST_E4M3), LARGEST_E4M3)


def _vllm_factor(scale: z3.FPRef, S: z3.FPRef) -> z3.FPRef:
    return _reciprocal(mul(scale, _reciprocal(S)))


def _over_reads(element: z3.FPRef, scale: z3.FPRef, S: z3.FPRef, amax: z3.FPRef) -> z3.FPRef:
    return mul(element, div(scale, S))


# vllm-project/compressed-tensors, quantization/utils/helpers.py. torch computes a number divided by
# a tensor as the number times the tensor's reciprocal.


def _ct_tensor(amax: z3.FPRef) -> z3.FPRef:
    sort = amax.sort()
    tiny = z3.simplify(z3.fpBVToFP(z3.BitVecVal(1 << sort.sbits() - 1, sort.ebits() + sort.sbits()), sort))
    both = z3.FPVal(448 * 6, sort)
    scale = mul(div(z3.FPVal(1, sort), z3.If(z3.fpIsNaN(amax), amax, z3.fpMax(amax, tiny))), both)
    finite = z3.If(z3.Or(z3.fpIsNaN(scale), z3.fpIsInf(scale)), z3.FPVal(1, sort), scale)
    return finite if sort == FLOAT32 else z3.fpFPToFP(RNE, finite, FLOAT32)


def _ct_block(amax: z3.FPRef, S: z3.FPRef, narrow: Callable[[z3.FPRef], z3.FPRef]) -> z3.FPRef:
    return clamp(mul(S, narrow(div(amax, SIX))), z3.fpNeg(LARGEST_E4M3), LARGEST_E4M3)


def _ct_factor(scale: z3.FPRef, S: z3.FPRef) -> z3.FPRef:
    return div(scale, S)


# NVIDIA/Model-Optimizer, quantization/qtensor/nvfp4_tensor.py


def _modelopt_block(amax: z3.FPRef, s2: z3.FPRef) -> z3.FPRef:
    scale = div(amax, mul(SIX, s2))
    return clamp(z3.If(z3.fpIsZero(scale), ONE, scale), LEAST_E4M3, LARGEST_E4M3)


def _modelopt_factor(scale: z3.FPRef, s2: z3.FPRef) -> z3.FPRef:
    return mul(scale, s2)


def _modelopt_reads(element: z3.FPRef, scale: z3.FPRef, s2: z3.FPRef, amax: z3.FPRef) -> z3.FPRef:
    return mul(element, mul(scale, s2))


STATEMENTS = {
    "transformer_engine": Statement(_te_tensor, _te_block, _te_factor, _te_reads, keeps_any=False),
    "transformer_engine_2025": Statement(_te_tensor, _te_2025_block, _te_factor, _te_reads, keeps_any=False),
    "torchao": Statement(_over_both, _ao_block, _ao_factor, _ao_reads),
    "torchao_single": Statement(lambda amax: ONE, _ao_single_block, _ao_factor, _ao_reads),
    "vllm": Statement(_vllm_tensor, _vllm_block, _vllm_factor, _over_reads, zero_loses_sign=True),
    "compressed_tensors": Statement(
        _ct_tensor, _ct_block, _ct_factor, _over_reads,
        divides=True, zero_loses_sign=True, in_type=True, for_zero=0x20,
    ),
    "modelopt": Statement(
        _over_both, _modelopt_block, _modelopt_factor, _modelopt_reads, divides=True, zero_loses_sign=True
    ),
}  # fmt: skip

#: Thresholds between E2M1 codes, each with True if the threshold itself gets the larger code. A
#: threshold is a tie between two codes, and gets the even code.
PLACES = (
    (0x3E800000, False), (0x3F400000, True), (0x3FA00000, False), (0x3FE00000, True),
    (0x40200000, False), (0x40600000, True), (0x40A00000, False),
)  # fmt: skip


def e2m1(y: z3.FPRef, zero_loses_sign: bool) -> z3.BitVecRef:
    """Return the E2M1 code, in 32 bits, of a number that is not NaN.

    The thresholds are .25, .75, 1.25, 1.75, 2.5, 3.5 and 5.
    """
    size = z3.fpAbs(y)
    one, none, sign = (z3.BitVecVal(value, 32) for value in (1, 0, 8))
    ups = [z3.fpGEQ(size, bits(place)) if at else z3.fpGT(size, bits(place)) for place, at in PLACES]
    magnitude: Any = sum((z3.If(up, one, none) for up in ups), none)
    below = z3.fpLT(y, ZERO) if zero_loses_sign else z3.fpIsNegative(y)
    return magnitude + z3.If(below, sign, none)

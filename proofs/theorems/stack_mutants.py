"""Check that proofs fail for mistakes planted in the arithmetic of stacks.

Each entry of `MUTANTS` changes one module. A check of `proofs.theorems.stacks` must refute the
changed module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mxnum.definition import stack_arithmetic
from mxnum.engine.rounding import by_stack
from mxnum.formats import FLOATS
from proofs.mutants.modules import given_as, stated
from proofs.theorem import Outcome, Theorem
from proofs.theorems import stacks

STATEMENT = (
    "A mistake planted in the arithmetic of a stack, or in the functions that call it, is found: the theorem about the "
    "changed function is refuted."
)
MODULES = {"arithmetic": stack_arithmetic, "fast": by_stack}
FLOAT32, BFLOAT16 = FLOATS["float32"], FLOATS["bfloat16"]


def tensor(stack: str, *at: int, dtype: str = "float32") -> Callable[..., Outcome]:
    """Return a function that checks the statement `TENSOR` for the changed module."""
    return partial(stacks.check_tensor, stack, dtype, at=at)


def scale(stack: str, *at: int, source: Any = FLOAT32) -> Callable[..., Outcome]:
    """Return a function that checks the statement `SCALE` for the changed module."""
    return partial(stacks.check_scale, stack, source, at=at)


def factor(stack: str, *at: int) -> Callable[..., Outcome]:
    """Return a function that checks the statement `FACTOR` for the changed module."""
    return partial(stacks.check_factor, stack, at=at)


def element(stack: str) -> Callable[..., Outcome]:
    """Return a function that checks the statement `ELEMENT` for the changed module."""
    return partial(stacks.check_element, stack)


def reads(stack: str, *at: int) -> Callable[..., Outcome]:
    """Return a function that checks the statement `READS` for the changed module."""
    return partial(stacks.check_reads, stack, at=at)


TE = "transformer_engine"

#: Each entry is (name, key of the module in `MODULES`, text to replace, replacement, the check that
#: must refute the changed module). Some checks get an input that shows the mistake, because a
#: solver would take long to find such an input.
MUTANTS: tuple[tuple[str, str, str, str, Callable[..., Outcome]], ...] = (
    ("sixth-last", "arithmetic", "block_largest * (S * _SIXTH)", "(block_largest * S) * _SIXTH",
     scale(TE, 0x41100000, 0x43600000)),
    ("sixth-as-product", "arithmetic", "(block_largest / _SIX) * S", "(block_largest * _SIXTH) * S",
     scale("transformer_engine_2025", 0x41C80000, 0x42C00000)),
    ("six-before", "arithmetic", "S * (block_largest * _SIXTH)", "(S * block_largest) * _SIXTH",
     scale("vllm", 0x42040000, 0x42745D18)),
    ("scale-in-float32", "arithmetic", "narrowed(block_largest / _SIX)", "(block_largest / _SIX)",
     scale("compressed_tensors", 0x40E00000, 0x42C71C72, source=BFLOAT16)),
    ("divided-twice", "arithmetic", "block_largest / (_SIX * s2)", "(block_largest / _SIX) / s2",
     scale("modelopt", 0x41B80000, 0x3C2AAAAB)),
    ("zero-stays", "arithmetic", "select(scale == 0, _ONE, scale), _LEAST", "scale, _LEAST",
     scale("modelopt", 0, 0x3C2AAAAB)),
    ("least-scale", "arithmetic", "np.float32(2**-6), ", "np.float32(2**-9), ",
     scale("torchao", 0x3A000000, 0x3F800000)),
    ("six", "arithmetic", "_SIX = np.float32(6)", "_SIX = np.float32(6.0000005)",
     scale("torchao_single", 0x42640000, 0x3F800000)),
    ("number-over-tensor", "arithmetic", "(_ONE / tensor) * number", "number / tensor", tensor("vllm", 0x40A00000)),
    ("infinite-tensor", "arithmetic", "(largest == 0) | (scale == 0)", "(largest == 0) | (largest == 0)",
     tensor(TE, 0x7F800000)),
    ("tensor-unbounded", "arithmetic", "_at_most(_BOTH_MAX / largest, _FLOAT32_MAX)", "_BOTH_MAX / largest",
     tensor(TE, 1)),
    ("tensor-in-float32", "arithmetic", "number(448 * 6)", "number(448 * 7)",
     tensor("compressed_tensors", dtype="bfloat16")),
    ("quotient-for-reciprocal", "arithmetic", "(scale * (_ONE / S))", "(scale / S)",
     factor(TE, 0x3C900000, 0x44600000)),
    ("one-reciprocal", "arithmetic", "(_ONE / p) / scale", "_ONE / (p * scale)",
     factor("torchao", 0x3BC00000, 0x39C30C31)),
    ("reciprocal-of-zero", "arithmetic", "np.float32(1e8)", "np.float32(1e9)", factor("vllm", 0, 0x3F800000)),
    ("reciprocal-for-quotient", "arithmetic", "return scale / S", "return scale * (_ONE / S)",
     factor("compressed_tensors", 0x3BC00000, 0x44600000)),
    ("divided-by-both", "arithmetic", "largest) * _BOTH_MAX_INVERSE", "largest) / _BOTH_MAX",
     reads(TE, 0x3CB00000, 0x44600000, 0x40400000)),
    ("scale-first", "arithmetic", "element * (p * scale)", "(element * p) * scale",
     reads("torchao", 0x3C900000, 0x39C30C31, 0x3F800000)),
    ("nan-from-infinity", "fast", "found > _INFINITY", "found > 0x7FFFFFFF", scale("vllm")),
    ("zero-scale", "fast", "wide(select(code == 0, FOR_ZERO, code))", "wide(code)", scale("compressed_tensors")),
    ("greatest", "fast", "(UNIT + 100) << 23", "(UNIT + 2) << 23", element(TE)),
    ("sign-of-zero", "fast", "select(scaled == -0x80000000, 0, scaled)", "scaled", element("vllm")),
    ("divided", "fast", "if DIVIDES else", "if not DIVIDES else", element("modelopt")),
    ("factor-of-zero", "fast", "(factor > 0)", "(factor >= 0)", factor("modelopt")),
    ("scale-for-largest", "fast", "low_word(tensor >> 32)", "low_word(tensor)",
     reads(TE, 0x3F800000, 0x3F800000, 0x40000000)),
    ("infinite-value", "fast", "(largest_value < _INFINITY)", "(largest_value <= _INFINITY)", reads(TE)),
    ("ties-up", "fast", "0x7FFF + ((bits >> 16) & 1)", "0x8000", partial(stacks.check_narrowed, BFLOAT16)),
    ("number-of-scale", "fast", "value_of_code(low_word(code), UNIT, _OF_SCALE)",
     "value_of_code(low_word(code), UNIT, _OF_ELEMENT)", stacks.check_number),
)  # fmt: skip


def theorems() -> list[Theorem]:
    return [
        stated(f"stacks/mutant/{name}", STATEMENT, MODULES[place], old, new, given_as(place, theorem))
        for name, place, old, new, theorem in MUTANTS
    ]

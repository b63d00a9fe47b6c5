"""NVFP4 as software stacks compute it, bit for bit, with the same float32 operations.

NVFP4 has E2M1 elements in blocks of 16, an E4M3 scale for each block and one float32 for the
tensor. All stacks agree on the meaning of elements and scales. The stacks round different
intermediate results, so the bits of their elements and scales differ. For each stack this file has
four functions:

- `global_scale(largest)` returns the float32 that the stack computes for the tensor, in one of two
  directions (see below);
- `block_scale(block_largest, global_scale)` returns the number that the stack rounds to E4M3 (to
  nearest even, saturating);
- `factor(scale, global_scale)` returns the number by which the stack multiplies or divides each
  input; the product or quotient is then rounded to E2M1 (to nearest even, saturating);
- `decoded(element, scale, global_scale, largest)` returns the decoded value of an element.

The four functions are pure: they compute float32 numbers with + * /, comparisons and `select`. The
functions run on numpy arrays and, compiled, in loops over large arrays
(`engine.rounding.by_stack`). Each operation rounds once to nearest even, as in IEEE 754, and keeps
subnormal numbers. mxnum's own definition then rounds to E4M3 and E2M1. An infinite input passes
through the same operations as in the stack. A NaN in the input raises an error, because even the
kernels of a single stack treat NaN in different ways.

The global scale is a factor either for encoding or for decoding, depending on the stack. In the
direction "encode" the global scale is called S. S is near 2688 / largest, and encoding multiplies
numbers by S. In the direction "decode" the global scale is the inverse of S, like
`MXArray.tensor_scale`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum.definition.word import dialect, select
from mxnum.formats import FLOATS

_ONE = np.float32(1)
_SIX = np.float32(6)
# 1 / 6 rounded to nearest. It is a literal, because Python would compute `1 / 6` during the import,
# in the rounding mode that the processor has at that time.
_SIXTH = np.float32(0xAAAAAB * 2.0**-26)
_E4M3_LEAST, _E4M3_MAX = np.float32(-448), np.float32(448)
_BOTH_MAX = np.float32(448 * 6)
_BOTH_MAX_INVERSE = np.float32(0xC30C31 * 2.0**-35)  # 1 / 2688 rounded to nearest
_FLOAT32_MAX = np.finfo(np.float32).max
_1E8 = np.float32(1e8)
_LEAST_NORMAL_E4M3, _LEAST_E4M3 = np.float32(2**-6), np.float32(2**-9)


@dialect
def _at_most(x: Any, limit: Any) -> Any:
    """Return the smaller of x and the limit, or NaN if x is NaN."""
    return select(x > limit, limit, x)


@dialect
def _within(x: Any, least: Any, greatest: Any) -> Any:
    return _at_most(select(x < least, least, x), greatest)


# TransformerEngine stores the largest magnitude of a tensor, and each kernel computes the global
# scale S from this magnitude.


def _transformer_engine_global(largest: Any) -> Any:
    scale = _at_most(_BOTH_MAX / largest, _FLOAT32_MAX)
    return select((largest == 0) | (scale == 0), _ONE, scale)


@dialect
def _transformer_engine_block(block_largest: Any, S: Any) -> Any:
    return _at_most(block_largest * (S * _SIXTH), _FLOAT32_MAX)


@dialect
def _transformer_engine_2025_block(block_largest: Any, S: Any) -> Any:
    return _at_most((block_largest / _SIX) * S, _FLOAT32_MAX)


@dialect
def _transformer_engine_factor(scale: Any, S: Any) -> Any:
    return _at_most(_ONE / (scale * (_ONE / S)), _FLOAT32_MAX)


@dialect
def _transformer_engine_decoded(element: Any, scale: Any, S: Any, largest: Any) -> Any:
    return element * ((scale * largest) * _BOTH_MAX_INVERSE)


# torchao.


def _torchao_global(largest: Any) -> Any:
    return largest / _BOTH_MAX


@dialect
def _torchao_block(block_largest: Any, p: Any) -> Any:
    return _within((block_largest / _SIX) / p, _LEAST_NORMAL_E4M3, _E4M3_MAX)


@dialect
def _torchao_factor(scale: Any, p: Any) -> Any:
    return (_ONE / p) / scale


@dialect
def _torchao_decoded(element: Any, scale: Any, p: Any, largest: Any) -> Any:
    return element * (p * scale)


def _no_global(largest: Any) -> Any:
    return np.ones_like(largest)


@dialect
def _torchao_single_block(block_largest: Any, p: Any) -> Any:
    return _within(block_largest / _SIX, _LEAST_NORMAL_E4M3, _E4M3_MAX)


# vLLM's emulation in torch. Callers of vLLM pass the global scale S. Callers of mxnum may omit S.
# Then mxnum computes S as `448 * 6 / largest`, with torch's division. To divide a number by a
# tensor, torch rounds twice: it rounds the tensor's reciprocal, and then the product of the number
# and this reciprocal.


def _number_over_tensor(number: Any, tensor: Any) -> Any:
    return (_ONE / tensor) * number


def _vllm_global(largest: Any) -> Any:
    return select(largest == 0, _ONE, _number_over_tensor(_BOTH_MAX, largest))


@dialect
def _vllm_block(block_largest: Any, S: Any) -> Any:
    return _within(S * (block_largest * _SIXTH), _E4M3_LEAST, _E4M3_MAX)


@dialect
def _vllm_reciprocal(x: Any) -> Any:
    return _ONE / select(x == 0, _1E8, x)


@dialect
def _vllm_factor(scale: Any, S: Any) -> Any:
    return _vllm_reciprocal(scale * _vllm_reciprocal(S))


@dialect
def _divided_decoded(element: Any, scale: Any, S: Any, largest: Any) -> Any:
    return element * (scale / S)


# compressed-tensors. The global scale S is computed in the type of the tensor, and
# `block_largest / 6` is rounded to this type.


def _compressed_tensors_global(largest: Any) -> Any:
    number = largest.dtype.type
    scale = (number(1) / np.maximum(largest, np.asarray(_tiny(largest.dtype)))) * number(448 * 6)
    return np.where(np.isfinite(scale), scale, number(1)).astype(np.float32)


def _tiny(dtype: np.dtype[Any]) -> Any:
    """Return the smallest normal number of a float type."""
    return np.ldexp(1.0, FLOATS[dtype.name].emin).astype(dtype)


def _compressed_tensors_block(narrowed: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    @dialect
    def block_scale(block_largest: Any, S: Any) -> Any:
        return _within(S * narrowed(block_largest / _SIX), _E4M3_LEAST, _E4M3_MAX)

    return block_scale


@dialect
def _same(x: Any) -> Any:
    return x


@dialect
def _compressed_tensors_divisor(scale: Any, S: Any) -> Any:
    return scale / S


# ModelOpt, called without scales: `NVFP4QTensor.quantize` computes all scales from the tensor.


@dialect
def _modelopt_block(block_largest: Any, s2: Any) -> Any:
    scale = block_largest / (_SIX * s2)
    return _within(select(scale == 0, _ONE, scale), _LEAST_E4M3, _E4M3_MAX)


@dialect
def _modelopt_divisor(scale: Any, s2: Any) -> Any:
    return scale * s2


@dialect
def _modelopt_decoded(element: Any, scale: Any, s2: Any, largest: Any) -> Any:
    return element * (scale * s2)


@dataclass(frozen=True)
class Stack:
    """How one software stack computes NVFP4; the module's docstring describes the functions."""

    name: str
    #: The repository, file and function of the source code that the four functions reproduce.
    source: str
    #: The direction of the global scale: "encode" or "decode", or "none" if it is always 1.
    direction: str
    global_scale: Callable[[Any], Any]
    block_scale: Callable[[Any, Any], Any]
    factor: Callable[[Any, Any], Any]
    decoded: Callable[[Any, Any, Any, Any], Any]
    #: The E4M3 code that the stack writes instead of a zero scale; 0 if the stack keeps zero
    #: scales.
    for_zero: int = 0
    #: The E2M1 code for a NaN that the operations produce; None if the code depends on the NaN's
    #: sign, which differs between processors.
    nan_element: int | None = None
    #: True if -0 after scaling is encoded as -0, False if it is encoded as +0.
    keeps_negative_zero: bool = True
    #: True if inputs are divided by the result of `factor`, False if they are multiplied by it.
    divides: bool = False
    #: A function that makes `block_scale` for a type of tensor. Its argument is a function that
    #: rounds float32 to this type. None if the stack computes block scales in float32 for every
    #: type of tensor.
    block_scale_in: Callable[[Any], Any] | None = None
    #: The types of tensors that the stack accepts.
    takes: tuple[str, ...] = ("float32", "bfloat16", "float16")

    def tensor_scale(self, global_scale: Any) -> Any:
        """Return the global scale in the direction of decoding, as float32."""
        with np.errstate(all="ignore"):
            return _ONE / global_scale if self.direction == "encode" else np.float32(global_scale)


_TRANSFORMER_ENGINE = "NVIDIA/TransformerEngine: transformer_engine/common/cast/nvfp4/core_nvfp4.cuh"
_CORE = f"{_TRANSFORMER_ENGINE} (compute_global_encode_scaling_factor_FP4, compute_decoding_scaling_factor)"
_TORCHAO = "pytorch/ao 0.18: torchao/prototype/mx_formats/nvfp4_tensor.py (nvfp4_quantize)"
_TORCHAO_TAKES = "float32", "bfloat16"

_TE = _transformer_engine_global, _transformer_engine_block, _transformer_engine_factor, _transformer_engine_decoded
STACKS = {
    stack.name: stack
    for stack in (
        Stack(
            "transformer_engine",
            f"{_CORE} since March 2026; pytorch/custom_recipes/reference_nvfp4.py; dequantize_nvfp4.cuh",
            "encode", *_TE,
        ),
        Stack(
            "transformer_engine_2025", f"{_CORE} with transposition, before commit 523801df7 of March 2026",
            "encode", _TE[0], _transformer_engine_2025_block, *_TE[2:],
        ),
        Stack(
            "torchao", f"{_TORCHAO} with per_tensor_amax_to_scale, on a CPU",
            "decode", _torchao_global, _torchao_block, _torchao_factor, _torchao_decoded, takes=_TORCHAO_TAKES,
        ),
        Stack(
            "torchao_single", f"{_TORCHAO} without a tensor scale (the default), on a CPU",
            "none", _no_global, _torchao_single_block, _torchao_factor, _torchao_decoded, takes=_TORCHAO_TAKES,
        ),
        Stack(
            "vllm",
            "vllm-project/vllm: vllm/model_executor/layers/quantization/utils/nvfp4_emulation_utils.py "
            "(ref_nvfp4_quant, ref_nvfp4_quant_dequant), in torch",
            "encode", _vllm_global, _vllm_block, _vllm_factor, _divided_decoded, keeps_negative_zero=False,
        ),
        Stack(
            "compressed_tensors",
            "vllm-project/compressed-tensors 0.20: quantization/utils/helpers.py (generate_gparam, calculate_qparams), "
            "quantization/lifecycle/forward_helpers.py (_quantize), on a CPU",
            "encode", _compressed_tensors_global, _compressed_tensors_block(_same),
            _compressed_tensors_divisor, _divided_decoded,
            for_zero=0x20, keeps_negative_zero=False, divides=True, block_scale_in=_compressed_tensors_block,
        ),
        Stack(
            "modelopt",
            "NVIDIA/Model-Optimizer 0.47: modelopt/torch/quantization/qtensor/nvfp4_tensor.py (NVFP4QTensor.quantize), "
            "on a CPU",
            "decode", _torchao_global, _modelopt_block, _modelopt_divisor, _modelopt_decoded,
            nan_element=7, keeps_negative_zero=False, divides=True,
        ),
    )
}  # fmt: skip

"""NVFP4 as each software stack computes it: the float32 operations of its source, in their order, bit for bit.

NVFP4 has E2M1 elements in blocks of 16, an E4M3 scale for each block and one float32 for the tensor. What the numbers
mean is agreed; what is rounded on the way to them is not, and so the bits of two stacks differ. Of each stack this file
says, from the tensor's largest magnitude and the block's:

- `global_scale(largest)`: the float32 that the stack keeps for the tensor, in the stack's own direction;
- `block_scale(block_largest, global_scale)`: what it rounds to E4M3 (to nearest even, saturating);
- `factor(scale, global_scale)`: what it multiplies an element with, or divides it by; the result is rounded to E2M1 (to
  nearest even, saturating);
- `decoded(element, scale, global_scale, largest)`: what an element reads as.

They are pure functions of float32: + * / and the least, the greatest and comparisons; each runs as it stands on numpy
arrays, and each operation is one IEEE rounding to nearest even without flushing. Roundings to E4M3 and E2M1 are this
library's own. An infinity goes through the operations as it does in the stack; a NaN in the input is refused, because
there the kernels of one stack differ among themselves.

Directions: "encode" scales (S near 2688 / largest) multiply what is encoded; "decode" scales are their inverses, and
what `MXArray.tensor_scale` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors
from mxnum.chunks import chunks, gather, of_blocks, spread
from mxnum.dtypes import Array
from mxnum.engine import dispatch
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.layout import Blocks, scales_shape
from mxnum.modes import Nonfinite, Overflow, Rounding

BLOCK = 16
#: Elements done at a time.
PIECE = 1 << 16
E4M3, E2M1, FLOAT32 = ELEMENTS["e4m3"], ELEMENTS["e2m1"], FLOATS["float32"]

_ONE = np.float32(1)
_SIX = np.float32(6)
_SIXTH = np.float32(1) / np.float32(6)
_E4M3_MAX = np.float32(448)
_BOTH_MAX = np.float32(448 * 6)
_BOTH_MAX_INVERSE = np.float32(1) / np.float32(448 * 6)
_FLOAT32_MAX = np.finfo(np.float32).max
_TINY = np.finfo(np.float32).tiny
_LEAST_NORMAL_E4M3, _LEAST_E4M3 = np.float32(2**-6), np.float32(2**-9)


# TransformerEngine. The float32 kept for a tensor is its largest magnitude; S is made of it in each kernel.


def _transformer_engine_global(largest: Any) -> Any:
    scale = np.minimum(_BOTH_MAX / largest, _FLOAT32_MAX)
    return np.where((largest == 0) | (scale == 0), _ONE, scale)


def _transformer_engine_block(block_largest: Any, S: Any) -> Any:
    return np.minimum(block_largest * (S * _SIXTH), _FLOAT32_MAX)


def _transformer_engine_2025_block(block_largest: Any, S: Any) -> Any:
    return np.minimum((block_largest / _SIX) * S, _FLOAT32_MAX)


def _transformer_engine_factor(scale: Any, S: Any) -> Any:
    return np.minimum(_ONE / (scale * (_ONE / S)), _FLOAT32_MAX)


def _transformer_engine_decoded(element: Any, scale: Any, S: Any, largest: Any) -> Any:
    return element * ((scale * largest) * _BOTH_MAX_INVERSE)


# torchao


def _torchao_global(largest: Any) -> Any:
    return largest / _BOTH_MAX


def _torchao_block(block_largest: Any, p: Any) -> Any:
    return np.clip((block_largest / _SIX) / p, _LEAST_NORMAL_E4M3, _E4M3_MAX)


def _torchao_factor(scale: Any, p: Any) -> Any:
    return (_ONE / p) / scale


def _torchao_decoded(element: Any, scale: Any, p: Any, largest: Any) -> Any:
    return element * (p * scale)


def _no_global(largest: Any) -> Any:
    return np.ones_like(largest)


def _torchao_single_block(block_largest: Any, p: Any) -> Any:
    return np.clip(block_largest / _SIX, _LEAST_NORMAL_E4M3, _E4M3_MAX)


# vLLM's emulation in torch. S is the caller's; by default what `448 * 6 / largest` is in torch, where a number over a
# tensor is the tensor's reciprocal times the number: two roundings.


def _number_over_tensor(number: Any, tensor: Any) -> Any:
    return (_ONE / tensor) * number


def _vllm_global(largest: Any) -> Any:
    return np.where(largest == 0, _ONE, _number_over_tensor(_BOTH_MAX, largest))


def _vllm_block(block_largest: Any, S: Any) -> Any:
    return np.clip(S * (block_largest * _SIXTH), -_E4M3_MAX, _E4M3_MAX)


def _vllm_reciprocal(x: Any) -> Any:
    return _ONE / np.where(x == 0, np.float32(1e8), x)


def _vllm_factor(scale: Any, S: Any) -> Any:
    return _vllm_reciprocal(scale * _vllm_reciprocal(S))


def _divided_decoded(element: Any, scale: Any, S: Any, largest: Any) -> Any:
    return element * (scale / S)


# compressed-tensors. What comes before the product with S is in the type of the tensor, as its observers have it.


def _compressed_tensors_global(largest: Any) -> Any:
    number = largest.dtype.type
    scale = (number(1) / np.maximum(largest, np.asarray(_tiny(largest.dtype)))) * number(448 * 6)
    return np.where(np.isfinite(scale), scale, number(1)).astype(np.float32)


def _tiny(dtype: np.dtype[Any]) -> Any:
    """The least normal number of a float type."""
    return np.ldexp(1.0, FLOATS[dtype.name].emin).astype(dtype)


def _compressed_tensors_block(block_largest: Any, S: Any) -> Any:
    scale = S * (block_largest / block_largest.dtype.type(6)).astype(np.float32)
    return np.clip(scale, -_E4M3_MAX, _E4M3_MAX)


def _compressed_tensors_divisor(scale: Any, S: Any) -> Any:
    return scale / S


# ModelOpt, scales computed from the tensor


def _modelopt_block(block_largest: Any, s2: Any) -> Any:
    scale = block_largest / (_SIX * s2)
    return np.clip(np.where(scale == 0, _ONE, scale), _LEAST_E4M3, _E4M3_MAX)


def _modelopt_divisor(scale: Any, s2: Any) -> Any:
    return scale * s2


def _modelopt_decoded(element: Any, scale: Any, s2: Any, largest: Any) -> Any:
    return element * (scale * s2)


@dataclass(frozen=True)
class Stack:
    """One software stack's way to NVFP4: see the module for its functions."""

    name: str
    #: Repository, file and function of what is followed here.
    source: str
    #: "encode" or "decode": the direction of the global scale; "none" where there is only the number 1.
    direction: str
    global_scale: Callable[[Any], Any]
    block_scale: Callable[[Any, Any], Any]
    factor: Callable[[Any, Any], Any]
    decoded: Callable[[Any, Any, Any, Any], Any]
    #: The code of an E4M3 scale that is used instead of zero, or 0.
    for_zero: int = 0
    #: The E2M1 code of a NaN that the operations make; None where the machine decides, through the sign of its NaN.
    nan_element: int | None = None
    #: Whether a number that is scaled to -0 keeps its sign.
    keeps_negative_zero: bool = True
    #: Whether elements are divided by the factor.
    divides: bool = False
    #: Whether block scales begin in the type of the tensor rather than in float32.
    in_own_type: bool = False

    def tensor_scale(self, global_scale: Any) -> Any:
        """The global scale as a factor of decoding, in float32."""
        with np.errstate(all="ignore"):
            return _ONE / global_scale if self.direction == "encode" else np.float32(global_scale)


_TRANSFORMER_ENGINE = "NVIDIA/TransformerEngine: transformer_engine/common/cast/nvfp4/core_nvfp4.cuh"
_CORE = f"{_TRANSFORMER_ENGINE} (compute_global_encode_scaling_factor_FP4, compute_decoding_scaling_factor)"
_TORCHAO = "pytorch/ao 0.18: torchao/prototype/mx_formats/nvfp4_tensor.py (nvfp4_quantize)"

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
            "decode", _torchao_global, _torchao_block, _torchao_factor, _torchao_decoded,
        ),
        Stack(
            "torchao_single", f"{_TORCHAO} without a tensor scale, its default, on a CPU",
            "none", _no_global, _torchao_single_block, _torchao_factor, _torchao_decoded,
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
            "encode", _compressed_tensors_global, _compressed_tensors_block,
            _compressed_tensors_divisor, _divided_decoded,
            for_zero=0x20, keeps_negative_zero=False, divides=True, in_own_type=True,
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


class Quantized(NamedTuple):
    """What a stack makes of a tensor."""

    #: E2M1 codes, one a byte, shaped as x.
    codes: Array
    #: E4M3 codes, one for each block.
    scales: Array
    #: What the stack keeps for the tensor, in its own direction.
    global_scale: np.float32
    #: The same as a factor of decoding.
    tensor_scale: np.float32
    #: The tensor's largest magnitude, which TransformerEngine keeps in place of a scale.
    largest: np.float32
    #: The length of a block along each axis.
    blocks: Blocks


def quantize(
    x: Array, stack: str | Stack, *, blocks: Blocks | None = None, largest: Any = None, global_scale: Any = None
) -> Quantized:
    """NVFP4 of an array of float32, bfloat16 or float16, as `stack` computes it.

    `blocks` has the length of a block along each axis; by default they are the rows of x, of shape (n, 16), and the
    scales are of shape (n,).
    `largest` is the tensor's largest magnitude where x is a part of it; `global_scale` replaces the stack's own.
    """
    chosen = of(stack)
    name = x.dtype.name
    errors.require_type(name in ("float32", "bfloat16", "float16"), "x", "of float32, bfloat16 or float16", name)
    if blocks is None:
        errors.require(x.ndim == 2 and x.shape[1] == BLOCK, "x", f"blocks as rows, of shape (n, {BLOCK})", x.shape)
        made = quantize(x, chosen, blocks=(1, BLOCK), largest=largest, global_scale=global_scale)
        return made._replace(scales=made.scales[:, 0])
    is_nan = np.isnan(x)
    if is_nan.any():
        where = tuple(int(i) for i in np.argwhere(is_nan)[0])
        raise errors.nonfinite("x", where, f"without NaN for the arithmetic of {chosen.name},", "NaN")
    own_type = x.dtype if chosen.in_own_type else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        if largest is None:
            largest = np.abs(x).max(initial=0)
        tensor = chosen.global_scale(np.asarray(largest, own_type)) if global_scale is None else global_scale
        tensor = np.float32(tensor)
        codes, scales = np.empty(x.shape, np.uint8), np.empty(scales_shape(x.shape, blocks), np.uint8)
        for part in chunks(x.shape, blocks, PIECE):
            sides = of_blocks(part, blocks)
            codes[part], scales[sides] = _quantized(chosen, x[part], blocks, own_type, tensor)
    return Quantized(codes, scales, tensor, np.float32(chosen.tensor_scale(tensor)), np.float32(largest), blocks)


def _quantized(stack: Stack, x: Array, blocks: Blocks, own_type: Any, tensor: Any) -> tuple[Array, Array]:
    """Codes and scales of a piece."""
    wide = x.astype(np.float32)
    found = stack.block_scale(_largest_of_blocks(np.abs(wide), blocks).astype(own_type), tensor)
    # (an unsigned scale: a NaN has no sign)
    scales = _encoded(np.abs(np.asarray(found, np.float32)), E4M3)
    scales = np.where(scales == 0, np.uint8(stack.for_zero), scales)
    factor = spread(np.asarray(stack.factor(_values(scales, E4M3), tensor)), blocks, x.shape)
    scaled = wide / factor if stack.divides else wide * factor
    is_nan = np.isnan(scaled)
    if is_nan.any():
        undecided = is_nan & (spread(scales, blocks, x.shape) != E4M3.nan_code) & (stack.nan_element is None)
        if undecided.any():
            where = tuple(int(i) for i in np.argwhere(undecided)[0])
            raise errors.outside("x", where, f"a number of which {stack.name} makes no NaN", float(wide[where]))
        scaled[is_nan] = 0
    codes = _encoded(scaled, E2M1)
    if not stack.keeps_negative_zero:
        codes[scaled == 0] = 0
    codes[is_nan] = stack.nan_element or 0  # (0 for what reads NaN because of its scale)
    return codes, scales


def _largest_of_blocks(magnitudes: Array, blocks: Blocks) -> Array:
    """The largest of each block; where they are whole runs of a power of two, by halves, which is quicker."""
    if not blocks:
        return magnitudes
    *others, last = blocks
    if any(block > 1 for block in others) or last & (last - 1) or magnitudes.shape[-1] % last:
        return gather(np.maximum, magnitudes, blocks)
    found = magnitudes.reshape(*magnitudes.shape[:-1], -1, last)
    while last > 1:
        last //= 2
        found = np.maximum(found[..., :last], found[..., last:])
    return found[..., 0]


def dequantize(made: Quantized, stack: str | Stack) -> Array:
    """What the stack reads it as, in float32."""
    values = np.empty(made.codes.shape, np.float32)
    sides = made.scales.reshape(scales_shape(values.shape, made.blocks))
    for part in chunks(values.shape, made.blocks, PIECE):
        elements = _values(made.codes[part], E2M1)
        scales = spread(_values(sides[of_blocks(part, made.blocks)], E4M3), made.blocks, elements.shape)
        with np.errstate(all="ignore"):
            values[part] = of(stack).decoded(elements, scales, made.global_scale, made.largest)
    return values


def of(stack: str | Stack) -> Stack:
    """The stack of that name."""
    return stack if isinstance(stack, Stack) else STACKS[errors.choose("arithmetic", stack, tuple(STACKS))]


def _encoded(x: Array, element: ElementFormat) -> Array:
    """Codes of float32 numbers, to nearest even, saturating."""
    modes = {"rounding": Rounding.RNE, "overflow": Overflow.SATURATE, "nonfinite": Nonfinite.ELEMENT, "random": None}
    return np.asarray(dispatch.host_engine().encode(x, FLOAT32, element, **modes))


def _values(codes: Array, element: ElementFormat) -> Array:
    return np.asarray(dispatch.host_engine().decode(codes, element, FLOAT32))
